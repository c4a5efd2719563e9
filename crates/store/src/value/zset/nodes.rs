//! The nodes of a large sorted set's tree: arena objects in the same table as its members, so that a sorted set is freed and copied
//! as any table of objects is.
//!
//! ```text
//! 0  number u32 · level u32 (bit 31 set) · slots in use u32 · slots u32
//! 16 a column for each field of a slot, as long as there are slots:
//!    score f64 · member handle;  above the leaves also: child handle · members below it u32
//! ```
//!
//! A slot of a leaf, which is level 0, is a member. A slot of another node is a child, with the score and the member that its first
//! slot has: so a way down compares scores in a row, and follows a handle only where they are equal.
//!
//! Nodes are found by their handles. Their numbers only give them a place in the table: each is another one, a hash of the handle
//! that the node had when it was made, by the store's secret seed, so that a client can't foresee them. A copy keeps them.

use std::ops::Range;

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::{Hash, TableHead};

use super::members::{self, NODE};
use super::order::Cut;

/// Slots of leaves. Only a leaf that is the whole tree has fewer than the last of these.
pub(super) const LEAF_SLOTS: [usize; 4] = [8, 20, 44, 84];
/// Slots of a node above the leaves.
pub(super) const INNER_SLOTS: usize = 50;
/// The root's level at most. Each level takes some hundreds of millions of times more changes than the one before.
pub(super) const MAX_LEVEL: u32 = 12;
/// Levels of nodes.
pub(super) const LEVELS: usize = MAX_LEVEL as usize + 1;

const HEADER_BYTES: usize = 16;
const SCORE_BYTES: usize = 8;
const WORD_BYTES: usize = 4;
/// Columns of words behind that of the scores.
const MEMBERS: usize = 0;
const CHILDREN: usize = 1;
const COUNTS: usize = 2;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    number: u32,
    level: u32,
    used: u32,
    slots: u32,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
const _: () = assert!(size_of_node(0, LEAF_SLOTS[3]) == 1024 && size_of_node(1, INNER_SLOTS) <= 1024);

const fn size_of_node(level: u32, slots: usize) -> usize {
    HEADER_BYTES + slots * (SCORE_BYTES + WORD_BYTES * if level == 0 { 1 } else { 3 })
}

/// A slot: a member of a leaf, otherwise a child, by its first member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slot {
    pub(super) score: f64,
    pub(super) member: Handle,
    /// Null in a leaf.
    pub(super) child: Handle,
    /// Members below it; 1 in a leaf.
    pub(super) elements: u32,
}

/// A node that was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) handle: Handle,
    pub(super) level: u32,
    pub(super) used: usize,
    pub(super) slots: usize,
}

fn damaged() -> StoreError {
    StoreError::damaged("a node of a sorted set that is not well-formed")
}

/// The hash by which the table holds a node. Numbers that end alike share a bucket, so the tag is made of their other bits.
pub(super) fn hash_of(number: u32) -> Hash {
    Hash { low: number, tag: ((number.wrapping_mul(0x9e37_79b1) >> 16) as u16).max(1) }
}

fn exists(arena: &Arena, head: &TableHead, number: u32) -> Result<bool> {
    Ok(head.find(arena, hash_of(number), |item| Ok(*arena.get::<u32>(item)? == number))?.is_some())
}

impl Node {
    #[inline]
    pub(super) fn read(arena: &Arena, handle: Handle) -> Result<Node> {
        let header = arena.get::<Header>(handle)?;
        let (level, used, slots) = (header.level & !NODE, header.used as usize, header.slots as usize);
        let most = if level == 0 { LEAF_SLOTS[3] } else { INNER_SLOTS };
        if header.level & NODE == 0 || level > MAX_LEVEL || used == 0 || used > slots || slots > most {
            return Err(damaged());
        }
        Ok(Node { handle, level, used, slots })
    }

    /// Makes an empty node.
    pub(super) fn create(
        heap: &mut Heap,
        head: &mut TableHead,
        hasher: &MemberHasher,
        level: u32,
        slots: usize,
    ) -> Result<Node> {
        let handle = heap.alloc(size_of_node(level, slots))?;
        let mut salt = 0u32;
        let number = loop {
            let name = [handle.raw().to_le_bytes(), salt.to_le_bytes()].concat();
            let number = hasher.hash(&name).low;
            if !exists(&heap.arena, head, number)? {
                break number;
            }
            salt = salt.wrapping_add(1);
        };
        heap.arena.bytes_mut(handle, 0, size_of_node(level, slots))?.fill(0);
        *heap.arena.get_mut::<Header>(handle)? = Header { number, level: level | NODE, used: 0, slots: slots as u32 };
        members::list(heap, head, hash_of(number), handle)?;
        Ok(Node { handle, level, used: 0, slots })
    }

