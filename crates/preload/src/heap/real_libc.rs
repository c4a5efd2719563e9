//! The allocator behind this library's: the C library's, or that of another library in `LD_PRELOAD`.
//!
//! Relies on the dynamic linker to find it, at the first call. Should it allocate for that, it gets memory from a small
//! place of the library's own, which is never given back.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use quire_sys::guest;

use crate::lookup;

/// A function of the allocator behind this library.
struct RealFunction {
    name: &'static CStr,
    found: AtomicPtr<()>,
}

impl RealFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null while it is being looked for, and if there is none.
    #[inline]
    fn get(&self) -> *mut () {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut () {
        if FINDING.swap(true, Ordering::SeqCst) {
            return null_mut();
        }
        let found = lookup::next(self.name);
        self.found.store(found, Ordering::Relaxed);
        FINDING.store(false, Ordering::SeqCst);
        found
    }
}

/// A thread looks for a function: what is asked for meanwhile comes from [`BOOTSTRAP`].
static FINDING: AtomicBool = AtomicBool::new(false);

static MALLOC: RealFunction = RealFunction::new(c"malloc");
static CALLOC: RealFunction = RealFunction::new(c"calloc");
static REALLOC: RealFunction = RealFunction::new(c"realloc");
static REALLOCARRAY: RealFunction = RealFunction::new(c"reallocarray");
static FREE: RealFunction = RealFunction::new(c"free");
static POSIX_MEMALIGN: RealFunction = RealFunction::new(c"posix_memalign");
static ALIGNED_ALLOC: RealFunction = RealFunction::new(c"aligned_alloc");
static MEMALIGN: RealFunction = RealFunction::new(c"memalign");
static VALLOC: RealFunction = RealFunction::new(c"valloc");
static PVALLOC: RealFunction = RealFunction::new(c"pvalloc");
static USABLE_SIZE: RealFunction = RealFunction::new(c"malloc_usable_size");

/// Looks all of them up, which may take the dynamic linker's lock: to be called before it matters.
pub fn find_all() {
    for real in [
        &MALLOC,
        &CALLOC,
        &REALLOC,
        &REALLOCARRAY,
        &FREE,
        &POSIX_MEMALIGN,
        &ALIGNED_ALLOC,
        &MEMALIGN,
        &VALLOC,
        &PVALLOC,
        &USABLE_SIZE,
    ] {
        real.get();
    }
}

const BOOTSTRAP_BYTES: usize = 64 << 10;
/// In front of each early allocation: how many bytes it has.
const BOOTSTRAP_HEAD: usize = 16;

