//! Where memory for a page comes from: a free credit, or pages that are evicted for it, or, when all are dirty, patience.
//!
//! Relies on [`crate::evict`] for which pages go and on the word for whether they may. Eviction looks at all maps: who has
//! more than its fair share gives first, so that a map that scans can't push the others below theirs. Evicted pages go in
//! batches: one call to the system for all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::arrive;
use crate::counters::{Cause, Count};
use crate::credits::Credit;
use crate::error::PoolError;
use crate::evict::{Pages, Taken};
use crate::mapped::Mapped;
use crate::shared::Shared;
use crate::word::State;

/// Longest sleep without a look: guards that are dropped raise no event.
const NAP: Duration = Duration::from_millis(2);
/// After so long without any event memory is taken also from maps below their share.
const HARDSHIP: Duration = Duration::from_millis(20);

/// A credit for a page of `map` near `page`; waits until there is one.
///
/// # Errors
/// [`PoolError::Exhausted`] if nothing has moved for as long as the configuration allows.
pub(crate) fn credit<'a>(shared: &'a Shared, map: &Mapped, page: u64) -> Result<Credit<'a>, PoolError> {
    if let Some(credit) = credit_at_once(shared, map, page) {
        return Ok(credit);
    }
    let begun = Instant::now();
    let _starving = shared.signal.starve();
    let patience = Duration::from_millis(shared.config.patience_ms);
    let mut moved = begun;
    loop {
        let seen = shared.signal.freed.seen();
        // One look at the clock: whoever gives up has tried everything.
        let still = moved.elapsed();
        let found = credit_at_once(shared, map, page).or_else(|| {
            let desperate = still >= HARDSHIP.min(patience) && evict_anywhere(shared) > 0;
            desperate.then(|| shared.credits.take()).flatten()
        });
        if let Some(credit) = found {
            shared.counters.waited(Cause::Writeback, begun);
            return Ok(credit);
        }
        if arrive::await_any(shared) {
            moved = Instant::now();
            continue;
        }
        // A map that was given up can't have its dirty pages written; with nothing to take from others, waiting is no use.
        if still >= if map.is_poisoned() { HARDSHIP.min(patience) } else { patience } {
            shared.counters.waited(Cause::Writeback, begun);
            let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(PoolError::Exhausted { budget_pages: shared.credits.total(), waited_ms });
        }
        shared.signal.wanted.raise();
        shared.signal.freed.wait(seen, Some(NAP));
        if shared.signal.freed.seen() != seen {
            moved = Instant::now();
        }
    }
}

