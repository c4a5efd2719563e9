//! Where memory for a page comes from: a free credit, or pages that are evicted for it, or, when all are dirty, a wait for writers.
//!
//! Relies on [`crate::evict`] for which pages go and on their states for whether they may. Eviction looks at all maps: a map with
//! more than its fair share gives first, so that a map that scans can't push the others below theirs. Evicted pages go in
//! batches: one call to the system for all.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::config::MOST_EVICTED;
use crate::counters::{PoolCounter, WaitCause};
use crate::credits::Credit;
use crate::error::PoolError;
use crate::evict::{EvictOutcome, ResidentPages};
use crate::futex::Futex;
use crate::mapped_file::MappedFile;
use crate::page_state::{PageStatus, StateSnapshot};
use crate::pool_state::PoolState;
use crate::{completion, paths, relocated_pages};

/// Longest sleep before the next try: guards that are dropped notify no thread.
const NAP: Duration = Duration::from_millis(2);
/// So long without any event memory is taken also from maps below their share, and from a second tier that is in the budget.
pub(crate) const UNFAIR_AFTER: Duration = Duration::from_millis(20);

/// A budget that is to shrink is left as it is once other threads have taken so many batches in a row that were evicted for it.
const MOST_LOST_BATCHES: u32 = 16;

/// A credit for a page of `map` near `page`; waits until there is one.
///
/// # Errors
/// [`PoolError::Exhausted`] if nothing has moved for as long as the configuration allows, and no page is under writeback.
pub(crate) fn credit<'a>(shared: &'a PoolState, map: &MappedFile, page: u64) -> Result<Credit<'a>, PoolError> {
    if let Some(credit) = credit_at_once(shared, map, page) {
        return Ok(credit);
    }
    let begun = Instant::now();
    let _waiting = shared.pressure.begin_low_memory_wait();
    let patience = Duration::from_millis(shared.config.miss_timeout_ms);
    let mut moved = begun;
    loop {
        let seen = shared.pressure.freed.current();
        // The clock is read once: a thread that gives up has tried everything.
        let still = moved.elapsed();
        let found = credit_at_once(shared, map, page).or_else(|| {
            let is_desperate = still >= UNFAIR_AFTER.min(patience);
            let has_come = relocated_pages::free_frames(shared) > 0
                || is_desperate && (evict_anywhere(shared) > 0 || evict_from_tier(shared) > 0);
            has_come.then(|| shared.credits.take()).flatten()
        });
        if let Some(credit) = found {
            shared.counters.waited(WaitCause::Writeback, begun);
            return Ok(credit);
        }
        if completion::await_any(shared) {
            moved = Instant::now();
            continue;
        }
        // A map that was given up can't have its dirty pages written; with nothing to take from others, waiting is no use.
        let is_over = still >= if map.is_poisoned() { UNFAIR_AFTER.min(patience) } else { patience };
        if is_over && shared.pressure.is_stuck_since(seen) {
            shared.counters.waited(WaitCause::Writeback, begun);
            let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(PoolError::Exhausted { budget_pages: shared.credits.total(), waited_ms });
        }
        shared.pressure.wanted.notify_all();
        shared.pressure.freed.wait(seen, Some(NAP));
        if shared.pressure.freed.current() != seen {
            moved = Instant::now();
        }
    }
}

/// A credit if one is free or can be made free by evicting clean pages.
pub(crate) fn credit_at_once<'a>(shared: &'a PoolState, map: &MappedFile, page: u64) -> Option<Credit<'a>> {
    loop {
        if let Some(credit) = shared.credits.take() {
            return Some(credit);
        }
        if evict_for(shared, map, page) == 0 {
            return None;
        }
    }
}

