//! A file of the directory as a slow device that keeps the file's time of writing, and whose flushes pay the file's debt.
//!
//! Bytes reach the file long after a program wrote them, and each time the system sets the file's time to the present. So
//! the time that programs are to see is kept here ([`Times`]) and put back after every such write; a program that sets a
//! time (`tar`, `rsync`) keeps it although bytes it wrote before arrive later.
//!
//! What is written goes on to the device at once ([`write_out`]): else a flush, of any file, would find the file system's journal
//! behind all the pages that lie about, and everybody who waits for a flush would wait for those.
//!
//! Relies on a device of `quire-device` for the bytes.

use std::fs::File;
use std::sync::Arc;

use quire_device::{Action, Device, DeviceError, Direction, Layer, LayeredDevice, Transfer};
use quire_sys::at::{self, AccessMode};
use quire_sys::file::write_out;

use crate::bodies::Body;
use crate::debt::Debt;
use crate::privileges::Privileges;
use crate::times::Times;

/// What is different about a file of the directory.
pub struct Backing {
    file: Arc<File>,
    times: Arc<Times>,
    privileges: Arc<Privileges>,
    debt: Arc<Debt>,
}

impl Backing {
    /// A device on `inner`, which is the body's file.
    pub fn over(inner: Arc<dyn Device>, body: &Body) -> Arc<dyn Device> {
        let (file, times) = (Arc::clone(&body.file), Arc::clone(&body.times));
        let (privileges, debt) = (Arc::clone(&body.privileges), Arc::clone(&body.debt));
        LayeredDevice::new(inner, Self { file, times, privileges, debt })
    }

    /// Puts back what a late write has changed about the file besides its bytes.
    fn restore(&self, inner: &dyn Device) {
        if let Err(error) = self.privileges.restore(&self.file) {
            tracing::error!(%error, file = inner.name(), "a late write took the file's capabilities or set-id bits away");
        }
        self.times.restore(&self.file);
    }
}

/// Has the system write a transfer's bytes out. The system tells each opening of a file once of bytes that it lost, also of
/// those that another opening wrote. `hearer` was opened before these were written and belongs to this job alone. So no other
/// job takes their failure away, nor does this from a flush.
fn write_through(inner: &dyn Device, transfer: &Transfer, hearer: &File) -> Result<(), DeviceError> {
    let Some(first) = transfer.extents.iter().map(|extent| extent.offset).min() else { return Ok(()) };
    let end = transfer.extents.iter().map(|extent| extent.offset + extent.len as u64).max().unwrap_or(first);
    let told = |error| DeviceError::new(Action::Write, inner.name(), &error).at(first, end - first);
    write_out(hearer, first, end - first).map_err(told)
}

impl Layer for Backing {
    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        let result = inner.set_len(len);
        self.restore(inner);
        result
    }

    fn allocate(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        let result = inner.allocate(len);
        self.restore(inner);
        result
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.direction != Direction::Write {
            return inner.run(transfer);
        }
        // Where it can't be opened again, the next flush tells of failures.
        let hearer = at::open(&self.file, AccessMode::Read);
        let result = inner.run(transfer);
        self.restore(inner);
        result.and_then(|()| hearer.map_or(Ok(()), |hearer| write_through(inner, transfer, &hearer)))
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let result = inner.write_durable(transfer);
        self.restore(inner);
        result
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        let paid = self.debt.pay(false, || inner.flush());
        paid.unwrap_or_else(|| inner.flush())
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        let paid = self.debt.pay(true, || {
            self.times.tell(&self.file, true);
            inner.flush()
        });
        paid.unwrap_or_else(|| inner.flush_data())
    }

    fn as_file<'d>(&self, _inner: &'d dyn Device) -> Option<&'d File> {
        // Stores to a mapping would pass the times and the debt by.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unsynced::Owed;
    use std::time::{Duration, SystemTime};

    use quire_device::{Buffer, CacheMode, Extent, IoEngine, of_file};

    #[test]
    fn bytes_that_arrive_late_leave_the_time_that_a_program_set() {
        let body = Body::new(1, tempfile::tempfile().unwrap(), true, Owed::default());
        let (file, times) = (&body.file, &body.times);
        let inner = of_file("file", file.try_clone().unwrap(), CacheMode::Buffered, IoEngine::Threads);
        let device = Backing::over(inner, &body);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        times.set(old);
        let extents = vec![Extent { offset: 0, start: 0, len: 4096 }];
        let buffer = Buffer::new(4096).unwrap();
        device.run(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 }).unwrap();
        assert_eq!(at::facts(&**file).unwrap().modified, old);
        times.touch();
        times.tell(file, true);
        assert!(at::facts(&**file).unwrap().modified > old);
    }
}
