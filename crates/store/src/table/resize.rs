//! Growing, shrinking and taking apart a table, one bucket at a time.
//!
//! Relies on `table` for the layout. Memory is taken before anything changes; a table that can't grow for lack of
//! memory just gets longer chains, one that can't shrink stays as it is.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::table::bucket::{BUCKET_BYTES, Bucket, SLOTS, Tag};
use crate::table::{BucketRef, MAX_LEVEL, MIN_LEVEL, SEGMENT_BUCKETS, TableHead, item_hash};

/// Most items per bucket on average. More would save memory and lengthen chains: at 7 a table costs 9.1 bytes an item
/// plus at most a sixth for overflow, and at most one look-up in fourteen needs a second bucket.
const GROW_ITEMS: u64 = 7;
/// Twice the items per bucket below which buckets are merged.
const SHRINK_ITEMS_X2: u64 = 5;
/// Slots of the first directory.
const FIRST_SLOTS: u32 = 4;

/// Lack of memory is no reason to fail: the table works on, only less well.
fn tolerate(result: Result<()>) -> Result<()> {
    match result {
        Err(StoreError::OutOfMemory { .. }) => Ok(()),
        other => other,
    }
}

impl TableHead {
    /// Makes room for one more item: creates the table or splits a bucket if that is due.
    pub(crate) fn grow(&mut self, arena: &mut Arena) -> Result<()> {
        if self.directory().is_null() {
            return self.create(arena);
        }
        if self.count >= GROW_ITEMS * u64::from(self.buckets()) && self.level < MAX_LEVEL {
            return tolerate(self.split_one(arena));
        }
        Ok(())
    }

    /// Merges two buckets if that is due.
    pub(crate) fn shrink(&mut self, arena: &mut Arena) -> Result<()> {
        let buckets = self.buckets();
        if buckets > 1 << MIN_LEVEL && 2 * self.count < SHRINK_ITEMS_X2 * u64::from(buckets) {
            return tolerate(self.merge_one(arena));
        }
        Ok(())
    }

    fn create(&mut self, arena: &mut Arena) -> Result<()> {
        let buckets = 1usize << MIN_LEVEL;
        let segment = arena.alloc(buckets * BUCKET_BYTES)?;
        let directory = match arena.alloc(FIRST_SLOTS as usize * 4) {
            Ok(directory) => directory,
            Err(error) => {
                arena.free(segment)?;
                return Err(error.into());
            }
        };
        arena.slice_mut::<Bucket>(segment, 0, buckets)?.fill(Bucket::default());
        let slots = arena.slice_mut::<u32>(directory, 0, FIRST_SLOTS as usize)?;
        slots.fill(0);
        slots[0] = directory_slot(segment)?;
        *self = TableHead {
            directory_slots: FIRST_SLOTS,
            level: MIN_LEVEL,
            item_bytes: self.item_bytes,
            ..TableHead::default()
        };
        self.set_directory(directory);
        Ok(())
    }

    /// Divides the items of bucket `split` between it and a new last bucket.
    fn split_one(&mut self, arena: &mut Arena) -> Result<()> {
        self.extend(arena)?;
        let bit = 1u32 << self.level;
        let chain = self.chain(arena, self.split)?;
        let items = gather(arena, &chain)?;
        // Each item is a cache miss; start them all before the first is waited for.
        items.iter().for_each(|&(_, item)| arena.prefetch(item));
        let (mut stay, mut go) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        for (tag, item) in items {
            let side = if item_hash(arena, item)? & bit == 0 { &mut stay } else { &mut go };
            side.push((tag, item));
        }
        let mut spare: Vec<Handle> = chain[1..].iter().map(|place| place.object).collect();
        let target = self.place(arena, self.split + bit)?;
        lay(arena, chain[0], &stay, &mut spare)?;
        lay(arena, target, &go, &mut spare)?;
        self.split += 1;
        if self.split == bit {
            self.level += 1;
            self.split = 0;
        }
        self.give_back(arena, spare)
    }

