//! Bucketed linear hashing in the arena: the keyspace, large hashes and the index of expiring keys.
//!
//! An item is any arena object that begins with the low 32 bits of its hash. Bucket `b` of `2^level + split` holds the
//! items whose hash ends in `b`; buckets lie in segments of 64, found through a directory. Growth splits one bucket at
//! an insert (see `resize`), so no operation ever rehashes the table. Relies on the arena's bounds checks; every chain
//! walk is bounded here, so a cycle in a damaged image ends in [`StoreError::Damaged`].

pub(crate) mod bucket;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod defrag;
mod index;
pub(crate) mod reclaim;
mod resize;
pub(crate) mod sample;
pub(crate) mod split;

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::table::bucket::{BUCKET_BYTES, Bucket, SLOTS, Tag};

/// Buckets of a whole segment.
pub(crate) const SEGMENT_BUCKETS: u32 = 64;
/// A table starts with so many buckets (as a power of two) and never has fewer.
pub(crate) const MIN_LEVEL: u8 = 2;
/// 2^31 buckets hold more items of a cache line each than 1 TiB can.
pub(crate) const MAX_LEVEL: u8 = 30;
/// Longest chain that is followed. Chains grow beyond two or three buckets only while memory lacks for splits.
const MAX_CHAIN: usize = 4096;

/// What the table needs of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    /// The low half, which also stands in the item: its low bits name the bucket.
    pub(crate) low: u32,
    /// The top 16 bits, or fewer, which stand in the bucket.
    pub(crate) tag: Tag,
}

impl Hash {
    /// For a table whose items are found by their handles: any tag will do there, and the tag still has to be one.
    pub(crate) fn without_tag(low: u32) -> Hash {
        Hash { low, tag: Tag::of(1) }
    }
}

impl From<u64> for Hash {
    #[inline]
    fn from(hash: u64) -> Hash {
        Hash { low: hash as u32, tag: Tag::of((hash >> 48) as u16) }
    }
}

/// The head of a table: plain data that its owner keeps in the arena and writes back after a change. What the handles have beyond 32 bits
/// lies beside the level, where zeros were when they had no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TableHead {
    /// Items in the table.
    pub(crate) count: u64,
    /// For the owner's use: bytes of its items.
    pub(crate) item_bytes: u64,
    directory_low: u32,
    /// Handles that fit into the directory.
    pub(crate) directory_slots: u32,
    /// Buckets below `split` are addressed by `level + 1` bits, the others by `level`.
    pub(crate) level: u8,
    directory_high: u8,
    root_high: u8,
    unused: u8,
    /// The next bucket to be split.
    pub(crate) split: u32,
    /// Buckets in overflow chains.
    pub(crate) overflow: u32,
    root_low: u32,
}

const _: () = assert!(size_of::<TableHead>() == TableHead::BYTES);

/// Where a bucket lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketRef {
    pub(crate) object: Handle,
    pub(crate) offset: usize,
}

impl BucketRef {
    #[inline]
    pub(crate) fn read(self, arena: &Arena) -> Result<&Bucket> {
        Ok(&arena.slice::<Bucket>(self.object, self.offset, 1)?[0])
    }

    #[inline]
    pub(crate) fn write(self, arena: &mut Arena) -> Result<&mut Bucket> {
        Ok(&mut arena.slice_mut::<Bucket>(self.object, self.offset, 1)?[0])
    }

    /// The bucket that continues the chain after `bucket`.
    pub(crate) fn overflow(bucket: &Bucket) -> Option<BucketRef> {
        let object = bucket.overflow();
        (!object.is_null()).then_some(BucketRef { object, offset: 0 })
    }
}

fn endless_chain() -> StoreError {
    StoreError::damaged("a table's chain has no end")
}

/// Low half of an item's hash.
#[inline]
pub(crate) fn item_hash(arena: &Arena, item: Handle) -> Result<u32> {
    Ok(*arena.get::<u32>(item)?)
}

impl TableHead {
    /// Bytes of a head.
    pub(crate) const BYTES: usize = 40;

