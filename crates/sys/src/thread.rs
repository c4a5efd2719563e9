//! What a thread may ask of the scheduler, and what it has cost.
//!
//! Relies on `setpriority`, `clock_gettime` and `sched_setscheduler`. Every wish may be refused: callers go on.

use std::sync::OnceLock;

use rustix::process;
use rustix::thread;
use rustix::time::{ClockId, clock_gettime};

/// The largest nice value.
const LOWEST_NICE: i32 = 19;

/// Kernel id of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(thread::Pid);

impl ThreadId {
    /// The id as a number, never 0.
    pub fn raw(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// The thread of that number; `None` for 0 and negative numbers. It may have ended, and its number be taken again.
    pub fn from_raw(raw: i32) -> Option<Self> {
        if raw > 0 { thread::Pid::from_raw(raw).map(Self) } else { None }
    }
}

/// Id of the calling thread.
pub fn current() -> ThreadId {
    ThreadId(thread::gettid())
}

/// Sets the nice value (−20 … 19) of a thread. On Linux it holds for the thread alone. Returns whether it was allowed.
pub fn set_nice(thread: ThreadId, nice: i32) -> bool {
    process::setpriority_process(Some(thread.0), nice).is_ok()
}

/// The nice value of a thread; `None` if the system does not tell.
pub fn nice_of(thread: ThreadId) -> Option<i32> {
    process::getpriority_process(Some(thread.0)).ok()
}

/// Whether this process may raise the priority of a thread again that it has lowered. Ordinary users may not
/// (`CAP_SYS_NICE`, `RLIMIT_NICE`): a thread that they lower stays behind everything else for ever. Found once, by trying it
/// on a thread that is made for it.
pub fn can_raise_again() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let attempt = || {
        let before = nice_of(current())?;
        // At the lowest priority there is nothing to try, and nothing to gain.
        Some(before < LOWEST_NICE && set_nice(current(), before + 1) && set_nice(current(), before))
    };
    *FOUND.get_or_init(|| {
        let thread = std::thread::Builder::new().name("quire-nice".into()).spawn(attempt);
        thread.is_ok_and(|thread| thread.join().ok().flatten().unwrap_or(false))
    })
}

/// Lets the calling thread run only when nothing else wants the processor. Returns whether it was allowed.
pub fn set_idle_policy() -> bool {
    set_policy(libc::SCHED_IDLE)
}

/// Brings the calling thread back to ordinary time sharing. Returns whether it was allowed.
pub fn set_normal_policy() -> bool {
    set_policy(libc::SCHED_OTHER)
}

fn set_policy(policy: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live struct that the call only reads; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// While it lives, the calling thread runs no handler of a signal that a process sends. Handlers of its own faults do run.
#[derive(Debug)]
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// It must be dropped by the thread that made it.
    _here: std::marker::PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks them.
    #[expect(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the first call initialises the one set, the last the other; none keeps a pointer.
        let before = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(set.as_mut_ptr(), own);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _here: std::marker::PhantomData }
    }

    /// As [`BlockedSignals::new`], and keeps out the C library's own signals: the thread is neither cancelled in between, where it is cancelled
    /// at any instruction, nor changes its user for another one's call. For short times.
    pub fn with_the_c_library_s() -> Self {
        let mut set = u64::MAX;
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            set &= !(1 << (own - 1));
        }
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // Not by the C library, which takes its own signals out.
        // SAFETY: the kernel reads and writes sets of 8 bytes, the size that is said; a set of the C library is larger, and begins as the
        // kernel's.
        let before = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                &raw const set,
                before.as_mut_ptr(),
                size_of::<u64>(),
            );
            before.assume_init()
        };
        Self { before, _here: std::marker::PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask that this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Starts a thread in which no handler of a signal that a process sends runs: such a handler belongs to the program, may touch what
/// the thread is at, and would wait for itself. Signals go to the program's own threads.
///
/// # Errors
/// The system starts no more threads.
pub fn spawn_unsignalled(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    // The new thread takes over the mask of the one that makes it.
    let _blocked = BlockedSignals::new();
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// As [`spawn_unsignalled`], for a thread that borrows.
///
/// # Errors
/// The system starts no more threads.
pub fn spawn_scoped_unsignalled<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() + Send + 'scope,
) -> std::io::Result<std::thread::ScopedJoinHandle<'scope, ()>> {
    let _blocked = BlockedSignals::new();
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run)
}

