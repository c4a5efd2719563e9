//! What a large stream consists of: arena objects in one table, found by their numbers, so that a stream is copied, freed and checked as
//! any table of objects is.
//!
//! ```text
//! anchor    0  number u32: 0 · kind · what the stream says of itself (`Anchor`)
//! block     0  number u32 · kind · bytes u32 · 0 u32;  16  entries, see `block`
//! node      0  number u32 · kind and level · slots in use u32 · 0 u32;  16  slots, see `index`
//! group     0  number u32 · kind · space u32 · length of the name u32;  16  `GroupFields`, the name
//! consumer  0  number u32 · kind, and whether it is timed · space u32 · length of the name u32;  16  `ConsumerFields`, the name, and
//!           behind it of a timed one its active time i64
//! ```
//!
//! A number is a hash by the store's secret seed, of how many items were numbered before, or of the names of a group and a consumer:
//! the table goes by the numbers as they are, and a client that could foresee them might keep items whose numbers all end alike. Items
//! name one another by number and never by handle, so that a copy needs no other links.
//!
//! Functions on the table's head; the caller writes it back to the entry.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::bucket::Tag;
use crate::table::{Hash, TableHead};

use super::id::StreamId;

/// The number of the anchor.
pub(super) const ANCHOR: u32 = 0;
/// Bytes of every item before what is its kind's own.
pub(super) const HEADER_BYTES: usize = 16;

/// What an item is, in the low byte of its second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ItemKind {
    Anchor = 1,
    Block = 2,
    Node = 3,
    Group = 4,
    Consumer = 5,
}

/// Beside the kind of a consumer: the time at which it was last given something follows its name. Older programs made consumers without
/// it, and read past it.
pub(super) const TIMED: u32 = 1 << 8;
/// The active time of a consumer that was never given anything.
const NEVER: i64 = -1;

/// The first bytes of every item.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ItemHeader {
    pub(super) number: u32,
    pub(super) kind: u32,
    /// Bytes of a block, slots in use of a node, the space of a group or a consumer.
    pub(super) word: u32,
    /// The length of a group's or a consumer's name.
    pub(super) name_len: u32,
}

/// What a stream says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Anchor {
    pub(super) number: u32,
    pub(super) kind: u32,
    pub(super) entries: u64,
    pub(super) added: u64,
    pub(super) last_ms: u64,
    pub(super) last_seq: u64,
    pub(super) deleted_ms: u64,
    pub(super) deleted_seq: u64,
    /// The root of the index, by number; 0 if nothing is in it.
    pub(super) root: u32,
    /// The block with the last entries; 0 if there are none.
    pub(super) last_block: u32,
    /// The next number is the hash of this, unless an item has it.
    pub(super) next_sequence: u32,
    pub(super) next_space: u32,
    pub(super) groups: u32,
    pub(super) blocks: u32,
}

impl Anchor {
    pub(super) fn last_id(&self) -> StreamId {
        StreamId { ms: self.last_ms, seq: self.last_seq }
    }

    pub(super) fn set_last_id(&mut self, id: StreamId) {
        (self.last_ms, self.last_seq) = (id.ms, id.seq);
    }

    pub(super) fn max_deleted_id(&self) -> StreamId {
        StreamId { ms: self.deleted_ms, seq: self.deleted_seq }
    }

    pub(super) fn set_max_deleted_id(&mut self, id: StreamId) {
        (self.deleted_ms, self.deleted_seq) = (id.ms, id.seq);
    }
}

/// The fixed part of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GroupFields {
    pub(super) last_ms: u64,
    pub(super) last_seq: u64,
    /// Entries that were read up to the last ID; negative if that is not known.
    pub(super) entries_read: i64,
    pub(super) pending: u64,
    pub(super) consumers: u64,
}

impl GroupFields {
    pub(super) fn last_id(&self) -> StreamId {
        StreamId { ms: self.last_ms, seq: self.last_seq }
    }

    pub(super) fn set_last_id(&mut self, id: StreamId) {
        (self.last_ms, self.last_seq) = (id.ms, id.seq);
    }
}

/// The fixed part of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ConsumerFields {
    pub(super) seen_ms: i64,
    pub(super) pending: u64,
    /// The space of its group.
    pub(super) group: u64,
}

const TIME_BYTES: usize = size_of::<i64>();
const GROUP_BYTES: usize = HEADER_BYTES + size_of::<GroupFields>();
const CONSUMER_BYTES: usize = HEADER_BYTES + size_of::<ConsumerFields>();

/// The hash by which the table finds an item. Numbers that end alike share a bucket, so the tag is made of their other bits.
pub(super) fn hash_of(number: u32) -> Hash {
    Hash { low: number, tag: Tag::of((number.wrapping_mul(0x9e37_79b1) >> 16) as u16) }
}

/// The item of a number and a kind for which `matches` holds.
pub(super) fn look_up(
    arena: &Arena,
    head: &TableHead,
    number: u32,
    kind: ItemKind,
    mut matches: impl FnMut(Handle) -> Result<bool>,
) -> Result<Option<Handle>> {
    head.find(arena, hash_of(number), |item| {
        let words = arena.slice::<u32>(item, 0, 2)?;
        Ok(words[0] == number && words[1] & 0xff == kind as u32 && matches(item)?)
    })
}

