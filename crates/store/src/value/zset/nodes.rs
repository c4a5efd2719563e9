//! The nodes of a large sorted set's tree: arena objects in the same table as its members, so that a sorted set is freed and copied
//! as any table of objects is.
//!
//! ```text
//! 0  number u32 · level u32 (bit 31 set, bit 30 in a wide node) · slots in use u32 · slots u32
//! 16 a column for each field of a slot, as long as there are slots:
//!    score f64 · member handle u32;  above the leaves also: child handle u32 · members below it u32;
//!    in a wide node also: the four bits that the handle of the member, and that of the child, has above 32
//! ```
//!
//! A slot of a leaf, which is level 0, is a member. A slot of another node is a child, with the score and the member that its first
//! slot has: so a way down compares scores in a row, and follows a handle only where they are equal.
//!
//! Nodes are wide in an arena that may reach beyond 64 GiB, but for those of an image from another one, until they are changed. What is
//! above a wide node is wide.
//!
//! Nodes are found by their handles. Their numbers only give them a place in the table: each is another one, a hash of the handle
//! that the node had when it was made, by the store's secret seed, so that a client can't foresee them. A copy keeps them.

use std::ops::Range;

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::bucket::Tag;
use crate::table::{Hash, TableHead};

use super::members::{self, NODE};
use super::order::{Cut, count_below};

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
/// Beside the level: the node is wide.
const WIDE: u32 = 1 << 30;
/// Bits that a handle has above 32.
const HIGH_BITS: usize = 4;
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
const _: () = assert!(size_of_node(0, LEAF_SLOTS[3], false) == 1024 && size_of_node(1, INNER_SLOTS, false) <= 1024);
const _: () = assert!(size_of_node(0, LEAF_SLOTS[3], true) <= 1088 && size_of_node(1, INNER_SLOTS, true) <= 1088);

/// Columns of words.
const fn columns(level: u32) -> usize {
    if level == 0 { 1 } else { 3 }
}

/// Handles of a slot.
const fn handles(level: u32) -> usize {
    if level == 0 { 1 } else { 2 }
}

const fn bytes_of_highs(level: u32, slots: usize) -> usize {
    (slots * handles(level) * HIGH_BITS).div_ceil(u8::BITS as usize)
}

const fn size_of_node(level: u32, slots: usize, is_wide: bool) -> usize {
    let highs = if is_wide { bytes_of_highs(level, slots) } else { 0 };
    HEADER_BYTES + slots * (SCORE_BYTES + WORD_BYTES * columns(level)) + highs
}

/// The upper bits of one handle of those that lie in these bytes.
fn high_in(bytes: &[u8], index: usize) -> u8 {
    bytes.get(index / 2).map_or(0, |byte| byte >> (index % 2 * HIGH_BITS) & 0xf)
}

fn set_high_in(bytes: &mut [u8], index: usize, high: u8) {
    if let Some(byte) = bytes.get_mut(index / 2) {
        let shift = index % 2 * HIGH_BITS;
        *byte = *byte & !(0xf << shift) | high << shift;
    }
}

/// How many bytes the copy of an item gets: room for a wide node, if it is a node that may become one.
pub(super) fn room_of_copy(arena: &Arena, item: Handle, bytes: usize) -> Result<usize> {
    if !arena.may_be_wide() || members::is_member(arena, item)? {
        return Ok(bytes);
    }
    let node = Node::read(arena, item)?;
    Ok(bytes.max(size_of_node(node.level, node.slots, true)))
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
    pub(super) is_wide: bool,
}

/// The members that the slots of a node have.
pub(super) struct Members<'a> {
    lows: &'a [u32],
    /// Empty if no handle has more than 32 bits.
    highs: &'a [u8],
    handles: usize,
}

impl Members<'_> {
    #[inline]
    pub(super) fn at(&self, slot: usize) -> Handle {
        let high = if self.highs.is_empty() { 0 } else { high_in(self.highs, slot * self.handles) };
        Handle::from_parts(self.lows[slot], high)
    }
}