/// Evicts a batch for a page of `map`: from the map that is furthest above its share, or else from `map` itself.
pub(crate) fn evict_for(shared: &PoolState, map: &MappedFile, page: u64) -> usize {
    let wanted = shared.evict_pages();
    let home = map.shard_of(page);
    for (rich, excess) in rich_maps(shared) {
        let went = evict_from(shared, &rich, home, wanted.min(excess));
        if went > 0 {
            return went;
        }
    }
    evict_from(shared, map, home, wanted)
}

/// Maps with more than their share, the richest first, and how much more. With one map there is nothing to share.
fn rich_maps(shared: &PoolState) -> Vec<(Arc<MappedFile>, usize)> {
    let maps = shared.maps();
    if maps.len() < 2 {
        return Vec::new();
    }
    let share = shared.credits.total() / maps.len();
    let excess = |map: &Arc<MappedFile>| map.resident().checked_sub(share).filter(|&excess| excess > 0);
    let mut rich: Vec<_> = maps.into_iter().filter_map(|map| excess(&map).map(|excess| (map, excess))).collect();
    rich.sort_by_key(|&(_, excess)| std::cmp::Reverse(excess));
    rich
}

/// Evicts a batch from whatever map has something.
fn evict_anywhere(shared: &PoolState) -> usize {
    let wanted = shared.evict_pages();
    shared.maps().iter().map(|map| evict_from(shared, map, 0, wanted)).find(|&went| went > 0).unwrap_or(0)
}

/// Takes a batch of pages from a second tier that has a part of the budget. Returns how many came.
pub(crate) fn evict_from_tier(shared: &PoolState) -> usize {
    shared.take_from_tier(shared.evict_pages())
}

/// Evicts up to `pages` clean pages, of maps above their share before others. From call to call maps take turns, and so do the shards of a
/// map. Returns how many.
pub(crate) fn evict(shared: &PoolState, pages: usize) -> usize {
    let turn = shared.next_turn();
    let mut went = 0;
    for (rich, excess) in rich_maps(shared) {
        went += evict_from(shared, &rich, turn, excess.min(pages - went));
        if went == pages {
            return went;
        }
    }
    let mut maps = shared.maps();
    let count = maps.len().max(1);
    maps.rotate_left(turn % count);
    for map in &maps {
        for step in 0..map.shards().len() {
            went += evict_from(shared, map, turn / count + step, pages - went);
            if went == pages {
                return went;
            }
        }
    }
    went
}

/// Lets maps have `pages` pages in all from now on, those included that a second tier has instead if both share the budget: these give in
/// proportion. Pages that are dirty, or held by guards, are not waited for, nor are those that other threads take meanwhile; and what leases pin
/// stays the part of the budget that they may pin, so that the rest can be evicted. Returns the pages of the budget.
pub(crate) fn resize(shared: &PoolState, pages: usize) -> usize {
    let _alone = shared.resizing.lock().unwrap_or_else(PoisonError::into_inner);
    let config = &shared.config;
    // First of all, so that no lease takes what is about to be evicted.
    let before = shared.credits.budget();
    shared.pins.resize(config.lease_pages_of(pages.min(before)));
    let pages = pages.max(config.pages_for_leases(shared.pins.pinned()).min(before));
    if let Some(more) = pages.checked_sub(before) {
        shared.credits.grow(more);
        shared.pressure.progress(more);
    } else {
        let withheld = shared.credits.withheld();
        shared.take_from_tier(withheld - withheld * pages / before);
    }
    evict_surplus(shared, pages);
    // What guards and dirty pages leave no other choice but to take from the second tier.
    shared.take_from_tier(shared.credits.budget().saturating_sub(pages));
    // That, and what the last batch has set free.
    shared.credits.shrink(shared.credits.budget().saturating_sub(pages));
    let total = shared.credits.budget();
    shared.pins.resize(config.lease_pages_of(total));
    total
}