    /// Frees the node.
    pub(super) fn destroy(self, heap: &mut Heap, head: &mut TableHead) -> Result<()> {
        members::unlist(heap, head, self.handle)
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= self.slots
    }

    /// Where a column of words begins.
    fn words_at(&self, column: usize) -> usize {
        HEADER_BYTES + self.slots * (SCORE_BYTES + column * WORD_BYTES)
    }

    #[inline]
    pub(super) fn scores<'a>(&self, arena: &'a Arena) -> Result<&'a [f64]> {
        Ok(arena.slice(self.handle, HEADER_BYTES, self.used)?)
    }

    /// The members of a leaf, the first members of children otherwise.
    #[inline]
    pub(super) fn members<'a>(&self, arena: &'a Arena) -> Result<&'a [Handle]> {
        Ok(arena.slice(self.handle, self.words_at(MEMBERS), self.used)?)
    }

    /// How many members lie below each child.
    fn counts<'a>(&self, arena: &'a Arena) -> Result<&'a [u32]> {
        if self.level == 0 { Err(damaged()) } else { Ok(arena.slice(self.handle, self.words_at(COUNTS), self.used)?) }
    }

    /// Members below some slots.
    pub(super) fn elements_in(&self, arena: &Arena, slots: Range<usize>) -> Result<u64> {
        if self.level == 0 {
            return Ok(slots.len() as u64);
        }
        let counts = self.counts(arena)?.get(slots).ok_or_else(damaged)?;
        Ok(counts.iter().map(|&count| u64::from(count)).sum())
    }

    /// Members below the node.
    pub(super) fn elements(&self, arena: &Arena) -> Result<u64> {
        self.elements_in(arena, 0..self.used)
    }

    /// The slot below which the member of a rank in this node lies, and its rank there.
    pub(super) fn slot_of_rank(&self, arena: &Arena, rank: u64) -> Result<(usize, u64)> {
        if self.level == 0 {
            return if rank < self.used as u64 { Ok((rank as usize, 0)) } else { Err(damaged()) };
        }
        let mut rank = rank;
        for (at, &count) in self.counts(arena)?.iter().enumerate() {
            match rank.checked_sub(u64::from(count)) {
                None => return Ok((at, rank)),
                Some(left) => rank = left,
            }
        }
        Err(damaged())
    }

    #[inline]
    pub(super) fn slot(&self, arena: &Arena, at: usize) -> Result<Slot> {
        let word =
            |column| arena.slice::<u32>(self.handle, self.words_at(column) + at * WORD_BYTES, 1).map(|word| word[0]);
        if at >= self.used {
            return Err(damaged());
        }
        let score = arena.slice::<f64>(self.handle, HEADER_BYTES + at * SCORE_BYTES, 1)?[0];
        let member = Handle::from_raw(word(MEMBERS)?);
        if self.level == 0 {
            return Ok(Slot { score, member, child: Handle::NULL, elements: 1 });
        }
        Ok(Slot { score, member, child: Handle::from_raw(word(CHILDREN)?), elements: word(COUNTS)? })
    }

    /// The child at a slot, which is one level below.
    #[inline]
    pub(super) fn child(&self, arena: &Arena, at: usize) -> Result<Node> {
        let child = Node::read(arena, self.slot(arena, at)?.child)?;
        if child.level + 1 == self.level { Ok(child) } else { Err(damaged()) }
    }

    /// What the slot says that has this node for its child.
    pub(super) fn summary(&self, arena: &Arena) -> Result<Slot> {
        let first = self.slot(arena, 0)?;
        let elements = u32::try_from(self.elements(arena)?).map_err(|_| damaged())?;
        Ok(Slot { child: self.handle, elements, ..first })
    }

    /// How many slots lie before a place.
    #[inline]
    pub(super) fn slots_before(&self, arena: &Arena, cut: &Cut<'_>) -> Result<usize> {
        let scores = self.scores(arena)?;
        let (mut low, mut high) = match *cut {
            Cut::Behind(bound, _) => {
                // Counted rather than searched for: the processor can't foresee the turns of a search, and compares some scores at once.
                let below = scores.iter().filter(|&&score| score < bound).count();
                let equal = scores[below..].iter().take_while(|&&score| score == bound).count();
                (below, below + equal)
            }
            _ => (0, scores.len()),
        };
        if low == high {
            return Ok(low);
        }
        let members = self.members(arena)?;
        while low < high {
            let middle = (low + high) / 2;
            if cut.is_behind(scores[middle], || members::text(arena, members[middle]))? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Writes a slot.
    pub(super) fn set_slot(&self, arena: &mut Arena, at: usize, slot: Slot) -> Result<()> {
        self.check_fits(arena)?;
        self.put_slot(arena, at, slot)
    }

    /// Writes a slot of a node that is known to fit its object.
    pub(super) fn put_slot(&self, arena: &mut Arena, at: usize, slot: Slot) -> Result<()> {
        if at >= self.slots {
            return Err(damaged());
        }
        arena.slice_mut::<f64>(self.handle, HEADER_BYTES + at * SCORE_BYTES, 1)?[0] = slot.score;
        let words = [slot.member.raw(), slot.child.raw(), slot.elements];
        let columns = if self.level == 0 { 1 } else { words.len() };
        for (column, word) in words.into_iter().enumerate().take(columns) {
            arena.slice_mut::<u32>(self.handle, self.words_at(column) + at * WORD_BYTES, 1)?[0] = word;
        }
        Ok(())
    }

    fn set_used(&mut self, arena: &mut Arena, used: usize) -> Result<()> {
        self.used = used;
        arena.get_mut::<Header>(self.handle)?.used = used as u32;
        Ok(())
    }

    /// Moves the slots from one on to another place, maybe of another node of the same level; both are known to fit their objects.
    fn move_slots(&self, arena: &mut Arena, from: Range<usize>, to: &Node, at: usize) -> Result<()> {
        if from.end > self.slots || at + from.len() > to.slots || self.level != to.level {
            return Err(damaged());
        }
        let columns = if self.level == 0 { 1 } else { 3 };
        let scores = |at| HEADER_BYTES + at * SCORE_BYTES;
        arena.copy(self.handle, scores(from.start), to.handle, scores(at), from.len() * SCORE_BYTES)?;
        for column in 0..columns {
            let (start, target) =
                (self.words_at(column) + from.start * WORD_BYTES, to.words_at(column) + at * WORD_BYTES);
            arena.copy(self.handle, start, to.handle, target, from.len() * WORD_BYTES)?;
        }
        Ok(())
    }

    /// Puts another slot before the one at `at`; there is room.
    pub(super) fn insert(&mut self, arena: &mut Arena, at: usize, slot: Slot) -> Result<()> {
        if at > self.used || self.is_full() {
            return Err(damaged());
        }
        self.check_fits(arena)?;
        if at < self.used {
            self.move_slots(arena, at..self.used, self, at + 1)?;
        }
        self.put_slot(arena, at, slot)?;
        self.set_used(arena, self.used + 1)
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, arena: &mut Arena, at: usize) -> Result<()> {
        if at >= self.used {
            return Err(damaged());
        }
        self.check_fits(arena)?;
        self.move_slots(arena, at + 1..self.used, self, at)?;
        self.set_used(arena, self.used - 1)
    }

    /// Moves the slots from one on to the end of another node.
    pub(super) fn move_tail(&mut self, arena: &mut Arena, from: usize, to: &mut Node) -> Result<()> {
        let moved = self.used.checked_sub(from).ok_or_else(damaged)?;
        self.check_fits(arena)?;
        to.check_fits(arena)?;
        self.move_slots(arena, from..self.used, to, to.used)?;
        to.set_used(arena, to.used + moved)?;
        self.set_used(arena, from)
    }

    /// The number by which the table holds the node.
    pub(super) fn number(&self, arena: &Arena) -> Result<u32> {
        Ok(arena.get::<Header>(self.handle)?.number)
    }

    /// Fails if its object is not as large as it says: what is written to it would be another object's.
    pub(super) fn check_fits(&self, arena: &Arena) -> Result<()> {
        let fits = size_of_node(self.level, self.slots) <= arena.usable_size(self.handle)?;
        if fits { Ok(()) } else { Err(damaged()) }
    }

    /// Whether it has as many slots as a node in its place is made with.
    pub(super) fn has_usual_slots(&self, is_root: bool) -> bool {
        match self.level {
            0 if is_root => LEAF_SLOTS.contains(&self.slots),
            0 => self.slots == LEAF_SLOTS[LEAF_SLOTS.len() - 1],
            _ => self.slots == INNER_SLOTS,
        }
    }
}
