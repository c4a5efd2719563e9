//! A helper process: it shares the memory of the program that starts it and nothing else.
//!
//! Relies on `clone` with `CLONE_VM` alone. To the kernel a program with a helper still has one thread: `unshare` and `setns`
//! work, a filter that seccomp puts on all threads does not reach the helper, a fault or a forbidden system call of the
//! helper's ends the helper only, and `wait` does not see it. It has thread-local storage of its own, which is all zeros but
//! for what the processor's `errno` accesses and stack checks need; otherwise it has the duty of a
//! [bare thread](crate::bare_thread), and signals are blocked in it.
//!
//! A helper holds the memory even after the program has ended or become another one. So it has to ask its [`HostProcess`] often
//! whether the program is still there, and end if not.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{self, Pid, WaitOptions};

use crate::area::AnonymousMap;
use crate::bare_thread::{CloneSettings, call, start_as};
use crate::{futex, guest};

/// Memory and, for the moment until it has unshared them, descriptors are shared. No signal is sent at its end.
const FLAGS: i32 =
    libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_SETTLS | libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;

/// Thread-local storage below and above the thread pointer. It is backed as it is touched, so room costs nothing.
const STORAGE_BELOW_BYTES: usize = 1 << 20;
const STORAGE_ABOVE_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 256 << 10;

/// Bytes of the area that a helper runs in.
pub const AREA_BYTES: usize = STORAGE_BELOW_BYTES + STORAGE_ABOVE_BYTES + STACK_BYTES;

/// A child that was made by `clone` without a signal is waited for only by those who ask for such.
const WAIT_FOR_CLONE: u32 = libc::__WCLONE as u32;

/// The helper of a program, if there is one.
#[derive(Debug)]
pub struct HelperProcess {
    /// Its process number; 0 if there is none, or it was waited for.
    number: AtomicI32,
    /// 1 from its start to its end, when the kernel writes 0.
    alive: AtomicI32,
}

impl HelperProcess {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "it is made for statics")]
    pub const fn new() -> Self {
        Self { number: AtomicI32::new(0), alive: AtomicI32::new(0) }
    }

    /// Starts a helper that runs `run` in `area`. The one before must have been waited for.
    ///
    /// # Errors
    /// As `clone`; [`io::ErrorKind::Unsupported`] on processors for which it was not written.
    ///
    /// # Safety
    /// `area` has [`AREA_BYTES`], is used by nothing else and lives until the helper has ended; `run` keeps the duty of a
    /// bare thread and touches nothing thread-local but `errno`.
    pub unsafe fn start(&'static self, area: &AnonymousMap, run: extern "C" fn()) -> io::Result<()> {
        debug_assert!(area.len() >= AREA_BYTES);
        let base = area.base() as usize;
        let storage = base + STORAGE_BELOW_BYTES;
        // SAFETY: inside the area, aligned, and used by nothing else.
        unsafe { lay_storage(storage as *mut usize) };
        self.alive.store(1, Ordering::SeqCst);
        let settings =
            CloneSettings { flags: FLAGS, number: &raw const self.number, cleared: &raw const self.alive, storage };
        // SAFETY: `start_as` demands a stack and a function as `start` demands them of its caller, and places that outlive the
        // helper: they are fields of a static.
        let started = unsafe { start_as(&settings, base + AREA_BYTES, run) };
        if started.is_err() {
            self.alive.store(0, Ordering::SeqCst);
        }
        started.map(|_| ())
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst) != 0
    }

    /// Whether the calling process is the helper.
    pub fn is_current(&self) -> bool {
        self.number.load(Ordering::Relaxed) == guest::process_id()
    }

    /// Takes note of its end, if it has ended, so that it is no zombie; whether there is none now. To be called by the
    /// program's process, not by children. Leaves `errno` alone.
    pub fn reap(&self) -> bool {
        let Some(number) = Pid::from_raw(self.number.load(Ordering::SeqCst)) else { return true };
        let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(WAIT_FOR_CLONE);
        match process::waitpid(Some(number), options) {
            // It still runs.
            Ok(None) => return false,
            Ok(Some(_)) => {}
            // The program waits for every kind of child, and has waited for this one.
            Err(_) if self.is_alive() => return false,
            Err(_) => {}
        }
        self.number.store(0, Ordering::SeqCst);
        true
    }

    /// Waits until it has ended, at most for `limit`.
    pub fn wait_for_end(&self, limit: Duration) {
        let until = std::time::Instant::now() + limit;
        while self.is_alive() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            // The kernel wakes waiters at the word as it does those of other processes.
            futex::wait_signed(&self.alive, 1, left);
        }
    }

    /// In a child of the program, which has no helper.
    pub fn forget(&self) {
        self.number.store(0, Ordering::SeqCst);
        self.alive.store(0, Ordering::SeqCst);
    }
}

/// Waits for helpers named `name` of the program that this process was before it called `exec`, at most for `limit`, and takes note
/// of their ends: this program knows nothing of them, and each would stay a zombie. Leaves `errno` alone.
pub fn reap_inherited(name: &[u8], limit: Duration) {
    let errno = guest::errno();
    let until = std::time::Instant::now() + limit;
    while let Some(ended) = next_ended() {
        if ended != 0 && !is_named(ended, name) {
            break;
        }
        if ended != 0 {
            let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(WAIT_FOR_CLONE);
            let _ = process::waitpid(Pid::from_raw(ended), options);
        } else if std::time::Instant::now() < until {
            crate::bare_thread::sleep(Duration::from_millis(1));
        } else {
            break;
        }
    }
    guest::set_errno(errno);
}

