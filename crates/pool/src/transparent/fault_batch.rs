//! Pages that a handler has claimed for reading, one after the other, with the memory for them.
//!
//! Relies on credits being taken before pages are claimed. What is claimed must be settled or given up: others wait for it.

use std::sync::atomic::Ordering;

use super::pending_updates::{DIRTY, ENQUEUE};
use crate::counters::PoolCounter;
use crate::credits::Credit;
use crate::futex::Futex;
use crate::mapped_file::MappedFile;
use crate::page::PageRun;
use crate::page_state::{LockMode, WaitQueue};
use crate::pool_state::PoolState;

/// Most pages of a batch.
pub(super) const MOST_PAGES: usize = 16;

/// Claimed pages.
pub(super) struct FaultBatch<'a> {
    shared: &'a PoolState,
    mapped: &'a MappedFile,
    start: u64,
    /// One for each page; the others are none.
    credits: [Option<Credit<'a>>; MOST_PAGES],
    pages: usize,
}

impl<'a> FaultBatch<'a> {
    /// Claims `page`; `None` if it isn't absent any more.
    pub(super) fn new(shared: &'a PoolState, mapped: &'a MappedFile, page: u64, credit: Credit<'a>) -> Option<Self> {
        let mut batch = Self { shared, mapped, start: page, credits: [const { None }; MOST_PAGES], pages: 0 };
        batch.add(credit).then_some(batch)
    }

    fn add(&mut self, credit: Credit<'a>) -> bool {
        let page = self.start + self.pages as u64;
        let mapped = self.mapped;
        if mapped.state(page).begin_read(None).is_err() {
            return false;
        }
        mapped.shard(page).resident.fetch_add(1, Ordering::Relaxed);
        self.credits[self.pages] = Some(credit);
        self.pages += 1;
        true
    }

    /// Claims the pages behind as long as they are absent and whole and more than `reserve` credits are free, up to `most` in
    /// all: what is left is there for those who wait for their page.
    pub(super) fn extend(&mut self, most: u64, reserve: usize) {
        let (shared, mapped) = (self.shared, self.mapped);
        while self.pages < (most as usize).min(MOST_PAGES) {
            let page = self.start + self.pages as u64;
            if mapped.find(page).is_none() || mapped.is_tail(page) || shared.credits.free() <= reserve {
                return;
            }
            let Some(credit) = shared.credits.take() else { return };
            if !self.add(credit) {
                return;
            }
        }
    }

    /// The pages.
    pub(super) fn run(&self) -> PageRun {
        PageRun { start: self.start, pages: self.pages as u64 }
    }

    /// All pages are in their places; with `to_store` the first may be stored to. What queues and sets are to be told is
    /// passed to `leave`.
    pub(super) fn settle(mut self, to_store: bool, leave: impl Fn(u64, u64)) {
        for index in 0..self.pages {
            if let Some(credit) = self.credits[index].take() {
                credit.spend();
            }
            let (page, is_dirty) = (self.start + index as u64, to_store && index == 0);
            let state = self.mapped.state(page);
            let after = state.end_read(if is_dirty { LockMode::Exclusive } else { LockMode::None });
            // With a new map of a large file most pages come so, and both are told together.
            let flags = if after.enqueue { ENQUEUE } else { 0 } | if is_dirty { DIRTY } else { 0 };
            if flags != 0 {
                leave(page, flags);
            }
            let was_waited_for = is_dirty && state.unlock_exclusive();
            if after.wake || was_waited_for {
                Futex.unpark_all(state);
            }
        }
    }

    /// Gives up all pages but the first `kept`, which have no memory.
    pub(super) fn give_up(&mut self, kept: usize) {
        for index in kept..self.pages {
            let page = self.start + index as u64;
            self.mapped.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
            self.credits[index] = None;
            let state = self.mapped.state(page);
            if state.fail_read().wake {
                Futex.unpark_all(state);
            }
        }
        self.mapped.counters.add(PoolCounter::FailedReads, self.pages - kept);
        self.pages = kept;
    }
}