fn damaged() -> StoreError {
    StoreError::damaged("a node of a sorted set that is not well-formed")
}

/// The hash by which the table holds a node. Numbers that end alike share a bucket, so the tag is made of their other bits.
pub(super) fn hash_of(number: u32) -> Hash {
    Hash { low: number, tag: Tag::of((number.wrapping_mul(0x9e37_79b1) >> 16) as u16) }
}

fn exists(arena: &Arena, head: &TableHead, number: u32) -> Result<bool> {
    Ok(head.find(arena, hash_of(number), |item| Ok(*arena.get::<u32>(item)? == number))?.is_some())
}

impl Node {
    #[inline]
    pub(super) fn read(arena: &Arena, handle: Handle) -> Result<Node> {
        let header = arena.get::<Header>(handle)?;
        let (level, used, slots) = (header.level & !(NODE | WIDE), header.used as usize, header.slots as usize);
        let most = if level == 0 { LEAF_SLOTS[3] } else { INNER_SLOTS };
        if header.level & NODE == 0 || level > MAX_LEVEL || used == 0 || used > slots || slots > most {
            return Err(damaged());
        }
        Ok(Node { handle, level, used, slots, is_wide: header.level & WIDE != 0 })
    }

    /// Makes an empty node.
    pub(super) fn create(
        heap: &mut Heap,
        head: &mut TableHead,
        hasher: &MemberHasher,
        level: u32,
        slots: usize,
    ) -> Result<Node> {
        let is_wide = heap.arena.may_be_wide();
        let bytes = size_of_node(level, slots, is_wide);
        let handle = heap.alloc(bytes)?;
        let mut salt = 0u32;
        let number = loop {
            let name = [handle.low().to_le_bytes(), salt.to_le_bytes()].concat();
            let number = hasher.hash(&name).low;
            if !exists(&heap.arena, head, number)? {
                break number;
            }
            salt = salt.wrapping_add(1);
        };
        heap.arena.bytes_mut(handle, 0, bytes)?.fill(0);
        let kind = NODE | if is_wide { WIDE } else { 0 };
        *heap.arena.get_mut::<Header>(handle)? = Header { number, level: level | kind, used: 0, slots: slots as u32 };
        members::list(heap, head, hash_of(number), handle, bytes)?;
        Ok(Node { handle, level, used: 0, slots, is_wide })
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

    /// Where the upper bits of a wide node's handles lie.
    fn highs_range(&self) -> (usize, usize) {
        (self.words_at(columns(self.level)), bytes_of_highs(self.level, self.slots))
    }

    #[inline]
    fn highs<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        if !self.is_wide {
            return Ok(&[]);
        }
        let (start, len) = self.highs_range();
        Ok(arena.bytes(self.handle, start, len)?)
    }

    /// Makes it a wide node, if its object has room for that; says whether it is one then.
    pub(super) fn widen_in_place(&mut self, arena: &mut Arena) -> Result<bool> {
        if !self.is_wide && size_of_node(self.level, self.slots, true) <= arena.usable_size(self.handle)? {
            let (start, len) = self.highs_range();
            arena.bytes_mut(self.handle, start, len)?.fill(0);
            arena.get_mut::<Header>(self.handle)?.level |= WIDE;
            self.is_wide = true;
        }
        Ok(self.is_wide)
    }

