//! Finds the mechanism that a faulting address belongs to, from inside a signal handler.
//!
//! Relies on places being few and never freed: a handler that is late finds its slot empty, not gone.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quire_sys::fork_lock::NoFork;
use quire_sys::signal::FaultAccess;

/// Most ranges at a time.
const HANDLER_SLOTS: usize = 128;
/// How many late faults an empty slot accounts for. More than that, and the fault isn't one of ours.
const LATE: u32 = 100_000;

/// A mechanism that is asked about a fault at a page-aligned offset into its range.
pub(crate) trait FaultHandler: Sync {
    /// Makes the page at `offset` writable; `false` if this is no fault of its making. Called in a signal handler: no locks, no
    /// allocation, no panics.
    fn fault(&self, offset: usize) -> bool;
}

struct HandlerSlot {
    start: AtomicUsize,
    len: AtomicUsize,
    /// Points at the leaked-and-owned box of a handler reference; null when the slot is free.
    handler: AtomicPtr<&'static dyn FaultHandler>,
    /// Signal handlers that are using `handler`.
    users: AtomicU32,
    late: AtomicU32,
}

static ALL: [HandlerSlot; HANDLER_SLOTS] = [const {
    HandlerSlot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        handler: AtomicPtr::new(std::ptr::null_mut()),
        users: AtomicU32::new(0),
        late: AtomicU32::new(0),
    }
}; HANDLER_SLOTS];
static CHANGING: Mutex<()> = Mutex::new(());

/// The right to change the registry. No child is forked meanwhile, for which it would stay locked.
struct Changing(
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
    #[expect(dead_code, reason = "held")] Option<NoFork>,
);

impl Changing {
    fn begin() -> Self {
        // Without it only a child that uses the registry itself could wait in vain.
        let no_fork = NoFork::begin().ok();
        Self(CHANGING.lock().unwrap_or_else(PoisonError::into_inner), no_fork)
    }
}

/// A slot of the registry, given up on drop (which waits for handlers that are in the middle of something).
#[derive(Debug)]
pub(crate) struct HandlerRegistration(usize);

/// Registers `handler` for `len` bytes at `start`; `None` when all places are taken.
///
/// # Safety
/// `handler` lives until the registration is dropped.
pub(crate) unsafe fn register(start: usize, len: usize, handler: &dyn FaultHandler) -> Option<HandlerRegistration> {
    let _alone = Changing::begin();
    let index = ALL.iter().position(|slot| slot.handler.load(Ordering::Acquire).is_null())?;
    let slot = &ALL[index];
    // SAFETY: only the lifetime changes. `register` demands that the handler lives until the registration is dropped, and after
    // that no signal handler uses it.
    let handler = unsafe { std::mem::transmute::<&dyn FaultHandler, &'static dyn FaultHandler>(handler) };
    slot.start.store(start, Ordering::Relaxed);
    slot.len.store(len, Ordering::Relaxed);
    slot.late.store(0, Ordering::Relaxed);
    slot.handler.store(Box::into_raw(Box::new(handler)), Ordering::SeqCst);
    Some(HandlerRegistration(index))
}

impl HandlerRegistration {
    /// Gives the slot up in a forked child, where threads that were in the middle of something are gone, so that waiting for them would never end.
    pub(crate) fn abandon(self) {
        let slot = &ALL[self.0];
        // The box stays: it is a pointer's worth, and the allocator's lock may be held for ever.
        slot.handler.store(std::ptr::null_mut(), Ordering::SeqCst);
        slot.users.store(0, Ordering::SeqCst);
        std::mem::forget(self);
    }
}

impl Drop for HandlerRegistration {
    fn drop(&mut self) {
        let _alone = Changing::begin();
        let slot = &ALL[self.0];
        let handler = slot.handler.swap(std::ptr::null_mut(), Ordering::SeqCst);
        while slot.users.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: the box was made by `register`. It was taken out of the slot, so no handler can find it, and `users` has
        // fallen to zero since, so none still uses it.
        drop(unsafe { Box::from_raw(handler) });
    }
}

/// The handler of SIGBUS: whether `address` belongs to a registered range, whose handler has dealt with it then.
pub(crate) fn on_fault(touch: FaultAccess) -> bool {
    let address = touch.address as usize;
    for slot in &ALL {
        let start = slot.start.load(Ordering::Relaxed);
        if address < start || address - start >= slot.len.load(Ordering::Relaxed) {
            continue;
        }
        slot.users.fetch_add(1, Ordering::SeqCst);
        let handler = slot.handler.load(Ordering::SeqCst);
        let found = if handler.is_null() {
            // The range was given up between the fault and now: trying again is all it takes.
            slot.late.fetch_add(1, Ordering::Relaxed) < LATE
        } else {
            // SAFETY: `HandlerRegistration::drop` frees it only once `users` is zero, and this thread is counted there.
            let handler = unsafe { *handler };
            let start = slot.start.load(Ordering::Relaxed);
            let is_inside = address >= start && address - start < slot.len.load(Ordering::Relaxed);
            is_inside && handler.fault((address - start) / crate::page::PAGE_SIZE * crate::page::PAGE_SIZE)
        };
        slot.users.fetch_sub(1, Ordering::SeqCst);
        if found {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(AtomicUsize);

    fn store_to(address: usize) -> FaultAccess {
        FaultAccess { address: address as *mut u8, is_store: true }
    }

    impl FaultHandler for Counter {
        fn fault(&self, offset: usize) -> bool {
            self.0.store(offset, Ordering::SeqCst);
            true
        }
    }

    #[test]
    fn a_fault_reaches_the_range_it_lies_in_and_no_handler_once_that_is_gone() {
        let counter = Counter(AtomicUsize::new(0));
        // Addresses that no mapping has.
        let start = 0xffff_8000_0000_0000;
        // SAFETY: `counter` outlives the registration.
        let registration = unsafe { register(start, 0x4000, &counter) }.unwrap();
        assert!(on_fault(store_to(start + 0x2345)));
        assert_eq!(counter.0.load(Ordering::SeqCst), 0x2000);
        assert!(!on_fault(store_to(start + 0x4000)));
        drop(registration);
        counter.0.store(7, Ordering::SeqCst);
        assert!(on_fault(store_to(start)), "a late fault is tried again");
        assert_eq!(counter.0.load(Ordering::SeqCst), 7);
    }
}
