//! The thread that fits the second tier to the memory that there is. It sleeps while the tier has no use for memory.
//!
//! Relies on the kernel taking the tier's full segments itself when it is in a hurry; this thread sees to it that the tier does not
//! grow again into memory that others need, and that it gives back what it holds while tasks wait for memory.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use quire_sys::thread::spawn_unsignalled;

use crate::error::PoolError;
use crate::memory_pressure::EventCount;

/// Between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// The thread; dropping this ends it.
pub(crate) struct TierSizer {
    events: Arc<EventCount>,
    thread: Option<JoinHandle<()>>,
}

impl TierSizer {
    /// Starts the thread, which calls `look` at every event, and after the time that `look` returned. `greet` is called in it first.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub(crate) fn start(
        greet: Option<fn()>,
        events: &Arc<EventCount>,
        mut look: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> Result<Self, PoolError> {
        let (events, own) = (Arc::clone(events), Arc::clone(events));
        let thread = spawn_unsignalled("quire-pool-tier", move || {
            if let Some(greet) = greet {
                greet();
            }
            while !own.is_closed() {
                // Read before the look: what happens during it is looked at at once.
                let seen = own.current();
                let next = look();
                own.wait(seen, next);
            }
        });
        let thread = thread.map_err(|error| PoolError::Thread { cause: error.to_string() })?;
        Ok(Self { events, thread: Some(thread) })
    }
}

impl Drop for TierSizer {
    fn drop(&mut self) {
        self.events.close();
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}
