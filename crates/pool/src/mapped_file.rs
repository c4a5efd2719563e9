//! A mapped file: its memory, its device, and its pages' queues and sets, shard by shard.
//!
//! Relies on [`PageFrames`] for memory and page states. It knows nothing of the pool that it lives in, of other maps, or of the
//! threads that read and write.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use quire_device::{Device, DeviceError, Queue, Transfer};

use crate::cache_padded::CachePadded;
use crate::config::{AccessAdvice, MapOptions, PoolConfig};
use crate::counters::PoolCounters;
use crate::dirty_set::DirtySet;
use crate::error::PoolError;
use crate::evict::EvictionPolicy;
use crate::frames::PageFrames;
use crate::futex::Futex;
use crate::page::{GROUP_PAGES, PageNo};
use crate::page_state::{DeferredWork, MOST_READAHEAD_QUEUES, PageState, PageStatus, WaitQueue};
use crate::readahead_queue::ReadaheadQueue;
use crate::readahead_streams::ReadaheadStreams;
use crate::spare_frames::SpareFrames;

/// More readahead queues than this need more rings than they are worth.
const READAHEAD_QUEUES: usize = 16;

/// What one core looks after as a rule: pages of some groups of the map.
pub(crate) struct Shard {
    /// The order in which clean pages are evicted. Dirty ones may still have an entry.
    clean: Mutex<Box<dyn EvictionPolicy>>,
    dirty: Mutex<DirtySet>,
    /// Where the writer goes on looking for dense groups.
    pub(crate) cursor: AtomicU64,
    /// Pages that hold a credit.
    pub(crate) resident: AtomicUsize,
}

impl Shard {
    pub(crate) fn clean(&self) -> MutexGuard<'_, Box<dyn EvictionPolicy>> {
        self.clean.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn dirty(&self) -> MutexGuard<'_, DirtySet> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device queue for writing, kept from one use to the next.
pub(crate) type WriteQueue = Mutex<Option<Box<dyn Queue>>>;

/// A mapped file.
pub(crate) struct MappedFile {
    pub(crate) frames: PageFrames,
    /// Bytes of the file.
    len: AtomicU64,
    pub(crate) counters: Arc<PoolCounters>,
    pub(crate) device: Arc<dyn Device>,
    shards: Box<[CachePadded<Shard>]>,
    /// No other map of the pool has it. It makes maps put their first pages in different shards.
    pub(crate) number: u64,
    poison: OnceLock<DeviceError>,
    /// A ring has failed while the kernel was filling pages of this map.
    lost: OnceLock<DeviceError>,
    /// Whether the map is in use; held for reading by a thread that works on pages without a handle.
    pub(crate) life: RwLock<bool>,
    /// Held while the file's length changes.
    pub(crate) length: Mutex<()>,
    /// One for each writer, and one for `flush`.
    pub(crate) write_queues: Box<[WriteQueue]>,
    pub(crate) readahead_queues: Box<[ReadaheadQueue]>,
    /// By core, since every miss looks here.
    pub(crate) streams: Box<[CachePadded<Mutex<ReadaheadStreams>>]>,
    advice: AtomicU8,
    pub(crate) options: MapOptions,
}

impl MappedFile {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        options: &MapOptions,
        config: &PoolConfig,
        counters: Arc<PoolCounters>,
        number: u64,
    ) -> Result<Self, PoolError> {
        let len = device.len()?;
        if config.tier.page_cache {
            // What that takes to set up is taken now: fault handlers ask later.
            let _ = device.cached_bytes(0, 1);
        }
        let frames = PageFrames::new(len.max(options.reserve_bytes), config.page_bytes)?;
        let capacity = config.budget_pages().div_ceil(config.shards);
        let shard = || {
            let clean = Mutex::new(config.policy.policy(capacity));
            let (cursor, resident) = (AtomicU64::new(0), AtomicUsize::new(0));
            CachePadded(Shard { clean, dirty: Mutex::default(), cursor, resident })
        };
        Ok(Self {
            frames,
            len: AtomicU64::new(len),
            counters,
            device,
            shards: (0..config.shards).map(|_| shard()).collect(),
            number,
            poison: OnceLock::new(),
            lost: OnceLock::new(),
            life: RwLock::new(true),
            length: Mutex::default(),
            write_queues: (0..=config.writers).map(|_| Mutex::default()).collect(),
            readahead_queues: (0..READAHEAD_QUEUES.min(MOST_READAHEAD_QUEUES))
                .map(|_| ReadaheadQueue::default())
                .collect(),
            streams: (0..config.shards).map(|_| CachePadded::default()).collect(),
            advice: AtomicU8::new(options.advice.to_byte()),
            options: options.clone(),
        })
    }

    /// The page's state, where its bytes are and how many: fewer than a page at the end of the file. `None` beyond it.
    #[inline]
    pub(crate) fn find(&self, page: u64) -> Option<(&PageState, *mut u8, usize)> {
        let (state, offset) = self.frames.find(page)?;
        let left = self.len.load(Ordering::Acquire).checked_sub(offset).filter(|&left| left > 0)?;
        Some((state, self.frames.at(offset), left.min(self.frames.page_bytes() as u64) as usize))
    }

    pub(crate) fn state(&self, page: u64) -> &PageState {
        self.frames.state(page)
    }

    /// Where the page's bytes are, unless it is relocated.
    pub(crate) fn address(&self, page: u64) -> *mut u8 {
        self.frames.at(page * self.frames.page_bytes() as u64)
    }

