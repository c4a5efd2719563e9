//! How many pages leases may pin: they are taken before pages are pinned and given back after, so that what is left of the budget can always
//! be evicted.
//!
//! Relies on [`CreditPool`] for counting by core. A thread that finds none left sleeps until a lease ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::credits::CreditPool;
use crate::memory_pressure::EventCount;

/// Longest sleep before the next try.
const NAP: Duration = Duration::from_millis(2);

/// The pages that leases may pin.
#[derive(Debug)]
pub(crate) struct LeasePins {
    free: CreditPool,
    ended: EventCount,
    waiting: AtomicU32,
}

impl LeasePins {
    /// At most `total` pages, counted by `cores` cores.
    pub(crate) fn new(total: usize, cores: usize) -> Self {
        Self { free: CreditPool::new(total, cores), ended: EventCount::default(), waiting: AtomicU32::new(0) }
    }

    /// Lets leases pin `pages` from now on, or as many as they pin already.
    pub(crate) fn resize(&self, pages: usize) {
        let total = self.total();
        if pages > total {
            self.free.grow(pages - total);
            self.note_end();
        } else {
            self.free.shrink(total - pages);
        }
    }

    /// Most pages that may be pinned.
    pub(crate) fn total(&self) -> usize {
        self.free.total()
    }

    /// Pages pinned now; when others pin and unpin meanwhile, an estimate.
    pub(crate) fn pinned(&self) -> usize {
        self.free.total().saturating_sub(self.free.free())
    }

    /// Takes `count`; whether there were as many.
    #[inline]
    pub(crate) fn take(&self, count: usize) -> bool {
        self.free.take_many(count)
    }

    /// Gives back `count` that were not needed. No lease has ended by that: threads that wait are not told, or their tries would pass for
    /// progress of each other and of themselves, and no patience would end. They look again after a nap.
    #[inline]
    pub(crate) fn give_unused(&self, count: usize) {
        self.free.give(count);
    }

    /// A lease has ended: gives `count` back.
    #[inline]
    pub(crate) fn give(&self, count: usize) {
        self.free.give(count);
        self.note_end();
    }

    /// A lease has ended: a thread that waits for one tries again.
    #[inline]
    pub(crate) fn note_end(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ended.notify_all();
        }
    }

    /// Tries until `attempt` gives something. Stops when no lease has ended for as long as `patience`: those that are left may be the
    /// caller's own. Returns how long it has waited then.
    pub(crate) fn wait_for<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, Duration> {
        let begun = Instant::now();
        let mut moved = begun;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            let seen = self.ended.current();
            // Read before the last try: a thread that gives up has tried after the end of its patience.
            let still = moved.elapsed();
            if let Some(found) = attempt() {
                break Ok(found);
            }
            if still >= patience {
                break Err(begun.elapsed());
            }
            self.ended.wait(seen, Some(NAP));
            if self.ended.current() != seen {
                moved = Instant::now();
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_for_pins_until_another_gives_them_back_and_not_for_its_own() {
        let pins = LeasePins::new(4, 2);
        assert!(pins.take(3));
        assert_eq!((pins.pinned(), pins.total()), (3, 4));
        let own = pins.wait_for(Duration::from_millis(20), || pins.take(2).then_some(()));
        assert!(own.is_err());
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| pins.wait_for(Duration::from_secs(60), || pins.take(4).then_some(())));
            pins.give(3);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(pins.pinned(), 4);
    }
}