    /// Undoes the latest split.
    fn merge_one(&mut self, arena: &mut Arena) -> Result<()> {
        let last = self.buckets() - 1;
        let (level, split) = previous(self.level, self.split);
        let source = self.chain(arena, last)?;
        let target = self.chain(arena, split)?;
        let mut items = gather(arena, &target)?;
        items.extend(gather(arena, &source)?);
        let mut spare: Vec<Handle> = target[1..].iter().chain(&source[1..]).map(|place| place.object).collect();
        // Two chains of full buckets but for their last ones need one bucket more at most: the source's own first one stays in
        // its segment. So no allocation follows one that could be lost.
        if spare.len() + 1 < items.len().div_ceil(SLOTS) {
            spare.push(arena.alloc(BUCKET_BYTES)?);
            self.overflow = self.overflow.saturating_add(1);
        }
        lay(arena, target[0], &items, &mut spare)?;
        self.level = level;
        self.split = split;
        self.give_back(arena, spare)?;
        self.contract(arena)
    }

    fn give_back(&mut self, arena: &mut Arena, spare: impl IntoIterator<Item = Handle>) -> Result<()> {
        for object in spare {
            arena.free(object)?;
            self.overflow = self.overflow.saturating_sub(1);
        }
        Ok(())
    }

    /// Provides the memory of one more bucket.
    fn extend(&mut self, arena: &mut Arena) -> Result<()> {
        let buckets = self.buckets();
        if buckets >= SEGMENT_BUCKETS {
            if !buckets.is_multiple_of(SEGMENT_BUCKETS) {
                return Ok(());
            }
            let slot = buckets / SEGMENT_BUCKETS;
            if slot >= self.directory_slots {
                self.resize_directory(arena, self.directory_slots.saturating_mul(2))?;
            }
            let segment = arena.alloc(SEGMENT_BUCKETS as usize * BUCKET_BYTES)?;
            arena.slice_mut::<u32>(self.directory(), slot as usize * 4, 1)?[0] = directory_slot(segment)?;
            return Ok(());
        }
        // The first segment always has room for the next power of two.
        if buckets.is_power_of_two() { self.resize_first(arena, 2 * buckets, buckets) } else { Ok(()) }
    }

    /// Gives memory back that the last bucket needed.
    fn contract(&mut self, arena: &mut Arena) -> Result<()> {
        let buckets = self.buckets();
        if buckets < SEGMENT_BUCKETS {
            if !buckets.is_power_of_two() {
                return Ok(());
            }
            let result = self.resize_first(arena, buckets, buckets);
            if let Err(StoreError::OutOfMemory { .. }) = result {
                // The segment is larger than `extend` expects, which does no harm: it allocates anew.
                return Ok(());
            }
            return result;
        }
        if !buckets.is_multiple_of(SEGMENT_BUCKETS) {
            return Ok(());
        }
        let slot = buckets / SEGMENT_BUCKETS;
        let segment = arena.slice::<u32>(self.directory(), slot as usize * 4, 1)?[0];
        arena.free(Handle::from_aligned(segment))?;
        if self.directory_slots > FIRST_SLOTS && slot <= self.directory_slots / 4 {
            tolerate(self.resize_directory(arena, self.directory_slots / 2))?;
        }
        Ok(())
    }

    /// Moves the first segment to one of `room` buckets, of which `used` are copied.
    fn resize_first(&mut self, arena: &mut Arena, room: u32, used: u32) -> Result<()> {
        let old = self.place(arena, 0)?.object;
        let new = arena.alloc(room as usize * BUCKET_BYTES)?;
        arena.copy(old, 0, new, 0, used as usize * BUCKET_BYTES)?;
        arena.slice_mut::<u32>(self.directory(), 0, 1)?[0] = directory_slot(new)?;
        Ok(arena.free(old)?)
    }

    fn resize_directory(&mut self, arena: &mut Arena, slots: u32) -> Result<()> {
        let new = arena.alloc(slots as usize * 4)?;
        let kept = slots.min(self.directory_slots) as usize * 4;
        arena.copy(self.directory(), 0, new, 0, kept)?;
        let rest = slots as usize * 4 - kept;
        arena.bytes_mut(new, kept, rest)?.fill(0);
        arena.free(self.directory())?;
        self.set_directory(new);
        self.directory_slots = slots;
        Ok(())
    }

