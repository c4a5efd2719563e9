//! The allocator's functions that the library stands in front of. Without a heap on a file each is a load, a branch and a jump.
//!
//! Relies on [`arena`] and [`real_libc`] to tell their memory apart by its address: what the program had before its heap was
//! there, and what the library's threads have, stays the C library's, also when it is enlarged.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_sys::guest;
use quire_sys::mem::PAGE_SIZE;
use quire_units::Bytes;

use super::{arena, internal_threads, real_libc};
use crate::zread::blocks;
use crate::{log, process};

/// Whether the calling thread allocates from the heap on a file.
#[inline]
fn is_ours() -> bool {
    arena::is_open() && !internal_threads::is_current()
}

/// Passes on what was allocated; that nothing was is told once, and in `errno`.
#[inline]
fn given(pointer: *mut c_void, size: usize) -> *mut c_void {
    if pointer.is_null() {
        none_left(size);
    }
    pointer
}

#[cold]
fn none_left(size: usize) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::line(format_args!(
            "heap: {} are not to be had of {}: the program is told that there is no memory; ask for more in QUIRE_HEAP",
            Bytes(size as u64),
            Bytes(arena::len() as u64)
        ));
    }
    guest::set_errno(guest::NO_MEMORY);
}

/// Stands in front of the C library's `malloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    if is_ours() {
        return given(arena::malloc(size), size);
    }
    if let Some(block) = blocks::allocate(size, 16) {
        return block;
    }
    process::tidy();
    real_libc::malloc(size)
}

/// Stands in front of the C library's `calloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if is_ours() {
        given(arena::calloc(count, size), count.saturating_mul(size))
    } else {
        real_libc::calloc(count, size)
    }
}

/// Stands in front of the C library's `free`.
///
/// # Safety
/// `pointer` is null or was allocated by a function here, and is given up.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    if blocks::has(pointer.addr()) {
        return blocks::free(pointer);
    }
    // SAFETY: `free`'s caller promises a pointer from a function here, given up. Its address tells which of the two
    // allocators it came from: the arena is one range, from which the C library has nothing.
    unsafe { if arena::has(pointer) { arena::free(pointer) } else { real_libc::free(pointer) } }
}

/// Stands in front of the C library's `realloc`.
///
/// # Safety
/// As [`free`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    if arena::has(pointer) {
        // As glibc does.
        if size == 0 {
            // SAFETY: `realloc`'s caller promises a pointer from a function here, given up, and its address is the arena's.
            unsafe { arena::free(pointer) };
            return null_mut();
        }
        // SAFETY: `realloc`'s caller promises a pointer from a function here, given up, and its address is the arena's.
        return given(unsafe { arena::realloc(pointer, size) }, size);
    }
    if blocks::has(pointer.addr()) {
        // SAFETY: `realloc`'s caller promises a pointer from a function here, given up, and its address is a block's.
        return unsafe { realloc_block(pointer, size) };
    }
    if pointer.is_null() && (is_ours() || size >= blocks::LEAST_BLOCK_BYTES) {
        return malloc(size);
    }
    // SAFETY: `realloc`'s caller promises null or a pointer from a function here, given up; as it isn't the arena's,
    // `real_libc` has allocated it.
    unsafe { real_libc::realloc(pointer, size) }
}

/// `realloc` of a block for large reads.
///
/// # Safety
/// `pointer` is a block that is in use, and is given up.
unsafe fn realloc_block(pointer: *mut c_void, size: usize) -> *mut c_void {
    if size > 0 && blocks::resize(pointer, size) {
        return pointer;
    }
    let new = if size > 0 { malloc(size) } else { null_mut() };
    if !new.is_null() {
        // SAFETY: the old memory has as many bytes as the program has asked for, the new one `size`, and it was just allocated.
        unsafe { new.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), blocks::asked_bytes(pointer).min(size)) };
    }
    if !new.is_null() || size == 0 {
        blocks::free(pointer);
    }
    new
}

/// Stands in front of the C library's `reallocarray`.
///
/// # Safety
/// As [`free`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void {
    if !arena::is_open() && !blocks::has(pointer.addr()) {
        // SAFETY: without an open arena every other pointer of a function here came from `real_libc`; the caller promises such a
        // one, or null.
        return unsafe { real_libc::reallocarray(pointer, count, size) };
    }
    let Some(bytes) = count.checked_mul(size) else {
        guest::set_errno(guest::NO_MEMORY);
        return null_mut();
    };
    // SAFETY: `realloc` demands null or a pointer of a function here that is given up; `reallocarray` demands the same of its caller.
    unsafe { realloc(pointer, bytes) }
}

