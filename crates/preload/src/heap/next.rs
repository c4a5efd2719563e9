//! The allocator behind ours: the C library's, or that of another library in `LD_PRELOAD`.
//!
//! Relies on the dynamic linker to find it, at the first call. Should it allocate for that, it gets memory from a small
//! place of our own, which is never given back.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use quire_sys::{guest, symbol};

/// A function of the next allocator.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<()>,
}

impl Next {
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
        let found = symbol::next(self.name).map_or(null_mut(), std::ptr::NonNull::as_ptr);
        self.found.store(found, Ordering::Relaxed);
        FINDING.store(false, Ordering::SeqCst);
        found
    }
}

/// Somebody looks for a function: what is asked for meanwhile comes from [`EARLY`].
static FINDING: AtomicBool = AtomicBool::new(false);

static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static REALLOC: Next = Next::new(c"realloc");
static REALLOCARRAY: Next = Next::new(c"reallocarray");
static FREE: Next = Next::new(c"free");
static POSIX_MEMALIGN: Next = Next::new(c"posix_memalign");
static ALIGNED_ALLOC: Next = Next::new(c"aligned_alloc");
static MEMALIGN: Next = Next::new(c"memalign");
static VALLOC: Next = Next::new(c"valloc");
static PVALLOC: Next = Next::new(c"pvalloc");
static USABLE_SIZE: Next = Next::new(c"malloc_usable_size");

/// Looks all of them up, which may take the dynamic linker's lock: to be called before it matters.
pub fn find_all() {
    for next in [
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
        next.get();
    }
}

const EARLY_BYTES: usize = 64 << 10;
/// In front of each early allocation: how many bytes it has.
const EARLY_HEAD: usize = 16;

/// Memory for who allocates while the next allocator is looked for.
#[repr(align(16))]
struct Early {
    bytes: UnsafeCell<[u8; EARLY_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: each piece is handed out once, by the count.
unsafe impl Sync for Early {}

static EARLY: Early = Early { bytes: UnsafeCell::new([0; EARLY_BYTES]), used: AtomicUsize::new(0) };

impl Early {
    fn base(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    fn has(&self, pointer: *mut c_void) -> bool {
        (pointer as usize).wrapping_sub(self.base() as usize) < EARLY_BYTES
    }

    /// Zeroed bytes, aligned as `malloc`'s; null when there are no more.
    fn take(&self, size: usize) -> *mut c_void {
        let Some(whole) = size.checked_next_multiple_of(16).and_then(|size| size.checked_add(EARLY_HEAD)) else {
            return null_mut();
        };
        let taken = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
            used.checked_add(whole).filter(|&end| end <= EARLY_BYTES)
        });
        let Ok(start) = taken else { return null_mut() };
        let head = self.base().wrapping_add(start);
        // SAFETY: inside the array, aligned, and handed out to nobody else.
        unsafe { head.cast::<usize>().write(size) };
        head.wrapping_add(EARLY_HEAD).cast()
    }

    /// Bytes of what [`Early::take`] has handed out.
    fn size(pointer: *mut c_void) -> usize {
        // SAFETY: in front of each piece is its size.
        unsafe { pointer.cast::<u8>().wrapping_sub(EARLY_HEAD).cast::<usize>().read() }
    }
}

/// `malloc`.
#[inline]
pub fn malloc(size: usize) -> *mut c_void {
    let next = MALLOC.get();
    if next.is_null() {
        return EARLY.take(size);
    }
    // SAFETY: the dynamic linker's address for a function of this type; so with all that follow.
    unsafe { transmute::<*mut (), extern "C" fn(usize) -> *mut c_void>(next)(size) }
}

/// `calloc`.
#[inline]
pub fn calloc(count: usize, size: usize) -> *mut c_void {
    let next = CALLOC.get();
    if next.is_null() {
        return count.checked_mul(size).map_or(null_mut(), |bytes| EARLY.take(bytes));
    }
    // SAFETY: as above.
    unsafe { transmute::<*mut (), extern "C" fn(usize, usize) -> *mut c_void>(next)(count, size) }
}

/// `free`.
///
/// # Safety
/// `pointer` is null or came from this file, and is given up.
#[inline]
pub unsafe fn free(pointer: *mut c_void) {
    let next = FREE.get();
    // What can't be given back now never is.
    if next.is_null() || EARLY.has(pointer) {
        return;
    }
    // SAFETY: as above; the pointer is the caller's to give up.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void)>(next)(pointer) };
}

/// `realloc`.
///
/// # Safety
/// As [`free`].
#[inline]
pub unsafe fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    if EARLY.has(pointer) {
        let new = malloc(size);
        if !new.is_null() {
            // SAFETY: both have so many bytes, and the new ones are nobody else's.
            unsafe { new.cast::<u8>().copy_from(pointer.cast(), Early::size(pointer).min(size)) };
        }
        return new;
    }
    let next = REALLOC.get();
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: as above; the pointer is the caller's to give up.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void, usize) -> *mut c_void>(next)(pointer, size) }
}

