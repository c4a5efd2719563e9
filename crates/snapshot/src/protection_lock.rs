//! A readers-writer lock fit for signal handlers: threads that unprotect pages share it, a cut that protects all pages has it alone.
//!
//! Relies on nothing but one word. A handler that has copied a page for one epoch must not unprotect the page after the next cut has
//! protected it. Modelled in `tests/loom_preimage.rs`.

use crate::sync::{AtomicU32, Ordering, yield_now};

/// A cut has the lock or waits for it; the other bits count the threads that unprotect pages.
const CUT: u32 = 1 << 31;

/// The lock.
#[derive(Debug, Default)]
pub struct ProtectionLock(AtomicU32);

/// Held by a thread from before it finds out which pages it may unprotect until it has done so.
#[derive(Debug)]
pub struct UnprotectGuard<'a>(&'a ProtectionLock);

/// Held by a cut.
#[derive(Debug)]
pub struct ProtectGuard<'a>(&'a ProtectionLock);

impl ProtectionLock {
    /// Shares the lock with other threads that unprotect pages. Waits for a cut: a thread that cuts must not fault, and no signal handler may run there.
    pub fn unprotecting(&self) -> UnprotectGuard<'_> {
        while self.0.fetch_add(1, Ordering::AcqRel) & CUT != 0 {
            self.0.fetch_sub(1, Ordering::AcqRel);
            while self.0.load(Ordering::Acquire) & CUT != 0 {
                yield_now();
            }
        }
        UnprotectGuard(self)
    }

    /// Waits for the threads that unprotect pages, and keeps others off. One thread at a time may do this.
    pub fn protecting(&self) -> ProtectGuard<'_> {
        self.0.fetch_or(CUT, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) != CUT {
            yield_now();
        }
        ProtectGuard(self)
    }

    /// Whether a cut has the lock or waits for it.
    pub fn is_protecting(&self) -> bool {
        self.0.load(Ordering::Acquire) & CUT != 0
    }
}

impl Drop for UnprotectGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ProtectGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_and(!CUT, Ordering::AcqRel);
    }
}
