//! Where the calling thread keeps what it works with (its stack, the C library's variables of it), and whether it is alone.
//!
//! Relies on procfs to count threads, and on the C library keeping `errno` beside its other variables of the thread. Fit for use
//! in a forked child: nothing allocates or locks.

use std::io;

/// An address of the stack on which the caller runs, close to its end.
#[inline(never)]
pub fn stack_address() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here) as usize
}

/// An address among the C library's variables of this thread.
pub fn variables_address() -> usize {
    // SAFETY: asks for an address, which is valid for this thread.
    unsafe { libc::__errno_location() as usize }
}

/// Threads of this process, this one counted.
///
/// # Errors
/// procfs is not there.
pub fn count() -> io::Result<u64> {
    // A directory has a link for its name, one for its own dot, and one for each directory in it.
    let links = rustix::fs::stat(c"/proc/self/task")?.st_nlink;
    // Its type differs between architectures.
    #[allow(clippy::useless_conversion)]
    Ok(u64::from(links).saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;
    use std::os::fd::AsFd;

    #[test]
    fn a_forked_child_is_alone_and_its_parent_with_another_thread_is_not() {
        let (_ours, theirs) = child::socket_pair().unwrap();
        let (done, waits) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || waits.recv());
        assert!(count().unwrap() >= 2);
        // SAFETY: the child makes one system call.
        let ending = unsafe { child::fork(theirs.as_fd(), &mut || count().map_or(-1, |count| count as i32)) };
        assert_eq!(ending.unwrap().wait(), child::WaitStatus::Exited(1));
        drop(done);
        let _ = other.join();
    }

    #[test]
    fn stacks_and_variables_of_threads_lie_apart() {
        let here = (stack_address(), variables_address());
        let local = 0_u8;
        assert!(here.0.abs_diff(&raw const local as usize) < 1 << 16);
        assert_eq!(here.1, variables_address());
        let there = std::thread::spawn(|| (stack_address(), variables_address())).join().unwrap();
        assert!(here.0 != there.0 && here.1 != there.1);
    }
}
