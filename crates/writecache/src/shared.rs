//! What the cache's callers and its threads share, and the way from a job to its end.
//!
//! Locks, from the outside in: a volume's order, the cache state, the graph of tasks. None is held during I/O but a volume's
//! order, which other writers of that volume may have to wait for while an unaligned write reads what it changes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quire_device::Device;

use crate::buffer_pool::BufferPool;
use crate::cache_state::{CacheState, IssueRules, NextJob};
use crate::config::CacheConfig;
use crate::ids::BLOCK_BYTES;
use crate::jobs::{FlushJob, LogJob, SlowJob, TruncateJob};
use crate::stats::{WaitCause, WaitCounters};
use crate::tasks::{Criticality, TaskId, WaitCallback};

/// Longest time for which others make way for critical users of slow devices.
const LONGEST_HOLD: Duration = Duration::from_millis(100);
/// Versions that are settled under the lock at a time when a flush has ended.
const SETTLED_AT_ONCE: usize = 1024;

/// Who uses slow devices now.
#[derive(Default)]
struct SlowUsers {
    all: AtomicUsize,
    critical: AtomicUsize,
    /// How often a critical one began to, since the cache was opened.
    critical_uses: AtomicU64,
    /// Others were told to make way for the critical ones.
    has_held: AtomicBool,
    /// When something else was last begun on a slow device, by [`SharedCache::now_ns`].
    begun_ns: AtomicU64,
}

/// Shared state.
pub(crate) struct SharedCache {
    pub(crate) config: CacheConfig,
    pub(crate) fast: Arc<dyn Device>,
    pub(crate) buffers: BufferPool,
    pub(crate) waits: WaitCounters,
    slow_use: SlowUsers,
    /// Everything is to be issued and, if `drain_all`, written back.
    pub(crate) hurry: AtomicBool,
    pub(crate) drain_all: AtomicBool,
    /// The threads are to end.
    pub(crate) stop: AtomicBool,
    /// Sleepers for whom the end of a write to the log may change something. Changed under the cache state's lock.
    log_sleepers: AtomicUsize,
    cache_state: Mutex<CacheState>,
    /// Something ended.
    changed: Condvar,
    /// There may be work for issuers.
    work: Condvar,
    /// There may be work for write-back.
    drain: Condvar,
    began: Instant,
}

/// A task uses a slow device while this lives.
pub(crate) struct SlowUse<'a> {
    shared: &'a SharedCache,
    critical: bool,
}

impl Drop for SlowUse<'_> {
    fn drop(&mut self) {
        self.shared.slow_use.all.fetch_sub(1, Ordering::Relaxed);
        let is_last = self.critical && self.shared.slow_use.critical.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.shared.slow_use.has_held.swap(false, Ordering::Relaxed) {
            self.shared.call_issuers();
        }
    }
}

impl SharedCache {
    pub(crate) fn new(config: CacheConfig, fast: Arc<dyn Device>, mut cache_state: CacheState) -> Self {
        cache_state.queue_blocks = config.queue_bytes / BLOCK_BYTES;
        cache_state.flush.unsynced &= !config.slow_synced;
        Self {
            config,
            fast,
            buffers: BufferPool::default(),
            waits: WaitCounters::default(),
            slow_use: SlowUsers::default(),
            hurry: AtomicBool::new(false),
            drain_all: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            log_sleepers: AtomicUsize::new(0),
            cache_state: Mutex::new(cache_state),
            changed: Condvar::new(),
            work: Condvar::new(),
            drain: Condvar::new(),
            began: Instant::now(),
        }
    }

    pub(crate) fn cache_state(&self) -> MutexGuard<'_, CacheState> {
        self.cache_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(crate) fn criticality(&self, task: TaskId) -> Criticality {
        self.config.tasks.criticality(task)
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
        let critical = self.criticality(task).any();
        self.slow_use.all.fetch_add(1, Ordering::Relaxed);
        self.slow_use.critical.fetch_add(usize::from(critical), Ordering::Relaxed);
        self.slow_use.critical_uses.fetch_add(u64::from(critical), Ordering::Relaxed);
        SlowUse { shared: self, critical }
    }

    pub(crate) fn critical_slow_uses(&self) -> u64 {
        self.slow_use.critical_uses.load(Ordering::Relaxed)
    }

