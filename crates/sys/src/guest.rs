//! What code inside another program needs in order not to be noticed: `errno` as it was, the program's settings,
//! its standard error, who it acts as.
//!
//! Relies on `pidfd_open`, `pidfd_getfd` and procfs. Nothing here calls the program's allocator; what a bare thread (see
//! [`crate::bare_thread`]) may use is everything from [`PidFd`] on.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{self, Pid, PidfdFlags, PidfdGetfdFlags};

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() = value }
}

/// The value of environment variable `name`. To be called while the program has not started yet: no thread may change the
/// environment at the same time, and what is returned is valid until one does.
///
/// # Safety
/// No other thread changes the environment during the call, nor while the result is in use.
pub unsafe fn setting<'a>(name: &CStr) -> Option<&'a [u8]> {
    // SAFETY: `getenv` demands that no thread changes the environment meanwhile, and its result is valid until one does: `setting` demands
    // both of its caller. The value is a C string.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
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

/// A process that is watched, whatever becomes of its number.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
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

/// Whether children of the calling thread are made in another process namespace than its own: it has called
/// `unshare(CLONE_NEWPID)`, or `setns` for such a namespace. `false` where `/proc` doesn't tell.
pub fn children_live_elsewhere() -> bool {
    let id = |path: &CStr| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(own) = id(c"/proc/thread-self/ns/pid") else { return false };
    // While no process lives there yet, or any more, that one has no file.
    id(c"/proc/thread-self/ns/pid_for_children") != Ok(own)
}

/// The standard error of this process, open or not.
pub fn standard_error() -> BorrowedFd<'static> {
    // SAFETY: 2 is never -1; should it be closed, calls on it fail, which all users here take as an answer.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// Writes `text` to `descriptor` in one call, without waiting for the rest if not all of it went.
pub fn write_once(descriptor: impl AsFd, text: &[u8]) {
    // A line that can't be written is lost; there is no other way to tell.
    let _ = rustix::io::write(descriptor, text);
}

/// Names the calling thread.
pub fn name_thread(name: &CStr) {
    // A thread without a name works as well.
    let _ = rustix::thread::set_name(name);
}

/// Who a process or thread acts as, what it may do and what confines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User and group ids, each real, effective, saved and of files.
    ids: [u32; 8],
    /// The capabilities that it may have.
    capabilities: u64,
    /// Whether it may gain privileges by `exec`, and which mode of seccomp it is in.
    confinement: [u32; 2],
}

/// How it stands with a process (its first thread) or a thread. `None` when the kernel does not tell; what stands behind a list of some hundred groups counts as
/// zero.
pub fn standing(process: i32) -> Option<Credentials> {
    let mut text = [0; 2048];
    let count = read_proc(process, "status", &mut text).ok()?;
    let mut lines = text[..count].split(|&byte| byte == b'\n');
    let mut line = |name: &[u8]| {
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()
    };
    let mut ids = [0; 8];
    for (name, to) in [(b"Uid:", 0), (b"Gid:", 4)] {
        let mut words = line(name)?.split_ascii_whitespace();
        for id in &mut ids[to..to + 4] {
            *id = words.next()?.parse().ok()?;
        }
    }
    let capabilities = line(b"CapPrm:").and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0);
    let mut number = |name| line(name).and_then(|word| word.trim().parse().ok()).unwrap_or(0);
    Some(Credentials { ids, capabilities, confinement: [number(b"NoNewPrivs:"), number(b"Seccomp:")] })
}

/// The option of `prctl` that confines the calling thread.
pub const SET_SECCOMP: i32 = libc::PR_SET_SECCOMP;
/// The number of the system call that confines threads.
pub const CALL_SECCOMP: libc::c_long = libc::SYS_seccomp;

/// Whether the operation of the system call `seccomp` confines threads; others only ask.
pub fn confines(operation: libc::c_long) -> bool {
    let operation = operation as libc::c_uint;
    operation == libc::SECCOMP_SET_MODE_STRICT || operation == libc::SECCOMP_SET_MODE_FILTER
}

/// Which mode of seccomp a process (its first thread) or a thread is in: 0 for none. `None` when the kernel does not tell.
pub fn seccomp_mode(process: i32) -> Option<i32> {
    let mut text = [0; 2048];
    let count = read_proc(process, "status", &mut text).ok()?;
    mode_in(&text[..count])
}

