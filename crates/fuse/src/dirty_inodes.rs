//! Files whose names, lengths or permissions were changed and have not been made durable since, while no program has them
//! open; and files of which bytes are lost without a program having been told.
//!
//! A later `fsync` must make the former durable, too, and return the error of the latter. Relies on inode numbers, and on
//! being told ([`DirtyInodes::forget`]) when one is used again.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Most files that are remembered.
const MOST: usize = 100_000;

/// What a flush of a file must bring to the slow device besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyFlags {
    /// Its name or length: every flush (the kernel's `I_DIRTY_DATASYNC`).
    pub datasync: bool,
    /// Permissions, owner, times, attributes: flushes that are not for data only (`I_DIRTY_SYNC`).
    pub sync: bool,
    /// A failure: a flush that no program waited for lost bytes, and no program has been told.
    pub error: bool,
}

impl DirtyFlags {
    /// The name or the length.
    pub const DATASYNC: Self = Self { datasync: true, sync: false, error: false };
    /// What is known about the file besides name and length.
    pub const SYNC: Self = Self { datasync: false, sync: true, error: false };
    /// Both.
    pub const ALL: Self = Self { datasync: true, sync: true, error: false };
}

#[derive(Debug, Default)]
struct State {
    datasync: HashSet<u64>,
    sync: HashSet<u64>,
    /// Never too many to be kept: each is a failure of the device.
    errors: HashSet<u64>,
    /// There were too many: everything counts as dirty about every file.
    overflowed: bool,
}

/// The files.
#[derive(Debug, Default)]
pub struct DirtyInodes {
    state: Mutex<State>,
}

impl DirtyInodes {
    /// Something is dirty about a file that its last user has closed, or that was changed without being open.
    pub fn note(&self, ino: u64, dirty: DirtyFlags) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if dirty.datasync {
            state.datasync.insert(ino);
        }
        if dirty.sync {
            state.sync.insert(ino);
        }
        if dirty.error {
            state.errors.insert(ino);
        }
        if state.datasync.len() + state.sync.len() > MOST {
            state.datasync.clear();
            state.sync.clear();
            state.overflowed = true;
        }
    }

    /// What is dirty about the file; from now on its [`Inode`](crate::inodes::Inode) keeps that.
    pub fn take(&self, ino: u64) -> DirtyFlags {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (datasync, sync) = (state.datasync.remove(&ino), state.sync.remove(&ino));
        let error = state.errors.remove(&ino);
        DirtyFlags { datasync: datasync || state.overflowed, sync: sync || state.overflowed, error }
    }

    /// The file with this inode number is gone: nothing of it is dirty about the next file that gets the number.
    pub fn forget(&self, ino: u64) {
        self.take(ino);
    }

    /// Inode numbers of the files of which bytes are lost without a program having been told, in order.
    pub fn errors(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut errors: Vec<u64> = state.errors.iter().copied().collect();
        errors.sort_unstable();
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dirty_is_told_once_and_never_forgotten() {
        let dirty_inodes = DirtyInodes::default();
        dirty_inodes.note(1, DirtyFlags::DATASYNC);
        assert_eq!(dirty_inodes.take(1), DirtyFlags::DATASYNC);
        assert_eq!(dirty_inodes.take(1), DirtyFlags::default());
        dirty_inodes.note(7, DirtyFlags { error: true, ..DirtyFlags::DATASYNC });
        for ino in 0..=MOST as u64 {
            dirty_inodes.note(ino, DirtyFlags::SYNC);
        }
        assert_eq!(dirty_inodes.take(5), DirtyFlags::ALL);
        assert_eq!(dirty_inodes.errors(), [7]);
        assert_eq!(dirty_inodes.take(7), DirtyFlags { error: true, ..DirtyFlags::ALL });
        assert_eq!(dirty_inodes.take(7), DirtyFlags::ALL);
    }

    #[test]
    fn nothing_is_dirty_about_a_new_file_of_the_one_that_had_its_number() {
        let dirty_inodes = DirtyInodes::default();
        dirty_inodes.note(1, DirtyFlags { error: true, ..DirtyFlags::ALL });
        dirty_inodes.forget(1);
        assert_eq!((dirty_inodes.take(1), dirty_inodes.errors().len()), (DirtyFlags::default(), 0));
    }
}
