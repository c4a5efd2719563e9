//! Every interleaving of leases with writers, readers, an evictor, write-back and what forgets pages.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use quire_pool::page_state::{LockMode, PageStatus, WaitQueue};
use quire_pool::sync::Ordering;

use super::{OLD, Page, bounded};

/// A page that can be leased: the bytes at its address are those of [`Page::bytes`], and there is one spare frame.
struct LeasedPage {
    page: Arc<Page>,
    frame: UnsafeCell<u64>,
}

impl LeasedPage {
    fn new() -> Arc<Self> {
        Arc::new(Self { page: Page::new(), frame: UnsafeCell::new(0) })
    }

    fn load(&self, is_relocated: bool) -> u64 {
        // SAFETY: loom fails the test if this races.
        if is_relocated { self.frame.with(|at| unsafe { *at }) } else { self.page.load() }
    }

    /// Stores to the page that is locked exclusively, and unlocks it.
    fn finish_change(&self, is_relocated: bool, by: u64) {
        let value = self.load(is_relocated) + by;
        if is_relocated {
            // SAFETY: loom fails the test if this races.
            self.frame.with_mut(|at| unsafe { *at = value });
        } else {
            self.page.store(value);
        }
        if self.page.state.unlock_exclusive() {
            self.page.lot.unpark_all(&self.page.state);
        }
    }

    /// `Map::write`.
    fn change(&self, by: u64) {
        let state = &self.page.state;
        loop {
            self.settle();
            if let Ok(before) = state.try_lock_exclusive_anywhere() {
                let mut is_relocated = before.is_relocated();
                if is_relocated && before.leases() == 0 {
                    self.page.store(self.load(true));
                    state.end_relocation_locked();
                    is_relocated = false;
                }
                return self.finish_change(is_relocated, by);
            }
            if state.begin_relocate().is_ok() {
                let old = self.page.load();
                // SAFETY: loom fails the test if this races.
                self.frame.with_mut(|at| unsafe { *at = old });
                state.end_relocate();
                return self.finish_change(true, by);
            }
            let seen = state.load();
            if seen.status() == PageStatus::Absent {
                self.read_in();
            } else if !seen.can_lock_exclusive() {
                state.wait(&self.page.lot, |seen| seen.status() == PageStatus::Absent || seen.can_lock_exclusive());
            }
        }
    }

    /// What the slow path does for an absent page.
    fn read_in(&self) {
        let state = &self.page.state;
        if state.begin_read_relocated().is_ok() {
            let value = self.page.device.load(Ordering::Relaxed);
            // SAFETY: loom fails the test if this races.
            self.frame.with_mut(|at| unsafe { *at = value });
            self.page.wake(state.end_read(LockMode::None));
        } else {
            self.settle();
            self.page.read_in(LockMode::None);
        }
    }

    /// `Map::read`.
    fn read(&self) -> u64 {
        let state = &self.page.state;
        loop {
            self.settle();
            match state.try_lock_shared_anywhere() {
                Ok(is_relocated) => {
                    let value = self.load(is_relocated);
                    if state.unlock_shared() {
                        self.page.lot.unpark_all(state);
                    }
                    return value;
                }
                Err(seen) if seen.status() == PageStatus::Absent => self.read_in(),
                Err(_) => {
                    state.wait(&self.page.lot, |seen| seen.status() == PageStatus::Absent || seen.can_lock_shared());
                }
            }
        }
    }

    /// `relocated_pages::settle`.
    fn settle(&self) {
        let state = &self.page.state;
        if !state.load().is_relocated() {
            return;
        }
        if state.begin_move_back().is_ok() {
            self.page.store(self.load(true));
            self.page.wake(state.end_move_back());
        } else if state.begin_end_detached().is_ok() {
            self.page.store(0);
            self.page.wake(state.end_detached());
        }
    }

    /// Leases the page if it can be leased at once, looks at it twice and gives it up. What was seen.
    fn lease(&self) -> Option<u64> {
        self.page.state.try_lease().ok()?;
        let seen = self.page.load();
        thread::yield_now();
        assert_eq!(self.page.load(), seen, "a lease keeps what it saw");
        let end = self.page.state.end_lease();
        if end.is_last && end.is_relocated {
            self.settle();
        }
        Some(seen)
    }
}

#[test]
fn a_lease_keeps_what_it_saw_while_a_writer_goes_on() {
    bounded(|| {
        let leased = LeasedPage::new();
        let writer = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || leased.change(1))
        };
        let reader = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || leased.read())
        };
        if let Some(seen) = leased.lease() {
            assert!(seen == OLD || seen == OLD + 1);
        }
        writer.join().unwrap();
        let read = reader.join().unwrap();
        assert!(read == OLD || read == OLD + 1);
        assert_eq!(leased.read(), OLD + 1);
        assert!(!leased.page.state.load().is_relocated(), "it is moved back by the next that comes");
        assert_eq!(leased.lease(), Some(OLD + 1));
    });
}

#[test]
fn no_change_is_lost_between_writers_of_a_leased_page() {
    bounded(|| {
        let leased = LeasedPage::new();
        let writer = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || leased.change(1))
        };
        let other = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || leased.lease().is_some())
        };
        leased.change(1);
        writer.join().unwrap();
        other.join().unwrap();
        assert_eq!(leased.read(), OLD + 2);
    });
}

#[test]
fn a_leased_page_is_neither_evicted_nor_given_back_when_it_is_forgotten() {
    bounded(|| {
        let leased = LeasedPage::new();
        let evictor = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || leased.page.evict())
        };
        let discarder = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || {
                if let Ok(after) = leased.page.state.detach() {
                    leased.page.wake(after);
                    leased.settle();
                }
            })
        };
        if let Some(seen) = leased.lease() {
            assert_eq!(seen, OLD);
        }
        evictor.join().unwrap();
        discarder.join().unwrap();
        assert_eq!(leased.read(), OLD);
        assert_eq!(leased.lease(), Some(OLD));
    });
}

#[test]
fn a_relocated_page_is_written_from_where_it_is() {
    bounded(|| {
        let leased = LeasedPage::new();
        leased.page.state.try_lease().unwrap();
        leased.change(1);
        let flusher = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || {
                let state = &leased.page.state;
                let writes = state.begin_write().is_ok();
                if writes {
                    // It stays where it is meanwhile.
                    let value = leased.load(state.load().is_relocated());
                    leased.page.device.store(value, Ordering::Relaxed);
                    leased.page.wake(state.end_write(false));
                    leased.settle();
                }
                writes
            })
        };
        let end = leased.page.state.end_lease();
        if end.is_last && end.is_relocated {
            leased.settle();
        }
        leased.change(1);
        let was_written = flusher.join().unwrap();
        assert_eq!(leased.read(), OLD + 2);
        let on_device = leased.page.device.load(Ordering::Relaxed);
        assert_eq!(was_written, on_device == OLD + 1 || on_device == OLD + 2);
    });
}

#[test]
fn a_look_never_shows_a_mixture_of_leased_bytes_and_new_ones() {
    bounded(|| {
        let leased = LeasedPage::new();
        leased.page.state.try_lease().unwrap();
        let writer = {
            let leased = Arc::clone(&leased);
            thread::spawn(move || {
                leased.change(1);
                if leased.page.state.end_lease().is_last {
                    leased.settle();
                }
            })
        };
        if let Some([one, two]) = leased.page.optimistic_read() {
            assert_eq!(one, two);
        }
        writer.join().unwrap();
        assert_eq!(leased.page.optimistic_read(), Some([OLD + 1; 2]));
    });
}
