//! The functions behind those that this module stands in front of: the C library's, or those of another library in `LD_PRELOAD`. So each name
//! goes on to the same name, also where the C library has two for one function.
//!
//! Relies on the dynamic linker to find them while the library is loaded: later its lock may be held by a thread that waits for the
//! caller (in a plugin's opening function), and calls come from signal handlers and processes of the library's own.
//! Only what other libraries call before that is looked up at the call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use quire_sys::caller_file::IoVec;
use quire_sys::{guest, symbol};

use crate::lookup;

/// A function of the C library.
pub struct RealCall {
    name: &'static CStr,
    found: AtomicPtr<()>,
}

impl RealCall {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null if there is none.
    #[inline]
    fn get(&self) -> *mut () {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut () {
        let found = lookup::next(self.name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! real_calls {
    ($($static_name:ident $symbol:literal $name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $missing:expr;)*) => {
        $(
            static $static_name: RealCall = RealCall::new($symbol);

            #[doc = concat!("The C library's `", stringify!($name), "`; may be a cancellation point.")]
            ///
            /// # Safety
            /// As that function.
            #[inline]
            #[allow(clippy::unused_unit, reason = "one of them returns nothing")]
            pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
                let real = $static_name.get();
                if real.is_null() {
                    guest::set_errno(guest::NO_SUCH_CALL);
                    return $missing;
                }
                // SAFETY: the dynamic linker's address for the function of that name, which has this type; this function demands of its
                // caller what that one demands.
                unsafe {
                    std::mem::transmute::<*mut (), unsafe extern "C-unwind" fn($($kind),*) -> $result>(real)($($argument),*)
                }
            }
        )*

        /// Looks all of them up, which may take the dynamic linker's lock: to be called before it matters.
        pub fn find_all() {
            $($static_name.get();)*
        }
    };
}

real_calls! {
    READ c"read" read(number: c_int, buffer: *mut c_void, len: usize) -> isize = -1;
    PREAD c"pread" pread(number: c_int, buffer: *mut c_void, len: usize, offset: i64) -> isize = -1;
    PREAD64 c"pread64" pread64(number: c_int, buffer: *mut c_void, len: usize, offset: i64) -> isize = -1;
    READV c"readv" readv(number: c_int, buffers: *const IoVec, count: c_int) -> isize = -1;
    PREADV c"preadv" preadv(number: c_int, buffers: *const IoVec, count: c_int, offset: i64) -> isize = -1;
    PREADV64 c"preadv64" preadv64(number: c_int, buffers: *const IoVec, count: c_int, offset: i64) -> isize = -1;
    READ_CHK c"__read_chk" read_checked(number: c_int, buffer: *mut c_void, len: usize, room: usize) -> isize = -1;
    PREAD_CHK c"__pread_chk" pread_checked(number: c_int, buffer: *mut c_void, len: usize, offset: i64, room: usize) -> isize = -1;
    PREAD64_CHK c"__pread64_chk" pread64_checked(number: c_int, buffer: *mut c_void, len: usize, offset: i64, room: usize) -> isize = -1;
    OPEN c"open" open(path: *const c_char, flags: c_int, mode: u32) -> c_int = -1;
    OPEN64 c"open64" open64(path: *const c_char, flags: c_int, mode: u32) -> c_int = -1;
    OPENAT c"openat" openat(directory: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int = -1;
    OPENAT64 c"openat64" openat64(directory: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int = -1;
    OPEN_CHECKED c"__open_2" __open_2(path: *const c_char, flags: c_int) -> c_int = -1;
    OPEN64_CHECKED c"__open64_2" __open64_2(path: *const c_char, flags: c_int) -> c_int = -1;
    OPENAT_CHECKED c"__openat_2" __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    OPENAT64_CHECKED c"__openat64_2" __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    FCNTL c"fcntl" fcntl(number: c_int, command: c_int, argument: usize) -> c_int = -1;
    FCNTL64 c"fcntl64" fcntl64(number: c_int, command: c_int, argument: usize) -> c_int = -1;
    VMSPLICE c"vmsplice" vmsplice(number: c_int, buffers: *const IoVec, count: usize, flags: u32) -> isize = -1;
    SETSOCKOPT c"setsockopt" setsockopt(number: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int = -1;
    MADVISE c"madvise" madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int = -1;
    MPROTECT c"mprotect" mprotect(at: *mut c_void, len: usize, rights: c_int) -> c_int = -1;
    PKEY_MPROTECT c"pkey_mprotect" pkey_mprotect(at: *mut c_void, len: usize, rights: c_int, key: c_int) -> c_int = -1;
    MUNMAP c"munmap" munmap(at: *mut c_void, len: usize) -> c_int = -1;
    MREMAP c"mremap" mremap(at: *mut c_void, old: usize, new: usize, flags: c_int, to: *mut c_void) -> *mut c_void = usize::MAX as *mut c_void;
    MMAP c"mmap" mmap(at: *mut c_void, len: usize, rights: c_int, flags: c_int, number: c_int, offset: i64) -> *mut c_void = usize::MAX as *mut c_void;
    MMAP64 c"mmap64" mmap64(at: *mut c_void, len: usize, rights: c_int, flags: c_int, number: c_int, offset: i64) -> *mut c_void = usize::MAX as *mut c_void;
    MLOCK c"mlock" mlock(at: *const c_void, len: usize) -> c_int = -1;
    MLOCK2 c"mlock2" mlock2(at: *const c_void, len: usize, flags: u32) -> c_int = -1;
    MLOCKALL c"mlockall" mlockall(flags: c_int) -> c_int = -1;
    SETRLIMIT c"setrlimit" setrlimit(resource: c_int, new: *const c_void) -> c_int = -1;
    SETRLIMIT64 c"setrlimit64" setrlimit64(resource: c_int, new: *const c_void) -> c_int = -1;
    PRLIMIT c"prlimit" prlimit(process: c_int, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int = -1;
    PRLIMIT64 c"prlimit64" prlimit64(process: c_int, resource: c_int, new: *const c_void, old: *mut c_void) -> c_int = -1;
    TEST_CANCEL c"pthread_testcancel" test_cancel() -> () = ();
    SET_CANCEL_STATE c"pthread_setcancelstate" set_cancel_state(state: c_int, before: *mut c_int) -> c_int = 0;
    MSYNC c"msync" msync(at: *mut c_void, len: usize, flags: c_int) -> c_int = -1;
}

/// Whether the functions that read are the C library's own: what another library in `LD_PRELOAD` makes of the bytes is not in the page cache.
pub fn read_as_the_c_library() -> bool {
    [&READ, &PREAD, &PREAD64, &READV, &PREADV, &PREADV64].iter().all(|call| symbol::is_of_c_library(call.get()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_library_has_all_of_them() {
        super::find_all();
        assert!(
            super::read_as_the_c_library()
                && !super::READ.get().is_null()
                && !super::PREADV.get().is_null()
                && !super::MSYNC.get().is_null()
        );
    }
}
