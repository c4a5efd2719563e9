//! One database file in the pool, shared by all connections of this process.
//!
//! The pool only reads the file. SQLite's own VFS writes it, as it would without us: so a write is seen by other processes at once, an error
//! of a write reaches the transaction that it belongs to, and a process that ends leaves no write behind that is still on its way.
//! Pages that are here get what was written, in place; others come from the kernel's page cache, which gives them up then.
//!
//! Relies on [`crate::coherence`] for when cached pages may be used, and on the callers' SQLite locks: bytes are written only by a
//! connection that keeps all readers away which could ask for the same bytes.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use quire_device::Device;
use quire_pool::{Lease, Map, MapOptions, PageNo, Pool, PoolError};
use quire_sys::fork_mark::ForkMark;
use quire_sys::limits;

use crate::coherence::{HeaderBytes, WalIndex, WalStamp};
use crate::settings::warn;

/// Address space that a file may grow into, at least.
const LEAST_RESERVE_BYTES: u64 = 64 << 30;
/// Of the addresses that a process may have where there is a limit, a file takes one in so many to grow into, and the rest is the program's.
const ADDRESS_PART: u64 = 16;
/// A file that would take more than one in so many by itself does not go through the pool.
const MOST_ADDRESS_PART: u64 = 4;
/// Bytes behind a page in place that are there to be read, too: in a damaged page SQLite may read a little beyond its end, as it may with a mapped file.
const OVERREAD_BYTES: u64 = 256;

/// A database file.
pub(crate) struct Database {
    device: Arc<dyn Device>,
    pool: Arc<Pool>,
    /// Replaced when its pages are not the file's any more, or it needs more address space.
    map: RwLock<Map>,
    /// Bytes of the file, as far as connections of this process have seen it. The map may be longer.
    len: AtomicU64,
    seen: Mutex<CachedVersion>,
    /// The pool could not follow a change: connections read the file without it from here on.
    is_off: AtomicBool,
    invalidations: AtomicU64,
    fetches: FetchCounts,
    mark: ForkMark,
}

/// How often connections asked for pages in place.
#[derive(Default)]
pub(crate) struct FetchCounts {
    pub(crate) served: AtomicU64,
    /// The page was left to be read.
    pub(crate) declined: AtomicU64,
}

/// What the file looked like when its cached pages were last known to be right.
#[derive(Default)]
struct CachedVersion {
    header: LastHeader,
    wal: Option<WalStamp>,
    /// Connections that have the WAL index mapped.
    wal_users: usize,
    /// A connection of this process has the lock CKPT: no other process writes the file.
    own_checkpoint: bool,
    /// A connection of this process has the lock WRITE: the stamp when it got it, and whether nothing was left to be backfilled then. No other
    /// process begins the WAL anew meanwhile.
    own_write: Option<(WalStamp, bool)>,
}

impl CachedVersion {
    /// Whether `now` differs from the last stamp only since a connection of this process has begun the WAL anew, which changes no page of the
    /// file.
    fn is_own_restart(&self, now: &WalStamp) -> bool {
        let Some((before, was_backfilled)) = self.own_write else { return false };
        self.wal == Some(before) && now.is_own_restart(&before, was_backfilled)
    }
}

/// The header when the cached pages were last known to be right.
#[derive(Default, PartialEq, Eq)]
enum LastHeader {
    /// No page was read yet.
    #[default]
    NoneYet,
    Known(FileVersion),
    /// Pages may have changed unseen.
    Lost,
}

/// What differs once another program has written the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    header: HeaderBytes,
    /// Length of the file, and time of its last change in seconds and nanoseconds. `None` where the file does not tell.
    facts: Option<(u64, i64, i64)>,
}

impl Database {
    /// The file behind `device`, with pages of `pool`.
    pub(crate) fn new(pool: Arc<Pool>, device: Arc<dyn Device>) -> Result<Self, PoolError> {
        let map = new_map(&pool, &device, 0)?;
        Ok(Self {
            len: AtomicU64::new(map.len()),
            device,
            pool,
            map: RwLock::new(map),
            seen: Mutex::default(),
            is_off: AtomicBool::new(false),
            invalidations: AtomicU64::new(0),
            fetches: FetchCounts::default(),
            mark: ForkMark::new(),
        })
    }

