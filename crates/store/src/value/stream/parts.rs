//! The entries of a large stream, to be changed: blocks, found by the index, each of which stays as small as a limit says.
//!
//! Relies on `items` and `index` for the objects, on `block` for what is in them. What adds an entry changes nothing if it fails.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::limits::{PACKED_MAX_BYTES, PACKED_MAX_ITEMS};
use crate::table::TableHead;

use super::block::{self, BlockHeader, NewEntry};
use super::id::StreamId;
use super::index::{self, Index};
use super::items::{self, Anchor, ItemHeader, ItemKind};
use super::nodes::{BLOCKS, Key, Slot};

/// What a block may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLimit {
    /// Bytes, as Redis counts them; 0 is no limit.
    pub(super) bytes: usize,
    /// Entries; 0 is no limit.
    pub(super) entries: usize,
}

impl BlockLimit {
    /// Whether an entry may be added to a block.
    pub(super) fn allows(&self, block: &[u8], entry: &NewEntry<'_>) -> Result<bool> {
        let header = BlockHeader::read(block)?;
        let least = |limit: usize, most: usize| if limit == 0 { most } else { limit.min(most) };
        let (bytes, entries) = (least(self.bytes, usize::MAX), least(self.entries, PACKED_MAX_ITEMS));
        let room = header.listpack_bytes().saturating_add(entry.bytes()) < bytes && header.added() < entries as u64;
        Ok(room && block.len().saturating_add(entry.bytes()) < PACKED_MAX_BYTES)
    }
}

/// Up to where a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCut {
    /// So many entries stay.
    MaxLen(u64),
    /// Entries from this ID on stay.
    MinId(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub struct StreamTrim {
    /// Up to where.
    pub cut: StreamCut,
    /// Only whole blocks go.
    pub whole_blocks: bool,
    /// Entries that go at most, so many that the next block would exceed that; 0 is no limit.
    pub limit: u64,
}

impl StreamTrim {
    /// Whether it takes so many entries more, all of a block, beside those that went.
    fn may_drop(&self, removed: u64, count: u64) -> bool {
        self.limit == 0 || removed.saturating_add(count) <= self.limit
    }

    /// Whether a block of so many entries goes whole. The ID of its last entry is asked for only if it matters: it is found by reading all of
    /// them.
    pub(super) fn drops(&self, entries: u64, count: u64, last: impl FnOnce() -> Result<StreamId>) -> Result<bool> {
        Ok(match self.cut {
            StreamCut::MaxLen(most) => entries.saturating_sub(count) >= most,
            StreamCut::MinId(least) => last()? < least,
        })
    }

    /// Whether the first entry stays.
    pub(super) fn keeps(&self, entries: u64, first: StreamId) -> bool {
        match self.cut {
            StreamCut::MaxLen(most) => entries <= most,
            StreamCut::MinId(least) => first >= least,
        }
    }
}

/// A large stream, to be changed.
pub(super) struct Parts<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) head: &'a mut TableHead,
    pub(super) hasher: &'a MemberHasher,
}

/// The first block, with its slot.
fn first_block<'a>(arena: &'a Arena, head: &TableHead, root: u32) -> Result<Option<(Slot, &'a [u8])>> {
    let first = index::first(arena, head, root)?;
    let Some(slot) = first.filter(|slot| slot.space == BLOCKS) else { return Ok(None) };
    let item = items::find(arena, head, slot.value, ItemKind::Block)?;
    Ok(Some((slot, items::block(arena, item)?)))
}

/// Whether a trim drops the first block.
pub(super) fn drops_first(arena: &Arena, head: &TableHead, anchor: &Anchor, trim: &StreamTrim) -> Result<bool> {
    let Some((_, bytes)) = first_block(arena, head, anchor.root)? else { return Ok(false) };
    let count = u64::from(BlockHeader::read(bytes)?.count);
    Ok(trim.may_drop(0, count) && trim.drops(anchor.entries, count, || block::last_id(bytes))?)
}

