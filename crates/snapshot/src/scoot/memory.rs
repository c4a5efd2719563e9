//! The memory of one origin: the file, the range that maps it, the back door, and the place where pages are set aside. A value of
//! this kind lies outside the heap ([`super::placed`]).
//!
//! Relies on [`quire_sys::map`] and on `/proc/self/pagemap` to tell pages of the origin's own from pages of the file. What
//! may be done when is the callers' to know; [`crate::scoot::ledger`] keeps the books.

use std::fs::File;
use std::io;
use std::ops::Range;

use quire_sys::map::{self, Access, Hint, Sharing};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::{Entry, Pagemap};
use quire_sys::userfault::Userfault;

use super::layout::{GENERATIONS, Generation, Layout};
use crate::mechanism::Mechanism;
use crate::origin::Refused;
use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use crate::racy;
use crate::span::Span;

/// Most regions that are set aside at once: a bound on how long their writers wait.
pub(super) const ASIDE_REGIONS: usize = 32;

/// A failed system call as a refusal.
pub(super) fn refused(call: &'static str, source: io::Error) -> Refused {
    let suggestion = "Look at vm.max_map_count, the memory limit and RLIMIT_AS";
    Refused::System { mechanism: Mechanism::Scoot, call, source, suggestion }
}

/// See the head of this file.
pub(super) struct Memory {
    pub(super) layout: Layout,
    /// Keeps the origin's addresses claimed.
    span: Span,
    file: File,
    /// A shared mapping of the whole file, by which it is written while the origin maps it privately.
    door: Reservation,
    aside: Reservation,
    pagemap: Pagemap,
    pub(super) fault: Option<Userfault>,
}

impl Memory {
    /// The file and its mappings, still without content; the span is not touched yet.
    pub(super) fn new(span: Span, fault: Option<Userfault>) -> Result<Self, Refused> {
        let layout = Layout::new(span.base() as usize, span.len());
        let bytes = layout.stride() * GENERATIONS;
        let file = map::memory_file("quire-scoot", bytes as u64).map_err(|error| refused("memfd_create", error))?;
        let door = Reservation::new(bytes)?;
        // SAFETY: the reservation was made just now, nobody else knows its addresses.
        unsafe { map::map_file_over(door.base(), bytes, &file, 0, Sharing::Shared, Access::ReadWrite) }
            .map_err(|error| refused("mmap", error))?;
        let aside = Reservation::new(ASIDE_REGIONS.min(layout.regions()) * REGION_SIZE)?;
        let pagemap = Pagemap::open(None).map_err(|error| refused("open(/proc/self/pagemap)", error))?;
        Ok(Self { layout, span, file, door, aside, pagemap, fault })
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

    pub(super) fn door_at(&self, generation: Generation, position: usize) -> *mut u8 {
        self.door.base().wrapping_add(self.layout.file_offset(generation, position))
    }

    /// Maps `run` of the origin, over itself, on `generation`. What private pages it had are gone.
    ///
    /// # Safety
    /// Whatever a reader finds there afterwards is what it would have found before: the caller has seen to it.
    pub(super) unsafe fn map_origin(
        &self,
        run: &Range<usize>,
        generation: Generation,
        sharing: Sharing,
    ) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.map_positions(self.layout.positions(run), generation, sharing) }
    }

    /// Maps `run` of the window of a view privately on `generation`.
    ///
    /// # Safety
    /// `window` is a reservation of at least the layout's stride, and nobody uses the run.
    pub(super) unsafe fn map_window(
        &self,
        window: &Reservation,
        run: &Range<usize>,
        generation: Generation,
    ) -> io::Result<()> {
        let positions = self.layout.positions(run);
        let at = window.base().wrapping_add(positions.start);
        // SAFETY: inside the caller's reservation.
        unsafe { self.map_at(at, positions, generation, Sharing::Private) }
    }

    /// As [`Memory::map_origin`], for part of a run.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn map_positions(
        &self,
        positions: Range<usize>,
        generation: Generation,
        sharing: Sharing,
    ) -> io::Result<()> {
        // SAFETY: addresses of the origin, which the maker of the span has given into our hands.
        unsafe { self.map_at(self.origin_at(positions.start), positions, generation, sharing) }
    }

    /// Where pages are set aside.
    pub(super) fn aside_place(&self) -> &Reservation {
        &self.aside
    }

    /// # Safety
    /// The addresses from `at` on, as many as there are positions, are ours.
    unsafe fn map_at(
        &self,
        at: *mut u8,
        positions: Range<usize>,
        generation: Generation,
        sharing: Sharing,
    ) -> io::Result<()> {
        let offset = self.layout.file_offset(generation, positions.start) as u64;
        // SAFETY: as the caller promises.
        unsafe { map::map_file_over(at, positions.len(), &self.file, offset, sharing, Access::ReadWrite) }
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
                let entry = Entry::from_word(word);
                !entry.file_or_shared && (entry.present || entry.swapped)
            };
            let pages = words[..count].iter().enumerate().filter(|&(_, &word)| word != 0 && private(word));
            pages.for_each(|(page, _)| found(start + page * PAGE_SIZE));
        }
        Ok(())
    }

    /// As [`Memory::each_private_page`], into `found`.
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

    /// Copies one page to the back door.
    ///
    /// # Safety
    /// `from` is readable for a page, and `generation` is nobody's to read meanwhile except where the bytes are the same.
    pub(super) unsafe fn put(&self, from: *const u8, generation: Generation, position: usize) {
        // SAFETY: the door maps the whole file; the rest is the caller's promise.
        unsafe { racy::copy(from, self.door_at(generation, position), PAGE_SIZE) }
    }

    /// Backs `region` in `generation` with a huge page, filling its holes; what it holds stays. Says whether it could.
    pub(super) fn make_huge(&self, generation: Generation, region: usize) -> bool {
        map::advise(self.door_at(generation, region * REGION_SIZE), REGION_SIZE, Hint::Collapse).is_ok()
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
