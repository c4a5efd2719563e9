//! Memory for programs that make checkpoints: one pool for what is checkpointed, one for the rest.
//!
//! Relies on `quire_mdc::heap`.

use core::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use quire_mdc::heap::{self, PoolKind};

use crate::api_error::ApiError;
use crate::boundary;
use crate::status::quire_status;

fn take(pool: PoolKind, bytes: usize, zeroed: bool) -> Result<*mut c_void, ApiError> {
    heap::allocate(pool, bytes, zeroed).map(NonNull::as_ptr).map(<*mut u8>::cast).ok_or(ApiError::NoMemory { bytes })
}

fn array(count: usize, size: usize) -> Result<usize, ApiError> {
    count.checked_mul(size).ok_or(ApiError::NoMemory { bytes: usize::MAX })
}

fn not_ours(ptr: *const c_void) -> ApiError {
    ApiError::Stale { argument: "ptr", handle: ptr as usize }
}

/// Memory of size bytes for objects that mdc_fwrite() will be given by MDC_REF, as malloc() does. A dump takes whole mappings: a
/// program that has its objects here and the rest elsewhere dumps the objects only. NULL if there is no memory.
///
/// Like all functions here, any thread may call it, also in a child after fork(). Aligned to 16 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mdc_malloc(size: usize) -> *mut c_void {
    boundary::value(null_mut(), || take(PoolKind::Checkpointed, size, false))
}

/// As mdc_malloc(), for count objects of size bytes, all zero.
#[unsafe(no_mangle)]
pub extern "C" fn mdc_calloc(count: usize, size: usize) -> *mut c_void {
    boundary::value(null_mut(), || take(PoolKind::Checkpointed, array(count, size)?, true))
}

/// As mdc_malloc(), from the scratch pool: for what no checkpoint needs, such as buffers and caches. No dump has it, unless
/// mdc_fwrite() is given an object of it by MDC_REF.
#[unsafe(no_mangle)]
pub extern "C" fn mdc_scratch_malloc(size: usize) -> *mut c_void {
    boundary::value(null_mut(), || take(PoolKind::Scratch, size, false))
}

/// As mdc_scratch_malloc(), for count objects of size bytes, all zero.
#[unsafe(no_mangle)]
pub extern "C" fn mdc_scratch_calloc(count: usize, size: usize) -> *mut c_void {
    boundary::value(null_mut(), || take(PoolKind::Scratch, array(count, size)?, true))
}

/// Gives memory of either pool another size, as realloc() does: it stays in its pool, perhaps at another place. NULL if there is no
/// memory; ptr is as it was then. For NULL it is mdc_malloc().
///
/// # Safety
/// `ptr` is NULL or memory of the pools that is in use; on success it is used at the new place only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    boundary::value(null_mut(), || {
        if ptr.is_null() {
            return take(PoolKind::Checkpointed, size, false);
        }
        heap::find(ptr as usize).ok_or_else(|| not_ours(ptr))?;
        // SAFETY: `reallocate` demands an object of the pools that is in use, and that it is used at its new place only: `mdc_realloc` demands
        // both of its caller, and `find` has just found the object.
        let new = unsafe { heap::reallocate(ptr as usize, size) };
        new.map(|new| new.as_ptr().cast()).ok_or(ApiError::NoMemory { bytes: size })
    })
}

/// Frees memory of either pool. QUIRE_INVALID if ptr is none of it, as far as that can be told: not everything that was freed before
/// is. NULL is nothing to free.
///
/// # Safety
/// `ptr` is NULL or memory of the pools that is in use, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_free(ptr: *mut c_void) -> quire_status {
    boundary::status(|| {
        // SAFETY: `free` demands that an object at the address is in use and is not used any more: `mdc_free` demands that of its caller.
        let is_freed = ptr.is_null() || unsafe { heap::free(ptr as usize) };
        if is_freed { Ok(()) } else { Err(not_ours(ptr)) }
    })
}

/// How many bytes memory of either pool has room for, at least as many as were asked for. 0 if ptr is NULL or none of it.
///
/// # Safety
/// `ptr` is NULL or memory of the pools that is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_usable_size(ptr: *const c_void) -> usize {
    boundary::value(0, || {
        if ptr.is_null() {
            return Ok(0);
        }
        heap::find(ptr as usize).map(|(_, room)| room).ok_or_else(|| not_ours(ptr))
    })
}
