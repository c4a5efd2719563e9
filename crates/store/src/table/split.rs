//! Dividing a table whose items follow one another and hold elements, in steps: the items with elements of a range come into a new
//! table, all others into another one.
//!
//! Until the value takes them over, both tables only name items that are the source's. So nothing that a command sees changes,
//! and two tables of borrowed items are all that is left if the work is given up. Afterwards the source is such a table, and what
//! is not kept is freed in steps: the change itself is as short for a million items as for one.
//!
//! Relies on the caller that the source stays as it is between two steps.

use std::ops::Range;

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::{Hash, TableHead, reclaim};

/// An item on the way from the first one to the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainItem {
    pub(crate) handle: Handle,
    pub(crate) hash: Hash,
    /// Elements that it holds.
    pub(crate) elements: u64,
    /// The number of the item behind it.
    pub(crate) next: u32,
}

/// Finds the item of a number, which is not that of the anchor.
pub(crate) type FindItem = fn(&Arena, &TableHead, u32) -> Result<ChainItem>;

/// A table to be divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainTable {
    pub(crate) head: TableHead,
    /// The item without elements, before the first one and behind the last one.
    pub(crate) anchor: (u32, Hash, Handle),
    /// The number of the first item.
    pub(crate) first: u32,
    pub(crate) find_item: FindItem,
}

/// What is kept, where it begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptEnds {
    /// Numbers of the first item and of the last one.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Elements of all items that are kept.
    pub(crate) elements: u64,
    /// Of these, elements before the range, all in the first item, and behind it, all in the last one.
    pub(crate) before: u64,
    pub(crate) behind: u64,
}

/// A table that is being divided.
#[derive(Debug)]
pub(crate) struct TableSplit {
    source: ChainTable,
    range: Range<u64>,
    /// The item that comes next; the anchor when all have come.
    next: u32,
    /// Items and elements that have come.
    items: u64,
    elements: u64,
    /// Each item lies in a place of its own, so all together are no larger than the arena. This ends the walk round a damaged ring.
    bytes_left: u64,
    kept: TableHead,
    gone: TableHead,
    ends: KeptEnds,
}

impl TableSplit {
    /// Begins to divide a table. The range is neither empty nor all elements.
    pub(crate) fn begin(heap: &mut Heap, source: ChainTable, range: Range<u64>) -> Result<TableSplit> {
        let (_, hash, anchor) = source.anchor;
        let mut kept = TableHead { item_bytes: heap.arena.usable_size(anchor)? as u64, ..TableHead::default() };
        if let Err(error) = heap.with_room(|arena| kept.insert(arena, hash, anchor)) {
            reclaim::dissolve(heap, kept)?;
            return Err(error);
        }
        Ok(TableSplit {
            source,
            range,
            next: source.first,
            items: 1,
            elements: 0,
            bytes_left: heap.arena.stats().committed_bytes,
            kept,
            gone: TableHead::default(),
            ends: KeptEnds::default(),
        })
    }

    pub(crate) fn source(&self) -> &TableHead {
        &self.source.head
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.source.anchor.0
    }

    /// Bytes that the new tables take so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.own_bytes().saturating_add(self.gone.own_bytes())
    }

    /// The new tables, whose items are the source's.
    pub(crate) fn tables(&self) -> [TableHead; 2] {
        [self.kept, self.gone]
    }

    /// Goes on for so many items; returns for how many it did.
    pub(crate) fn step(&mut self, heap: &mut Heap, budget: usize) -> Result<usize> {
        let mut spent = 0;
        while spent < budget && !self.is_complete() {
            self.pass_item(heap)?;
            spent += 1;
        }
        let ended = self.is_complete();
        if ended && (self.items != self.source.head.count || self.elements < self.range.end || self.kept.count < 2) {
            return Err(StoreError::damaged("a list with other elements than it says"));
        }
        Ok(spent)
    }

    fn pass_item(&mut self, heap: &mut Heap) -> Result<()> {
        let number = self.next;
        let item = (self.source.find_item)(&heap.arena, &self.source.head, number)?;
        let bytes = heap.arena.usable_size(item.handle)? as u64;
        let bytes_left = self.bytes_left.checked_sub(bytes).filter(|_| self.items < self.source.head.count);
        self.bytes_left = bytes_left.ok_or_else(|| StoreError::damaged("a list's nodes have no end"))?;
        if item.elements == 0 {
            return Err(StoreError::damaged("a list's node without elements"));
        }
        let (start, end) = (self.elements, self.elements.saturating_add(item.elements));
        let stays = start < self.range.end && end > self.range.start;
        let table = if stays { &mut self.kept } else { &mut self.gone };
        heap.with_room(|arena| table.insert(arena, item.hash, item.handle))?;
        table.item_bytes = table.item_bytes.saturating_add(bytes);
        if stays {
            let ends = &mut self.ends;
            if ends.elements == 0 {
                (ends.first, ends.before) = (number, self.range.start.saturating_sub(start));
            }
            (ends.last, ends.behind) = (number, end.saturating_sub(self.range.end));
            ends.elements = ends.elements.saturating_add(item.elements);
        }
        (self.items, self.elements, self.next) = (self.items + 1, end, item.next);
        Ok(())
    }

    /// What is kept, with its ends, and what is not.
    pub(crate) fn finish(self) -> (TableHead, KeptEnds, TableHead) {
        (self.kept, self.ends, self.gone)
    }
}