/// `reallocarray`.
///
/// # Safety
/// As [`free`].
pub unsafe fn reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let next = REALLOCARRAY.get();
    if next.is_null() || EARLY.has(pointer) {
        // SAFETY: the caller's promise.
        return count.checked_mul(size).map_or(null_mut(), |bytes| unsafe { realloc(pointer, bytes) });
    }
    // SAFETY: as above; the pointer is the caller's to give up.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>(next)(pointer, count, size) }
}

/// `posix_memalign`.
///
/// # Safety
/// `*place` may be written.
pub unsafe fn posix_memalign(place: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let next = POSIX_MEMALIGN.get();
    if next.is_null() {
        return guest::NO_MEMORY;
    }
    // SAFETY: as above; the place is the caller's.
    unsafe { transmute::<*mut (), extern "C" fn(*mut *mut c_void, usize, usize) -> c_int>(next)(place, align, size) }
}

fn aligned(next: &Next, align: usize, size: usize) -> *mut c_void {
    let next = next.get();
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: as above.
    unsafe { transmute::<*mut (), extern "C" fn(usize, usize) -> *mut c_void>(next)(align, size) }
}

fn paged(next: &Next, size: usize) -> *mut c_void {
    let next = next.get();
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: as above.
    unsafe { transmute::<*mut (), extern "C" fn(usize) -> *mut c_void>(next)(size) }
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
    if EARLY.has(pointer) {
        return Early::size(pointer);
    }
    let next = USABLE_SIZE.get();
    if next.is_null() {
        return 0;
    }
    // SAFETY: as above; the pointer is in use, as the caller promises.
    unsafe { transmute::<*mut (), extern "C" fn(*mut c_void) -> usize>(next)(pointer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_pieces_are_apart_know_their_size_and_end() {
        let early = Early { bytes: UnsafeCell::new([0; EARLY_BYTES]), used: AtomicUsize::new(0) };
        let (first, second) = (early.take(5), early.take(100));
        assert_eq!((Early::size(first), Early::size(second)), (5, 100));
        assert_eq!(second as usize - first as usize, 16 + EARLY_HEAD);
        assert!((first as usize).is_multiple_of(16) && early.has(first) && !early.has(null_mut()));
        assert!(early.take(EARLY_BYTES).is_null() && early.take(usize::MAX).is_null());
        assert!(!early.take(EARLY_BYTES / 2).is_null());
    }

    #[test]
    fn early_memory_can_be_enlarged_and_given_up_like_any_other() {
        let early = EARLY.take(3);
        // SAFETY: three bytes were taken; each pointer is given up once.
        unsafe {
            early.cast::<u8>().write_bytes(9, 3);
            assert_eq!(usable_size(early), 3);
            let grown = realloc(early, 1000);
            assert!(!EARLY.has(grown) && grown.cast::<[u8; 3]>().read() == [9; 3] && usable_size(grown) >= 1000);
            free(early);
            free(grown);
        }
    }
}
