//! The memory of one origin: the file, the range that maps it, the alias mapping, and the area for isolated pages. A value of
//! this kind lies outside the heap ([`super::off_heap`]).
//!
//! Relies on [`quire_sys::map`] and on `/proc/self/pagemap` to tell pages of the origin's own from pages of the file. The
//! callers know what may be done when; [`crate::scoot::region_table`] says which generation is held.

use std::fs::File;
use std::io;
use std::ops::Range;

use quire_sys::map::{self, MapAdvice, MapSharing, Protection};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::userfault::Userfault;

use super::layout::{FileLayout, GENERATIONS, Generation};
use crate::mechanism::Mechanism;
use crate::origin::MechanismError;
use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use crate::racy;
use crate::span::PageRange;

/// Most regions that are isolated at once: a bound on how long their writers wait.
pub(super) const MAX_ISOLATED_REGIONS: usize = 32;

/// A failed system call as a refusal.
pub(super) fn refused(call: &'static str, source: io::Error) -> MechanismError {
    let suggestion = "Look at vm.max_map_count, the memory limit and RLIMIT_AS";
    MechanismError::System { mechanism: Mechanism::Scoot, call, source, suggestion }
}

/// See the head of this file.
pub(super) struct BackingFile {
    pub(super) layout: FileLayout,
    /// Keeps the origin's addresses claimed.
    span: PageRange,
    file: File,
    /// A second, shared mapping of the whole file. The mechanism writes the file through it while the origin maps it privately.
    alias: Reservation,
    isolation_area: Reservation,
    pagemap: Pagemap,
    pub(super) fault: Option<Userfault>,
}

impl BackingFile {
    /// The file and its mappings, still without content; the span is not touched yet.
    pub(super) fn new(span: PageRange, fault: Option<Userfault>) -> Result<Self, MechanismError> {
        let layout = FileLayout::new(span.base() as usize, span.len());
        let bytes = layout.stride() * GENERATIONS;
        let file = map::memory_file("quire-scoot", bytes as u64).map_err(|error| refused("memfd_create", error))?;
        let alias = Reservation::new(bytes)?;
        // SAFETY: the reservation was made just now, and no other code knows its addresses.
        unsafe { map::map_file_over(alias.base(), bytes, &file, 0, MapSharing::Shared, Protection::ReadWrite) }
            .map_err(|error| refused("mmap", error))?;
        let isolation_area = Reservation::new(MAX_ISOLATED_REGIONS.min(layout.regions()) * REGION_SIZE)?;
        let pagemap = Pagemap::open(None).map_err(|error| refused("open(/proc/self/pagemap)", error))?;
        Ok(Self { layout, span, file, alias, isolation_area, pagemap, fault })
    }

    /// First address of the origin.
    pub(super) fn base(&self) -> *mut u8 {
        self.span.base()
    }

    /// Bytes of the origin.
    pub(super) fn len(&self) -> usize {
        self.span.len()
    }

    pub(super) fn origin_at(&self, position: usize) -> *mut u8 {
        self.span.base().wrapping_add(position - self.layout.lead())
    }

    pub(super) fn alias_at(&self, generation: Generation, position: usize) -> *mut u8 {
        self.alias.base().wrapping_add(self.layout.file_offset(generation, position))
    }

    /// Maps `run` of the origin, over itself, on `generation`. The private pages that it had are gone.
    ///
    /// # Safety
    /// `generation` holds the bytes that the run shows, so a reader finds the same bytes before and after.
    pub(super) unsafe fn map_origin(
        &self,
        run: &Range<usize>,
        generation: Generation,
        sharing: MapSharing,
    ) -> io::Result<()> {
        // SAFETY: `map_positions` makes the same demand of its positions as this function of its run: that the generation holds
        // the bytes shown there.
        unsafe { self.map_positions(self.layout.positions(run), generation, sharing) }
    }

    /// Maps `run` of the window of a view privately on `generation`.
    ///
    /// # Safety
    /// `window` is a reservation of at least the layout's stride, and no other code uses the run.
    pub(super) unsafe fn map_window(
        &self,
        window: &Reservation,
        run: &Range<usize>,
        generation: Generation,
    ) -> io::Result<()> {
        let positions = self.layout.positions(run);
        let at = window.base().wrapping_add(positions.start);
        // SAFETY: the positions lie below the layout's stride, and `map_window` demands a window of at least that length that
        // no other code uses.
        unsafe { self.map_at(at, positions, generation, MapSharing::Private) }
    }

