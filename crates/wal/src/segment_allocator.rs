//! Gives the log thread its next file: made ahead by the maintenance thread, or at once.
//!
//! Relies on `segment_pool` for the files themselves, on `preallocation` for what is asked of the maintenance thread.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use quire_device::DeviceError;

use super::preallocation::{MaintenanceJob, Preallocation, lock};
use super::segment_pool::{ClosedSegment, PreparedSegment, SegmentPool};

/// Where the next file comes from.
pub(crate) struct SegmentAllocator {
    pool: Arc<Mutex<SegmentPool>>,
    /// Bytes of an ordinary file.
    pub(crate) segment_bytes: u64,
    preallocation: Arc<Preallocation>,
    jobs: Sender<MaintenanceJob>,
}

impl SegmentAllocator {
    /// Asks there, and takes what was not asked for from the pool itself.
    pub(crate) fn new(
        pool: Arc<Mutex<SegmentPool>>,
        segment_bytes: u64,
        preallocation: Arc<Preallocation>,
        jobs: Sender<MaintenanceJob>,
    ) -> Self {
        Self { pool, segment_bytes, preallocation, jobs }
    }

    /// A file will be needed before long.
    pub(crate) fn ask(&mut self) {
        self.preallocation.ask(&self.jobs);
    }

    /// A file of at least so many bytes.
    pub(crate) fn next(&mut self, least_bytes: u64) -> Result<PreparedSegment, DeviceError> {
        let ordinary = least_bytes <= self.segment_bytes;
        if ordinary && let Some(prepared) = self.preallocation.wait() {
            return Ok(prepared);
        }
        // What failed ahead, for want of space perhaps, is tried once more now that it matters.
        let prepared = lock(&self.pool).take(least_bytes)?;
        self.preallocation.settle(ordinary);
        Ok(prepared)
    }

    /// Takes a file back that could not be begun.
    pub(crate) fn discard(&self, prepared: PreparedSegment) -> Result<(), DeviceError> {
        lock(&self.pool).discard(prepared)
    }

    /// Takes the segment back in which the log can't go on, since an image covers it: it serves as the next one.
    pub(crate) fn give_back(&self, covered: ClosedSegment) {
        if let Err(error) = lock(&self.pool).give(covered) {
            // It only takes space, and the next start tries again.
            tracing::warn!(%error, "a log segment that is no longer needed can't be removed");
        }
        self.preallocation.retry(&self.jobs);
    }

    /// The log goes on in the file that it has got.
    pub(crate) fn go_on(&self) {
        self.preallocation.go_on();
    }

    /// There is no room for a file that is needed now, which the owner of the log can tell from here on.
    pub(crate) fn stand_still(&self, shortage: DeviceError) {
        self.preallocation.stand_still(shortage);
    }

    /// Waits until there may be.
    ///
    /// # Errors
    /// The log ends, and there was none to the last.
    pub(crate) fn await_room(&self) -> Result<(), DeviceError> {
        self.preallocation.await_room()
    }
}
