//! What is remapped, and the files that are leased: one table, under one lock, MAPS.
//!
//! Relies on its holders: a thread of the program that has all signals blocked (a handler would find it held), and the lease process. Threads
//! of the program only try it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use quire_sys::bare_thread;
use quire_sys::lease::{self, FileKey};

use super::extents::Extents;
use super::use_history::UseHistory;

/// Most files that are leased at a time.
pub const MOST_FILES: usize = 64;
/// Ranges of a file for which it is learnt how much of the buffers is touched and written.
const RANGES: usize = 32;
/// Pieces of a file of which it is known that they were in the page cache lately.
const CACHED_PIECES: usize = 64;
/// Bytes of such a piece.
const PIECE_BYTES: u64 = 1 << 20;
/// How long that is believed.
const BELIEVED_MS: u64 = 100;
/// Reads that are copied for what is known of a range, before that is forgotten.
const LOSSES: u32 = 1024;
const NAP: Duration = Duration::from_micros(20);

/// Leased files by what [`place_of`] makes of their keys. A thread that finds none there need not take the lock.
static LEASED: [AtomicU8; LEASED_PLACES] = [const { AtomicU8::new(0) }; LEASED_PLACES];
const LEASED_PLACES: usize = 1024;
/// How many files are leased.
static FILE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many ranges are remapped.
static EXTENT_COUNT: AtomicUsize = AtomicUsize::new(0);