/// A credit if one is free or can be made free by evicting clean pages.
pub(crate) fn credit_at_once<'a>(shared: &'a Shared, map: &Mapped, page: u64) -> Option<Credit<'a>> {
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
pub(crate) fn evict_for(shared: &Shared, map: &Mapped, page: u64) -> usize {
    let wanted = shared.config.evict_pages;
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
fn rich_maps(shared: &Shared) -> Vec<(Arc<Mapped>, usize)> {
    let maps = shared.maps();
    if maps.len() < 2 {
        return Vec::new();
    }
    let share = shared.credits.total() / maps.len();
    let excess = |map: &Arc<Mapped>| map.resident().checked_sub(share).filter(|&excess| excess > 0);
    let mut rich: Vec<_> = maps.into_iter().filter_map(|map| excess(&map).map(|excess| (map, excess))).collect();
    rich.sort_by_key(|&(_, excess)| std::cmp::Reverse(excess));
    rich
}

/// Evicts a batch from whatever map has something.
fn evict_anywhere(shared: &Shared) -> usize {
    let wanted = shared.config.evict_pages;
    shared.maps().iter().map(|map| evict_from(shared, map, 0, wanted)).find(|&went| went > 0).unwrap_or(0)
}

/// Evicts up to `wanted` clean pages of `map`, from the shard `home` or else from the others. Returns how many.
pub(crate) fn evict_from(shared: &Shared, map: &Mapped, home: usize, wanted: usize) -> usize {
    let work = || {
        let shards = map.shards().len();
        let mut desk = Desk { map, taken: Vec::new() };
        for step in 0..shards {
            let shard = &map.shards()[(home + step) % shards];
            shard.clean().evict(wanted - desk.taken.len(), &mut desk);
            if !desk.taken.is_empty() {
                break;
            }
        }
        give_back(shared, map, desk.taken)
    };
    map.while_open(work).unwrap_or(0)
}

/// Evicts the clean pages among `pages` that nobody uses, whatever the policy thinks of them. Returns how many.
pub(crate) fn evict_these(shared: &Shared, map: &Mapped, pages: impl Iterator<Item = u64>) -> usize {
    let mut count = 0;
    let mut taken = Vec::new();
    for page in pages {
        // Their entries stay in the queues and are found stale there.
        if map.word(page).begin_evict(false).is_ok() {
            taken.push(page);
        }
        if taken.len() == quire_sys::advise::MOST_RANGES {
            count += give_back(shared, map, std::mem::take(&mut taken));
        }
    }
    count += give_back(shared, map, taken);
    forget_stale(map);
    count
}

/// Keeps queues from growing by entries of pages that have gone without them.
fn forget_stale(map: &Mapped) {
    for shard in map.shards() {
        let mut clean = shard.clean();
        if clean.len() > 2 * shard.resident.load(Ordering::Relaxed) + 64 {
            clean.retain(&mut |page| {
                let word = map.word(page);
                word.seen().state() != State::Absent || word.dequeue().is_err()
            });
        }
    }
}

/// What a policy may ask about a map's pages.
struct Desk<'a> {
    map: &'a Mapped,
    taken: Vec<u64>,
}

impl Pages for Desk<'_> {
    fn touches(&mut self, page: u64) -> u8 {
        self.map.word(page).touches()
    }

    fn cool(&mut self, page: u64, most: u8) {
        self.map.word(page).cool(most);
    }

    fn take(&mut self, page: u64) -> Taken {
        let word = self.map.word(page);
        match word.begin_evict(true) {
            Ok(()) => {
                self.taken.push(page);
                Taken::Yes
            }
            Err(seen) if seen.state() == State::Clean => Taken::InUse,
            Err(_) if word.dequeue().is_ok() => Taken::Gone,
            Err(_) => Taken::InUse,
        }
    }
}

/// The last look at pages that are about to go, their bytes still in place. A tier of victims would be offered them here.
fn retire(map: &Mapped, pages: &[u64]) {
    map.counters.add(Count::Evicted, pages.len());
}

/// Gives the memory of claimed pages back, and their credits. Returns how many credits.
fn give_back(shared: &Shared, map: &Mapped, mut pages: Vec<u64>) -> usize {
    if pages.is_empty() {
        return 0;
    }
    let _entered = tracing::debug_span!("pool_evict", map = map.device.name(), pages = pages.len()).entered();
    // In order, so that neighbours make one range.
    pages.sort_unstable();
    retire(map, &pages);
    // SAFETY: the pages are claimed for eviction; whoever looks at them without leave finds that out afterwards.
    let discarded = unsafe { map.frames.discard(&pages) };
    for &page in &pages {
        map.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
        map.follow_up(page, map.word(page).end_evict());
    }
    let cost = match discarded {
        Ok(cost) => cost,
        Err(error) => {
            // Their memory stays taken, and so do their credits.
            tracing::error!(%error, "memory of evicted pages is lost");
            return 0;
        }
    };
    map.counters.add(Count::EvictBatches, 1);
    map.counters.add(Count::EvictRanges, cost.ranges);
    map.counters.add(Count::EvictCalls, cost.calls);
    shared.credits.give(pages.len());
    shared.signal.progress(pages.len());
    pages.len()
}
