//! What the next flush of a file owes besides the file's bytes: its name, its length in the directory, its attributes.
//!
//! A file in use has one debt, which is paid by whoever flushes the directory's file first: a program's `fsync`, or the cache,
//! whose flush of the file's bytes then takes it along, so that a new file is flushed once.
//!
//! Relies on one flush of the file making all of it durable ([`quire_device::Device::flush`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::unsynced::Owed;

#[derive(Debug, Default)]
struct State {
    owed: Owed,
    /// A flush that was to pay failed, so nothing about the file is certain any more.
    failed: bool,
}

/// A debt.
#[derive(Debug, Default)]
pub struct Debt {
    state: Mutex<State>,
    /// Held while somebody pays: others who flush wait for that.
    paying: Mutex<()>,
}

impl Debt {
    /// A debt that was there before.
    pub fn new(owed: Owed) -> Self {
        Self { state: Mutex::new(State { owed, failed: false }), paying: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next flush owes this, too.
    pub fn owe(&self, owed: Owed) {
        let mut state = self.state();
        state.owed.always |= owed.always;
        state.owed.attributes |= owed.attributes;
    }

    /// What is owed.
    pub fn owed(&self) -> Owed {
        self.state().owed
    }

    /// Whether a flush has to pay; with `data_only` one that is for bytes, name and length only.
    pub fn is_due(&self, data_only: bool) -> bool {
        let owed = self.owed();
        owed.always || (owed.attributes && !data_only)
    }

    /// Whether a flush that was to pay has failed: no later one may say otherwise.
    pub fn has_failed(&self) -> bool {
        self.state().failed
    }

    /// Pays by `flush` if it is due, after whoever pays now. `None`: there was nothing to pay.
    ///
    /// # Errors
    /// The flush's own; from then on the file is not trusted.
    pub fn pay<E>(&self, data_only: bool, flush: impl FnOnce() -> Result<(), E>) -> Option<Result<(), E>> {
        let _one = self.paying.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.state();
            if !(state.owed.always || state.owed.attributes && !data_only) {
                return None;
            }
            state.owed = Owed::default();
        }
        let result = flush();
        if result.is_err() {
            self.state().failed = true;
            // Should the file be closed and opened again, nothing is taken for durable that isn't.
            self.owe(Owed { always: true, attributes: true });
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Owed = Owed { always: true, attributes: false };
    const ATTRIBUTES: Owed = Owed { always: false, attributes: true };

    #[test]
    fn one_flush_pays_all_and_attributes_wait_for_one_that_is_for_them() {
        let debt = Debt::new(ATTRIBUTES);
        assert!(debt.pay(true, || Ok::<(), ()>(())).is_none() && debt.is_due(false));
        debt.owe(NAME);
        assert_eq!(debt.pay(true, || Ok::<(), ()>(())), Some(Ok(())));
        assert_eq!(debt.owed(), Owed::default());
        assert!(debt.pay(false, || Ok::<(), ()>(())).is_none());
    }

    #[test]
    fn what_comes_during_a_flush_is_owed_still_and_a_failure_is_never_forgotten() {
        let debt = Debt::new(NAME);
        let during = || {
            debt.owe(NAME);
            Ok::<(), ()>(())
        };
        assert_eq!(debt.pay(true, during), Some(Ok(())));
        assert!(debt.is_due(true));
        assert_eq!(debt.pay(true, || Err(())), Some(Err(())));
        assert!(debt.has_failed());
        assert_eq!(debt.owed(), Owed { always: true, attributes: true });
    }
}
