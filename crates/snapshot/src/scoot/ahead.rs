//! Copying ahead of writers: blocks that were written much in the last epoch get pages of their own before they are
//! written again.
//!
//! Relies on `MADV_POPULATE_WRITE`, which makes the kernel break the sharing of many pages in one call, from any thread.
//! The keeper does it in small pieces and not faster than told, since right after a cut writers need the memory bus.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use quire_sys::map::{self, Hint};

use super::ledger::Sharing;
use super::state::{Desk, State};
use crate::mechanism::Precopy;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Bytes that are copied in one call.
const PIECE_BYTES: usize = 128 << 10;

/// What is left to be copied of one epoch.
pub(super) struct Ahead {
    epoch: u64,
    queue: VecDeque<Range<usize>>,
    start: Instant,
    done_bytes: u64,
}

/// What came of a step.
pub(super) enum Step {
    /// A piece was copied, or found not to be worth it.
    Copied,
    /// The next piece is due after this time.
    Early(Duration),
    /// There is none.
    Finished,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self { epoch: 0, queue: VecDeque::new(), start: Instant::now(), done_bytes: 0 }
    }

    /// Takes note of a new cut.
    fn renew(&mut self, state: &State, desk: &Desk) {
        if desk.epoch == self.epoch {
            return;
        }
        self.epoch = desk.epoch;
        self.start = Instant::now();
        self.done_bytes = 0;
        self.queue.clear();
        if state.options.precopy != Precopy::None {
            let regions = state.memory.layout.regions();
            self.queue = desk.coverage.due(&state.memory.layout.positions(&(0..regions))).into();
        }
    }

    /// The next piece, if its time has come. Leaves the desk while the kernel copies.
    pub(super) fn step<'a>(&mut self, state: &'a State, desk: MutexGuard<'a, Desk>) -> (Step, MutexGuard<'a, Desk>) {
        self.renew(state, &desk);
        let Some(piece) = self.next_piece(&desk) else { return (Step::Finished, desk) };
        let due =
            Duration::from_secs_f64(self.done_bytes as f64 / state.options.precopy_bytes_per_second.max(1) as f64);
        let elapsed = self.start.elapsed();
        if due > elapsed {
            self.queue.push_front(piece);
            return (Step::Early(due - elapsed), desk);
        }
        let mut own = Vec::new();
        let at = state.memory.origin_at(piece.start);
        // What can't be told is not copied: it is a matter of speed only.
        if state.memory.private_pages(at, piece.clone(), &mut own).is_err() {
            return (Step::Copied, desk);
        }
        drop(desk);
        let copied = map::advise(at, piece.len(), Hint::PopulateWrite).is_ok();
        let mut desk = state.lock_last();
        self.done_bytes += (piece.len() - own.len() * PAGE_SIZE) as u64;
        if copied && desk.epoch == self.epoch && is_worth_it(&desk, piece.start) {
            for position in piece.step_by(PAGE_SIZE).filter(|position| own.binary_search(position).is_err()) {
                desk.coverage.mark_precopied(position);
            }
        }
        (Step::Copied, desk)
    }

    /// Takes the next piece off the queue whose region is still private and held.
    fn next_piece(&mut self, desk: &Desk) -> Option<Range<usize>> {
        loop {
            let block = self.queue.pop_front()?;
            if !is_worth_it(desk, block.start) {
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
fn is_worth_it(desk: &Desk, position: usize) -> bool {
    let region = desk.ledger.region(position / REGION_SIZE);
    region.sharing == Sharing::Private && region.is_held()
}
