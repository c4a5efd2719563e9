//! The functions that change mappings, in front of the C library's: what of them concerns blocks of the library's finds plain memory there.
//!
//! Relies on programs calling them by the C library. A block that the program gives advice about, protects or locks is converted
//! first, and nothing is remapped in it any more until it is freed.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use quire_sys::thread::BlockedSignals;
use quire_sys::{guest, limits};

use super::requests::{self, LeaseRequest};
use super::{blocks, lease_process, maps, real_calls};
use crate::confinement;

/// Before the program changes the mapping of a range.
#[inline]
fn before_change(at: *const c_void, len: usize) {
    if blocks::touches(at.addr(), len) {
        keep_plain(at.addr(), len);
    }
}

#[cold]
fn keep_plain(start: usize, len: usize) {
    // Under MAPS a thread that remaps sees that, or has done so when the lease process gets to it.
    blocks::advise(start, len);
    make_plain(start, len);
}

/// Makes memory anonymous, as far as it isn't.
pub fn make_plain(start: usize, len: usize) {
    if lease_process::is_alive() && !confinement::is_quiesced() {
        let errno = guest::errno();
        let end = start.saturating_add(len);
        if !is_plain(&(start..end)) {
            requests::ask(LeaseRequest::Convert { start, end }, lease_process::is_alive);
        }
        guest::set_errno(errno);
    }
}

/// Whether it is known without waiting that nothing is remapped in a range.
fn is_plain(range: &Range<usize>) -> bool {
    let _blocked = BlockedSignals::with_the_c_library_s();
    maps::try_lock().is_some_and(|maps| maps.extents.first_within(range).is_none())
}

/// The program limits its addresses or locks all of its memory: nothing is remapped from now on, and what the library has in reserve is given back.
#[cold]
fn give_up() {
    if blocks::touches(0, usize::MAX) && !confinement::is_quiesced() {
        let errno = guest::errno();
        lease_process::close();
        blocks::give_up_addresses();
        guest::set_errno(errno);
    }
}

macro_rules! limits {
    ($($name:ident $(of $process:ident into $old:ident)?;)*) => {
        $(
            #[doc = concat!("Stands in front of the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As that function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(
                $($process: c_int,)? resource: c_int, new: *const c_void $(, $old: *mut c_void)?
            ) -> c_int {
                // Of another process, too: that is rare.
                if limits::concerns_addresses(resource) && !new.is_null() {
                    give_up();
                }
                // SAFETY: the arguments are passed on as they came.
                unsafe { real_calls::$name($($process,)? resource, new $(, $old)?) }
            }
        )*
    };
}

limits! {
    setrlimit;
    setrlimit64;
    prlimit of process into old;
    prlimit64 of process into old;
}

macro_rules! changes {
    ($($name:ident($at:ident: $pointer:ty, $len:ident: usize $(, $argument:ident: $kind:ty)*);)*) => {
        $(
            #[doc = concat!("Stands in front of the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As that function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($at: $pointer, $len: usize $(, $argument: $kind)*) -> c_int {
                before_change($at.cast(), $len);
                // SAFETY: the arguments are passed on as they came.
                unsafe { real_calls::$name($at, $len $(, $argument)*) }
            }
        )*
    };
}

changes! {
    mprotect(at: *mut c_void, len: usize, rights: c_int);
    pkey_mprotect(at: *mut c_void, len: usize, rights: c_int, key: c_int);
    munmap(at: *mut c_void, len: usize);
    mlock(at: *const c_void, len: usize);
    mlock2(at: *const c_void, len: usize, flags: u32);
    msync(at: *mut c_void, len: usize, flags: c_int);
}

/// Stands in front of the C library's `madvise`. Advice that only says how memory is going to be used changes nothing.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if !guest::is_mere_hint(advice) {
        before_change(at, len);
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::madvise(at, len, advice) }
}

/// Stands in front of the C library's `mremap`. On the processors that this library works on, arguments of a variable number go where
/// fixed ones do.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    before_change(at, old.max(1));
    if guest::is_at_fixed_address(flags) {
        before_change(to, new);
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::mremap(at, old, new, flags, to) }
}

/// Stands in front of the C library's `mmap`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn mmap(
    at: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    number: c_int,
    offset: i64,
) -> *mut c_void {
    before_change(at, len);
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::mmap(at, len, rights, flags, number, offset) }
}

/// Stands in front of the C library's `mmap64`, another name of `mmap`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn mmap64(
    at: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    number: c_int,
    offset: i64,
) -> *mut c_void {
    before_change(at, len);
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::mmap64(at, len, rights, flags, number, offset) }
}

/// Stands in front of the C library's `mlockall`: from then on nothing is remapped, as all memory is to stay where it is.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    give_up();
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::mlockall(flags) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::area::AnonymousMap;

    #[test]
    fn memory_that_is_not_the_library_s_goes_to_the_c_library() {
        let area = AnonymousMap::private(8192).unwrap();
        // SAFETY: memory of this test's; the calls leave it as it is.
        unsafe {
            let at = area.base().cast::<c_void>();
            assert_eq!((madvise(at, 4096, 0), mprotect(at, 4096, 3), msync(at, 4096, 4)), (0, 0, 0));
            assert_eq!(mremap(at, 8192, 8192, 0, std::ptr::null_mut()), at);
            assert_eq!(munmap(std::ptr::without_provenance_mut(1), 4096), -1);
            let mut limit = [0_u64; 2];
            assert_eq!(prlimit64(0, 9, std::ptr::null(), (&raw mut limit).cast()), 0);
            assert_eq!((setrlimit64(9, (&raw const limit).cast()), setrlimit(99, (&raw const limit).cast())), (0, -1));
        }
        assert!(guest::is_mere_hint(14) && !guest::is_mere_hint(4) && guest::is_at_fixed_address(3));
    }
}