/// Which mode of seccomp the calling process's first thread is in. Opens, reads and closes a file, and calls nothing else.
pub fn own_seccomp_mode() -> Option<i32> {
    let mut text = [0; 2048];
    let count = read_file(c"/proc/self/status", &mut text).ok()?;
    mode_in(&text[..count])
}

fn mode_in(status: &[u8]) -> Option<i32> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Seccomp:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Reads the beginning of the file `name` of process `process` in procfs; returns how much that is. Allocates nothing.
///
/// # Errors
/// As `open` and `read`.
pub fn read_proc(process: i32, name: &str, to: &mut [u8]) -> io::Result<usize> {
    use std::io::Write;
    let mut path = [0_u8; 48];
    // The last byte stays the closing zero.
    write!(&mut path[..47], "/proc/{process}/{name}")?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| io::ErrorKind::InvalidInput)?;
    read_file(path, to)
}

/// Bare: gives the calling process `/` as its working directory, so that it keeps no file system busy, and has it leave no
/// core: its memory is the program's.
pub fn stand_aside() {
    // Where that fails a file system stays busy as long as the process lives, or a core may be left.
    let _ = rustix::process::chdir(c"/");
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
}

/// A descriptor of our own for what the calling process has open as `number`.
///
/// # Errors
/// As `dup`.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: should it be closed the call fails.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?)
}

