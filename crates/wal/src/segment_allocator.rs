//! Gives the log thread its next file: made ahead by the maintenance thread, or at once.
//!
//! Relies on `segment_pool` for the files themselves, on `preallocation` for what is asked of the maintenance thread.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use quire_device::DeviceError;

use super::preallocation::{MaintenanceJob, Preallocation, lock};
use super::segment_pool::{PreparedSegment, SegmentPool, is_shortage};

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
        let taken = lock(&self.pool).take(least_bytes);
        let prepared = match taken {
            // The file that was made ahead is too small for the record, and has the space that it needs.
            Err(error) if !ordinary && is_shortage(&error) => {
                let Some(ahead) = self.preallocation.wait() else { return Err(error) };
                let mut pool = lock(&self.pool);
                pool.discard(ahead)?;
                pool.take(least_bytes)?
            }
            taken => taken?,
        };
        self.preallocation.settle(ordinary);
        Ok(prepared)
    }

    /// Takes a file back that could not be begun.
    pub(crate) fn discard(&self, prepared: PreparedSegment) -> Result<(), DeviceError> {
        lock(&self.pool).discard(prepared)
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use quire_device::Directory;

    use super::*;
    use crate::segment_pool::tests::{Measured, SEGMENT_BYTES};

    #[test]
    fn a_record_that_the_file_made_ahead_has_no_room_for_gets_its_space() {
        let directory = Measured::lacking(1);
        let pool = SegmentPool::new(Arc::clone(&directory) as Arc<dyn Directory>, SEGMENT_BYTES, 2, 0);
        let preallocation = Arc::new(Preallocation::new(&pool));
        let (pool, (jobs, _maintenance)) = (Arc::new(Mutex::new(pool)), channel());
        let mut allocator = SegmentAllocator::new(Arc::clone(&pool), SEGMENT_BYTES, Arc::clone(&preallocation), jobs);
        allocator.ask();
        let ahead = lock(&pool).take(0);
        preallocation.answer(ahead);
        directory.fill_up();
        let large = allocator.next(2 * SEGMENT_BYTES).unwrap();
        assert_eq!((large.bytes, directory.list().unwrap().len()), (2 * SEGMENT_BYTES, 1));
        assert!(preallocation.wait().is_none(), "it is not there any more");
        // Without one there is nothing to give up.
        directory.fill_up();
        assert!(allocator.next(2 * SEGMENT_BYTES).is_err_and(|error| error.is_full()));
    }
}
