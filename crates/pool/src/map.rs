//! A mapped file as its users see it.
//!
//! Relies on [`crate::fetch`] for pages that aren't there or are in use; a page that is there costs two atomic operations
//! on its state, or none.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::access_mode::AccessMode;
use crate::config::AccessAdvice;
use crate::counters::PoolCounter;
use crate::error::PoolError;
use crate::fetch::acquire;
use crate::guard::{ReadGuard, WriteGuard};
use crate::mapped_file::MappedFile;
use crate::page::PageNo;
use crate::pool_state::PoolState;
use crate::spare_frames::SpareFrames;
use crate::view::PageView;
use crate::{completion, flush, readahead, reclaim};

/// Optimistic reads that may fail before the page is locked for the next one.
const OPTIMISTIC_TRIES: usize = 3;

/// A file in a pool. Clones are the same map; when the last is dropped, dirty pages are written (but not made durable: that
/// takes [`Map::sync`]) and the map's memory goes back to the pool.
///
/// A thread that holds a guard of a page and asks for the same page to change it, or flushes it while it is changing it,
/// waits for itself for ever.
#[derive(Clone)]
pub struct Map {
    mapped: Arc<MappedFile>,
    handle: Arc<MapHandle>,
}

/// What all clones of a map have in common.
struct MapHandle {
    shared: Arc<PoolState>,
    mapped: Arc<MappedFile>,
    /// Keeps the writers at work.
    _pool: Arc<dyn Send + Sync>,
}

impl fmt::Debug for Map {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Map").field("name", &self.name()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Map {
    /// `pool` is kept while the map lives.
    pub(crate) fn new(shared: Arc<PoolState>, mapped: Arc<MappedFile>, pool: Arc<dyn Send + Sync>) -> Self {
        Self { handle: Arc::new(MapHandle { shared, mapped: Arc::clone(&mapped), _pool: pool }), mapped }
    }

    pub(crate) fn shared(&self) -> &Arc<PoolState> {
        &self.handle.shared
    }

    pub(crate) fn mapped(&self) -> &Arc<MappedFile> {
        &self.mapped
    }

    /// Name of the file, for messages.
    pub fn name(&self) -> &str {
        self.mapped.device.name()
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.mapped.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages of the file, the last perhaps in part.
    pub fn pages(&self) -> u64 {
        self.mapped.pages()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.mapped.frames.page_bytes()
    }

    /// Pages that hold memory of the pool.
    pub fn resident_pages(&self) -> usize {
        self.mapped.resident()
    }

    /// Bytes that are in the pool and in the system's page cache: pages that another program reads or writes through it. `None` where
    /// the system doesn't say. Asks it about every part of the file that it has in its cache.
    pub fn held_twice_bytes(&self) -> Option<u64> {
        self.mapped.held_twice_bytes(0..self.pages())
    }

    /// The page, to be read. It has fewer bytes than others if the file ends inside it.
    ///
    /// # Errors
    /// [`PoolError::Outside`], [`PoolError::Device`] or [`PoolError::Exhausted`].
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// let guard = map.read(PageNo(0))?;
    /// assert_eq!((guard.len(), guard[0]), (4096, 7)); // the page stays while the guard lives
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn read(&self, page: PageNo) -> Result<ReadGuard<'_>, PoolError> {
        let Some((state, mut at, len)) = self.mapped.find(page.0) else { return Err(self.mapped.outside(page.0)) };
        if state.try_lock_shared().is_ok() {
            self.mapped.counters.hit();
        } else {
            at = acquire(&self.handle.shared, &self.mapped, page.0, AccessMode::Read)?;
        }
        // SAFETY: this thread has locked the page shared just now, here or in `acquire`; state and bytes live as long as the map,
        // which the guard borrows.
        Ok(unsafe { ReadGuard::new(state, at, len) })
    }

