//! The file that the log goes on in next, between the threads that need it, make it and ask how far it is.
//!
//! Relies on `segment_pool` for the files. Asking ahead keeps the making of files, which takes many writes, away from the commits;
//! and a full disk is noticed while there is still room for what has begun. If records come nevertheless for which there is none, the
//! log thread stands still with them: it tries again when the owner of the log says so, or when an image has freed files, and gives up
//! when the log ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quire_device::DeviceError;

use super::segment_pool::{PreparedSegment, SegmentPool};

/// Locks; a thread that panicked has left nothing half done that matters.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    /// The log thread waits for it: there are records that have no room in the one that is written to, and the disk is full.
    Awaited,
}

impl NextSegment {
    /// As INFO shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotNeeded => "not-needed",
            Self::Preallocating => "preallocating",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Awaited => "awaited",
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
}

/// A record for whose segment there is no room. The log thread waits with it.
struct Standstill {
    error: DeviceError,
    /// It is to be tried again.
    again: bool,
    /// The log ends, and for the last time it was tried again.
    tried_last: bool,
}

/// The file that was asked for ahead, and the one that the log thread waits for.
#[derive(Default)]
struct PreallocationOrder {
    ahead: PreallocationState,
    standstill: Option<Standstill>,
    /// The maintenance thread has ended, as it does when the log ends: no more files are made ahead, and room is not waited for.
    over: bool,
}

impl PreallocationOrder {
    /// True if no file is there or being made: the caller that gets this answer has to make one, or ask for it.
    fn begin(&mut self, again: bool) -> bool {
        let before = match (&self.ahead, again) {
            _ if self.over => return false,
            (PreallocationState::Nothing, false) => None,
            (PreallocationState::Failed(error), true) => Some(error.clone()),
            _ => return false,
        };
        self.ahead = PreallocationState::Asked(before);
        true
    }
}

/// What is known of the next file, between the log thread, the maintenance thread and the owner of the log.
#[derive(Default)]
pub(crate) struct Preallocation {
    order: Mutex<PreallocationOrder>,
    changed: Condvar,
    /// The pool's: a thread that makes a file does not wait for space any more.
    ending: Arc<AtomicBool>,
}

impl Preallocation {
    pub(crate) fn new(pool: &SegmentPool) -> Self {
        Self { ending: pool.ending(), ..Self::default() }
    }

    /// The log is to end, and its owner waits for that.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    fn wait_for_change<'a>(&self, order: MutexGuard<'a, PreallocationOrder>) -> MutexGuard<'a, PreallocationOrder> {
        self.changed.wait(order).unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that was asked for ahead, once it is there or it is known that it won't be.
    pub(crate) fn wait(&self) -> Option<PreparedSegment> {
        let mut order = lock(&self.order);
        while matches!(order.ahead, PreallocationState::Asked(_)) && !order.over {
            order = self.wait_for_change(order);
        }
        // A failure stays known until a file is there, so that no write is taken in between.
        match std::mem::take(&mut order.ahead) {
            PreallocationState::Ready(prepared) => Some(prepared),
            other => {
                order.ahead = other;
                None
            }
        }
    }

    /// The log thread has got a file by itself, an `ordinary` one or one for a large record.
    pub(crate) fn settle(&self, ordinary: bool) {
        let mut order = lock(&self.order);
        if ordinary && matches!(order.ahead, PreallocationState::Failed(_)) {
            order.ahead = PreallocationState::Nothing;
        }
    }

    /// The log thread goes on in its next segment. Until then a shortage stays known: the file alone does not end it.
    pub(crate) fn go_on(&self) {
        lock(&self.order).standstill = None;
    }

