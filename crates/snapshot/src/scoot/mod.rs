//! `scoot`: a duplicate in the same process, a second range of addresses that shares frames with the origin until
//! somebody writes.
//!
//! Relies on a file in memory behind the origin, on private mappings of it, and (for folding in the background) on
//! userfaultfd. `docs/design/scoot.md` says why this way, who may race with whom, and what was measured.
//!
//! ```text
//!            between views                 while a view lives
//!   origin ── shared ──▶ file      origin ── private ──▶ file ◀── private ── view
//!                         ▲          │ own pages          ▲
//!                  door ──┘          └──── folded by way of the door, after the view ──▶ back to "between views"
//! ```

mod adopt;
mod ahead;
mod aside;
mod coverage;
mod cut;
mod figures;
mod fold;
mod keeper;
mod layout;
mod ledger;
mod memory;
mod placed;
mod probe;
mod sheet;
mod state;
#[cfg(test)]
mod tests;
mod upkeep;
mod view;

use std::ops::Range;
use std::sync::Arc;

use quire_sys::userfault::Userfault;

use crate::mechanism::{Mechanism, Options};
use crate::origin::{Origin, OriginStats, Refused, View};
use crate::span::Span;
use keeper::Keeper;
use memory::Memory;
use placed::Placed;
pub use probe::folds_in_background;
use state::State;

/// The range that goes on being written.
pub(crate) struct Scoot {
    state: Arc<State>,
    keeper: Keeper,
}

impl Scoot {
    /// Takes `span` over. Threads may go on using it meanwhile if regions can be folded in the background here
    /// ([`folds_in_background`]); otherwise nobody may write it during the call.
    pub(crate) fn new(span: Span, options: &Options) -> Result<Self, Refused> {
        probe::check_mappings()?;
        Self::with_userfault(span, options, probe::open_userfault().ok())
    }

    /// With `fault` to fold in the background, or without.
    fn with_userfault(span: Span, options: &Options, fault: Option<Userfault>) -> Result<Self, Refused> {
        let memory = Placed::new(Memory::new(span, fault)?).map_err(|error| memory::refused("mmap", error))?;
        let state = Arc::new(State::new(memory, options));
        adopt::adopt(&state.memory, &mut state.lock().ledger)?;
        let keeper = Keeper::new(&state).map_err(|error| memory::refused("clone", error))?;
        Ok(Self { state, keeper })
    }
}

impl Origin for Scoot {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Scoot
    }

    fn base(&self) -> *mut u8 {
        self.state.memory.base()
    }

    fn len(&self) -> usize {
        self.state.memory.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, Refused> {
        if self.state.is_forked() {
            return Err(Refused::forked(Mechanism::Scoot));
        }
        Ok(Arc::new(cut::cut(&self.state)?))
    }

    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
    }

    fn settle(&self) {
        self.keeper.settle();
    }

    fn stats(&self) -> OriginStats {
        let held_bytes_now = self.state.held_bytes();
        let is_forked = self.state.is_forked();
        let threshold_percent = if is_forked { 0 } else { self.state.lock().coverage.threshold_percent() };
        let figures = &self.state.figures;
        let (copied, precopied) = (figures.copied_pages.get(), figures.precopied_pages.get());
        OriginStats {
            cuts: figures.cuts.get(),
            last_cut_ns: figures.last_cut_ns.get(),
            copied_pages: copied,
            precopied_pages: precopied,
            needed_pages: figures.needed_pages.get(),
            unneeded_pages: figures.unneeded_pages.get(),
            faults: copied.saturating_sub(precopied),
            waits: figures.waits.get(),
            wait_total_ns: figures.wait_total_ns.get(),
            wait_longest_ns: figures.wait_longest_ns.get(),
            held_bytes_now,
            held_bytes_peak: figures.held_bytes_peak.get(),
            rejoined_regions: figures.rejoined_regions.get(),
            threshold_percent,
        }
    }
}