/// Evicts until the budget has `pages`, as far as pages can be evicted at once.
fn evict_surplus(shared: &PoolState, pages: usize) {
    let mut lost_batches = 0;
    while lost_batches < MOST_LOST_BATCHES {
        let surplus = shared.credits.budget().saturating_sub(pages);
        let taken = shared.credits.shrink(surplus);
        if taken == surplus || evict(shared, (surplus - taken).min(MOST_EVICTED)) == 0 {
            break;
        }
        lost_batches = if taken > 0 { 0 } else { lost_batches + 1 };
    }
}

/// Evicts up to `wanted` clean pages of `map`, from the shard `home` or else from the others. Returns how many.
pub(crate) fn evict_from(shared: &PoolState, map: &MappedFile, home: usize, wanted: usize) -> usize {
    let work = || {
        let shards = map.shards().len();
        let mut context = EvictionContext { map, taken: Vec::new() };
        for step in 0..shards {
            let shard = &map.shards()[(home + step) % shards];
            shard.clean().evict(wanted - context.taken.len(), &mut context);
            if !context.taken.is_empty() {
                break;
            }
        }
        if !context.taken.is_empty() {
            paths::note_eviction(shared, map);
        }
        give_back(shared, map, context.taken, EvictionTarget::SecondTier)
    };
    map.while_open(work).unwrap_or(0)
}

/// What becomes of the bytes of evicted pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionTarget {
    /// They go to the second tier, if the map has one.
    SecondTier,
    /// They are forgotten: the file has others.
    Nowhere,
}

/// Evicts the clean pages among `pages` that no thread has locked, whatever the policy thinks of them. Returns how many.
pub(crate) fn evict_these(
    shared: &PoolState,
    map: &MappedFile,
    pages: impl Iterator<Item = u64>,
    target: EvictionTarget,
) -> usize {
    let mut count = 0;
    let mut taken = Vec::new();
    for page in pages {
        // Their entries stay in the queues and are found stale there.
        if map.state(page).begin_evict(false).is_ok() {
            taken.push(page);
        }
        if taken.len() == quire_sys::advise::MOST_RANGES {
            count += give_back(shared, map, std::mem::take(&mut taken), target);
        }
    }
    count += give_back(shared, map, taken, target);
    forget_stale(map);
    count
}

/// Evicts `pages`, but for those that were changed, and makes what the second tier has of them stale: waits for threads that have one locked,
/// or read it. The leases of a page keep the bytes that they see.
pub(crate) fn discard(shared: &PoolState, map: &MappedFile, pages: Range<u64>) {
    evict_these(shared, map, pages.clone(), EvictionTarget::Nowhere);
    for page in pages {
        let is_gone =
            |seen: StateSnapshot| matches!(seen.status(), PageStatus::Absent | PageStatus::Dirty | PageStatus::Writing);
        loop {
            match map.state(page).load().status() {
                PageStatus::Dirty | PageStatus::Writing => break,
                // Whether there is a tier is asked once the page is absent: its bytes may have gone to one that the pool was given meanwhile.
                PageStatus::Absent if !paths::has_tier(shared, map) || map.state(page).outdate().is_ok() => break,
                // A thread has begun to read the page meanwhile, from the second tier perhaps.
                PageStatus::Absent => continue,
                PageStatus::Reading | PageStatus::Evicting | PageStatus::Clean => {}
            }
            // What is read ahead arrives when a thread sees to it.
            if let Some(number) = map.state(page).load().readahead_queue() {
                completion::drive(shared, map, number, || map.state(page).load().readahead_queue() != Some(number));
                continue;
            }
            map.state(page).wait(&Futex, |seen| {
                let is_idle = seen.status() == PageStatus::Clean && seen.shared() == 0 && !seen.is_exclusive();
                is_gone(seen) || is_idle || seen.readahead_queue().is_some()
            });
            if evict_these(shared, map, std::iter::once(page), EvictionTarget::Nowhere) == 0 {
                relocated_pages::detach(shared, map, page);
            }
        }
    }
}

