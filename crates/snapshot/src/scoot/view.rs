//! A view: a window of addresses that maps the file privately, so it reads and may be written as ordinary memory.
//!
//! Relies on [`crate::scoot::state`] to keep what it holds from being written. The window shares frames with the origin
//! (and with other views) until somebody writes; then the writer gets a page of its own, whoever it is.

use std::ops::Range;
use std::sync::Arc;

use quire_sys::mem::Reservation;

use super::layout::Generation;
use super::ledger::Sharing;
use super::memory::refused;
use super::state::{Desk, State};
use crate::mechanism::Mechanism;
use crate::origin::{Refused, View, ViewError, check};
use crate::page::PAGE_SIZE;
use crate::racy;

/// See the head of this file.
pub(super) struct Scooted {
    state: Arc<State>,
    /// Gone only in `drop`.
    window: Option<Reservation>,
    homes: Box<[Generation]>,
    copied_bytes: u64,
}

impl Scooted {
    /// A view of `homes` with copies of the pages at `own`, which lie `from` there.
    ///
    /// # Safety
    /// `from` gives the address of a readable page for each of `own`. `homes` are not written for as long as the caller
    /// has the desk's lock.
    pub(super) unsafe fn new(
        state: &Arc<State>,
        desk: &mut Desk,
        homes: Box<[Generation]>,
        own: &[usize],
        from: impl Fn(usize) -> *const u8,
    ) -> Result<Self, Refused> {
        let memory = &state.memory;
        let window = Reservation::new(memory.layout.stride())?;
        for run in runs(&homes) {
            let home = homes[run.start];
            // SAFETY: the window was made just now, nobody else knows it.
            unsafe { memory.map_window(&window, &run, home) }.map_err(|error| refused("mmap", error))?;
        }
        for position in own {
            // SAFETY: the page is readable by the caller's promise, the window is writable and nobody else's.
            unsafe { racy::copy(from(*position), window.base().wrapping_add(*position), PAGE_SIZE) };
        }
        let copied_bytes = (own.len() * PAGE_SIZE) as u64;
        state.figures.window_bytes.add(copied_bytes);
        state.enter(desk, &homes);
        Ok(Self { state: Arc::clone(state), window: Some(window), homes, copied_bytes })
    }

    fn at(&self, position: usize) -> *mut u8 {
        // The window is there until the view is dropped, when nobody asks any more.
        self.window.as_ref().map_or(std::ptr::null_mut(), |window| window.base().wrapping_add(position))
    }

    fn base(&self) -> *mut u8 {
        self.at(self.state.memory.layout.lead())
    }

    /// Positions of the pages that belong to this window alone.
    fn own_pages(&self) -> std::io::Result<Vec<usize>> {
        let positions = self.state.memory.layout.positions(&(0..self.homes.len()));
        let mut own = Vec::new();
        self.state.memory.private_pages(self.base(), positions, &mut own)?;
        Ok(own)
    }
}

/// Runs of regions with the same home.
fn runs(homes: &[Generation]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for part in homes.chunk_by(|one, next| one == next) {
        let start = runs.last().map_or(0, |run| run.end);
        runs.push(start..start + part.len());
    }
    runs
}

impl View for Scooted {
    fn len(&self) -> usize {
        self.state.memory.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len())?;
        // SAFETY: inside the window (checked), which lives as long as `self`; `to` is the caller's alone. Somebody may be
        // writing the view through `as_ptr`, hence the racy copy.
        unsafe { racy::copy(self.base().wrapping_add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        Some(self.base())
    }

    fn cut(&self) -> Result<Arc<dyn View>, Refused> {
        if self.state.is_forked() {
            return Err(Refused::forked(Mechanism::Scoot));
        }
        let own = self.own_pages().map_err(|error| refused("read(pagemap)", error))?;
        let mut desk = self.state.lock();
        // SAFETY: pages of our window; what we hold isn't written.
        let view =
            unsafe { Self::new(&self.state, &mut desk, self.homes.clone(), &own, |position| self.at(position)) }?;
        Ok(Arc::new(view))
    }

    fn held_bytes(&self) -> usize {
        if self.state.is_forked() {
            return 0;
        }
        let mut bytes = self.own_pages().map_or(0, |own| own.len() * PAGE_SIZE);
        let mut private = Vec::new();
        let desk = self.state.lock();
        for (region, &home) in self.homes.iter().enumerate() {
            let now = desk.ledger.region(region);
            if now.home != home {
                bytes += self.state.memory.layout.pages(region) * PAGE_SIZE;
            } else if now.sharing == Sharing::Private {
                private.push(region);
            }
        }
        drop(desk);
        let mut found = Vec::new();
        for region in private {
            found.clear();
            // A figure: what can't be told is left out.
            let _ = self.state.memory.origin_private_pages(&(region..region + 1), &mut found);
            bytes += found.len() * PAGE_SIZE;
        }
        bytes
    }
}

impl Drop for Scooted {
    fn drop(&mut self) {
        self.state.figures.window_bytes.sub(self.copied_bytes);
        if let Some(window) = self.window.take() {
            self.state.leave(&self.homes, window);
        }
    }
}
