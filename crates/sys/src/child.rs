//! Child processes that share this process's memory copy-on-write, and the sockets to talk to them.
//!
//! Relies on `clone`, pidfds, `close_range` and Unix sockets. After a fork only the calling thread exists in the child, so
//! any lock may be held there for ever: what runs in the child must keep to async-signal-safe calls, and what this file
//! offers for use there allocates nothing, takes no lock and never panics.
//!
//! A child made here sends no `SIGCHLD` and is found only by those who wait for it by name, so a host program's own
//! `waitpid(-1)` or its ignoring of `SIGCHLD` does not interfere. All signals are blocked in it (a Ctrl-C at the terminal
//! ends the parent's work, not the copy). It is not tied to its parent by `PR_SET_PDEATHSIG`, which would end it with the
//! *thread* that forked: it ends when its socket is closed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::fork_lock;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// It ended by itself with this status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// Another thread or process waited for it first, or the kernel doesn't tell.
    Unknown,
}

impl std::fmt::Display for WaitStatus {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(out, "the child process exited with status {status}"),
            Self::Killed(9) => {
                out.write_str("the child process was killed by signal 9 (by hand, or for lack of memory: see dmesg)")
            }
            Self::Killed(signal) => write!(out, "the child process was killed by signal {signal}"),
            Self::Unknown => out.write_str("the child process ended"),
        }
    }
}

/// A child process. Dropping it ends the child and waits for it.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// Names the process itself, not its number, so that no stranger is ever hit.
    handle: OwnedFd,
    /// The process that made it. A copy of this value in a process forked from that one must leave the child alone.
    owner: Pid,
    ending: Option<WaitStatus>,
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Takes over a child of this process that has not been waited for, as [`fork_sibling`] makes them.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn adopt(pid: u32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { pid, handle, owner: rustix::process::getpid(), ending: None })
    }

    /// Ends it now; no harm if it has ended already.
    pub fn kill(&self) {
        if self.ending.is_none() && rustix::process::getpid() == self.owner {
            let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
        }
    }

    /// Waits for its end, at most for `limit`; `None` if it lives on.
    pub fn wait_for(&mut self, limit: std::time::Duration) -> Option<WaitStatus> {
        let end = std::time::Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            let left = rustix::time::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut polled = [rustix::event::PollFd::new(&self.handle, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(0) => return None,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return Some(self.wait()),
            }
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> WaitStatus {
        if let Some(ending) = self.ending {
            return ending;
        }
        if rustix::process::getpid() != self.owner {
            return WaitStatus::Unknown;
        }
        let ending = wait_for(self.handle.as_fd());
        self.ending = Some(ending);
        ending
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}

fn wait_for(handle: BorrowedFd<'_>) -> WaitStatus {
    // Children without an exit signal are seen only by those who ask for all kinds.
    let options = WaitIdOptions::EXITED | WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
    loop {
        match rustix::process::waitid(WaitId::PidFd(handle), options) {
            Ok(Some(status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(status), _) => WaitStatus::Exited(status),
                    (None, Some(signal)) => WaitStatus::Killed(signal),
                    (None, None) => WaitStatus::Unknown,
                };
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return WaitStatus::Unknown,
        }
    }
}

/// Forks. The child closes every descriptor but `keep`, calls `run` and exits with what it returns.
///
/// `run` is called by reference, so that nothing is dropped (and freed) in the child.
///
/// # Safety
/// In the child `run` makes only async-signal-safe calls: no allocation, no locks, no printing, nothing that may panic; and
/// it uses no descriptor but `keep`.
///
/// # Errors
/// As `clone`: too many processes, no memory, forbidden.
pub unsafe fn fork(keep: BorrowedFd<'_>, run: &mut dyn FnMut() -> i32) -> io::Result<Child> {
    let mut handle: libc::c_int = -1;
    // SAFETY: `clone` demands what `fork` demands of its caller for `run`, and a place for the descriptor: `handle` outlives the
    // call.
    let pid = unsafe { clone(libc::CLONE_PIDFD, &raw mut handle, keep, run) }?;
    // SAFETY: the kernel has just put a new descriptor there, which no other code owns.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    Ok(Child { pid, handle, owner: rustix::process::getpid(), ending: None })
}

/// Forks as programs do, by the C library: descriptors stay open, and what was to be told of forks is. The child calls `run` and
/// exits with what it returns.
///
/// # Safety
/// In the child of a program with threads, `run` waits for no lock that another thread may have held.
///
/// # Errors
/// As `fork`.
pub unsafe fn fork_by_library(run: &mut dyn FnMut() -> i32) -> io::Result<Child> {
    // SAFETY: after the C library's fork the child may do what `run` may do, which `fork_by_library` demands of its caller.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        exit(run());
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Child::adopt(pid.cast_unsigned())
}

/// As [`fork`], for use in a child: the new process is a child of the caller's parent, who [adopts](Child::adopt) the number
/// returned.
///
/// # Safety
/// As [`fork`]. The caller is itself a child made by this file, and its parent waits for the new process.
///
/// # Errors
/// As [`fork`].
pub unsafe fn fork_sibling(keep: BorrowedFd<'_>, run: &mut dyn FnMut() -> i32) -> Result<u32, i32> {
    // SAFETY: `clone` demands of `run` what `fork_sibling` demands of its caller; without `CLONE_PIDFD` it writes no handle.
    let pid = unsafe { clone(libc::CLONE_PARENT, std::ptr::null_mut(), keep, run) };
    pid.map(|pid| pid.as_raw_pid().cast_unsigned()).map_err(Errno::raw_os_error)
}

/// The fork itself, with all signals blocked in the child and none lost in the parent.
///
/// # Safety
/// As [`fork`]; with `CLONE_PIDFD`, `handle` is valid for a write.
unsafe fn clone(
    flags: libc::c_int,
    handle: *mut libc::c_int,
    keep: BorrowedFd<'_>,
    run: &mut dyn FnMut() -> i32,
) -> Result<Pid, Errno> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are large enough; `sigfillset` initialises the one, `pthread_sigmask` the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    fork_lock::before();
    let none: *mut libc::c_int = std::ptr::null_mut();
    // SAFETY: without CLONE_VM and a new stack this is a fork: the child goes on on its own copy of this stack. Flags,
    // stack and the third argument stand in this order on all architectures but s390, which Quire does not run on. The
    // exit signal is 0.
    let result = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), none, handle, none, none) };
    if result == 0 {
        fork_lock::in_child();
        close_all_but(keep);
        let status = run();
        exit(status);
    }
    let failure = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN);
    fork_lock::in_parent();
    // SAFETY: `old` was initialised above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    i32::try_from(result).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw).ok_or(failure)
}

