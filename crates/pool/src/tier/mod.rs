//! The second tier: memory for evicted pages that the kernel may take back at any time, shared by all maps of a pool.
//!
//! Relies on a page's version, which goes up with every change and every eviction: an entry is of use only to the first read
//! after the eviction that made it. So no thread has to tell the tier of a change, a stale entry is never served, and looking is
//! optional, since an absent page is on the device as it is here. It knows nothing of maps, devices and page states;
//! `docs/design/second-tier.md` has the whole picture.

mod admission;
mod codec;
mod holes;
mod index;
mod key;
mod memory;
mod ring;
mod shard;
mod sizer;
mod sizing;
mod split;
mod stall_meter;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use quire_rng::SplitMix64;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pressure::MemoryInfo;

use crate::cache_padded::CachePadded;
use crate::config::{LEAST_TIER_PAGES, TierConfig, TierSize};
use crate::error::PoolError;

use admission::Admission;
use codec::{CompressionHistory, EncoderPool, PageDecoder};
pub(crate) use key::{MOST_MAPS, PageKey};
use memory::ShardMemory;
pub(crate) use shard::TierLookup;
use shard::{BorderCounts, MOST_SHARD_BYTES, TierShard};
pub(crate) use sizer::{PERIOD, TierSizer};
pub(crate) use split::{BorderHits, MemorySplit};
use stall_meter::StallMeter;

/// Most bytes of a segment: what is freed, emptied and filled together.
const MOST_SEGMENT_BYTES: usize = 256 << 10;
/// Segments that a shard has at least.
const LEAST_SEGMENTS: usize = LEAST_TIER_PAGES;
/// Locks by which the tier is shared.
const MOST_SHARDS: usize = 16;
/// The index has room for as many entries as there would be if each took a page's third.
const ENTRIES_PER_PAGE: usize = 3;

/// Places of a shard's index that are counted under its lock at a time.
const COUNTED_TOGETHER: usize = 4096;
/// Processors are scarce while some thread waits for one for more than this share of the time.
const SCARCE_PERCENT: f64 = 50.0;

/// What has become of a batch of victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredBatch {
    /// Pages that were copied in.
    pub(crate) copied: usize,
    /// Pages that were there still from an earlier eviction.
    pub(crate) kept: usize,
    /// Pages that there was no room for, or that were not worth it.
    pub(crate) declined: usize,
}

/// What the second tier holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Whether its memory is a part of the pool's budget ([`TierSize::Auto`]).
    pub is_in_budget: bool,
    /// Bytes that it may hold at most.
    pub capacity_bytes: u64,
    /// Bytes that it may hold now, by what memory is there.
    pub limit_bytes: u64,
    /// Bytes of its segments.
    pub held_bytes: u64,
    /// Bytes of these that the kernel has not taken; 0 where it doesn't say.
    pub resident_bytes: u64,
    /// Pages that it has an entry for, those included that the kernel has taken without the tier knowing.
    pub entries: u64,
    /// Pages of these that are stored as they are, since they don't compress.
    pub raw_entries: u64,
    /// Bytes of these pages as they are stored.
    pub stored_bytes: u64,
    /// Pages of these that are in the first tier, too, since they were promoted: a second copy, so that a page that leaves unchanged need not be
    /// compressed again.
    pub promoted_entries: u64,
    /// Bytes of these second copies: at most one part in 64 of `limit_bytes`.
    pub promoted_bytes: u64,
}

/// What has been counted for the division of the memory.
#[derive(Debug, Default)]
struct SeenBorder {
    /// All counts up to the last look.
    before: BorderCounts,
    /// Pages stored since, and the bytes that they took.
    stored: [u64; 2],
}

/// What bounds the tier: the least of them holds.
#[derive(Debug)]
struct TierBounds {
    /// What there is memory for, or what a caller of [`SecondTier::set_limit`] has asked for since.
    memory_bytes: usize,
    /// Its part of a budget that it shares with the first tier.
    share_bytes: usize,
    /// What the program lets it have.
    allowed_bytes: usize,
}