fn place_of(key: FileKey) -> usize {
    let mixed = (key.inode ^ key.device.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize % LEASED_PLACES
}

/// Whether a file may be leased: it may only seem so where another one is. Takes no lock.
pub fn may_have(key: FileKey) -> bool {
    LEASED[place_of(key)].load(Ordering::Relaxed) != 0
}

/// Whether no more files can be leased. Takes no lock.
pub fn is_full() -> bool {
    FILE_COUNT.load(Ordering::Relaxed) >= MOST_FILES
}

/// Whether nothing is remapped. Takes no lock.
pub fn is_plain() -> bool {
    EXTENT_COUNT.load(Ordering::Relaxed) == 0
}

/// A file that no process writes to.
#[derive(Debug)]
pub struct LeasedFile {
    /// Where all of it is mapped.
    pub base: usize,
    /// Its bytes.
    pub len: u64,
    /// Whether what was read of its ranges was touched and written.
    histories: [UseHistory; RANGES],
    /// Pieces, and when they were seen in the page cache, in milliseconds.
    cached: [(u64, u64); CACHED_PIECES],
    /// It was read since the lease process last looked.
    pub is_used: bool,
    /// Reads that were copied for what is known of its ranges.
    losses: u32,
}

impl LeasedFile {
    const fn none() -> Self {
        Self {
            base: 0,
            len: 0,
            histories: [const { UseHistory::new() }; RANGES],
            cached: [(0, 0); CACHED_PIECES],
            is_used: false,
            losses: 0,
        }
    }

    /// What is known of the range that `offset` lies in.
    pub fn history(&self, offset: u64) -> &UseHistory {
        let range = (offset.saturating_mul(RANGES as u64) / self.len.max(1)) as usize;
        &self.histories[range.min(RANGES - 1)]
    }

    /// A read at `offset` was copied for what is known of its range: after so many of them another try is made.
    pub fn forget_in_time(&mut self, offset: u64) {
        self.losses = self.losses.wrapping_add(1);
        if self.losses.is_multiple_of(LOSSES) {
            self.history(offset).clear();
        }
    }

    /// Whether all of the range is in the page cache, as `look` tells for pieces of the file.
    pub fn is_cached(&mut self, offset: u64, len: u64, now_ms: u64, mut look: impl FnMut(u64, u64) -> bool) -> bool {
        (offset / PIECE_BYTES..(offset + len).div_ceil(PIECE_BYTES)).all(|piece| {
            let place = (piece % CACHED_PIECES as u64) as usize;
            let (known, seen_ms) = self.cached[place];
            if known == piece + 1 && now_ms.saturating_sub(seen_ms) < BELIEVED_MS {
                return true;
            }
            let start = piece * PIECE_BYTES;
            let is_there = look(start, PIECE_BYTES.min(self.len.saturating_sub(start)));
            if is_there {
                self.cached[place] = (piece + 1, now_ms);
            }
            is_there
        })
    }
}

/// What the lock keeps.
#[derive(Debug)]
pub struct MapsState {
    /// What is remapped.
    pub extents: Extents,
    /// Files that are leased.
    pub files: [LeasedFile; MOST_FILES],
    /// Which they are; the default where a place is free. By themselves, as they are searched.
    keys: [FileKey; MOST_FILES],
}

impl MapsState {
    /// The place of a file that is leased.
    pub fn find(&self, key: FileKey) -> Option<usize> {
        self.keys.iter().position(|&one| one == key).filter(|_| key != FileKey::default())
    }

    /// A file of `len` bytes, mapped at `base`, is leased from now on, at a place that is free.
    pub fn begin(&mut self, place: usize, key: FileKey, base: usize, len: u64) {
        self.files[place] = LeasedFile { base, len, is_used: true, ..LeasedFile::none() };
        self.keys[place] = key;
        LEASED[place_of(key)].fetch_add(1, Ordering::Relaxed);
        FILE_COUNT.fetch_add(1, Ordering::Relaxed);
    }

    /// A file is leased no more.
    pub fn end(&mut self, place: usize) {
        let key = std::mem::take(&mut self.keys[place]);
        if key != FileKey::default() {
            LEASED[place_of(key)].fetch_sub(1, Ordering::Relaxed);
            FILE_COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets everything, and unmaps the files: they belong to a lease process that isn't there any more, or is another process's.
    pub fn clear(&mut self) {
        self.extents.clear();
        for (key, file) in self.keys.iter_mut().zip(&self.files) {
            if std::mem::take(key) != FileKey::default() {
                lease::unmap(file.base, file.len);
            }
        }
        // Not one by one: a lease process that was killed may have counted one only half.
        LEASED.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        FILE_COUNT.store(0, Ordering::Relaxed);
    }
}

const FREE: u32 = 0;
const TAKEN_BY_PROGRAM: u32 = 1;
const TAKEN_BY_LEASE_PROCESS: u32 = 2;

/// The lock and what it keeps.
struct Maps {
    /// Who has it.
    taken: AtomicU32,
    state: UnsafeCell<MapsState>,
}

// SAFETY: the state is reached only through a `MapsGuard`, of which the lock's word allows one.
unsafe impl Sync for Maps {}

static MAPS: Maps = Maps {
    taken: AtomicU32::new(FREE),
    state: UnsafeCell::new(MapsState {
        extents: Extents::new(),
        files: [const { LeasedFile::none() }; MOST_FILES],
        keys: [FileKey { device: 0, inode: 0 }; MOST_FILES],
    }),
};

/// The lock, held.
#[derive(Debug)]
pub struct MapsGuard(());

/// Takes the lock if it is free, in a thread of the program. The caller has all signals blocked.
pub fn try_lock() -> Option<MapsGuard> {
    try_lock_as(TAKEN_BY_PROGRAM)
}

fn try_lock_as(holder: u32) -> Option<MapsGuard> {
    // Acquire pairs with the release in `drop`. A guard is made only if the lock was had: its end gives the lock back.
    match MAPS.taken.compare_exchange(FREE, holder, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Some(MapsGuard(())),
        Err(_) => None,
    }
}

/// Gives back what a lease process that was killed has kept.
///
/// # Safety
/// The caller is the lease process, and the one before it has ended.
pub unsafe fn release_of_killed() {
    let _ = MAPS.taken.compare_exchange(TAKEN_BY_LEASE_PROCESS, FREE, Ordering::Acquire, Ordering::Relaxed);
}

/// Takes the lock, in the lease process; waits for its holder while `goes_on`.
pub fn lock(goes_on: impl Fn() -> bool) -> Option<MapsGuard> {
    loop {
        if let Some(guard) = try_lock_as(TAKEN_BY_LEASE_PROCESS) {
            return Some(guard);
        }
        if !goes_on() {
            return None;
        }
        bare_thread::sleep(NAP);
    }
}

/// Forgets everything, held or not, and unmaps what the parent's lease process has mapped: in the child of a fork.
///
/// # Safety
/// No other thread is there, and the caller does not hold it.
pub unsafe fn reset() {
    let mut maps = MapsGuard(());
    maps.clear();
}

impl Deref for MapsGuard {
    type Target = MapsState;

    fn deref(&self) -> &MapsState {
        // SAFETY: there is one guard at a time, since `try_lock` has set the word and only `drop` clears it.
        unsafe { &*MAPS.state.get() }
    }
}

impl DerefMut for MapsGuard {
    fn deref_mut(&mut self) -> &mut MapsState {
        // SAFETY: there is one guard at a time, since `try_lock` has set the word and only `drop` clears it.
        unsafe { &mut *MAPS.state.get() }
    }
}

impl Drop for MapsGuard {
    fn drop(&mut self) {
        EXTENT_COUNT.store(self.extents.all().len(), Ordering::Relaxed);
        // Release publishes the state to the next `try_lock`.
        MAPS.taken.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::area::AnonymousMap;
    use quire_sys::map::{self, MapAdvice};

    use super::super::extents::Extent;

    #[test]
    fn a_file_is_found_while_it_is_leased_and_the_lock_is_held_by_one() {
        let _alone = crate::state::alone();
        let key = FileKey { device: 1, inode: 2 };
        let area = AnonymousMap::private(8192).unwrap();
        let base = area.base() as usize;
        std::mem::forget(area);
        let mut maps = lock(|| true).unwrap();
        assert!(try_lock().is_none() && lock(|| false).is_none());
        assert!(try_lock().is_none(), "a try that fails gives nothing back");
        maps.begin(3, key, base, 8192);
        assert_eq!((maps.find(key), maps.find(FileKey::default())), (Some(3), None));
        assert!(may_have(key) && !is_full() && is_plain());
        maps.files[3].history(4096).note(2, 2, 1);
        assert_eq!(maps.files[3].history(4096 + 5).shares().map(|shares| shares.written), Some(500));
        assert_eq!(maps.files[3].history(u64::MAX).shares(), None);
        maps.clear();
        assert!(maps.find(key).is_none() && !may_have(key));
        assert!(map::advise(base as *mut u8, 8192, MapAdvice::PopulateRead).is_err(), "it is unmapped");
        std::mem::forget(maps);
        assert!(try_lock().is_none());
        // SAFETY: no lease process is there while this test is alone, and its guard is forgotten.
        unsafe { release_of_killed() };
        std::mem::forget(try_lock().unwrap());
        // SAFETY: no lease process is there while this test is alone, and the guard that was just taken is forgotten.
        unsafe { release_of_killed() };
        assert!(try_lock().is_none(), "what the program has stays its");
        // SAFETY: no other thread uses it while this test is alone, and the guard is forgotten.
        unsafe { reset() };
        assert!(try_lock().is_some_and(|maps| maps.find(key).is_none()));
    }

    #[test]
    fn a_table_that_is_full_is_told_without_the_lock() {
        let _alone = crate::state::alone();
        let key = |place: usize| FileKey { device: 3, inode: place as u64 + 1 };
        let mut maps = lock(|| true).unwrap();
        for place in 0..MOST_FILES {
            assert!(!is_full() && maps.find(key(place)).is_none());
            maps.begin(place, key(place), 0, 0);
        }
        assert!(is_full() && (0..MOST_FILES).all(|place| may_have(key(place)) && maps.find(key(place)) == Some(place)));
        maps.end(5);
        maps.end(5);
        assert!(!is_full() && maps.find(key(5)).is_none() && FILE_COUNT.load(Ordering::Relaxed) == MOST_FILES - 1);
        (0..MOST_FILES).for_each(|place| maps.end(place));
        assert!((0..MOST_FILES).all(|place| !may_have(key(place))));
        maps.extents.insert(Extent { start: 4096, len: 4096, ..Extent::default() });
        drop(maps);
        assert!(!is_plain());
        lock(|| true).unwrap().extents.clear();
        assert!(is_plain());
    }

    #[test]
    fn what_was_seen_in_the_cache_is_believed_for_a_while() {
        let mut file = LeasedFile { len: 3 << 20, ..LeasedFile::none() };
        let mut looks = Vec::new();
        assert!(file.is_cached(5 << 10, 1 << 20, 1000, |offset, len| {
            looks.push((offset, len));
            true
        }));
        assert_eq!(looks, [(0, 1 << 20), (1 << 20, 1 << 20)]);
        assert!(file.is_cached(0, 2 << 20, 1050, |_, _| false));
        assert!(!file.is_cached(0, 2 << 20, 1200, |_, _| false) && !file.is_cached(2 << 20, 9, 1050, |_, _| false));
    }
}
