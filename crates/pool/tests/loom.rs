//! Every interleaving of readers, a writer, an evictor and writeback over one page's state, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-pool --release --test loom` (`cargo xtask test` does).
#![cfg(loom)]

#[path = "loom/leases.rs"]
mod leases;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64 as Cell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use quire_pool::page_state::{DeferredWork, LockMode, PageState, PageStatus, WaitQueue};
use quire_pool::sync::{Ordering, fence};

const OLD: u64 = 10;
const NEW: u64 = 20;

/// Explores a model of three threads: every interleaving in which no more than two of them are interrupted where they could
/// go on. All interleavings are too many, and lost wake-ups take no more.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// A futex: a sleeper loads the state and falls asleep in one step, as seen by the thread that wakes it.
struct Lot {
    lock: Mutex<()>,
    woken: Condvar,
}

impl WaitQueue for Lot {
    fn park(&self, state: &PageState, low: u32) {
        let guard = self.lock.lock().unwrap();
        if state.load().low() == low {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn unpark_all(&self, _: &PageState) {
        let _guard = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A page, its state, and what the device has of it.
struct Page {
    state: PageState,
    lot: Lot,
    /// The bytes as guards see them: loom fails the test if a use of them races with another.
    bytes: UnsafeCell<u64>,
    /// The bytes as optimistic readers see them: two halves that belong together.
    halves: [Cell; 2],
    device: Cell,
}

impl Page {
    /// A clean page.
    fn new() -> Arc<Self> {
        let page = Self::absent();
        page.state.begin_read(None).unwrap();
        page.fill();
        let _ = page.state.end_read(LockMode::None);
        page
    }

    fn absent() -> Arc<Self> {
        Arc::new(Self {
            state: PageState::new(),
            lot: Lot { lock: Mutex::new(()), woken: Condvar::new() },
            bytes: UnsafeCell::new(0),
            halves: [Cell::new(0), Cell::new(0)],
            device: Cell::new(OLD),
        })
    }

    fn wake(&self, after: DeferredWork) {
        if after.wake {
            self.lot.unpark_all(&self.state);
        }
    }

    fn store(&self, value: u64) {
        // SAFETY: loom fails the test if this races.
        self.bytes.with_mut(|at| unsafe { *at = value });
        self.halves.iter().for_each(|half| half.store(value, Ordering::Relaxed));
    }

    fn load(&self) -> u64 {
        // SAFETY: loom fails the test if this races.
        self.bytes.with(|at| unsafe { *at })
    }

    fn fill(&self) {
        self.store(self.device.load(Ordering::Relaxed));
    }

    /// What the slow path does for an absent page.
    fn read_in(&self, hold: LockMode) -> bool {
        if self.state.begin_read(None).is_err() {
            return false;
        }
        self.fill();
        self.wake(self.state.end_read(hold));
        true
    }

    /// `Map::read`.
    fn read(&self) -> u64 {
        loop {
            let held = match self.state.try_lock_shared() {
                Ok(()) => true,
                Err(seen) if seen.status() == PageStatus::Absent => self.read_in(LockMode::Shared),
                Err(_) => {
                    self.state.wait(&self.lot, |seen| seen.status() == PageStatus::Absent || seen.can_lock_shared());
                    false
                }
            };
            if held {
                let value = self.load();
                if self.state.unlock_shared() {
                    self.lot.unpark_all(&self.state);
                }
                return value;
            }
        }
    }

    /// `Map::write`.
    fn change(&self, by: u64) {
        loop {
            let held = match self.state.try_lock_exclusive() {
                Ok(_) => true,
                Err(seen) if seen.status() == PageStatus::Absent => self.read_in(LockMode::Exclusive),
                Err(_) => {
                    self.state.wait(&self.lot, |seen| seen.status() == PageStatus::Absent || seen.can_lock_exclusive());
                    false
                }
            };
            if held {
                self.store(self.load() + by);
                if self.state.unlock_exclusive() {
                    self.lot.unpark_all(&self.state);
                }
                return;
            }
        }
    }

    /// `Map::optimistic_read`, one try; `None` if it was refuted.
    fn optimistic_read(&self) -> Option<[u64; 2]> {
        let seen = self.state.optimistic_read().ok()?;
        let halves = [0, 1].map(|half| self.halves[half].load(Ordering::Relaxed));
        self.state.validate(seen).then_some(halves)
    }

    /// An eviction, if it may be.
    fn evict(&self) -> bool {
        if self.state.begin_evict(true).is_err() {
            return false;
        }
        self.store(0);
        self.wake(self.state.end_evict());
        true
    }

    /// `reclaim::overwrite_clean`: the file has other bytes, and so has the page, if it may be changed.
    fn overwrite_clean(&self, value: u64) -> bool {
        self.device.store(value, Ordering::Relaxed);
        if self.state.begin_evict(false).is_err() {
            return false;
        }
        self.store(value);
        self.wake(self.state.end_overwrite());
        true
    }

    /// A write to the device, if the page is dirty and may be.
    fn write_back(&self) -> bool {
        if self.state.begin_write().is_err() {
            return false;
        }
        self.device.store(self.load(), Ordering::Relaxed);
        self.wake(self.state.end_write(false));
        true
    }
}

#[test]
fn a_reader_never_sees_a_page_that_was_given_back() {
    loom::model(|| {
        let page = Page::new();
        let evictor = {
            let page = Arc::clone(&page);
            thread::spawn(move || page.evict())
        };
        assert_eq!(page.read(), OLD);
        evictor.join().unwrap();
        assert_eq!(page.read(), OLD);
    });
}

#[test]
fn readers_of_a_page_that_is_overwritten_see_the_old_bytes_or_the_new_ones() {
    bounded(|| {
        let page = Page::new();
        let reader = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                let seen = page.optimistic_read();
                assert!(matches!(seen, None | Some([OLD, OLD] | [NEW, NEW])), "{seen:?}");
                assert!([OLD, NEW].contains(&page.read()));
            })
        };
        let is_overwritten = page.overwrite_clean(NEW);
        // Without the page's lock it can't be overwritten; that is for `discard`, which waits.
        assert_eq!(page.read(), if is_overwritten { NEW } else { OLD });
        reader.join().unwrap();
        if is_overwritten {
            assert!(page.evict(), "it is clean, and in the queue");
            assert_eq!(page.read(), NEW);
        }
    });
}

#[test]
fn two_readers_of_an_absent_page_read_it_once_and_both_see_it() {
    loom::model(|| {
        let page = Page::absent();
        let reader = {
            let page = Arc::clone(&page);
            thread::spawn(move || page.read())
        };
        assert_eq!(page.read(), OLD);
        assert_eq!(reader.join().unwrap(), OLD);
        assert_eq!((page.state.load().shared(), page.state.load().status()), (0, PageStatus::Clean));
    });
}

#[test]
fn a_look_is_never_torn_by_a_writer() {
    loom::model(|| {
        let page = Page::new();
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || page.change(1))
        };
        if let Some([one, two]) = page.optimistic_read() {
            assert_eq!(one, two);
        }
        writer.join().unwrap();
        assert_eq!(page.optimistic_read(), Some([OLD + 1; 2]));
    });
}

