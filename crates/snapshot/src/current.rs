//! The slot of the newest epoch, which writers serve: found without a lock, and not reset while a thread is inside.
//!
//! Relies on slots living as long as the writers that may find them here. Modelled in `tests/loom_keep.rs`.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, fence, yield_now};

/// What counts the threads that serve it.
pub trait Slotted {
    /// The count.
    fn serving(&self) -> &AtomicU32;
}

/// See the head of this file.
#[derive(Debug)]
pub struct Current<T>(AtomicPtr<T>);

/// While it lives, the slot isn't reset.
struct Serving<'a>(&'a AtomicU32);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<T: Slotted> Current<T> {
    /// No slot.
    pub fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        !self.0.load(Ordering::SeqCst).is_null()
    }

    /// `slot` is the newest from now on; the one before, if it had not been retired.
    pub fn set(&self, slot: &T) -> *const T {
        self.0.swap(std::ptr::from_ref(slot).cast_mut(), Ordering::SeqCst)
    }

    /// Whether `slot` was the newest until now: then what the calling thread has copied is what its epoch began with. Pairs with
    /// [`crate::claim::before_change`]: who has read what a writer of a newer epoch wrote finds that epoch here.
    pub fn is_newest(&self, slot: &T) -> bool {
        fence(Ordering::Acquire);
        std::ptr::eq(self.0.load(Ordering::SeqCst), slot)
    }

    /// Runs `then` on the newest slot, if there is one; it can't be reset meanwhile.
    ///
    /// # Safety
    /// Slots that were ever set live until this call ends.
    pub unsafe fn serve<R>(&self, then: impl FnOnce(&T) -> R) -> Option<R> {
        loop {
            let current = self.0.load(Ordering::SeqCst);
            // SAFETY: as the caller promises.
            let slot = unsafe { current.as_ref() }?;
            slot.serving().fetch_add(1, Ordering::SeqCst);
            let _serving = Serving(slot.serving());
            fence(Ordering::SeqCst);
            // A slot that was retired in between may be reset; one that is still current waits for us before it is.
            if self.0.load(Ordering::SeqCst) == current {
                return Some(then(slot));
            }
        }
    }

    /// No view will read `slot`'s epoch any more: writers stop serving it. Returns when none is still doing so.
    pub fn retire(&self, slot: &T) {
        let own = std::ptr::from_ref(slot).cast_mut();
        let _ = self.0.compare_exchange(own, std::ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        // Pairs with the fence in `serve`: either the writer there sees the change, or it is seen here.
        fence(Ordering::SeqCst);
        wait_until_idle(slot);
    }
}

/// Returns when no thread serves `slot`.
pub fn wait_until_idle<T: Slotted>(slot: &T) {
    while slot.serving().load(Ordering::Acquire) != 0 {
        yield_now();
    }
}