/// The last slot of the block in which an ID has its place.
pub(super) fn block_slot(arena: &Arena, head: &TableHead, root: u32, id: StreamId) -> Result<Option<Slot>> {
    index::floor(arena, head, root, &Key::new(BLOCKS, id))
}

impl Parts<'_> {
    pub(super) fn index(&mut self) -> Index<'_> {
        Index { heap: self.heap, head: self.head, hasher: self.hasher }
    }

    fn block(&self, number: u32) -> Result<Handle> {
        items::find(&self.heap.arena, self.head, number, ItemKind::Block)
    }

    /// Adds an entry behind all others; `bytes`, which is empty, is for putting it together. The anchor's object is looked up unless it is
    /// given.
    pub(super) fn append(
        &mut self,
        anchor: Option<Handle>,
        entry: &NewEntry<'_>,
        limit: BlockLimit,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let object = anchor.map_or_else(|| items::anchor_object(&self.heap.arena, self.head), Ok)?;
        let last = match self.heap.arena.get::<Anchor>(object)?.last_block {
            0 => None,
            number => Some(self.block(number)?),
        };
        match last {
            Some(item) if limit.allows(items::block(&self.heap.arena, item)?, entry)? => {
                let header = block::appended(bytes, items::block(&self.heap.arena, item)?, entry)?;
                self.extend(item, header, bytes)?;
            }
            Some(_) | None => {
                block::begin(bytes, entry);
                self.add_block(entry.id, bytes)?;
            }
        }
        let anchor = self.heap.arena.get_mut::<Anchor>(object)?;
        anchor.entries = anchor.entries.saturating_add(1);
        anchor.added = anchor.added.saturating_add(1);
        anchor.set_last_id(entry.id);
        Ok(())
    }

    /// Puts bytes behind those of a block.
    fn extend(&mut self, item: Handle, header: BlockHeader, tail: &[u8]) -> Result<()> {
        let used = self.heap.arena.get::<ItemHeader>(item)?.word as usize;
        let (start, total) = (items::HEADER_BYTES + used, items::HEADER_BYTES + used + tail.len());
        let item = match total > self.heap.arena.usable_size(item)? {
            true => items::resize(self.heap, self.head, item, start, total)?,
            false => item,
        };
        let bytes = self.heap.arena.bytes_mut(item, 0, total)?;
        bytes[start..].copy_from_slice(tail);
        bytes[items::HEADER_BYTES..][..block::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        self.heap.arena.get_mut::<ItemHeader>(item)?.word = (used + tail.len()) as u32;
        Ok(())
    }

    /// Adds a block of entries behind all others.
    pub(super) fn add_block(&mut self, first: StreamId, bytes: &[u8]) -> Result<()> {
        let number = items::new_number(self.heap, self.head, self.hasher)?;
        let header = ItemHeader { number, kind: ItemKind::Block as u32, word: bytes.len() as u32, name_len: 0 };
        let item = items::add(self.heap, self.head, number, items::HEADER_BYTES + bytes.len(), |to| {
            to[..items::HEADER_BYTES].copy_from_slice(header.as_bytes());
            to[items::HEADER_BYTES..].copy_from_slice(bytes);
        })?;
        let indexed = self.index().set(Slot::new(Key::new(BLOCKS, first), number));
        if let Err(error) = indexed {
            items::remove(self.heap, self.head, item)?;
            return Err(error);
        }
        items::change_anchor(self.heap, self.head, |anchor| {
            anchor.last_block = number;
            anchor.blocks = anchor.blocks.saturating_add(1);
        })
    }

    /// Frees a block with all its entries.
    fn drop_block(&mut self, slot: &Slot, entries: u64) -> Result<()> {
        let item = self.block(slot.value)?;
        if self.index().remove(&slot.key())?.is_none() {
            return Err(StoreError::damaged("a stream's index that is not in order"));
        }
        items::remove(self.heap, self.head, item)?;
        let arena = &self.heap.arena;
        let anchor = items::anchor(arena, self.head)?;
        let mut last = anchor.last_block;
        if last == slot.value {
            last = block_slot(arena, self.head, anchor.root, StreamId::MAX)?.map_or(0, |slot| slot.value);
        }
        items::change_anchor(self.heap, self.head, |anchor| {
            anchor.entries = anchor.entries.saturating_sub(entries);
            anchor.blocks = anchor.blocks.saturating_sub(1);
            anchor.last_block = last;
        })
    }

    /// Takes the bytes of so many entries out of a block that has more.
    fn cut(&mut self, number: u32, bytes: std::ops::Range<usize>, entries: u32) -> Result<()> {
        let item = self.block(number)?;
        let usable = self.heap.arena.usable_size(item)?;
        let block = items::block(&self.heap.arena, item)?;
        let mut header = BlockHeader::read(block)?;
        let (used, start) = (block.len(), items::HEADER_BYTES);
        let damaged = || StoreError::damaged("a stream's block that is longer than its object");
        if start + used > usable || bytes.end > used {
            return Err(damaged());
        }
        header.count = header.count.checked_sub(entries).ok_or_else(damaged)?;
        header.deleted = header.deleted.saturating_add(entries);
        let left = used - bytes.len();
        self.heap.arena.copy(item, start + bytes.end, item, start + bytes.start, used - bytes.end)?;
        self.heap.arena.bytes_mut(item, start, block::HEADER_BYTES)?.copy_from_slice(&header.to_bytes());
        self.heap.arena.get_mut::<ItemHeader>(item)?.word = left as u32;
        // A block from which one entry after the other goes is not moved each time.
        let total = start + left;
        if Arena::class_size(total) + usable / 8 < usable {
            match items::resize(self.heap, self.head, item, total, total) {
                // It wastes some memory instead.
                Ok(_) | Err(StoreError::OutOfMemory { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        items::change_anchor(self.heap, self.head, |anchor| {
            anchor.entries = anchor.entries.saturating_sub(u64::from(entries));
        })
    }

    /// Takes an entry out; returns whether it was there.
    pub(super) fn delete(&mut self, id: StreamId) -> Result<bool> {
        let arena = &self.heap.arena;
        let anchor = items::anchor(arena, self.head)?;
        let Some(slot) = block_slot(arena, self.head, anchor.root, id)? else { return Ok(false) };
        let bytes = items::block(arena, self.block(slot.value)?)?;
        let count = BlockHeader::read(bytes)?.count;
        let Some(range) = block::find(bytes, id)? else { return Ok(false) };
        if count <= 1 {
            self.drop_block(&slot, 1)?;
        } else {
            self.cut(slot.value, range, 1)?;
        }
        items::change_anchor(self.heap, self.head, |anchor| {
            anchor.set_max_deleted_id(anchor.max_deleted_id().max(id));
        })?;
        Ok(true)
    }

    /// Takes the first entries out; returns how many.
    pub(super) fn trim(&mut self, trim: &StreamTrim) -> Result<u64> {
        let mut removed = 0;
        loop {
            let arena = &self.heap.arena;
            let anchor = items::anchor(arena, self.head)?;
            let Some((slot, bytes)) = first_block(arena, self.head, anchor.root)? else { return Ok(removed) };
            let count = u64::from(BlockHeader::read(bytes)?.count);
            if matches!(trim.cut, StreamCut::MaxLen(most) if anchor.entries <= most) || !trim.may_drop(removed, count) {
                return Ok(removed);
            }
            if trim.drops(anchor.entries, count, || block::last_id(bytes))? {
                self.drop_block(&slot, count)?;
                removed += count;
                continue;
            }
            if trim.whole_blocks {
                return Ok(removed);
            }
            let (range, gone) = block::front(bytes, |number, id| trim.keeps(anchor.entries - number, id))?;
            if gone > 0 {
                self.cut(slot.value, range, gone)?;
            }
            return Ok(removed + u64::from(gone));
        }
    }
}
