//! The functions that read, in front of the C library's.
//!
//! Relies on `QUIRE_ZREAD`: without it each is a load, a branch and a call. With it most reads that are copied are told by [`decision`], without
//! a system call. A call goes on to the C library unless a part of it was
//! remapped; `extern "C-unwind"` because those are cancellation points, at which the C library unwinds a thread. In between the thread can't be
//! cancelled: this library calls functions of the C library that are cancellation points, too, and holds MAPS meanwhile.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use quire_sys::caller_file::{self, IoVec};
use quire_sys::{guest, limits};

use super::decision::{self, ReadProbe};
use super::remap::{self, ReadStart};
use super::{blocks, forks, lease_asks, lease_process, maps, patterns, real_calls};
use crate::{confinement, log};

/// The C library's `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// Reads of so many bytes are probed.
static LEAST_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether reads are probed at all.
#[inline]
pub fn is_open() -> bool {
    LEAST_BYTES.load(Ordering::Relaxed) != usize::MAX
}

/// Reads what is asked for, while the library is loaded. `has_heap`: the program's heap lies on a file, into which nothing can be remapped.
pub fn open_library<'a>(value_of: impl Fn(&CStr) -> Option<&'a [u8]>, has_heap: bool) {
    // Also without settings: the first call of a function may come where it can't be looked up.
    real_calls::find_all();
    if !patterns::configure(value_of) {
        return;
    }
    let Some(settings) = patterns::settings() else { return };
    let refusal = if has_heap {
        "QUIRE_HEAP is set"
    } else if !real_calls::read_as_the_c_library() {
        "another library reads in front of the C library"
    } else if limits::bounds_addresses(0) {
        "its addresses or its data are limited (ulimit -v, ulimit -d)"
    } else if forks::watch().is_err() {
        "forks can't be watched"
    } else if !blocks::open() {
        "no addresses for blocks"
    } else {
        LEAST_BYTES.store(settings.least_bytes, Ordering::Release);
        return;
    };
    log::line(format_args!("zread: all reads are copied: {refusal}"));
}

/// Whether a read of `len` bytes is probed.
#[inline]
fn is_probed(len: usize) -> bool {
    len >= LEAST_BYTES.load(Ordering::Relaxed) && !confinement::is_quiesced()
}

/// Remaps what it can; `None` if the C library's function is to do it all.
#[cold]
fn attempt(number: c_int, buffers: &[IoVec], start: ReadStart, probe: ReadProbe) -> Option<isize> {
    let errno = guest::errno();
    let result = remap::read(number, buffers, start, probe);
    guest::set_errno(errno);
    match result? {
        Ok(count) => Some(count as isize),
        Err(error) => {
            guest::set_errno(error);
            Some(-1)
        }
    }
}

/// Runs `call` while the calling thread can't be cancelled, neither at a cancellation point nor, where the program has asked for that, at any
/// instruction. A request that comes meanwhile counts afterwards.
///
/// Both calls may unwind this frame, so no value with an end of its own lives here.
#[inline]
fn uncancelled<T: Copy>(call: impl Fn() -> T) -> T {
    let mut before = 0;
    // SAFETY: the variable is this frame's.
    unsafe { real_calls::set_cancel_state(CANCEL_DISABLE, &raw mut before) };
    let result = call();
    // SAFETY: the variable is this frame's, and the state is the one that the thread had before.
    unsafe { real_calls::set_cancel_state(before, &raw mut before) };
    result
}

#[inline]
fn attempt_one(number: c_int, buffer: *mut c_void, len: usize, start: ReadStart) -> Option<isize> {
    if is_probed(len) { attempt_large(number, buffer, len, start) } else { None }
}

/// By itself, so that small reads need no room for it.
#[inline(never)]
fn attempt_large(number: c_int, buffer: *mut c_void, len: usize, start: ReadStart) -> Option<isize> {
    let buffers = [IoVec { iov_base: buffer, iov_len: len }];
    let probe = decision::probe(&buffers)?;
    // As the real one begins: else a thread that does nothing but read could not be cancelled.
    // SAFETY: the call has no conditions.
    unsafe { real_calls::test_cancel() };
    uncancelled(|| attempt(number, &buffers, start, probe))
}

fn at_offset(offset: i64) -> Option<ReadStart> {
    u64::try_from(offset).ok().map(ReadStart::Offset)
}

/// Stands in front of the C library's `read`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(number: c_int, buffer: *mut c_void, len: usize) -> isize {
    match attempt_one(number, buffer, len, ReadStart::Position) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::read(number, buffer, len) },
    }
}

/// Stands in front of what the C library's `read` is called where the compiler checks the buffer's length.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(number: c_int, buffer: *mut c_void, len: usize, room: usize) -> isize {
    let remapped = if len <= room { attempt_one(number, buffer, len, ReadStart::Position) } else { None };
    match remapped {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::read_checked(number, buffer, len, room) },
    }
}

