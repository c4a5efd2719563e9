//! The lock on the log of a directory. Images have names of their own, the log has not: there is one in a directory, so only
//! one server may replay it and write to it.
//!
//! Relies on `lock_file`.

use quire_sys::locked_file::LockedFile;

use crate::config::Config;
use crate::lock_file::{self, LockError};

/// Its name.
const NAME: &str = ".quire-log.lock";

/// Takes the lock; `None` where nothing can be written, so that no server can write a log either.
///
/// # Errors
/// In words for people: another server has it, or the lock can't be read.
pub fn take(config: &Config) -> Result<Option<LockedFile>, String> {
    let path = config.dir.join(NAME);
    lock_file::take(&path).map_err(|refused| match refused {
        LockError::Taken => format!(
            "another server has its log of writes in {}; a directory holds one log, whatever --dbfilename says: choose \
             another directory with --dir",
            config.dir.display()
        ),
        LockError::Unreadable(error) => format!(
            "cannot tell whether another server has the log: {}: {error}; run as the user whose file that is",
            path.display()
        ),
    })
}