    /// There is no room for a segment that a record needs.
    pub(crate) fn stand_still(&self, error: DeviceError) {
        let mut order = lock(&self.order);
        match &mut order.standstill {
            // It may have been told again while it was tried.
            Some(standstill) => standstill.error = error,
            None => {
                // Perhaps an image has freed a file since the attempt that failed, and found no log thread to tell of it.
                let again = matches!(order.ahead, PreallocationState::Ready(_));
                order.standstill = Some(Standstill { error, again, tried_last: false });
            }
        }
    }

    /// Waits until there may be room.
    ///
    /// # Errors
    /// The log ends, and there was none to the last.
    pub(crate) fn await_room(&self) -> Result<(), DeviceError> {
        let mut order = lock(&self.order);
        loop {
            let over = order.over;
            let Some(standstill) = &mut order.standstill else { return Ok(()) };
            if std::mem::take(&mut standstill.again) {
                return Ok(());
            }
            if over && standstill.tried_last {
                return Err(standstill.error.clone());
            }
            if over {
                standstill.tried_last = true;
                return Ok(());
            }
            order = self.wait_for_change(order);
        }
    }

    /// Whether it is waited for; if it was tried before, why that failed.
    pub(crate) fn asked(&self) -> Option<Option<DeviceError>> {
        match &lock(&self.order).ahead {
            PreallocationState::Asked(before) => Some(before.clone()),
            _ => None,
        }
    }

    /// Here it is, or why it is not.
    pub(crate) fn answer(&self, made: Result<PreparedSegment, DeviceError>) {
        let mut order = lock(&self.order);
        if let (Ok(_), Some(standstill)) = (&made, &mut order.standstill) {
            // It was asked for before the log thread came to need it, which no other call may tell.
            standstill.again = true;
        }
        order.ahead = made.map_or_else(PreallocationState::Failed, PreallocationState::Ready);
        self.changed.notify_all();
    }

    /// No more answers will come, and no more calls to look again. A file that is there stays there.
    pub(crate) fn close(&self) {
        lock(&self.order).over = true;
        self.changed.notify_all();
    }

    /// Why the log can't go on when the file that it writes to is full, or can't go on now.
    pub(crate) fn shortage(&self) -> Option<DeviceError> {
        let order = lock(&self.order);
        match (&order.standstill, &order.ahead) {
            (Some(standstill), _) => Some(standstill.error.clone()),
            // While it is tried again nothing is known to be better.
            (None, PreallocationState::Failed(error) | PreallocationState::Asked(Some(error))) => Some(error.clone()),
            (None, _) => None,
        }
    }

    /// How far the file is.
    pub(crate) fn status(&self) -> NextSegment {
        let order = lock(&self.order);
        match &order.ahead {
            _ if order.standstill.is_some() => NextSegment::Awaited,
            PreallocationState::Nothing => NextSegment::NotNeeded,
            PreallocationState::Asked(None) => NextSegment::Preallocating,
            PreallocationState::Ready(_) => NextSegment::Ready,
            PreallocationState::Failed(_) | PreallocationState::Asked(Some(_)) => NextSegment::Failed,
        }
    }

    /// There may be room now. A log thread that waits for it tries again; true if nothing but a file ahead is missing, which
    /// the caller has to make, or ask for.
    pub(crate) fn look_again(&self) -> bool {
        let mut order = lock(&self.order);
        if let Some(standstill) = &mut order.standstill {
            standstill.again = true;
            self.changed.notify_all();
            return false;
        }
        order.begin(true)
    }

    /// A file will be needed before long.
    pub(crate) fn ask(&self, jobs: &Sender<MaintenanceJob>) {
        let asks = lock(&self.order).begin(false);
        if asks && jobs.send(MaintenanceJob::Prepare).is_err() {
            self.close();
        }
    }

