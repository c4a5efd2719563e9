//! Finds the map that a faulting address belongs to, from inside a signal handler.
//!
//! Relies on places that are few and never go. A handler says that it is inside before it looks who is there, so a map that
//! leaves its place knows when the last one is out.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use quire_sys::signal::Touch;

use super::faults::Faults;

/// Most transparent maps at a time.
const PLACES: usize = 64;

struct Place {
    who: AtomicPtr<Faults>,
    inside: AtomicUsize,
}

static PLACES_TAKEN: [Place; PLACES] =
    [const { Place { who: AtomicPtr::new(std::ptr::null_mut()), inside: AtomicUsize::new(0) } }; PLACES];

/// A place; left on drop, after waiting for handlers that are inside.
pub(super) struct Registration {
    place: &'static Place,
    /// What the place points to.
    _faults: Arc<Faults>,
}

impl Registration {
    /// Has faults of the map's range dealt with by `faults`; `None` if there are too many maps.
    pub(super) fn new(faults: &Arc<Faults>) -> Option<Self> {
        let at = Arc::as_ptr(faults).cast_mut();
        let place = PLACES_TAKEN.iter().find(|place| {
            place.who.compare_exchange(std::ptr::null_mut(), at, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })?;
        Some(Self { place, _faults: Arc::clone(faults) })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.place.who.store(std::ptr::null_mut(), Ordering::SeqCst);
        while self.place.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// The handler of SIGBUS: whether the touch was of a transparent map that has dealt with it.
pub(super) fn on_fault(touch: Touch) -> bool {
    PLACES_TAKEN.iter().any(|place| {
        if place.who.load(Ordering::Relaxed).is_null() {
            return false;
        }
        place.inside.fetch_add(1, Ordering::SeqCst);
        let who = place.who.load(Ordering::SeqCst);
        // SAFETY: stored by a registration, which keeps it alive until nobody is inside.
        let done = unsafe { who.as_ref() }.is_some_and(|faults| faults.deal_with(touch));
        place.inside.fetch_sub(1, Ordering::SeqCst);
        done
    })
}