/// The block or node of a number.
pub(super) fn find(arena: &Arena, head: &TableHead, number: u32, kind: ItemKind) -> Result<Handle> {
    let found = look_up(arena, head, number, kind, |_| Ok(true))?;
    found.ok_or_else(|| StoreError::damaged("a stream without one of its parts"))
}

/// The object of the anchor, which stays where it is.
pub(super) fn anchor_object(arena: &Arena, head: &TableHead) -> Result<Handle> {
    find(arena, head, ANCHOR, ItemKind::Anchor)
}

pub(super) fn anchor(arena: &Arena, head: &TableHead) -> Result<Anchor> {
    Ok(*arena.get::<Anchor>(anchor_object(arena, head)?)?)
}

/// Changes what the stream says of itself.
pub(super) fn change_anchor<R>(heap: &mut Heap, head: &TableHead, change: impl FnOnce(&mut Anchor) -> R) -> Result<R> {
    let handle = anchor_object(&heap.arena, head)?;
    Ok(change(heap.arena.get_mut::<Anchor>(handle)?))
}

/// Makes a stream without anything of an empty table.
pub(super) fn begin(heap: &mut Heap, head: &mut TableHead, anchor: Anchor, first_space: u32) -> Result<()> {
    let anchor = Anchor { number: ANCHOR, kind: ItemKind::Anchor as u32, next_space: first_space, ..anchor };
    add(heap, head, ANCHOR, size_of::<Anchor>(), |bytes| bytes.copy_from_slice(anchor.as_bytes())).map(drop)
}

