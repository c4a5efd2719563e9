//! Every interleaving of an issuer, a critical waiter, a newer writer, a truncation, write-back and relocation over one block,
//! explored by loom.
//!
//! The rules of a block's versions are the real ones (`protocol::Slot`). What stands around them is written here anew, for one block: the steps
//! of `CacheState`, and the loop of a waiter. The real `CacheState` is not explored, for two reasons. Its collections, jobs and devices make a run
//! much longer, and loom repeats a run once for each order. And loom would find nothing more in it: all of it is under one
//! lock and it has no atomics, so what threads can do to it is the order of its steps. That order is what `src/sim/` explores, over the real
//! `CacheState`, the real jobs and devices that lose power: at random, with many blocks, where this test takes every order with one block. The
//! loops of the real threads (`SharedCache`) are tested by `tests/cache_threads.rs`, with real threads.
//!
//! The devices are a cell each, written without the lock, as the real ones are. What they hold is the number of the version.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-writecache --release --test loom_cache` (`cargo xtask test` does).
#![cfg(loom)]

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;
use quire_writecache::protocol::{QueuedVersion, Slot};

/// A version's data is its stamp.
struct CacheState {
    slot: Slot<u64>,
    /// Position and version in the log, durable.
    logged: Option<(u64, u64)>,
    next_lsn: u64,
    epoch: u64,
    flights: u64,
    /// What a flush has made durable on the slow device.
    flushed: u64,
    draining: bool,
}

struct World {
    cache_state: Mutex<CacheState>,
    changed: Condvar,
    slow: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let slot = Slot::default();
        let cache_state =
            CacheState { slot, logged: None, next_lsn: 1, epoch: 0, flights: 0, flushed: 0, draining: false };
        Arc::new(Self { cache_state: Mutex::new(cache_state), changed: Condvar::new(), slow: AtomicU64::new(0) })
    }

    fn cache_state(&self) -> MutexGuard<'_, CacheState> {
        self.cache_state.lock().unwrap()
    }

    fn put(&self, version: u64) {
        let queued =
            QueuedVersion { data: version, oldest: version, since_ns: 0, urgent: true, task: 0, direct: false };
        self.cache_state().slot.put(queued);
    }

    /// `CacheState::next_job`, `SlowJob::run`, `CacheState::finish_slow`, then the flush. Does nothing if it may not.
    fn issue(&self, ok: bool) {
        let (number, version) = {
            let mut cache_state = self.cache_state();
            let is_logged = cache_state.logged.is_some();
            if !cache_state.slot.may_issue(is_logged) {
                return;
            }
            let version = cache_state.slot.queued.as_ref().unwrap().data;
            cache_state.flights += 1;
            let number = cache_state.flights;
            cache_state.slot.issue(number);
            (number, version)
        };
        if ok {
            self.slow.store(version, Ordering::SeqCst);
        }
        let mut cache_state = self.cache_state();
        let epoch = cache_state.epoch;
        cache_state.slot.completed(number, ok, epoch, 0);
        self.changed.notify_all();
    }

    fn flush(&self) {
        let epoch = {
            let mut cache_state = self.cache_state();
            cache_state.epoch += 1;
            cache_state.epoch
        };
        let seen = self.slow.load(Ordering::SeqCst);
        let mut cache_state = self.cache_state();
        cache_state.flushed = cache_state.flushed.max(seen);
        cache_state.slot.flushed(epoch);
        self.changed.notify_all();
    }

    /// `begin_log`, `LogJob::run`, `finish_log`. The version is durable once it is in `logged`.
    fn log(&self, mut cache_state: MutexGuard<'_, CacheState>, version: u64, oldest: u64) {
        let lsn = cache_state.next_lsn;
        cache_state.next_lsn += 1;
        cache_state.slot.begin_log(lsn, version, oldest);
        drop(cache_state);
        thread::yield_now();
        let mut cache_state = self.cache_state();
        cache_state.slot.logged(lsn);
        if cache_state.logged.is_none_or(|(older, _)| older < lsn) {
            cache_state.logged = Some((lsn, version));
        }
        self.changed.notify_all();
    }

    /// A critical task waits for `seqno`: bounded by the log alone.
    fn wait_critically(&self, seqno: u64) {
        loop {
            let cache_state = self.cache_state();
            if !cache_state.slot.unsettled(seqno) {
                break;
            }
            match cache_state.slot.adoptable().map(|(version, oldest)| (*version, oldest)) {
                Some((version, oldest)) => self.log(cache_state, version, oldest),
                // Another thread's write to the log is under way, and wakes us.
                None => drop(self.changed.wait(cache_state).unwrap()),
            }
        }
        self.check_durable(seqno);
    }

    /// One batch of write-back.
    fn write_back(&self) {
        let (lsn, version) = {
            let mut cache_state = self.cache_state();
            let Some(found) = cache_state.logged.filter(|_| !cache_state.slot.in_flight() && !cache_state.draining)
            else {
                return;
            };
            cache_state.draining = true;
            found
        };
        self.slow.store(version, Ordering::SeqCst);
        let seen = self.slow.load(Ordering::SeqCst);
        let mut cache_state = self.cache_state();
        cache_state.draining = false;
        cache_state.flushed = seen;
        if cache_state.logged.is_some_and(|(now, _)| now == lsn) {
            cache_state.logged = None;
        }
        self.changed.notify_all();
    }

    /// `begin_relocation`, `RelocationJob::read`, `begin_relocated` and `finish_relocated_block`: the version in the log is written
    /// once more, at a higher place.
    fn relocate(&self) {
        let (lsn, version) = {
            let mut cache_state = self.cache_state();
            let Some(found) = cache_state.logged.filter(|_| !cache_state.draining) else { return };
            cache_state.draining = true;
            found
        };
        thread::yield_now();
        let position = {
            let mut cache_state = self.cache_state();
            let is_there = cache_state.logged.is_some_and(|(now, _)| now == lsn);
            if !is_there || !cache_state.slot.logging.is_empty() {
                cache_state.draining = false;
                return;
            }
            cache_state.next_lsn += 1;
            cache_state.next_lsn - 1
        };
        thread::yield_now();
        let mut cache_state = self.cache_state();
        cache_state.draining = false;
        if cache_state.logged.is_some_and(|(older, _)| older < position) {
            cache_state.logged = Some((position, version));
        }
        self.changed.notify_all();
    }

    /// A power cut now would leave at least `version`.
    fn check_durable(&self, version: u64) {
        let cache_state = self.cache_state();
        let durable = cache_state.logged.map_or(cache_state.flushed, |(_, version)| version);
        assert!(durable >= version, "{durable} is older than {version}, which was acknowledged");
    }

    /// Everything that can still be done is done; the newest version is on the slow device then.
    fn settle(&self, newest: u64) {
        for _ in 0..3 {
            let over_log = {
                let cache_state = self.cache_state();
                let queued = cache_state.slot.queued.as_ref().map(|queued| (queued.data, queued.oldest));
                match queued.filter(|_| cache_state.slot.goes_over_log(cache_state.logged.is_some())) {
                    Some((version, oldest)) => {
                        self.log(cache_state, version, oldest);
                        true
                    }
                    None => false,
                }
            };
            if !over_log {
                self.issue(true);
            }
            self.flush();
            self.write_back();
        }
        assert!(self.cache_state().slot.is_empty() && self.cache_state().logged.is_none());
        assert_eq!(self.slow.load(Ordering::SeqCst), newest, "an older version came last");
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn a_critical_waiter_goes_on_whatever_the_flight_does() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.issue(true))
        };
        world.wait_critically(1);
        issuer.join().unwrap();
        world.settle(1);
    });
}

