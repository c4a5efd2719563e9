//! The open file behind a device and its queues, and what became of it.
//!
//! Relies on nothing. A file whose flush or durable write failed is poisoned: it refuses further writes.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use quire_sys::rw::RwFlags;
use quire_sys::transfer::{Direction, Transfer, TransferError};

use crate::error::{DeviceError, DeviceOperation};
use crate::poison::Poison;

/// A file that transfers are made on, how, and the error that poisoned it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) name: String,
    pub(crate) file: Arc<File>,
    /// Wishes about every transfer.
    pub(crate) flags: RwFlags,
    pub(crate) poison: Poison,
    /// Held while the system is asked whether all has arrived: it tells of a failure once, to the thread that asks first.
    syncing: Mutex<()>,
}

impl OpenFile {
    pub(crate) fn new(name: String, file: File, flags: RwFlags) -> Self {
        Self { name, file: Arc::new(file), flags, poison: Poison::default(), syncing: Mutex::default() }
    }

    /// Does `work`, which makes what was written durable, unless the file was given up; gives it up if `work` fails. One at a
    /// time, so that no thread takes for success a failure that another thread was told of.
    pub(crate) fn make_durable(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.poison.check()?;
        work().map_err(|error| self.poison.set(error))
    }

    /// The error of a transfer on this file.
    pub(crate) fn error(&self, direction: Direction, error: &TransferError) -> DeviceError {
        let action = match direction {
            Direction::Read => DeviceOperation::Read,
            Direction::Write => DeviceOperation::Write,
        };
        DeviceError::new(action, &self.name, &error.source).at(error.offset, error.len as u64)
    }

    /// Moves a transfer in the calling thread.
    pub(crate) fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.direction == Direction::Write {
            self.poison.check()?;
        }
        transfer.run(&self.file, self.flags).map_err(|error| self.error(transfer.direction, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno;

    #[test]
    fn of_two_who_make_durable_at_a_time_both_hear_of_a_failure_that_is_told_once() {
        let target = OpenFile::new("null".into(), File::open("/dev/null").unwrap(), RwFlags::NONE);
        let target = &target;
        let failure = || DeviceError::from_errno(DeviceOperation::Flush, "null", errno::EIO);
        let (first, second) = std::thread::scope(|threads| {
            let mut second = None;
            let first = target.make_durable(|| {
                // Comes while the first is at it; the system has nothing to tell the second.
                second = Some(threads.spawn(move || target.make_durable(|| Ok(()))));
                std::thread::sleep(std::time::Duration::from_millis(5));
                Err(failure())
            });
            (first, second.map(|second| second.join().unwrap()))
        });
        assert_eq!((first, second), (Err(failure()), Some(Err(failure()))));
        assert_eq!(target.make_durable(|| Ok(())), Err(failure()));
    }
}
