//! The maintenance thread of a log: it makes files ahead, and takes those away that an image covers.
//!
//! Relies on `segment_pool` for the files. What the thread does may take long; the log thread waits for it only if files run out.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use quire_device::{Directory, remove_then_free};

use super::directory_scan::{DirectoryScan, Segment};
use super::error::LogError;
use super::format::index_of;
use super::group_commit::GroupCommit;
use super::preallocation::{MaintenanceJob, Preallocation, lock};
use super::record_scanner::RecordScanner;
use super::segment_allocator::SegmentAllocator;
use super::segment_pool::{ClosedSegment, SegmentPool, mark_in_force};

/// The allocator of the log thread, the maintenance thread's side, and what other threads ask it with.
pub(crate) struct SegmentFiles {
    pub(crate) allocator: SegmentAllocator,
    pub(crate) jobs: Sender<MaintenanceJob>,
    pub(crate) maintenance: SegmentMaintenance,
    pub(crate) preallocation: Arc<Preallocation>,
}

/// The maintenance thread's side.
pub(crate) struct SegmentMaintenance {
    pool: Arc<Mutex<SegmentPool>>,
    jobs: Receiver<MaintenanceJob>,
    preallocation: Arc<Preallocation>,
}

impl SegmentFiles {
    pub(crate) fn new(
        directory: &Arc<dyn Directory>,
        segment_bytes: u64,
        most_spares: usize,
        highest_index: u64,
    ) -> Self {
        let pool = SegmentPool::new(Arc::clone(directory), segment_bytes, most_spares, highest_index);
        let (preallocation, (jobs, maintenance)) = (Arc::new(Preallocation::new(&pool)), channel());
        let pool = Arc::new(Mutex::new(pool));
        let allocator =
            SegmentAllocator::new(Arc::clone(&pool), segment_bytes, Arc::clone(&preallocation), jobs.clone());
        Self {
            allocator,
            jobs,
            maintenance: SegmentMaintenance { pool, jobs: maintenance, preallocation: Arc::clone(&preallocation) },
            preallocation,
        }
    }
}

/// Takes files that hold nothing into the pool, and removes those that never became spares.
pub(crate) fn adopt(
    pool: &Mutex<SegmentPool>,
    directory: &dyn Directory,
    scan: &DirectoryScan,
) -> Result<(), LogError> {
    let leftovers = scan.leftovers();
    for name in &leftovers {
        remove_then_free(directory, name)?;
    }
    if !leftovers.is_empty() {
        directory.sync()?;
    }
    for (name, index) in scan.spares.iter().filter_map(|name| Some((name, index_of(name)?))) {
        let device = directory.open_to_write(name)?;
        let bytes = device.len()?;
        lock(pool).give(ClosedSegment { index, device, bytes, last_sequence: 0 })?;
    }
    Ok(())
}

impl SegmentMaintenance {
    pub(crate) fn pool(&self) -> Arc<Mutex<SegmentPool>> {
        Arc::clone(&self.pool)
    }

    /// Does the jobs until the log ends.
    pub(crate) fn carry_out(self, shared: &GroupCommit) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                MaintenanceJob::End => return,
                MaintenanceJob::Prepare => self.prepare(),
                MaintenanceJob::Covered(position) => {
                    let done = cover(shared, &self.pool, position);
                    shared.covering.fetch_sub(1, Ordering::SeqCst);
                    if let Err(error) = done {
                        shared.fail(error);
                        return;
                    }
                    shared.tell();
                    if self.preallocation.look_again() {
                        self.prepare();
                    }
                }
            }
        }
    }

    /// Makes the file that was asked for, if it still is.
    fn prepare(&self) {
        let Some(before) = self.preallocation.asked() else { return };
        let prepared = lock(&self.pool).take(0);
        // On a full disk it is tried once a second, for days perhaps.
        if let Err(error) = &prepared
            && before.as_ref() != Some(error)
        {
            tracing::warn!(%error, "the log's next segment can't be made yet");
        }
        self.preallocation.answer(prepared);
    }
}

impl Drop for SegmentMaintenance {
    fn drop(&mut self) {
        // However this thread ends, the log thread must not wait for a file that won't come.
        self.preallocation.close();
    }
}

/// The segments of earlier starts, to be taken away when an image covers them.
pub(crate) fn older(
    directory: &dyn Directory,
    scan: &DirectoryScan,
    next_sequence: u64,
) -> Result<Vec<ClosedSegment>, LogError> {
    let ends = scan.segments.iter().skip(1).map(|segment| segment.meta.first_sequence).chain([next_sequence]);
    let mut closed = Vec::new();
    for (segment, end) in scan.segments.iter().zip(ends) {
        let device = directory.open_to_write(&segment.name)?;
        let (index, bytes) = (index_of(&segment.name).unwrap_or(segment.meta.index), device.len()?);
        closed.push(ClosedSegment { index, device, bytes, last_sequence: end.saturating_sub(1) });
    }
    Ok(closed)
}

fn cover(shared: &GroupCommit, pool: &Mutex<SegmentPool>, position: u64) -> Result<(), LogError> {
    if shared.failure().is_some() {
        return Ok(());
    }
    // The device is not waited for under the lock, which the log thread takes.
    let pending = lock(&shared.chain).come_in_force();
    for (device, meta) in &pending {
        mark_in_force(&**device, meta)?;
    }
    let covered = lock(&shared.chain).take_covered(position);
    shared.publish_files();
    let mut pool = lock(pool);
    for closed in covered {
        if let Err(error) = pool.give(closed) {
            // It only takes space, and the next start tries again.
            tracing::warn!(%error, "a log segment that is no longer needed can't be removed");
        }
    }
    lock(&shared.stats).spare_bytes = pool.spare_bytes();
    Ok(())
}

/// Removes the segments of a log of this dataset that isn't written to whose records an image covers. Returns how many
/// segments are left.
///
/// # Errors
/// The directory can't be read, a file not be removed, or it is another dataset's log.
pub fn remove_covered(directory: &dyn Directory, dataset: u64, position: u64) -> Result<usize, LogError> {
    let scan = DirectoryScan::of(directory, position)?;
    scan.check_dataset(dataset)?;
    let mut covered = Vec::new();
    for (at, segment) in scan.segments.iter().enumerate() {
        let next = scan.segments.get(at + 1);
        // Where nothing follows only the records themselves say where they end.
        let is_covered = match next {
            Some(next) => next.meta.first_sequence <= position + 1,
            None => last_sequence(segment)? <= position,
        };
        if is_covered {
            covered.push(segment.name.clone());
        }
    }
    let left = scan.segments.len() - covered.len();
    covered.extend(scan.spares.iter().cloned().chain(scan.leftovers()));
    // The scan has the files open. The last descriptor of each must be that of the thread that frees.
    drop(scan);
    for name in &covered {
        remove_then_free(directory, name)?;
    }
    Ok(left)
}

/// Gives damaged files names that are no segment's, and returns these. An image must hold what was read of them.
///
/// # Errors
/// The directory refuses.
pub fn set_aside(directory: &dyn Directory, names: &[String], unix_ms: u64) -> Result<Vec<String>, LogError> {
    let mut kept = Vec::new();
    for name in names {
        let aside = format!("{name}.damaged-{unix_ms}");
        directory.rename(name, &aside)?;
        kept.push(aside);
    }
    directory.sync()?;
    Ok(kept)
}

fn last_sequence(segment: &Segment) -> Result<u64, LogError> {
    let mut scanner = RecordScanner::new(segment);
    while scanner.step()?.is_some() {}
    Ok(scanner.expected() - 1)
}
