//! The allocator that the program's heap is made by: mimalloc, on memory that the library gives it and no other.
//!
//! Relies on `libmimalloc-sys`. It is kept from the system: it may not map memory for the program, and it may not give pages
//! back, which only the pool may.

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libmimalloc_sys as _;

/// The allocator hands out memory in segments of this size, aligned to it.
pub const SEGMENT_BYTES: u64 = 32 << 20;

unsafe extern "C" {
    fn mi_process_init();
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_manage_os_memory_ex(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_large: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        arena: *mut c_int,
    ) -> bool;
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_calloc(count: usize, size: usize) -> *mut c_void;
    fn mi_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    fn mi_malloc_aligned(size: usize, align: usize) -> *mut c_void;
    fn mi_free(pointer: *mut c_void);
    fn mi_usable_size(pointer: *const c_void) -> usize;
}

/// mimalloc's numbers of its options.
const PURGE_DELAY: c_int = 15;
const DISALLOW_OS_ALLOC: c_int = 17;
const ARENA_RESERVE: c_int = 23;

static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Gives the allocator `memory`, which is zero and begins at a segment. False if it doesn't take it. To be called by the
/// program's first thread, which it takes the caller for.
///
/// # Safety
/// The memory can be loaded and stored, has no other owner, and stays so until the process ends.
pub unsafe fn give(memory: Range<usize>) -> bool {
    let any_node = -1;
    // SAFETY: these are numbers of options in the version of mimalloc that is linked. The caller promises that the memory
    // is readable, writable and without another owner for as long as the process, which is what `mi_manage_os_memory_ex`
    // asks for.
    unsafe {
        mi_process_init();
        mi_option_set(PURGE_DELAY, -1);
        mi_option_set(DISALLOW_OS_ALLOC, 1);
        mi_option_set(ARENA_RESERVE, 0);
        let start = std::ptr::with_exposed_provenance_mut(memory.start);
        if !mi_manage_os_memory_ex(start, memory.len(), true, false, true, any_node, false, std::ptr::null_mut()) {
            return false;
        }
    }
    BASE.store(memory.start, Ordering::Relaxed);
    LEN.store(memory.len(), Ordering::Release);
    true
}

/// From now on the program's allocations come from here.
pub fn open() {
    IS_OPEN.store(true, Ordering::Release);
}

/// Whether the program's allocations come from here.
#[inline]
pub fn is_open() -> bool {
    IS_OPEN.load(Ordering::Relaxed)
}

/// Bytes that the allocator was given.
pub fn len() -> usize {
    LEN.load(Ordering::Relaxed)
}

/// Whether `pointer` came from here.
#[inline]
pub fn has(pointer: *mut c_void) -> bool {
    (pointer as usize).wrapping_sub(BASE.load(Ordering::Relaxed)) < LEN.load(Ordering::Acquire)
}

/// `malloc`; null if no memory is left.
#[inline]
pub fn malloc(size: usize) -> *mut c_void {
    // SAFETY: `mi_malloc` takes any size, in any thread.
    unsafe { mi_malloc(size) }
}

/// `calloc`.
#[inline]
pub fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: `mi_calloc` takes any sizes and checks their product.
    unsafe { mi_calloc(count, size) }
}

/// `size` bytes aligned to `align`, a power of two.
pub fn aligned(align: usize, size: usize) -> *mut c_void {
    // SAFETY: `mi_malloc_aligned` takes any size, and returns null for an alignment that is none.
    unsafe { mi_malloc_aligned(size, align) }
}

/// `realloc`.
///
/// # Safety
/// `pointer` came from here, and is given up.
#[inline]
pub unsafe fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: `mi_realloc` takes what mimalloc has allocated and not freed; `realloc`'s caller promises that the pointer
    // came from here.
    unsafe { mi_realloc(pointer, size) }
}

/// `free`.
///
/// # Safety
/// As [`realloc`].
#[inline]
pub unsafe fn free(pointer: *mut c_void) {
    // SAFETY: `mi_free` takes what mimalloc has allocated and not freed; `free`'s caller promises that, and gives the
    // pointer up.
    unsafe { mi_free(pointer) }
}

/// `malloc_usable_size`.
///
/// # Safety
/// `pointer` came from here, and is in use.
pub unsafe fn usable_size(pointer: *mut c_void) -> usize {
    // SAFETY: `mi_usable_size` reads the segment of a pointer in use; `usable_size`'s caller promises that it came from
    // here and is.
    unsafe { mi_usable_size(pointer) }
}
