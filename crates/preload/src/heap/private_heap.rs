//! The memory that this library allocates for itself: from the C library's allocator, never from the program's heap.
//!
//! Relies on [`real_libc`] for memory. A thread that serves the heap on a file would wait for itself if its own memory came
//! from that heap.

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

// SAFETY: the C library's allocator, or the one that another preloaded library has put before it, keeps what `GlobalAlloc`
// asks: memory of at least the size, with the alignment, that stays until it is freed. Nothing here unwinds.
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
        // SAFETY: `real_libc::free` takes what came from `real_libc`; `alloc` and its kin here take all of theirs from
        // there, and `dealloc`'s caller gives the pointer up.
        unsafe { real_libc::free(pointer.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= USUAL_ALIGN {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            return real_libc::calloc(1, layout.size()).cast();
        }
        // SAFETY: `alloc` asks for a size that isn't zero, as `alloc_zeroed` does of its caller.
        let pointer = unsafe { self.alloc(layout) };
        if !pointer.is_null() {
            // SAFETY: `alloc` has just returned it for `layout`, so it has that many bytes and no other owner.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= USUAL_ALIGN {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            // SAFETY: `real_libc::realloc` takes what came from `real_libc`, as all memory from here does; the caller gives
            // it up.
            return unsafe { real_libc::realloc(pointer.cast(), new_size) }.cast();
        }
        // SAFETY: the alignment is that of a valid layout, and `realloc`'s caller promises that the size, rounded up, does
        // not overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: `realloc`'s caller promises a new size that isn't zero.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: the old memory has `layout.size()` bytes and the new one `new_size`; the new one was just allocated,
            // so they do not overlap. `realloc`'s caller gives the old one up, which came from here with that layout.
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
            // SAFETY: the sizes aren't zero, `realloc` gives `first` up, and `second` is given up once with its layout.
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
