//! Copying a table of objects that own no others, in steps.
//!
//! Where its objects have handles of one another (the head has a root then), the copies have those of the source's objects until
//! the table's owner has linked them: from the root on, object after object.
//!
//! Relies on the caller that the source stays as it is between two steps.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::bucket::Tag;
use crate::table::{Hash, TableHead, item_hash};

/// Bytes that weigh as much in a step's budget as an item: to copy so many takes about as long as to make an object.
pub(crate) const WEIGHT_BYTES: u64 = 1024;

/// How many bytes the copy of an item gets, whose object has so many: no fewer.
pub(crate) type RoomOf = fn(&Arena, Handle, usize) -> Result<usize>;

/// A copy of a table that is being made.
#[derive(Debug)]
pub(crate) struct TableCopy {
    source: TableHead,
    target: TableHead,
    /// The source's bucket that is being copied…
    bucket: u32,
    /// …and how many of its items are.
    copied: usize,
    /// Kept for its capacity.
    batch: Vec<(Tag, Handle)>,
    /// Objects of the source whose copies are yet to be linked, and what of the last one is; they lie on a way from the root.
    unlinked: Vec<(Handle, usize)>,
    /// How many objects were found that have to be linked.
    found: u64,
}

/// What copying a table costs, in units of a step's budget, about.
pub(crate) fn cost(source: &TableHead) -> u64 {
    let items = source.count.saturating_add(source.item_bytes / WEIGHT_BYTES);
    // What is linked is compared with its copy, which takes about as long as copying it did.
    let links = if source.root().is_null() { 0 } else { items };
    items.saturating_add(links).saturating_add(u64::from(source.buckets()))
}

impl TableCopy {
    pub(crate) fn new(source: TableHead) -> TableCopy {
        let unlinked = if source.root().is_null() { Vec::new() } else { vec![(source.root(), 0)] };
        TableCopy { source, target: TableHead::default(), bucket: 0, copied: 0, batch: Vec::new(), unlinked, found: 1 }
    }

    pub(crate) fn source(&self) -> &TableHead {
        &self.source
    }

    /// What is copied so far.
    pub(crate) fn target(&self) -> TableHead {
        self.target
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.has_all_items() && self.unlinked.is_empty()
    }

    /// Whether every item has its copy.
    pub(crate) fn has_all_items(&self) -> bool {
        self.bucket >= self.source.buckets()
    }

    /// The object of the source whose copy is to be linked next, and its first link that the copy has not. All items are copied.
    pub(crate) fn next_unlinked(&mut self) -> Option<(Handle, usize)> {
        self.unlinked.pop()
    }

    /// Has the copy of an object of the source be linked later, from one of its links on.
    pub(crate) fn link_later(&mut self, object: Handle, first: usize) -> Result<()> {
        self.found = self.found.saturating_add(u64::from(first == 0));
        if self.found > self.source.count {
            return Err(StoreError::damaged("a table's items are linked more often than there are items"));
        }
        self.unlinked.push((object, first));
        Ok(())
    }

    /// No items have handles of others, whatever the source's head says.
    pub(crate) fn link_nothing(&mut self) {
        self.unlinked.clear();
    }

    /// Says from which copy the links lead on.
    pub(crate) fn set_root(&mut self, copy: Handle) {
        self.target.set_root(copy);
    }

    /// The copy of an item; `is_copy` tells it from others of the same hash.
    pub(crate) fn counterpart(
        &self,
        arena: &Arena,
        item: Handle,
        mut is_copy: impl FnMut(Handle) -> Result<bool>,
    ) -> Result<Handle> {
        let low = item_hash(arena, item)?;
        let missing = || StoreError::damaged("an item that is not in its table");
        let tag = self.source.tag_of(arena, low, item)?.ok_or_else(missing)?;
        let found =
            self.target.find(arena, Hash { low, tag }, |copy| Ok(item_hash(arena, copy)? == low && is_copy(copy)?))?;
        found.ok_or_else(missing)
    }

    /// Bytes that the copy takes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.target.own_bytes().saturating_add(self.target.item_bytes)
    }

    /// Goes on until the budget is spent: an item costs one, and one for each KiB; a bucket costs one. Returns what was spent,
    /// which exceeds the budget by the last item at most. What is copied so far is in the target, whether this fails or not.
    pub(crate) fn step(&mut self, heap: &mut Heap, budget: usize) -> Result<usize> {
        self.step_with_room(heap, budget, |_, _, bytes| Ok(bytes))
    }

    /// As [`TableCopy::step`], with more room for some of the copies.
    pub(crate) fn step_with_room(&mut self, heap: &mut Heap, budget: usize, room: RoomOf) -> Result<usize> {
        let mut spent = 0;
        while spent < budget && !self.has_all_items() {
            let mut batch = std::mem::take(&mut self.batch);
            let done = self.copy_bucket(heap, &mut batch, budget - spent, room);
            self.batch = batch;
            spent += done?;
        }
        if self.has_all_items() && self.target.count != self.source.count {
            return Err(StoreError::damaged("a table holds fewer items than it says"));
        }
        Ok(spent)
    }

    /// Copies what is left of the bucket, as far as the budget goes.
    fn copy_bucket(
        &mut self,
        heap: &mut Heap,
        batch: &mut Vec<(Tag, Handle)>,
        budget: usize,
        room: RoomOf,
    ) -> Result<usize> {
        batch.clear();
        for bucket in self.source.chain(&heap.arena, self.bucket)? {
            batch.extend(bucket.read(&heap.arena)?.iter());
        }
        let mut spent = 0;
        for &(tag, item) in &batch[self.copied.min(batch.len())..] {
            if spent >= budget {
                return Ok(spent);
            }
            spent += 1 + (self.copy_item(heap, tag, item, room)? / WEIGHT_BYTES) as usize;
            self.copied += 1;
        }
        (self.bucket, self.copied) = (self.bucket + 1, 0);
        Ok(spent + 1)
    }

    /// Adds a copy of an item to the target; returns its bytes.
    fn copy_item(&mut self, heap: &mut Heap, tag: Tag, item: Handle, room: RoomOf) -> Result<u64> {
        if self.target.count >= self.source.count {
            return Err(StoreError::damaged("a table holds more items than it says"));
        }
        let hash = Hash { low: item_hash(&heap.arena, item)?, tag };
        let bytes = heap.arena.usable_size(item)?;
        let new = heap.alloc(room(&heap.arena, item, bytes)?)?;
        let added = heap
            .arena
            .copy(item, 0, new, 0, bytes)
            .map_err(StoreError::from)
            .and_then(|()| heap.with_room(|arena| self.target.insert(arena, hash, new)));
        if let Err(error) = added {
            heap.arena.free(new)?;
            return Err(error);
        }
        let taken = heap.arena.usable_size(new)? as u64;
        self.target.item_bytes = self.target.item_bytes.saturating_add(taken);
        Ok(taken)
    }
}
