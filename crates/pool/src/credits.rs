//! The ceiling: every page that is in memory, or on its way in or out, holds a credit, and there are no more credits than
//! pages in the budget.
//!
//! Relies on nothing. A page's place in memory is fixed, so a free frame is a number and not a thing: each core has a count
//! of free credits, takes from its own first, then half of another's.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cache_padded::{CachePadded, slot};

/// Free credits, by core.
#[derive(Debug)]
pub(crate) struct CreditPool {
    free: Box<[CachePadded<AtomicUsize>]>,
    /// With those that are withheld.
    total: AtomicUsize,
    /// Credits that no page can have for now. One thread at a time changes it.
    withheld: AtomicUsize,
}

impl CreditPool {
    /// `total` credits for `cores` cores, all free.
    pub(crate) fn new(total: usize, cores: usize) -> Self {
        let cores = cores.max(1);
        let part = |core: usize| total / cores + usize::from(core < total % cores);
        let free = (0..cores).map(|core| CachePadded(AtomicUsize::new(part(core)))).collect();
        Self { free, total: AtomicUsize::new(total), withheld: AtomicUsize::new(0) }
    }

    /// All that pages can have, free or not.
    pub(crate) fn total(&self) -> usize {
        // Both may change between the two looks, while the budget grows.
        self.total.load(Ordering::Relaxed).saturating_sub(self.withheld())
    }

    /// All, those included that no page can have for now.
    pub(crate) fn budget(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Makes `count` more.
    pub(crate) fn grow(&self, count: usize) {
        self.total.fetch_add(count, Ordering::Relaxed);
        self.give(count);
    }

    /// Takes up to `count` free ones out of the pool; returns how many.
    pub(crate) fn shrink(&self, count: usize) -> usize {
        let taken = self.take_free(count);
        self.total.fetch_sub(taken, Ordering::Relaxed);
        taken
    }

    fn take_free(&self, count: usize) -> usize {
        let mut taken = 0;
        for free in &self.free {
            taken += take_up_to(free, |_| count - taken);
        }
        taken
    }

    /// Those that no page can have for now.
    pub(crate) fn withheld(&self) -> usize {
        self.withheld.load(Ordering::Relaxed)
    }

    /// Withholds up to `count` free ones; returns how many.
    pub(crate) fn withhold(&self, count: usize) -> usize {
        let taken = self.take_free(count);
        self.withheld.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    /// Lets pages have `count` of those that are withheld.
    pub(crate) fn release(&self, count: usize) {
        self.withheld.fetch_sub(count, Ordering::Relaxed);
        self.give(count);
    }

    /// Free ones; when others take and give meanwhile, an estimate.
    pub(crate) fn free(&self) -> usize {
        self.free.iter().map(|free| free.load(Ordering::Relaxed)).sum()
    }

    /// Takes one, from wherever there is one.
    pub(crate) fn take(&self) -> Option<Credit<'_>> {
        let own = slot() % self.free.len();
        if take_up_to(&self.free[own], |_| 1) == 1 {
            return Some(Credit(self));
        }
        for step in 1..self.free.len() {
            let stolen = take_up_to(&self.free[(own + step) % self.free.len()], |there| there.div_ceil(2));
            if stolen > 0 {
                self.give(stolen - 1);
                return Some(Credit(self));
            }
        }
        None
    }

    /// Takes `count` at once, or none; whether it did. It may fail although there are as many while other threads take and give.
    pub(crate) fn take_many(&self, count: usize) -> bool {
        let own = slot() % self.free.len();
        let mut taken = 0;
        for step in 0..self.free.len() {
            let missing = count - taken;
            taken += take_up_to(&self.free[(own + step) % self.free.len()], |_| missing);
            if taken == count {
                return true;
            }
        }
        self.give(taken);
        false
    }

    /// Gives `count` back to the calling thread's core.
    pub(crate) fn give(&self, count: usize) {
        if count > 0 {
            self.free[slot() % self.free.len()].fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Takes as many as `wanted` says of what is there; how many.
fn take_up_to(free: &AtomicUsize, wanted: impl Fn(usize) -> usize) -> usize {
    let mut there = free.load(Ordering::Relaxed);
    while there > 0 {
        let taken = wanted(there).min(there);
        match free.compare_exchange_weak(there, there - taken, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return taken,
            Err(now) => there = now,
        }
    }
    0
}

/// The right to have a page in memory; goes back when dropped, unless it was spent.
#[derive(Debug)]
pub(crate) struct Credit<'a>(&'a CreditPool);

impl Credit<'_> {
    /// The page has it now; the thread that evicts the page gives it back.
    pub(crate) fn spend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_credits_as_pages_and_any_core_can_have_them_all() {
        let credits = CreditPool::new(10, 4);
        let taken: Vec<Credit> = std::iter::from_fn(|| credits.take()).collect();
        assert_eq!((taken.len(), credits.free()), (10, 0));
        drop(taken);
        assert_eq!(credits.free(), 10);
    }

    #[test]
    fn a_spent_credit_comes_back_only_when_it_is_given() {
        let credits = CreditPool::new(2, 2);
        credits.take().unwrap().spend();
        assert_eq!((credits.free(), credits.total()), (1, 2));
        credits.give(1);
        assert_eq!(credits.free(), 2);
    }

    #[test]
    fn many_are_taken_whole_or_not_at_all() {
        let credits = CreditPool::new(10, 4);
        assert!(credits.take_many(7) && !credits.take_many(4));
        assert_eq!(credits.free(), 3);
        assert!(credits.take_many(3) && credits.take_many(0));
        credits.give(10);
        assert_eq!(credits.free(), 10);
    }

    #[test]
    fn what_is_withheld_no_page_can_have() {
        let credits = CreditPool::new(10, 4);
        let held = credits.take().unwrap();
        assert_eq!((credits.withhold(6), credits.withheld(), credits.total(), credits.free()), (6, 6, 4, 3));
        assert_eq!(credits.budget(), 10);
        let taken: Vec<Credit> = std::iter::from_fn(|| credits.take()).collect();
        assert_eq!((taken.len(), credits.withhold(1)), (3, 0));
        credits.release(2);
        drop((taken, held));
        assert_eq!((credits.withheld(), credits.total(), credits.free()), (4, 6, 6));
        assert_eq!(credits.withhold(100), 6);
    }

    #[test]
    fn no_credit_is_lost_or_made_between_threads() {
        let credits = CreditPool::new(64, 4);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for round in 0..2000 {
                        let held: Vec<_> = (0..round % 20).filter_map(|_| credits.take()).collect();
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(credits.free(), 64);
    }
}
