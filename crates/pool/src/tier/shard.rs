//! A shard of the second tier: the bytes of its pages in a ring of segments, and the index of what lies where.
//!
//! Relies on every use having the shard to itself (`&mut`), so that no thread reads bytes that another gives up. An entry holds good only
//! while its segment's generation is the one that it was entered with. The bytes of an entry are its own: when it leaves the index, they are
//! dead. A page that returns to the first tier gives up its bytes here, but for a few that would have to be compressed again.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use quire_sys::mem::MemError;

use super::TierStats;
use super::codec::PageDecoder;
use super::holes::GRANULE_BYTES;
use super::index::{EntryIndex, IndexEntry};
use super::key::PageKey;
use super::memory::{ShardMemory, ShardResidency};
use super::ring::{MOST_RING_BYTES, SegmentRing};

/// The ends of a shard that hits are counted at: one part in so many of its segments.
const BORDER_PART: usize = 4;

/// Of the bytes that a shard may have, one part in so many may be copies of pages that are in the first tier, too. A second copy spares a
/// compression and no read, so it gets little: 1.6 %, where 2 % of the memory of both tiers may be held twice, by the page cache included.
const TWICE_PART: usize = 64;
/// As many copies are kept as there would be if each took so little.
const LEAST_COPY_BYTES: usize = 256;

/// Bytes that an index can reach in a shard.
pub(super) const MOST_SHARD_BYTES: usize = MOST_RING_BYTES;

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

/// The bytes of a page that was evicted at this version, and came to the first tier since.
#[derive(Clone, Copy, Debug)]
struct SecondCopy {
    hash: u64,
    version: u32,
}

/// A shard.
#[derive(Debug)]
pub(super) struct TierShard {
    ring: SegmentRing,
    index: EntryIndex,
    /// Second copies in the order in which they came to be, those included that have gone since. Memory for `most_copies` of them is taken at the
    /// start, because signal handlers make second copies, too.
    copies: VecDeque<SecondCopy>,
    most_copies: usize,
    page_bytes: usize,
    /// Stored bytes copied out, and a page decoded.
    copied: Box<[u8]>,
    decoded: Box<[u8]>,
    decoder: PageDecoder,
    /// Of the tier's checksums.
    seed: u64,
    border: BorderCounts,
    /// Segments of a shard at whose ends hits are counted: all, or as many as a budget lets it have.
    reach: usize,
}

/// Pages at the two ends of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BorderCounts {
    /// Hits in the newest segments.
    pub(super) recent: u64,
    /// Pages that were wanted soon after their segment was emptied for others.
    pub(super) near_ghosts: u64,
}

/// Where an entry's bytes begin.
fn place_of(entry: &IndexEntry) -> usize {
    entry.granule as usize * GRANULE_BYTES
}