    /// Segment handles, or null while nothing was ever inserted.
    #[inline]
    pub(crate) fn directory(&self) -> Handle {
        Handle::from_parts(self.directory_low, self.directory_high)
    }

    fn set_directory(&mut self, directory: Handle) {
        (self.directory_low, self.directory_high) = (directory.low(), directory.high());
    }

    /// For the owner's use: an item that leads to others of the table, null if each stands alone.
    #[inline]
    pub(crate) fn root(&self) -> Handle {
        Handle::from_parts(self.root_low, self.root_high)
    }

    pub(crate) fn set_root(&mut self, root: Handle) {
        (self.root_low, self.root_high) = (root.low(), root.high());
    }

    /// Buckets that the table has, overflow not counted.
    #[inline]
    pub(crate) fn buckets(&self) -> u32 {
        if self.directory().is_null() { 0 } else { (1 << self.level) + self.split }
    }

    /// Checks that the figures fit each other, so that the other methods can calculate with them.
    pub(crate) fn check(&self, arena: &Arena) -> Result<()> {
        if self.directory().is_null() {
            let empty = TableHead { item_bytes: self.item_bytes, ..TableHead::default() };
            return if *self == empty { Ok(()) } else { Err(StoreError::damaged("a table without buckets has items")) };
        }
        if self.level > MAX_LEVEL || self.unused != 0 || self.split >= 1 << self.level {
            return Err(StoreError::damaged(format!("a table of level {} split at {}", self.level, self.split)));
        }
        let segments = self.buckets().div_ceil(SEGMENT_BUCKETS);
        if segments > self.directory_slots || self.directory_slots > 1 << MAX_LEVEL {
            return Err(StoreError::damaged(format!("{segments} segments in {} slots", self.directory_slots)));
        }
        arena.bytes(self.directory(), 0, self.directory_slots as usize * 4)?;
        let room = (u64::from(self.buckets()) + u64::from(self.overflow)) * SLOTS as u64;
        if self.count > room {
            return Err(StoreError::damaged(format!("{} items in room for {room}", self.count)));
        }
        Ok(())
    }

    /// Bytes of buckets and directory.
    pub(crate) fn own_bytes(&self) -> u64 {
        if self.directory().is_null() {
            return 0;
        }
        let buckets = self.buckets();
        let in_segments = match buckets {
            0..SEGMENT_BUCKETS => buckets.next_power_of_two(),
            _ => buckets.next_multiple_of(SEGMENT_BUCKETS),
        };
        (u64::from(in_segments) + u64::from(self.overflow)) * BUCKET_BYTES as u64 + u64::from(self.directory_slots) * 4
    }

    /// The bucket that a hash belongs to.
    #[inline]
    pub(crate) fn index(&self, hash: u32) -> u32 {
        let index = hash & ((1 << self.level) - 1);
        if index < self.split { hash & ((2 << self.level) - 1) } else { index }
    }

    #[inline]
    pub(crate) fn place(&self, arena: &Arena, index: u32) -> Result<BucketRef> {
        let segment = index / SEGMENT_BUCKETS;
        if segment >= self.directory_slots {
            return Err(StoreError::damaged("a bucket outside the directory"));
        }
        let object = Handle::from_aligned(arena.slice::<u32>(self.directory(), segment as usize * 4, 1)?[0]);
        Ok(BucketRef { object, offset: (index % SEGMENT_BUCKETS) as usize * BUCKET_BYTES })
    }

    /// The item of this hash for which `matches` holds.
    #[inline]
    pub(crate) fn find(
        &self,
        arena: &Arena,
        hash: Hash,
        mut matches: impl FnMut(Handle) -> Result<bool>,
    ) -> Result<Option<Handle>> {
        if self.directory().is_null() {
            return Ok(None);
        }
        let mut bucket = self.place(arena, self.index(hash.low))?.read(arena)?;
        for _ in 0..MAX_CHAIN {
            let mut mask = bucket.matches(hash.tag);
            while mask != 0 {
                let item = bucket.item(mask.trailing_zeros() as usize);
                if matches(item)? {
                    return Ok(Some(item));
                }
                mask &= mask - 1;
            }
            match BucketRef::overflow(bucket) {
                None => return Ok(None),
                Some(next) => bucket = next.read(arena)?,
            }
        }
        Err(endless_chain())
    }