/// Processor time used by the calling thread, in nanoseconds.
pub fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Binds the calling thread to one processor. Returns whether it was allowed.
pub fn pin_to(cpu: usize) -> bool {
    let mut set = thread::CpuSet::new();
    if cpu >= thread::CpuSet::MAX_CPU {
        return false;
    }
    set.set(cpu);
    thread::sched_setaffinity(None, &set).is_ok()
}

/// Which processors a thread may run on.
#[derive(Clone, Copy, Debug)]
pub struct CpuSet(thread::CpuSet);

impl CpuSet {
    /// Those that the calling thread may run on now.
    pub fn allowed() -> Option<Self> {
        thread::sched_getaffinity(None).ok().map(Self)
    }

    /// Whether processor `cpu` is among them.
    pub fn has(&self, cpu: usize) -> bool {
        cpu < thread::CpuSet::MAX_CPU && self.0.is_set(cpu)
    }

    /// Lets the calling thread run on all of them. Returns whether it was allowed.
    pub fn apply(&self) -> bool {
        thread::sched_setaffinity(None, &self.0).is_ok()
    }
}

/// The processor that `thread`, of whatever process, ran on last. Allocates nothing.
pub fn processor_of(thread: ThreadId) -> Option<usize> {
    use std::io::Write;
    let mut path = [0_u8; 48];
    // The last byte stays the closing zero.
    write!(&mut path[..47], "/proc/{}/stat", thread.raw()).ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text).ok()?;
    // The name, in parentheses, may hold anything; the processor is the 37th word after it.
    let after = text[..count].iter().rposition(|&byte| byte == b')')? + 2;
    let word = text[after..count].split(|&byte| byte == b' ').nth(36)?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_blocked_while_the_guard_lives_but_for_those_of_faults() {
        let is_blocked = |signal| {
            let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: with no new mask the call only fills in the old one.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
                libc::sigismember(set.as_ptr(), signal) == 1
            }
        };
        let before = is_blocked(libc::SIGTERM);
        let guard = BlockedSignals::new();
        assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGALRM) && !is_blocked(libc::SIGBUS));
        drop(guard);
        assert_eq!(is_blocked(libc::SIGTERM), before);
    }

    #[test]
    fn a_thread_that_is_started_unsignalled_blocks_what_is_sent_and_its_maker_does_not() {
        let is_blocked = || {
            let mut now = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: asks for the mask of this thread, which it writes whole.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
                libc::sigismember(&now.assume_init(), libc::SIGUSR1) == 1
            }
        };
        let (tell, told) = std::sync::mpsc::channel();
        spawn_unsignalled("quiet", move || tell.send(is_blocked()).unwrap()).unwrap().join().unwrap();
        assert_eq!((told.recv().unwrap(), is_blocked()), (true, false));
    }

    #[test]
    fn a_thread_that_is_bound_to_a_processor_runs_there() {
        std::thread::spawn(|| {
            let allowed = CpuSet::allowed().unwrap();
            let cpu = (0..).find(|&cpu| allowed.has(cpu)).unwrap();
            assert!(pin_to(cpu));
            std::thread::yield_now();
            assert_eq!(processor_of(current()), Some(cpu));
            assert!(allowed.apply());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_can_be_made_nicer_and_counts_its_time() {
        std::thread::spawn(|| {
            assert!(set_nice(current(), 5));
            let before = cpu_time_ns();
            let mut sum = 0u64;
            for i in 0..2_000_000u64 {
                sum = sum.wrapping_add(std::hint::black_box(i));
            }
            std::hint::black_box(sum);
            assert!(cpu_time_ns() > before);
            assert!(set_idle_policy());
        })
        .join()
        .unwrap();
    }
}
