//! Every interleaving of an issuer, a critical waiter, a newer writer, a cut and write-back over one block, explored by loom.
//!
//! The devices are a cell each, written without the lock, as the real ones are. What they hold is the number of the version.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-writecache --release --test loom_cache` (`cargo xtask test` does).
#![cfg(loom)]

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;
use quire_writecache::protocol::{Queued, Slot};

/// A version's data is its stamp.
struct Ledger {
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
    ledger: Mutex<Ledger>,
    changed: Condvar,
    slow: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let slot = Slot::default();
        let ledger = Ledger { slot, logged: None, next_lsn: 1, epoch: 0, flights: 0, flushed: 0, draining: false };
        Arc::new(Self { ledger: Mutex::new(ledger), changed: Condvar::new(), slow: AtomicU64::new(0) })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    fn put(&self, version: u64) {
        let queued = Queued { data: version, oldest: version, since_ns: 0, urgent: true, task: 0, direct: false };
        self.ledger().slot.put(queued);
    }

    /// `Ledger::next_job`, `SlowJob::run`, `Ledger::finish_slow`, then the flush. Does nothing if it may not.
    fn issue(&self, ok: bool) {
        let (number, version) = {
            let mut ledger = self.ledger();
            let is_logged = ledger.logged.is_some();
            if !ledger.slot.may_issue(is_logged) {
                return;
            }
            let version = ledger.slot.queued.as_ref().unwrap().data;
            ledger.flights += 1;
            let number = ledger.flights;
            ledger.slot.issue(number);
            (number, version)
        };
        if ok {
            self.slow.store(version, Ordering::SeqCst);
        }
        let mut ledger = self.ledger();
        let epoch = ledger.epoch;
        ledger.slot.completed(number, ok, epoch, 0);
        self.changed.notify_all();
    }

    fn flush(&self) {
        let epoch = {
            let mut ledger = self.ledger();
            ledger.epoch += 1;
            ledger.epoch
        };
        let seen = self.slow.load(Ordering::SeqCst);
        let mut ledger = self.ledger();
        ledger.flushed = ledger.flushed.max(seen);
        ledger.slot.flushed(epoch);
        self.changed.notify_all();
    }

    /// `begin_log`, `LogJob::run`, `finish_log`. The version is durable once it is in `logged`.
    fn log(&self, mut ledger: MutexGuard<'_, Ledger>, version: u64, oldest: u64) {
        let lsn = ledger.next_lsn;
        ledger.next_lsn += 1;
        ledger.slot.begin_log(lsn, version, oldest);
        drop(ledger);
        thread::yield_now();
        let mut ledger = self.ledger();
        ledger.slot.logged(lsn);
        if ledger.logged.is_none_or(|(older, _)| older < lsn) {
            ledger.logged = Some((lsn, version));
        }
        self.changed.notify_all();
    }

    /// A critical task waits for `stamp`: bounded by the log alone.
    fn wait_critically(&self, stamp: u64) {
        loop {
            let ledger = self.ledger();
            if !ledger.slot.unsettled(stamp) {
                break;
            }
            match ledger.slot.adoptable().map(|(version, oldest)| (*version, oldest)) {
                Some((version, oldest)) => self.log(ledger, version, oldest),
                // Somebody else's write to the log is under way, and wakes us.
                None => drop(self.changed.wait(ledger).unwrap()),
            }
        }
        self.check_durable(stamp);
    }

    /// One batch of write-back.
    fn write_back(&self) {
        let (lsn, version) = {
            let mut ledger = self.ledger();
            let Some(found) = ledger.logged.filter(|_| !ledger.slot.in_flight() && !ledger.draining) else { return };
            ledger.draining = true;
            found
        };
        self.slow.store(version, Ordering::SeqCst);
        let seen = self.slow.load(Ordering::SeqCst);
        let mut ledger = self.ledger();
        ledger.draining = false;
        ledger.flushed = seen;
        if ledger.logged.is_some_and(|(now, _)| now == lsn) {
            ledger.logged = None;
        }
        self.changed.notify_all();
    }

    /// A power cut now would leave at least `version`.
    fn check_durable(&self, version: u64) {
        let ledger = self.ledger();
        let durable = ledger.logged.map_or(ledger.flushed, |(_, version)| version);
        assert!(durable >= version, "{durable} is older than {version}, which was acknowledged");
    }

    /// Everything that can still be done is done; the newest version is on the slow device then.
    fn settle(&self, newest: u64) {
        for _ in 0..3 {
            let over_log = {
                let ledger = self.ledger();
                let queued = ledger.slot.queued.as_ref().map(|queued| (queued.data, queued.oldest));
                match queued.filter(|_| ledger.slot.goes_over_log(ledger.logged.is_some())) {
                    Some((version, oldest)) => {
                        self.log(ledger, version, oldest);
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
        assert!(self.ledger().slot.is_empty() && self.ledger().logged.is_none());
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
                let ledger = world.ledger();
                world.log(ledger, 2, 2);
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
                let ledger = world.ledger();
                world.log(ledger, 2, 2);
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
fn what_a_cut_takes_away_is_never_read_again_and_never_lands_on_what_came_after_it() {
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
        let is_new = |ledger: &Ledger| ledger.slot.below_log().is_none_or(|version| *version == 2);
        let mut ledger = world.ledger();
        ledger.slot.cut_away();
        assert!(!ledger.slot.unsettled(1) && ledger.slot.adoptable().is_none(), "nobody waits for it");
        assert!(is_new(&ledger));
        drop(ledger);
        world.put(2);
        world.issue(true);
        assert!(is_new(&world.ledger()));
        world.wait_critically(2);
        issuer.join().unwrap();
        world.settle(2);
    });
}