    /// Whether this is a forked child, which must not use the pool of its parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// Whether pages are to be read without the pool.
    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Acquire)
    }

    /// How often the cached pages were given up since another process had changed the file.
    pub(crate) fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Relaxed)
    }

    pub(crate) fn fetches(&self) -> &FetchCounts {
        &self.fetches
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let map = self.map();
        (map.resident_pages() * map.page_bytes()) as u64
    }

    /// Bytes of the file that are in the pool and in the kernel's page cache; `None` where the kernel doesn't say.
    pub(crate) fn held_twice_bytes(&self) -> Option<u64> {
        self.map().held_twice_bytes()
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, CachedVersion> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies bytes from `offset` on. Whether that were all: at the end of the file, and where the pool fails, the file itself is
    /// to be asked.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> bool {
        let map = self.map();
        let (page_bytes, len) = (map.page_bytes() as u64, self.len.load(Ordering::Acquire));
        if offset + into.len() as u64 > len {
            return false;
        }
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let Ok(page) = map.read(PageNo(at / page_bytes)) else { return false };
            let Some(from) = page.get((at % page_bytes) as usize..) else { return false };
            let count = from.len().min(into.len() - done);
            if count == 0 {
                return false;
            }
            into[done..done + count].copy_from_slice(&from[..count]);
            done += count;
        }
        true
    }

    /// The `len` bytes from `offset` on, in place, and as they are now for as long as the lease is kept. `None` where they are to be read instead: at the end
    /// of the file, where leases pin as much as they may, where older bytes of the same page are leased, and where the pool fails.
    pub(crate) fn lease(&self, offset: u64, len: usize) -> Option<Lease<'static>> {
        let end = offset.checked_add(len as u64)?.checked_add(OVERREAD_BYTES)?;
        if end > self.len.load(Ordering::Acquire) {
            return None;
        }
        let map = self.map();
        let lease = map.try_lease(offset, len).ok()?;
        // A copy would spare SQLite nothing, and has nothing behind its end.
        (lease.len() == len && !lease.is_copy()).then(|| lease.into_owned())
    }

    /// A connection has written `data` from `offset` on, or (`is_written` is false) has tried to and written perhaps a part.
    pub(crate) fn note_write(&self, offset: u64, data: &[u8], is_written: bool) {
        let (end, before) = (offset + data.len() as u64, self.len.load(Ordering::Acquire));
        let result = {
            let map = self.map();
            let page_bytes = map.page_bytes() as u64;
            let first = if is_written { end } else { offset };
            // A page in which the file ended before has to be read again, too.
            let first = if end > before { first.min(before) } else { first };
            if is_written {
                map.note_write(offset, data);
            }
            map.discard(PageNo(first / page_bytes)..PageNo(end.div_ceil(page_bytes)));
            if end > map.len() { map.note_growth() } else { Ok(()) }
        };
        match result {
            Err(PoolError::TooLong { .. }) => self.replace_map(end.saturating_mul(2)),
            Err(error) => self.turn_off(&error),
            Ok(()) => {}
        }
        self.len.fetch_max(end.min(self.map().len()), Ordering::AcqRel);
    }

    /// A connection has made the file `len` bytes long.
    pub(crate) fn note_length(&self, len: u64) {
        self.len.store(len, Ordering::Release);
        let is_longer = {
            let map = self.map();
            map.discard(PageNo(len / map.page_bytes() as u64)..PageNo(map.pages()));
            len > map.len()
        };
        if is_longer {
            self.replace_map(len.saturating_mul(2));
        }
    }

    /// Gives up all cached pages.
    fn replace_map(&self, reserve_bytes: u64) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        match new_map(&self.pool, &self.device, reserve_bytes) {
            Ok(new) => {
                self.len.store(new.len(), Ordering::Release);
                let old = std::mem::replace(&mut *map, new);
                // Leases may keep the old map open. Its other pages are never read again, and would take room in the pool. Without leases the map
                // closes by itself, which needs no walk over all pages.
                if self.fetches.served.load(Ordering::Relaxed) > 0 {
                    old.discard(PageNo(0)..PageNo(old.pages()));
                }
            }
            Err(error) => self.turn_off(&error),
        }
    }

    fn turn_off(&self, reason: &PoolError) {
        if !self.is_off.swap(true, Ordering::AcqRel) {
            warn(&format!("{} is read without the pool from here on: {reason}", self.device.name()));
        }
    }

    fn invalidate(&self) {
        self.invalidations.fetch_add(1, Ordering::Relaxed);
        self.replace_map(0);
    }

    /// What the file, whose header is `header`, is known by now.
    fn witness(&self, header: HeaderBytes) -> FileVersion {
        let facts = self.device.as_file().and_then(|file| file.metadata().ok());
        FileVersion { header, facts: facts.map(|facts| (facts.len(), facts.ctime(), facts.ctime_nsec())) }
    }

    /// A connection has got a SHARED lock. `header` is what the file has now.
    pub(crate) fn check_header(&self, header: HeaderBytes) {
        let mut seen = self.seen();
        if seen.wal_users > 0 {
            return;
        }
        let now = self.witness(header);
        if seen.header == LastHeader::Known(now) {
            return;
        }
        // The file may have grown since it was opened.
        let has_len = now.facts.is_some_and(|(len, ..)| len == self.len.load(Ordering::Acquire));
        if seen.header != LastHeader::NoneYet || !has_len {
            self.invalidate();
        }
        // Only now: a connection that comes while the pages are given up must not take them for right.
        seen.header = LastHeader::Known(now);
    }

    /// A connection that may have changed the file is about to give up its exclusive lock. `None`: the header can't be read.
    pub(crate) fn note_header(&self, header: Option<HeaderBytes>) {
        let last = header.map_or(LastHeader::Lost, |header| LastHeader::Known(self.witness(header)));
        self.seen().header = last;
    }

    /// A connection has mapped the WAL index.
    pub(crate) fn add_wal_user(&self, index: &WalIndex) {
        let mut seen = self.seen();
        if seen.wal_users == 0 {
            // Checkpoints may have written since the pages were read that are in the pool.
            let stamp = index.stamp();
            self.invalidate();
            seen.wal = Some(stamp);
        }
        seen.wal_users += 1;
    }

    /// A connection has the WAL index mapped no more.
    pub(crate) fn remove_wal_user(&self) {
        let mut seen = self.seen();
        seen.wal_users -= 1;
        if seen.wal_users == 0 {
            // Checkpoints are not seen from here on.
            *seen = CachedVersion { header: LastHeader::Lost, ..CachedVersion::default() };
        }
    }

    /// Gives the cached pages up if a checkpoint of another process may have written since they were read.
    pub(crate) fn check_wal(&self, index: &WalIndex) {
        let mut seen = self.seen();
        let stamp = index.stamp();
        if seen.own_checkpoint || seen.wal == Some(stamp) {
            return;
        }
        if !seen.is_own_restart(&stamp) {
            self.invalidate();
        }
        seen.wal = Some(stamp);
    }

    /// Gives the cached pages up if the file is shorter than connections of this process have left it: a checkpoint that cuts it off is seen by
    /// its stamp, so another program has. The locks of a database in WAL mode stay for long, and its header says nothing.
    pub(crate) fn check_length(&self) {
        let is_shorter = || self.device.len().is_ok_and(|len| len < self.len.load(Ordering::Acquire));
        // Once more under the lock: one connection's finding is enough for all.
        if is_shorter() {
            let _seen = self.seen();
            if is_shorter() {
                self.invalidate();
            }
        }
    }

    /// A connection has got the lock CKPT.
    pub(crate) fn begin_checkpoint(&self, index: &WalIndex) {
        self.check_wal(index);
        self.seen().own_checkpoint = true;
    }

    /// The connection is about to give up the lock CKPT.
    pub(crate) fn end_checkpoint(&self, index: &WalIndex) {
        let mut seen = self.seen();
        seen.own_checkpoint = false;
        seen.wal = Some(index.stamp());
    }

    /// A connection has got the lock WRITE.
    pub(crate) fn begin_wal_write(&self, index: &WalIndex) {
        self.check_wal(index);
        let stamp = index.stamp();
        self.seen().own_write = Some((stamp, index.is_backfilled(&stamp)));
    }

    /// The connection is about to give up the lock WRITE.
    pub(crate) fn end_wal_write(&self, index: &WalIndex) {
        let mut seen = self.seen();
        let now = index.stamp();
        if seen.is_own_restart(&now) {
            seen.wal = Some(now);
        }
        seen.own_write = None;
    }
}

