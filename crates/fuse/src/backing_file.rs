//! A file of the directory as a slow device that keeps the file's time of writing, and whose flushes do the file's pending
//! sync.
//!
//! Bytes reach the file long after a program wrote them, and each time the system sets the file's time to the present. So
//! the time that programs are to see is kept here ([`FileTimes`]) and put back after every such write; a program that sets a
//! time (`tar`, `rsync`) keeps it although bytes it wrote before arrive later.
//!
//! What is written goes on to the device at once ([`write_out`]): else a flush, of any file, would find the file system's
//! journal behind all the pages that lie about, and every thread that waits for a flush would wait for those.
//!
//! Relies on a device of `quire-device` for the bytes.

use std::fs::File;
use std::sync::Arc;

use quire_device::{Device, DeviceError, DeviceOperation, Direction, Layer, LayeredDevice, Transfer};
use quire_sys::at::{self, AccessMode};
use quire_sys::file::write_out;

use crate::inodes::Inode;
use crate::pending_sync::PendingSync;
use crate::privileges::FilePrivileges;
use crate::times::FileTimes;

/// What is different about a file of the directory.
pub struct BackingFile {
    file: Arc<File>,
    times: Arc<FileTimes>,
    privileges: Arc<FilePrivileges>,
    pending_sync: Arc<PendingSync>,
}

impl BackingFile {
    /// A device on `inner`, which is the inode's file.
    pub fn over(inner: Arc<dyn Device>, inode: &Inode) -> Arc<dyn Device> {
        let (file, times) = (Arc::clone(&inode.file), Arc::clone(&inode.times));
        let (privileges, pending_sync) = (Arc::clone(&inode.privileges), Arc::clone(&inode.pending_sync));
        LayeredDevice::new(inner, Self { file, times, privileges, pending_sync })
    }

    /// Puts back what a late write has changed about the file besides its bytes.
    fn restore(&self, inner: &dyn Device) {
        if let Err(error) = self.privileges.restore(&self.file) {
            tracing::error!(%error, file = inner.name(), "a late write took the file's capabilities or set-id bits away");
        }
        self.times.restore(&self.file);
    }

    /// Flushes for the pending sync, too, which answers for bytes that were written past the cache, through the inode's own
    /// opening. The device's opening may have been made after these were lost and another opening was told, so it hears
    /// nothing of them; the inode's own does, and is asked here. This costs the device nothing: all is written by then.
    ///
    /// Flushes through one device, of the cache in the background, of truncations, and for a program, take no failure from
    /// each other: the first failure poisons the device.
    fn flush_with_own(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        inner.flush()?;
        write_out(&self.file, 0, i64::MAX.unsigned_abs())
            .map_err(|error| DeviceError::new(DeviceOperation::Flush, inner.name(), &error))
    }
}

/// Has the system write a transfer's bytes out. The system tells each opening of a file once of bytes that it lost, also of
/// those that another opening wrote. `error_listener` was opened before these were written and belongs to this job alone.
/// So no other job takes their failure away, nor does this from a flush.
fn write_out_extents(inner: &dyn Device, transfer: &Transfer, error_listener: &File) -> Result<(), DeviceError> {
    let Some(first) = transfer.extents.iter().map(|extent| extent.offset).min() else { return Ok(()) };
    let end = transfer.extents.iter().map(|extent| extent.offset + extent.len as u64).max().unwrap_or(first);
    let log_failure = |error| DeviceError::new(DeviceOperation::Write, inner.name(), &error).at(first, end - first);
    write_out(error_listener, first, end - first).map_err(log_failure)
}

impl Layer for BackingFile {
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
        let error_listener = at::open(&self.file, AccessMode::Read);
        let result = inner.run(transfer);
        self.restore(inner);
        result.and_then(|()| {
            error_listener.map_or(Ok(()), |error_listener| write_out_extents(inner, transfer, &error_listener))
        })
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let result = inner.write_durable(transfer);
        self.restore(inner);
        result
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        let flushed = self.pending_sync.flush(false, || self.flush_with_own(inner));
        flushed.unwrap_or_else(|| inner.flush())
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        let flushed = self.pending_sync.flush(true, || {
            self.times.tell(&self.file, true);
            self.flush_with_own(inner)
        });
        flushed.unwrap_or_else(|| inner.flush_data())
    }

    fn as_file<'d>(&self, _inner: &'d dyn Device) -> Option<&'d File> {
        // Stores to a mapping would pass the times and the pending sync by.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty_inodes::DirtyFlags;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::{Duration, SystemTime};

    use quire_device::{Buffer, CacheMode, Extent, IoEngine, of_file};

    #[test]
    fn a_flush_for_the_cache_asks_the_inodes_own_opening_for_lost_bytes_too() {
        // Such an opening (O_PATH) can't be written out, as one can't whose bytes the system has lost: it says so when asked.
        const PATH_ONLY: i32 = 0o10_000_000;
        let named = tempfile::NamedTempFile::new().unwrap();
        for data_only in [false, true] {
            let own = File::options().read(true).custom_flags(PATH_ONLY).open(named.path()).unwrap();
            let inode = Inode::new(1, own, true, DirtyFlags::default());
            let sound = of_file("file", tempfile::tempfile().unwrap(), CacheMode::Buffered, IoEngine::Threads);
            let device = BackingFile::over(sound, &inode);
            let flush = || if data_only { device.flush_data() } else { device.flush() };
            flush().unwrap();
            inode.pending_sync.mark_dirty(DirtyFlags::ALL);
            assert_eq!(flush().unwrap_err().action, DeviceOperation::Flush);
            assert!(inode.pending_sync.has_failed() && inode.pending_sync.is_pending(true));
        }
    }

    #[test]
    fn bytes_that_arrive_late_leave_the_time_that_a_program_set() {
        let inode = Inode::new(1, tempfile::tempfile().unwrap(), true, DirtyFlags::default());
        let (file, times) = (&inode.file, &inode.times);
        let inner = of_file("file", file.try_clone().unwrap(), CacheMode::Buffered, IoEngine::Threads);
        let device = BackingFile::over(inner, &inode);
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
