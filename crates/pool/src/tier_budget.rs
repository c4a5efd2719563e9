//! The second tier's memory as a part of the pool's budget: the credits that are withheld from pages are its memory. Or it lies beside the budget,
//! as the program has said; then no credit is withheld.
//!
//! Relies on its lock: the thread that looks four times a second and threads that wait for a page move memory, one at a time. The tier that
//! gets memory gets it after the other has given it, and only as much as the kernel took.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::credits::CreditPool;
use crate::memory_pressure::{EventCount, MemoryPressure};
use crate::tier::SecondTier;

/// The second tier's part of a budget, and the lock under which it changes.
#[derive(Debug)]
pub(crate) struct TierBudget {
    tier: Arc<SecondTier>,
    page_bytes: usize,
    moving: Mutex<()>,
    /// There is something for the tier to hold: a page was evicted since it came to share the budget, or it lies beside the budget.
    is_wanted: AtomicBool,
    /// For the thread that looks after the tier: `is_wanted` has changed.
    events: Arc<EventCount>,
}

impl TierBudget {
    /// Of a pool with pages of `page_bytes`, all of whose credits are pages' so far.
    pub(crate) fn new(tier: SecondTier, page_bytes: usize) -> Self {
        let is_wanted = AtomicBool::new(!tier.is_shared());
        Self { tier: Arc::new(tier), page_bytes, moving: Mutex::default(), is_wanted, events: Arc::default() }
    }

    /// The tier.
    pub(crate) fn tier(&self) -> &Arc<SecondTier> {
        &self.tier
    }

    /// What the thread that looks after the tier waits for.
    pub(crate) fn events(&self) -> &Arc<EventCount> {
        &self.events
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the tier has a use for memory.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Pages were evicted. A tier that shares the budget gets its part from the first ones on: without them the pages that the program uses fit
    /// the budget, and a second tier would only take memory from them.
    pub(crate) fn note_eviction(&self) {
        if !self.is_wanted() {
            self.is_wanted.store(true, Ordering::Relaxed);
            self.events.notify_all();
        }
    }

    /// The tier's memory is a part of the budget from now on, if it is not so already. It has nothing until a page is evicted.
    pub(crate) fn share(&self) {
        let _alone = self.lock();
        if !self.tier.is_shared() {
            self.is_wanted.store(false, Ordering::Relaxed);
            self.tier.begin_sharing();
        }
    }

    /// The tier's memory lies beside the budget from now on, up to `bytes`, and all credits are pages'. Returns the bytes that the tier may hold
    /// now, and how many credits have come back.
    pub(crate) fn separate(&self, credits: &CreditPool, bytes: usize) -> (usize, usize) {
        let _alone = self.lock();
        let limit_bytes = self.tier.end_sharing(bytes);
        let given = credits.withheld();
        credits.release(given);
        self.is_wanted.store(true, Ordering::Relaxed);
        self.events.notify_all();
        (limit_bytes, given)
    }

    /// Takes at least `pages` pages from the second tier, if it shares the budget and has as many, and what it has no memory for. Returns how many
    /// the first has got: none that the kernel left to the second.
    pub(crate) fn take_back(&self, credits: &CreditPool, pages: usize) -> usize {
        let _alone = self.lock();
        if !self.tier.is_shared() {
            return 0;
        }
        let left = credits.withheld().saturating_sub(pages);
        let reserved_bytes = self.tier.set_share(left * self.page_bytes);
        let given = credits.withheld().saturating_sub(reserved_bytes.div_ceil(self.page_bytes));
        credits.release(given);
        given
    }

    /// Gives the second tier, which shares the budget, of the free credits until it has `pages` in all, unless a thread waits for one. Returns how
    /// many are missing.
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