/// Stands in front of the C library's `posix_memalign`.
///
/// # Safety
/// `*place` may be written.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if align.is_power_of_two()
        && align.is_multiple_of(size_of::<*mut c_void>())
        && let Some(block) = block(align, size)
    {
        // SAFETY: `posix_memalign` demands of its caller that `*place` may be written.
        unsafe { place.write(block) };
        return 0;
    }
    if !is_ours() {
        // SAFETY: the C library's function demands a place that may be written; this function demands that of its caller.
        return unsafe { real_libc::posix_memalign(place, align, size) };
    }
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return guest::INVALID;
    }
    let errno = guest::errno();
    let pointer = given(arena::aligned(align, size), size);
    guest::set_errno(errno);
    if pointer.is_null() {
        return guest::NO_MEMORY;
    }
    // SAFETY: `posix_memalign` demands of its caller that `*place` may be written.
    unsafe { place.write(pointer) };
    0
}

/// A block for large reads, if the request is for such and the alignment is one.
#[inline]
fn block(align: usize, size: usize) -> Option<*mut c_void> {
    if align.is_power_of_two() { blocks::allocate(size, align) } else { None }
}

/// Memory whose alignment is rounded up to a power of two, as glibc does.
fn aligned(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => given(arena::aligned(align, size), size),
        None => {
            guest::set_errno(guest::INVALID);
            null_mut()
        }
    }
}

/// Stands in front of the C library's `aligned_alloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if is_ours() {
        aligned(align, size)
    } else {
        block(align, size).unwrap_or_else(|| real_libc::aligned_alloc(align, size))
    }
}

/// Stands in front of the C library's `memalign`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    if is_ours() {
        aligned(align, size)
    } else {
        block(align, size).unwrap_or_else(|| real_libc::memalign(align, size))
    }
}

/// Stands in front of the C library's `valloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    if is_ours() { aligned(PAGE_SIZE, size) } else { block(PAGE_SIZE, size).unwrap_or_else(|| real_libc::valloc(size)) }
}

/// Stands in front of the C library's `pvalloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    if !is_ours() {
        let whole = size.checked_next_multiple_of(PAGE_SIZE).unwrap_or(size);
        return block(PAGE_SIZE, whole).unwrap_or_else(|| real_libc::pvalloc(size));
    }
    match size.checked_next_multiple_of(PAGE_SIZE) {
        Some(whole) => aligned(PAGE_SIZE, whole),
        None => given(null_mut(), size),
    }
}

/// Stands in front of the C library's `malloc_usable_size`.
///
/// # Safety
/// `pointer` is null or was allocated by a function here, and is in use.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    if blocks::has(pointer.addr()) {
        return blocks::usable_bytes(pointer);
    }
    // SAFETY: the caller promises null or a pointer in use from a function here; its address tells which of the two
    // allocators has it.
    unsafe { if arena::has(pointer) { arena::usable_size(pointer) } else { real_libc::usable_size(pointer) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_heap_everything_is_the_c_library_s() {
        // SAFETY: all pointers are from functions here and each is given up once; no more is written than was asked for.
        unsafe {
            let first = malloc(10).cast::<u8>();
            first.write_bytes(3, 10);
            let second = realloc(first.cast(), 5000);
            assert!(*second.cast::<u8>().add(9) == 3 && malloc_usable_size(second) >= 5000 && !arena::has(second));
            let third = reallocarray(second, 100, 100);
            assert!(reallocarray(third, usize::MAX, 3).is_null());
            free(third);
            let mut place = null_mut();
            assert_eq!(posix_memalign(&raw mut place, 3, 10), guest::INVALID);
            assert_eq!(posix_memalign(&raw mut place, 256, 10), 0);
            for pointer in [place, memalign(256, 9), aligned_alloc(512, 1024), valloc(5), pvalloc(5), calloc(3, 5)] {
                assert!(!pointer.is_null() && (pointer as usize).is_multiple_of(16));
                free(pointer);
            }
            free(null_mut());
        }
    }
}
