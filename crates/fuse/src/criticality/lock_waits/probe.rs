//! Looks at a thread: does it sleep on the lock of one of the mount's files?
//!
//! Relies on `/proc` and on being allowed to look, as root is. Never asks the mount itself, which may be what the thread
//! waits for. Another mount of the same directory elsewhere (a container's) is the same file system, so its number tells.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use quire_sys::{at, task};

use crate::criticality::classifier::{Classifier, RequestTask};

/// What was seen of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
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
pub trait ThreadProbe: Send + Sync {
    /// What a thread does now.
    fn look(&self, thread: u32) -> ProbeResult;
    /// Who it is.
    fn caller(&self, thread: u32) -> RequestTask;
}

/// As the system tells it.
pub struct ProcProbe {
    classifier: Arc<Classifier>,
    mount_point: PathBuf,
    /// Number of the mount's file system, once there is one.
    device: OnceLock<u64>,
}

impl ProcProbe {
    /// For what is, or will be, mounted there.
    ///
    /// # Errors
    /// The system doesn't even tell about this thread.
    pub fn new(classifier: Arc<Classifier>, mount_point: &Path) -> io::Result<Self> {
        task::file_lock_call(std::process::id())?;
        Ok(Self { classifier, mount_point: mount_point.to_owned(), device: OnceLock::new() })
    }

    fn device(&self) -> Option<u64> {
        if let Some(device) = self.device.get() {
            return Some(*device);
        }
        let (device, _) = at::numbers_of(&self.mount_point).ok()?;
        Some(*self.device.get_or_init(|| device))
    }
}

impl ThreadProbe for ProcProbe {
    fn look(&self, thread: u32) -> ProbeResult {
        let found = task::file_lock_call(thread).and_then(|call| match call {
            Some(descriptor) => task::file_behind(thread, descriptor).map(Some),
            None => Ok(None),
        });
        match found {
            Ok(Some((device, file))) if Some(device) == self.device() => ProbeResult::AtFile(file),
            Ok(_) => ProbeResult::Elsewhere,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => ProbeResult::Refused,
            // Or its descriptor is, which it will show when it is looked at again.
            Err(_) if task::identity(thread).is_none() => ProbeResult::Gone,
            Err(_) => ProbeResult::Elsewhere,
        }
    }

    fn caller(&self, thread: u32) -> RequestTask {
        self.classifier.classify(thread, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::criticality::rules::CriticalityRules;

    #[test]
    fn threads_that_do_something_else_and_those_that_are_gone_are_told_apart() {
        let classifier = Arc::new(Classifier::new(CriticalityRules::default(), &[], false));
        let Ok(probe) = ProcProbe::new(classifier, Path::new("/")) else { return };
        assert_eq!(probe.look(std::process::id()), ProbeResult::Elsewhere);
        assert_eq!(probe.look(u32::MAX >> 1), ProbeResult::Gone);
    }
}
