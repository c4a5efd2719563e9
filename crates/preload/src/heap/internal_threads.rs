//! The library's own threads in the program: those that serve the heap on a file.
//!
//! Relies on nothing that is thread-local: looking at a thread-local of a library may allocate, and the hooks of the
//! allocator ask in the middle of allocations which kind of thread calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use quire_sys::guest;

/// Most threads: servers, writers and a few more.
const MOST: usize = 64;

static THREADS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The least and the greatest of them: most threads of the program are told from the library's by that.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The calling thread is one of the library's from now on.
pub fn register() {
    let own = guest::thread_handle();
    LOWEST.fetch_min(own, Ordering::Relaxed);
    HIGHEST.fetch_max(own, Ordering::Relaxed);
    let is_free = |place: &&AtomicUsize| place.compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if THREADS.iter().find(is_free).is_some() {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
}

/// In a forked child: none of them is there.
pub fn forget() {
    THREADS.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    COUNT.store(0, Ordering::Relaxed);
    LOWEST.store(usize::MAX, Ordering::Relaxed);
    HIGHEST.store(0, Ordering::Relaxed);
}

/// How many were registered.
pub fn count() -> usize {
    COUNT.load(Ordering::SeqCst)
}

/// Whether the calling thread is one of the library's.
pub fn is_current() -> bool {
    let own = guest::thread_handle();
    own >= LOWEST.load(Ordering::Relaxed)
        && own <= HIGHEST.load(Ordering::Relaxed)
        && THREADS.iter().any(|place| place.load(Ordering::Relaxed) == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_registered_is_known_and_others_are_not() {
        std::thread::spawn(|| {
            assert!(!is_current());
            register();
            assert!(is_current() && count() >= 1);
        })
        .join()
        .unwrap();
        assert!(!is_current());
    }
}
