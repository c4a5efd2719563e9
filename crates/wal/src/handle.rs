//! A log that is written: records are put together by one thread, written and made durable by another.
//!
//! Relies on `shared` for handing over, on `writer` for the bytes. Only the thread that owns the [`Log`] adds records; it never
//! waits for the device, unless it asks to ([`Log::finish`]). A log whose device has failed
//! takes nothing any more: what became of the last bytes is unknown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quire_device::{DeviceError, Directory};

use super::chain::Chain;
use super::error::LogError;
use super::files::{Files, adopt, older};
use super::record::Batch;
use super::shared::{KEPT_BYTES, LogStats, Notify, Shared, Sync};
use super::supply::{Ahead, Job, lock};
use super::survey::Survey;
use super::writer::{Identity, Writer};

/// Settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of a segment, a multiple of 4096; a larger record gets a segment of its own size.
    pub segment_bytes: u64,
    /// Segments that are kept to be used again.
    pub most_spares: usize,
    /// When records are made durable.
    pub sync: Sync,
    /// Bytes that may wait for the thread that writes before [`Log::is_behind`] says so.
    pub most_waiting_bytes: usize,
    /// How long they may wait.
    pub longest_wait: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            most_spares: 2,
            sync: Sync::EverySecond,
            most_waiting_bytes: 64 << 20,
            longest_wait: Duration::from_secs(2),
        }
    }
}

/// A log to which records are added.
pub struct Log {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    ahead: Arc<Ahead>,
    threads: Vec<JoinHandle<()>>,
    /// Ends, with a word or without, when it is known whether there is a segment.
    begun: Receiver<()>,
    batch: Batch,
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
        identity: Identity,
        next_sequence: u64,
        notify: Notify,
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
        identity: Identity,
        next_sequence: u64,
        notify: Notify,
    ) -> Result<Self, LogError> {
        let survey = Survey::of(&**directory, next_sequence - 1)?;
        survey.check_dataset(identity.dataset)?;
        if let Some(last) = survey.segments.last().filter(|segment| segment.meta.first_sequence > next_sequence) {
            let (file, found) = (last.path().to_owned(), last.meta.first_sequence);
            return Err(LogError::OtherHistory { file, found, next: next_sequence });
        }
        let Files { supply, jobs, orders, ahead } =
            Files::new(directory, options.segment_bytes, options.most_spares, survey.highest_index);
        let chain = Chain::new(identity.in_force, options.segment_bytes);
        let shared = Arc::new(Shared::new(next_sequence, chain, options.sync, notify));
        let (writes, looks_after) = (Arc::clone(&shared), Arc::clone(&shared));
        let (directory, stock, (tell, begun)) = (Arc::clone(directory), orders.stock(), channel());
        let write = move || {
            let first = || {
                adopt(&stock, &*directory, &survey)?;
                let closed = older(&*directory, &survey, next_sequence)?;
                Writer::new(supply, identity, next_sequence, closed, Arc::clone(&writes.chain))
            };
            let mut writer = match first() {
                Ok(writer) => writer,
                Err(error) => return writes.fail(error),
            };
            writes.begin(&writer);
            // Only who waits for it has the other end.
            let _ = tell.send(());
            writes.work(&mut writer);
        };
        let threads = vec![
            spawn("quire-log", &shared, write)?,
            spawn("quire-log-files", &shared, move || orders.carry_out(&looks_after))?,
        ];
        let appended = next_sequence - 1;
        Ok(Self { shared, jobs: Some(jobs), ahead, threads, begun, batch: Batch::default(), appended, options })
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
            // A thread that waits for more to come looks by itself.
            self.shared.rouse(queue);
        } else {
            drop(queue);
        }
        self.batch.bytes.clear();
        self.batch.bytes.shrink_to(KEPT_BYTES);
    }

    /// Asks to be notified when more is durable; whoever waits looks at [`Log::durable`] after this, not before.
    pub fn want_notice(&self) {
        self.shared.want_notice();
    }

    /// Has everything that was added made durable soon, whatever the settings say.
    pub fn hurry(&mut self) {
        self.commit();
        let mut queue = lock(&self.shared.queue);
        queue.hurry = true;
        self.shared.rouse(queue);
    }

    /// Changes when records are made durable.
    pub fn set_sync(&mut self, sync: Sync) {
        self.commit();
        self.options.sync = sync;
        let mut queue = lock(&self.shared.queue);
        // Whoever waits under the old rule is not to wait for ever.
        (queue.sync, queue.hurry) = (sync, true);
        self.shared.rouse(queue);
    }

    /// When records are made durable.
    pub fn sync(&self) -> Sync {
        self.options.sync
    }

    /// Whether so much waits for the device, or for so long, that no more should be added.
    pub fn is_behind(&self) -> bool {
        let queue = lock(&self.shared.queue);
        queue.bytes.len() > self.options.most_waiting_bytes
            || queue.since.is_some_and(|since| since.elapsed() > self.options.longest_wait)
    }

    /// Why the file that comes after the one which is written to can't be made, if it can't. There is still room in that
    /// one, so whoever adds no more now loses nothing.
    pub fn shortage(&self) -> Option<DeviceError> {
        self.ahead.shortage()
    }

    /// Has the file tried once more that couldn't be made.
    pub fn retry_files(&self) {
        if let Some(jobs) = &self.jobs {
            self.ahead.retry(jobs);
        }
    }

    /// Bytes that wait for the thread that writes, those added and not committed counted.
    pub fn waiting_bytes(&self) -> usize {
        lock(&self.shared.queue).bytes.len() + self.batch.bytes.len()
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
            let _ = jobs.send(Job::Covered(position));
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

    /// Writes what was added, makes it durable and ends the log; a record that is open is given up. Waits for the device.
    ///
    /// # Errors
    /// Why the log had failed before, or why this failed.
    pub fn finish(mut self) -> Result<(), LogError> {
        self.batch.drop_open();
        self.commit();
        self.end();
        self.shared.failure().cloned().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.stop = true;
        self.shared.rouse(queue);
        if let Some(jobs) = self.jobs.take() {
            // If it has ended already, so much the better.
            let _ = jobs.send(Job::End);
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

fn spawn(name: &str, shared: &Arc<Shared>, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LogError> {
    let shared = Arc::clone(shared);
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            shared.fail(LogError::Crashed);
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(guarded).map_err(|error| LogError::Thread(error.to_string()))
}
