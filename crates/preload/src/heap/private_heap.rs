//! The memory that this library allocates for itself: from the C library's allocator, never from the program's heap.
//!
//! Relies on [`real_libc`] for memory. A thread that serves the heap on a file would wait for itself if its own memory came from
//! that heap.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::real_libc;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// How often this library has allocated something for itself so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// What this library allocates with.
pub struct PrivateHeap;

/// What every allocation is aligned to without being asked.
const USUAL_ALIGN: usize = 16;

// SAFETY: the next allocator keeps the duties of one; sizes and alignments are passed on as they are.
unsafe impl GlobalAlloc for PrivateHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if layout.align() <= USUAL_ALIGN {
            real_libc::malloc(layout.size()).cast()
        } else {
            real_libc::aligned_alloc(layout.align(), layout.size().next_multiple_of(layout.align())).cast()
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
        // SAFETY: it came from the next allocator, here; the caller gives it up.
        unsafe { real_libc::free(pointer.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL_ALIGN {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            return real_libc::calloc(1, layout.size()).cast();
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
            return unsafe { real_libc::realloc(pointer.cast(), new_size) }.cast();
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
    fn what_is_aligned_stays_so_and_keeps_its_bytes() {
        let before = allocations();
        for align in [1, 16, 64, 8192] {
            let layout = Layout::from_size_align(100, align).unwrap();
            // SAFETY: sizes aren't zero, and each pointer is given up once.
            unsafe {
                let first = PrivateHeap.alloc_zeroed(layout);
                assert!(first.addr().is_multiple_of(align) && *first.add(99) == 0);
                first.write_bytes(7, 100);
                let second = PrivateHeap.realloc(first, layout, 10_000);
                assert!(second.addr().is_multiple_of(align) && *second.add(99) == 7);
                PrivateHeap.dealloc(second, Layout::from_size_align(10_000, align).unwrap());
            }
        }
        assert!(allocations() >= before + 8);
    }
}
