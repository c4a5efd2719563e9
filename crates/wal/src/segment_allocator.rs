//! Gives the log thread its next file: made ahead by the maintenance thread, or at once.
//!
//! Relies on `segment_pool` for the files themselves. Asking ahead keeps the making of files, which takes many writes, away from
//! the commits; and a full disk is noticed while there is still room for what has begun.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quire_device::DeviceError;

use super::error::LogError;
use super::segment_pool::{PreparedSegment, SegmentPool};

/// Work for the maintenance thread.
pub(crate) enum MaintenanceJob {
    /// Make an ordinary file ready.
    Prepare,
    /// There is no more.
    End,
    /// A durable image holds the effect of all records up to this one.
    Covered(u64),
}

/// How far the segment is that the log goes on in when the one that it writes to is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextSegment {
    /// It was not asked for: the one that is written to is less than half full.
    NotNeeded,
    /// The maintenance thread is making it.
    Preallocating,
    /// It is there.
    Ready,
    /// It can't be made; [`Log::shortage`](crate::Log::shortage) has the cause.
    Failed,
}

impl NextSegment {
    /// As INFO shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotNeeded => "not-needed",
            Self::Preallocating => "preallocating",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// What has become of the file that was asked for ahead.
#[derive(Default)]
enum PreallocationState {
    /// None was.
    #[default]
    Nothing,
    /// It is being made, or will be; why the last attempt failed, if there was one.
    Asked(Option<DeviceError>),
    Ready(PreparedSegment),
    Failed(DeviceError),
    /// The maintenance thread has ended; no more files are made ahead.
    Over,
}

/// The file that was asked for ahead.
#[derive(Default)]
pub(crate) struct Preallocation {
    order: Mutex<PreallocationState>,
    answered: Condvar,
}

impl Preallocation {
    /// True if no file is there or being made: the caller that gets this answer has to ask for one.
    fn begin(&self, again: bool) -> bool {
        let mut order = lock(&self.order);
        let before = match (&*order, again) {
            (PreallocationState::Nothing, false) => None,
            (PreallocationState::Failed(error), true) => Some(error.clone()),
            _ => return false,
        };
        *order = PreallocationState::Asked(before);
        true
    }

    /// The file, once it is there or it is known that it won't be.
    fn wait(&self) -> Option<PreparedSegment> {
        let mut order = lock(&self.order);
        while matches!(*order, PreallocationState::Asked(_)) {
            order = self.answered.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::take(&mut *order) {
            PreallocationState::Ready(prepared) => Some(prepared),
            PreallocationState::Over => {
                *order = PreallocationState::Over;
                None
            }
            _ => None,
        }
    }

    /// Whether it is waited for.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(*lock(&self.order), PreallocationState::Asked(_))
    }

    /// Here it is, or why it is not.
    pub(crate) fn answer(&self, made: Result<PreparedSegment, DeviceError>) {
        *lock(&self.order) = made.map_or_else(PreallocationState::Failed, PreallocationState::Ready);
        self.answered.notify_all();
    }

    /// No more answers will come.
    pub(crate) fn close(&self) {
        *lock(&self.order) = PreallocationState::Over;
        self.answered.notify_all();
    }

    /// Why the file couldn't be made.
    pub(crate) fn shortage(&self) -> Option<DeviceError> {
        match &*lock(&self.order) {
            // While it is tried again nothing is known to be better.
            PreallocationState::Failed(error) | PreallocationState::Asked(Some(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// How far the file is.
    pub(crate) fn status(&self) -> NextSegment {
        match &*lock(&self.order) {
            PreallocationState::Nothing | PreallocationState::Over => NextSegment::NotNeeded,
            PreallocationState::Asked(None) => NextSegment::Preallocating,
            PreallocationState::Ready(_) => NextSegment::Ready,
            PreallocationState::Failed(_) | PreallocationState::Asked(Some(_)) => NextSegment::Failed,
        }
    }

    /// Has a file that couldn't be made tried once more.
    pub(crate) fn retry(&self, jobs: &Sender<MaintenanceJob>) {
        if self.begin(true) && jobs.send(MaintenanceJob::Prepare).is_err() {
            self.close();
        }
    }
}

/// Where the next file comes from.
pub(crate) struct SegmentAllocator {
    pool: Arc<Mutex<SegmentPool>>,
    /// Bytes of an ordinary file.
    pub(crate) segment_bytes: u64,
    preallocation: Arc<Preallocation>,
    jobs: Sender<MaintenanceJob>,
}

/// Locks; a thread that panicked has left nothing half done that matters.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.preallocation.begin(false) && self.jobs.send(MaintenanceJob::Prepare).is_err() {
            self.preallocation.close();
        }
    }

    /// A file of at least so many bytes.
    pub(crate) fn next(&mut self, least_bytes: u64) -> Result<PreparedSegment, LogError> {
        if least_bytes <= self.segment_bytes
            && let Some(prepared) = self.preallocation.wait()
        {
            return Ok(prepared);
        }
        // What failed ahead, for want of space perhaps, is tried once more now that it matters.
        Ok(lock(&self.pool).take(least_bytes)?)
    }
}
