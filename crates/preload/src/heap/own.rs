//! What is ours and not the program's: our threads, and what this library allocates for itself.
//!
//! Relies on [`next`] for memory. What is ours must never come from the heap on a file: a thread that serves the heap would
//! wait for itself. Nothing here is thread-local: looking at a thread-local of a library may allocate, and these functions
//! are asked in the middle of allocations.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_sys::guest;

use super::next;

/// Most threads of ours: servers, writers and a few more.
const MOST: usize = 64;

static THREADS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The least and the greatest of them: most threads of the program are told from ours by that.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The calling thread is ours from now on.
pub fn enter() {
    let own = guest::thread_handle();
    LOWEST.fetch_min(own, Ordering::Relaxed);
    HIGHEST.fetch_max(own, Ordering::Relaxed);
    let is_free = |place: &&AtomicUsize| place.compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if THREADS.iter().find(is_free).is_some() {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
}

/// In a forked child: none of ours is there.
pub fn forget() {
    THREADS.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    COUNT.store(0, Ordering::Relaxed);
    LOWEST.store(usize::MAX, Ordering::Relaxed);
    HIGHEST.store(0, Ordering::Relaxed);
}

/// How many have entered.
pub fn threads() -> usize {
    COUNT.load(Ordering::SeqCst)
}

/// Whether the calling thread is one of ours.
pub fn is_current() -> bool {
    let own = guest::thread_handle();
    own >= LOWEST.load(Ordering::Relaxed)
        && own <= HIGHEST.load(Ordering::Relaxed)
        && THREADS.iter().any(|place| place.load(Ordering::Relaxed) == own)
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// How often this library has allocated something for itself so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// What this library allocates with.
pub struct Own;

/// What every allocation is aligned to without being asked.
const USUAL_ALIGN: usize = 16;

// SAFETY: the next allocator keeps the duties of one; sizes and alignments are passed on as they are.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if layout.align() <= USUAL_ALIGN {
            next::malloc(layout.size()).cast()
        } else {
            next::aligned_alloc(layout.align(), layout.size().next_multiple_of(layout.align())).cast()
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
        // SAFETY: it came from the next allocator, here; the caller gives it up.
        unsafe { next::free(pointer.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL_ALIGN {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            return next::calloc(1, layout.size()).cast();
        }
        // SAFETY: the caller's duties are the same.
        let pointer = unsafe { self.alloc(layout) };
        if !pointer.is_null() {
            // SAFETY: just allocated, of that size.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= USUAL_ALIGN {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: it came from the next allocator, here; the caller gives it up.
            return unsafe { next::realloc(pointer.cast(), new_size) }.cast();
        }
        // SAFETY: the layout's alignment is valid, and the caller answers for the size.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the size isn't zero, as the caller promises.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both have so many bytes, and the new ones are nobody else's; the old ones are given up.
            unsafe {
                new.copy_from_nonoverlapping(pointer, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_entered_is_known_and_others_are_not() {
        std::thread::spawn(|| {
            assert!(!is_current());
            enter();
            assert!(is_current() && threads() >= 1);
        })
        .join()
        .unwrap();
        assert!(!is_current());
    }

    #[test]
    fn what_is_aligned_stays_so_and_keeps_its_bytes() {
        let before = allocations();
        for align in [1, 16, 64, 8192] {
            let layout = Layout::from_size_align(100, align).unwrap();
            // SAFETY: sizes aren't zero, and each pointer is given up once.
            unsafe {
                let first = Own.alloc_zeroed(layout);
                assert!(first.addr().is_multiple_of(align) && *first.add(99) == 0);
                first.write_bytes(7, 100);
                let second = Own.realloc(first, layout, 10_000);
                assert!(second.addr().is_multiple_of(align) && *second.add(99) == 7);
                Own.dealloc(second, Layout::from_size_align(10_000, align).unwrap());
            }
        }
        assert!(allocations() >= before + 8);
    }
}