#[test]
fn the_old_flight_never_lands_on_a_newer_version() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.issue(true))
        };
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let cache_state = world.cache_state();
                world.log(cache_state, 2, 2);
                world.check_durable(2);
                world.write_back();
                world.check_durable(2);
            })
        };
        issuer.join().unwrap();
        writer.join().unwrap();
        world.settle(2);
    });
}

#[test]
fn a_newer_queued_version_keeps_the_order_with_a_waiter_and_write_back() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.issue(true);
                world.put(2);
                world.issue(true);
            })
        };
        let waiter = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.wait_critically(1);
                world.write_back();
                world.check_durable(1);
            })
        };
        issuer.join().unwrap();
        waiter.join().unwrap();
        world.settle(2);
    });
}

#[test]
fn a_failed_flight_leaves_the_version_to_others() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.issue(false);
                world.flush();
            })
        };
        world.wait_critically(1);
        issuer.join().unwrap();
        world.check_durable(1);
        world.settle(1);
    });
}

#[test]
fn two_writers_to_the_log_and_a_flush_agree_on_the_newest() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.issue(true);
                world.flush();
            })
        };
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let cache_state = world.cache_state();
                world.log(cache_state, 2, 2);
                world.check_durable(2);
            })
        };
        world.wait_critically(1);
        issuer.join().unwrap();
        writer.join().unwrap();
        world.settle(2);
    });
}

#[test]
fn what_a_truncation_takes_away_is_never_read_again_and_never_lands_on_what_came_after_it() {
    model(|| {
        let world = World::new();
        world.put(1);
        let issuer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.issue(true);
                world.flush();
            })
        };
        let is_new = |cache_state: &CacheState| cache_state.slot.below_log().is_none_or(|version| *version == 2);
        let mut cache_state = world.cache_state();
        cache_state.slot.truncate_away();
        assert!(!cache_state.slot.unsettled(1) && cache_state.slot.adoptable().is_none(), "no task waits for it");
        assert!(is_new(&cache_state));
        drop(cache_state);
        world.put(2);
        world.issue(true);
        assert!(is_new(&world.cache_state()));
        world.wait_critically(2);
        issuer.join().unwrap();
        world.settle(2);
    });
}

#[test]
fn a_relocated_version_never_takes_the_place_of_a_newer_one_and_is_not_brought_back_by_write_back() {
    model(|| {
        let world = World::new();
        world.put(1);
        world.wait_critically(1);
        let relocation = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.relocate();
                world.check_durable(1);
                world.write_back();
            })
        };
        world.put(2);
        world.wait_critically(2);
        world.check_durable(2);
        relocation.join().unwrap();
        world.check_durable(2);
        world.settle(2);
    });
}
