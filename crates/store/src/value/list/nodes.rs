//! The nodes of a long list: arena objects in a table, found by their numbers, so that a list is copied, freed and checked as
//! any table of objects is.
//!
//! ```text
//! anchor  0  number u32: 0 · last u32 · first u32 · sequence of the next new node u32 · elements u64
//! node    0  number u32 · previous u32 · next u32 · elements u32 · bytes u32
//!         20 elements, see `packed`
//! ```
//!
//! The nodes and the anchor are a ring. A node's number is a hash of how many were made before it, by the store's secret seed: the
//! table goes by the numbers as they are, and a client that could foresee them might keep nodes whose numbers all end alike, so
//! that a look-up passes each of them.
//!
//! Functions on the table's head; the caller writes it back to the entry. What makes a list longer changes nothing if it fails;
//! what makes it shorter needs no memory.

use std::ops::Range;

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::bucket::Tag;
use crate::table::reclaim::{self, Items};
use crate::table::split::{ChainItem, ChainTable, KeptEnds, TableSplit};
use crate::table::{Hash, TableHead};

/// The number of the anchor.
pub(super) const ANCHOR: u32 = 0;
/// Bytes of a node before its elements.
pub(super) const HEADER_BYTES: usize = 20;
const PREVIOUS_OFFSET: usize = 4;
const NEXT_OFFSET: usize = 8;

/// Where a list begins and ends.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Anchor {
    pub(super) number: u32,
    pub(super) last: u32,
    pub(super) first: u32,
    /// The next new node's number is the hash of this, unless another node has that number.
    next_sequence: u32,
    /// Of the whole list.
    pub(super) elements: u64,
}

/// The fixed part of a node.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NodeHeader {
    pub(super) number: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
    pub(super) count: u32,
    pub(super) used: u32,
}

const _: () = assert!(size_of::<NodeHeader>() == HEADER_BYTES && size_of::<Anchor>() == 24);

/// A node that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) handle: Handle,
    pub(super) header: NodeHeader,
}

/// A change of a node's bytes: what is put in the place of `removed` bytes at `at`, and how many elements there are then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit<'a> {
    pub(super) at: usize,
    pub(super) removed: usize,
    pub(super) inserted: &'a [u8],
    pub(super) count: usize,
}

/// The hash by which the table finds a node. Numbers that end alike share a bucket, so the tag is made of their other bits.
pub(super) fn hash_of(number: u32) -> Hash {
    Hash { low: number, tag: Tag::of((number.wrapping_mul(0x9e37_79b1) >> 16) as u16) }
}

fn look_up(arena: &Arena, head: &TableHead, number: u32) -> Result<Option<Handle>> {
    head.find(arena, hash_of(number), |item| Ok(*arena.get::<u32>(item)? == number))
}

fn find(arena: &Arena, head: &TableHead, number: u32) -> Result<Handle> {
    look_up(arena, head, number)?.ok_or_else(|| StoreError::damaged("a list without one of its nodes"))
}

impl Node {
    pub(super) fn read(arena: &Arena, head: &TableHead, number: u32) -> Result<Node> {
        if number == ANCHOR {
            return Err(StoreError::damaged("a list that ends too early"));
        }
        let handle = find(arena, head, number)?;
        Ok(Node { handle, header: *arena.get::<NodeHeader>(handle)? })
    }

    /// The bytes of the elements.
    pub(super) fn elements<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        Ok(arena.bytes(self.handle, HEADER_BYTES, self.used())?)
    }

    pub(super) fn used(&self) -> usize {
        self.header.used as usize
    }

    pub(super) fn count(&self) -> usize {
        self.header.count as usize
    }
}

/// Ends a walk from node to node that goes round in circles: each node lies in a place of its own, so all of them together are no
/// larger than the arena. What the table of a damaged image says of its items, or the anchor of the elements, bounds nothing.
pub(super) struct WalkBudget {
    bytes_left: u64,
}

impl WalkBudget {
    pub(super) fn new(arena: &Arena) -> WalkBudget {
        WalkBudget { bytes_left: arena.stats().committed_bytes }
    }

