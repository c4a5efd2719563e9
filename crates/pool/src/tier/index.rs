//! The index of a shard of the second tier: where a page's bytes lie, in 24 bytes an entry.
//!
//! Relies on a little forgetfulness being harmless: a bucket holds eight entries and loses its oldest to a ninth. A key is
//! known by 32 bits of its hash; the checksum, which is seeded with all of it, tells two keys of the same 32 bits apart.
//! Relies, too, on a page of memory that was never written being one of empty entries: the index takes memory as it is used.

use std::io;
use std::ops::Range;

use quire_sys::area::AnonymousMap;
use quire_sys::map::{MapAdvice, advise};

/// Entries of a bucket.
const WAYS: usize = 8;

/// Where a page's bytes are, and how to know them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// Of the stored bytes, seeded with the page's key.
    pub(super) checksum: u64,
    /// Part of the key's hash.
    pub(super) fingerprint: u32,
    /// The page's version as it was evicted.
    pub(super) version: u32,
    /// Where the stored bytes begin, in granules of the shard's memory.
    pub(super) granule: u32,
    /// One less than the stored bytes.
    last_byte: u16,
    /// That of the segment when the bytes were put there; 0 for no entry. The top bit: the page has been promoted since.
    generation: u16,
}

const _: () = assert!(size_of::<IndexEntry>() == 24, "the design note counts on it");

/// Set while the page is in the first tier as well.
const PROMOTED: u16 = 1 << 15;

impl IndexEntry {
    /// An entry for `len` stored bytes, at least 1 and at most 65,536.
    pub(super) fn new(
        fingerprint: u32,
        version: u32,
        checksum: u64,
        granule: u32,
        len: usize,
        generation: u16,
    ) -> Self {
        let last_byte = u16::try_from(len - 1).expect("a page has at most 65,536 bytes");
        Self { checksum, fingerprint, version, granule, last_byte, generation }
    }

    /// Stored bytes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.last_byte) + 1
    }

    /// The generation of the segment that the bytes were put into.
    pub(super) fn generation(&self) -> u16 {
        self.generation & !PROMOTED
    }

    /// Whether the page is in the first tier as well.
    pub(super) fn is_promoted(&self) -> bool {
        self.generation & PROMOTED != 0
    }

    pub(super) fn set_promoted(&mut self, is_promoted: bool) {
        self.generation = self.generation() | if is_promoted { PROMOTED } else { 0 };
    }
}

/// A generation after `generation`; never 0.
pub(super) fn next_generation(generation: u16) -> u16 {
    if generation + 1 == PROMOTED { 1 } else { generation + 1 }
}

/// The entries of a shard.
#[derive(Debug)]
pub(super) struct EntryIndex {
    /// Room for `len` entries, from its first byte on.
    memory: AnonymousMap,
    len: usize,
}

impl EntryIndex {
    /// Room for about `entries`, rounded up to a power of two.
    ///
    /// # Errors
    /// There are no addresses for it.
    pub(super) fn new(entries: usize) -> io::Result<Self> {
        let len = entries.max(WAYS).next_power_of_two();
        let memory = AnonymousMap::private(len * size_of::<IndexEntry>())?;
        // A huge page would be taken as a whole for its first entry. Where there are no huge pages it fails.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        Ok(Self { memory, len })
    }

    fn entries(&self) -> &[IndexEntry] {
        // SAFETY: `new` has mapped memory for `len` entries at an address that is a multiple of a page, hence aligned; only this struct
        // knows it, and it lives as long as `self`. Zeros, which it holds at first, are valid integers, and `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.memory.base().cast_const().cast(), self.len) }
    }

    fn entries_mut(&mut self) -> &mut [IndexEntry] {
        // SAFETY: `new` has mapped memory for `len` entries at an address that is a multiple of a page, hence aligned; only this struct
        // knows it, and it lives as long as `self`. Zeros, which it holds at first, are valid integers, and `&mut self` keeps all others out.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().cast(), self.len) }
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.len / WAYS - 1)
    }

    fn ways(&mut self, hash: u64) -> &mut [IndexEntry] {
        let first = self.bucket(hash) * WAYS;
        &mut self.entries_mut()[first..first + WAYS]
    }

    /// The entry of the key with this hash, if there is one.
    pub(super) fn find(&mut self, hash: u64) -> Option<&mut IndexEntry> {
        let fingerprint = hash as u32;
        self.ways(hash).iter_mut().find(|entry| entry.generation != 0 && entry.fingerprint == fingerprint)
    }

    /// Takes the entry of the key with this hash out.
    pub(super) fn remove(&mut self, hash: u64) -> Option<IndexEntry> {
        self.find(hash).map(std::mem::take)
    }

    /// Enters `entry`, in place of one of the same key, of an empty one, or of the one with the greatest `age`, and returns that one. (`age` of
    /// an entry whose segment was emptied is the greatest there is.)
    pub(super) fn insert(
        &mut self,
        hash: u64,
        entry: IndexEntry,
        age: impl Fn(&IndexEntry) -> u64,
    ) -> Option<IndexEntry> {
        let rank = |old: &IndexEntry| {
            if old.generation != 0 && old.fingerprint == entry.fingerprint {
                (2, 0)
            } else if old.generation == 0 {
                (1, 0)
            } else {
                (0, age(old))
            }
        };
        let way = self.ways(hash).iter_mut().max_by_key(|way| rank(way))?;
        Some(std::mem::replace(way, entry)).filter(|old| old.generation != 0)
    }

    /// Places for entries, empty ones included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The entries in those of `places` that there are, those of emptied segments included.
    pub(super) fn iter(&self, places: Range<usize>) -> impl Iterator<Item = &IndexEntry> {
        let places = places.start.min(self.len)..places.end.min(self.len);
        self.entries()[places].iter().filter(|entry| entry.generation != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u64, version: u32) -> IndexEntry {
        IndexEntry::new(hash as u32, version, 7, 3, 65_536, 1)
    }

    #[test]
    fn a_key_has_one_entry_and_a_full_bucket_loses_its_oldest() {
        let mut index = EntryIndex::new(WAYS).unwrap();
        let age = |entry: &IndexEntry| u64::from(100 - entry.version);
        assert!((0..WAYS as u64).all(|key| index.insert(key, entry(key, key as u32), age).is_none()));
        assert_eq!(index.insert(3, entry(3, 50), age), Some(entry(3, 3)));
        assert_eq!(index.iter(0..usize::MAX).count(), WAYS);
        assert_eq!(index.find(3).unwrap().version, 50);
        assert_eq!(index.insert(77, entry(77, 60), age), Some(entry(0, 0)));
        assert!(index.find(0).is_none() && index.find(77).is_some(), "key 0 was the oldest");
        assert_eq!(index.remove(77), Some(entry(77, 60)));
        assert!(index.find(77).is_none() && index.remove(77).is_none());
        assert_eq!(index.iter(0..usize::MAX).count(), WAYS - 1);
        let parts = (0..WAYS).step_by(3).map(|start| index.iter(start..start + 3).count());
        assert_eq!(parts.sum::<usize>(), WAYS - 1);
    }

    #[test]
    fn lengths_and_generations_keep_their_range() {
        let mut entry = entry(1, 1);
        assert_eq!((entry.len(), entry.generation(), entry.is_promoted()), (65_536, 1, false));
        entry.set_promoted(true);
        assert_eq!((entry.generation(), entry.is_promoted()), (1, true));
        entry.set_promoted(false);
        assert!(!entry.is_promoted());
        assert_eq!((next_generation(1), next_generation(PROMOTED - 1)), (2, 1));
    }
}
