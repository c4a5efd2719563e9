//! Who carries transfers out: io_uring, or threads where it is forbidden.
//!
//! Relies on `quire-sys` for the ring.

use std::sync::{Arc, OnceLock};

use quire_sys::transfer::{Direction, Transfer};
use quire_sys::uring::Ring;

use crate::device::{Finished, Queue};
use crate::error::DeviceError;
use crate::target::Target;
use crate::threads::Threads;

/// Which engine carries transfers out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring if the system allows, otherwise threads.
    #[default]
    Auto,
    /// A pool of threads.
    Threads,
}

/// A queue on `target`.
pub(crate) fn open_queue(target: &Arc<Target>, engine: Engine, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
    if engine == Engine::Auto
        && let Ok(ring) = Ring::new()
    {
        return Ok(Box::new(RingQueue { target: Arc::clone(target), ring, refused: Vec::new() }));
    }
    Ok(Box::new(Threads::new(Arc::clone(target), depth)?))
}

/// Whether [`Engine::Auto`] means a ring here.
pub(crate) fn ring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| Ring::new().is_ok())
}

struct RingQueue {
    target: Arc<Target>,
    ring: Ring,
    refused: Vec<Finished>,
}

impl Queue for RingQueue {
    fn submit(&mut self, transfer: Transfer) {
        if transfer.direction == Direction::Write
            && let Err(error) = self.target.check()
        {
            self.refused.push(Finished { transfer, result: Err(error) });
            return;
        }
        self.ring.submit(&self.target.file, transfer);
    }

    fn complete(&mut self) -> Option<Finished> {
        if let Some(refused) = self.refused.pop() {
            return Some(refused);
        }
        let ended = self.ring.wait()?;
        let result = ended.result.map_err(|error| self.target.error(ended.transfer.direction, &error));
        Some(Finished { transfer: ended.transfer, result })
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight() + self.refused.len()
    }
}