    /// Counts a node that the walk passes.
    pub(super) fn pass(&mut self, node: &Node) -> Result<()> {
        let left = self.bytes_left.checked_sub((HEADER_BYTES + node.used()) as u64);
        self.bytes_left = left.ok_or_else(|| StoreError::damaged("a list's nodes have no end"))?;
        Ok(())
    }
}

/// Makes a list without elements of an empty table.
pub(super) fn begin(heap: &mut Heap, head: &mut TableHead) -> Result<()> {
    add_item(heap, head, size_of::<Anchor>(), ANCHOR, |bytes| bytes.copy_from_slice(Anchor::default().as_bytes()))
}

pub(super) fn anchor(arena: &Arena, head: &TableHead) -> Result<Anchor> {
    Ok(*arena.get::<Anchor>(find(arena, head, ANCHOR)?)?)
}

/// The object of the anchor, which stays where it is.
pub(super) fn anchor_object(arena: &Arena, head: &TableHead) -> Result<Handle> {
    find(arena, head, ANCHOR)
}

/// Counts elements that have come or gone, in the anchor's object; returns how many there are then.
pub(super) fn count_in(heap: &mut Heap, anchor: Handle, by: i64) -> Result<u64> {
    let anchor = heap.arena.get_mut::<Anchor>(anchor)?;
    anchor.elements = anchor.elements.saturating_add_signed(by);
    Ok(anchor.elements)
}

/// Counts elements that have come or gone.
pub(super) fn count_elements(heap: &mut Heap, head: &TableHead, by: i64) -> Result<()> {
    let anchor = find(&heap.arena, head, ANCHOR)?;
    count_in(heap, anchor, by).map(drop)
}

/// Adds an object to the table; `fill` writes it, beginning with its number.
fn add_item(
    heap: &mut Heap,
    head: &mut TableHead,
    bytes: usize,
    number: u32,
    fill: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let item = heap.alloc(bytes)?;
    fill(heap.arena.bytes_mut(item, 0, bytes)?);
    if let Err(error) = heap.with_room(|arena| head.insert(arena, hash_of(number), item)) {
        heap.arena.free(item)?;
        return Err(error);
    }
    head.item_bytes = head.item_bytes.saturating_add(Arena::class_size(bytes) as u64);
    Ok(())
}

/// Puts a new node between two that are neighbours; returns its number. Elements are for the caller to count.
pub(super) fn add(
    heap: &mut Heap,
    head: &mut TableHead,
    hasher: &MemberHasher,
    (previous, next): (u32, u32),
    parts: [&[u8]; 2],
    count: usize,
) -> Result<u32> {
    let (before, after) = (find(&heap.arena, head, previous)?, find(&heap.arena, head, next)?);
    let mut sequence = anchor(&heap.arena, head)?.next_sequence;
    let number = loop {
        let number = hasher.hash(&sequence.to_le_bytes()).low;
        sequence = sequence.wrapping_add(1);
        if number != ANCHOR && look_up(&heap.arena, head, number)?.is_none() {
            break number;
        }
    };
    let used = parts[0].len() + parts[1].len();
    let header = NodeHeader { number, previous, next, count: count as u32, used: used as u32 };
    add_item(heap, head, HEADER_BYTES + used, number, |bytes| {
        let (fixed, elements) = bytes.split_at_mut(HEADER_BYTES);
        fixed.copy_from_slice(header.as_bytes());
        let (first, second) = elements.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
    })?;
    set_link(heap, before, NEXT_OFFSET, number)?;
    set_link(heap, after, PREVIOUS_OFFSET, number)?;
    let anchor = find(&heap.arena, head, ANCHOR)?;
    heap.arena.get_mut::<Anchor>(anchor)?.next_sequence = sequence;
    Ok(number)
}

fn set_link(heap: &mut Heap, item: Handle, offset: usize, number: u32) -> Result<()> {
    heap.arena.bytes_mut(item, offset, 4)?.copy_from_slice(&number.to_ne_bytes());
    Ok(())
}

