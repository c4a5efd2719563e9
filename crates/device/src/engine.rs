//! What carries transfers out: io_uring, or threads where it is forbidden.
//!
//! Relies on `quire-sys` for the ring.

use std::sync::{Arc, OnceLock};

use quire_sys::transfer::{Direction, Transfer};
use quire_sys::uring::{Ring, RingCompletion};

use crate::device::{Completion, Queue};
use crate::open_file::OpenFile;
use crate::thread_pool::ThreadPool;

/// Which engine carries transfers out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring if the system allows, otherwise threads.
    #[default]
    Auto,
    /// A pool of threads, a few for each queue.
    Threads,
}

/// A queue on `target`.
pub(crate) fn open_queue(target: &Arc<OpenFile>, engine: IoEngine, depth: usize) -> Box<dyn Queue> {
    if engine == IoEngine::Auto
        && let Ok(ring) = Ring::new()
    {
        return Box::new(RingQueue { target: Arc::clone(target), ring, refused: Vec::new() });
    }
    Box::new(ThreadPool::new(Arc::clone(target), depth))
}

/// Whether [`IoEngine::Auto`] means a ring here.
pub(crate) fn ring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| Ring::new().is_ok())
}

struct RingQueue {
    target: Arc<OpenFile>,
    ring: Ring,
    refused: Vec<Completion>,
}

impl RingQueue {
    /// `transfer`, unless it is a write to a file that was given up: that one has ended.
    fn admit(&mut self, transfer: Transfer) -> Option<Transfer> {
        match self.target.poison.check() {
            Err(error) if transfer.direction == Direction::Write => {
                self.refused.push(Completion { transfer, result: Err(error) });
                None
            }
            _ => Some(transfer),
        }
    }

    fn finished(&self, ended: RingCompletion) -> Completion {
        let result = ended.result.map_err(|error| self.target.error(ended.transfer.direction, &error));
        Completion { transfer: ended.transfer, result }
    }
}

impl Queue for RingQueue {
    fn submit(&mut self, transfer: Transfer) {
        if let Some(transfer) = self.admit(transfer) {
            self.ring.submit(&self.target.file, self.target.flags, transfer);
        }
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        let mut admitted = transfers;
        if self.target.poison.check().is_err() {
            admitted = admitted.into_iter().filter_map(|transfer| self.admit(transfer)).collect();
        }
        self.ring.submit_all(&self.target.file, self.target.flags, admitted);
    }

    fn complete(&mut self) -> Option<Completion> {
        if let Some(refused) = self.refused.pop() {
            return Some(refused);
        }
        let ended = self.ring.wait()?;
        Some(self.finished(ended))
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(refused) = self.refused.pop() {
            return Some(refused);
        }
        let ended = self.ring.poll()?;
        Some(self.finished(ended))
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight() + self.refused.len()
    }
}
