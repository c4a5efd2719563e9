//! Isolating pages: the pages of a stretch of the origin are moved to where no other code reaches them, until they are in the file.
//! A thread that touches the stretch meanwhile sleeps.
//!
//! Relies on userfaultfd for missing and minor faults and on `mremap`; `docs/design/scoot.md` says why no page is lost. The heap may
//! lie in the stretch, so neither this module nor its caller touches the heap meanwhile: [`BackingFile`] lies elsewhere
//! ([`super::off_heap`]), and bitmaps are kept on the stack ([`super::page_bitmaps`]). No signal handler runs in the thread, and no child is
//! forked, which would have the origin without its pages.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use quire_sys::fork_lock::NoFork;
use quire_sys::map::{self, MapSharing, Protection};
use quire_sys::userfault::{RegisterModes, Userfault};

use super::backing::BackingFile;
use super::layout::Generation;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// How long giving the origin its pages back is tried. Then the process ends: its threads would sleep for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Isolated pages. A thread that touches them in the origin sleeps until this is finished or dropped.
pub(super) struct IsolatedPages<'a> {
    backing: &'a BackingFile,
    fault: &'a Userfault,
    positions: Range<usize>,
    shift: usize,
    /// Whether the origin has all its pages.
    is_whole: bool,
    /// Also keeps handlers of signals from this thread.
    _no_fork: NoFork,
}

impl<'a> IsolatedPages<'a> {
    /// Isolates the pages at `positions`, which lie in one mapping and in few enough regions.
    ///
    /// `modes` are those of faults in what remains mapped there: missing pages, and for a file also minor ones.
    ///
    /// # Errors
    /// Nothing has changed.
    pub(super) fn new(backing: &'a BackingFile, positions: Range<usize>, modes: RegisterModes) -> io::Result<Self> {
        let Some(fault) = &backing.fault else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
        let shift = positions.start / REGION_SIZE * REGION_SIZE;
        debug_assert!(positions.end - shift <= backing.isolation_area().len());
        let origin = backing.origin_at(positions.start);
        let no_fork = NoFork::begin()?;
        // SAFETY: addresses of the origin; `IsolatedPages` wakes the threads that fall asleep there.
        unsafe { fault.register(origin, positions.len(), modes) }?;
        let mut isolated = Self { backing, fault, positions, shift, is_whole: true, _no_fork: no_fork };
        let area = isolated.at(isolated.positions.start);
        // SAFETY: the area for isolated pages is this mechanism's, and free: there is one `IsolatedPages` at a time, made under
        // the lock of the maintenance. A thread that touches the origin from here on faults and sleeps, so none sees it
        // without its pages.
        if let Err(error) = unsafe { map::move_over(origin, isolated.positions.len(), area) } {
            let _ = fault.unregister(origin, isolated.positions.len());
            return Err(error);
        }
        isolated.is_whole = false;
        Ok(isolated)
    }

    /// Where the page of `position` lies now.
    pub(super) fn at(&self, position: usize) -> *mut u8 {
        self.backing.isolation_area().base().wrapping_add(position - self.shift)
    }

    /// Tells the positions of the private pages that were taken away.
    pub(super) fn private_pages(&self, found: impl FnMut(usize)) -> io::Result<()> {
        self.backing.each_private_page(self.at(self.positions.start), self.positions.clone(), found)
    }

    /// Maps the stretch of the origin shared on `generation`, which has all its pages by now, wakes the sleepers and says how
    /// many faults there were.
    ///
    /// # Errors
    /// The stretch could not be mapped; it is as it was before.
    pub(super) fn finish(mut self, generation: Generation) -> io::Result<usize> {
        let positions = self.positions.clone();
        // SAFETY: `map_positions` demands that the generation holds the bytes of the stretch: the callers have put all private
        // pages there, and no thread can have written since, as it would sleep.
        unsafe { self.backing.map_positions(positions, generation, MapSharing::Shared) }?;
        self.is_whole = true;
        Ok(self.fault.drain())
    }

    /// Gives the origin its pages back: it must not stay without them.
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
        let (from, to) = (self.at(self.positions.start), self.backing.origin_at(self.positions.start));
        // SAFETY: both ranges are this mechanism's: no other code knows the area, and a thread that touches the origin sleeps.
        unsafe { map::move_over(from, self.positions.len(), to) }
    }

    /// Copies the pages back one by one, which makes and moves no mapping.
    fn copy_back(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.private_pages(|position| {
            let (to, from) = (self.backing.origin_at(position), self.at(position));
            // SAFETY: `from` is an isolated page, and `to` its place in the origin, which is registered and has no page.
            match unsafe { self.fault.copy_asleep(to, from, PAGE_SIZE, false) } {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => result = Err(error),
                Ok(_) | Err(_) => {}
            }
        })?;
        result?;
        self.fault.unregister(self.backing.origin_at(self.positions.start), self.positions.len())
    }

    /// As when this is dropped and the system moves no mapping any more.
    #[cfg(test)]
    pub(super) fn end_by_copying(mut self) -> io::Result<()> {
        self.copy_back()?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for IsolatedPages<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.put_back();
        }
        // Only now: those who wake must find their page.
        let _ = self.fault.wake(self.backing.origin_at(self.positions.start), self.positions.len());
        let at = self.at(self.positions.start);
        // SAFETY: the area for isolated pages is this mechanism's; what lies there has been copied or moved back.
        let _ = unsafe { map::map_anonymous_over(at, self.positions.len(), Protection::Read) };
    }
}
