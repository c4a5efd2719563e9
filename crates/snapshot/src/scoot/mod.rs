//! `scoot`: a duplicate in the same process, a second range of addresses that shares frames with the origin until
//! one of the two is written.
//!
//! Relies on a file in memory behind the origin, on private mappings of it, and (for merging in the background) on
//! userfaultfd. `docs/design/scoot.md` says why this way, who may race with whom, and what was measured.
//!
//! ```text
//!            between views                 while a view lives
//!   origin ── shared ──▶ file      origin ── private ──▶ file ◀── private ── view
//!                         ▲          │ private pages      ▲
//!                 alias ──┘          └──── merged through the alias, after the view ──▶ back to "between views"
//! ```

mod backing;
mod coverage;
mod cut;
mod isolate;
mod layout;
mod maintenance;
mod maintenance_thread;
mod merge;
mod migrate;
mod off_heap;
mod page_bitmaps;
mod precopy;
mod probe;
mod region_table;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod view;

use std::ops::Range;
use std::sync::Arc;

use quire_sys::userfault::Userfault;

use crate::mechanism::{Mechanism, OriginOptions};
use crate::origin::{MechanismError, Origin, OriginStats, View};
use crate::span::PageRange;
use backing::BackingFile;
use maintenance_thread::MaintenanceThread;
use off_heap::OffHeap;
pub use probe::merges_in_background;
use state::ScootState;

/// The range that goes on being written.
pub(crate) struct ScootOrigin {
    state: Arc<ScootState>,
    maintenance: MaintenanceThread,
}

impl ScootOrigin {
    /// Takes `span` over. Threads may go on using it meanwhile if regions can be merged in the background here
    /// ([`merges_in_background`]); otherwise no thread may write it during the call.
    pub(crate) fn new(span: PageRange, options: &OriginOptions) -> Result<Self, MechanismError> {
        probe::check_mappings()?;
        Self::with_userfault(span, options, probe::open_userfault().ok())
    }

    /// With `fault` the maintenance thread merges in the background. Without it the next cut merges.
    fn with_userfault(
        span: PageRange,
        options: &OriginOptions,
        fault: Option<Userfault>,
    ) -> Result<Self, MechanismError> {
        let backing = OffHeap::new(BackingFile::new(span, fault)?).map_err(|error| backing::refused("mmap", error))?;
        let state = Arc::new(ScootState::new(backing, options));
        migrate::migrate(&state.backing, &mut state.lock().regions)?;
        let maintenance = MaintenanceThread::new(&state).map_err(|error| backing::refused("clone", error))?;
        Ok(Self { state, maintenance })
    }
}

impl Origin for ScootOrigin {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Scoot
    }

    fn base(&self) -> *mut u8 {
        self.state.backing.base()
    }

    fn len(&self) -> usize {
        self.state.backing.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        if self.state.is_forked() {
            return Err(MechanismError::forked(Mechanism::Scoot));
        }
        Ok(Arc::new(cut::cut(&self.state)?))
    }

    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
    }

    fn settle(&self) {
        self.maintenance.settle();
    }

    fn stats(&self) -> OriginStats {
        let held_bytes_now = self.state.held_bytes();
        let is_forked = self.state.is_forked();
        let threshold_percent = if is_forked { 0 } else { self.state.lock().coverage.threshold_percent() };
        let stats = &self.state.stats;
        let (copied, precopied) = (stats.copied_pages.get(), stats.precopied_pages.get());
        OriginStats {
            cuts: stats.cuts.get(),
            last_cut_ns: stats.last_cut_ns.get(),
            copied_pages: copied,
            precopied_pages: precopied,
            needed_pages: stats.needed_pages.get(),
            unneeded_pages: stats.unneeded_pages.get(),
            faults: copied.saturating_sub(precopied),
            waits: stats.waits.get(),
            wait_total_ns: stats.wait_total_ns.get(),
            wait_longest_ns: stats.wait_longest_ns.get(),
            held_bytes_now,
            held_bytes_peak: stats.held_bytes_peak.get(),
            rejoined_regions: stats.rejoined_regions.get(),
            threshold_percent,
        }
    }
}