/// Memory for a thread that allocates while the real allocator is looked for.
#[repr(align(16))]
struct Bootstrap {
    bytes: UnsafeCell<[u8; BOOTSTRAP_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: threads share the bytes, but `take` hands each of them out once: it reserves a piece by an atomic update of `used`.
unsafe impl Sync for Bootstrap {}

static BOOTSTRAP: Bootstrap = Bootstrap { bytes: UnsafeCell::new([0; BOOTSTRAP_BYTES]), used: AtomicUsize::new(0) };

impl Bootstrap {
    fn base(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    fn has(&self, pointer: *mut c_void) -> bool {
        (pointer as usize).wrapping_sub(self.base() as usize) < BOOTSTRAP_BYTES
    }

    /// Zeroed bytes, aligned as `malloc`'s; null when there are no more.
    fn take(&self, size: usize) -> *mut c_void {
        let Some(whole) = size.checked_next_multiple_of(16).and_then(|size| size.checked_add(BOOTSTRAP_HEAD)) else {
            return null_mut();
        };
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
            used.checked_add(whole).filter(|&end| end <= BOOTSTRAP_BYTES)
        });
        let Ok(start) = taken else { return null_mut() };
        let head = self.base().wrapping_add(start);
        // SAFETY: the update above has reserved `whole` bytes from `start` for this call alone; `start` is a multiple of 16.
        unsafe { head.cast::<usize>().write(size) };
        head.wrapping_add(BOOTSTRAP_HEAD).cast()
    }

    /// Bytes of what [`Bootstrap::take`] has handed out.
    fn size(pointer: *mut c_void) -> usize {
        // SAFETY: `pointer` is what `take` returned, and `take` has written the size `BOOTSTRAP_HEAD` bytes in front of it.
        unsafe { pointer.cast::<u8>().wrapping_sub(BOOTSTRAP_HEAD).cast::<usize>().read() }
    }
}

/// `malloc`.
#[inline]
pub fn malloc(size: usize) -> *mut c_void {
    let real = MALLOC.get();
    if real.is_null() || lookup::is_finding() {
        return BOOTSTRAP.take(size);
    }
    // SAFETY: the dynamic linker's address for `malloc`, which has this type in every C library.
    unsafe { transmute::<*mut (), extern "C" fn(usize) -> *mut c_void>(real)(size) }
}

/// `calloc`.
#[inline]
pub fn calloc(count: usize, size: usize) -> *mut c_void {
    let real = CALLOC.get();
    if real.is_null() || lookup::is_finding() {
        return count.checked_mul(size).map_or(null_mut(), |bytes| BOOTSTRAP.take(bytes));
    }
    // SAFETY: the dynamic linker's address for `calloc`, which has this type in every C library.
    unsafe { transmute::<*mut (), extern "C" fn(usize, usize) -> *mut c_void>(real)(count, size) }
}

/// `free`.
///
/// # Safety
/// `pointer` is null or came from this file, and is given up.
#[inline]
pub unsafe fn free(pointer: *mut c_void) {
    let real = FREE.get();
    // What can't be given back now never is.
    if real.is_null() || BOOTSTRAP.has(pointer) {
        return;
    }
    // SAFETY: the dynamic linker's address for `free`, which has this type in every C library. The caller gives up a
    // pointer from this file, and as the bootstrap memory hasn't it, that allocator has.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void)>(real)(pointer) };
}

/// `realloc`.
///
/// # Safety
/// As [`free`].
#[inline]
pub unsafe fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    if BOOTSTRAP.has(pointer) {
        let new = malloc(size);
        if !new.is_null() {
            // SAFETY: the old memory has as many bytes as `Bootstrap::size` says and the new one `size`; the new one was
            // just allocated.
            unsafe { new.cast::<u8>().copy_from(pointer.cast(), Bootstrap::size(pointer).min(size)) };
        }
        return new;
    }
    let real = REALLOC.get();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the dynamic linker's address for `realloc`, which has this type in every C library. The caller gives up a pointer
    // from this file, or null, and as the bootstrap memory hasn't it, that allocator has.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void, usize) -> *mut c_void>(real)(pointer, size) }
}

/// `reallocarray`.
///
/// # Safety
/// As [`free`].
pub unsafe fn reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let real = REALLOCARRAY.get();
    if real.is_null() || BOOTSTRAP.has(pointer) {
        // SAFETY: `realloc` asks of the pointer what this function asks of its caller.
        return count.checked_mul(size).map_or(null_mut(), |bytes| unsafe { realloc(pointer, bytes) });
    }
    // SAFETY: the dynamic linker's address for `reallocarray`, which has this type in every C library that has it. The
    // caller gives up a pointer from this file, or null, and as the bootstrap memory hasn't it, that allocator has.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>(real)(pointer, count, size) }
}

/// `posix_memalign`.
///
/// # Safety
/// `*place` may be written.
pub unsafe fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let real = POSIX_MEMALIGN.get();
    if real.is_null() {
        return guest::NO_MEMORY;
    }
    // SAFETY: the dynamic linker's address for `posix_memalign`, which has this type in every C library. The caller promises
    // that `*place` may be written.
    unsafe { transmute::<*mut (), extern "C" fn(*mut *mut c_void, usize, usize) -> c_int>(real)(place, align, size) }
}

