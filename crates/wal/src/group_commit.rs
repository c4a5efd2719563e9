//! Group commit: the owner of the log hands batches over, the log thread writes them, one write for all.
//!
//! Relies on one rule for order: records are handed over under the queue's lock, and only the log thread takes them from there
//! and writes them. So at most one batch is on its way, and none overtakes another; only the log thread waits for the device.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use quire_device::DeviceError;

use super::adaptive_spin::AdaptiveSpin;
use super::error::LogError;
use super::preallocation::lock;
use super::segment_chain::SegmentChain;
use super::segment_writer::SegmentWriter;

/// When records are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// With the batch that they are in: the clients that wait for them are told afterwards.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes.
    Never,
}

/// Between two flushes of [`SyncPolicy::EverySecond`].
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Where no client waits for the device, the log thread gathers batches for so long…
const GATHER_FOR: Duration = Duration::from_millis(2);
/// …or until they are so long.
const GATHERED_BYTES: usize = 256 << 10;

/// After so long without a record the end of the log is marked.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// The log thread spins for the next batch if that tends to come sooner than this.
const SOON: Duration = Duration::from_micros(100);

/// Capacity of a batch that is kept.
pub(crate) const KEPT_BYTES: usize = 4 << 20;

/// Called when records have become durable that a client waits for, or the log has failed.
pub type CommitCallback = Box<dyn Fn() + Send + std::marker::Sync>;

/// Records on their way to the log thread.
pub(crate) struct CommitQueue {
    pub(crate) bytes: Vec<u8>,
    /// Since when there have been any.
    pub(crate) since: Option<Instant>,
    /// The log thread is writing or flushing.
    pub(crate) busy: bool,
    pub(crate) sync: SyncPolicy,
    /// A client waits for a flush.
    pub(crate) hurry: bool,
    pub(crate) stop: bool,
    /// The log thread spins, and need not be woken.
    spins: bool,
    /// What was written last isn't flushed since then.
    unflushed_since: Option<Instant>,
    /// Everything is durable since then, and the end isn't marked.
    quiet_since: Option<Instant>,
}

/// Figures of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Batches that were written.
    pub commits: u64,
    /// Time that the last batch took, flush counted if there was one.
    pub commit_last_ns: u64,
    /// The longest.
    pub commit_longest_ns: u64,
    /// Flushes apart from batches.
    pub flushes: u64,
    /// The longest of these.
    pub flush_longest_ns: u64,
    /// Bytes written, whole blocks counted.
    pub bytes_written: u64,
    /// Bytes of records that aren't covered by an image yet, of whole segments and in the last one.
    pub live_bytes: u64,
    /// Bytes of the files in use.
    pub file_bytes: u64,
    /// Files in use.
    pub segments: u64,
    /// Bytes of files that wait to be used again.
    pub spare_bytes: u64,
}

pub(crate) struct GroupCommit {
    pub(crate) queue: Mutex<CommitQueue>,
    wake: Condvar,
    /// Counts changes of the queue that the log thread may wait for.
    changes: AtomicU64,
    pub(crate) chain: Arc<Mutex<SegmentChain>>,
    /// Where the next record begins in the segment that is written to.
    tail_bytes: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) bounded_bytes: AtomicU64,
    /// Images that the maintenance thread hasn't heard of yet.
    pub(crate) covering: AtomicU64,
    failed: OnceLock<LogError>,
    /// There is a segment to write to.
    pub(crate) begun: AtomicBool,
    pub(crate) stats: Mutex<LogStats>,
    /// Bytes of records that the log thread holds while there is no room for them.
    pub(crate) homeless_bytes: AtomicUsize,
    notify: CommitCallback,
    wanted: AtomicBool,
}

/// What the log thread does next.
enum CommitWork {
    Write(SyncPolicy),
    Flush,
    MarkEnd,
}

impl GroupCommit {
    /// Before anything is written; the next record is `next_sequence`.
    pub(crate) fn new(next_sequence: u64, chain: SegmentChain, sync: SyncPolicy, notify: CommitCallback) -> Self {
        let queue = CommitQueue {
            bytes: Vec::new(),
            since: None,
            busy: false,
            sync,
            hurry: false,
            stop: false,
            spins: false,
            unflushed_since: None,
            quiet_since: None,
        };
        Self {
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            changes: AtomicU64::new(0),
            durable: AtomicU64::new(next_sequence - 1),
            written: AtomicU64::new(next_sequence - 1),
            bounded_bytes: AtomicU64::new(0),
            chain: Arc::new(Mutex::new(chain)),
            tail_bytes: AtomicU64::new(0),
            covering: AtomicU64::new(0),
            failed: OnceLock::new(),
            begun: AtomicBool::new(false),
            stats: Mutex::default(),
            homeless_bytes: AtomicUsize::new(0),
            notify,
            wanted: AtomicBool::new(false),
        }
    }

