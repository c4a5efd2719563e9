//! Makes a system call of this process fail from now on, or end it: for tests of what happens when the system refuses, and of what is
//! called at all.
//!
//! Relies on seccomp filters, which can't be taken off again: the process that does this is one for a test alone.

use std::io;

/// Which calls fail.
#[derive(Clone, Copy, Debug)]
pub struct SyscallFilter {
    /// The call's number, as `libc::SYS_mmap`.
    pub call: i64,
    /// Only where the lower half of this argument, counted from 0, has this value.
    pub argument: Option<(u32, u32)>,
    /// What the call fails with.
    pub errno: i32,
}

/// The calls that tests of other crates name.
pub mod calls {
    pub use libc::{
        SYS_clone, SYS_clone3, SYS_close_range, SYS_eventfd2, SYS_fallocate, SYS_flock, SYS_ftruncate, SYS_getdents64,
        SYS_ioctl, SYS_lseek, SYS_madvise, SYS_memfd_create, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_open,
        SYS_openat, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_ppoll, SYS_pread64, SYS_pwrite64, SYS_read,
        SYS_recvfrom, SYS_recvmsg, SYS_rt_sigaction, SYS_sendmsg, SYS_sendto, SYS_socketpair, SYS_userfaultfd,
        SYS_waitid,
    };
}

/// Makes the calls fail in all threads of this process.
///
/// # Errors
/// As `seccomp`: the kernel has no filters, or another filter forbids this one.
pub fn deny(denied: SyscallFilter) -> io::Result<()> {
    let refusal = libc::SECCOMP_RET_ERRNO | denied.errno.cast_unsigned();
    install(denied.call, denied.argument, refusal)
}

/// Makes the first such call of any thread end this process by SIGSYS: what is not ended does not make the call.
///
/// # Errors
/// As [`deny`].
pub fn end_at(call: i64, argument: Option<(u32, u32)>) -> io::Result<()> {
    install(call, argument, libc::SECCOMP_RET_KILL_PROCESS)
}

/// Has the kernel do `action` at the call; `argument` as in [`SyscallFilter`].
fn install(call: i64, argument: Option<(u32, u32)>, action: u32) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Of the arguments in `struct seccomp_data`.
    const ARGUMENTS: u32 = 16;
    let code = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let act = code(RETURN, action);
    let mut program = vec![code(LOAD, 0)];
    let unless = |value, jf| libc::sock_filter { code: JUMP_IF, jt: 0, jf, k: value };
    match argument {
        None => program.extend([unless(call as u32, 1), act]),
        Some((index, value)) => {
            program.extend([unless(call as u32, 3), code(LOAD, ARGUMENTS + 8 * index), unless(value, 1), act])
        }
    }
    program.push(code(RETURN, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the first call takes numbers; the second reads the filter, which lives through it.
    let result = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{WaitStatus, fork_by_library};

    #[test]
    fn the_call_fails_with_this_argument_and_works_with_another() {
        let mut run = || {
            let (call, argument) = (libc::SYS_madvise, Some((2, libc::MADV_HUGEPAGE as u32)));
            if deny(SyscallFilter { call, argument, errno: libc::EPERM }).is_err() {
                return 3;
            }
            let area = crate::area::AnonymousMap::private(4096).unwrap();
            let advise = |hint| crate::map::advise(area.base(), area.len(), hint);
            let refused =
                advise(crate::map::MapAdvice::Huge).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
            i32::from(!(refused && advise(crate::map::MapAdvice::NoHuge).is_ok()))
        };
        // SAFETY: the child makes system calls and allocates, which the C library's fork allows.
        let ending = unsafe { fork_by_library(&mut run) }.unwrap().wait();
        assert_eq!(ending, WaitStatus::Exited(0), "3: there is no seccomp here");
    }

    #[test]
    fn a_process_ends_at_the_call_and_not_at_another() {
        let ending_by = |hint: crate::map::MapAdvice| {
            let mut run = || {
                if end_at(libc::SYS_madvise, Some((2, libc::MADV_HUGEPAGE as u32))).is_err() {
                    return 3;
                }
                let area = crate::area::AnonymousMap::private(4096).unwrap();
                let _ = crate::map::advise(area.base(), area.len(), hint);
                0
            };
            // SAFETY: the child makes system calls and allocates, which the C library's fork allows.
            unsafe { fork_by_library(&mut run) }.unwrap().wait()
        };
        assert_eq!(ending_by(crate::map::MapAdvice::NoHuge), WaitStatus::Exited(0), "3: there is no seccomp here");
        assert_eq!(ending_by(crate::map::MapAdvice::Huge), WaitStatus::Killed(libc::SIGSYS));
    }
}