fn aligned(real: &RealFunction, align: usize, size: usize) -> *mut c_void {
    let real = real.get();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the callers pass `ALIGNED_ALLOC` or `MEMALIGN` only: the dynamic linker's address for a function of this type.
    unsafe { transmute::<*mut (), extern "C" fn(usize, usize) -> *mut c_void>(real)(align, size) }
}

fn paged(real: &RealFunction, size: usize) -> *mut c_void {
    let real = real.get();
    if real.is_null() {
        return null_mut();
    }
    // SAFETY: the callers pass `VALLOC` or `PVALLOC` only: the dynamic linker's address for a function of this type.
    unsafe { transmute::<*mut (), extern "C" fn(usize) -> *mut c_void>(real)(size) }
}

/// `aligned_alloc`.
pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    aligned(&ALIGNED_ALLOC, align, size)
}

/// `memalign`.
pub fn memalign(align: usize, size: usize) -> *mut c_void {
    aligned(&MEMALIGN, align, size)
}

/// `valloc`.
pub fn valloc(size: usize) -> *mut c_void {
    paged(&VALLOC, size)
}

/// `pvalloc`.
pub fn pvalloc(size: usize) -> *mut c_void {
    paged(&PVALLOC, size)
}

/// `malloc_usable_size`.
///
/// # Safety
/// `pointer` is null or came from this file, and is in use.
pub unsafe fn usable_size(pointer: *mut c_void) -> usize {
    if BOOTSTRAP.has(pointer) {
        return Bootstrap::size(pointer);
    }
    let real = USABLE_SIZE.get();
    if real.is_null() {
        return 0;
    }
    // SAFETY: the dynamic linker's address for `malloc_usable_size`, which has this type in every C library. The caller
    // promises a pointer in use from this file, or null, and as the bootstrap memory hasn't it, that allocator has.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void) -> usize>(real)(pointer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_pieces_are_apart_know_their_size_and_end() {
        let early = Bootstrap { bytes: UnsafeCell::new([0; BOOTSTRAP_BYTES]), used: AtomicUsize::new(0) };
        let (first, second) = (early.take(5), early.take(100));
        assert_eq!((Bootstrap::size(first), Bootstrap::size(second)), (5, 100));
        assert_eq!(second as usize - first as usize, 16 + BOOTSTRAP_HEAD);
        assert!((first as usize).is_multiple_of(16) && early.has(first) && !early.has(null_mut()));
        assert!(early.take(BOOTSTRAP_BYTES).is_null() && early.take(usize::MAX).is_null());
        assert!(!early.take(BOOTSTRAP_BYTES / 2).is_null());
    }

    #[test]
    fn what_is_allocated_while_a_function_is_looked_for_is_early_memory() {
        let (early, other) = lookup::finding(|| {
            let other = std::thread::spawn(|| calloc(3, 5).addr()).join().unwrap();
            ([malloc(5), calloc(3, 5)], other)
        });
        assert!(early.iter().all(|&pointer| BOOTSTRAP.has(pointer)));
        assert!(!BOOTSTRAP.has(std::ptr::without_provenance_mut(other)), "another thread's is the allocator's");
        assert!(!BOOTSTRAP.has(malloc(5)), "and so is what comes later");
    }

    #[test]
    fn early_memory_can_be_enlarged_and_given_up_like_any_other() {
        let early = BOOTSTRAP.take(3);
        // SAFETY: `early` has the three bytes that are written, `grown` at least those; each pointer is given up once.
        unsafe {
            early.cast::<u8>().write_bytes(9, 3);
            assert_eq!(usable_size(early), 3);
            let grown = realloc(early, 1000);
            assert!(!BOOTSTRAP.has(grown) && grown.cast::<[u8; 3]>().read() == [9; 3] && usable_size(grown) >= 1000);
            free(early);
            free(grown);
        }
    }
}