    /// As [`BackingFile::map_origin`], for part of a run.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn map_positions(
        &self,
        positions: Range<usize>,
        generation: Generation,
        sharing: MapSharing,
    ) -> io::Result<()> {
        // SAFETY: addresses of the origin. `PageRange::borrow` demands that no other code remaps them while `self.span` lives.
        unsafe { self.map_at(self.origin_at(positions.start), positions, generation, sharing) }
    }

    /// The area to which isolated pages are moved.
    pub(super) fn isolation_area(&self) -> &Reservation {
        &self.isolation_area
    }

    /// # Safety
    /// The addresses from `at` on, as many as there are positions, are this mechanism's to remap.
    unsafe fn map_at(
        &self,
        at: *mut u8,
        positions: Range<usize>,
        generation: Generation,
        sharing: MapSharing,
    ) -> io::Result<()> {
        let offset = self.layout.file_offset(generation, positions.start) as u64;
        // SAFETY: `map_file_over` demands addresses that the caller may remap; `map_at` demands the same of `at`.
        unsafe { map::map_file_over(at, positions.len(), &self.file, offset, sharing, Protection::ReadWrite) }
    }

    /// Tells those of `positions` whose pages, mapped from `at` on, belong to that mapping alone, in order. A page that is on the
    /// move or swapped out counts: in doubt a page is copied. Touches no heap.
    pub(super) fn each_private_page(
        &self,
        at: *const u8,
        positions: Range<usize>,
        mut found: impl FnMut(usize),
    ) -> io::Result<()> {
        let mut words = [0_u64; PAGES_PER_REGION];
        for start in positions.clone().step_by(REGION_SIZE) {
            let count = (positions.end - start).min(REGION_SIZE) / PAGE_SIZE;
            let address = at as usize + (start - positions.start);
            let read = self.pagemap.read_words(address, &mut words[..count])?;
            if read < count {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            let private = |word: u64| {
                let entry = PagemapEntry::from_word(word);
                !entry.file_or_shared && (entry.present || entry.swapped)
            };
            let pages = words[..count].iter().enumerate().filter(|&(_, &word)| word != 0 && private(word));
            pages.for_each(|(page, _)| found(start + page * PAGE_SIZE));
        }
        Ok(())
    }

    /// As [`BackingFile::each_private_page`], into `found`.
    pub(super) fn private_pages(
        &self,
        at: *const u8,
        positions: Range<usize>,
        found: &mut Vec<usize>,
    ) -> io::Result<()> {
        self.each_private_page(at, positions, |position| found.push(position))
    }

    /// Positions of the private pages of `run` in the origin.
    pub(super) fn origin_private_pages(&self, run: &Range<usize>, found: &mut Vec<usize>) -> io::Result<()> {
        let positions = self.layout.positions(run);
        self.private_pages(self.origin_at(positions.start), positions, found)
    }

    /// Copies one page to the alias mapping.
    ///
    /// # Safety
    /// `from` is readable for a page. No thread reads the page in `generation` meanwhile, or its bytes are the same already.
    pub(super) unsafe fn put(&self, from: *const u8, generation: Generation, position: usize) {
        // SAFETY: the alias maps the whole file, so its page is writable. `put` demands that `from` is readable for a page.
        unsafe { racy::copy(from, self.alias_at(generation, position), PAGE_SIZE) }
    }

    /// Backs `region` in `generation` with a huge page, filling its holes; what it holds stays. Says whether it could.
    pub(super) fn make_huge(&self, generation: Generation, region: usize) -> bool {
        map::advise(self.alias_at(generation, region * REGION_SIZE), REGION_SIZE, MapAdvice::Collapse).is_ok()
    }

    /// Positions of `region` for which `generation` has pages.
    pub(super) fn filled(&self, generation: Generation, region: usize) -> io::Result<Vec<Range<usize>>> {
        let positions = self.layout.positions(&(region..region + 1));
        let shift = self.layout.file_offset(generation, 0);
        let within = (shift + positions.start) as u64..(shift + positions.end) as u64;
        let ranges = map::data_ranges(&self.file, within)?;
        Ok(ranges.into_iter().map(|range| range.start as usize - shift..range.end as usize - shift).collect())
    }

    /// Gives the memory of `region` in `generation` back; it reads as zero afterwards.
    pub(super) fn give_back(&self, generation: Generation, region: usize) -> io::Result<()> {
        let offset = self.layout.file_offset(generation, region * REGION_SIZE) as u64;
        map::punch_hole(&self.file, offset, REGION_SIZE as u64)
    }
}