    /// Takes the last bucket off a table that is being destroyed, items and all, and hands the items over. The head is
    /// the empty table's once the last bucket is gone.
    pub(crate) fn drop_last_bucket(&mut self, arena: &mut Arena, items: &mut Vec<Handle>) -> Result<()> {
        let Some(last) = self.buckets().checked_sub(1) else { return Ok(()) };
        let chain = self.chain(arena, last)?;
        let before = items.len();
        items.extend(gather(arena, &chain)?.into_iter().map(|(_, item)| item));
        self.count = self.count.saturating_sub((items.len() - before) as u64);
        self.give_back(arena, chain[1..].iter().map(|place| place.object))?;
        if last.is_multiple_of(SEGMENT_BUCKETS) {
            arena.free(chain[0].object)?;
        }
        if last == 0 {
            arena.free(self.directory())?;
            *self = TableHead::default();
        } else {
            (self.level, self.split) = previous(self.level, self.split);
        }
        Ok(())
    }
}

/// A segment as the directory has it. Of 256 bytes and more, as segments are but in damaged tables, it lies at a multiple of 256.
fn directory_slot(segment: Handle) -> Result<u32> {
    segment.to_aligned().ok_or_else(|| StoreError::damaged("a table with too few buckets"))
}

/// Level and split of a table with one bucket less.
fn previous(level: u8, split: u32) -> (u8, u32) {
    match split.checked_sub(1) {
        Some(split) => (level, split),
        None => (level - 1, (1 << (level - 1)) - 1),
    }
}

/// All items of a chain.
fn gather(arena: &Arena, chain: &[BucketRef]) -> Result<Vec<(Tag, Handle)>> {
    let mut items = Vec::with_capacity(chain.len() * SLOTS);
    for place in chain {
        items.extend(place.read(arena)?.iter());
    }
    Ok(items)
}

