//! Locks by which one server keeps others away from its files, and a copy of an image keeps servers away.
//!
//! Relies on `LockedFile`: the lock ends with the process, however that ends. Only the empty file stays, which may belong to another
//! user than the server's: to lock it, it need only be readable.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quire_sys::locked_file::{LockedFile, is_unsupported};

use crate::config::Config;
use crate::file_identity::FileIdentity;

/// Images have names of their own, the log has not: there is one in a directory, so only one server may replay it and write to it.
const LOG_LOCK: &str = ".quire-log.lock";

/// A lock that this process has, shared by all that need it: a save keeps the lock of its place when the configuration names another
/// place meanwhile.
#[derive(Clone, Debug)]
pub struct SharedLock {
    _locked: Arc<LockedFile>,
    identity: FileIdentity,
    /// Of the directory in which it was taken.
    directory: Option<FileIdentity>,
}

impl SharedLock {
    /// Whether this is the lock of the log in `dir`.
    pub fn is_of_log(&self, dir: &Path) -> bool {
        self.is_at(&dir.join(LOG_LOCK))
    }

    /// Whether it was taken in the directory that `dir` is now: its file may have been removed there since.
    pub fn was_taken_in(&self, dir: &Path) -> bool {
        self.directory.is_some() && FileIdentity::at(dir) == self.directory
    }

    fn is_at(&self, path: &Path) -> bool {
        FileIdentity::at(path) == Some(self.identity)
    }
}

/// Why there is no lock.
#[derive(Debug)]
enum LockError {
    /// Another server has it.
    Taken,
    /// It is there and can't be opened or locked, so that nothing is known of other servers.
    Unreadable(io::Error),
}

/// What came of taking a lock that no other process has.
#[derive(Debug)]
enum Lock {
    /// This process has it.
    Held(SharedLock),
    /// No such file is or can be made, so nothing there can be written anyway.
    NoPlace,
    /// The file system has no locks: nothing keeps other processes away.
    Unsupported(io::Error),
}

impl Lock {
    /// The lock of a server. Where there can't be one it goes on without, and says so.
    fn of_server(self, path: &Path) -> Option<SharedLock> {
        match self {
            Self::Held(locked) => Some(locked),
            Self::NoPlace => None,
            Self::Unsupported(error) => {
                tracing::warn!(
                    file = %path.display(), %error,
                    "this file system has no locks, so nothing keeps another server from these files: see to it that none uses them"
                );
                None
            }
        }
    }
}

/// `open` follows no link (`<fcntl.h>`).
const O_NOFOLLOW: i32 = 0o400_000;

/// A lock's file may be removed between opening and locking it that often: each time the next one is tried.
const ATTEMPTS: usize = 100;

/// Takes the lock `path`.
fn take(path: &Path) -> Result<Lock, LockError> {
    take_watched(path, || ())
}

/// The same; `opened` is called between opening the file and locking it.
fn take_watched(path: &Path, mut opened: impl FnMut()) -> Result<Lock, LockError> {
    for _ in 0..ATTEMPTS {
        let lock = take_once(path, &mut opened)?;
        // The lock of a file that was removed meanwhile keeps no process away that makes another one.
        if !matches!(&lock, Lock::Held(held) if !held.is_at(path)) {
            return Ok(lock);
        }
    }
    Err(LockError::Unreadable(io::Error::other("its file is removed again and again")))
}

fn take_once(path: &Path, opened: &mut impl FnMut()) -> Result<Lock, LockError> {
    // It is not held open for writing, which would keep a file system from being made read-only.
    // Nor is a link followed: in a directory of others it could lead to any file that the user may change.
    let options = || File::options().custom_flags(O_NOFOLLOW).to_owned();
    let made = options().create(true).append(true).open(path).map(drop);
    let file = match (options().read(true).open(path), made) {
        (Ok(file), _) => file,
        (Err(error), Err(_)) if error.kind() == ErrorKind::NotFound => return Ok(Lock::NoPlace),
        (Err(error), _) => return Err(LockError::Unreadable(error)),
    };
    let identity = FileIdentity::of(&file).map_err(LockError::Unreadable)?;
    opened();
    match LockedFile::new(file) {
        Ok(locked) => {
            let directory = path.parent().and_then(FileIdentity::at);
            Ok(Lock::Held(SharedLock { _locked: Arc::new(locked), identity, directory }))
        }
        Err(TryLockError::WouldBlock) => Err(LockError::Taken),
        Err(TryLockError::Error(error)) if is_unsupported(&error) => Ok(Lock::Unsupported(error)),
        Err(TryLockError::Error(error)) => Err(LockError::Unreadable(error)),
    }
}