#[test]
fn a_look_never_shows_a_page_that_was_given_back_nor_one_that_came_after() {
    loom::model(|| {
        let page = Page::new();
        let evictor = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                if page.evict() {
                    page.device.store(OLD + 7, Ordering::Relaxed);
                    assert!(page.read_in(LockMode::None));
                }
            })
        };
        if let Some([one, two]) = page.optimistic_read() {
            assert_eq!(one, two);
            assert!(one == OLD || one == OLD + 7);
        }
        evictor.join().unwrap();
    });
}

#[test]
fn no_change_is_lost_between_writers_and_writeback() {
    bounded(|| {
        let page = Page::new();
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || page.change(1))
        };
        let flusher = {
            let page = Arc::clone(&page);
            thread::spawn(move || page.write_back())
        };
        page.change(1);
        writer.join().unwrap();
        flusher.join().unwrap();
        page.write_back();
        assert_eq!((page.device.load(Ordering::Relaxed), page.state.load().status()), (OLD + 2, PageStatus::Clean));
    });
}

#[test]
fn a_dirty_page_is_evicted_only_after_it_was_written() {
    loom::model(|| {
        let page = Page::new();
        let others = {
            let page = Arc::clone(&page);
            thread::spawn(move || {
                page.write_back();
                page.evict();
            })
        };
        page.change(1);
        others.join().unwrap();
        assert_eq!(page.read(), OLD + 1);
    });
}

