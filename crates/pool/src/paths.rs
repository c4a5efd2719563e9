//! The four ways of a page between the pool, its second tier and the device, named as in DBIO (Park, 2020): *read*, *write-direct*,
//! *evict-dirty*, *evict-clean*; each is counted.
//!
//! Relies on the page's state for the claim and for the version that ties an entry of the second tier to one eviction. What is
//! absent from the pool and in the second tier is on the device, too: only clean pages are evicted, so every way back brings the same
//! bytes, and a look that is given up costs a read and nothing else.

use std::sync::Arc;
use std::time::Instant;

use quire_device::DeviceError;

use crate::counters::PoolCounter;
use crate::mapped_file::MappedFile;
use crate::pool_state::PoolState;
use crate::tier::{MOST_MAPS, PageKey, SecondTier, TierLookup};

/// Why a dirty page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePath {
    /// *Write-direct*: too much is dirty, or a thread flushes; the page stays in the pool.
    Direct,
    /// *Evict-dirty*: a thread needs memory. The page goes when it is clean, and stays in the second tier.
    EvictDirty,
}

impl WritePath {
    pub(crate) fn counter(self) -> PoolCounter {
        match self {
            Self::Direct => PoolCounter::WriteDirect,
            Self::EvictDirty => PoolCounter::EvictDirty,
        }
    }
}

/// The tier that pages of the map go to.
fn tier_of<'a>(shared: &'a PoolState, map: &MappedFile) -> Option<&'a SecondTier> {
    shared.tier().filter(|_| map.options.use_tier && map.number < MOST_MAPS).map(Arc::as_ref)
}

/// Whether pages of the map go to a second tier.
pub(crate) fn has_tier(shared: &PoolState, map: &MappedFile) -> bool {
    tier_of(shared, map).is_some()
}

/// Pages of the map are about to be evicted to make room.
pub(crate) fn note_eviction(shared: &PoolState, map: &MappedFile) {
    if has_tier(shared, map)
        && let Some(budget) = shared.tier_budget()
    {
        budget.note_eviction();
    }
}

/// *Evict-clean*: clean victims go to the second tier, without I/O.
///
/// # Safety
/// The caller has claimed the pages by `begin_evict`, and has not given up their memory yet.
pub(crate) unsafe fn evict_clean(shared: &PoolState, map: &MappedFile, pages: &[u64]) {
    let Some(tier) = tier_of(shared, map) else { return };
    // The file may grow, and what is behind its end in the page is then part of it.
    let whole = pages.iter().filter(|&&page| !map.is_tail(page));
    let stored = tier.store(whole.map(|&page| {
        // SAFETY: `evict_clean`'s caller has claimed the page by `begin_evict`; the slice is not used after `store`.
        let bytes = unsafe { map.frames.evicting(page) };
        (PageKey::new(map.number, page), map.state(page).load().version(), bytes)
    }));
    map.counters.add(PoolCounter::EvictClean, stored.copied);
    map.counters.add(PoolCounter::EvictKept, stored.kept);
    map.counters.add(PoolCounter::EvictDeclined, stored.declined);
}

/// *Read* from the second tier: copies the page, which the caller has claimed by `begin_read`, to `into`, which is written only if
/// that succeeds. A signal handler may not wait, and takes no memory here.
pub(crate) fn read_tier(shared: &PoolState, map: &MappedFile, page: u64, into: &mut [u8], may_wait: bool) -> bool {
    let Some(tier) = tier_of(shared, map) else { return false };
    let found = tier.take(PageKey::new(map.number, page), map.state(page).load().version(), into, may_wait);
    let counter = match found {
        TierLookup::Hit => PoolCounter::ReadTier,
        TierLookup::Reclaimed => PoolCounter::TierReclaimed,
        TierLookup::Ghost => PoolCounter::TierGhost,
        TierLookup::Busy => PoolCounter::TierBusy,
        TierLookup::Miss => return false,
    };
    map.counters.add(counter, 1);
    found == TierLookup::Hit
}

/// *Read* from the system's page cache, which gives the page up: copies it to `into` if the cache has all of it. What is written to
/// `into` otherwise is of no use.
pub(crate) fn read_cached(shared: &PoolState, map: &MappedFile, page: u64, into: &mut [u8]) -> bool {
    if !shared.config.tier.page_cache {
        return false;
    }
    let offset = page * into.len() as u64;
    // The device itself is asked where this fails.
    let Ok(Some(taken)) = map.device.take_cached(offset, into) else { return false };
    if taken.len < into.len() {
        return false;
    }
    map.counters.add(PoolCounter::ReadCached, 1);
    map.counters.add(PoolCounter::CacheKept, usize::from(!taken.is_given_up));
    true
}

/// Whether the second tier is likely to have the page, which was absent a moment ago.
pub(crate) fn is_in_tier(shared: &PoolState, map: &MappedFile, page: u64) -> bool {
    let version = || map.state(page).load().version();
    tier_of(shared, map).is_some_and(|tier| tier.has(PageKey::new(map.number, page), version()))
}

/// *Read* from the device, by `read`: `pages` pages that a thread waits for.
pub(crate) fn read_direct(
    shared: &PoolState,
    map: &MappedFile,
    pages: usize,
    read: impl FnOnce() -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    map.counters.add(PoolCounter::ReadDirect, pages);
    let Some(tier) = tier_of(shared, map) else { return read() };
    let begun = Instant::now();
    let result = read();
    if result.is_ok() {
        tier.note_device_read(begun, pages);
    }
    result
}
