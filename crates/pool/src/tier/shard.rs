//! A shard of the second tier: a ring of segments, filled one after the other, and the index of what lies in them.
//!
//! Relies on segments being filled in order, so that the ring is the order of recency: the oldest segment is emptied for the newest
//! pages. An entry holds good only while its segment's generation is the one that it was entered with; emptying a segment changes
//! one number and visits no entry.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use quire_sys::mem::MemError;

use super::TierStats;
use super::codec::PageDecoder;
use super::index::{EntryIndex, IndexEntry, next_generation};
use super::key::PageKey;
use super::memory::{ShardMemory, ShardResidency};

/// Stored bytes begin at multiples of this.
const GRANULE_BYTES: usize = 16;

/// The ends of a shard that hits are counted at: one part in so many of its segments.
const BORDER_PART: usize = 4;

/// Bytes that an index can reach in a shard.
pub(super) const MOST_SHARD_BYTES: usize = GRANULE_BYTES << 32;

#[derive(Clone, Copy, Debug)]
struct Segment {
    generation: u16,
    /// Number of the filling; it tells which of two segments is older.
    filling: u64,
    /// Fillings that there had been when its last entries were forgotten.
    forgotten_at: u64,
}

/// The segment that is being filled.
#[derive(Clone, Copy, Debug)]
struct OpenSegment {
    number: usize,
    used_bytes: usize,
}

/// What a look for a page has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierLookup {
    /// The page's bytes were copied out and are right.
    Hit,
    /// The tier doesn't have the page.
    Miss,
    /// The tier had the page, and has emptied its segment for others: a larger one would have it.
    Ghost,
    /// The kernel has taken the page's bytes.
    Reclaimed,
    /// Another thread has the shard, and the caller may not wait.
    Busy,
}

/// A shard.
#[derive(Debug)]
pub(super) struct TierShard {
    memory: ShardMemory,
    index: EntryIndex,
    segments: Box<[Segment]>,
    /// Full segments, the oldest first.
    filled: VecDeque<usize>,
    /// Segments without memory.
    free: Vec<usize>,
    open: Option<OpenSegment>,
    fillings: u64,
    /// Segments that may have memory.
    limit: usize,
    /// The shard is closed, and the kernel has not taken its memory, of whatever segment.
    is_lost: bool,
    page_bytes: usize,
    /// Stored bytes copied out, and a page decoded.
    copied: Box<[u8]>,
    decoded: Box<[u8]>,
    decoder: PageDecoder,
    /// Of the tier's checksums.
    seed: u64,
    border: BorderCounts,
}

/// Pages at the two ends of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BorderCounts {
    /// Hits in the newest segments.
    pub(super) recent: u64,
    /// Pages that were wanted soon after their segment was emptied for others.
    pub(super) near_ghosts: u64,
}

impl TierShard {
    /// An empty shard over `memory`, which has `segments` segments, for pages of `page_bytes`.
    ///
    /// # Errors
    /// There are no addresses for the index.
    pub(super) fn new(
        memory: ShardMemory,
        segments: usize,
        page_bytes: usize,
        entries: usize,
        (decoder, seed): (PageDecoder, u64),
    ) -> io::Result<Self> {
        Ok(Self {
            memory,
            index: EntryIndex::new(entries)?,
            segments: vec![Segment { generation: 1, filling: 0, forgotten_at: 0 }; segments].into(),
            filled: VecDeque::with_capacity(segments),
            free: (0..segments).rev().collect(),
            open: None,
            fillings: 0,
            limit: segments,
            is_lost: false,
            page_bytes,
            copied: vec![0; page_bytes].into(),
            decoded: vec![0; page_bytes].into(),
            decoder,
            seed,
            border: BorderCounts::default(),
        })
    }

    fn segment_of(&self, entry: &IndexEntry) -> usize {
        entry.granule as usize * GRANULE_BYTES / self.memory.segment_bytes()
    }

