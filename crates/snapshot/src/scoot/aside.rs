//! Setting pages aside: every thread that touches a stretch of the origin sleeps, and the pages of its own lie where no other code
//! reaches them, until they are in the file.
//!
//! Relies on userfaultfd for missing and minor faults and on `mremap`; `docs/design/scoot.md` says why no page is lost. Nothing here
//! and nothing that a caller does meanwhile may touch the heap, which may lie in the stretch: [`Memory`] lies elsewhere
//! ([`super::placed`]), and notes are kept on the stack ([`super::sheet`]). No signal handler runs in the thread, and no child is
//! forked, which would have the origin without its pages.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use quire_sys::fork_lock::NoFork;
use quire_sys::map::{self, Access, Sharing};
use quire_sys::userfault::{Modes, Userfault};

use super::layout::Generation;
use super::memory::Memory;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// So long it is tried to give the origin its pages back. Then the process ends: its threads would sleep for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pages set aside. A thread that touches them in the origin sleeps until this is finished or dropped.
pub(super) struct Aside<'a> {
    memory: &'a Memory,
    fault: &'a Userfault,
    positions: Range<usize>,
    shift: usize,
    /// Whether the origin has all its pages.
    is_whole: bool,
    /// Also keeps handlers of signals from this thread.
    _no_fork: NoFork,
}

impl<'a> Aside<'a> {
    /// Sets the pages at `positions` aside, which lie in one mapping and in few enough regions.
    ///
    /// `modes` are those of faults in what remains mapped there: missing pages, and for a file also minor ones.
    ///
    /// # Errors
    /// Nothing has changed.
    pub(super) fn new(memory: &'a Memory, positions: Range<usize>, modes: Modes) -> io::Result<Self> {
        let Some(fault) = &memory.fault else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
        let shift = positions.start / REGION_SIZE * REGION_SIZE;
        debug_assert!(positions.end - shift <= memory.aside_place().len());
        let origin = memory.origin_at(positions.start);
        let no_fork = NoFork::begin()?;
        // SAFETY: addresses of the origin; `Aside` wakes the threads that fall asleep there.
        unsafe { fault.register(origin, positions.len(), modes) }?;
        let mut aside = Self { memory, fault, positions, shift, is_whole: true, _no_fork: no_fork };
        // SAFETY: the place for pages set aside is ours and free: there is one `Aside` at a time, made by the thread that does
        // the upkeep. Accesses to the origin fault from here on and sleep, so no thread sees it without its pages.
        if let Err(error) = unsafe { map::move_over(origin, aside.positions.len(), aside.at(aside.positions.start)) } {
            let _ = fault.unregister(origin, aside.positions.len());
            return Err(error);
        }
        aside.is_whole = false;
        Ok(aside)
    }

    /// Where the page of `position` lies now.
    pub(super) fn at(&self, position: usize) -> *mut u8 {
        self.memory.aside_place().base().wrapping_add(position - self.shift)
    }

    /// Tells the positions of the private pages that were taken away.
    pub(super) fn private_pages(&self, found: impl FnMut(usize)) -> io::Result<()> {
        self.memory.each_private_page(self.at(self.positions.start), self.positions.clone(), found)
    }

    /// Maps the stretch of the origin shared on `generation`, which has all its pages by now, wakes the sleepers and says how
    /// many faults there were.
    ///
    /// # Errors
    /// The stretch could not be mapped; it is as it was before.
    pub(super) fn finish(mut self, generation: Generation) -> io::Result<usize> {
        let positions = self.positions.clone();
        // SAFETY: `generation` holds what the stretch held, so says the caller; no thread can have written since.
        unsafe { self.memory.map_positions(positions, generation, Sharing::Shared) }?;
        self.is_whole = true;
        Ok(self.fault.drain())
    }

    /// Gives the origin its pages back, which must not stay without them.
    fn put_back(&self) {
        let start = Instant::now();
        loop {
            let Err(error) = self.move_back() else { return };
            if self.copy_back().is_ok() {
                return;
            }
            if start.elapsed() > PATIENCE {
                eprintln!(
                    "quire: scoot can't give {} bytes of memory back to the program (mremap: {error}); the program ends, as \
                     its threads would wait for ever. Look at vm.max_map_count and the memory limit.",
                    self.positions.len()
                );
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn move_back(&self) -> io::Result<()> {
        let (from, to) = (self.at(self.positions.start), self.memory.origin_at(self.positions.start));
        // SAFETY: both ranges are ours, no other code gets at either.
        unsafe { map::move_over(from, self.positions.len(), to) }
    }

    /// Copies the pages back one by one, which makes and moves no mapping.
    fn copy_back(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.private_pages(|position| {
            let (to, from) = (self.memory.origin_at(position), self.at(position));
            // SAFETY: a page set aside, and its place in the origin, which is registered and has no page.
            match unsafe { self.fault.copy_asleep(to, from, PAGE_SIZE, false) } {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => result = Err(error),
                Ok(_) | Err(_) => {}
            }
        })?;
        result?;
        self.fault.unregister(self.memory.origin_at(self.positions.start), self.positions.len())
    }

    /// As when this is dropped and the system moves no mapping any more.
    #[cfg(test)]
    pub(super) fn end_by_copying(mut self) -> io::Result<()> {
        self.copy_back()?;
        self.is_whole = true;
        Ok(())
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
