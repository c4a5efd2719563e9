//! Backs memory ahead of growth, on a thread of its own, so that the writer's first touches meet no page faults.
//!
//! Relies on the range being committed and on no thread having used it yet. Purely a matter of speed: when the thread
//! can't be had or lags behind, pages are backed at first touch.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use quire_sys::mem::Reservation;
use quire_sys::thread::spawn_unsignalled;

/// Requests that may wait; more are dropped.
const QUEUE: usize = 4;

/// The warming thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Prefaulter {
    requests: Option<SyncSender<Range<usize>>>,
}

impl Prefaulter {
    pub(crate) fn start(memory: &Arc<Reservation>) -> Self {
        let (requests, waiting) = sync_channel::<Range<usize>>(QUEUE);
        let memory = Arc::clone(memory);
        let thread = spawn_unsignalled("quire-warm", move || {
            for range in waiting {
                let _ = memory.populate(range);
            }
        });
        Self { requests: thread.is_ok().then_some(requests) }
    }

    /// Asks for `range` to be backed soon.
    pub(crate) fn warm(&self, range: Range<usize>) {
        if let Some(requests) = &self.requests {
            let _ = requests.try_send(range);
        }
    }
}
