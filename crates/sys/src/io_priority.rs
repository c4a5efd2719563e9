//! I/O priorities of threads: whose requests a disk's scheduler takes first.
//!
//! Relies on `ioprio_set` and `ioprio_get`. Only some schedulers (BFQ, mq-deadline) heed a priority; the others ignore it.

use crate::thread::ThreadId;

/// The "who" of both calls: a thread, by its number.
const WHO_THREAD: libc::c_int = 1;
/// Bits of a priority below its class.
const CLASS_SHIFT: u32 = 13;
const CLASS_IDLE: u32 = 3;

/// A thread's I/O priority: its class and the level in it, as the kernel has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPriority(u32);

impl IoPriority {
    /// What a thread has that never asked for another one: it follows from its nice value.
    pub const NORMAL: Self = Self(0);
    /// The disk serves the thread when no other one wants it. Ordinary users may take it and give it up again.
    pub const IDLE: Self = Self(CLASS_IDLE << CLASS_SHIFT);

    /// The priority as the kernel's number.
    pub fn raw(self) -> u32 {
        self.0
    }

    /// The priority of that number. The kernel refuses nonsense when it is set.
    pub fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The priority that `thread` has; `None` if the system does not tell.
    pub fn of(thread: ThreadId) -> Option<Self> {
        // SAFETY: the call takes and gives numbers only.
        let raw = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, thread.raw()) };
        u32::try_from(raw).ok().map(Self)
    }

    /// Gives `thread` this priority, for requests that it makes from now on. Returns whether it was allowed.
    pub fn set(self, thread: ThreadId) -> bool {
        // SAFETY: the call takes numbers only.
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, thread.raw(), self.0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::current;

    #[test]
    fn a_thread_takes_the_idle_class_and_gives_it_up_again_and_no_other_thread_does() {
        let outside = IoPriority::of(current());
        std::thread::spawn(|| {
            let before = IoPriority::of(current()).unwrap();
            assert_ne!(before, IoPriority::IDLE);
            assert!(IoPriority::IDLE.set(current()));
            assert_eq!(IoPriority::of(current()), Some(IoPriority::IDLE));
            assert!(IoPriority::from_raw(before.raw()).set(current()));
            assert_ne!(IoPriority::of(current()), Some(IoPriority::IDLE));
        })
        .join()
        .unwrap();
        assert_eq!(IoPriority::of(current()), outside);
    }

    #[test]
    fn a_number_that_is_no_priority_is_refused() {
        assert!(!IoPriority::from_raw(u32::MAX >> 1).set(current()));
    }
}
