//! Precopying: blocks that were written much in the last epoch get pages of their own before they are written again.
//!
//! Relies on `MADV_POPULATE_WRITE`, which makes the kernel break the sharing of many pages in one call, from any thread.
//! The maintenance thread does it in small pieces and not faster than told, since right after a cut writers need the memory bus.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use quire_sys::map::{self, MapAdvice};

use super::region_table::RegionMapping;
use super::state::{Mappings, ScootState};
use crate::mechanism::Precopy;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Bytes that are copied in one call.
const PIECE_BYTES: usize = 128 << 10;

/// What is left to be copied of one epoch.
pub(super) struct PrecopyQueue {
    epoch: u64,
    queue: VecDeque<Range<usize>>,
    start: Instant,
    done_bytes: u64,
}

/// What came of a step.
pub(super) enum PrecopyStep {
    /// A piece was copied, or found not to be worth it.
    Copied,
    /// The next piece is due after this time.
    Early(Duration),
    /// There is none.
    Finished,
}

impl PrecopyQueue {
    pub(super) fn new() -> Self {
        Self { epoch: 0, queue: VecDeque::new(), start: Instant::now(), done_bytes: 0 }
    }

    /// Takes note of a new cut.
    fn renew(&mut self, state: &ScootState, mappings: &Mappings) {
        if mappings.epoch == self.epoch {
            return;
        }
        self.epoch = mappings.epoch;
        self.start = Instant::now();
        self.done_bytes = 0;
        self.queue.clear();
        if state.options.precopy != Precopy::None {
            let regions = state.backing.layout.regions();
            self.queue = mappings.coverage.due(&state.backing.layout.positions(&(0..regions))).into();
        }
    }

    /// The next piece, if its time has come. Leaves the lock of the mappings while the kernel copies.
    pub(super) fn step<'a>(
        &mut self,
        state: &'a ScootState,
        mappings: MutexGuard<'a, Mappings>,
    ) -> (PrecopyStep, MutexGuard<'a, Mappings>) {
        self.renew(state, &mappings);
        let Some(piece) = self.next_piece(&mappings) else { return (PrecopyStep::Finished, mappings) };
        let due =
            Duration::from_secs_f64(self.done_bytes as f64 / state.options.precopy_bytes_per_second.max(1) as f64);
        let elapsed = self.start.elapsed();
        if due > elapsed {
            self.queue.push_front(piece);
            return (PrecopyStep::Early(due - elapsed), mappings);
        }
        let mut own = Vec::new();
        let at = state.backing.origin_at(piece.start);
        // What can't be told is not copied: it is a matter of speed only.
        if state.backing.private_pages(at, piece.clone(), &mut own).is_err() {
            return (PrecopyStep::Copied, mappings);
        }
        drop(mappings);
        let copied = map::advise(at, piece.len(), MapAdvice::PopulateWrite).is_ok();
        let mut mappings = state.lock_after_cuts();
        self.done_bytes += (piece.len() - own.len() * PAGE_SIZE) as u64;
        if copied && mappings.epoch == self.epoch && is_worth_it(&mappings, piece.start) {
            for position in piece.step_by(PAGE_SIZE).filter(|position| own.binary_search(position).is_err()) {
                mappings.coverage.mark_precopied(position);
            }
        }
        (PrecopyStep::Copied, mappings)
    }

    /// Takes the next piece off the queue whose region is still private and held.
    fn next_piece(&mut self, mappings: &Mappings) -> Option<Range<usize>> {
        loop {
            let block = self.queue.pop_front()?;
            if !is_worth_it(mappings, block.start) {
                continue;
            }
            let end = block.end.min(block.start + PIECE_BYTES);
            if end < block.end {
                self.queue.push_front(end..block.end);
            }
            return Some(block.start..end);
        }
    }
}

/// Only a page that a view holds is worth a copy.
fn is_worth_it(mappings: &Mappings, position: usize) -> bool {
    let region = mappings.regions.region(position / REGION_SIZE);
    region.sharing == RegionMapping::Private && region.is_held()
}