/// Gives `page` the bytes that the file has now, all of them, if it is in memory, clean, and neither locked nor leased. Whether it was.
pub(crate) fn overwrite_clean(map: &MappedFile, page: u64, bytes: &[u8]) -> bool {
    debug_assert_eq!(bytes.len(), map.frames.page_bytes(), "a whole page");
    let state = map.state(page);
    if state.begin_evict(false).is_err() {
        return false;
    }
    // SAFETY: `begin_evict` has claimed the page for this thread, so its bytes are in memory at its address, and no thread has a guard or a lease of them:
    // `bytes` lie elsewhere. An optimistic reader of the page fails to validate what it reads from now on.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.address(page), bytes.len()) };
    map.follow_up(page, state.end_overwrite());
    true
}

/// Keeps queues from growing by entries of pages that have gone without them.
fn forget_stale(map: &MappedFile) {
    for shard in map.shards() {
        let mut clean = shard.clean();
        if clean.len() > 2 * shard.resident.load(Ordering::Relaxed) + 64 {
            clean.retain(&mut |page| {
                let state = map.state(page);
                state.load().status() != PageStatus::Absent || state.dequeue().is_err()
            });
        }
    }
}

/// What a policy may ask about a map's pages.
struct EvictionContext<'a> {
    map: &'a MappedFile,
    taken: Vec<u64>,
}

impl ResidentPages for EvictionContext<'_> {
    fn touches(&mut self, page: u64) -> u8 {
        self.map.state(page).touches()
    }

    fn decay(&mut self, page: u64, most: u8) {
        self.map.state(page).decay(most);
    }

    fn take(&mut self, page: u64) -> EvictOutcome {
        let state = self.map.state(page);
        match state.begin_evict(true) {
            Ok(()) => {
                self.taken.push(page);
                EvictOutcome::Evicted
            }
            Err(seen) if seen.status() == PageStatus::Clean => EvictOutcome::InUse,
            Err(_) if state.dequeue().is_ok() => EvictOutcome::Stale,
            Err(_) => EvictOutcome::InUse,
        }
    }
}

/// Pages are about to go to `target`, their bytes still in place.
///
/// # Safety
/// The caller has claimed the pages by `begin_evict`.
unsafe fn retire(shared: &PoolState, map: &MappedFile, pages: &[u64], target: EvictionTarget) {
    map.counters.add(PoolCounter::Evicted, pages.len());
    if target == EvictionTarget::Nowhere {
        return;
    }
    // SAFETY: `retire`'s caller has claimed the pages by `begin_evict`, which is what `evict_clean` demands.
    unsafe { paths::evict_clean(shared, map, pages) };
}

/// Gives the memory of claimed pages back, and their credits. Returns how many credits.
fn give_back(shared: &PoolState, map: &MappedFile, mut pages: Vec<u64>, target: EvictionTarget) -> usize {
    if pages.is_empty() {
        return 0;
    }
    let _entered = tracing::debug_span!("pool_evict", map = map.device.name(), pages = pages.len()).entered();
    // In order, so that neighbours make one range.
    pages.sort_unstable();
    // SAFETY: `EvictionContext::take` and `evict_these` have claimed all of them by `begin_evict`.
    unsafe { retire(shared, map, &pages, target) };
    // SAFETY: `begin_evict` has claimed the pages for this thread while no thread had them locked. An optimistic reader reads
    // zeros from now on, and its `validate` fails.
    let discarded = unsafe { map.frames.discard(&pages) };
    for &page in &pages {
        map.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
        map.follow_up(page, map.state(page).end_evict());
    }
    let cost = match discarded {
        Ok(cost) => cost,
        Err(error) => {
            // Their memory stays taken, and so do their credits.
            tracing::error!(%error, "memory of evicted pages is lost");
            return 0;
        }
    };
    map.counters.add(PoolCounter::EvictBatches, 1);
    map.counters.add(PoolCounter::EvictRanges, cost.ranges);
    map.counters.add(PoolCounter::EvictCalls, cost.calls);
    shared.credits.give(pages.len());
    shared.pressure.progress(pages.len());
    pages.len()
}