fn close_all_but(keep: BorrowedFd<'_>) {
    let keep = keep.as_raw_fd().cast_unsigned();
    // SAFETY: descriptors are closed in the child alone. `fork` demands that its `run` uses none but `keep`.
    unsafe {
        if keep > 0 {
            libc::syscall(libc::SYS_close_range, 0 as libc::c_uint, keep - 1, 0 as libc::c_uint);
        }
        libc::syscall(libc::SYS_close_range, keep + 1, libc::c_uint::MAX, 0 as libc::c_uint);
    }
}

/// Ends this process at once: no destructors, no exit handlers, no flushing.
pub fn exit(status: i32) -> ! {
    // SAFETY: ending the process is always sound.
    unsafe { libc::_exit(status) }
}

/// Two connected stream sockets.
///
/// # Errors
/// As `socketpair`.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends all of `bytes`; no signal if the other end is closed. Fit for use in a child.
///
/// # Errors
/// `BrokenPipe` when the other end is closed.
pub fn send_all(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the slice is readable throughout.
    unsafe { send_memory(socket, bytes.as_ptr(), bytes.len()) }
}

/// As [`send_all`], from memory of which no reference may exist. Memory that can't be read gives an error, not a fault.
///
/// # Safety
/// `len` bytes at `from` may be disclosed to the other end; other threads may be writing them.
///
/// # Errors
/// As [`send_all`], or the memory is not there.
pub unsafe fn send_memory(socket: BorrowedFd<'_>, from: *const u8, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        // SAFETY: the kernel reads at most `len - done` bytes from there, and reports what it can't read.
        let sent =
            unsafe { libc::send(socket.as_raw_fd(), from.wrapping_add(done).cast(), len - done, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => done += sent,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Fills `bytes`, or as much of it as comes before the other end is closed; returns how much. Fit for use in a child.
///
/// # Errors
/// As `recv`.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match receive_some(socket, rest)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Receives as much as is there now, at least a byte; 0 when the other end is closed. Fit for use in a child.
///
/// # Errors
/// As `recv`.
pub fn receive_some(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *bytes, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends `bytes` (a few) and a copy of the descriptor `carried` with them.
///
/// # Errors
/// As `sendmsg`.
pub fn send_with_descriptor(socket: BorrowedFd<'_>, bytes: &[u8], carried: BorrowedFd<'_>) -> io::Result<()> {
    let carried = [carried];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&carried)) {
        return Err(Errno::NOBUFS.into());
    }
    let sent = loop {
        match rustix::net::sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    match bytes.get(sent..) {
        Some(rest) => send_all(socket, rest),
        None => Ok(()),
    }
}

/// Fills `bytes` as [`receive`] does and takes a descriptor that came with the first of them. Fit for use in a child.
///
/// # Errors
/// As `recvmsg`.
pub fn receive_with_descriptor(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let first = loop {
        let mut parts = [io::IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut carried = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            carried = descriptors.into_iter().next();
        }
    }
    let rest = match bytes.get_mut(first..) {
        Some(rest) if first > 0 => receive(socket, rest)?,
        _ => 0,
    };
    Ok((first + rest, carried))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn forked(run: &mut dyn FnMut(BorrowedFd<'_>) -> i32) -> (Child, OwnedFd) {
        let (ours, theirs) = socket_pair().unwrap();
        // SAFETY: the closures of these tests only send, receive and compute.
        let child = unsafe { fork(theirs.as_fd(), &mut || run(theirs.as_fd())) }.unwrap();
        (child, ours)
    }

    #[test]
    fn a_child_answers_from_its_own_copy_of_memory_and_tells_its_status() {
        let value = std::cell::Cell::new(1u8);
        let (mut child, socket) = forked(&mut |socket| {
            let mut go = [0];
            let _ = receive(socket, &mut go);
            let _ = send_all(socket, &[value.get() + go[0]]);
            7
        });
        value.set(100);
        send_all(socket.as_fd(), &[10]).unwrap();
        let mut answer = Vec::new();
        std::fs::File::from(socket).read_to_end(&mut answer).unwrap();
        assert_eq!(answer, [11]);
        assert_eq!((child.wait(), child.wait()), (WaitStatus::Exited(7), WaitStatus::Exited(7)));
    }

    #[test]
    fn a_child_holds_no_other_descriptor_and_goes_when_its_socket_closes() {
        let (reader, writer) = io::pipe().unwrap();
        let (mut child, socket) = forked(&mut |socket| receive(socket, &mut [0]).map_or(1, |_| 2));
        drop(writer);
        let mut rest = Vec::new();
        // Ends only if the child does not hold the writing end.
        { reader }.read_to_end(&mut rest).unwrap();
        drop(socket);
        assert_eq!(child.wait(), WaitStatus::Exited(2));
    }

    #[test]
    fn a_killed_child_is_told_from_one_that_ended_and_sending_to_it_is_no_signal() {
        let (mut child, socket) = forked(&mut |socket| receive(socket, &mut [0; 2]).map_or(1, |_| 2));
        child.kill();
        assert_eq!(child.wait(), WaitStatus::Killed(9));
        assert!(child.wait().to_string().contains("signal 9"));
        child.kill();
        // A child that another test has forked meanwhile may have the other end, too.
        assert_eq!(receive(socket.as_fd(), &mut [0]).unwrap(), 0);
        let error = send_all(socket.as_fd(), &[1; 100_000]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_dropped_child_leaves_no_zombie() {
        let (child, _socket) = forked(&mut |socket| receive(socket, &mut [0]).map_or(1, |_| 2));
        let folder = format!("/proc/{}", child.pid());
        assert!(std::path::Path::new(&folder).exists());
        drop(child);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_sibling_made_by_a_child_is_ours_to_wait_for() {
        let (mut child, socket) = forked(&mut |socket| {
            let mut kind = [0; 4];
            let Ok((4, Some(carried))) = receive_with_descriptor(socket, &mut kind) else { return 3 };
            let mut answer = || send_all(carried.as_fd(), b"sibling").map_or(4, |()| 5);
            // SAFETY: sends and returns; the parent of this child waits below.
            let pid = unsafe { fork_sibling(carried.as_fd(), &mut answer) };
            send_all(socket, &pid.unwrap_or(0).to_ne_bytes()).map_or(1, |()| 0)
        });
        let (ours, theirs) = socket_pair().unwrap();
        send_with_descriptor(socket.as_fd(), &[1; 4], theirs.as_fd()).unwrap();
        drop(theirs);
        let mut pid = [0; 4];
        assert_eq!(receive(socket.as_fd(), &mut pid).unwrap(), 4);
        let mut sibling = Child::adopt(u32::from_ne_bytes(pid)).unwrap();
        assert_eq!(child.wait(), WaitStatus::Exited(0));
        let mut words = Vec::new();
        std::fs::File::from(ours).read_to_end(&mut words).unwrap();
        assert_eq!(words, b"sibling");
        assert_eq!(sibling.wait(), WaitStatus::Exited(5));
    }
}