    /// The tag by which an item of this hash is in the table, if it is.
    pub(crate) fn tag_of(&self, arena: &Arena, hash: u32, item: Handle) -> Result<Option<Tag>> {
        if self.directory().is_null() {
            return Ok(None);
        }
        let mut bucket = self.place(arena, self.index(hash))?.read(arena)?;
        for _ in 0..MAX_CHAIN {
            if let Some((tag, _)) = bucket.iter().find(|&(_, other)| other == item) {
                return Ok(Some(tag));
            }
            match BucketRef::overflow(bucket) {
                None => return Ok(None),
                Some(next) => bucket = next.read(arena)?,
            }
        }
        Err(endless_chain())
    }

    /// Starts loading the bucket of a hash.
    pub(crate) fn prefetch(&self, arena: &Arena, hash: Hash) {
        if self.directory().is_null() {
            return;
        }
        if let Ok(place) = self.place(arena, self.index(hash.low)) {
            arena.prefetch(beyond(place.object, place.offset));
        }
    }

    /// The first item in the bucket that may be the one sought: right nearly always, and cheap.
    pub(crate) fn guess(&self, arena: &Arena, hash: Hash) -> Option<Handle> {
        if self.directory().is_null() {
            return None;
        }
        let bucket = self.place(arena, self.index(hash.low)).ok()?.read(arena).ok()?;
        let mask = bucket.matches(hash.tag);
        (mask != 0).then(|| bucket.item(mask.trailing_zeros() as usize))
    }

    /// Every bucket of the chain that starts at bucket `index`.
    pub(crate) fn chain(&self, arena: &Arena, index: u32) -> Result<Vec<BucketRef>> {
        let mut places = vec![self.place(arena, index)?];
        for at in 0..MAX_CHAIN {
            match BucketRef::overflow(places[at].read(arena)?) {
                None => return Ok(places),
                Some(next) => places.push(next),
            }
        }
        Err(endless_chain())
    }

    /// Calls `f` with every item of bucket `index`.
    pub(crate) fn visit(&self, arena: &Arena, index: u32, mut f: impl FnMut(Handle) -> Result<()>) -> Result<()> {
        let mut bucket = self.place(arena, index)?.read(arena)?;
        for _ in 0..MAX_CHAIN {
            for (_, item) in bucket.iter() {
                f(item)?;
            }
            match BucketRef::overflow(bucket) {
                None => return Ok(()),
                Some(next) => bucket = next.read(arena)?,
            }
        }
        Err(endless_chain())
    }

    /// Calls `f` with every item.
    pub(crate) fn for_each(&self, arena: &Arena, mut f: impl FnMut(Handle) -> Result<()>) -> Result<()> {
        let mut left = self.count;
        for index in 0..self.buckets() {
            self.visit(arena, index, |item| {
                // Also bounds the walk through an image whose segments are all the same one.
                left =
                    left.checked_sub(1).ok_or_else(|| StoreError::damaged("a table holds more items than it says"))?;
                f(item)
            })?;
        }
        Ok(())
    }

    /// Calls `f` with the items of the bucket at `cursor` and returns the next cursor, 0 after the last bucket.
    ///
    /// The cursor counts through hashes by their reversed bits. A bucket covers a stretch of that order, splitting or
    /// merging it only divides or joins stretches, and the cursor moves to the end of the stretch it was in. So an item
    /// that stays in the table through a whole scan is passed at least once, however the table grows or shrinks.
    pub(crate) fn scan(&self, arena: &Arena, cursor: u64, f: impl FnMut(Handle) -> Result<()>) -> Result<u64> {
        let Some((index, next)) = self.at_cursor(cursor) else { return Ok(0) };
        self.visit(arena, index, f)?;
        Ok(next)
    }