/// Takes a node out and frees it. Its elements are for the caller to count.
pub(super) fn remove(heap: &mut Heap, head: &mut TableHead, node: &Node) -> Result<()> {
    let NodeHeader { number, previous, next, .. } = node.header;
    let (before, after) = (find(&heap.arena, head, previous)?, find(&heap.arena, head, next)?);
    let bytes = heap.arena.usable_size(node.handle)?;
    set_link(heap, before, NEXT_OFFSET, next)?;
    set_link(heap, after, PREVIOUS_OFFSET, previous)?;
    if !head.remove(&mut heap.arena, number, node.handle)? {
        return Err(StoreError::damaged("a node is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(bytes as u64);
    Ok(heap.arena.free(node.handle)?)
}

/// Changes a node's bytes. Elements of the list are for the caller to count.
pub(super) fn edit(heap: &mut Heap, head: &mut TableHead, node: &Node, edit: Edit<'_>) -> Result<()> {
    let usable = heap.arena.usable_size(node.handle)?;
    let tail = node.used().checked_sub(edit.at.saturating_add(edit.removed));
    let (Some(tail), true) = (tail, HEADER_BYTES + node.used() <= usable) else {
        return Err(StoreError::damaged("a list's node that is longer than its object"));
    };
    let used = edit.at + edit.inserted.len() + tail;
    let total = HEADER_BYTES + used;
    let header = NodeHeader { used: used as u32, count: edit.count as u32, ..node.header };
    let from = HEADER_BYTES + edit.at + edit.removed;
    let to = HEADER_BYTES + edit.at + edit.inserted.len();
    if total > usable {
        let new = heap.alloc(total)?;
        heap.arena.copy(node.handle, HEADER_BYTES, new, HEADER_BYTES, edit.at)?;
        heap.arena.copy(node.handle, from, new, to, tail)?;
        write(heap, new, &header, &edit)?;
        return replace(heap, head, node, new);
    }
    heap.arena.copy(node.handle, from, node.handle, to, tail)?;
    write(heap, node.handle, &header, &edit)?;
    // A node from which one element after the other goes is not moved each time.
    if Arena::class_size(total) + usable / 8 >= usable {
        return Ok(());
    }
    match heap.arena.alloc(total).map_err(StoreError::from) {
        Ok(new) => {
            heap.arena.copy(node.handle, 0, new, 0, total)?;
            replace(heap, head, node, new)
        }
        // It wastes some memory instead.
        Err(StoreError::OutOfMemory { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn write(heap: &mut Heap, node: Handle, header: &NodeHeader, edit: &Edit<'_>) -> Result<()> {
    let bytes = heap.arena.bytes_mut(node, 0, HEADER_BYTES + edit.at + edit.inserted.len())?;
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes[HEADER_BYTES + edit.at..].copy_from_slice(edit.inserted);
    Ok(())
}

/// Has the table name another object for a node, and frees the old one.
fn replace(heap: &mut Heap, head: &mut TableHead, node: &Node, new: Handle) -> Result<()> {
    let (old_bytes, new_bytes) = (heap.arena.usable_size(node.handle)?, heap.arena.usable_size(new)?);
    if !head.replace(&mut heap.arena, node.header.number, node.handle, new)? {
        heap.arena.free(new)?;
        return Err(StoreError::damaged("a node is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(old_bytes as u64).saturating_add(new_bytes as u64);
    Ok(heap.arena.free(node.handle)?)
}

/// Gives the nodes from `first` to `last`, which together have so many elements, a table of their own, in which they are the whole
/// list; the old one is freed in steps, with all nodes that are left in it. So the work is that of what stays. False, and nothing
/// has changed, if that is more than half of the nodes or there is no memory for the table.
pub(super) fn keep_only(
    heap: &mut Heap,
    head: &mut TableHead,
    (first, last): (u32, u32),
    elements: u64,
) -> Result<bool> {
    if !is_short(&heap.arena, head, first, last)? {
        return Ok(false);
    }
    let mut kept = TableHead::default();
    if let Err(error) = list_in(heap, head, &mut kept, (first, last)) {
        unlist(heap, kept)?;
        return if matches!(error, StoreError::OutOfMemory { .. }) { Ok(false) } else { Err(error) };
    }
    let mut number = first;
    for _ in 1..kept.count {
        let node = Node::read(&heap.arena, &kept, number)?;
        let bytes = heap.arena.usable_size(node.handle)? as u64;
        if !head.remove(&mut heap.arena, number, node.handle)? {
            return Err(StoreError::damaged("a node is not in its table"));
        }
        head.item_bytes = head.item_bytes.saturating_sub(bytes);
        kept.item_bytes = kept.item_bytes.saturating_add(bytes);
        number = node.header.next;
    }
    let next_sequence = anchor(&heap.arena, head)?.next_sequence;
    let own = find(&heap.arena, &kept, ANCHOR)?;
    *heap.arena.get_mut::<Anchor>(own)? = Anchor { number: ANCHOR, last, first, next_sequence, elements };
    for (number, offset) in [(first, PREVIOUS_OFFSET), (last, NEXT_OFFSET)] {
        let end = find(&heap.arena, &kept, number)?;
        set_link(heap, end, offset, ANCHOR)?;
    }
    let old = std::mem::replace(head, kept);
    reclaim::retire_objects(heap, old)?;
    Ok(true)
}

/// Whether no more than half of the nodes lie from `first` to `last`.
fn is_short(arena: &Arena, head: &TableHead, first: u32, last: u32) -> Result<bool> {
    let (mut number, mut budget) = (first, WalkBudget::new(arena));
    for _ in 0..head.count / 2 {
        if number == last {
            return Ok(true);
        }
        let node = Node::read(arena, head, number)?;
        budget.pass(&node)?;
        number = node.header.next;
    }
    Ok(false)
}

/// Makes a table that has an anchor of its own and the nodes from `first` to `last` of another one.
fn list_in(heap: &mut Heap, from: &TableHead, to: &mut TableHead, (first, last): (u32, u32)) -> Result<()> {
    begin(heap, to)?;
    let mut number = first;
    for _ in 0..from.count {
        let node = Node::read(&heap.arena, from, number)?;
        heap.with_room(|arena| to.insert(arena, hash_of(number), node.handle))?;
        if number == last {
            return Ok(());
        }
        number = node.header.next;
    }
    Err(StoreError::damaged("a list's nodes have no end"))
}

/// Undoes what [`list_in`] has done.
fn unlist(heap: &mut Heap, table: TableHead) -> Result<()> {
    let own = look_up(&heap.arena, &table, ANCHOR)?;
    reclaim::dissolve(heap, table)?;
    own.map_or(Ok(()), |own| Ok(heap.arena.free(own)?))
}

/// Begins to divide a list into the nodes with elements of a range, which is neither empty nor all of the list, and all others.
pub(super) fn begin_split(heap: &mut Heap, head: TableHead, range: Range<u64>) -> Result<TableSplit> {
    let handle = find(&heap.arena, &head, ANCHOR)?;
    let first = anchor(&heap.arena, &head)?.first;
    let chain = ChainTable { head, anchor: (ANCHOR, hash_of(ANCHOR), handle), first, find_item };
    TableSplit::begin(heap, chain, range)
}

fn find_item(arena: &Arena, head: &TableHead, number: u32) -> Result<ChainItem> {
    let node = Node::read(arena, head, number)?;
    let elements = node.count() as u64;
    Ok(ChainItem { handle: node.handle, hash: hash_of(number), elements, next: node.header.next })
}

/// Makes the list what it was divided for, but for the elements of its two last nodes that are outside of the range. The other nodes
/// are freed in steps, which takes two nodes of the list of what is to be freed.
pub(super) fn take_split(
    heap: &mut Heap,
    head: &mut TableHead,
    split: TableSplit,
    [for_table, for_nodes]: [Handle; 2],
) -> Result<KeptEnds> {
    let (kept, ends, gone) = split.finish();
    let handle = find(&heap.arena, &kept, ANCHOR)?;
    let anchor = heap.arena.get_mut::<Anchor>(handle)?;
    (anchor.first, anchor.last, anchor.elements) = (ends.first, ends.last, ends.elements);
    for (number, offset) in [(ends.first, PREVIOUS_OFFSET), (ends.last, NEXT_OFFSET)] {
        let end = find(&heap.arena, &kept, number)?;
        set_link(heap, end, offset, ANCHOR)?;
    }
    let old = std::mem::replace(head, kept);
    // Every item of the old table is in one of the new ones.
    heap.retire_as(for_table, Items::Borrowed as u32, zerocopy::transmute!(old))?;
    heap.retire_as(for_nodes, Items::Objects as u32, zerocopy::transmute!(gone))?;
    Ok(ends)
}
