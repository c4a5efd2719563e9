//! What code inside somebody else's program needs in order not to be noticed: a thread with no signals and no file
//! descriptors of the program's, `errno` as it was, the program's settings, its standard error.
//!
//! Relies on pthreads, `close_range`, `pidfd_open` and `pidfd_getfd`. Nothing here calls the program's allocator, except
//! `pthread_create` itself, which takes a few hundred bytes from it.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{self, Pid, PidfdFlags, PidfdGetfdFlags};

use crate::area::Area;

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// The value of environment variable `name`. To be called while the program has not started yet: nobody may change the
/// environment at the same time, and what is returned is valid until somebody does.
///
/// # Safety
/// No other thread changes the environment during the call, nor while the result is in use.
pub unsafe fn setting<'a>(name: &CStr) -> Option<&'a [u8]> {
    // SAFETY: the caller keeps the environment as it is; the value is a C string.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Whether the calling thread has any signal blocked: a sign that it may be in a handler.
pub fn signals_blocked() -> bool {
    let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null set leaves the mask alone; the old one goes to memory of the right size, which is a set when zero.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        (1..=libc::SIGRTMAX()).any(|signal| libc::sigismember(mask.as_ptr(), signal) == 1)
    }
}

/// Largest resident size that this process has had, in bytes. Opens no file.
pub fn resident_peak_bytes() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct has the size that the call writes, and is valid when zero.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init().ru_maxrss as u64 * 1024
    }
}

/// Starts a detached thread on `stack` that has every signal blocked.
///
/// # Errors
/// As `pthread_create`.
///
/// # Safety
/// `stack` is used by nobody else and lives as long as the thread.
pub unsafe fn start_thread(
    stack: &Area,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> io::Result<()> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut thread = 0;
    // SAFETY: all structs are initialised by the first call that gets them; the stack is the caller's to give. A thread
    // takes over its creator's mask, so all signals are blocked around its creation and the creator's mask is put back.
    let result = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack.base().cast(), stack.len());
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let result = libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        result
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Gives the calling thread a table of file descriptors of its own, which is empty. What it opens from now on, the rest
/// of the program neither sees nor has to count with, and what the program closes is closed.
///
/// # Errors
/// As `close_range` (Linux 5.9).
pub fn take_own_descriptors() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: u32 = 2;
    // SAFETY: the call takes numbers only. It unshares the table first, so no descriptor of another thread is closed;
    // whoever calls this holds none in this thread.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, CLOSE_RANGE_UNSHARE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process that is watched, whatever becomes of its number.
#[derive(Debug)]
pub struct Watched(OwnedFd);

impl Watched {
    /// Watches process `pid`.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(process::pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether it has ended, waited for or not.
    pub fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// A descriptor of our own for what the process has open as `number`.
    ///
    /// # Errors
    /// When it has nothing open there, or the kernel refuses.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        Ok(process::pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty())?)
    }
}

/// Which file a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file behind `descriptor`; `None` when it isn't open.
    pub fn of(descriptor: BorrowedFd<'_>) -> Option<Self> {
        let stat = rustix::fs::fstat(descriptor).ok()?;
        Some(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// The standard error of this process, open or not.
pub fn standard_error() -> BorrowedFd<'static> {
    // SAFETY: 2 is never -1; should it be closed, calls on it fail, which all users here take as an answer.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// Writes `text` to `descriptor` in one call, without waiting for the rest if not all of it went.
pub fn write_once(descriptor: impl AsFd, text: &[u8]) {
    // A line that can't be written is lost; there is nobody to tell.
    let _ = rustix::io::write(descriptor, text);
}

/// Names the calling thread.
pub fn name_thread(name: &CStr) {
    // SAFETY: the kernel reads a C string and cuts it at 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Has the calling thread woken from short sleeps without the usual 50 µs of slack.
pub fn sharpen_timer() {
    // SAFETY: the call takes numbers only and concerns the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize) };
}

/// Reads the beginning of a file, as far as it fits; returns how much that is.
///
/// # Errors
/// As `open` and `read`.
pub fn read_file(path: &CStr, to: &mut [u8]) -> io::Result<usize> {
    let file = rustix::fs::open(path, rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    Ok(rustix::io::read(&file, to)?)
}

/// The `errno` of a call that is not there.
pub const NO_SUCH_CALL: i32 = libc::ENOSYS;

/// Ends this process at once.
pub fn exit_now(status: i32) -> ! {
    loop {
        // SAFETY: the call takes a number and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Number of this process.
pub fn process_id() -> i32 {
    process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static DONE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn run(_: *mut c_void) -> *mut c_void {
        assert!(signals_blocked());
        let kept = rustix::io::dup(standard_error()).is_ok();
        let alone = take_own_descriptors().is_ok() && FileId::of(standard_error()).is_none();
        let fetched = Watched::open(process_id()).and_then(|this| this.descriptor(2)).is_ok();
        DONE.store(1 + u32::from(kept && alone && fetched), Ordering::Release);
        crate::futex::wake_all(&DONE, crate::futex::Scope::Process);
        std::ptr::null_mut()
    }

    #[test]
    fn a_guest_thread_has_no_signals_and_its_own_descriptors() {
        let stack = Area::private(256 << 10).unwrap();
        // SAFETY: the stack is leaked below, so it outlives the thread.
        unsafe { start_thread(&stack, run, std::ptr::null_mut()) }.unwrap();
        std::mem::forget(stack);
        while DONE.load(Ordering::Acquire) == 0 {
            crate::futex::wait(&DONE, 0, None, crate::futex::Scope::Process);
        }
        assert_eq!(DONE.load(Ordering::Acquire), 2);
        assert!(FileId::of(standard_error()).is_some(), "the other threads keep theirs");
    }

    #[test]
    fn a_process_is_watched_to_its_end() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let watched = Watched::open(child.id() as i32).unwrap();
        assert!(!watched.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watched.has_ended());
        assert!(Watched::open(0).is_err());
    }

    #[test]
    fn errno_is_put_back() {
        set_errno(7);
        assert_eq!(errno(), 7);
        assert!(resident_peak_bytes() > 0 && process_id() > 0);
    }
}
