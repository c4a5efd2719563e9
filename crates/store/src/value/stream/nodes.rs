//! The nodes of a stream's index: slots of keys with their values.
//!
//! ```text
//! 0  number u32 · kind and level u32 · slots in use u32 · 0 u32
//! 16 slots: space u32 · value u32 · ms u64 · seq u64 · time i64 · count u64
//! ```
//!
//! A slot of a leaf, which is level 0, is a key with its value. A slot of another node has the number of a child for its value and a key that
//! is no greater than any below it, and greater than all of the child before; that of the first one says nothing. So what is taken
//! out of a leaf changes no node above it, unless the leaf goes.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::table::TableHead;

use super::id::StreamId;
use super::items::{self, HEADER_BYTES, ItemHeader, ItemKind};

/// The space of the blocks of entries: the value is the block's number.
pub(super) const BLOCKS: u32 = 0;
/// The space of the groups, by their own spaces in the place of milliseconds: the value is the group's number.
pub(super) const GROUPS: u32 = 1;
/// The space of the consumers, by their groups' spaces and their own: the value is the consumer's number.
pub(super) const CONSUMERS: u32 = 2;
/// From here on, the spaces of groups and consumers themselves, with what is pending.
pub(super) const FIRST_PENDING: u32 = 16;

pub(super) const SLOT_BYTES: usize = size_of::<Slot>();
/// Slots that a node has at most.
pub(super) const MOST_SLOTS: usize = 25;
/// The root's level at most.
pub(super) const MAX_LEVEL: u32 = 15;

/// Where something has its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) space: u32,
    pub(super) id: StreamId,
}

impl Key {
    pub(super) const fn new(space: u32, id: StreamId) -> Key {
        Key { space, id }
    }
}

/// A key with its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Slot {
    pub(super) space: u32,
    pub(super) value: u32,
    pub(super) ms: u64,
    pub(super) seq: u64,
    /// Of what is pending: when it was delivered last, and how often.
    pub(super) time_ms: i64,
    pub(super) count: u64,
}

const _: () = assert!(SLOT_BYTES == 40 && HEADER_BYTES + MOST_SLOTS * SLOT_BYTES <= 1024);

impl Slot {
    pub(super) fn new(key: Key, value: u32) -> Slot {
        Slot { space: key.space, value, ms: key.id.ms, seq: key.id.seq, time_ms: 0, count: 0 }
    }

    pub(super) fn key(&self) -> Key {
        Key { space: self.space, id: StreamId { ms: self.ms, seq: self.seq } }
    }
}

pub(super) fn damaged() -> StoreError {
    StoreError::damaged("a node of a stream's index that is not well-formed")
}

/// A node that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) handle: Handle,
    pub(super) number: u32,
    pub(super) level: u32,
    pub(super) used: usize,
}

impl Node {
    fn of(arena: &Arena, handle: Handle) -> Result<Node> {
        let header = arena.get::<ItemHeader>(handle)?;
        let (level, used) = (header.kind >> 8, header.word as usize);
        if level > MAX_LEVEL || used == 0 || used > MOST_SLOTS {
            return Err(damaged());
        }
        Ok(Node { handle, number: header.number, level, used })
    }

    pub(super) fn read(arena: &Arena, head: &TableHead, number: u32) -> Result<Node> {
        Node::of(arena, items::find(arena, head, number, ItemKind::Node)?)
    }

    pub(super) fn slots<'a>(&self, arena: &'a Arena) -> Result<&'a [Slot]> {
        Ok(arena.slice(self.handle, HEADER_BYTES, self.used)?)
    }

    pub(super) fn slot(&self, arena: &Arena, at: usize) -> Result<Slot> {
        self.slots(arena)?.get(at).copied().ok_or_else(damaged)
    }

    /// How many slots lie before a key.
    pub(super) fn slots_before(&self, arena: &Arena, key: &Key) -> Result<usize> {
        Ok(self.slots(arena)?.partition_point(|slot| slot.key() < *key))
    }

    /// The slot below which a key has its place.
    pub(super) fn way_to(&self, arena: &Arena, key: &Key) -> Result<usize> {
        let slots = self.slots(arena)?;
        Ok(slots[1..].partition_point(|slot| slot.key() <= *key))
    }

    pub(super) fn child(&self, arena: &Arena, head: &TableHead, at: usize) -> Result<Node> {
        let child = Node::read(arena, head, self.slot(arena, at)?.value)?;
        if child.level + 1 == self.level { Ok(child) } else { Err(damaged()) }
    }

    /// Slots that the node's object has room for; fails if it has none for those that it says are in use.
    pub(super) fn room(&self, arena: &Arena) -> Result<usize> {
        let room = arena.usable_size(self.handle)?.saturating_sub(HEADER_BYTES) / SLOT_BYTES;
        if room < self.used { Err(damaged()) } else { Ok(room.min(MOST_SLOTS)) }
    }

    pub(super) fn set_used(&mut self, arena: &mut Arena, used: usize) -> Result<()> {
        self.used = used;
        arena.get_mut::<ItemHeader>(self.handle)?.word = used as u32;
        Ok(())
    }

    pub(super) fn put(&self, arena: &mut Arena, at: usize, slot: Slot) -> Result<()> {
        self.room(arena)?;
        *arena.slice_mut::<Slot>(self.handle, HEADER_BYTES, self.used)?.get_mut(at).ok_or_else(damaged)? = slot;
        Ok(())
    }

    /// Puts another slot before the one at `at`; there is room.
    pub(super) fn insert(&mut self, arena: &mut Arena, at: usize, slot: Slot) -> Result<()> {
        if self.room(arena)? <= self.used {
            return Err(damaged());
        }
        let slots = arena.slice_mut::<Slot>(self.handle, HEADER_BYTES, self.used + 1)?;
        slots.copy_within(at..self.used, at + 1);
        slots[at] = slot;
        self.set_used(arena, self.used + 1)
    }

    pub(super) fn remove(&mut self, arena: &mut Arena, at: usize) -> Result<()> {
        self.room(arena)?;
        arena.slice_mut::<Slot>(self.handle, HEADER_BYTES, self.used)?.copy_within(at + 1.., at);
        self.set_used(arena, self.used - 1)
    }
}
