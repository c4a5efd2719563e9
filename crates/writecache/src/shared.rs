//! What the cache's callers and its threads share, and the way from a job to its end.
//!
//! Locks, from the outside in: a volume's order, the ledger, the graph of tasks. None is held during I/O but a volume's
//! order, which other writers of that volume may have to wait for while an unaligned write reads what it changes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quire_device::Device;

use crate::buffers::Buffers;
use crate::config::CacheConfig;
use crate::ids::BLOCK_BYTES;
use crate::jobs::{CutJob, FlushJob, LogJob, SlowJob};
use crate::ledger::{IssueRules, Ledger, Next};
use crate::stats::{Cause, Waits};
use crate::tasks::{Standing, TaskId, Wake};

/// Longest time for which others make way for critical users of slow devices.
const LONGEST_HOLD: Duration = Duration::from_millis(100);
/// Versions that are settled under the lock at a time when a flush has ended.
const SETTLED_AT_ONCE: usize = 1024;

/// Shared state.
pub(crate) struct Shared {
    pub(crate) config: CacheConfig,
    pub(crate) fast: Arc<dyn Device>,
    pub(crate) buffers: Buffers,
    pub(crate) waits: Waits,
    /// Who uses a slow device now, and who of them is critical.
    slow_users: AtomicUsize,
    critical_slow_users: AtomicUsize,
    /// Others were told to make way for those.
    has_held: AtomicBool,
    /// When something else was last begun on a slow device, by [`Shared::now_ns`].
    slow_begun_ns: AtomicU64,
    /// Everything is to be issued and, if `drain_all`, written back.
    pub(crate) hurry: AtomicBool,
    pub(crate) drain_all: AtomicBool,
    /// The threads are to end.
    pub(crate) stop: AtomicBool,
    /// Sleepers for whom the end of a write to the log may change something. Changed under the ledger's lock.
    log_sleepers: AtomicUsize,
    ledger: Mutex<Ledger>,
    /// Something ended.
    changed: Condvar,
    /// There may be work for issuers.
    work: Condvar,
    /// There may be work for write-back.
    drain: Condvar,
    began: Instant,
}

/// Somebody uses a slow device while this lives.
pub(crate) struct SlowUse<'a> {
    shared: &'a Shared,
    critical: bool,
}

impl Drop for SlowUse<'_> {
    fn drop(&mut self) {
        self.shared.slow_users.fetch_sub(1, Ordering::Relaxed);
        let is_last = self.critical && self.shared.critical_slow_users.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.shared.has_held.swap(false, Ordering::Relaxed) {
            self.shared.call_issuers();
        }
    }
}