    /// The page, to be changed. It counts as changed from now on.
    ///
    /// # Errors
    /// As [`Map::read`], and [`PoolError::Poisoned`].
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// map.write(PageNo(1))?.fill(9);
    /// assert_eq!(map.read(PageNo(1))?[4095], 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn write(&self, page: PageNo) -> Result<WriteGuard<'_>, PoolError> {
        self.change(page, AccessMode::Write)
    }

    /// The page, to be overwritten: if it isn't in memory it is not read but holds zeros, or what it held some time. A
    /// writer that doesn't set every byte loses those that it leaves out.
    ///
    /// # Errors
    /// As [`Map::write`], but for the device.
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// map.overwrite(PageNo(2))?.fill(0); // not read from the file first
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overwrite(&self, page: PageNo) -> Result<WriteGuard<'_>, PoolError> {
        self.change(page, AccessMode::Overwrite)
    }

    #[inline]
    fn change(&self, page: PageNo, want: AccessMode) -> Result<WriteGuard<'_>, PoolError> {
        let Some((state, mut at, len)) = self.mapped.find(page.0) else { return Err(self.mapped.outside(page.0)) };
        if self.mapped.is_poisoned() {
            self.mapped.check()?;
        }
        match state.try_lock_exclusive() {
            Ok(is_newly_dirty) => {
                if is_newly_dirty {
                    self.handle.shared.note_dirty(&self.mapped, page.0);
                }
                self.mapped.counters.hit();
            }
            Err(_) => at = acquire(&self.handle.shared, &self.mapped, page.0, want)?,
        }
        // SAFETY: this thread has locked the page exclusively just now, here or in `acquire`; state and bytes live as long as the
        // map, which the guard borrows.
        Ok(unsafe { WriteGuard::new(state, at, len) })
    }

    /// What `read` makes of the page, which isn't locked meanwhile: if its bytes have changed or gone by the end, `read` is
    /// called again, after a few times with the page locked. The cheapest way to a page: it writes to no memory that others
    /// see.
    ///
    /// # Errors
    /// As [`Map::read`].
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// let found = map.optimistic_read(PageNo(0), |page| page.u16(10))?;
    /// assert_eq!(found, Some(0x0707));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn optimistic_read<T>(&self, page: PageNo, mut read: impl FnMut(PageView<'_>) -> T) -> Result<T, PoolError> {
        let Some((state, at, len)) = self.mapped.find(page.0) else { return Err(self.mapped.outside(page.0)) };
        for _ in 0..OPTIMISTIC_TRIES {
            let Ok(seen) = state.optimistic_read() else { break };
            // SAFETY: `find` gave an address of the map, which is mapped for as long as the map lives, and `self` is borrowed.
            let result = read(unsafe { PageView::new(at, len) });
            if state.validate(seen) {
                state.touch(seen);
                self.mapped.counters.hit();
                return Ok(result);
            }
            self.mapped.counters.add(PoolCounter::OptimisticRetries, 1);
        }
        let held = self.read(page)?;
        // SAFETY: the bytes are those of `held`, which is mapped for as long as the guard lives.
        Ok(read(unsafe { PageView::new(held.as_ptr(), held.len()) }))
    }

    /// Makes the file `len` bytes long, if it is shorter. The new bytes are zero.
    ///
    /// # Errors
    /// [`PoolError::TooLong`] beyond what was reserved, or the device refuses.
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// let options = MapOptions { reserve_bytes: 1 << 30, ..MapOptions::default() };
    /// let map = pool.map(MemoryDirectory::new().create("grows")?, options)?;
    /// map.grow(3 * 4096)?;
    /// assert_eq!((map.pages(), map.read(PageNo(2))?[0]), (3, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&self, len: u64) -> Result<(), PoolError> {
        let map = &*self.mapped;
        let reserved_bytes = map.frames.reserved_bytes();
        if len > reserved_bytes {
            return Err(PoolError::TooLong { map: self.name().to_owned(), asked_bytes: len, reserved_bytes });
        }
        map.check()?;
        let _alone = map.length.lock().unwrap_or_else(PoisonError::into_inner);
        if len > map.len() {
            map.device.set_len(len)?;
            map.set_len(len);
        }
        Ok(())
    }

    /// Makes everything durable that was written to `pages` before this call, and the file's length. Waits for guards that
    /// are changing one of them.
    ///
    /// # Errors
    /// [`PoolError::Poisoned`]: writing has failed, now or earlier.
    pub fn flush(&self, pages: Range<PageNo>) -> Result<(), PoolError> {
        flush::flush(&self.handle.shared, &self.mapped, self.clamp(&pages))
    }

    /// [`Map::flush`] of all pages.
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<(), PoolError> {
        flush::flush(&self.handle.shared, &self.mapped, 0..self.pages())
    }

    /// Starts reading those of `pages` that aren't in memory, and returns how many were started. It waits only when as many
    /// reads are in flight as the configuration's `queue_depth` allows, and stops where memory ends.
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// map.prefetch(&[PageNo(9), PageNo(2), PageNo(12)]); // all in flight at once
    /// assert_eq!(map.read(PageNo(12))?[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(&self, pages: &[PageNo]) -> usize {
        readahead::prefetch(&self.handle.shared, &self.mapped, pages.iter().map(|page| page.0))
    }

    /// Takes note of what has been read ahead by now, and returns how many reads that were. There is no need to: a thread
    /// that uses a page does it.
    pub fn poll(&self) -> usize {
        completion::poll(&self.handle.shared, &self.mapped)
    }

    /// The pages will be used soon: they are read ahead, as far as half of the pool goes.
    pub fn will_need(&self, pages: Range<PageNo>) {
        let most = self.handle.shared.credits.total() / 2;
        readahead::prefetch(&self.handle.shared, &self.mapped, self.clamp(&pages).take(most));
    }

    /// The pages won't be used soon: those that are clean and not in use are evicted. Returns how many.
    pub fn dont_need(&self, pages: Range<PageNo>) -> usize {
        let pages = self.clamp(&pages);
        reclaim::evict_these(&self.handle.shared, &self.mapped, pages, reclaim::EvictionTarget::SecondTier)
    }

    /// Forgets what memory holds of `pages`, since the file was changed by another way: a read after this call gets them from the
    /// file. Waits for threads that read one now. Pages that were changed here stay. What the second tier has of the pages is not used
    /// any more.
    pub fn discard(&self, pages: Range<PageNo>) {
        reclaim::discard(&self.handle.shared, &self.mapped, self.clamp(&pages));
    }

    /// Takes note that `bytes` were written to the file from `offset` on by another way, and are there now: whole pages of them that memory holds
    /// clean, and that are not in use, are given the new bytes; of the others [`Map::discard`] forgets what memory holds. Bytes beyond the map's
    /// length do nothing. Where several threads write the same bytes, they take note in the order in which they wrote.
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let [pool, elsewhere] = [0, 1].map(|_| Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() }).unwrap());
    /// let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// let map = pool.map(file.clone(), MapOptions::default())?;
    /// assert_eq!(map.read(PageNo(1))?[0], 7);
    /// let other = elsewhere.map(file, MapOptions::default())?;
    /// other.overwrite(PageNo(1))?.fill(9);
    /// other.sync()?;
    /// map.note_write(4096, &[9; 4096]);
    /// assert_eq!(map.read(PageNo(1))?[0], 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn note_write(&self, offset: u64, bytes: &[u8]) {
        let (map, page_bytes) = (&*self.mapped, self.page_bytes() as u64);
        let end = offset.saturating_add(bytes.len() as u64);
        let mut at = offset;
        while at < end.min(map.len()) {
            let page = at / page_bytes;
            let next = (page + 1) * page_bytes;
            let is_whole = at == page * page_bytes && next <= end.min(map.len());
            let new = &bytes[(at - offset) as usize..(next.min(end) - offset) as usize];
            if !(is_whole && reclaim::overwrite_clean(map, page, new)) {
                reclaim::discard(&self.handle.shared, map, page..page + 1);
            }
            at = next;
        }
    }

    /// Takes note that the file has become longer by another way.
    ///
    /// # Errors
    /// [`PoolError::TooLong`] beyond what was reserved, or the device can't say.
    pub fn note_growth(&self) -> Result<(), PoolError> {
        let map = &*self.mapped;
        let (len, reserved_bytes) = (map.device.len()?, map.frames.reserved_bytes());
        if len > reserved_bytes {
            return Err(PoolError::TooLong { map: self.name().to_owned(), asked_bytes: len, reserved_bytes });
        }
        let _alone = map.length.lock().unwrap_or_else(PoisonError::into_inner);
        if len > map.len() {
            map.set_len(len);
        }
        Ok(())
    }

    /// The map is going to be read from front to back: every miss reads ahead.
    pub fn sequential(&self) {
        self.mapped.advise(AccessAdvice::Sequential);
    }

    /// The map is going to be used here and there: nothing is read ahead unasked.
    pub fn random(&self) {
        self.mapped.advise(AccessAdvice::Random);
    }

    /// Nothing is known of how the map is going to be used: streams are looked for.
    pub fn normal(&self) {
        self.mapped.advise(AccessAdvice::Normal);
    }

    fn clamp(&self, pages: &Range<PageNo>) -> Range<u64> {
        pages.start.0.min(self.pages())..pages.end.0.min(self.pages())
    }
}

impl Drop for MapHandle {
    fn drop(&mut self) {
        let (shared, map) = (&*self.shared, &*self.mapped);
        let written = flush::write_all(shared, map);
        completion::drain(shared, map);
        shared.remove_map(&self.mapped);
        // Waits for threads that evict or write without a handle; none begins after this.
        *map.life.write().unwrap_or_else(PoisonError::into_inner) = false;
        // Once more: one of them may have had a dirty page locked, to move it back to its address.
        if let Err(error) = written.and_then(|()| flush::write_all(shared, map)) {
            tracing::error!(%error, "dirty pages are lost with their map");
        }
        // SAFETY: no handle is left, so no guard is either (or it has been forgotten, and is not used).
        unsafe { map.frames.discard_all() };
        for (number, shard) in map.shards().iter().enumerate() {
            shared.sub_dirty(number, shard.dirty().len());
        }
        // No lease is left either: each has a handle.
        let pages = map.resident() + map.spare_frames_if_any().map_or(0, SpareFrames::held);
        shared.credits.give(pages);
        shared.pressure.progress(pages);
    }
}
