//! The memory of one origin: the file, the range that maps it, the back door, and the place where pages are set aside.
//!
//! Relies on [`quire_sys::map`] and on `/proc/self/pagemap` to tell pages of the origin's own from pages of the file. What
//! may be done when is the callers' to know; [`crate::scoot::ledger`] keeps the books.

use std::fs::File;
use std::io;
use std::ops::Range;

use quire_sys::map::{self, Access, Hint, Sharing};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::{Entry, Pagemap};
use quire_sys::thread::BlockedSignals;
use quire_sys::userfault::{Modes, Userfault};

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
        let positions = self.layout.positions(run);
        // SAFETY: addresses of the origin, which the maker of the span has given into our hands.
        unsafe { self.map_at(self.origin_at(positions.start), positions, generation, sharing) }
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

    /// Adds the positions of `positions` whose pages, mapped from `at` on, belong to that mapping alone. A page that is
    /// on the move or swapped out counts: in doubt a page is copied.
    pub(super) fn private_pages(
        &self,
        at: *const u8,
        positions: Range<usize>,
        found: &mut Vec<usize>,
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
            found.extend(pages.map(|(page, _)| start + page * PAGE_SIZE));
        }
        Ok(())
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

    /// Puts every thread that touches `run` of the origin to sleep and takes the pages of its own away from it, to where
    /// nobody else reaches them.
    ///
    /// `modes` are those of faults in what remains mapped there: missing pages, and for a file also minor ones. Until the
    /// pages are back nothing may be done that could touch the origin; not even memory may be allocated, for the heap may
    /// lie there. Signal handlers are kept off.
    pub(super) fn set_aside(&self, run: Range<usize>, modes: Modes) -> io::Result<Aside<'_>> {
        let Some(fault) = &self.fault else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
        debug_assert!(run.len() * REGION_SIZE <= self.aside.len());
        let positions = self.layout.positions(&run);
        let origin = self.origin_at(positions.start);
        let signals = BlockedSignals::new();
        // SAFETY: addresses of the origin; `Aside` wakes whoever falls asleep there.
        unsafe { fault.register(origin, positions.len(), modes) }?;
        let shift = run.start * REGION_SIZE;
        let mut aside = Aside { memory: self, fault, run, positions, shift, is_whole: true, _signals: signals };
        // SAFETY: the place for pages set aside is ours and free: there is one `Aside` at a time, made by whoever does
        // the upkeep. Accesses to the origin fault from here on and sleep, so nobody sees it without its pages.
        if let Err(error) = unsafe { map::move_over(origin, aside.positions.len(), aside.at(aside.positions.start)) } {
            let _ = fault.unregister(origin, aside.positions.len());
            return Err(error);
        }
        aside.is_whole = false;
        Ok(aside)
    }
}

/// Pages set aside. Whoever touches the run of the origin sleeps until this is finished or dropped.
pub(super) struct Aside<'a> {
    memory: &'a Memory,
    fault: &'a Userfault,
    run: Range<usize>,
    positions: Range<usize>,
    shift: usize,
    /// Whether the origin has all its pages.
    is_whole: bool,
    _signals: BlockedSignals,
}

impl Aside<'_> {
    /// Where the page of `position` lies now.
    pub(super) fn at(&self, position: usize) -> *mut u8 {
        self.memory.aside.base().wrapping_add(position - self.shift)
    }

    /// Positions of the private pages that were taken away. `found` has room for the whole run.
    pub(super) fn private_pages(&self, found: &mut Vec<usize>) -> io::Result<()> {
        self.memory.private_pages(self.at(self.positions.start), self.positions.clone(), found)
    }

    /// Maps the run of the origin shared on `generation`, which has all its pages by now, wakes the sleepers and says how
    /// many faults there were.
    ///
    /// # Errors
    /// The run could not be mapped; it is as it was before.
    pub(super) fn finish(mut self, generation: Generation) -> io::Result<usize> {
        // SAFETY: `generation` holds what the run held, so says the caller; nobody can have written since.
        unsafe { self.memory.map_origin(&self.run, generation, Sharing::Shared) }?;
        self.is_whole = true;
        Ok(self.fault.drain())
    }

    /// Gives the origin its pages back.
    fn put_back(&self) {
        let (from, to) = (self.at(self.positions.start), self.memory.origin_at(self.positions.start));
        // The origin must not stay without its pages, and nothing but a passing lack of memory can be in the way.
        // SAFETY: both ranges are ours, nobody gets at either.
        while unsafe { map::move_over(from, self.positions.len(), to) }.is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.put_back();
        }
        // Only now: those who wake must find their page.
        let _ = self.fault.wake(self.memory.origin_at(self.positions.start), self.positions.len());
        let at = self.at(self.positions.start);
        // SAFETY: the place for pages set aside is ours; what lies there has been copied or moved back.
        let _ = unsafe { map::map_anonymous_over(at, self.positions.len(), Access::Read) };
    }
}
