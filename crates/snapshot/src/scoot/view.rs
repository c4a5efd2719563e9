//! A view: a window of addresses that maps the file privately, so it reads and may be written as ordinary memory.
//!
//! Relies on [`crate::scoot::state`] to keep what it holds from being written. The window shares frames with the origin
//! (and with other views) until one of them is written; then the writer gets a page of its own.

use std::ops::Range;
use std::sync::Arc;

use quire_sys::mem::Reservation;

use super::backing::refused;
use super::layout::Generation;
use super::region_table::RegionMapping;
use super::state::{Mappings, ScootState};
use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, View, ViewError, check};
use crate::page::PAGE_SIZE;
use crate::racy;

/// See the head of this file.
pub(super) struct ScootView {
    state: Arc<ScootState>,
    /// Gone only in `drop`.
    window: Option<Reservation>,
    homes: Box<[Generation]>,
    copied_bytes: u64,
}

impl ScootView {
    /// A view of `homes` with copies of the pages at `own`, which lie `from` there.
    ///
    /// # Safety
    /// `from` gives the address of a readable page for each of `own`. `homes` are not written for as long as the caller
    /// has the lock of the mappings.
    pub(super) unsafe fn new(
        state: &Arc<ScootState>,
        mappings: &mut Mappings,
        homes: Box<[Generation]>,
        own: &[usize],
        from: impl Fn(usize) -> *const u8,
    ) -> Result<Self, MechanismError> {
        let backing = &state.backing;
        let window = Reservation::new(backing.layout.stride())?;
        for run in runs(&homes) {
            let home = homes[run.start];
            // SAFETY: the window was made just now, of the layout's stride, and no other code knows it.
            unsafe { backing.map_window(&window, &run, home) }.map_err(|error| refused("mmap", error))?;
        }
        for position in own {
            // SAFETY: `ScootView::new` demands that `from` gives a readable page for each of `own`; the window is writable, and no
            // other code knows it.
            unsafe { racy::copy(from(*position), window.base().wrapping_add(*position), PAGE_SIZE) };
        }
        let copied_bytes = (own.len() * PAGE_SIZE) as u64;
        state.stats.window_bytes.add(copied_bytes);
        state.enter(mappings, &homes);
        Ok(Self { state: Arc::clone(state), window: Some(window), homes, copied_bytes })
    }

    fn at(&self, position: usize) -> *mut u8 {
        // The window is there until the view is dropped, and no call comes after that.
        self.window.as_ref().map_or(std::ptr::null_mut(), |window| window.base().wrapping_add(position))
    }

    fn base(&self) -> *mut u8 {
        self.at(self.state.backing.layout.lead())
    }

    /// Positions of the pages that belong to this window alone.
    fn own_pages(&self) -> std::io::Result<Vec<usize>> {
        let positions = self.state.backing.layout.positions(&(0..self.homes.len()));
        let mut own = Vec::new();
        self.state.backing.private_pages(self.base(), positions, &mut own)?;
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

impl View for ScootView {
    fn len(&self) -> usize {
        self.state.backing.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len())?;
        // SAFETY: inside the window (checked), which lives as long as `self`; `to` is borrowed mutably. Another thread may be
        // writing the view through `as_ptr`, hence the racy copy.
        unsafe { racy::copy(self.base().wrapping_add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        Some(self.base())
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        if self.state.is_forked() {
            return Err(MechanismError::forked(Mechanism::Scoot));
        }
        let own = self.own_pages().map_err(|error| refused("read(pagemap)", error))?;
        let mut mappings = self.state.lock();
        // SAFETY: `at` gives pages of this view's window, which is mapped; the homes that a view holds are not written.
        let view =
            unsafe { Self::new(&self.state, &mut mappings, self.homes.clone(), &own, |position| self.at(position)) }?;
        Ok(Arc::new(view))
    }

    fn held_bytes(&self) -> usize {
        if self.state.is_forked() {
            return 0;
        }
        let mut bytes = self.own_pages().map_or(0, |own| own.len() * PAGE_SIZE);
        let mut private = Vec::new();
        let mappings = self.state.lock();
        for (region, &home) in self.homes.iter().enumerate() {
            let now = mappings.regions.region(region);
            if now.home != home {
                bytes += self.state.backing.layout.pages(region) * PAGE_SIZE;
            } else if now.sharing == RegionMapping::Private {
                private.push(region);
            }
        }
        drop(mappings);
        let mut found = Vec::new();
        for region in private {
            found.clear();
            // A figure: what can't be told is left out.
            let _ = self.state.backing.origin_private_pages(&(region..region + 1), &mut found);
            bytes += found.len() * PAGE_SIZE;
        }
        bytes
    }
}

impl Drop for ScootView {
    fn drop(&mut self) {
        self.state.stats.window_bytes.sub(self.copied_bytes);
        if let Some(window) = self.window.take() {
            self.state.leave(&self.homes, window);
        }
    }
}