#[test]
fn a_page_that_is_being_written_is_read_but_not_changed() {
    loom::model(|| {
        let page = Page::new();
        page.change(1);
        let flusher = {
            let page = Arc::clone(&page);
            thread::spawn(move || assert!(page.write_back()))
        };
        assert_eq!(page.read(), OLD + 1);
        // Waits for the flusher, or comes before it; a lost wake-up would leave it asleep for ever.
        page.state.wait(&page.lot, |seen| seen.status() == PageStatus::Clean);
        flusher.join().unwrap();
        page.change(1);
        assert_eq!(page.device.load(Ordering::Relaxed), OLD + 1);
    });
}

#[test]
fn no_thread_sleeps_through_the_end_of_what_it_waits_for() {
    bounded(|| {
        let page = Page::new();
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let page = Arc::clone(&page);
                thread::spawn(move || {
                    if number == 0 {
                        page.change(1);
                    } else {
                        page.read();
                    }
                })
            })
            .collect();
        page.change(1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(page.read(), OLD + 2);
    });
}

#[test]
fn an_entry_of_the_clean_queue_is_neither_lost_nor_doubled() {
    loom::model(|| {
        let page = Page::new();
        page.change(1);
        // One entry is in the queue. A policy takes it out while the page is being written back.
        let entries = Arc::new(Cell::new(1));
        let policy = {
            let (page, entries) = (Arc::clone(&page), Arc::clone(&entries));
            thread::spawn(move || {
                if page.state.begin_evict(true).is_ok() {
                    entries.fetch_sub(1, Ordering::Relaxed);
                    let _ = page.state.end_evict();
                } else if page.state.dequeue().is_ok() {
                    entries.fetch_sub(1, Ordering::Relaxed);
                }
            })
        };
        page.state.begin_write().unwrap();
        if page.state.end_write(false).enqueue {
            entries.fetch_add(1, Ordering::Relaxed);
        }
        policy.join().unwrap();
        fence(Ordering::Acquire);
        let is_clean = page.state.load().status() == PageStatus::Clean;
        assert_eq!(entries.load(Ordering::Relaxed), u64::from(is_clean));
    });
}

/// A page with a second tier: what was stored of it, and at which version it was evicted then.
struct TieredPage {
    page: Arc<Page>,
    entry: Mutex<Option<(u32, u64)>>,
}

impl TieredPage {
    fn version(&self) -> u32 {
        self.page.state.load().version()
    }

    /// An eviction that stores the page, or keeps the entry that it came from if it is unchanged since.
    fn evict(&self) {
        if self.page.state.begin_evict(true).is_err() {
            return;
        }
        let version = self.version();
        let mut entry = self.entry.lock().unwrap();
        match &mut *entry {
            Some((stored, _)) if stored.wrapping_add(1) == version => *stored = version,
            entry => *entry = Some((version, self.page.load())),
        }
        drop(entry);
        self.page.store(0);
        self.page.wake(self.page.state.end_evict());
    }

    /// Brings an absent page in, by the entry if it is of the last eviction. With `asks` false it doesn't look there.
    fn read_in(&self, asks: bool) -> bool {
        if self.page.state.begin_read(None).is_err() {
            return false;
        }
        let entry = *self.entry.lock().unwrap();
        match entry {
            Some((stored, value)) if asks && stored.wrapping_add(1) == self.version() => self.page.store(value),
            _ => self.page.fill(),
        }
        self.page.wake(self.page.state.end_read(LockMode::None));
        true
    }

    /// What is read now: by the tier, if the page has to be brought in.
    fn read(&self) -> u64 {
        self.read_in(true);
        self.page.read()
    }
}

#[test]
fn an_entry_of_the_second_tier_serves_only_the_bytes_of_the_last_eviction() {
    bounded(|| {
        let tiered = Arc::new(TieredPage { page: Page::new(), entry: Mutex::new(None) });
        let evictor = {
            let tiered = Arc::clone(&tiered);
            thread::spawn(move || {
                tiered.evict();
                // By the device, as a handler does that may not wait for the tier's lock.
                tiered.read_in(false);
                tiered.evict();
            })
        };
        let changer = {
            let tiered = Arc::clone(&tiered);
            thread::spawn(move || {
                tiered.page.change(1);
                tiered.page.write_back();
                // Gone without being stored: the tier was full.
                tiered.page.evict();
            })
        };
        let seen = tiered.read();
        assert!(seen == OLD || seen == OLD + 1);
        evictor.join().unwrap();
        changer.join().unwrap();
        assert_eq!(tiered.read(), OLD + 1);
        tiered.evict();
        assert_eq!(tiered.read(), OLD + 1);
    });
}
