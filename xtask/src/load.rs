//! Load: threads that take every processor at normal priority, for tests that have to hold on a busy machine, too.
//!
//! Relies on the threads being this process's own: they end with it, however it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Busy threads, which end when this is dropped, or after their time.
pub struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// One busy thread for each processor, for at most `limit`.
    pub fn start(limit: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Instant::now() + limit;
        let work = move |is_over: Arc<AtomicBool>| {
            while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                for _ in 0..10_000 {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..processors())
            .map(|_| {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || work(is_over))
            })
            .collect();
        Self { is_over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It can't have panicked.
            let _ = thread.join();
        }
    }
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
