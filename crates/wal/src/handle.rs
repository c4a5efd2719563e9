//! A log that is written: records are put together by one thread, written and made durable by another.
//!
//! Relies on `group_commit` for handing over, on `segment_writer` for the bytes. Only the thread that owns the [`Log`] adds records; it never
//! waits for the device, unless it asks to ([`Log::finish`]). A log whose device has failed
//! takes nothing any more: what became of the last bytes is unknown. One whose disk is full keeps what it has no room for, and goes on
//! when there is room; its owner should add no more meanwhile ([`Log::shortage`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quire_device::{DeviceError, Directory};

use super::directory_scan::DirectoryScan;
use super::error::LogError;
use super::group_commit::{CommitCallback, GroupCommit, KEPT_BYTES, LogStats, SyncPolicy};
use super::maintenance::{SegmentFiles, adopt, older};
use super::preallocation::{MaintenanceJob, NextSegment, Preallocation, lock};
use super::record::RecordBatch;
use super::segment_chain::SegmentChain;
use super::segment_writer::{LogIdentity, SegmentWriter};

/// Settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of a segment, a multiple of 4096; a larger record gets a segment of its own size.
    pub segment_bytes: u64,
    /// Segments that are kept to be used again.
    pub most_spares: usize,
    /// When records are made durable.
    pub sync: SyncPolicy,
    /// Bytes that may wait for the log thread before [`Log::is_behind`] says so.
    pub most_waiting_bytes: usize,
    /// How long they may wait.
    pub longest_wait: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            most_spares: 2,
            sync: SyncPolicy::EverySecond,
            most_waiting_bytes: 64 << 20,
            longest_wait: Duration::from_secs(2),
        }
    }
}

/// A log to which records are added.
pub struct Log {
    shared: Arc<GroupCommit>,
    jobs: Option<Sender<MaintenanceJob>>,
    preallocation: Arc<Preallocation>,
    threads: Vec<JoinHandle<()>>,
    /// Ends, with a word or without, when it is known whether there is a segment.
    begun: Receiver<()>,
    batch: RecordBatch,
    /// The last record that was added.
    appended: u64,
    options: LogOptions,
}

impl Log {
    /// Begins a segment for the records from `next_sequence` on, and returns when it is durable. Older segments stay until an
    /// image covers them. `notify` is called from another thread.
    ///
    /// # Errors
    /// The device or the system refuses, or there are segments that this log doesn't continue.
    pub fn start(
        directory: &Arc<dyn Directory>,
        options: LogOptions,
        identity: LogIdentity,
        next_sequence: u64,
        notify: CommitCallback,
    ) -> Result<Self, LogError> {
        let log = Self::begin(directory, options, identity, next_sequence, notify)?;
        // A thread that has panicked has told so.
        let _ = log.begun.recv();
        log.failure().cloned().map_or(Ok(log), Err)
    }

    /// The same, and doesn't wait for the device: records are taken at once, and written when the segment is there. If it
    /// can't be made the log has failed, and [`Log::has_begun`] says no.
    ///
    /// # Errors
    /// The system refuses, or there are segments that this log doesn't continue.
    pub fn begin(
        directory: &Arc<dyn Directory>,
        options: LogOptions,
        identity: LogIdentity,
        next_sequence: u64,
        notify: CommitCallback,
    ) -> Result<Self, LogError> {
        let scan = DirectoryScan::of(&**directory, next_sequence - 1)?;
        scan.check_dataset(identity.dataset)?;
        if let Some(last) = scan.segments.last().filter(|segment| segment.meta.first_sequence > next_sequence) {
            let (file, found) = (last.path().to_owned(), last.meta.first_sequence);
            return Err(LogError::OtherHistory { file, found, next: next_sequence });
        }
        let SegmentFiles { allocator, jobs, maintenance, preallocation } =
            SegmentFiles::new(directory, options.segment_bytes, options.most_spares, scan.highest_index);
        let chain = SegmentChain::new(identity.in_force, options.segment_bytes);
        let shared = Arc::new(GroupCommit::new(next_sequence, chain, options.sync, notify));
        let (writes, looks_after) = (Arc::clone(&shared), Arc::clone(&shared));
        let (directory, pool, (tell, begun)) = (Arc::clone(directory), maintenance.pool(), channel());
        let write = move || {
            let first = || {
                adopt(&pool, &*directory, &scan)?;
                let closed = older(&*directory, &scan, next_sequence)?;
                SegmentWriter::new(allocator, identity, next_sequence, closed, Arc::clone(&writes.chain))
            };
            let mut writer = match first() {
                Ok(writer) => writer,
                Err(error) => return writes.fail(error),
            };
            writes.begin(&writer);
            // `start` waits for it; with `begin` the other end may be gone.
            let _ = tell.send(());
            writes.work(&mut writer);
        };
        let threads = vec![
            spawn("quire-log", &shared, write)?,
            spawn("quire-log-files", &shared, move || maintenance.carry_out(&looks_after))?,
        ];
        let appended = next_sequence - 1;
        Ok(Self {
            shared,
            jobs: Some(jobs),
            preallocation,
            threads,
            begun,
            batch: RecordBatch::default(),
            appended,
            options,
        })
    }

