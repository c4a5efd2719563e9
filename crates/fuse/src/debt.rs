//! What the next flush of a file owes besides the file's bytes: its name, its length in the directory, its attributes.
//!
//! A file in use has one debt, which is paid by whoever flushes the directory's file first: a program's `fsync`, or the cache,
//! whose flush of the file's bytes then takes it along, so that a new file is flushed once.
//!
//! A flush that fails is part of the debt until a program's `fsync` has told it: a flush that no program asked for (by the
//! cache, the janitor) must not take the failure away.
//!
//! Relies on one flush of the file making all of it durable ([`quire_device::Device::flush`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::unsynced::Owed;

/// Whether flushes have done what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// They have.
    #[default]
    Sound,
    /// One failed, so nothing about the file is certain any more, and no program knows.
    Untold,
    /// One failed, and a program was told.
    Told,
}

#[derive(Debug, Default)]
struct State {
    owed: Owed,
    trust: Trust,
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
        let trust = if owed.failure { Trust::Untold } else { Trust::Sound };
        Self { state: Mutex::new(State { owed: Owed { failure: false, ..owed }, trust }), paying: Mutex::default() }
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

    /// What is owed, a failure that no program was told of included.
    pub fn owed(&self) -> Owed {
        let state = self.state();
        Owed { failure: state.trust == Trust::Untold, ..state.owed }
    }

    /// Whether a flush has to pay; with `data_only` one that is for bytes, name and length only.
    pub fn is_due(&self, data_only: bool) -> bool {
        let owed = self.owed();
        owed.always || (owed.attributes && !data_only)
    }

    /// Whether a flush that was to pay has failed: no later one may say otherwise.
    pub fn has_failed(&self) -> bool {
        self.state().trust != Trust::Sound
    }

    /// A program is told now that the file can't be trusted.
    pub fn tell(&self) {
        let mut state = self.state();
        if state.trust == Trust::Untold {
            state.trust = Trust::Told;
        }
    }

    fn fail(&self) {
        self.state().trust = Trust::Untold;
        // Should the file be closed and opened again, nothing is taken for durable that isn't.
        self.owe(Owed::ALL);
    }

    /// Asks by `look` whether something was lost that lay in the directory's file, after the thread that pays now. The system tells each
    /// opening of a file once, so no other thread may ask meanwhile.
    ///
    /// # Errors
    /// Something was; from then on the file is not trusted.
    pub fn check<E>(&self, look: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _one = self.paying.lock().unwrap_or_else(PoisonError::into_inner);
        look().inspect_err(|_| self.fail())
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
            self.fail();
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_pays_all_and_attributes_wait_for_one_that_is_for_them() {
        let debt = Debt::new(Owed::ATTRIBUTES);
        assert!(debt.pay(true, || Ok::<(), ()>(())).is_none() && debt.is_due(false));
        debt.owe(Owed::NAME);
        assert_eq!(debt.pay(true, || Ok::<(), ()>(())), Some(Ok(())));
        assert_eq!(debt.owed(), Owed::default());
        assert!(debt.pay(false, || Ok::<(), ()>(())).is_none());
    }

    #[test]
    fn what_comes_during_a_flush_is_owed_still_and_a_failure_is_never_forgotten() {
        let debt = Debt::new(Owed::NAME);
        let during = || {
            debt.owe(Owed::NAME);
            Ok::<(), ()>(())
        };
        assert_eq!(debt.pay(true, during), Some(Ok(())));
        assert!(debt.is_due(true));
        assert_eq!(debt.pay(true, || Err(())), Some(Err(())));
        assert!(debt.has_failed());
        assert_eq!(debt.owed(), Owed { failure: true, ..Owed::ALL });
    }

    #[test]
    fn a_failure_goes_on_to_the_next_who_opens_the_file_until_a_program_was_told() {
        let debt = Debt::default();
        debt.tell();
        assert!(!debt.has_failed(), "there was nothing to tell");
        assert_eq!(debt.check(|| Err(())), Err(()));
        let next = Debt::new(debt.owed());
        assert!(next.has_failed());
        next.tell();
        assert!(next.has_failed(), "who has it open is told each time");
        assert!(!Debt::new(next.owed()).has_failed());
        assert_eq!(next.pay(true, || Err(())), Some(Err(())));
        assert!(Debt::new(next.owed()).has_failed(), "that is another failure");
    }
}