/// Adds an object to the table; `fill` writes it, beginning with its number. Nothing has changed if this fails.
pub(super) fn add(
    heap: &mut Heap,
    head: &mut TableHead,
    number: u32,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<Handle> {
    let item = heap.alloc(bytes)?;
    fill(heap.arena.bytes_mut(item, 0, bytes)?);
    if let Err(error) = heap.with_room(|arena| head.insert(arena, hash_of(number), item)) {
        heap.arena.free(item)?;
        return Err(error);
    }
    head.item_bytes = head.item_bytes.saturating_add(heap.arena.usable_size(item)? as u64);
    Ok(item)
}

/// Takes an object out and frees it.
pub(super) fn remove(heap: &mut Heap, head: &mut TableHead, item: Handle) -> Result<()> {
    let number = *heap.arena.get::<u32>(item)?;
    let bytes = heap.arena.usable_size(item)?;
    if !head.remove(&mut heap.arena, number, item)? {
        return Err(StoreError::damaged("a part of a stream is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(bytes as u64);
    Ok(heap.arena.free(item)?)
}

/// Moves an item to an object of so many bytes, of which the first `keep` are those that it has; the old one is freed.
pub(super) fn resize(heap: &mut Heap, head: &mut TableHead, item: Handle, keep: usize, bytes: usize) -> Result<Handle> {
    let number = *heap.arena.get::<u32>(item)?;
    let old_bytes = heap.arena.usable_size(item)?;
    if keep > old_bytes {
        return Err(StoreError::damaged("a part of a stream that is longer than its object"));
    }
    let new = heap.alloc(bytes)?;
    let moved = heap.arena.copy(item, 0, new, 0, keep).map_err(StoreError::from);
    if !moved.and_then(|()| head.replace(&mut heap.arena, number, item, new))? {
        heap.arena.free(new)?;
        return Err(StoreError::damaged("a part of a stream is not in its table"));
    }
    heap.arena.free(item)?;
    let new_bytes = heap.arena.usable_size(new)?;
    head.item_bytes = head.item_bytes.saturating_sub(old_bytes as u64).saturating_add(new_bytes as u64);
    Ok(new)
}

/// A number that no block and no node has.
pub(super) fn new_number(heap: &mut Heap, head: &TableHead, hasher: &MemberHasher) -> Result<u32> {
    let mut sequence = anchor(&heap.arena, head)?.next_sequence;
    let number = loop {
        let number = hasher.hash(&sequence.to_le_bytes()).low;
        sequence = sequence.wrapping_add(1);
        let arena = &heap.arena;
        let found = head.find(arena, hash_of(number), |item| {
            let words = arena.slice::<u32>(item, 0, 2)?;
            Ok(words[0] == number && words[1] & 0xff <= ItemKind::Node as u32)
        })?;
        if number != ANCHOR && found.is_none() {
            break number;
        }
    };
    change_anchor(heap, head, |anchor| anchor.next_sequence = sequence)?;
    Ok(number)
}

/// A space that no group and no consumer of the stream has or had.
pub(super) fn new_space(heap: &mut Heap, head: &TableHead) -> Result<u32> {
    let space = change_anchor(heap, head, |anchor| {
        let space = anchor.next_space;
        anchor.next_space = space.saturating_add(1);
        space
    })?;
    if space == u32::MAX { Err(StoreError::TooLarge { len: space.into() }) } else { Ok(space) }
}

/// The number of the group of this name, or of a consumer of a group's space.
pub(super) fn number_of(hasher: &MemberHasher, group: u32, name: &[u8]) -> u32 {
    let number = hasher.hash(&[&group.to_le_bytes(), name].concat()).low;
    // That of the anchor is its own.
    if number == ANCHOR { 1 } else { number }
}

fn named_bytes(kind: ItemKind) -> usize {
    if kind == ItemKind::Group { GROUP_BYTES } else { CONSUMER_BYTES }
}

/// The name of a group or a consumer.
pub(super) fn name(arena: &Arena, item: Handle) -> Result<&[u8]> {
    let header = arena.get::<ItemHeader>(item)?;
    let start = match header.kind & 0xff {
        kind if kind == ItemKind::Group as u32 => GROUP_BYTES,
        kind if kind == ItemKind::Consumer as u32 => CONSUMER_BYTES,
        _ => return Err(StoreError::damaged("a part of a stream without a name")),
    };
    Ok(arena.bytes(item, start, header.name_len as usize)?)
}

/// The fixed part of a group or a consumer.
pub(super) fn fields<T: FromBytes + Copy + KnownLayout + Immutable>(arena: &Arena, item: Handle) -> Result<T> {
    Ok(arena.slice::<T>(item, HEADER_BYTES, 1)?[0])
}

/// The same, to be changed.
pub(super) fn fields_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable>(
    arena: &mut Arena,
    item: Handle,
) -> Result<&mut T> {
    let fields = arena.slice_mut::<T>(item, HEADER_BYTES, 1)?;
    fields.first_mut().ok_or_else(|| StoreError::damaged("a part of a stream cut short"))
}

/// Adds a group or a consumer.
pub(super) fn add_named(
    heap: &mut Heap,
    head: &mut TableHead,
    header: ItemHeader,
    kind: ItemKind,
    fields: &[u8],
    name: &[u8],
) -> Result<Handle> {
    let start = named_bytes(kind);
    let (timed, end) = if kind == ItemKind::Consumer { (TIMED, TIME_BYTES) } else { (0, 0) };
    let header = ItemHeader { kind: kind as u32 | timed, name_len: name.len() as u32, ..header };
    add(heap, head, header.number, start + name.len() + end, |bytes| {
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        bytes[HEADER_BYTES..start].copy_from_slice(fields);
        bytes[start..][..name.len()].copy_from_slice(name);
        bytes[start + name.len()..].copy_from_slice(&NEVER.to_le_bytes()[..end]);
    })
}

/// Where a consumer's name ends, behind which its active time lies if it is timed. Both have to lie within its object: what is behind that is
/// another one's.
fn name_end(arena: &Arena, consumer: Handle, header: &ItemHeader) -> Result<usize> {
    let end = CONSUMER_BYTES + header.name_len as usize;
    let behind = if header.kind & TIMED == 0 { 0 } else { TIME_BYTES };
    if end + behind > arena.usable_size(consumer)? {
        return Err(StoreError::damaged("a consumer of a stream that is longer than its object"));
    }
    Ok(end)
}

/// When a consumer was last given something; `None` if it never was. One that an older program made has one time, when it last asked.
pub(super) fn active_ms(arena: &Arena, consumer: Handle) -> Result<Option<i64>> {
    let header = arena.get::<ItemHeader>(consumer)?;
    let end = name_end(arena, consumer, header)?;
    if header.kind & TIMED == 0 {
        return Ok(Some(fields::<ConsumerFields>(arena, consumer)?.seen_ms));
    }
    let bytes = arena.bytes(consumer, end, TIME_BYTES)?;
    let time_ms = <[u8; TIME_BYTES]>::try_from(bytes).map_or(NEVER, i64::from_le_bytes);
    Ok(Some(time_ms).filter(|&time_ms| time_ms != NEVER))
}

/// Notes when a consumer was last given something. One that an older program made moves to a larger object first, if there is
/// memory for that.
pub(super) fn set_active_ms(heap: &mut Heap, head: &mut TableHead, consumer: Handle, time_ms: i64) -> Result<()> {
    let header = *heap.arena.get::<ItemHeader>(consumer)?;
    let (mut item, end) = (consumer, name_end(&heap.arena, consumer, &header)?);
    if header.kind & TIMED == 0 {
        item = match resize(heap, head, consumer, end, end + TIME_BYTES) {
            Ok(moved) => moved,
            // What it was given is its own already: it goes on without the time.
            Err(StoreError::OutOfMemory { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        heap.arena.get_mut::<ItemHeader>(item)?.kind |= TIMED;
    }
    heap.arena.bytes_mut(item, end, TIME_BYTES)?.copy_from_slice(&time_ms.to_le_bytes());
    Ok(())
}

/// The bytes of a block.
pub(super) fn block(arena: &Arena, item: Handle) -> Result<&[u8]> {
    let used = arena.get::<ItemHeader>(item)?.word;
    Ok(arena.bytes(item, HEADER_BYTES, used as usize)?)
}