fn image_lock(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.lock"))
}

/// Keeps servers and other copies from a place that an image is copied to.
#[derive(Debug)]
pub struct CopyLock {
    image: Lock,
    log: Lock,
}

impl CopyLock {
    /// Takes the locks that a server takes which saves to the image `name` in `dir`, or logs there.
    ///
    /// # Errors
    /// In words for people: a server or another copy has one of them, or it can't be read.
    pub fn take(dir: &Path, name: &str) -> Result<Self, String> {
        let locked = |path: &Path| {
            take(path).map_err(|refused| match refused {
                LockError::Taken => format!(
                    "a server uses {}, or another copy is being written there: choose another directory",
                    dir.join(name).display()
                ),
                LockError::Unreadable(error) => {
                    format!("cannot tell whether a server uses {}: {}: {error}", dir.display(), path.display())
                }
            })
        };
        Ok(Self { image: locked(&image_lock(dir, name))?, log: locked(&dir.join(LOG_LOCK))? })
    }

    /// Whether nothing else writes to the place as long as this is held.
    pub fn is_alone(&self) -> bool {
        matches!((&self.image, &self.log), (Lock::Held(_), Lock::Held(_)))
    }

    /// Why other processes are not kept away, where the file system has no locks.
    pub fn unsupported(&self) -> Option<&io::Error> {
        [&self.image, &self.log].into_iter().find_map(|lock| match lock {
            Lock::Unsupported(error) => Some(error),
            Lock::Held(_) | Lock::NoPlace => None,
        })
    }
}

/// Takes the lock on the image that `config` names: another server that saves there would put its own data over this one's.
///
/// # Errors
/// In words for people.
pub fn of_image(config: &Config) -> Result<Option<SharedLock>, String> {
    of_image_or_held(config, [])
}

/// The same for a server that has the locks `held`: by another opening of the file it would keep itself away.
///
/// # Errors
/// In words for people.
pub fn of_image_or_held<'l>(
    config: &Config,
    held: impl IntoIterator<Item = &'l SharedLock>,
) -> Result<Option<SharedLock>, String> {
    let path = image_lock(&config.dir, &config.dbfilename);
    if let Some(lock) = held.into_iter().find(|lock| lock.is_at(&path)) {
        return Ok(Some(lock.clone()));
    }
    let taken = take(&path).map_err(|refused| match refused {
        LockError::Taken => format!(
            "another server uses the image {}, or a copy is being written there; choose another place with --dir or another name with \
             --dbfilename",
            config.image_path().display()
        ),
        LockError::Unreadable(error) => format!(
            "cannot tell whether another server uses the image: {}: {error}; run as the user whose file that is",
            path.display()
        ),
    });
    Ok(taken?.of_server(&path))
}

/// Takes the lock on the log of a directory; `None` where nothing can be written, so that no server can write a log either.
///
/// # Errors
/// In words for people: another server has it, or the lock can't be read.
pub fn of_log(config: &Config) -> Result<Option<SharedLock>, String> {
    of_log_or_held(&config.dir, None)
}

/// The same for a server that has the lock `held` on a log.
///
/// # Errors
/// As [`of_log`].
pub fn of_log_or_held(dir: &Path, held: Option<&SharedLock>) -> Result<Option<SharedLock>, String> {
    if let Some(lock) = held.filter(|lock| lock.is_of_log(dir)) {
        return Ok(Some(lock.clone()));
    }
    let path = dir.join(LOG_LOCK);
    let taken = take(&path).map_err(|refused| match refused {
        LockError::Taken => format!(
            "another server has its log of writes in {}; a directory holds one log, whatever --dbfilename says: choose \
             another directory with --dir",
            dir.display()
        ),
        LockError::Unreadable(error) => format!(
            "cannot tell whether another server has the log: {}: {error}; run as the user whose file that is",
            path.display()
        ),
    });
    Ok(taken?.of_server(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_file_is_removed_while_it_is_taken_is_that_of_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mut removals = 0;
        let lock = take_watched(&path, || {
            if removals < 2 {
                removals += 1;
                std::fs::remove_file(&path).unwrap();
            }
        });
        assert!(matches!(&lock, Ok(Lock::Held(held)) if held.is_at(&path)), "{lock:?}");
        assert!(matches!(take(&path), Err(LockError::Taken)), "it keeps others away");
        let endless =
            take_watched(&dir.path().join("other"), || std::fs::remove_file(dir.path().join("other")).unwrap());
        assert!(matches!(endless, Err(LockError::Unreadable(_))));
    }
}
