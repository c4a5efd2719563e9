//! Leases: bytes of a map in place, for as long as their user wants them.
//!
//! Relies on the page's state for keeping the bytes where they are ([`crate::page_state`]), on pages being neighbours in memory as they are
//! in the file, so that a lease is one slice, and on [`crate::lease_pins`] for the bound. `docs/design/lease.md` has the whole picture.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, PAGE_SIZE, Reservation};

use crate::access_mode::AccessMode;
use crate::counters::PoolCounter;
use crate::error::PoolError;
use crate::fetch::acquire;
use crate::futex::Futex;
use crate::map::Map;
use crate::mapped_file::MappedFile;
use crate::page::PageNo;
use crate::page_state::{StateSnapshot, WaitQueue};
use crate::pool_state::PoolState;
use crate::{readahead, reclaim, relocated_pages};

/// The map of a lease, which lives as long.
enum LeasedMap<'a> {
    Borrowed(&'a Map),
    Owned(Map),
}

impl LeasedMap<'_> {
    fn map(&self) -> &Map {
        match self {
            Self::Borrowed(map) => map,
            Self::Owned(map) => map,
        }
    }
}

/// Bytes of a file, in place: the pages stay in memory and the bytes as they are until this is dropped, whatever is done to the map
/// meanwhile. A writer of one of the pages gets a copy; readers of the page see what was written, the lease what it saw. Of bytes
/// on several pages each page is as it was at one moment, not all at the same.
///
/// Any thread may use and drop it. [`Lease::into_owned`] makes it independent of the borrow; the map, and its pool, then stay until it is dropped.
/// One that is forgotten keeps its pages in memory, and leaves that much less for other leases.
pub struct Lease<'a> {
    keeper: LeasedMap<'a>,
    at: *const u8,
    len: usize,
    hold: LeaseRelease,
}

/// What a lease gives back at its end.
enum LeaseRelease {
    /// The pages, whose bytes are leased in place.
    Pages(Range<u64>),
    /// A copy: older bytes are leased in place.
    Copy(LeasedCopy),
    /// Nothing any more.
    Nothing,
}

// SAFETY: the lease, which any thread may end, keeps the bytes from being changed; the map's states and counts are atomics.
unsafe impl Send for Lease<'_> {}
// SAFETY: threads that share the lease only read bytes that it keeps from being changed.
unsafe impl Sync for Lease<'_> {}

/// Why pages could not be pinned.
enum PinFailure {
    /// Older bytes are leased at the address of one of them.
    Relocated,
    /// One of them is leased as often as can be counted.
    LeasedOut,
    Pool(PoolError),
}

