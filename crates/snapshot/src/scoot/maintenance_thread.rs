//! The thread of an origin, which does its maintenance and sleeps when there is none.
//!
//! Relies on [`crate::scoot::maintenance`] for what there is to do. It ends with the origin, not with the views: the
//! thread that drops a view after that unmaps what the view leaves behind.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_sys::thread::spawn_unsignalled;

use super::maintenance::{Maintenance, MaintenanceStep};
use super::state::ScootState;

/// See the head of this file. Without a thread the maintenance waits for [`MaintenanceThread::settle`] and for cuts.
pub(super) struct MaintenanceThread {
    state: Arc<ScootState>,
    maintenance: Arc<Mutex<Maintenance>>,
    thread: Option<JoinHandle<()>>,
}

impl MaintenanceThread {
    /// Starts the thread if the options want one.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub(super) fn new(state: &Arc<ScootState>) -> io::Result<Self> {
        let maintenance = Arc::new(Mutex::new(Maintenance::new(state.backing.layout.regions())));
        let mut own = Self { state: Arc::clone(state), maintenance, thread: None };
        if state.options.background {
            let (state, maintenance) = (Arc::clone(state), Arc::clone(&own.maintenance));
            own.state.lock().has_thread = true;
            own.thread = Some(spawn_unsignalled("quire-scoot", move || run(&state, &maintenance))?);
        }
        Ok(own)
    }

    /// Returns when there is nothing left to do.
    pub(super) fn settle(&self) {
        if self.state.is_forked() {
            return;
        }
        let mut mappings = self.state.lock();
        mappings.collapse_due = true;
        mappings.settled = false;
        if self.thread.is_none() {
            drop(mappings);
            let mut maintenance = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
            while maintenance.step(&self.state) == MaintenanceStep::Worked {}
            return;
        }
        self.state.work.notify_one();
        while !mappings.settled && mappings.has_thread {
            mappings = self.state.idle.wait(mappings).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        if self.state.is_forked() {
            // There is no such thread here to wait for.
            return std::mem::forget(self.thread.take());
        }
        let mut mappings = self.state.lock();
        mappings.closing = true;
        mappings.has_thread = false;
        drop(mappings);
        self.state.work.notify_one();
        self.state.idle.notify_all();
        if let Some(thread) = self.thread.take() {
            // A maintenance thread that panicked has said so already.
            let _ = thread.join();
        }
        let unmap_queue = std::mem::take(&mut self.state.lock().unmap_queue);
        drop(unmap_queue);
    }
}

/// Says that there is no maintenance thread any more, whichever way it ended: no thread must wait for it, nor leave work to it.
struct End<'a>(&'a ScootState);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().has_thread = false;
        self.0.idle.notify_all();
    }
}

fn run(state: &ScootState, maintenance: &Mutex<Maintenance>) {
    let _end = End(state);
    loop {
        let step = maintenance.lock().unwrap_or_else(PoisonError::into_inner).step(state);
        let MaintenanceStep::Rest(rest) = step else { continue };
        let mut mappings = state.lock_after_cuts();
        if mappings.closing {
            return;
        }
        if !mappings.settled || mappings.woken {
            mappings.woken = false;
            continue;
        }
        // A spurious wake-up costs one look at the mappings.
        let mut mappings = match rest {
            None => state.work.wait(mappings).unwrap_or_else(PoisonError::into_inner),
            Some(rest) => state.work.wait_timeout(mappings, rest).unwrap_or_else(PoisonError::into_inner).0,
        };
        mappings.woken = false;
    }
}