    fn is_live(&self, entry: &IndexEntry) -> bool {
        self.segments[self.segment_of(entry)].generation == entry.generation()
    }

    /// Stores the bytes of a page that is being evicted at `version`; whether there is room.
    ///
    /// # Errors
    /// The kernel doesn't take the segment for memory that it may have back. The shard is empty then, and closed.
    pub(super) fn insert(&mut self, key: PageKey, version: u32, checksum: u64, bytes: &[u8]) -> Result<bool, MemError> {
        let Some(at) = self.room(bytes.len())? else { return Ok(false) };
        self.memory.write(at, bytes);
        let generation = self.segments[at / self.memory.segment_bytes()].generation;
        let granule = (at / GRANULE_BYTES) as u32;
        let entry = IndexEntry::new(key.fingerprint(), version, checksum, granule, bytes.len(), generation);
        let (segments, segment_bytes, now) = (&self.segments, self.memory.segment_bytes(), self.fillings);
        self.index.insert(key.hash(), entry, |old| {
            let segment = &segments[old.granule as usize * GRANULE_BYTES / segment_bytes];
            if segment.generation == old.generation() { now - segment.filling } else { u64::MAX }
        });
        Ok(true)
    }

    /// A place for `len` bytes.
    fn room(&mut self, len: usize) -> Result<Option<usize>, MemError> {
        let wanted = len.next_multiple_of(GRANULE_BYTES);
        if let Some(open) = self.open
            && open.used_bytes + wanted > self.memory.segment_bytes()
        {
            self.close_segment(open.number)?;
        }
        if self.open.is_none() {
            let Some(number) = self.empty_segment() else { return Ok(None) };
            self.fillings += 1;
            self.segments[number].filling = self.fillings;
            self.open = Some(OpenSegment { number, used_bytes: 0 });
        }
        Ok(self.open.as_mut().map(|open| {
            let at = open.number * self.memory.segment_bytes() + open.used_bytes;
            open.used_bytes += wanted;
            at
        }))
    }

    fn close_segment(&mut self, number: usize) -> Result<(), MemError> {
        self.open = None;
        self.filled.push_back(number);
        self.memory.free_lazily(number).inspect_err(|_| self.set_limit(0))
    }

    /// A segment to fill: one without memory, or the oldest.
    fn empty_segment(&mut self) -> Option<usize> {
        if self.limit == 0 {
            return None;
        }
        if self.filled.len() < self.limit
            && let Some(number) = self.free.pop()
        {
            return Some(number);
        }
        let oldest = self.filled.pop_front()?;
        self.forget(oldest, self.fillings);
        Some(oldest)
    }

    /// The segment's entries hold no longer, as if it had been emptied at filling `at`.
    fn forget(&mut self, segment: usize, at: u64) {
        let segment = &mut self.segments[segment];
        segment.generation = next_generation(segment.generation);
        segment.forgotten_at = at;
    }

    /// The oldest of the segments that hold pages.
    fn oldest(&self) -> Option<usize> {
        self.filled.front().copied().or_else(|| self.open.map(|open| open.number))
    }

    /// Takes the oldest segment out of the ring, as if it had been emptied at filling `at`.
    fn drop_oldest(&mut self, at: u64) {
        let oldest = self.filled.pop_front().or_else(|| self.open.take().map(|open| open.number));
        if let Some(oldest) = oldest {
            self.forget(oldest, at);
            self.free.push(oldest);
        }
    }

    /// Segments that may have memory from now on; the oldest go at once, but for those that the kernel doesn't take.
    pub(super) fn set_limit(&mut self, segments: usize) {
        self.limit = segments.min(self.segments.len());
        self.is_lost = self.is_lost && !self.memory.release_all();
        while self.held_segments() > self.limit
            && let Some(oldest) = self.oldest()
            && self.memory.release(oldest)
        {
            // Those that go after it were nearer to staying.
            let after = self.held_segments() - self.limit - 1;
            self.drop_oldest(self.fillings.saturating_sub(after as u64));
        }
    }

