//! Finds the functions behind those that the library stands in front of: the C library's, or another preloaded library's.
//!
//! Relies on the dynamic linker, which before glibc 2.34 allocates in every thread's first look-up. The allocator behind this library may call, to serve
//! that, the very function that is looked for, which would begin anew without end. So a thread is marked while it is in the dynamic linker, and
//! what it allocates meanwhile comes from the early memory of [`crate::heap::real_libc`].

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_sys::{guest, symbol};

/// Threads that may look for functions at a time with their allocations kept apart.
const MOST_FINDERS: usize = 8;

/// Marks of the threads that the dynamic linker looks for a function for; 0 where none is. A child that was forked during another thread's
/// look-up has that one's mark for ever, so marks name their process.
static FINDERS: [AtomicUsize; MOST_FINDERS] = [const { AtomicUsize::new(0) }; MOST_FINDERS];
/// Those of them that there are, and in a child those that it was born with.
static FINDER_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where a mark's process begins: below it stands the thread's handle, which is an address of the lower half and divisible by 16.
const PROCESS_SHIFT: u32 = 44;

/// The mark of a thread of a process, of whose number the lower 20 bits are enough.
const fn mark(thread: usize, process: i32) -> usize {
    ((thread >> 4) & ((1 << PROCESS_SHIFT) - 1)) | ((process as usize) << PROCESS_SHIFT)
}

/// Whether a mark is of this process.
const fn is_of(mark: usize, process: i32) -> bool {
    mark >> PROCESS_SHIFT == ((process as usize) << PROCESS_SHIFT) >> PROCESS_SHIFT
}

/// The function called `name` behind this library's; null if there is none. May take the dynamic linker's lock.
pub fn next(name: &CStr) -> *mut () {
    finding(|| symbol::next(name).map_or(null_mut(), std::ptr::NonNull::as_ptr))
}

/// Runs `find`, with the calling thread marked as one that looks for a function.
pub fn finding<T>(find: impl FnOnce() -> T) -> T {
    let process = guest::process_id();
    let own = mark(guest::thread_handle(), process);
    let claims = |place: &&AtomicUsize| {
        let before = place.load(Ordering::Relaxed);
        (before == 0 || !is_of(before, process))
            && place.compare_exchange(before, own, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    // Places are looked at by their own thread alone, so no order of memory is needed.
    let claimed = FINDERS.iter().find(claims);
    FINDER_COUNT.fetch_add(1, Ordering::Relaxed);
    let found = find();
    FINDER_COUNT.fetch_sub(1, Ordering::Relaxed);
    if let Some(place) = claimed {
        place.store(0, Ordering::Relaxed);
    }
    found
}

/// Whether the calling thread is in the dynamic linker, looking for a function.
#[inline]
pub fn is_finding() -> bool {
    FINDER_COUNT.load(Ordering::Relaxed) != 0 && is_marked()
}

#[cold]
fn is_marked() -> bool {
    let thread = mark(guest::thread_handle(), 0);
    FINDERS.iter().any(|place| {
        let found = place.load(Ordering::Relaxed);
        // The system is asked for the process only where the thread is the same.
        found << (usize::BITS - PROCESS_SHIFT) == thread << (usize::BITS - PROCESS_SHIFT)
            && found != 0
            && is_of(found, guest::process_id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_marked_while_it_looks_and_functions_are_found() {
        assert!(!is_finding() && finding(|| is_finding() && finding(is_finding) && is_finding()));
        assert!(finding(|| std::thread::spawn(|| !is_finding()).join().unwrap()), "another thread is not");
        // In a child the parent's threads left their marks, and one of them may have the handle of a new thread.
        let others = mark(guest::thread_handle(), guest::process_id() + 1);
        for place in &FINDERS {
            _ = place.compare_exchange(0, others, Ordering::Relaxed, Ordering::Relaxed);
        }
        FINDER_COUNT.fetch_add(MOST_FINDERS, Ordering::Relaxed);
        assert!(!is_finding() && finding(|| is_finding() && finding(is_finding) && is_finding()) && !is_finding());
        assert!(!is_finding() && !next(c"calloc").is_null() && next(c"quire_no_such_function").is_null());
    }
}