/// The second tier of a pool.
#[derive(Debug)]
pub(crate) struct SecondTier {
    shards: Box<[CachePadded<Mutex<TierShard>>]>,
    segment_bytes: usize,
    page_bytes: usize,
    capacity_bytes: usize,
    /// Held while the shards are told: of two callers none tells of a bound that the other has lowered.
    bounds: Mutex<TierBounds>,
    limit_bytes: AtomicUsize,
    /// Its memory is a part of the pool's budget.
    is_shared: AtomicBool,
    /// The kernel doesn't take the tier's memory for memory that it may have back.
    is_refused: AtomicBool,
    history: CompressionHistory,
    encoders: EncoderPool,
    admission: Admission,
    /// Of memory, and of processors.
    stalls: [Mutex<StallMeter>; 2],
    /// Since the last look at hits at the border.
    border: Mutex<SeenBorder>,
    /// Of the checksums.
    seed: u64,
}

impl SecondTier {
    /// A tier as `config` says, beside a first one of `budget_bytes` in pages of `page_bytes`; `None` if it is to have no memory.
    ///
    /// # Errors
    /// [`PoolError::Memory`].
    pub(crate) fn new(config: TierConfig, budget_bytes: usize, page_bytes: usize) -> Result<Option<Self>, PoolError> {
        let now = MemoryInfo::now();
        let wanted = sizing::capacity_bytes(config.size, budget_bytes, &now);
        let least_segment = page_bytes.max(PAGE_SIZE);
        if wanted < LEAST_SEGMENTS * least_segment {
            return Ok(None);
        }
        let shards = (wanted / (LEAST_SEGMENTS * MOST_SEGMENT_BYTES)).clamp(1, MOST_SHARDS);
        let shards = 1 << shards.ilog2();
        let shard_bytes = (wanted / shards).min(MOST_SHARD_BYTES);
        let segment_bytes = (shard_bytes / LEAST_SEGMENTS / least_segment * least_segment).min(MOST_SEGMENT_BYTES);
        let segments = shard_bytes / segment_bytes;
        let refused =
            |error: quire_sys::mem::MemError| PoolError::Memory { what: "the second tier", cause: error.to_string() };
        let Some(memory) = ShardMemory::split(shards, segments, segment_bytes).map_err(refused)? else {
            return Ok(None);
        };
        let entries = segments * segment_bytes / page_bytes * ENTRIES_PER_PAGE;
        // Keys drawn at random by the standard library.
        let seed = RandomState::new().hash_one(0);
        let shard = |memory| {
            let decoder = PageDecoder::new(config.compression)?;
            let shard = TierShard::new(memory, segments, page_bytes, entries, (decoder, seed));
            shard.map(|shard| CachePadded(Mutex::new(shard)))
        };
        let no_index =
            |error: io::Error| PoolError::Memory { what: "the second tier's index", cause: error.to_string() };
        let tier = Self {
            shards: memory.into_iter().map(shard).collect::<Result<_, _>>().map_err(no_index)?,
            segment_bytes,
            page_bytes,
            capacity_bytes: shards * segments * segment_bytes,
            bounds: Mutex::new(TierBounds {
                memory_bytes: usize::MAX,
                share_bytes: if config.size == TierSize::Auto { 0 } else { usize::MAX },
                allowed_bytes: usize::MAX,
            }),
            limit_bytes: AtomicUsize::new(shards * segments * segment_bytes),
            is_shared: AtomicBool::new(config.size == TierSize::Auto),
            is_refused: AtomicBool::new(false),
            history: CompressionHistory::default(),
            encoders: EncoderPool::new(config.compression, page_bytes),
            admission: Admission::new(config.is_adaptive, shards * segments * segment_bytes / page_bytes),
            stalls: Default::default(),
            border: Mutex::default(),
            seed,
        };
        tier.resize_to(&now);
        Ok(Some(tier))
    }