/// Whether an entry's bytes are those that were put there.
fn is_live(ring: &SegmentRing, entry: &IndexEntry) -> bool {
    ring.generation(place_of(entry)) == entry.generation()
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
        let most_copies = (segments * memory.segment_bytes() / TWICE_PART / LEAST_COPY_BYTES).max(1);
        Ok(Self {
            ring: SegmentRing::new(memory, segments),
            index: EntryIndex::new(entries)?,
            copies: VecDeque::with_capacity(most_copies),
            most_copies,
            page_bytes,
            copied: vec![0; page_bytes].into(),
            decoded: vec![0; page_bytes].into(),
            decoder,
            seed,
            border: BorderCounts::default(),
            reach: segments,
        })
    }

    /// Stores the bytes of a page that is being evicted at `version`; whether there is room.
    ///
    /// # Errors
    /// The kernel doesn't take the segment for memory that it may have back. The shard is empty then, and closed.
    pub(super) fn insert(&mut self, key: PageKey, version: u32, checksum: u64, bytes: &[u8]) -> Result<bool, MemError> {
        let Some(at) = self.ring.put(bytes)? else { return Ok(false) };
        let (granule, generation) = ((at / GRANULE_BYTES) as u32, self.ring.generation(at));
        let entry = IndexEntry::new(key.fingerprint(), version, checksum, granule, bytes.len(), generation);
        let ring = &self.ring;
        let age = |old: &IndexEntry| if is_live(ring, old) { ring.age(place_of(old)) } else { u64::MAX };
        let replaced = self.index.insert(key.hash(), entry, age);
        self.bury(replaced);
        Ok(true)
    }

    /// The entry has left the index: its bytes, if they are still there, are dead.
    fn bury(&mut self, entry: Option<IndexEntry>) {
        let Some(entry) = entry.filter(|entry| is_live(&self.ring, entry)) else { return };
        if entry.is_promoted() {
            self.ring.end_second_copy(place_of(&entry), entry.len());
        }
        self.ring.bury(place_of(&entry), entry.len());
    }

    /// Gives up the entry of the key with this hash, and its bytes.
    fn give_up(&mut self, hash: u64) {
        let entry = self.index.remove(hash);
        self.bury(entry);
    }

    /// Segments that may have memory from now on; the oldest go at once, but for those that the kernel doesn't take.
    pub(super) fn set_limit(&mut self, segments: usize) {
        self.ring.set_limit(segments);
        self.give_up_surplus();
    }

    /// Forgets all entries and gives all memory back. Where memory is locked by now, that of segments that were never filled was taken, too.
    pub(super) fn close(&mut self) {
        self.ring.close();
    }

    /// Segments that have memory.
    pub(super) fn held_segments(&self) -> usize {
        self.ring.held()
    }

    /// Copies the page's bytes out if they are here and those of the page as it was evicted last, that is, at the version before
    /// `version`. The page is in the first tier then, and its bytes here are given up, now or later.
    pub(super) fn take(&mut self, key: PageKey, version: u32, into: &mut [u8]) -> TierLookup {
        let entry = match self.valid(key, version.wrapping_sub(1)) {
            Ok(entry) => entry,
            Err(missed) => {
                self.border.near_ghosts += u64::from(missed == TierLookup::Ghost && self.is_near_ghost(key));
                self.give_up(key.hash());
                return missed;
            }
        };
        let stored = &mut self.copied[..entry.len()];
        self.ring.read(place_of(&entry), stored);
        // The kernel may have taken some of it, before or during the copy.
        if key.checksum(self.seed, stored) != entry.checksum || !self.decoder.decode(stored, &mut self.decoded) {
            self.give_up(key.hash());
            return TierLookup::Reclaimed;
        }
        into.copy_from_slice(&self.decoded);
        self.border.recent += u64::from(self.ring.age_of_bytes(place_of(&entry)) < self.border_segments());
        self.promote(key.hash(), &entry);
        TierLookup::Hit
    }

    /// The page of `entry` is in the first tier now. Its bytes stay here as long as second copies may, for it may leave unchanged: but not those
    /// that were stored as they are, which cost no more than a copy to store again.
    fn promote(&mut self, hash: u64, entry: &IndexEntry) {
        if entry.is_promoted() {
            return;
        }
        if entry.len() == self.page_bytes {
            self.give_up(hash);
            return;
        }
        if self.copies.len() == self.most_copies {
            self.give_up_oldest_copy();
        }
        let Some(found) = self.index.find(hash) else { return };
        found.set_promoted(true);
        self.ring.begin_second_copy(place_of(entry), entry.len());
        self.copies.push_back(SecondCopy { hash, version: entry.version });
        self.give_up_surplus();
    }

    /// Gives up second copies, the oldest first, until there are no more than there may be.
    fn give_up_surplus(&mut self) {
        while self.ring.twice_bytes() > self.ring.limit_bytes() / TWICE_PART && self.give_up_oldest_copy() {}
    }

    /// Gives up the oldest second copy, unless it is none any more; whether one was remembered.
    fn give_up_oldest_copy(&mut self) -> bool {
        let Some(copy) = self.copies.pop_front() else { return false };
        if self.index.find(copy.hash).is_some_and(|entry| entry.is_promoted() && entry.version == copy.version) {
            self.give_up(copy.hash);
        }
        true
    }

    /// Segments at either end that the counts of hits at the border are of.
    fn border_segments(&self) -> u64 {
        (self.reach / BORDER_PART).max(1) as u64
    }

    /// Counts hits at the ends of a shard of so many segments from now on.
    pub(super) fn set_reach(&mut self, segments: usize) {
        self.reach = segments.min(self.ring.len());
    }

    /// Whether the page, whose segment was emptied, would be here if the shard had a few segments more.
    fn is_near_ghost(&mut self, key: PageKey) -> bool {
        let more = self.border_segments();
        let Some(entry) = self.index.find(key.hash()).copied() else { return false };
        self.ring.would_be_in(place_of(&entry), entry.generation(), more)
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
        if is_live(&self.ring, &entry) { Ok(entry) } else { Err(TierLookup::Ghost) }
    }

    /// The page is being evicted at `version`. If it was promoted from here and has not changed since, its bytes are here still, and
    /// young enough: then they are entered as they lie. Whether they are.
    pub(super) fn keep(&mut self, key: PageKey, version: u32) -> bool {
        let Ok(entry) = self.valid(key, version.wrapping_sub(1)) else { return false };
        // What lies in the older half would go before what was evicted before it.
        if !entry.is_promoted() || self.ring.age(place_of(&entry)) > self.ring.filled() as u64 / 2 {
            return false;
        }
        if let Some(found) = self.index.find(key.hash()) {
            found.version = version;
            found.set_promoted(false);
            self.ring.end_second_copy(place_of(&entry), entry.len());
        }
        true
    }

    /// As the kernel does; for tests.
    pub(super) fn take_back(&mut self, chosen: impl FnMut(usize) -> bool) -> usize {
        self.ring.take_back(chosen)
    }

    /// What to ask for the bytes that are in memory.
    pub(super) fn residency(&self) -> ShardResidency {
        self.ring.residency()
    }

    /// Places that the index has for entries.
    pub(super) fn entry_places(&self) -> usize {
        self.index.len()
    }

    /// Adds the entries in `places` of the index to `stats`.
    pub(super) fn count(&self, places: Range<usize>, stats: &mut TierStats) {
        for entry in self.index.iter(places).filter(|entry| is_live(&self.ring, entry)) {
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
    use super::super::codec::{CompressionHistory, EncoderPool};
    use super::*;
    use crate::config::TierCompression;
    use proptest::prelude::*;
    use quire_rng::SplitMix64;

    const PAGE: usize = 4096;
    const SEGMENTS: usize = 16;

    /// An empty shard of 16 segments of four pages.
    fn empty() -> TierShard {
        let memory = ShardMemory::split(1, SEGMENTS, 4 * PAGE).unwrap().unwrap().remove(0);
        TierShard::new(memory, SEGMENTS, PAGE, 8 * SEGMENTS * 4, (PageDecoder::Lz4, 7)).unwrap()
    }

    fn put(shard: &mut TierShard, page: u64, version: u32, stored: &[u8]) -> bool {
        let key = PageKey::new(0, page);
        shard.insert(key, version, key.checksum(7, stored), stored).unwrap()
    }

    /// A shard into which so many pages have been put as they are; every page differs from the others.
    fn filled(pages: u64) -> TierShard {
        let mut shard = empty();
        assert!((0..pages).all(|page| put(&mut shard, page, 1, &bytes_of(page))));
        shard
    }

    /// A page of noise and zeros.
    fn page_of(seed: u64, noise: usize) -> Vec<u8> {
        let mut rng = SplitMix64::new(seed);
        let mut bytes = vec![0; PAGE];
        bytes[..noise].fill_with(|| rng.next_u64() as u8);
        bytes
    }

    fn encoded(page: &[u8]) -> Vec<u8> {
        let encoders = EncoderPool::new(TierCompression::Lz4, PAGE);
        encoders.with(|encoder| encoder.encode(&CompressionHistory::default(), page).to_vec())
    }

    fn counted(shard: &TierShard) -> TierStats {
        let mut stats = TierStats::default();
        shard.count(0..usize::MAX, &mut stats);
        stats
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

    #[test]
    fn pages_that_return_to_the_first_tier_make_room_for_as_many_others() {
        let pages = 4 * SEGMENTS as u64;
        let mut shard = filled(pages);
        let returned = || (0..pages).step_by(2);
        returned().for_each(|page| assert_eq!(taken(&mut shard, page).0, TierLookup::Hit));
        assert_eq!((counted(&shard).entries, counted(&shard).promoted_entries), (pages / 2, 0));
        returned().for_each(|page| assert_eq!(taken(&mut shard, page).0, TierLookup::Miss, "it was given up"));
        for page in returned() {
            assert!(put(&mut shard, pages + page, 1, &bytes_of(pages + page)));
        }
        assert_eq!((counted(&shard).entries, shard.held_segments()), (pages, SEGMENTS));
        for page in returned() {
            assert_eq!(taken(&mut shard, page + 1).0, TierLookup::Hit);
            assert_eq!(taken(&mut shard, pages + page).0, TierLookup::Hit);
        }
    }

    #[test]
    fn what_is_left_in_a_segment_that_is_filled_again_is_not_recent_by_that() {
        let pages = 4 * SEGMENTS as u64;
        let mut shard = filled(pages);
        let returned = || (0..pages / 2).step_by(2);
        returned().for_each(|page| assert_eq!(taken(&mut shard, page).0, TierLookup::Hit));
        // Two each into the holes of four segments.
        let new = pages..pages + 8;
        assert!(new.clone().all(|page| put(&mut shard, page, 1, &bytes_of(page))));
        assert_eq!((counted(&shard).entries, shard.border().recent), (pages - pages / 4 + 8, 0));
        returned().for_each(|page| assert_eq!(taken(&mut shard, page + 1).0, TierLookup::Hit));
        assert_eq!(shard.border().recent, 0);
        new.for_each(|page| assert_eq!(taken(&mut shard, page).0, TierLookup::Hit));
        assert_eq!(shard.border().recent, 8);
    }

    #[test]
    fn a_few_compressed_copies_stay_and_the_oldest_is_given_up_first() {
        let mut shard = empty();
        let stored: Vec<Vec<u8>> = (0..5).map(|page| encoded(&page_of(page, PAGE / 4))).collect();
        // Of 256 KiB 4 KiB may be held twice.
        assert!(stored.iter().all(|stored| (PAGE / 4..PAGE / 3).contains(&stored.len())));
        for (page, stored) in (0..).zip(&stored) {
            assert!(put(&mut shard, page, 1, stored));
        }
        let mut bytes = vec![0; PAGE];
        for page in 0..5 {
            assert_eq!(shard.take(PageKey::new(0, page), 2, &mut bytes), TierLookup::Hit);
            assert_eq!(bytes, page_of(page, PAGE / 4));
        }
        assert_eq!((counted(&shard).entries, counted(&shard).promoted_entries), (3, 3));
        // A page that leaves unchanged and returns is the newest.
        assert!(shard.keep(PageKey::new(0, 2), 2));
        assert_eq!(shard.take(PageKey::new(0, 2), 3, &mut bytes), TierLookup::Hit);
        assert!(put(&mut shard, 7, 1, &stored[0]));
        assert_eq!(shard.take(PageKey::new(0, 7), 2, &mut bytes), TierLookup::Hit);
        let kept: Vec<u64> = [0, 1, 3, 4].into_iter().filter(|&page| shard.keep(PageKey::new(0, page), 2)).collect();
        assert_eq!((kept, shard.keep(PageKey::new(0, 2), 3), shard.keep(PageKey::new(0, 7), 2)), (vec![4], true, true));
        assert_eq!(counted(&shard).promoted_bytes, 0);
    }

    #[test]
    fn a_shard_that_shrinks_keeps_fewer_second_copies() {
        let mut shard = empty();
        let mut bytes = vec![0; PAGE];
        for page in 0..3 {
            assert!(put(&mut shard, page, 1, &encoded(&page_of(page, PAGE / 4))));
            assert_eq!(shard.take(PageKey::new(0, page), 2, &mut bytes), TierLookup::Hit);
        }
        for (segments, copies) in [(SEGMENTS, 3), (SEGMENTS / 2, 1), (SEGMENTS / 8, 0)] {
            shard.set_limit(segments);
            assert_eq!(counted(&shard).promoted_entries, copies);
        }
    }

    /// What happens to a page, or to the shard.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Read(u64),
        Change(u64, usize),
        Evict(u64),
        /// Nothing is stored: the tier declines, or has no room.
        Drop(u64),
        Shrink(usize),
        Reclaim(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let page = || 0..40_u64;
        prop_oneof![
            8 => page().prop_map(Step::Read),
            3 => (page(), 0..=PAGE).prop_map(|(page, noise)| Step::Change(page, noise)),
            8 => page().prop_map(Step::Evict),
            1 => page().prop_map(Step::Drop),
            1 => (0..=SEGMENTS).prop_map(Step::Shrink),
            1 => (2..9_usize).prop_map(Step::Reclaim),
        ]
    }

    /// A page as the pool and the device have it.
    struct ModelPage {
        bytes: Vec<u8>,
        version: u32,
        is_resident: bool,
    }

    fn run(shard: &mut TierShard, pages: &mut [ModelPage], step: Step) {
        let mut bytes = vec![0; PAGE];
        match step {
            Step::Shrink(segments) => shard.set_limit(segments),
            Step::Reclaim(one_in) => {
                shard.take_back(|page| page.is_multiple_of(one_in));
            }
            Step::Read(number) => {
                let page = &mut pages[number as usize];
                if !page.is_resident {
                    let found = shard.take(PageKey::new(0, number), page.version, &mut bytes);
                    assert!(found != TierLookup::Hit || bytes == page.bytes, "page {number}");
                    page.is_resident = true;
                }
            }
            Step::Change(number, noise) => {
                let page = &mut pages[number as usize];
                if page.is_resident {
                    page.bytes = page_of(number << 32 | u64::from(page.version), noise);
                    page.version += 1;
                }
            }
            Step::Evict(number) | Step::Drop(number) => {
                let page = &mut pages[number as usize];
                if std::mem::take(&mut page.is_resident) {
                    if matches!(step, Step::Evict(_)) && !shard.keep(PageKey::new(0, number), page.version) {
                        put(shard, number, page.version, &encoded(&page.bytes));
                    }
                    page.version += 1;
                }
            }
        }
    }

    /// What is held twice is what is counted, within its bound, and no two things have a place in common.
    fn check(shard: &TierShard) {
        let stats = counted(shard);
        assert_eq!(stats.promoted_bytes, shard.ring.twice_bytes() as u64);
        assert!(shard.ring.twice_bytes() <= shard.ring.limit_bytes() / TWICE_PART);
        assert!(shard.copies.len() <= shard.most_copies);
        let live = shard.index.iter(0..usize::MAX).filter(|entry| is_live(&shard.ring, entry));
        let room =
            |entry: &IndexEntry| place_of(entry)..(place_of(entry) + entry.len()).next_multiple_of(GRANULE_BYTES);
        let mut places: Vec<Range<usize>> = live.map(room).chain(shard.ring.unused()).collect();
        places.sort_by_key(|place| (place.start, place.end));
        assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start), "{places:?}");
    }

    proptest! {
        #[test]
        fn no_byte_is_wrong_and_what_is_held_twice_is_bounded_whatever_happens(
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let mut shard = empty();
            let mut pages: Vec<ModelPage> =
                (0..40).map(|page| ModelPage { bytes: page_of(page, 100), version: 1, is_resident: false }).collect();
            for step in steps {
                run(&mut shard, &mut pages, step);
                check(&shard);
            }
        }
    }
}