    /// Whether there is a segment to write to.
    pub fn has_begun(&self) -> bool {
        self.shared.begun.load(Ordering::Acquire)
    }

    /// Adds a command to the record that is open, or opens one of the time `now_ms`. The words go in by [`Log::word`].
    #[inline]
    pub fn command(&mut self, now_ms: i64, db: u8, words: usize) {
        self.batch.command(now_ms, db, words);
    }

    /// Adds the next word of the command.
    #[inline]
    pub fn word(&mut self, word: &[u8]) {
        self.batch.word(word);
    }

    /// Whether a record is open.
    #[inline]
    pub fn has_open(&self) -> bool {
        self.batch.has_open()
    }

    /// Closes the record that is open, and returns its number.
    #[inline]
    pub fn seal(&mut self) -> Option<u64> {
        if self.shared.failure().is_some() {
            self.batch.drop_open();
            return None;
        }
        let closed = self.batch.close()?;
        match closed.fill(self.appended + 1) {
            Ok(()) => {
                self.appended += 1;
                Some(self.appended)
            }
            Err(error) => {
                self.shared.fail(error);
                None
            }
        }
    }

    /// Gives up the record that is open.
    pub fn drop_open(&mut self) {
        self.batch.drop_open();
    }

    /// Whether everything that was added has been handed over.
    pub fn is_committed(&self) -> bool {
        self.batch.is_empty()
    }