/// Stands in front of the C library's `pread`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread(number: c_int, buffer: *mut c_void, len: usize, offset: i64) -> isize {
    match at_offset(offset).and_then(|start| attempt_one(number, buffer, len, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::pread(number, buffer, len, offset) },
    }
}

/// Stands in front of the C library's `pread64`, another name of `pread`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread64(number: c_int, buffer: *mut c_void, len: usize, offset: i64) -> isize {
    match at_offset(offset).and_then(|start| attempt_one(number, buffer, len, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::pread64(number, buffer, len, offset) },
    }
}

/// Stands in front of what the C library's `pread` is called where the compiler checks the buffer's length.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pread64_chk(
    number: c_int,
    buffer: *mut c_void,
    len: usize,
    offset: i64,
    room: usize,
) -> isize {
    let start = at_offset(offset).filter(|_| len <= room);
    match start.and_then(|start| attempt_one(number, buffer, len, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::pread64_checked(number, buffer, len, offset, room) },
    }
}

/// Stands in front of the C library's `__pread_chk`, another name of `__pread64_chk`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pread_chk(
    number: c_int,
    buffer: *mut c_void,
    len: usize,
    offset: i64,
    room: usize,
) -> isize {
    let start = at_offset(offset).filter(|_| len <= room);
    match start.and_then(|start| attempt_one(number, buffer, len, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => unsafe { real_calls::pread_checked(number, buffer, len, offset, room) },
    }
}

fn attempt_many(number: c_int, buffers: *const IoVec, count: c_int, start: ReadStart) -> Option<isize> {
    // Until the lease process has made the call by which buffers are looked at, a filter may end the program for it.
    if !is_open() || confinement::is_quiesced() || !lease_process::is_ready() {
        return None;
    }
    if !decision::admits_array(maps::is_plain()) {
        return None;
    }
    // As in `attempt_one`.
    // SAFETY: the call has no conditions.
    unsafe { real_calls::test_cancel() };
    let mut room = [IoVec { iov_base: std::ptr::null_mut(), iov_len: 0 }; remap::MOST_BUFFERS];
    let here = 0_u8;
    // SAFETY: `here` is of this frame.
    let buffers = unsafe { caller_file::buffers(buffers, count, &mut room, std::hint::black_box(&raw const here)) };
    let total = buffers.iter().fold(0_usize, |sum, buffer| sum.saturating_add(buffer.iov_len));
    let probe = if is_probed(total) { decision::probe(buffers) } else { None };
    let result = probe.and_then(|probe| uncancelled(|| attempt(number, buffers, start, probe)));
    decision::note_array(result.is_some());
    result
}

/// After a call of the real function that has read `count` bytes to several buffers: a large one may be remapped the next time.
#[inline]
fn note_many(number: c_int, count: isize) -> isize {
    if count >= LEAST_BYTES.load(Ordering::Relaxed).min(isize::MAX as usize) as isize && is_open() {
        ask_after(number);
    }
    count
}

#[cold]
fn ask_after(number: c_int) {
    if !confinement::is_quiesced() && !lease_process::is_ready() {
        let errno = guest::errno();
        uncancelled(|| lease_asks::ask_after(number));
        guest::set_errno(errno);
    }
}

/// Stands in front of the C library's `readv`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(number: c_int, buffers: *const IoVec, count: c_int) -> isize {
    match attempt_many(number, buffers, count, ReadStart::Position) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => note_many(number, unsafe { real_calls::readv(number, buffers, count) }),
    }
}

/// Stands in front of the C library's `preadv`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv(number: c_int, buffers: *const IoVec, count: c_int, offset: i64) -> isize {
    match at_offset(offset).and_then(|start| attempt_many(number, buffers, count, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => note_many(number, unsafe { real_calls::preadv(number, buffers, count, offset) }),
    }
}

/// Stands in front of the C library's `preadv64`, another name of `preadv`.
///
/// # Safety
/// As that function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv64(number: c_int, buffers: *const IoVec, count: c_int, offset: i64) -> isize {
    match at_offset(offset).and_then(|start| attempt_many(number, buffers, count, start)) {
        Some(count) => count,
        // SAFETY: the arguments are passed on as they came.
        None => note_many(number, unsafe { real_calls::preadv64(number, buffers, count, offset) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn without_settings_reads_are_the_c_library_s() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = vec![0_u8; 300 << 10];
        let vector = [IoVec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 4 }];
        let (number, at) = (file.as_raw_fd(), bytes.as_mut_ptr().cast());
        // SAFETY: the vector has as many bytes, and no other code uses it.
        unsafe {
            assert!(
                read(number, at, 300 << 10) > 4 && pread(number, at, 4, 1) == 4 && pread64(number, at, 4, -1) == -1
            );
            assert!(__read_chk(number, at, 4, 4) == 4 && __pread_chk(number, at, 4, 1, 4) == 4);
            assert!(readv(number, vector.as_ptr(), 1) == 4 && preadv64(number, vector.as_ptr(), 1, 1) == 4);
        }
        assert_eq!(bytes[..3], *b"ELF");
    }
}