    /// Forgets all entries and gives all memory back. Where memory is locked by now, that of segments that were never filled was taken, too.
    pub(super) fn close(&mut self) {
        self.limit = 0;
        while self.oldest().is_some() {
            self.drop_oldest(self.fillings);
        }
        self.is_lost = !self.memory.release_all();
    }

    /// Segments that have memory.
    pub(super) fn held_segments(&self) -> usize {
        if self.is_lost { self.segments.len() } else { self.filled.len() + usize::from(self.open.is_some()) }
    }

    /// Copies the page's bytes out if they are here and those of the page as it was evicted last, that is, at the version before
    /// `version`.
    pub(super) fn take(&mut self, key: PageKey, version: u32, into: &mut [u8]) -> TierLookup {
        let entry = match self.valid(key, version.wrapping_sub(1)) {
            Ok(entry) => entry,
            Err(missed) => {
                self.border.near_ghosts += u64::from(missed == TierLookup::Ghost && self.is_near_ghost(key));
                self.index.remove(key.hash());
                return missed;
            }
        };
        let stored = &mut self.copied[..entry.len()];
        self.memory.read(entry.granule as usize * GRANULE_BYTES, stored);
        // The kernel may have taken some of it, before or during the copy.
        if key.checksum(self.seed, stored) != entry.checksum || !self.decoder.decode(stored, &mut self.decoded) {
            self.index.remove(key.hash());
            return TierLookup::Reclaimed;
        }
        into.copy_from_slice(&self.decoded);
        let age = self.fillings - self.segments[self.segment_of(&entry)].filling;
        self.border.recent += u64::from(age < self.border_segments());
        if let Some(entry) = self.index.find(key.hash()) {
            entry.set_promoted(true);
        }
        TierLookup::Hit
    }

    /// Segments at either end that the counts of hits at the border are of.
    fn border_segments(&self) -> u64 {
        (self.segments.len() / BORDER_PART).max(1) as u64
    }

    /// Whether the page, whose segment was emptied, would be here if the shard had a few segments more.
    fn is_near_ghost(&mut self, key: PageKey) -> bool {
        let Some(entry) = self.index.find(key.hash()).copied() else { return false };
        let segment = self.segments[self.segment_of(&entry)];
        let is_last = next_generation(entry.generation()) == segment.generation;
        is_last && self.fillings - segment.forgotten_at < self.border_segments()
    }

    /// Counts of pages at the two ends so far.
    pub(super) fn border(&self) -> BorderCounts {
        self.border
    }

    /// Whether [`TierShard::take`] would look at bytes.
    pub(super) fn has(&mut self, key: PageKey, version: u32) -> bool {
        self.valid(key, version.wrapping_sub(1)).is_ok()
    }

    /// The page's entry if it was entered at `version`.
    ///
    /// # Errors
    /// Why it is of no use.
    fn valid(&mut self, key: PageKey, version: u32) -> Result<IndexEntry, TierLookup> {
        let found = self.index.find(key.hash()).copied();
        let entry = found.filter(|entry| entry.version == version).ok_or(TierLookup::Miss)?;
        // Entries of emptied segments stay until their place is needed: they are the ghost list.
        if self.is_live(&entry) { Ok(entry) } else { Err(TierLookup::Ghost) }
    }

    /// The page is being evicted at `version`. If it was promoted from here and has not changed since, its bytes are here still, and
    /// young enough: then they are entered as they lie. Whether they are.
    pub(super) fn keep(&mut self, key: PageKey, version: u32) -> bool {
        let Ok(entry) = self.valid(key, version.wrapping_sub(1)) else { return false };
        let age = self.fillings - self.segments[self.segment_of(&entry)].filling;
        // What lies in the older half would go before what was evicted before it.
        if !entry.is_promoted() || age > self.filled.len() as u64 / 2 {
            return false;
        }
        if let Some(entry) = self.index.find(key.hash()) {
            entry.version = version;
            entry.set_promoted(false);
        }
        true
    }

