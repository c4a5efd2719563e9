//! The lock on the log of a directory. Images have names of their own, the log has not: there is one in a directory, so only
//! one server may replay it and write to it.
//!
//! Relies on the lock ending with the process, however that ends. Only the empty file stays.

use std::fs::{File, TryLockError};

use crate::config::Config;

/// Its name.
const NAME: &str = ".quire-log.lock";

/// Takes the lock; `None` where nothing can be written, so that nobody can write a log either.
///
/// # Errors
/// In words for people: another server has it.
pub fn take(config: &Config) -> Result<Option<File>, String> {
    let path = config.dir.join(NAME);
    // It is not held open for writing, which would keep a file system from being made read-only.
    let made = File::options().create(true).append(true).open(&path).map(drop);
    let Ok(file) = made.and_then(|()| File::open(&path)) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another server has its log of writes in {}; a directory holds one log, whatever --dbfilename says: choose \
             another directory with --dir",
            config.dir.display()
        )),
        Err(TryLockError::Error(error)) => {
            tracing::warn!(%error, "cannot lock the log; no other server may use this directory");
            Ok(None)
        }
    }
}
