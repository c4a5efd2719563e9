//! What the next flush of a file has to make durable besides the file's bytes: its name, its length in the directory, its
//! attributes.
//!
//! A file in use has one pending sync. The thread that flushes the directory's file first does it: for a program's `fsync`,
//! or for the cache, whose flush of the file's bytes takes it along, so that a new file is flushed once.
//!
//! An error of a flush stays here until a program's `fsync` has returned it, as in the kernel's `errseq_t`: a flush that no
//! program asked for (by the cache, by the background flusher) must not take the error away.
//!
//! Relies on one flush of the file making all of it durable ([`quire_device::Device::flush`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::dirty_inodes::DirtyFlags;

/// Whether flushes have done what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WritebackError {
    /// They have.
    #[default]
    None,
    /// One failed, so nothing about the file is certain any more, and no program knows.
    Unreported,
    /// One failed, and a program was told.
    Reported,
}

#[derive(Debug, Default)]
struct State {
    dirty: DirtyFlags,
    error: WritebackError,
}

/// The pending sync of a file.
#[derive(Debug, Default)]
pub struct PendingSync {
    state: Mutex<State>,
    /// Held during the flush: other threads that flush the file wait for its end.
    flushing: Mutex<()>,
}

impl PendingSync {
    /// With what was dirty before.
    pub fn new(dirty: DirtyFlags) -> Self {
        let error = if dirty.error { WritebackError::Unreported } else { WritebackError::None };
        Self {
            state: Mutex::new(State { dirty: DirtyFlags { error: false, ..dirty }, error }),
            flushing: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next flush has to make this durable, too.
    pub fn mark_dirty(&self, dirty: DirtyFlags) {
        let mut state = self.state();
        state.dirty.datasync |= dirty.datasync;
        state.dirty.sync |= dirty.sync;
    }

    /// What is dirty, an error that no program was told of included.
    pub fn dirty(&self) -> DirtyFlags {
        let state = self.state();
        DirtyFlags { error: state.error == WritebackError::Unreported, ..state.dirty }
    }

    /// Whether a flush has anything to do here; with `data_only` a flush that is for bytes, name and length only.
    pub fn is_pending(&self, data_only: bool) -> bool {
        let dirty = self.dirty();
        dirty.datasync || (dirty.sync && !data_only)
    }

    /// Whether a flush has failed: no later flush may say otherwise.
    pub fn has_failed(&self) -> bool {
        self.state().error != WritebackError::None
    }

    /// A program is told now that the file can't be trusted.
    pub fn reported(&self) {
        let mut state = self.state();
        if state.error == WritebackError::Unreported {
            state.error = WritebackError::Reported;
        }
    }

    fn note_failure(&self) {
        self.state().error = WritebackError::Unreported;
        // Should the file be closed and opened again, nothing is taken for durable that isn't.
        self.mark_dirty(DirtyFlags::ALL);
    }

    /// Asks by `look` whether the system has lost bytes of the directory's file, after a flush that another thread does
    /// now. The system tells each opening of a file once, so no other thread may ask meanwhile.
    ///
    /// # Errors
    /// Something was; from then on the file is not trusted.
    pub fn check<E>(&self, look: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        look().inspect_err(|_| self.note_failure())
    }

    /// Flushes by `flush` if anything is dirty, after a flush that another thread does now. `None`: nothing was dirty.
    ///
    /// # Errors
    /// The flush's own; from then on the file is not trusted.
    pub fn flush<E>(&self, data_only: bool, flush: impl FnOnce() -> Result<(), E>) -> Option<Result<(), E>> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.state();
            if !(state.dirty.datasync || state.dirty.sync && !data_only) {
                return None;
            }
            state.dirty = DirtyFlags::default();
        }
        let result = flush();
        if result.is_err() {
            self.note_failure();
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_covers_all_and_attributes_wait_for_one_that_is_for_them() {
        let pending_sync = PendingSync::new(DirtyFlags::SYNC);
        assert!(pending_sync.flush(true, || Ok::<(), ()>(())).is_none() && pending_sync.is_pending(false));
        pending_sync.mark_dirty(DirtyFlags::DATASYNC);
        assert_eq!(pending_sync.flush(true, || Ok::<(), ()>(())), Some(Ok(())));
        assert_eq!(pending_sync.dirty(), DirtyFlags::default());
        assert!(pending_sync.flush(false, || Ok::<(), ()>(())).is_none());
    }

    #[test]
    fn what_comes_during_a_flush_stays_dirty_and_a_failure_is_never_forgotten() {
        let pending_sync = PendingSync::new(DirtyFlags::DATASYNC);
        let during = || {
            pending_sync.mark_dirty(DirtyFlags::DATASYNC);
            Ok::<(), ()>(())
        };
        assert_eq!(pending_sync.flush(true, during), Some(Ok(())));
        assert!(pending_sync.is_pending(true));
        assert_eq!(pending_sync.flush(true, || Err(())), Some(Err(())));
        assert!(pending_sync.has_failed());
        assert_eq!(pending_sync.dirty(), DirtyFlags { error: true, ..DirtyFlags::ALL });
    }

    #[test]
    fn a_failure_goes_on_to_the_next_who_opens_the_file_until_a_program_was_told() {
        let pending_sync = PendingSync::default();
        pending_sync.reported();
        assert!(!pending_sync.has_failed(), "there was nothing to tell");
        assert_eq!(pending_sync.check(|| Err(())), Err(()));
        let next = PendingSync::new(pending_sync.dirty());
        assert!(next.has_failed());
        next.reported();
        assert!(next.has_failed(), "who has it open is told each time");
        assert!(!PendingSync::new(next.dirty()).has_failed());
        assert_eq!(next.flush(true, || Err(())), Some(Err(())));
        assert!(PendingSync::new(next.dirty()).has_failed(), "that is another failure");
    }
}