/// Has the calling thread woken from short sleeps without the usual 50 µs of slack.
pub fn sharpen_timer() {
    // With the usual slack the sleeps are a little longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// Reads the beginning of a file, as far as it fits; returns how much that is.
///
/// # Errors
/// As `open` and `read`.
pub fn read_file(path: &CStr, to: &mut [u8]) -> io::Result<usize> {
    let file = rustix::fs::open(path, rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    Ok(rustix::io::read(&file, to)?)
}

/// Runs `work`, whose new files only their owner may open. For a program that has not started yet: it holds for
/// all threads.
pub fn with_private_files<T>(work: impl FnOnce() -> T) -> T {
    use rustix::fs::Mode;
    let before = process::umask(Mode::RWXG | Mode::RWXO);
    let result = work();
    process::umask(before);
    result
}

/// Opens a file for reading.
///
/// # Errors
/// As `open`.
pub fn open_to_read(path: &CStr) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDONLY;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// Reads at `offset` until `to` is full.
///
/// # Errors
/// As `pread`; `UnexpectedEof` where the file ends before.
pub fn read_whole_at(file: impl AsFd, to: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < to.len() {
        match rustix::io::pread(&file, &mut to[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The `errno` of a call that is not there.
pub const NO_SUCH_CALL: i32 = libc::ENOSYS;
/// The `errno` of a call for which there is no memory.
pub const NO_MEMORY: i32 = libc::ENOMEM;
/// The `errno` of a call with a wrong argument, and what `posix_memalign` returns then.
pub const INVALID: i32 = libc::EINVAL;

/// The `errno` of a call that would have to wait.
pub const WOULD_BLOCK: i32 = libc::EWOULDBLOCK;

/// Whether `open` with these flags opens a file to change it, and shall not wait for that.
pub fn opens_without_waiting(flags: i32) -> bool {
    flags & libc::O_NONBLOCK != 0 && (flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0)
}

/// Whether `open` with these flags opens a file to be read and written past the page cache.
pub fn opens_directly(flags: i32) -> bool {
    flags & libc::O_DIRECT != 0
}

/// Whether `fcntl` with this command has a file read and written past the page cache from then on.
pub fn turns_direct(command: i32, argument: usize) -> bool {
    command == libc::F_SETFL && opens_directly(argument as i32)
}

/// Whether `setsockopt` with these has a socket send memory where it lies.
pub fn sends_in_place(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY
}

/// Whether `fcntl` with this command leases a file so that others can't even have it open.
pub fn leases_alone(command: i32, argument: usize) -> bool {
    command == libc::F_SETLEASE && argument as i32 == libc::F_WRLCK
}

/// Numbers of system calls after which the kernel may hold frames of memory while the program goes on, or which have faults in its memory
/// handled by the program.
pub const FRAME_CALLS: [libc::c_long; 4] =
    [libc::SYS_io_uring_setup, libc::SYS_io_setup, libc::SYS_vmsplice, libc::SYS_userfaultfd];

/// Whether the calling thread runs on a stack that it has for signal handlers, which may be a few KiB.
pub fn is_on_signal_stack() -> bool {
    // SAFETY: the struct is valid when zero, and the call writes it.
    unsafe {
        let mut stack = std::mem::zeroed::<libc::stack_t>();
        libc::sigaltstack(std::ptr::null(), &raw mut stack) == 0 && stack.ss_flags & libc::SS_ONSTACK != 0
    }
}

/// Gives the calling process a process group of its own: signals to the one that it was in don't reach it.
pub fn leave_process_group() {
    // Where that is refused it gets those signals.
    let _ = process::setpgid(None, None);
}

/// Whether `madvise` with this advice leaves memory as it is, whatever it is a mapping of.
pub fn is_mere_hint(advice: i32) -> bool {
    let hints = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_POPULATE_READ,
        libc::MADV_POPULATE_WRITE,
    ];
    hints.contains(&advice)
}

/// Whether `mremap` with these flags moves memory to an address that is given.
pub fn is_at_fixed_address(flags: i32) -> bool {
    flags & libc::MREMAP_FIXED != 0
}

/// Ends this process at once.
pub fn exit_now(status: i32) -> ! {
    loop {
        // SAFETY: the call takes a number and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Ends this process by SIGABRT, whatever the program has planned for that.
pub fn abort() -> ! {
    // SAFETY: the default is always valid. No handler of the program's may run in a thread of ours.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    std::process::abort()
}

/// What the C library calls the calling thread: a number that no other thread has while it lives. Costs no system call.
pub fn thread_handle() -> usize {
    // SAFETY: the call has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// Milliseconds of a clock that never goes back, some milliseconds late. Costs no system call.
pub fn coarse_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// Number of this process. Where a sandbox refuses the call, the same negative number each time.
pub fn process_id() -> i32 {
    // SAFETY: the call has no conditions. Not by `rustix`, which takes it for one that can't fail and panics.
    unsafe { libc::getpid() }
}

/// Number of the parent of this process, or a negative number.
pub fn parent_id() -> i32 {
    // SAFETY: the call has no conditions, as for `process_id`.
    unsafe { libc::getppid() }
}

/// Number of the calling thread, or a negative number.
pub fn thread_id() -> i32 {
    // SAFETY: the call has no conditions, as for `process_id`.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_process_is_watched_to_its_end() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let watched = PidFd::open(child.id() as i32).unwrap();
        assert!(!watched.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watched.has_ended());
        assert!(PidFd::open(0).is_err());
    }

    #[test]
    fn children_live_elsewhere_once_their_process_namespace_was_left() {
        assert!(!children_live_elsewhere());
        let mut run = || {
            // SAFETY: it concerns the children of this child, which has none.
            if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
                return 77;
            }
            i32::from(children_live_elsewhere())
        };
        // SAFETY: the child makes system calls.
        match unsafe { crate::child::fork_by_library(&mut run) }.unwrap().wait() {
            crate::child::WaitStatus::Exited(77) => crate::testing::skipped("process namespaces take root"),
            ending => assert_eq!(ending, crate::child::WaitStatus::Exited(1)),
        }
    }

    #[test]
    fn errno_is_put_back() {
        assert!(coarse_ms() > 0 && coarse_ms() <= coarse_ms());
        set_errno(7);
        assert_eq!(errno(), 7);
        let own = standing(process_id()).unwrap();
        assert_eq!(
            (own.ids[1], own.ids[5]),
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        );
        let [no_new, mode] = own.confinement;
        assert_eq!((own_seccomp_mode(), seccomp_mode(process_id())), (Some(mode as i32), Some(mode as i32)));
        assert_eq!((mode_in(b"Seccomp_filters:\t1\nSeccomp:\t2\n"), mode_in(b"Name:\tx\n")), (Some(2), None));
        assert!(confines(0) && confines(1) && !confines(2));
        assert!(no_new <= 1 && mode <= 2 && standing(0).is_none() && standing(process_id()) == Some(own));
        let permitted = rustix::thread::capabilities(None).unwrap().permitted;
        assert_eq!(own.capabilities, permitted.bits());
        assert!(resident_peak_bytes() > 0 && process_id() > 0 && parent_id() > 0 && thread_id() > 0);
    }
}
