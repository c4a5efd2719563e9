//! The slot of the newest epoch, for which writers copy: found without a lock, and not reset while a thread has pinned it.
//!
//! Relies on slots living as long as the writers that may find them here. Modelled in `tests/loom_preimage.rs`.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, fence, yield_now};

/// A slot that counts the threads which have pinned it.
pub trait PinCount {
    /// The count.
    fn pins(&self) -> &AtomicU32;
}

/// A pointer to the newest slot, null if there is none.
#[derive(Debug)]
pub struct CurrentEpoch<T>(AtomicPtr<T>);

/// While it lives, the slot isn't reset.
struct Pin<'a>(&'a AtomicU32);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<T: PinCount> CurrentEpoch<T> {
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
    /// [`crate::copy_state::before_change`]: a thread that has read what a writer of a newer epoch wrote finds that epoch here.
    pub fn is_newest(&self, slot: &T) -> bool {
        fence(Ordering::Acquire);
        std::ptr::eq(self.0.load(Ordering::SeqCst), slot)
    }

    /// Runs `then` on the newest slot, if there is one; it can't be reset meanwhile.
    ///
    /// # Safety
    /// Slots that were ever set live until this call ends.
    pub unsafe fn with_pinned<R>(&self, then: impl FnOnce(&T) -> R) -> Option<R> {
        loop {
            let current = self.0.load(Ordering::SeqCst);
            // SAFETY: `with_pinned` demands that every slot which was ever set lives until this call ends, and `current` is one or
            // null.
            let slot = unsafe { current.as_ref() }?;
            slot.pins().fetch_add(1, Ordering::SeqCst);
            let _pin = Pin(slot.pins());
            fence(Ordering::SeqCst);
            // A slot that was retired in between may be reset; `retire` waits for this pin if the slot is still current.
            if self.0.load(Ordering::SeqCst) == current {
                return Some(then(slot));
            }
        }
    }

    /// No view will read `slot`'s epoch any more: writers no longer find it. Returns when no thread has it pinned.
    pub fn retire(&self, slot: &T) {
        let own = std::ptr::from_ref(slot).cast_mut();
        let _ = self.0.compare_exchange(own, std::ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        // Pairs with the fence in `with_pinned`: either the writer there sees the change, or its pin is seen here.
        fence(Ordering::SeqCst);
        wait_until_unpinned(slot);
    }
}

/// Returns when no thread has `slot` pinned.
pub fn wait_until_unpinned<T: PinCount>(slot: &T) {
    while slot.pins().load(Ordering::Acquire) != 0 {
        yield_now();
    }
}