    /// The last record that was added.
    #[inline]
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// The last record that is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::SeqCst)
    }

    /// The last record that was written, durable or not.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Acquire)
    }

    /// Why the log takes nothing any more.
    #[inline]
    pub fn failure(&self) -> Option<&LogError> {
        self.shared.failure()
    }

    /// Hands over what was added, but for the record that is open.
    pub fn commit(&mut self) {
        let open = self.batch.part();
        if self.shared.failure().is_some() {
            self.batch.bytes.clear();
        } else if !self.batch.is_empty() {
            self.hand_over();
        }
        self.batch.rejoin(open);
    }

    fn hand_over(&mut self) {
        let mut queue = lock(&self.shared.queue);
        let first = queue.bytes.is_empty();
        if first {
            std::mem::swap(&mut queue.bytes, &mut self.batch.bytes);
            queue.since = Some(Instant::now());
        } else {
            queue.bytes.extend_from_slice(&self.batch.bytes);
        }
        if first {
            // A log thread that gathers more looks by itself.
            self.shared.wake_log_thread(queue);
        } else {
            drop(queue);
        }
        self.batch.bytes.clear();
        self.batch.bytes.shrink_to(KEPT_BYTES);
    }

    /// Asks to be notified when more is durable; a thread that waits looks at [`Log::durable`] after this, not before.
    pub fn want_notice(&self) {
        self.shared.want_notice();
    }

    /// Has everything that was added made durable soon, whatever the policy says.
    pub fn hurry(&mut self) {
        self.commit();
        let mut queue = lock(&self.shared.queue);
        queue.hurry = true;
        self.shared.wake_log_thread(queue);
    }

    /// Changes when records are made durable.
    pub fn set_sync(&mut self, sync: SyncPolicy) {
        self.commit();
        self.options.sync = sync;
        let mut queue = lock(&self.shared.queue);
        // A client that waits under the old policy must not wait for ever.
        (queue.sync, queue.hurry) = (sync, true);
        self.shared.wake_log_thread(queue);
    }

    /// When records are made durable.
    pub fn sync(&self) -> SyncPolicy {
        self.options.sync
    }

    /// Whether so much waits for the device, or for so long, that no more should be added.
    pub fn is_behind(&self) -> bool {
        let queue = lock(&self.shared.queue);
        queue.bytes.len() > self.options.most_waiting_bytes
            || queue.since.is_some_and(|since| since.elapsed() > self.options.longest_wait)
    }

    /// Why the file that comes after the one which is written to can't be made, if it can't. A caller that adds no more now
    /// loses nothing: mostly there is still room in that one, and what there is none for waits ([`NextSegment::Awaited`]).
    pub fn shortage(&self) -> Option<DeviceError> {
        self.preallocation.shortage()
    }

    /// How far the file is that comes after the one which is written to.
    pub fn next_segment(&self) -> NextSegment {
        self.preallocation.status()
    }

    /// Has the file tried once more that couldn't be made: to be called from time to time while there is a shortage. An image
    /// that frees files does the same ([`Log::cover`]).
    pub fn retry_files(&self) {
        if let Some(jobs) = &self.jobs {
            self.preallocation.retry(jobs);
        }
    }

    /// Bytes that wait for the log thread, those added and not committed counted, or that it has no room for.
    pub fn waiting_bytes(&self) -> usize {
        let homeless_bytes = self.shared.homeless_bytes.load(Ordering::Relaxed);
        homeless_bytes + lock(&self.shared.queue).bytes.len() + self.batch.bytes.len()
    }

    /// Bytes of the files in use, of the one that is written to no more than of an ordinary one: what an image would make less.
    /// Costs nothing.
    pub fn bounded_bytes(&self) -> u64 {
        self.shared.bounded_bytes.load(Ordering::Relaxed)
    }

    /// Says that a durable image holds the effect of all records up to `position`: segments that hold no others are used
    /// again or removed, by a thread that may wait. A log that wasn't in force yet is from here on.
    pub fn cover(&self, position: u64) {
        if let Some(jobs) = &self.jobs {
            self.shared.covering.fetch_add(1, Ordering::SeqCst);
            // A thread that has ended has told why.
            let _ = jobs.send(MaintenanceJob::Covered(position));
        }
    }

    /// Whether what an image covers is still being taken away.
    pub fn is_covering(&self) -> bool {
        self.shared.covering.load(Ordering::SeqCst) > 0
    }

    /// Figures.
    pub fn stats(&self) -> LogStats {
        self.shared.figures()
    }

    /// Writes what was added, makes it durable and ends the log; a record that is open is given up. Waits for the device, and
    /// not for room: what has none by then is given up, too.
    ///
    /// # Errors
    /// Why the log had failed before, or why this failed; [`LogError::NoRoom`] says which records are not in it.
    pub fn finish(mut self) -> Result<(), LogError> {
        self.batch.drop_open();
        self.commit();
        self.end();
        self.shared.failure().cloned().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        // A thread may be waiting for the space of large files, and the caller's clients for that.
        self.preallocation.end();
        let mut queue = lock(&self.shared.queue);
        queue.stop = true;
        self.shared.wake_log_thread(queue);
        if let Some(jobs) = self.jobs.take() {
            // Its end is what a log thread hears that waits for room. If it has ended already, so much the better.
            let _ = jobs.send(MaintenanceJob::End);
        }
        for thread in self.threads.drain(..) {
            // If it panicked the log has failed, which is told elsewhere.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Log")
            .field("appended", &self.appended)
            .field("durable", &self.durable())
            .finish_non_exhaustive()
    }
}

fn spawn(
    name: &str,
    shared: &Arc<GroupCommit>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, LogError> {
    let shared = Arc::clone(shared);
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            shared.fail(LogError::Crashed);
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(guarded).map_err(|error| LogError::Thread(error.to_string()))
}