    /// Bytes that a tier of this size may come to hold, with a budget of `budget_bytes`.
    pub(crate) fn wanted_bytes(size: TierSize, budget_bytes: usize) -> usize {
        sizing::wanted_bytes(size, budget_bytes)
    }

    /// Bytes that a tier beside a budget of `budget_bytes` has addresses for if it may be given more later.
    pub(crate) fn roomy_bytes(budget_bytes: usize) -> usize {
        sizing::roomy_bytes(budget_bytes, &MemoryInfo::now())
    }

    fn shard(&self, key: PageKey) -> &Mutex<TierShard> {
        &self.shards[(key.hash() >> 58) as usize & (self.shards.len() - 1)]
    }

    fn lock(&self, key: PageKey) -> MutexGuard<'_, TierShard> {
        self.shard(key).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores pages that are being evicted at their versions, each with its bytes, which don't change meanwhile.
    pub(crate) fn store<'p>(&self, pages: impl Iterator<Item = (PageKey, u32, &'p [u8])>) -> StoredBatch {
        let mut batch = StoredBatch::default();
        if self.limit_bytes() == 0 || !self.admission.admits() {
            batch.declined = pages.count();
            return batch;
        }
        let begun = Instant::now();
        let mut stored_bytes = 0;
        self.encoders.with(|encoder| {
            for (key, version, bytes) in pages {
                if self.lock(key).keep(key, version) {
                    batch.kept += 1;
                    continue;
                }
                // Not under the lock: it is the longest part.
                let stored = encoder.encode(&self.history, bytes);
                if self.insert(key, version, stored) {
                    batch.copied += 1;
                    stored_bytes += stored.len();
                } else {
                    batch.declined += 1;
                }
            }
        });
        let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.admission.stored(batch.copied, took_ns);
        if self.is_shared() {
            let mut border = self.border.lock().unwrap_or_else(PoisonError::into_inner);
            border.stored[0] += batch.copied as u64;
            border.stored[1] += stored_bytes as u64;
        }
        batch
    }

    /// Puts a page's bytes, as they are stored, into its shard; whether there is room.
    fn insert(&self, key: PageKey, version: u32, stored: &[u8]) -> bool {
        let checksum = key.checksum(self.seed, stored);
        let inserted = self.lock(key).insert(key, version, checksum, stored);
        inserted.unwrap_or_else(|error| {
            tracing::warn!(%error, "there is no second tier: its memory can't be given to the kernel");
            self.close();
            false
        })
    }

    /// Copies the bytes of a page into `into` if they are here; the page is being read, at `version`. With `may_wait` the caller may wait
    /// for other threads that use the shard; a signal handler may not.
    pub(crate) fn take(&self, key: PageKey, version: u32, into: &mut [u8], may_wait: bool) -> TierLookup {
        if may_wait {
            let begun = Instant::now();
            let found = self.lock(key).take(key, version, into);
            if found == TierLookup::Hit {
                self.admission.took(Some(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)));
            }
            return found;
        }
        let found = match self.shard(key).try_lock() {
            Ok(mut shard) => shard.take(key, version, into),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(key, version, into),
            Err(TryLockError::WouldBlock) => TierLookup::Busy,
        };
        if found == TierLookup::Hit {
            self.admission.took(None);
        }
        found
    }

    /// Whether the bytes of a page that is absent at `version` are probably here.
    pub(crate) fn has(&self, key: PageKey, version: u32) -> bool {
        self.lock(key).has(key, version)
    }

    /// Reading `pages` pages together from the device has taken so long.
    pub(crate) fn note_device_read(&self, begun: Instant, pages: usize) {
        self.admission.read(pages, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Threads have waited for processors for so long since the machine's start.
    pub(crate) fn note_processors(&self, stalled_us: Option<u64>) {
        let percent = self.stalled_percent(1, stalled_us);
        self.admission.set_processor_scarce(percent.is_some_and(|percent| percent > SCARCE_PERCENT));
    }

    /// Grows or shrinks to the memory of `now`.
    pub(crate) fn resize_to(&self, now: &MemoryInfo) {
        let stalled_percent = self.stalled_percent(0, now.stalled_us);
        let segments: usize = self.each().map(|shard| shard.held_segments()).sum();
        let target = sizing::target_bytes(self.capacity_bytes, segments * self.segment_bytes, now, stalled_percent);
        self.set_limit(target);
    }

    fn stalled_percent(&self, meter: usize, total_us: Option<u64>) -> Option<f64> {
        let mut meter = self.stalls[meter].lock().unwrap_or_else(PoisonError::into_inner);
        meter.percent(Instant::now(), total_us)
    }

    fn bounds(&self) -> MutexGuard<'_, TierBounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its memory is a part of the pool's budget.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Its memory is a part of the pool's budget from now on, of which it has nothing yet.
    pub(crate) fn begin_sharing(&self) {
        let mut bounds = self.bounds();
        (bounds.share_bytes, bounds.allowed_bytes) = (0, usize::MAX);
        self.is_shared.store(true, Ordering::Relaxed);
        self.apply(&bounds);
    }

    /// Its memory lies beside the pool's budget from now on, up to `bytes`, however much memory there is. Returns what it may hold now.
    pub(crate) fn end_sharing(&self, bytes: usize) -> usize {
        let mut bounds = self.bounds();
        (bounds.share_bytes, bounds.allowed_bytes) = (usize::MAX, bytes);
        self.is_shared.store(false, Ordering::Relaxed);
        self.apply(&bounds);
        self.limit_bytes()
    }

    /// Lets a tier that shares a budget hold no more than `bytes` from now on, however much memory there is; what is too much has gone on
    /// return. Returns the bytes that it holds or may come to hold: fewer where there is no memory for them, in whole segments, or more where the kernel has
    /// not taken what was given back.
    pub(crate) fn set_share(&self, bytes: usize) -> usize {
        let mut bounds = self.bounds();
        bounds.share_bytes = bytes;
        let reserved_bytes = self.apply(&bounds);
        // What it has no memory for may be another's now, and is not had again when there is memory.
        bounds.share_bytes = self.limit_bytes();
        reserved_bytes
    }

    /// Bytes that there is memory for.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bounds().memory_bytes.min(self.capacity_bytes)
    }

    /// Parts among which its pages are spread.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Bytes of a segment.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Bytes that it may hold at most.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Whether the kernel doesn't take its memory for memory that it may have back, so that it holds nothing.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Counts hits at the two ends of a tier of `bytes`, however many it was made for.
    pub(crate) fn set_reach(&self, bytes: usize) {
        let segments = bytes.min(self.capacity_bytes) / self.segment_bytes / self.shards.len();
        self.each().for_each(|mut shard| shard.set_reach(segments));
    }

    /// Hits at the tier's two ends since the last call.
    pub(crate) fn border_hits(&self) -> BorderHits {
        let mut now = BorderCounts::default();
        for shard in self.each() {
            now.recent += shard.border().recent;
            now.near_ghosts += shard.border().near_ghosts;
        }
        let mut border = self.border.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut border.before, now);
        let [tier_ns, device_ns] = self.admission.costs_ns().unwrap_or_default();
        // The shares of later pages count for more, those of earlier ones are not forgotten at once.
        let [pages, bytes] = border.stored;
        border.stored = border.stored.map(|count| count - count / 4);
        BorderHits {
            recent: now.recent - before.recent,
            near_ghosts: now.near_ghosts - before.near_ghosts,
            tier_ns,
            device_ns,
            is_stored: self.admission.pays(),
            stored_share: bytes as f64 / (pages.max(1) * self.page_bytes as u64) as f64,
        }
    }

    /// Lets the tier hold no more than about `bytes` until the next look. What is too much goes at once, the oldest first.
    pub(crate) fn set_limit(&self, bytes: usize) {
        let mut bounds = self.bounds();
        bounds.memory_bytes = bytes;
        self.apply(&bounds);
    }

    /// Bytes that it may hold now.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Tells the shards, which have an equal number of segments but for one. Returns the bytes that they hold or may come to hold.
    fn apply(&self, bounds: &TierBounds) -> usize {
        let bytes = bounds.memory_bytes.min(bounds.share_bytes).min(bounds.allowed_bytes).min(self.capacity_bytes);
        let segments = if self.is_refused() { 0 } else { bytes / self.segment_bytes };
        self.limit_bytes.store(segments * self.segment_bytes, Ordering::Relaxed);
        let shards = self.shards.len();
        let reserved = self.each().enumerate().map(|(number, mut shard)| {
            let limit = segments / shards + usize::from(number < segments % shards);
            shard.set_limit(limit);
            limit.max(shard.held_segments())
        });
        reserved.sum::<usize>() * self.segment_bytes
    }

    /// Has the tier hold nothing any more: the kernel doesn't take its memory for memory that it may have back.
    fn close(&self) {
        let _alone = self.bounds();
        self.is_refused.store(true, Ordering::Relaxed);
        self.limit_bytes.store(0, Ordering::Relaxed);
        self.each().for_each(|mut shard| shard.close());
    }

    /// The shards, each locked while it is looked at.
    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, TierShard>> {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives back one page in `one_in`, drawn by lot, as the kernel does; how many.
    pub(crate) fn take_back(&self, seed: u64, one_in: u64) -> usize {
        let mut lot = SplitMix64::new(seed);
        self.each().map(|mut shard| shard.take_back(|_| lot.next_u64().is_multiple_of(one_in.max(1)))).sum()
    }

    /// What is held now. Looks at every entry, a part of a shard's at a time: other threads use the shard in between.
    pub(crate) fn stats(&self) -> TierStats {
        let mut stats = TierStats {
            is_in_budget: self.is_shared(),
            capacity_bytes: self.capacity_bytes as u64,
            limit_bytes: self.limit_bytes() as u64,
            ..TierStats::default()
        };
        for shard in &self.shards {
            let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
            let (held_segments, places, residency) = {
                let shard = lock();
                (shard.held_segments(), shard.entry_places(), shard.residency())
            };
            stats.held_bytes += (held_segments * self.segment_bytes) as u64;
            stats.resident_bytes += residency.resident_bytes().unwrap_or(0) as u64;
            for start in (0..places).step_by(COUNTED_TOGETHER) {
                lock().count(start..start + COUNTED_TOGETHER, &mut stats);
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the limit is to be, and who sets it.
    type Change = (usize, fn(&SecondTier, usize));

    #[test]
    fn a_bound_is_told_to_all_shards_before_another_is_set() {
        let config = TierConfig { size: TierSize::Auto, ..TierConfig::default() };
        let tier = SecondTier::new(config, 1 << 20, PAGE_SIZE).unwrap().unwrap();
        tier.set_limit(usize::MAX);
        let half = tier.segment_bytes() * 8;
        let share: fn(&SecondTier, usize) = |tier, bytes| {
            tier.set_share(bytes);
        };
        let changes: [Change; 3] = [(half, share), (half / 2, SecondTier::set_limit), (0, share)];
        for (bytes, set) in changes {
            std::thread::scope(|threads| {
                let _held = tier.shards[0].lock().unwrap();
                threads.spawn(|| set(&tier, bytes));
                while tier.limit_bytes.load(Ordering::Relaxed) != bytes {
                    std::thread::yield_now();
                }
                assert!(tier.bounds.try_lock().is_err(), "a shard has not been told of {bytes} bytes");
            });
        }
        tier.set_limit(usize::MAX);
        assert_eq!(tier.limit_bytes.load(Ordering::Relaxed), 0, "the share holds whatever else is set");
    }
}
