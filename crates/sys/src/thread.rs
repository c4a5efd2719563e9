//! What a thread may ask of the scheduler, and what it has cost.
//!
//! Relies on `setpriority`, `clock_gettime` and `sched_setscheduler`. Every wish may be refused: callers go on.

use rustix::process;
use rustix::thread;
use rustix::time::{ClockId, clock_gettime};

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

#[cfg(test)]
mod tests {
    use super::*;

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
