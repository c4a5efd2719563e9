//! The thread that fits the second tier to the memory that there is.
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
const PERIOD: Duration = Duration::from_millis(250);

/// The thread; dropping this ends it.
pub(crate) struct TierSizer {
    end: Arc<EventCount>,
    thread: Option<JoinHandle<()>>,
}

impl TierSizer {
    /// Starts the thread, which calls `look` four times a second. `greet` is called in it first.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub(crate) fn start(greet: Option<fn()>, mut look: impl FnMut() + Send + 'static) -> Result<Self, PoolError> {
        let end = Arc::new(EventCount::default());
        let own = Arc::clone(&end);
        let thread = spawn_unsignalled("quire-pool-tier", move || {
            if let Some(greet) = greet {
                greet();
            }
            while !own.is_closed() {
                look();
                own.wait(own.current(), Some(PERIOD));
            }
        });
        let thread = thread.map_err(|error| PoolError::Thread { cause: error.to_string() })?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for TierSizer {
    fn drop(&mut self) {
        self.end.close();
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}