    #[inline]
    pub(super) fn scores<'a>(&self, arena: &'a Arena) -> Result<&'a [f64]> {
        Ok(arena.slice(self.handle, HEADER_BYTES, self.used)?)
    }

    /// The members of a leaf, the first members of children otherwise.
    #[inline]
    pub(super) fn members<'a>(&self, arena: &'a Arena) -> Result<Members<'a>> {
        let lows = arena.slice(self.handle, self.words_at(MEMBERS), self.used)?;
        Ok(Members { lows, highs: self.highs(arena)?, handles: handles(self.level) })
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
        let (highs, first) = (self.highs(arena)?, at * handles(self.level));
        let member = Handle::from_parts(word(MEMBERS)?, high_in(highs, first));
        if self.level == 0 {
            return Ok(Slot { score, member, child: Handle::NULL, elements: 1 });
        }
        let child = Handle::from_parts(word(CHILDREN)?, high_in(highs, first + 1));
        Ok(Slot { score, member, child, elements: word(COUNTS)? })
    }

    /// The child at a slot, which is one level below.
    #[inline]
    pub(super) fn child(&self, arena: &Arena, at: usize) -> Result<Node> {
        // The handle alone: a way down needs no more of the slot.
        if at >= self.used || self.level == 0 {
            return Err(damaged());
        }
        let low = arena.slice::<u32>(self.handle, self.words_at(CHILDREN) + at * WORD_BYTES, 1)?[0];
        let high = high_in(self.highs(arena)?, at * handles(self.level) + 1);
        let child = Node::read(arena, Handle::from_parts(low, high))?;
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
                let below = count_below(scores, bound);
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
            if cut.is_behind(scores[middle], || members::text(arena, members.at(middle)))? {
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
        let highs = [slot.member.high(), slot.child.high()];
        if !self.is_wide && highs != [0, 0] {
            return Err(damaged());
        }
        arena.slice_mut::<f64>(self.handle, HEADER_BYTES + at * SCORE_BYTES, 1)?[0] = slot.score;
        let words = [slot.member.low(), slot.child.low(), slot.elements];
        for (column, word) in words.into_iter().enumerate().take(columns(self.level)) {
            arena.slice_mut::<u32>(self.handle, self.words_at(column) + at * WORD_BYTES, 1)?[0] = word;
        }
        if self.is_wide {
            let ((start, len), handles) = (self.highs_range(), handles(self.level));
            let bytes = arena.bytes_mut(self.handle, start, len)?;
            highs[..handles]
                .iter()
                .enumerate()
                .for_each(|(which, &high)| set_high_in(bytes, at * handles + which, high));
        }
        Ok(())
    }

    /// Counts one member more below a child.
    pub(super) fn count_one_more(&self, arena: &mut Arena, at: usize) -> Result<()> {
        self.check_fits(arena)?;
        let count = self.counts(arena)?.get(at).and_then(|count| count.checked_add(1)).ok_or_else(damaged)?;
        arena.slice_mut::<u32>(self.handle, self.words_at(COUNTS) + at * WORD_BYTES, 1)?[0] = count;
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
        if self.is_wide || to.is_wide {
            self.move_highs(arena, &from, to, at)?;
        }
        let scores = |at| HEADER_BYTES + at * SCORE_BYTES;
        arena.copy(self.handle, scores(from.start), to.handle, scores(at), from.len() * SCORE_BYTES)?;
        for column in 0..columns(self.level) {
            let (start, target) =
                (self.words_at(column) + from.start * WORD_BYTES, to.words_at(column) + at * WORD_BYTES);
            arena.copy(self.handle, start, to.handle, target, from.len() * WORD_BYTES)?;
        }
        Ok(())
    }

    /// What [`Node::move_slots`] does with what the handles have above 32 bits.
    fn move_highs(&self, arena: &mut Arena, from: &Range<usize>, to: &Node, at: usize) -> Result<()> {
        let handles = handles(self.level);
        let highs = self.highs(arena)?;
        let moved: Vec<u8> = (from.start * handles..from.end * handles).map(|index| high_in(highs, index)).collect();
        if !to.is_wide {
            return if moved.iter().all(|&high| high == 0) { Ok(()) } else { Err(damaged()) };
        }
        let (start, len) = to.highs_range();
        let bytes = arena.bytes_mut(to.handle, start, len)?;
        moved.into_iter().enumerate().for_each(|(index, high)| set_high_in(bytes, at * handles + index, high));
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
        let fits = size_of_node(self.level, self.slots, self.is_wide) <= arena.usable_size(self.handle)?;
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