impl Map {
    /// The `len` bytes at `offset`, in place; fewer if the file ends before. Reads pages that aren't in memory.
    ///
    /// Leases pin no more than [`PoolConfig::lease_percent`](crate::PoolConfig::lease_percent) of the budget: it waits for others to be dropped,
    /// but only as long as one is within [`PoolConfig::miss_timeout_ms`](crate::PoolConfig::miss_timeout_ms), since a thread that
    /// holds leases may be waiting for itself.
    ///
    /// # Errors
    /// [`PoolError::LeaseLimit`]; [`PoolError::Outside`] where the file ends at `offset` or before; otherwise as [`Map::read`].
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// let bytes = map.lease(4000, 200)?; // over two pages, in place
    /// map.write(PageNo(0))?.fill(0);
    /// assert!(bytes.iter().all(|byte| *byte == 7)); // as they were
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn lease(&self, offset: u64, len: usize) -> Result<Lease<'_>, PoolError> {
        self.lease_within(offset, len, Some(Duration::from_millis(self.shared().config.miss_timeout_ms)))
    }

    /// As [`Map::lease`], but fails at once where leases pin as much as they may.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_lease(&self, offset: u64, len: usize) -> Result<Lease<'_>, PoolError> {
        self.lease_within(offset, len, None)
    }

    #[inline]
    fn lease_within(&self, offset: u64, len: usize, patience: Option<Duration>) -> Result<Lease<'_>, PoolError> {
        let (shared, mapped) = (&**self.shared(), &**self.mapped());
        let page_bytes = mapped.frames.page_bytes() as u64;
        let left = mapped.len().saturating_sub(offset);
        if left == 0 {
            return Err(mapped.outside(mapped.pages().max(offset / page_bytes)));
        }
        let len = left.min(len as u64) as usize;
        let start = offset / page_bytes;
        let end = if len == 0 { start } else { (offset + len as u64).div_ceil(page_bytes) };
        let pages = start..end;
        if !(shared.pins.take(count(&pages)) && pin_at_once(shared, mapped, &pages)) {
            return self.lease_slowly(offset, len, pages, patience);
        }
        Ok(self.in_place(offset, len, pages))
    }

    /// A lease of pages that are pinned.
    fn in_place(&self, offset: u64, len: usize, pages: Range<u64>) -> Lease<'_> {
        let at = self.mapped().frames.at(offset).cast_const();
        Lease { keeper: LeasedMap::Borrowed(self), at, len, hold: LeaseRelease::Pages(pages) }
    }

    /// The way to a lease where pages aren't there or are in use, or too many are pinned.
    #[cold]
    fn lease_slowly(
        &self,
        offset: u64,
        len: usize,
        pages: Range<u64>,
        patience: Option<Duration>,
    ) -> Result<Lease<'_>, PoolError> {
        let pins = &self.shared().pins;
        let count = count(&pages);
        let refused = |waited: Duration| PoolError::LeaseLimit {
            asked_pages: count as u64,
            limit_pages: pins.total(),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        };
        // `None` where another lease has to end first.
        let attempt = || {
            if !pins.take(count) {
                return None;
            }
            match pin(self.shared(), self.mapped(), &pages) {
                Ok(()) => Some(Ok(self.in_place(offset, len, pages.clone()))),
                Err(PinFailure::LeasedOut) => None,
                Err(PinFailure::Pool(error)) => Some(Err(error)),
                Err(PinFailure::Relocated) => {
                    pins.take(count).then(|| self.copy(offset, len, &pages).inspect_err(|_| pins.give_unused(count)))
                }
            }
        };
        if let Some(result) = attempt() {
            return result;
        }
        match patience {
            Some(patience) if count <= pins.total() => {
                pins.wait_for(patience, attempt).unwrap_or_else(|waited| Err(refused(waited)))
            }
            _ => Err(refused(Duration::ZERO)),
        }
    }

    /// A lease of a copy, for which the caller has taken pins.
    fn copy(&self, offset: u64, len: usize, pages: &Range<u64>) -> Result<Lease<'_>, PoolError> {
        let (mapped, count) = (self.mapped(), count(pages));
        let page_bytes = mapped.frames.page_bytes();
        let copy = LeasedCopy::new(self.shared(), mapped, pages)?;
        for page in pages.clone() {
            let guard = self.read(PageNo(page))?;
            let to = copy.base().wrapping_add((page - pages.start) as usize * page_bytes);
            // SAFETY: the copy has room for all `pages`, a guard is of no more than a page, and the copy is this thread's alone.
            unsafe { to.copy_from_nonoverlapping(guard.as_ptr(), guard.len()) };
        }
        mapped.counters.add(PoolCounter::LeaseCopies, count);
        let inside = (offset - pages.start * page_bytes as u64) as usize;
        let at = copy.base().wrapping_add(inside).cast_const();
        Ok(Lease { keeper: LeasedMap::Borrowed(self), at, len, hold: LeaseRelease::Copy(copy) })
    }
}

fn count(pages: &Range<u64>) -> usize {
    (pages.end - pages.start) as usize
}

/// Pins `pages` if all are in memory, in place and not being changed, and otherwise none; whether it did. The caller has taken pins for
/// them, of which those are given back that are not needed.
#[inline]
fn pin_at_once(shared: &PoolState, mapped: &MappedFile, pages: &Range<u64>) -> bool {
    let mut firsts = 0;
    for page in pages.clone() {
        match mapped.state(page).try_lease() {
            Ok(is_first) => firsts += usize::from(is_first),
            Err(_) => {
                unpin(shared, mapped, pages, page, firsts);
                return false;
            }
        }
    }
    mapped.counters.hit_many(count(pages) as u32);
    let spare = count(pages) - firsts;
    if spare > 0 {
        shared.pins.give_unused(spare);
    }
    true
}

/// As [`pin_at_once`], and reads and waits as a reader does.
fn pin(shared: &PoolState, mapped: &MappedFile, pages: &Range<u64>) -> Result<(), PinFailure> {
    if count(pages) > 1 {
        // All of them are on their way before the first is waited for.
        readahead::prefetch(shared, mapped, pages.clone());
    }
    let mut firsts = 0;
    for page in pages.clone() {
        match pin_page(shared, mapped, page) {
            Ok(is_first) => firsts += usize::from(is_first),
            Err(failure) => {
                unpin(shared, mapped, pages, page, firsts);
                return Err(failure);
            }
        }
    }
    shared.pins.give_unused(count(pages) - firsts);
    Ok(())
}

