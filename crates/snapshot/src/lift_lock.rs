//! A readers-writer lock fit for signal handlers: those who lift protection share it, a cut that arms pages has it alone.
//!
//! Relies on nothing but one word. A handler that has copied a page for one epoch must not lift the page after the next cut has
//! armed it. Modelled in `tests/loom_keep.rs`.

use crate::sync::{AtomicU32, Ordering, yield_now};

/// A cut has the lock or waits for it; the other bits count those who lift.
const CUT: u32 = 1 << 31;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LiftLock(AtomicU32);

/// Held by a thread between finding out what it may lift and having lifted it.
#[derive(Debug)]
pub struct Lifting<'a>(&'a LiftLock);

/// Held by a cut.
#[derive(Debug)]
pub struct Cutting<'a>(&'a LiftLock);

impl LiftLock {
    /// Shares the lock with others who lift. Waits for a cut: a thread that cuts must not fault, and no signal handler may run there.
    pub fn lift(&self) -> Lifting<'_> {
        while self.0.fetch_add(1, Ordering::AcqRel) & CUT != 0 {
            self.0.fetch_sub(1, Ordering::AcqRel);
            while self.0.load(Ordering::Acquire) & CUT != 0 {
                yield_now();
            }
        }
        Lifting(self)
    }

    /// Waits for those who lift and keeps others off. One thread at a time may do this.
    pub fn cut(&self) -> Cutting<'_> {
        self.0.fetch_or(CUT, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) != CUT {
            yield_now();
        }
        Cutting(self)
    }

    /// Whether a cut has the lock or waits for it.
    pub fn is_cutting(&self) -> bool {
        self.0.load(Ordering::Acquire) & CUT != 0
    }
}

impl Drop for Lifting<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_and(!CUT, Ordering::AcqRel);
    }
}