/// `device` in the pool, with none of its pages in memory. Where there are no addresses to grow into as far as usual, it has fewer.
fn new_map(pool: &Arc<Pool>, device: &Arc<dyn Device>, reserve_bytes: u64) -> Result<Map, PoolError> {
    let len = device.len()?;
    let allowed = limits::address_space();
    if let Some(limit) = allowed.filter(|limit| len > limit / MOST_ADDRESS_PART) {
        let cause = format!("it has {len} bytes, and the process may have addresses for {limit} (ulimit -v)");
        return Err(PoolError::Memory { what: "the database's addresses", cause });
    }
    let wished = reserve_bytes.max(len.saturating_mul(4)).max(LEAST_RESERVE_BYTES);
    let mut reserve_bytes = wished.min(allowed.map_or(u64::MAX, |limit| limit / ADDRESS_PART)).max(len);
    let map = loop {
        match pool.map(Arc::clone(device), MapOptions { reserve_bytes, ..MapOptions::default() }) {
            Err(PoolError::Memory { .. }) if reserve_bytes > len => reserve_bytes = (reserve_bytes / 4).max(len),
            mapped => break mapped?,
        }
    };
    // No page is read unasked: a read that is still under way when the lock is gone could see another process write.
    map.random();
    Ok(map)
}

#[cfg(test)]
mod tests;