impl Shared {
    pub(crate) fn new(config: CacheConfig, fast: Arc<dyn Device>, mut ledger: Ledger) -> Self {
        ledger.queue_blocks = config.queue_bytes / BLOCK_BYTES;
        ledger.unsynced &= !config.slow_synced;
        Self {
            config,
            fast,
            buffers: Buffers::default(),
            waits: Waits::default(),
            slow_users: AtomicUsize::new(0),
            critical_slow_users: AtomicUsize::new(0),
            has_held: AtomicBool::new(false),
            slow_begun_ns: AtomicU64::new(0),
            hurry: AtomicBool::new(false),
            drain_all: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            log_sleepers: AtomicUsize::new(0),
            ledger: Mutex::new(ledger),
            changed: Condvar::new(),
            work: Condvar::new(),
            drain: Condvar::new(),
            began: Instant::now(),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(crate) fn standing(&self, task: TaskId) -> Standing {
        self.config.tasks.standing(task)
    }

    pub(crate) fn rules(&self) -> IssueRules {
        let config = &self.config;
        IssueRules {
            linger_ns: config.linger.as_nanos() as u64,
            queue_bytes: config.queue_bytes,
            runs_per_job: config.runs_per_job,
            jobs_per_volume: (config.issuers / 2).max(1),
            everything: self.hurry.load(Ordering::Relaxed),
            hold_back: self.holds_back(),
        }
    }

    /// The task uses a slow device until the result is dropped; if it is critical, others make way.
    pub(crate) fn use_slow(&self, task: TaskId) -> SlowUse<'_> {
        let critical = self.standing(task).any();
        self.slow_users.fetch_add(1, Ordering::Relaxed);
        self.critical_slow_users.fetch_add(usize::from(critical), Ordering::Relaxed);
        SlowUse { shared: self, critical }
    }

    pub(crate) fn is_slow_used(&self) -> bool {
        self.slow_users.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing is to be begun on slow devices, because somebody critical waits for one. Now and then something is, so that
    /// everybody gets on.
    pub(crate) fn holds_back(&self) -> bool {
        let idle_ns = self.now_ns().saturating_sub(self.slow_begun_ns.load(Ordering::Relaxed));
        let holds = self.critical_slow_users.load(Ordering::Relaxed) > 0 && idle_ns < LONGEST_HOLD.as_nanos() as u64;
        if holds {
            self.has_held.store(true, Ordering::Relaxed);
        }
        holds
    }

    /// Something is begun on a slow device that makes way for nobody.
    pub(crate) fn note_slow_begun(&self) {
        self.slow_begun_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Sleeps until something has ended, ends of writes to the log left out: they are frequent, and most sleepers wait for a
    /// slow device. A time limit guards against whatever is not foreseen.
    pub(crate) fn wait_changed<'a>(&self, ledger: MutexGuard<'a, Ledger>) -> MutexGuard<'a, Ledger> {
        self.work.notify_one();
        let limit = Duration::from_secs(1);
        self.changed.wait_timeout(ledger, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps until something has ended, be it a write to the log.
    pub(crate) fn wait_log_changed<'a>(&self, ledger: MutexGuard<'a, Ledger>) -> MutexGuard<'a, Ledger> {
        self.log_sleepers.fetch_add(1, Ordering::Relaxed);
        let ledger = self.wait_changed(ledger);
        self.log_sleepers.fetch_sub(1, Ordering::Relaxed);
        ledger
    }

    pub(crate) fn wait_work<'a>(&self, ledger: MutexGuard<'a, Ledger>, limit: Duration) -> MutexGuard<'a, Ledger> {
        self.work.wait_timeout(ledger, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn wait_drain<'a>(&self, ledger: MutexGuard<'a, Ledger>, limit: Duration) -> MutexGuard<'a, Ledger> {
        self.drain.wait_timeout(ledger, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Issuers may have work.
    pub(crate) fn call_issuers(&self) {
        self.work.notify_one();
    }

    /// Write-back may have work.
    pub(crate) fn call_drain(&self) {
        self.drain.notify_one();
    }

    /// Something has ended: everybody looks again.
    pub(crate) fn announce(&self) {
        self.changed.notify_all();
        self.work.notify_one();
    }

    /// Something has ended that only those need to know who sleep in [`Shared::wait_log_changed`].
    pub(crate) fn announce_to_log_sleepers(&self) {
        if self.log_sleepers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }

    /// Everybody, threads included.
    pub(crate) fn rouse(&self) {
        self.changed.notify_all();
        self.work.notify_all();
        self.drain.notify_all();
    }

    /// Writes to the log in the name of a task; whether it is there. If the device fails the versions are queued again.
    pub(crate) fn run_log(&self, job: &LogJob, standing: Standing) -> bool {
        let began = Instant::now();
        let result = job.run(&*self.fast, &self.buffers);
        if let Err(error) = &result {
            tracing::error!(%error, "the fast device of the write cache failed");
        }
        let mut ledger = self.ledger();
        ledger.finish_log(job, &result, self.now_ns());
        let pressing = result.is_err() || ledger.used_percent() >= self.config.low_percent;
        let awaited = job.is_awaited || self.log_sleepers.load(Ordering::Relaxed) > 0;
        drop(ledger);
        self.waits.note(Cause::LogWrite, standing.any(), began.elapsed().as_nanos() as u64);
        if pressing {
            self.call_drain();
        }
        if result.is_err() {
            self.announce();
        } else if awaited {
            self.changed.notify_all();
        }
        result.is_ok()
    }

    fn run_slow(&self, job: &SlowJob) {
        let result = job.run(&self.buffers);
        if let Err(error) = &result {
            tracing::error!(%error, "a slow device of the write cache failed; its writes stay in the log from now on");
        }
        self.ledger().finish_slow(job, &result, self.now_ns());
        self.announce();
    }

    fn run_flush(&self, job: &FlushJob) {
        let result = job.device.flush_data();
        if let Err(error) = &result {
            tracing::error!(%error, "a slow device of the write cache failed; its writes stay in the log from now on");
        }
        let mut from = Some(0);
        while let Some(block) = from {
            from = self.ledger().finish_flush(job, &result, self.now_ns(), block, SETTLED_AT_ONCE);
        }
        self.announce();
    }

    /// Cuts a slow device and tells the log.
    fn run_cut(&self, job: &CutJob) {
        let result = job.run();
        if let Err(error) = &result {
            tracing::error!(%error, "a slow device of the write cache failed; its writes stay in the log from now on");
        }
        self.ledger().finish_cut(job, &result, self.now_ns());
        self.try_close(job.volume);
        self.rouse();
    }

    pub(crate) fn run_next(&self, next: Next) {
        match next {
            Next::Cut(job) => self.run_cut(&job),
            Next::Log(job) => drop(self.run_log(&job, Standing::default())),
            Next::Slow(job) => self.run_slow(&job),
            Next::Flush(job) => self.run_flush(&job),
        }
    }
}

/// Wakes those who wait for writes, so that they ask again how they stand.
impl Wake for Shared {
    fn wake(&self) {
        // Whoever is between asking and sleeping holds the lock.
        drop(self.ledger());
        self.changed.notify_all();
    }
}
