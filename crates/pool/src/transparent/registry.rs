//! Finds the map that a faulting address belongs to, from inside a signal handler.
//!
//! Relies on slots that are few and never go. A handler counts itself in before it loads the slot's map, so a map that leaves
//! its slot knows when the last handler is out.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use quire_sys::signal::FaultAccess;

use super::fault_handler::FaultHandler;

/// Most transparent maps at a time.
const REGISTRY_SLOTS: usize = 64;

struct HandlerSlot {
    who: AtomicPtr<FaultHandler>,
    inside: AtomicUsize,
}

static REGISTRY: [HandlerSlot; REGISTRY_SLOTS] =
    [const { HandlerSlot { who: AtomicPtr::new(std::ptr::null_mut()), inside: AtomicUsize::new(0) } }; REGISTRY_SLOTS];

/// A slot; left on drop, after waiting for handlers that are inside.
pub(super) struct HandlerRegistration {
    slot: &'static HandlerSlot,
    /// What the slot points to.
    _faults: Arc<FaultHandler>,
}

impl HandlerRegistration {
    /// Has faults of the map's range dealt with by `faults`; `None` if there are too many maps.
    pub(super) fn new(faults: &Arc<FaultHandler>) -> Option<Self> {
        let at = Arc::as_ptr(faults).cast_mut();
        let slot = REGISTRY.iter().find(|slot| {
            slot.who.compare_exchange(std::ptr::null_mut(), at, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })?;
        Some(Self { slot, _faults: Arc::clone(faults) })
    }
}

impl Drop for HandlerRegistration {
    fn drop(&mut self) {
        self.slot.who.store(std::ptr::null_mut(), Ordering::SeqCst);
        while self.slot.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// The handler of SIGBUS: whether the touch was of a transparent map that has dealt with it.
pub(super) fn on_fault(touch: FaultAccess) -> bool {
    REGISTRY.iter().any(|slot| {
        if slot.who.load(Ordering::Relaxed).is_null() {
            return false;
        }
        slot.inside.fetch_add(1, Ordering::SeqCst);
        let who = slot.who.load(Ordering::SeqCst);
        // SAFETY: a registration stored it. Its drop empties the slot and then waits until `inside` is zero before it lets go of
        // the handler; this thread counted itself in before it loaded the pointer.
        let done = unsafe { who.as_ref() }.is_some_and(|faults| faults.deal_with(touch));
        slot.inside.fetch_sub(1, Ordering::SeqCst);
        done
    })
}