    /// There is a segment to write to.
    pub(crate) fn begin(&self, writer: &SegmentWriter) {
        self.publish(writer);
        self.begun.store(true, Ordering::Release);
    }

    pub(crate) fn failure(&self) -> Option<&LogError> {
        self.failed.get()
    }

    /// From here on nothing is written any more.
    pub(crate) fn fail(&self, error: LogError) {
        // The first reason is the one that counts.
        let _ = self.failed.set(error);
        (self.notify)();
    }

    /// Asks to be notified of what becomes durable from here on.
    pub(crate) fn want_notice(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Calls the callback if a thread has asked for it.
    pub(crate) fn tell(&self) {
        if self.wanted.swap(false, Ordering::SeqCst) {
            (self.notify)();
        }
    }

    /// Makes known how far the writer has come.
    fn publish(&self, writer: &SegmentWriter) {
        self.written.store(writer.written, Ordering::Release);
        self.durable.store(writer.durable, Ordering::SeqCst);
        self.tail_bytes.store(writer.end(), Ordering::Relaxed);
        self.publish_files();
        lock(&self.stats).bytes_written = writer.bytes_written;
    }

    /// Makes known which files there are.
    pub(crate) fn publish_files(&self) {
        self.bounded_bytes.store(lock(&self.chain).bounded_bytes(), Ordering::Relaxed);
    }

    /// All figures.
    pub(crate) fn figures(&self) -> LogStats {
        let stats = *lock(&self.stats);
        let chain = lock(&self.chain);
        let tail_bytes = self.tail_bytes.load(Ordering::Relaxed);
        LogStats {
            live_bytes: chain.closed_bytes() + tail_bytes,
            file_bytes: chain.file_bytes(),
            segments: chain.segments(),
            ..stats
        }
    }

    /// Writes a batch that was taken from the queue.
    fn write(&self, writer: &mut SegmentWriter, batch: &mut [u8], sync: SyncPolicy) -> Result<(), LogError> {
        let (mut began, mut at, mut stood_at) = (Instant::now(), 0, None);
        while let Some(shortage) = writer.write(batch, &mut at, sync == SyncPolicy::Always)? {
            let is_first = stood_at.replace(at) != Some(at);
            self.stand_still(writer, shortage, (batch.len() - at, is_first))?;
            // The time for which there was no room is none that the device took.
            began = Instant::now();
        }
        self.homeless_bytes.store(0, Ordering::Relaxed);
        let took_ns = began.elapsed().as_nanos() as u64;
        {
            let mut stats = lock(&self.stats);
            stats.commits += 1;
            stats.commit_last_ns = took_ns;
            stats.commit_longest_ns = stats.commit_longest_ns.max(took_ns);
        }
        self.publish(writer);
        Ok(())
    }

    /// There is no room for the next segment, and so many bytes of records that need it: waits until there may be. When this is
    /// the first attempt, clients hear of what stands before these records, and the owner of the log that it should add no more.
    #[cold]
    fn stand_still(
        &self,
        writer: &mut SegmentWriter,
        shortage: DeviceError,
        (homeless_bytes, is_first): (usize, bool),
    ) -> Result<(), LogError> {
        if is_first {
            // This may take days. Without the mark damage to the last records would pass for a torn end if the process is killed.
            writer.mark_end()?;
            self.homeless_bytes.store(homeless_bytes, Ordering::Relaxed);
            self.publish(writer);
        }
        writer.stand_still(shortage);
        if is_first {
            (self.notify)();
        }
        writer.await_room()
    }

    fn flush(&self, writer: &mut SegmentWriter) -> Result<(), LogError> {
        let began = Instant::now();
        writer.flush()?;
        let took_ns = began.elapsed().as_nanos() as u64;
        {
            let mut stats = lock(&self.stats);
            stats.flushes += 1;
            stats.flush_longest_ns = stats.flush_longest_ns.max(took_ns);
        }
        self.publish(writer);
        Ok(())
    }

    /// What the log thread does, to the end.
    pub(crate) fn work(&self, writer: &mut SegmentWriter) {
        let mut batch = Vec::new();
        let mut spin = AdaptiveSpin::new(SOON);
        while let Some(work) = self.next(&mut batch, &mut spin) {
            let done = match work {
                CommitWork::Write(sync) => self.write(writer, &mut batch, sync),
                CommitWork::Flush => self.flush(writer),
                CommitWork::MarkEnd => writer.mark_end().map_err(LogError::from),
            };
            if let Err(error) = done {
                self.fail(error);
                return;
            }
            batch.clear();
            batch.shrink_to(KEPT_BYTES);
            self.done(writer.dirty, matches!(work, CommitWork::MarkEnd));
            self.tell();
        }
        if self.failure().is_none() {
            // All records are durable; without the mark only damage to the last ones would pass for a torn end.
            let _ = writer.mark_end();
        }
    }

    fn done(&self, dirty: bool, marked: bool) {
        let mut queue = lock(&self.queue);
        queue.quiet_since = (!dirty && !marked).then(Instant::now);
        queue.busy = false;
        queue.unflushed_since = match (dirty, queue.unflushed_since) {
            (true, None) => Some(Instant::now()),
            (true, since) => since,
            (false, _) => None,
        };
    }

    /// Waits for something to do; `None` at the end. A batch is put into `batch`.
    fn next(&self, batch: &mut Vec<u8>, spin: &mut AdaptiveSpin) -> Option<CommitWork> {
        let mut queue = lock(&self.queue);
        loop {
            if self.failed.get().is_some() {
                return None;
            }
            let (waiting, unflushed) = (!queue.bytes.is_empty(), queue.unflushed_since);
            let due = unflushed.filter(|_| queue.sync == SyncPolicy::EverySecond);
            let due = due.map(|since| FLUSH_EVERY.saturating_sub(since.elapsed()));
            let at_once = queue.hurry || queue.stop || queue.sync == SyncPolicy::Always;
            if due == Some(Duration::ZERO) || unflushed.is_some() && at_once && !waiting {
                queue.hurry &= waiting;
                queue.busy = true;
                return Some(CommitWork::Flush);
            }
            if !waiting {
                queue.hurry = false;
                if queue.stop {
                    return None;
                }
                let mark = queue.quiet_since.map(|since| MARK_AFTER.saturating_sub(since.elapsed()));
                if mark == Some(Duration::ZERO) {
                    queue.busy = true;
                    return Some(CommitWork::MarkEnd);
                }
                let at_most = due.or(mark);
                queue = match queue.sync {
                    SyncPolicy::Always => self.spin_then_sleep(queue, spin, at_most),
                    SyncPolicy::EverySecond | SyncPolicy::Never => self.sleep(queue, at_most),
                };
                continue;
            }
            let gather = queue.since.map(|since| GATHER_FOR.saturating_sub(since.elapsed()));
            if !at_once
                && queue.bytes.len() < GATHERED_BYTES
                && let Some(rest) = gather.filter(|rest| !rest.is_zero())
            {
                queue = self.sleep(queue, Some(rest));
                continue;
            }
            std::mem::swap(&mut queue.bytes, batch);
            queue.since = None;
            queue.busy = true;
            // A client that asked for a flush waits for it; under load there may be no better moment.
            let hurry = std::mem::take(&mut queue.hurry);
            return Some(CommitWork::Write(if hurry { SyncPolicy::Always } else { queue.sync }));
        }
    }

    /// Has the log thread look at the queue, which has changed.
    pub(crate) fn wake_log_thread(&self, queue: MutexGuard<'_, CommitQueue>) {
        // A log thread at work looks afterwards.
        let sleeps = !queue.spins && !queue.busy;
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        if sleeps {
            self.wake.notify_one();
        }
    }

    /// Waits for the queue to change, spinning if that is likely to be soon.
    fn spin_then_sleep<'a>(
        &'a self,
        mut queue: MutexGuard<'a, CommitQueue>,
        spin: &mut AdaptiveSpin,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, CommitQueue> {
        let began = Instant::now();
        let before = self.changes.load(Ordering::Relaxed);
        queue.spins = true;
        drop(queue);
        spin.wait(|| self.changes.load(Ordering::Relaxed) != before);
        queue = lock(&self.queue);
        queue.spins = false;
        if self.changes.load(Ordering::Relaxed) == before {
            queue = self.sleep(queue, at_most);
            spin.note(began.elapsed());
        }
        queue
    }

    fn sleep<'a>(&self, queue: MutexGuard<'a, CommitQueue>, at_most: Option<Duration>) -> MutexGuard<'a, CommitQueue> {
        match at_most {
            Some(at_most) => self.wake.wait_timeout(queue, at_most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}
