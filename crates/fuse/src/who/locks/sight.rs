//! Looks at a thread: does it sleep on the lock of one of the mount's files?
//!
//! Relies on `/proc` and on being allowed to look, as root is. Never asks the mount itself, which may be what the thread
//! waits for. Another mount of the same directory elsewhere (a container's) is the same file system, so its number tells.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use quire_sys::{at, task};

use crate::who::judge::{Caller, Judge};

/// What was seen of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It does something else.
    Elsewhere,
    /// It sleeps in a call that takes the lock of the mount's file with this number.
    AtFile(u64),
    /// It is gone.
    Gone,
    /// The system doesn't tell this process.
    Refused,
}

/// Looks at threads.
pub trait Sight: Send + Sync {
    /// What a thread does now.
    fn look(&self, thread: u32) -> Seen;
    /// Who it is.
    fn caller(&self, thread: u32) -> Caller;
}

/// As the system tells it.
pub struct Proc {
    judge: Arc<Judge>,
    mount_point: PathBuf,
    /// Number of the mount's file system, once there is one.
    device: OnceLock<u64>,
}

impl Proc {
    /// For what is, or will be, mounted there.
    ///
    /// # Errors
    /// The system doesn't even tell about this thread.
    pub fn new(judge: Arc<Judge>, mount_point: &Path) -> io::Result<Self> {
        task::file_lock_call(std::process::id())?;
        Ok(Self { judge, mount_point: mount_point.to_owned(), device: OnceLock::new() })
    }

    fn device(&self) -> Option<u64> {
        if let Some(device) = self.device.get() {
            return Some(*device);
        }
        let (device, _) = at::numbers_of(&self.mount_point).ok()?;
        Some(*self.device.get_or_init(|| device))
    }
}

impl Sight for Proc {
    fn look(&self, thread: u32) -> Seen {
        let found = task::file_lock_call(thread).and_then(|call| match call {
            Some(descriptor) => task::file_behind(thread, descriptor).map(Some),
            None => Ok(None),
        });
        match found {
            Ok(Some((device, file))) if Some(device) == self.device() => Seen::AtFile(file),
            Ok(_) => Seen::Elsewhere,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Seen::Refused,
            // Or its descriptor is, which it will show when it is looked at again.
            Err(_) if task::identity(thread).is_none() => Seen::Gone,
            Err(_) => Seen::Elsewhere,
        }
    }

    fn caller(&self, thread: u32) -> Caller {
        self.judge.of(thread, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::who::rules::Rules;

    #[test]
    fn threads_that_do_something_else_and_those_that_are_gone_are_told_apart() {
        let judge = Arc::new(Judge::new(Rules::default(), &[], false));
        let Ok(sight) = Proc::new(judge, Path::new("/")) else { return };
        assert_eq!(sight.look(std::process::id()), Seen::Elsewhere);
        assert_eq!(sight.look(u32::MAX >> 1), Seen::Gone);
    }
}
