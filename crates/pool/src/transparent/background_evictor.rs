//! The thread that does for a transparent map what its handlers may not: it tells queues and sets what has happened, and
//! evicts ahead of need, so that handlers find free credits.
//!
//! Relies on being called when notes have piled up or credits run short; it sees to no fault itself.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::fault_handler::FaultHandler;
use crate::error::PoolError;
use crate::reclaim;

/// The thread; dropping this ends it.
pub(super) struct BackgroundEvictor {
    faults: Arc<FaultHandler>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundEvictor {
    pub(super) fn start(faults: &Arc<FaultHandler>) -> Result<Self, PoolError> {
        let own = Arc::clone(faults);
        let thread = std::thread::Builder::new()
            .name("quire-evictor".into())
            .spawn(move || {
                own.shared.config.call_on_thread_start();
                work(&own);
            })
            .map_err(|error| PoolError::Thread { cause: error.to_string() })?;
        Ok(Self { faults: Arc::clone(faults), thread: Some(thread) })
    }
}

fn work(faults: &FaultHandler) {
    let mut turn = 0;
    // Since when handlers wait and nothing has gone.
    let mut low_since: Option<Instant> = None;
    while !faults.work.is_closed() {
        let seen = faults.work.current();
        faults.tell();
        let mut went = 0;
        let is_low = faults.shared.pressure.is_memory_low();
        low_since = low_since.or_else(|| Some(Instant::now())).filter(|_| is_low);
        while faults.shared.credits.free() < faults.low_mark() {
            // Any page: the shards take turns.
            turn += crate::page::GROUP_PAGES;
            let mut batch = reclaim::evict_for(&faults.shared, &faults.mapped, turn);
            if batch == 0 && low_since.is_some_and(|since| since.elapsed() >= reclaim::UNFAIR_AFTER) {
                // A handler that waits calls again and again. It may not take the tier's locks itself.
                batch = reclaim::evict_from_tier(&faults.shared);
            }
            went += batch;
            if batch == 0 || faults.work.is_closed() {
                break;
            }
        }
        if went > 0 {
            low_since = None;
        } else {
            faults.work.wait(seen, None);
        }
    }
}

impl Drop for BackgroundEvictor {
    fn drop(&mut self) {
        self.faults.work.close();
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}
