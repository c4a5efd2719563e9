//! A file whose lock keeps other processes away.
//!
//! Relies on `flock`, whose lock belongs to the open file and not to the process: a child that was forked meanwhile has the file
//! open, too, and would keep the lock after its owner is done. So the owner unlocks, and does not only close. Nothing here allocates: a
//! forked child locks what it dumps to.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A file that this process has locked. It is unlocked when the value is dropped in the process that locked it.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// A copy of this value in a child must leave the lock to its parent.
    owner: u32,
}

impl LockedFile {
    /// Locks `file` for this process alone.
    ///
    /// # Errors
    /// Another process, or another opening of this one, has the lock; or the file system has no locks.
    pub fn new(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self { file, owner: std::process::id() })
    }
}

/// Whether a lock failed because there are none: the file system doesn't know them, or its server doesn't answer for them (NFS).
pub fn is_unsupported(error: &io::Error) -> bool {
    let numbers = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOLCK, libc::EINVAL, libc::ENOTTY];
    error.raw_os_error().is_some_and(|number| numbers.contains(&number))
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // Closing it does the same where there is no child.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_inherits_the_file_neither_keeps_nor_ends_the_lock() {
        let path = std::env::temp_dir().join(format!("quire-sys-locked-{}", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let locked = LockedFile::new(open()).unwrap();
        // What a fork gives a child: another descriptor of the same opening.
        let inherited = locked.file.try_clone().unwrap();
        let copy = LockedFile { file: locked.file.try_clone().unwrap(), owner: locked.owner + 1 };
        drop(copy);
        assert!(matches!(LockedFile::new(open()), Err(TryLockError::WouldBlock)), "the child's copy ended the lock");
        drop(locked);
        LockedFile::new(open()).unwrap();
        drop(inherited);
        std::fs::remove_file(&path).unwrap();
    }
}
