//! One budget for both tiers: the credits that are withheld from pages are the second tier's memory.
//!
//! Relies on its lock: the thread that looks four times a second and threads that wait for a page move memory, one at a time. The tier that
//! gets memory gets it after the other has given it, and only as much as the kernel took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::credits::CreditPool;
use crate::memory_pressure::MemoryPressure;
use crate::tier::SecondTier;

/// The second tier's part of a budget, and the lock under which it changes.
#[derive(Debug)]
pub(crate) struct TierBudget {
    tier: Arc<SecondTier>,
    page_bytes: usize,
    moving: Mutex<()>,
}

impl TierBudget {
    /// Of a pool with pages of `page_bytes`, all of whose credits are pages' so far.
    pub(crate) fn new(tier: &Arc<SecondTier>, page_bytes: usize) -> Self {
        Self { tier: Arc::clone(tier), page_bytes, moving: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at least `pages` pages from the second tier, if it has as many, and what it has no memory for. Returns how many the first
    /// has got: none that the kernel left to the second.
    pub(crate) fn take_back(&self, credits: &CreditPool, pages: usize) -> usize {
        let _alone = self.lock();
        let left = credits.withheld().saturating_sub(pages);
        let reserved_bytes = self.tier.set_share(left * self.page_bytes);
        let given = credits.withheld().saturating_sub(reserved_bytes.div_ceil(self.page_bytes));
        credits.release(given);
        given
    }

    /// Gives the second tier of the free credits until it has `pages` in all, unless a thread waits for one. Returns how many are missing.
    pub(crate) fn extend(&self, credits: &CreditPool, pressure: &MemoryPressure, pages: usize) -> usize {
        let _alone = self.lock();
        // A thread says that it waits before it takes pages from the second tier, so what it took is not taken from it.
        if !pressure.is_memory_low() {
            credits.withhold(pages.saturating_sub(credits.withheld()));
        }
        self.tier.set_share(credits.withheld() * self.page_bytes);
        pages.saturating_sub(credits.withheld())
    }
}