/// Leases one page, in place; whether this is the first lease of its bytes.
fn pin_page(shared: &PoolState, mapped: &MappedFile, page: u64) -> Result<bool, PinFailure> {
    let state = mapped.state(page);
    relocated_pages::settle(shared, mapped, page);
    let failure = |seen: StateSnapshot| {
        if seen.is_leased_out() { PinFailure::LeasedOut } else { PinFailure::Relocated }
    };
    match state.try_lease() {
        Ok(is_first) => return Ok(is_first),
        Err(seen) if seen.is_leased_out() || seen.is_relocated() => return Err(failure(seen)),
        Err(_) => {}
    }
    acquire(shared, mapped, page, AccessMode::Read).map_err(PinFailure::Pool)?;
    let leased = state.lease_locked();
    if state.unlock_shared() {
        Futex.unpark_all(state);
    }
    leased.map_err(failure)
}

/// Takes back the leases of `pages` up to `end`, which does not have one; of them `firsts` were the first. Of the pins that the caller had
/// for all `pages` those stay that other threads need: for pages that they have leased meanwhile.
#[cold]
fn unpin(shared: &PoolState, mapped: &MappedFile, pages: &Range<u64>, end: u64, firsts: usize) {
    let lasts = end_leases(shared, mapped, pages.start..end);
    shared.pins.give_unused(count(pages) - firsts + lasts);
}

/// Ends a lease of each of `pages`; how many of them are not leased any more.
fn end_leases(shared: &PoolState, mapped: &MappedFile, pages: Range<u64>) -> usize {
    let mut lasts = 0;
    for page in pages {
        let end = mapped.state(page).end_lease();
        if end.is_last {
            lasts += 1;
            if end.is_relocated {
                relocated_pages::settle(shared, mapped, page);
            }
        }
    }
    lasts
}

/// Memory for a lease that can't be in place, with a credit for each page.
struct LeasedCopy {
    shared: Arc<PoolState>,
    memory: Option<Reservation>,
    credits: usize,
}

impl LeasedCopy {
    fn new(shared: &Arc<PoolState>, mapped: &MappedFile, pages: &Range<u64>) -> Result<Self, PoolError> {
        let mut copy = Self { shared: Arc::clone(shared), memory: None, credits: 0 };
        for page in pages.clone() {
            reclaim::credit(shared, mapped, page)?.spend();
            copy.credits += 1;
        }
        let bytes = count(pages) * mapped.frames.page_bytes();
        let refused = |error: MemError| PoolError::Memory { what: "the copy of a lease", cause: error.to_string() };
        let memory = Reservation::new(bytes).map_err(refused)?;
        memory.commit(0..bytes.next_multiple_of(PAGE_SIZE)).map_err(refused)?;
        // Where there are no huge pages it fails, and nothing is lost.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        copy.memory = Some(memory);
        Ok(copy)
    }

    fn base(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::dangling_mut(), Reservation::base)
    }
}

impl Drop for LeasedCopy {
    fn drop(&mut self) {
        // The memory goes before the right to it.
        self.memory = None;
        self.shared.credits.give(self.credits);
        self.shared.pressure.progress(self.credits);
    }
}

impl Lease<'_> {
    /// The lease with the map in it: it can be kept, sent to other threads, and outlives every handle of the map, which is closed when the last
    /// of its leases is dropped.
    ///
    /// ```
    /// # use quire_device::{Directory, MemoryDirectory};
    /// # use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
    /// # let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// # let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// # let map = pool.map(file, MapOptions::default())?;
    /// let bytes = map.lease(0, 100)?.into_owned();
    /// drop(map);
    /// std::thread::spawn(move || assert_eq!(bytes[99], 7)).join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(mut self) -> Lease<'static> {
        let hold = std::mem::replace(&mut self.hold, LeaseRelease::Nothing);
        Lease { keeper: LeasedMap::Owned(self.keeper.map().clone()), at: self.at, len: self.len, hold }
    }

    /// Whether the bytes are a copy: of a page that was changed while older bytes of it were leased, as they are still.
    pub fn is_copy(&self) -> bool {
        matches!(self.hold, LeaseRelease::Copy(_))
    }
}

impl Deref for Lease<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes at `at` are of the map, which `keeper` keeps, on pages that are leased until this is dropped: they stay in
        // memory, and writers leave them as they are. Or they are in the copy, which `hold` keeps and no other thread has.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl AsRef<[u8]> for Lease<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        let map = self.keeper.map();
        let shared = &**map.shared();
        match std::mem::replace(&mut self.hold, LeaseRelease::Nothing) {
            LeaseRelease::Pages(pages) => {
                let lasts = end_leases(shared, map.mapped(), pages);
                // Also where others have the same pages: one of them may have been leased as often as can be counted.
                shared.pins.give(lasts);
                shared.pressure.progress(lasts);
            }
            LeaseRelease::Copy(copy) => {
                let pages = copy.credits;
                drop(copy);
                shared.pins.give(pages);
            }
            LeaseRelease::Nothing => {}
        }
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lease").field("len", &self.len).field("is_copy", &self.is_copy()).finish_non_exhaustive()
    }
}