/// Writes items to a bucket and as many of the spare ones as are needed.
fn lay(arena: &mut Arena, first: BucketRef, items: &[(Tag, Handle)], spare: &mut Vec<Handle>) -> Result<()> {
    let mut place = first;
    let mut chunks = items.chunks(SLOTS).peekable();
    loop {
        let mut bucket = Bucket::default();
        for (slot, &(tag, item)) in chunks.next().unwrap_or_default().iter().enumerate() {
            bucket.set(slot, tag, item);
        }
        if chunks.peek().is_some() {
            bucket.set_overflow(spare.pop().ok_or_else(|| StoreError::damaged("a chain with gaps"))?);
        }
        let next = BucketRef::overflow(&bucket);
        *place.write(arena)? = bucket;
        match next {
            Some(next) => place = next,
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use quire_arena::ArenaConfig;

    use crate::table::Hash;

    /// A table of 16-byte items, each with its hash and its number.
    struct Numbers {
        arena: Arena,
        head: TableHead,
        model: BTreeMap<u32, Handle>,
    }

    impl Numbers {
        fn new() -> Numbers {
            let arena = Arena::create(ArenaConfig { max_bytes: 64 << 20, budget_bytes: 1 << 20 }).unwrap();
            Numbers { arena, head: TableHead::default(), model: BTreeMap::new() }
        }

        /// Few different hashes in the low bits now and then, so that chains occur.
        fn hash(number: u32) -> Hash {
            let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Hash::from(if number.is_multiple_of(5) { mixed & !0xffff_fff0 } else { mixed.rotate_left(32) ^ mixed })
        }

        fn insert(&mut self, number: u32) {
            let hash = Self::hash(number);
            let item = self.arena.alloc(16).unwrap();
            self.arena.slice_mut::<u32>(item, 0, 2).unwrap().copy_from_slice(&[hash.low, number]);
            self.head.insert(&mut self.arena, hash, item).unwrap();
            self.model.insert(number, item);
        }

        fn remove(&mut self, number: u32) {
            let item = self.model.remove(&number).unwrap();
            assert!(self.head.remove(&mut self.arena, Self::hash(number).low, item).unwrap());
            self.arena.free(item).unwrap();
        }

        fn toggle(&mut self, number: u32) {
            if self.model.contains_key(&number) { self.remove(number) } else { self.insert(number) }
        }

        fn number(arena: &Arena, item: Handle) -> Result<u32> {
            Ok(arena.slice::<u32>(item, 4, 1)?[0])
        }

        fn find(&self, number: u32) -> Option<Handle> {
            let matches = |item| Ok(Self::number(&self.arena, item)? == number);
            self.head.find(&self.arena, Self::hash(number), matches).unwrap()
        }

        fn check(&self) {
            self.head.check(&self.arena).unwrap();
            assert_eq!(self.head.count, self.model.len() as u64);
            let mut numbers = BTreeSet::new();
            let mut note = |item| Self::number(&self.arena, item).map(|number| assert!(numbers.insert(number)));
            self.head.for_each(&self.arena, &mut note).unwrap();
            assert!(numbers.iter().eq(self.model.keys()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_behaves_as_a_map(ops in prop::collection::vec((0u32..3000, 1u32..400), 1..40)) {
            let mut table = Numbers::new();
            for (first, count) in ops {
                (first..first + count).for_each(|number| table.toggle(number));
                table.check();
                for number in first..first + count {
                    prop_assert_eq!(table.find(number), table.model.get(&number).copied());
                }
            }
            let numbers: Vec<u32> = table.model.keys().copied().collect();
            numbers.into_iter().for_each(|number| table.remove(number));
            prop_assert_eq!(table.head.buckets(), 1 << MIN_LEVEL);
            prop_assert_eq!(table.head.overflow, 0);
            let objects = table.arena.stats().objects;
            prop_assert_eq!(objects, 2, "segment and directory");
        }

        #[test]
        fn a_scan_passes_everything_that_stays(
            kept in 1u32..1500,
            // Per step of the scan: how many other numbers come (or go).
            steps in prop::collection::vec((any::<bool>(), 0u32..60), 1..200),
        ) {
            let mut table = Numbers::new();
            (0..kept).for_each(|number| table.insert(number));
            let mut others: Vec<u32> = (10_000..12_000).collect();
            others.iter().for_each(|&number| table.insert(number));
            let mut seen = BTreeSet::new();
            let (mut cursor, mut next_other) = (0, 20_000);
            let mut steps = steps.iter().cycle();
            for _ in 0..100_000 {
                let Numbers { arena, head, .. } = &table;
                let note = |item| Numbers::number(arena, item).map(|number| _ = seen.insert(number));
                cursor = head.scan(arena, cursor, note).unwrap();
                if cursor == 0 {
                    break;
                }
                let &(grow, count) = steps.next().unwrap();
                for _ in 0..count {
                    if grow && next_other < 26_000 {
                        table.insert(next_other);
                        others.push(next_other);
                        next_other += 1;
                    } else if let Some(number) = others.pop() {
                        table.remove(number);
                    }
                }
            }
            prop_assert_eq!(cursor, 0);
            prop_assert!((0..kept).all(|number| seen.contains(&number)));
        }
    }

    #[test]
    fn a_table_costs_eleven_bytes_an_item() {
        let mut table = Numbers::new();
        let mut worst = 0.0f64;
        for number in 0..200_000 {
            table.insert(number * 5 + 1);
            if number > 100_000 && number % 1000 == 0 {
                worst = worst.max(table.head.own_bytes() as f64 / table.head.count as f64);
            }
        }
        assert!(worst <= 11.0, "{worst}");
    }

    #[test]
    fn lack_of_memory_only_makes_chains_longer() {
        let mut table = Numbers::new();
        for number in 0..1000 {
            table.insert(number);
        }
        let mut hoard = Vec::new();
        for bytes in [1 << 20, 4096, 64, 32] {
            while let Ok(object) = table.arena.alloc(bytes) {
                hoard.push(object);
            }
        }
        let mut refused = 0;
        for number in 1000..1200 {
            let hash = Numbers::hash(number);
            let Ok(item) = table.arena.alloc(16) else { continue };
            table.arena.slice_mut::<u32>(item, 0, 2).unwrap().copy_from_slice(&[hash.low, number]);
            match table.head.insert(&mut table.arena, hash, item) {
                Ok(()) => drop(table.model.insert(number, item)),
                Err(_) => refused += 1,
            }
            table.check();
        }
        assert!(refused < 200);
        hoard.into_iter().for_each(|object| table.arena.free(object).unwrap());
        (2000..6000).for_each(|number| table.insert(number));
        table.check();
    }
}