    /// As the kernel does; for tests.
    pub(super) fn take_back(&mut self, chosen: impl FnMut(usize) -> bool) -> usize {
        self.memory.take_back(chosen)
    }

    /// What to ask for the bytes that are in memory.
    pub(super) fn residency(&self) -> ShardResidency {
        self.memory.residency()
    }

    /// Places that the index has for entries.
    pub(super) fn entry_places(&self) -> usize {
        self.index.len()
    }

    /// Adds the entries in `places` of the index to `stats`.
    pub(super) fn count(&self, places: Range<usize>, stats: &mut TierStats) {
        for entry in self.index.iter(places).filter(|entry| self.is_live(entry)) {
            stats.entries += 1;
            stats.stored_bytes += entry.len() as u64;
            stats.raw_entries += u64::from(entry.len() == self.page_bytes);
            if entry.is_promoted() {
                stats.promoted_entries += 1;
                stats.promoted_bytes += entry.len() as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const SEGMENTS: usize = 16;

    /// A shard of 16 segments of four pages, into which so many pages have been put; every page differs from the others.
    fn filled(pages: u64) -> TierShard {
        let memory = ShardMemory::split(1, SEGMENTS, 4 * PAGE).unwrap().unwrap().remove(0);
        let mut shard = TierShard::new(memory, SEGMENTS, PAGE, 8 * SEGMENTS * 4, (PageDecoder::Lz4, 7)).unwrap();
        for page in 0..pages {
            let (key, bytes) = (PageKey::new(0, page), bytes_of(page));
            assert!(shard.insert(key, 1, key.checksum(7, &bytes), &bytes).unwrap());
        }
        shard
    }

    fn bytes_of(page: u64) -> Vec<u8> {
        (0..PAGE).map(|index| (page as usize * 31 + index) as u8).collect()
    }

    fn taken(shard: &mut TierShard, page: u64) -> (TierLookup, BorderCounts) {
        let mut bytes = vec![0; PAGE];
        let found = shard.take(PageKey::new(0, page), 2, &mut bytes);
        assert!(found != TierLookup::Hit || bytes == bytes_of(page));
        (found, shard.border())
    }

    #[test]
    fn hits_are_counted_at_the_ends_and_not_between() {
        // 25 segments: the first nine have been emptied, of which the last four would be here if there were a quarter more.
        let mut shard = filled(100);
        let counts = |recent, near_ghosts| BorderCounts { recent, near_ghosts };
        assert_eq!(taken(&mut shard, 99), (TierLookup::Hit, counts(1, 0)));
        assert_eq!(taken(&mut shard, 86), (TierLookup::Hit, counts(2, 0)));
        assert_eq!(taken(&mut shard, 50), (TierLookup::Hit, counts(2, 0)));
        assert_eq!(taken(&mut shard, 35), (TierLookup::Ghost, counts(2, 1)));
        assert_eq!(taken(&mut shard, 24), (TierLookup::Ghost, counts(2, 2)));
        assert_eq!(taken(&mut shard, 2), (TierLookup::Ghost, counts(2, 2)));
        assert_eq!(taken(&mut shard, 200), (TierLookup::Miss, counts(2, 2)));
    }

    #[test]
    fn of_segments_that_went_together_the_last_are_nearest() {
        let mut shard = filled(64);
        shard.set_limit(SEGMENTS / 2);
        assert_eq!(taken(&mut shard, 0).1.near_ghosts, 0);
        assert_eq!(taken(&mut shard, 31).1.near_ghosts, 1);
        assert_eq!(taken(&mut shard, 33), (TierLookup::Hit, BorderCounts { recent: 0, near_ghosts: 1 }));
    }
}
