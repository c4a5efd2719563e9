//! What the thread that runs commands, the thread that writes and the thread that looks after files share.
//!
//! Relies on one rule for order: records are handed over under the queue's lock, and one thread takes them from there and
//! writes them. So at most one batch is on its way, and none overtakes another; nobody else ever waits for the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::chain::Chain;
use super::error::LogError;
use super::patience::Patience;
use super::supply::lock;
use super::writer::Writer;

/// When records are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// With the batch that they are in: whoever waits for them is told afterwards.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes.
    Never,
}

/// Between two flushes of [`Sync::EverySecond`].
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Where nobody waits for the device, batches are gathered for so long…
const GATHER_FOR: Duration = Duration::from_millis(2);
/// …or until they are so long.
const GATHERED_BYTES: usize = 256 << 10;

/// After so long without a record the end of the log is marked.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// The next batch is waited for awake if it tends to come sooner than this.
const SOON: Duration = Duration::from_micros(100);

/// Capacity of a batch that is kept.
pub(crate) const KEPT_BYTES: usize = 4 << 20;

/// Called when something has become durable that somebody waits for, or the log has failed.
pub type Notify = Box<dyn Fn() + Send + std::marker::Sync>;

/// Records on their way to the thread that writes.
pub(crate) struct Queue {
    pub(crate) bytes: Vec<u8>,
    /// Since when there have been any.
    pub(crate) since: Option<Instant>,
    /// The thread that writes is at it.
    pub(crate) busy: bool,
    pub(crate) sync: Sync,
    /// Somebody waits for a flush.
    pub(crate) hurry: bool,
    pub(crate) stop: bool,
    /// The thread that writes waits awake, and need not be woken.
    awake: bool,
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

pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    wake: Condvar,
    /// Counts what happened to the queue that the thread that writes may wait for.
    roused: AtomicU64,
    pub(crate) chain: Arc<Mutex<Chain>>,
    /// Where the next record begins in the segment that is written to.
    tail_bytes: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) bounded_bytes: AtomicU64,
    /// Images that the thread which looks after files hasn't heard of yet.
    pub(crate) covering: AtomicU64,
    failed: OnceLock<LogError>,
    /// There is a segment to write to.
    pub(crate) begun: AtomicBool,
    pub(crate) stats: Mutex<LogStats>,
    notify: Notify,
    wanted: AtomicBool,
}

/// What there is to do.
enum Work {
    Write(Sync),
    Flush,
    MarkEnd,
}

impl Shared {
    /// Before anything is written; the next record is `next_sequence`.
    pub(crate) fn new(next_sequence: u64, chain: Chain, sync: Sync, notify: Notify) -> Self {
        let queue = Queue {
            bytes: Vec::new(),
            since: None,
            busy: false,
            sync,
            hurry: false,
            stop: false,
            awake: false,
            unflushed_since: None,
            quiet_since: None,
        };
        Self {
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            roused: AtomicU64::new(0),
            durable: AtomicU64::new(next_sequence - 1),
            written: AtomicU64::new(next_sequence - 1),
            bounded_bytes: AtomicU64::new(0),
            chain: Arc::new(Mutex::new(chain)),
            tail_bytes: AtomicU64::new(0),
            covering: AtomicU64::new(0),
            failed: OnceLock::new(),
            begun: AtomicBool::new(false),
            stats: Mutex::default(),
            notify,
            wanted: AtomicBool::new(false),
        }
    }

    /// There is a segment to write to.
    pub(crate) fn begin(&self, writer: &Writer) {
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

    /// Notifies whoever has asked.
    pub(crate) fn tell(&self) {
        if self.wanted.swap(false, Ordering::SeqCst) {
            (self.notify)();
        }
    }

    /// Makes known how far the writer has come.
    fn publish(&self, writer: &Writer) {
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
    fn write(&self, writer: &mut Writer, batch: &mut [u8], sync: Sync) -> Result<(), LogError> {
        let began = Instant::now();
        writer.write(batch, sync == Sync::Always)?;
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

    fn flush(&self, writer: &mut Writer) -> Result<(), LogError> {
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

    /// What the thread that writes does, to the end.
    pub(crate) fn work(&self, writer: &mut Writer) {
        let mut batch = Vec::new();
        let mut patience = Patience::new(SOON);
        while let Some(work) = self.next(&mut batch, &mut patience) {
            let done = match work {
                Work::Write(sync) => self.write(writer, &mut batch, sync),
                Work::Flush => self.flush(writer),
                Work::MarkEnd => writer.mark_end().map_err(LogError::from),
            };
            if let Err(error) = done {
                self.fail(error);
                return;
            }
            batch.clear();
            batch.shrink_to(KEPT_BYTES);
            self.done(writer.dirty, matches!(work, Work::MarkEnd));
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
    fn next(&self, batch: &mut Vec<u8>, patience: &mut Patience) -> Option<Work> {
        let mut queue = lock(&self.queue);
        loop {
            if self.failed.get().is_some() {
                return None;
            }
            let (waiting, unflushed) = (!queue.bytes.is_empty(), queue.unflushed_since);
            let due = unflushed.filter(|_| queue.sync == Sync::EverySecond);
            let due = due.map(|since| FLUSH_EVERY.saturating_sub(since.elapsed()));
            let at_once = queue.hurry || queue.stop || queue.sync == Sync::Always;
            if due == Some(Duration::ZERO) || unflushed.is_some() && at_once && !waiting {
                queue.hurry &= waiting;
                queue.busy = true;
                return Some(Work::Flush);
            }
            if !waiting {
                queue.hurry = false;
                if queue.stop {
                    return None;
                }
                let mark = queue.quiet_since.map(|since| MARK_AFTER.saturating_sub(since.elapsed()));
                if mark == Some(Duration::ZERO) {
                    queue.busy = true;
                    return Some(Work::MarkEnd);
                }
                let at_most = due.or(mark);
                queue = match queue.sync {
                    Sync::Always => self.watch(queue, patience, at_most),
                    Sync::EverySecond | Sync::Never => self.sleep(queue, at_most),
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
            // Whoever is in a hurry waits for the flush, too; under load there may be no better moment.
            let hurry = std::mem::take(&mut queue.hurry);
            return Some(Work::Write(if hurry { Sync::Always } else { queue.sync }));
        }
    }

    /// Has the thread that writes look at the queue, to which something has happened.
    pub(crate) fn rouse(&self, queue: MutexGuard<'_, Queue>) {
        // Whoever is at work looks afterwards.
        let sleeps = !queue.awake && !queue.busy;
        self.roused.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        if sleeps {
            self.wake.notify_one();
        }
    }

    /// Waits for something to happen to the queue, awake if that is likely to be soon.
    fn watch<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        patience: &mut Patience,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, Queue> {
        let began = Instant::now();
        let before = self.roused.load(Ordering::Relaxed);
        queue.awake = true;
        drop(queue);
        patience.wait(|| self.roused.load(Ordering::Relaxed) != before);
        queue = lock(&self.queue);
        queue.awake = false;
        if self.roused.load(Ordering::Relaxed) == before {
            queue = self.sleep(queue, at_most);
            patience.note(began.elapsed());
        }
        queue
    }

    fn sleep<'a>(&self, queue: MutexGuard<'a, Queue>, at_most: Option<Duration>) -> MutexGuard<'a, Queue> {
        match at_most {
            Some(at_most) => self.wake.wait_timeout(queue, at_most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}