    pub(crate) fn is_slow_used(&self) -> bool {
        self.slow_use.all.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing is to be begun on slow devices, because a critical task waits for one. Now and then something is, so
    /// that the other tasks get on, too.
    pub(crate) fn holds_back(&self) -> bool {
        let idle_ns = self.now_ns().saturating_sub(self.slow_use.begun_ns.load(Ordering::Relaxed));
        let holds = self.slow_use.critical.load(Ordering::Relaxed) > 0 && idle_ns < LONGEST_HOLD.as_nanos() as u64;
        if holds {
            self.slow_use.has_held.store(true, Ordering::Relaxed);
        }
        holds
    }

    /// Something is begun on a slow device that makes way for no task.
    pub(crate) fn note_slow_begun(&self) {
        self.slow_use.begun_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Sleeps until something has ended, ends of writes to the log left out: they are frequent, and most sleepers wait for a
    /// slow device. A time limit guards against whatever is not foreseen.
    pub(crate) fn wait_changed<'a>(&self, cache_state: MutexGuard<'a, CacheState>) -> MutexGuard<'a, CacheState> {
        self.work.notify_one();
        let limit = Duration::from_secs(1);
        self.changed.wait_timeout(cache_state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps until something has ended, be it a write to the log.
    pub(crate) fn wait_log_changed<'a>(&self, cache_state: MutexGuard<'a, CacheState>) -> MutexGuard<'a, CacheState> {
        self.log_sleepers.fetch_add(1, Ordering::Relaxed);
        let cache_state = self.wait_changed(cache_state);
        self.log_sleepers.fetch_sub(1, Ordering::Relaxed);
        cache_state
    }

    pub(crate) fn wait_work<'a>(
        &self,
        cache_state: MutexGuard<'a, CacheState>,
        limit: Duration,
    ) -> MutexGuard<'a, CacheState> {
        self.work.wait_timeout(cache_state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn wait_drain<'a>(
        &self,
        cache_state: MutexGuard<'a, CacheState>,
        limit: Duration,
    ) -> MutexGuard<'a, CacheState> {
        self.drain.wait_timeout(cache_state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Issuers may have work.
    pub(crate) fn call_issuers(&self) {
        self.work.notify_one();
    }

    /// Write-back may have work.
    pub(crate) fn call_drain(&self) {
        self.drain.notify_one();
    }

    /// Something has ended: every sleeper looks again.
    pub(crate) fn announce(&self) {
        self.changed.notify_all();
        self.work.notify_one();
    }

    /// Something has ended that only those need to know who sleep in [`SharedCache::wait_log_changed`].
    pub(crate) fn announce_to_log_sleepers(&self) {
        if self.log_sleepers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }

    /// Wakes all sleepers, the threads of the cache included.
    pub(crate) fn rouse(&self) {
        self.changed.notify_all();
        self.work.notify_all();
        self.drain.notify_all();
    }

    /// Writes to the log in the name of a task; whether it is there. If the device fails the versions are queued again.
    pub(crate) fn run_log(&self, job: &LogJob, criticality: Criticality) -> bool {
        let began = Instant::now();
        let result = job.run(&*self.fast, &self.buffers);
        if let Err(error) = &result {
            tracing::error!(%error, "the fast device of the write cache failed");
        }
        let mut cache_state = self.cache_state();
        cache_state.finish_log(job, &result, self.now_ns());
        let pressing = result.is_err() || cache_state.used_percent() >= self.config.low_percent;
        let awaited = job.is_awaited || self.log_sleepers.load(Ordering::Relaxed) > 0;
        drop(cache_state);
        self.waits.note(WaitCause::LogWrite, criticality.any(), began.elapsed().as_nanos() as u64);
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
        self.cache_state().finish_slow(job, &result, self.now_ns());
        self.announce();
    }

    fn run_flush(&self, job: &FlushJob) {
        let result = job.device.flush_data();
        if let Err(error) = &result {
            tracing::error!(%error, "a slow device of the write cache failed; its writes stay in the log from now on");
        }
        let mut from = Some(0);
        while let Some(block) = from {
            from = job.finish(&mut self.cache_state(), &result, self.now_ns(), block, SETTLED_AT_ONCE);
        }
        self.announce();
    }

    /// Truncates a slow device and tells the log.
    fn run_truncate(&self, job: &TruncateJob) {
        let result = job.run();
        if let Err(error) = &result {
            tracing::error!(%error, "a slow device of the write cache failed; its writes stay in the log from now on");
        }
        self.cache_state().finish_truncate(job, &result, self.now_ns());
        self.try_close(job.volume);
        self.rouse();
    }

    pub(crate) fn run_next(&self, next: NextJob) {
        match next {
            NextJob::Truncate(job) => self.run_truncate(&job),
            NextJob::Log(job) => drop(self.run_log(&job, Criticality::default())),
            NextJob::Slow(job) => self.run_slow(&job),
            NextJob::Flush(job) => self.run_flush(&job),
        }
    }
}

/// Wakes those who wait for writes, so that they ask again how they stand.
impl WaitCallback for SharedCache {
    fn wake(&self) {
        // A task between asking and sleeping holds the lock.
        drop(self.cache_state());
        self.changed.notify_all();
    }
}