/// A child without a signal that has ended and was not waited for; 0 if all of them run, `None` if there is no such child.
fn next_ended() -> Option<i32> {
    // SAFETY: the struct is valid when zero, and has the size that the call writes.
    unsafe {
        let mut info = std::mem::zeroed::<libc::siginfo_t>();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WCLONE;
        (libc::waitid(libc::P_ALL, 0, &raw mut info, options) == 0).then(|| info.si_pid())
    }
}

fn is_named(number: i32, name: &[u8]) -> bool {
    let mut comm = [0; 32];
    guest::read_proc(number, "comm", &mut comm).is_ok_and(|count| comm[..count].trim_ascii_end() == name)
}

/// Makes thread-local storage at the thread pointer `at`.
///
/// # Safety
/// Six words at `at` may be written.
#[cfg(target_arch = "x86_64")]
unsafe fn lay_storage(at: *mut usize) {
    let (canary, guard): (usize, usize);
    // SAFETY: every thread of the C library has the two words that are read in its control block. `lay_storage` demands that the
    // words at `at` may be written.
    unsafe {
        std::arch::asm!("mov {}, fs:[0x28]", "mov {}, fs:[0x30]", out(reg) canary, out(reg) guard, options(nostack, readonly));
        // The block's own address, twice; what stack checks and pointer mangling read.
        at.write(at as usize);
        at.add(2).write(at as usize);
        at.add(5).write(canary);
        at.add(6).write(guard);
    }
}

/// Makes thread-local storage at the thread pointer `at`: zeros will do.
///
/// # Safety
/// None needed: it does nothing.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn lay_storage(_: *mut usize) {}

/// The program, as its helper knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProcess {
    process: i32,
    thread: i32,
    /// Where the kernel writes 0 when the thread ends or the process becomes another program.
    word: usize,
}

impl HostProcess {
    /// The calling thread's process. `None` where the kernel does not tell what a helper must know (it is built without
    /// `CONFIG_CHECKPOINT_RESTORE`, or the call is forbidden).
    pub fn of_caller() -> Option<Self> {
        let mut word: usize = 0;
        // SAFETY: the call writes an address to the variable.
        let told = unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut word) };
        let host = Self { process: guest::process_id(), thread: guest::thread_id(), word };
        (told == 0 && word != 0 && host.word_is_kept()).then_some(host)
    }

    /// The program's process number.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// The number of its thread that started the helper.
    pub fn thread(&self) -> i32 {
        self.thread
    }

    /// In the helper: whether the program is still there, with the thread that started the helper.
    pub fn is_there(&self) -> bool {
        guest::parent_id() == self.process && self.word_is_kept()
    }

    /// Whether the word still has the thread's number. The thread's memory may be gone, so the kernel looks at it.
    fn word_is_kept(&self) -> bool {
        let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
        // SAFETY: the call reads the word, fails where there is none, and sleeps for no time.
        let result = unsafe {
            call(libc::SYS_futex as usize, self.word, wait, self.thread as usize, &raw const no_time as usize)
        };
        result == -libc::ETIMEDOUT as isize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    static HELPER: HelperProcess = HelperProcess::new();
    static DONE: AtomicU32 = AtomicU32::new(0);
    static LEAVE: AtomicU32 = AtomicU32::new(0);
    static HOST_WORDS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

    extern "C" fn run() {
        let [process, thread, word] = [0, 1, 2].map(|at| HOST_WORDS[at].load(Ordering::SeqCst));
        let host = HostProcess { process: process as i32, thread: thread as i32, word: word as usize };
        let alone = crate::bare_thread::take_own_descriptors().is_ok();
        let is_other = guest::process_id() != host.process && HELPER.is_current();
        guest::set_errno(5);
        DONE.store(1 + u32::from(alone && is_other && host.is_there()), Ordering::SeqCst);
        while LEAVE.load(Ordering::SeqCst) == 0 && host.is_there() {
            crate::bare_thread::sleep(Duration::from_millis(1));
        }
    }

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[test]
    fn a_helper_shares_memory_is_no_thread_and_leaves_no_zombie() {
        let host = HostProcess::of_caller().unwrap();
        for (at, value) in [host.process as u64, host.thread as u64, host.word as u64].into_iter().enumerate() {
            HOST_WORDS[at].store(value, Ordering::SeqCst);
        }
        let area = AnonymousMap::private(AREA_BYTES).unwrap();
        guest::set_errno(99);
        assert!(HELPER.reap() && !HELPER.is_alive());
        // SAFETY: the area lives until the helper has been waited for; it uses nothing thread-local but errno.
        unsafe { HELPER.start(&area, run) }.unwrap();
        while DONE.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!((guest::errno(), DONE.load(Ordering::SeqCst)), (99, 2));
        let number = HELPER.number.load(Ordering::SeqCst);
        assert!(HELPER.is_alive() && !HELPER.reap() && threads() > 0);
        assert!(!std::path::Path::new(&format!("/proc/self/task/{number}")).exists());
        LEAVE.store(1, Ordering::SeqCst);
        HELPER.wait_for_end(Duration::from_secs(60));
        assert!(!HELPER.is_alive());
        while !HELPER.reap() {
            std::thread::yield_now();
        }
        assert!(!std::path::Path::new(&format!("/proc/{number}")).exists());
    }

    #[test]
    fn a_host_whose_thread_has_ended_is_not_there() {
        let host = std::thread::spawn(|| HostProcess::of_caller().unwrap()).join().unwrap();
        assert!(!host.word_is_kept() && !host.is_there());
        assert!(HostProcess::of_caller().unwrap().word_is_kept());
    }
}
