//! The functions that open files and change descriptors, in front of the C library's, where they matter to remapped memory.
//!
//! Relies on programs calling them by the C library. Two things matter: calls that shall not wait for a lease of the library's; and ways
//! to have a device or a pipe take bytes from memory while the program goes on. Such transfers hold the frames that the memory has at
//! that time, so what is written to the file later would be in them. A program that turns to one of them has all reads copied from then on.

use std::ffi::{c_char, c_int, c_long, c_void};

use quire_sys::caller_file::{CallerFile, IoVec};
use quire_sys::guest;

use super::{hooks, lease_process, real_calls};
use crate::confinement;

/// The program is about to transfer memory where it lies: nothing is remapped any more.
#[cold]
fn end_remaps() {
    if hooks::is_open() && !confinement::is_quiesced() {
        let errno = guest::errno();
        lease_process::close();
        guest::set_errno(errno);
    }
}

/// The program may ask for transfers in place by `call`, one of [`guest::FRAME_CALLS`].
///
/// The lease process makes some of them itself.
pub fn before_frame_call(call: c_long) {
    if guest::FRAME_CALLS.contains(&call) && !lease_process::is_current() {
        end_remaps();
    }
}

/// After `open` has given `number` for `path`: some devices take bytes from memory, and put them there, at any time.
///
/// # Safety
/// `path` is what `open` was given, and has found.
#[inline]
unsafe fn after_open(number: c_int, path: *const c_char) {
    if hooks::is_open() {
        // SAFETY: `after_open` demands a path that the kernel has just read.
        unsafe { look_for_device(number, path) };
    }
}

/// # Safety
/// As [`after_open`].
#[cold]
unsafe fn look_for_device(number: c_int, path: *const c_char) {
    // As far as they are alike: a path is read no further than it has to be.
    // SAFETY: the kernel has just read it as a C string, which is loaded no further than to its end.
    let is_device =
        b"/dev/".iter().enumerate().all(|(at, &byte)| unsafe { path.add(at).read() }.to_ne_bytes() == [byte]);
    if is_device && !confinement::is_quiesced() && CallerFile::new(number).is_some_and(CallerFile::is_holding_device) {
        end_remaps();
    }
}

/// After a call that has failed, and was not to wait (`is_meant`): a lease of the library's may be why, so it is made again without.
#[cold]
fn made_again(is_meant: bool, call: impl Fn() -> c_int) -> c_int {
    let is_in_the_way =
        is_meant && guest::errno() == guest::WOULD_BLOCK && lease_process::is_ready() && !confinement::is_quiesced();
    if is_in_the_way { lease_process::without_leases(call) } else { -1 }
}

// On the processors that this library works on, arguments of a variable number go where fixed ones do.
macro_rules! opens {
    ($($name:ident($path:ident $(in $directory:ident)?; $flags:ident $(, $mode:ident)?);)*) => {
        $(
            #[doc = concat!("Stands in front of the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As that function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(
                $($directory: c_int,)? $path: *const c_char, $flags: c_int $(, $mode: u32)?
            ) -> c_int {
                if guest::opens_directly($flags) {
                    end_remaps();
                }
                // SAFETY: the arguments are passed on as they came.
                let call = || unsafe { real_calls::$name($($directory,)? $path, $flags $(, $mode)?) };
                let mut result = call();
                if result < 0 {
                    result = made_again(guest::opens_without_waiting($flags), call);
                }
                if result >= 0 {
                    // SAFETY: the path is what was opened.
                    unsafe { after_open(result, $path) };
                }
                result
            }
        )*
    };
}

// Those with a number at the end are what the compiler calls, where it checks arguments, for an `open` of two.
opens! {
    open(path; flags, mode);
    open64(path; flags, mode);
    openat(path in directory; flags, mode);
    openat64(path in directory; flags, mode);
    __open_2(path; flags);
    __open64_2(path; flags);
    __openat_2(path in directory; flags);
    __openat64_2(path in directory; flags);
}

/// `fcntl` by `call`.
#[inline]
fn control(command: c_int, argument: usize, call: impl Fn() -> c_int) -> c_int {
    if guest::turns_direct(command, argument) {
        end_remaps();
    }
    let result = call();
    if result < 0 && guest::leases_alone(command, argument) { made_again(true, call) } else { result }
}

/// Stands in front of the C library's `fcntl`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(number: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the arguments are passed on as they came.
    control(command, argument, || unsafe { real_calls::fcntl(number, command, argument) })
}

/// Stands in front of the C library's `fcntl64`, another name of `fcntl`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(number: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the arguments are passed on as they came.
    control(command, argument, || unsafe { real_calls::fcntl64(number, command, argument) })
}

/// Stands in front of the C library's `vmsplice`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn vmsplice(number: c_int, buffers: *const IoVec, count: usize, flags: u32) -> isize {
    end_remaps();
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::vmsplice(number, buffers, count, flags) }
}

/// Stands in front of the C library's `setsockopt`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    if guest::sends_in_place(level, name) {
        end_remaps();
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { real_calls::setsockopt(number, level, name, value, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_settings_all_of_it_is_the_c_library_s() {
        // SAFETY: descriptors of this test's, and none.
        unsafe {
            let opened = open64(c"/dev/null".as_ptr(), 0, 0);
            let second = openat64(-100, c"/dev/null".as_ptr(), 0, 0);
            assert!(opened >= 0 && second > opened && open(c"/no/such".as_ptr(), 0, 0) == -1);
            assert!(fcntl64(opened, 1, 0) >= 0 && vmsplice(-1, std::ptr::null(), 1, 0) == -1);
            assert_eq!(setsockopt(opened, 1, 60, std::ptr::null(), 0), -1);
            let checked = __openat64_2(-100, c"/dev/null".as_ptr(), 0);
            assert!(checked > second && __open_2(c"/no/such".as_ptr(), 0) == -1);
            for number in [opened, second, checked] {
                quire_sys::bare_thread::close_number(number);
            }
        }
        assert!(guest::opens_without_waiting(2049) && !guest::opens_without_waiting(2048));
        assert!(!guest::turns_direct(1, usize::MAX) && guest::turns_direct(4, usize::MAX));
    }
}