    /// Frames for relocated pages, at most `count`, which is the same in every call.
    ///
    /// # Errors
    /// There are no addresses for them.
    pub(crate) fn spare_frames(&self, count: usize) -> Result<&SpareFrames, PoolError> {
        if let Some(made) = self.frames.spare.get() {
            return Ok(made);
        }
        let page_bytes = self.frames.page_bytes();
        let made = SpareFrames::new(count, page_bytes, self.frames.reserved_bytes() / page_bytes as u64)?;
        // Another thread may have been faster.
        Ok(self.frames.spare.get_or_init(|| made))
    }

    /// Frames for relocated pages, if there ever was such a page.
    pub(crate) fn spare_frames_if_any(&self) -> Option<&SpareFrames> {
        self.frames.spare.get()
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The file has become longer. The caller holds `length`.
    pub(crate) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Pages of the file, the last perhaps in part.
    pub(crate) fn pages(&self) -> u64 {
        self.len().div_ceil(self.frames.page_bytes() as u64)
    }

    /// Whether the file ends inside `page`.
    pub(crate) fn is_tail(&self, page: u64) -> bool {
        let size = self.frames.page_bytes() as u64;
        self.len() / size == page && !self.len().is_multiple_of(size)
    }

    /// Keeps a write of whole pages from reaching farther beyond the end of the file than the device needs.
    pub(crate) fn cut_at_end(&self, transfer: &mut Transfer) {
        let end = self.len().next_multiple_of(self.device.alignment().offset_bytes as u64);
        for extent in &mut transfer.extents {
            // A page is written only if some of it is inside, so something is left.
            extent.len = extent.len.min(end.saturating_sub(extent.offset) as usize);
        }
    }

    pub(crate) fn outside(&self, page: u64) -> PoolError {
        PoolError::Outside { map: self.device.name().to_owned(), page: PageNo(page), pages: self.pages() }
    }

    /// Number of the shard that looks after `page`.
    pub(crate) fn shard_of(&self, page: u64) -> usize {
        let spread = (page / GROUP_PAGES + self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 40) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn shard(&self, page: u64) -> &Shard {
        &self.shards[self.shard_of(page)]
    }

    pub(crate) fn shards(&self) -> &[CachePadded<Shard>] {
        &self.shards
    }

    /// Pages that hold a credit.
    pub(crate) fn resident(&self) -> usize {
        self.shards.iter().map(|shard| shard.resident.load(Ordering::Relaxed)).sum()
    }

    /// Does what a change of the page's state has left to be done.
    pub(crate) fn follow_up(&self, page: u64, after: DeferredWork) {
        if after.enqueue {
            self.shard(page).clean().insert(page);
        }
        if after.wake {
            Futex.unpark_all(self.state(page));
        }
    }

    /// Writing has failed: the first failure stays.
    pub(crate) fn poison(&self, cause: &DeviceError) -> PoolError {
        let first = self.poison.get_or_init(|| {
            tracing::error!(map = self.device.name(), %cause, "the map is given up");
            cause.clone()
        });
        PoolError::Poisoned { map: self.device.name().to_owned(), cause: first.clone() }
    }

    /// The kernel may go on filling absent pages at any time: none can be used again.
    pub(crate) fn lose_memory(&self, cause: &DeviceError) {
        self.lost.get_or_init(|| cause.clone());
    }

    /// # Errors
    /// The failure that has made absent pages unusable.
    pub(crate) fn check_memory(&self) -> Result<(), DeviceError> {
        self.lost.get().cloned().map_or(Ok(()), Err)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// # Errors
    /// The failure that has poisoned the map.
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        match self.poison.get() {
            Some(cause) => Err(self.poison(cause)),
            None => Ok(()),
        }
    }

    pub(crate) fn advice(&self) -> AccessAdvice {
        AccessAdvice::from_byte(self.advice.load(Ordering::Relaxed))
    }

    pub(crate) fn advise(&self, advice: AccessAdvice) {
        self.advice.store(advice.to_byte(), Ordering::Relaxed);
    }

    /// Runs `work` unless the map is closed, which then waits for it.
    pub(crate) fn while_open<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let open = self.life.read().unwrap_or_else(PoisonError::into_inner);
        open.then(work)
    }

    /// Bytes of those of `pages` that are in the pool which the system's page cache holds as well; `None` if it doesn't say. Parts of the
    /// file of which the cache holds nothing are passed over as a whole, so the states of pages that were never touched aren't looked at.
    pub(crate) fn held_twice_bytes(&self, pages: Range<u64>) -> Option<u64> {
        let page_bytes = self.frames.page_bytes() as u64;
        let cached = |pages: &Range<u64>| {
            let len = (pages.end * page_bytes).min(self.len()).saturating_sub(pages.start * page_bytes);
            self.device.cached_bytes(pages.start * page_bytes, len)
        };
        if pages.is_empty() || cached(&pages)? == 0 {
            return Some(0);
        }
        if pages.end - pages.start > GROUP_PAGES {
            let middle = pages.start + (pages.end - pages.start) / 2;
            return Some(self.held_twice_bytes(pages.start..middle)? + self.held_twice_bytes(middle..pages.end)?);
        }
        let is_here = |page: &u64| {
            matches!(self.state(*page).load().status(), PageStatus::Clean | PageStatus::Dirty | PageStatus::Writing)
        };
        pages.filter(is_here).map(|page| cached(&(page..page + 1))).sum()
    }
}