    /// Has a file that couldn't be made tried once more.
    pub(crate) fn retry(&self, jobs: &Sender<MaintenanceJob>) {
        if self.look_again() && jobs.send(MaintenanceJob::Prepare).is_err() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use quire_device::{DeviceOperation, Directory, MemoryDirectory, errno};

    use super::*;

    fn full() -> DeviceError {
        DeviceError::from_errno(DeviceOperation::Allocate, "quire-log-00000002", errno::ENOSPC)
    }

    impl Preallocation {
        /// As [`Preallocation::await_room`], which would sleep if it were not so.
        fn is_to_try_again(&self) {
            let mut order = lock(&self.order);
            let again = order.standstill.as_mut().map(|standstill| std::mem::take(&mut standstill.again));
            assert_eq!(again, Some(true));
        }
    }

    fn prepared() -> PreparedSegment {
        let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new());
        PreparedSegment { index: 2, device: directory.create("quire-log-00000002").unwrap(), bytes: 4096 }
    }

    #[test]
    fn a_file_that_is_there_is_used_also_when_the_maintenance_thread_has_ended() {
        let (preallocation, (jobs, _maintenance)) = (Preallocation::default(), channel());
        preallocation.ask(&jobs);
        preallocation.answer(Ok(prepared()));
        preallocation.close();
        assert_eq!(preallocation.wait().map(|prepared| prepared.index), Some(2));
        assert!(preallocation.wait().is_none());
    }

    #[test]
    fn no_thread_waits_for_a_maintenance_thread_that_has_ended() {
        let (preallocation, (jobs, maintenance)) = (Preallocation::default(), channel());
        preallocation.ask(&jobs);
        preallocation.close();
        assert!(preallocation.wait().is_none());
        drop(maintenance);
        let other = Preallocation::default();
        other.ask(&jobs);
        assert!(other.wait().is_none());
    }

    #[test]
    fn a_failure_stays_known_until_there_is_a_file() {
        let (preallocation, (jobs, _maintenance)) = (Preallocation::default(), channel());
        preallocation.ask(&jobs);
        assert_eq!((preallocation.status(), preallocation.shortage()), (NextSegment::Preallocating, None));
        preallocation.answer(Err(full()));
        assert!(preallocation.wait().is_none());
        assert_eq!((preallocation.status(), preallocation.shortage()), (NextSegment::Failed, Some(full())));
        preallocation.stand_still(full());
        assert_eq!((preallocation.status(), preallocation.shortage()), (NextSegment::Awaited, Some(full())));
        assert!(!preallocation.look_again(), "the log thread tries again");
        assert_eq!(preallocation.await_room(), Ok(()));
        assert_eq!(preallocation.shortage(), Some(full()), "as long as it tries");
        preallocation.settle(true);
        assert_eq!(preallocation.status(), NextSegment::Awaited, "there is a file, and no segment yet");
        preallocation.go_on();
        assert_eq!((preallocation.status(), preallocation.shortage()), (NextSegment::NotNeeded, None));
    }

    #[test]
    fn a_log_thread_does_not_sleep_beside_a_file_that_is_there() {
        let (preallocation, (jobs, _maintenance)) = (Preallocation::default(), channel());
        // Made between its own attempt, which failed, and its standstill.
        preallocation.ask(&jobs);
        preallocation.answer(Ok(prepared()));
        preallocation.stand_still(full());
        preallocation.is_to_try_again();
        assert!(preallocation.wait().is_some());
        // Asked for before the standstill, made after it.
        preallocation.ask(&jobs);
        preallocation.stand_still(full());
        preallocation.answer(Ok(prepared()));
        preallocation.is_to_try_again();
        // One that it can't use is no reason to try without end.
        preallocation.stand_still(full());
        preallocation.close();
        assert_eq!(preallocation.await_room(), Ok(()), "for the last time");
        assert_eq!(preallocation.await_room(), Err(full()));
    }

    #[test]
    fn a_log_that_ends_looks_for_room_once_more_and_no_further() {
        let preallocation = Preallocation::default();
        preallocation.stand_still(full());
        preallocation.close();
        assert_eq!(preallocation.await_room(), Ok(()));
        preallocation.stand_still(full());
        assert_eq!(preallocation.await_room(), Err(full()));
    }
}