    /// The bucket at a cursor, and the cursor of [`TableHead::scan`] behind it; `None` if there are no buckets.
    #[inline]
    pub(crate) fn at_cursor(&self, cursor: u64) -> Option<(u32, u64)> {
        if self.directory().is_null() {
            return None;
        }
        let mask = (1u64 << self.level) - 1;
        let fine = (cursor & mask) < u64::from(self.split);
        let mask = if fine { mask << 1 | 1 } else { mask };
        let next = (cursor | !mask).reverse_bits().wrapping_add(1);
        Some(((cursor & mask) as u32, next.reverse_bits()))
    }

    /// Puts another handle in place of `old`, which has this hash. False if `old` isn't in the table.
    pub(crate) fn replace(&self, arena: &mut Arena, hash: u32, old: Handle, new: Handle) -> Result<bool> {
        if self.directory().is_null() {
            return Ok(false);
        }
        for place in self.chain(arena, self.index(hash))? {
            let found = place.read(arena)?.iter().position(|(_, item)| item == old);
            if let Some(slot) = found {
                let bucket = place.write(arena)?;
                bucket.set(slot, bucket.tag(slot), new);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds an item, which begins with `hash.low`. If this fails the items are those that there were, but the head may have changed, which is to
    /// be written back: a bucket may have been split all the same.
    pub(crate) fn insert(&mut self, arena: &mut Arena, hash: Hash, item: Handle) -> Result<()> {
        self.grow(arena)?;
        let mut place = self.place(arena, self.index(hash.low))?;
        for _ in 0..MAX_CHAIN {
            let bucket = place.read(arena)?;
            let slot = bucket.len();
            if slot < SLOTS {
                place.write(arena)?.set(slot, hash.tag, item);
                self.count += 1;
                return Ok(());
            }
            place = match BucketRef::overflow(bucket) {
                Some(next) => next,
                None => {
                    let object = arena.alloc(BUCKET_BYTES)?;
                    *arena.get_mut::<Bucket>(object)? = Bucket::default();
                    place.write(arena)?.set_overflow(object);
                    self.overflow = self.overflow.saturating_add(1);
                    BucketRef { object, offset: 0 }
                }
            };
        }
        Err(endless_chain())
    }

    /// Takes an item of this hash out. False if it isn't in the table.
    pub(crate) fn remove(&mut self, arena: &mut Arena, hash: u32, item: Handle) -> Result<bool> {
        if self.directory().is_null() {
            return Ok(false);
        }
        let chain = self.chain(arena, self.index(hash))?;
        for (at, place) in chain.iter().enumerate() {
            let found = place.read(arena)?.iter().position(|(_, other)| other == item);
            if let Some(slot) = found {
                self.close_gap(arena, &chain, at, slot)?;
                self.count = self.count.saturating_sub(1);
                self.shrink(arena)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves the chain's last item into a slot that becomes free.
    fn close_gap(&mut self, arena: &mut Arena, chain: &[BucketRef], at: usize, slot: usize) -> Result<()> {
        let last = chain[chain.len() - 1];
        let bucket = last.read(arena)?;
        let Some(end) = bucket.len().checked_sub(1) else {
            return Err(StoreError::damaged("an empty bucket ends a chain"));
        };
        let (item, tag) = (bucket.item(end), bucket.tag(end));
        chain[at].write(arena)?.set(slot, tag, item);
        last.write(arena)?.clear(end);
        if end == 0 && chain.len() > 1 {
            chain[chain.len() - 2].write(arena)?.set_overflow(Handle::NULL);
            arena.free(last.object)?;
            self.overflow = self.overflow.saturating_sub(1);
        }
        Ok(())
    }
}

/// The handle of a later granule of an object, to prefetch it.
pub(crate) fn beyond(object: Handle, offset: usize) -> Handle {
    Handle::from_raw(object.raw() + (offset / 16) as u64)
}
