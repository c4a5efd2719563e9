//! What is done to the elements of a long list: where they go among its nodes.
//!
//! Relies on `nodes` for the nodes themselves. No node gets larger than the limit, but for one of a single element; a change
//! touches three nodes at most, besides those that go whole.

use std::ops::Range;

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::TableHead;
use crate::table::split::TableSplit;
use crate::value::varint::damaged;

use super::limits::NodeLimit;
use super::nodes::{self, ANCHOR, Anchor, Edit, HEADER_BYTES, Node, WalkBudget};
use super::packed::{self, Element, SoughtElement};
use super::view::{End, locate};

/// Whether a node may have so many bytes and elements.
fn allows(limit: NodeLimit, used: usize, count: usize) -> bool {
    limit.allows(HEADER_BYTES + used, count)
}

/// A list's chain of nodes, to be changed.
pub(super) struct Chain<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) head: &'a mut TableHead,
    /// Numbers new nodes.
    pub(super) hasher: &'a MemberHasher,
    pub(super) limit: NodeLimit,
}

/// So many nodes go, or are moved, at once: as many as are freed in one step.
pub(super) const FEW_NODES: u64 = 512;

/// The nodes at one end that have so many elements; `None` if they are more than `most`.
fn nodes_with(arena: &Arena, head: &TableHead, end: End, elements: u64, most: u64) -> Result<Option<u64>> {
    let anchor = nodes::anchor(arena, head)?;
    let mut number = if end == End::Front { anchor.first } else { anchor.last };
    let (mut left, mut passed) = (elements, 0);
    while left > 0 {
        if passed == most {
            return Ok(None);
        }
        let node = Node::read(arena, head, number)?;
        number = if end == End::Front { node.header.next } else { node.header.previous };
        (left, passed) = (left.saturating_sub(node.count() as u64), passed + 1);
    }
    Ok(Some(passed))
}

/// Whether few nodes lie outside of a range that lies in the list.
fn drops_few(arena: &Arena, head: &TableHead, range: &Range<u64>) -> Result<bool> {
    let len = nodes::anchor(arena, head)?.elements;
    let Some(front) = nodes_with(arena, head, End::Front, range.start, FEW_NODES)? else { return Ok(false) };
    let behind = len.saturating_sub(range.end);
    Ok(nodes_with(arena, head, End::Back, behind, FEW_NODES - front)?.is_some())
}

/// Whether [`Chain::keep`] frees and moves few nodes for a range that lies in the list.
pub(super) fn keeps_at_once(arena: &Arena, head: &TableHead, range: &Range<u64>) -> Result<bool> {
    if head.count <= FEW_NODES || drops_few(arena, head, range)? {
        return Ok(true);
    }
    // Those of the range and of the way to it, from the nearer end.
    let len = nodes::anchor(arena, head)?.elements;
    Ok(nodes_with(arena, head, End::Front, range.end, FEW_NODES)?.is_some()
        || nodes_with(arena, head, End::Back, len.saturating_sub(range.start), FEW_NODES)?.is_some())
}

impl Chain<'_> {
    fn node(&self, number: u32) -> Result<Node> {
        Node::read(&self.heap.arena, self.head, number)
    }

    fn edit(&mut self, node: &Node, edit: Edit<'_>) -> Result<()> {
        nodes::edit(self.heap, self.head, node, edit)
    }

    /// Puts a new node between two.
    fn add(&mut self, between: (u32, u32), parts: [&[u8]; 2], count: usize) -> Result<u32> {
        nodes::add(self.heap, self.head, self.hasher, between, parts, count)
    }

    fn count(&mut self, by: i64) -> Result<()> {
        nodes::count_elements(self.heap, self.head, by)
    }

    /// Fills an empty table with elements that lie one after the other.
    pub(super) fn fill(&mut self, bytes: &[u8], count: usize) -> Result<()> {
        nodes::begin(self.heap, self.head)?;
        let (mut start, mut end, mut taken) = (0, 0, 0);
        for left in (0..count).rev() {
            let span = packed::item_at(bytes, end)?.span;
            if taken > 0 && !allows(self.limit, span.end - start, taken + 1) {
                self.add_last(&bytes[start..end], taken)?;
                (start, taken) = (end, 0);
            }
            (end, taken) = (span.end, taken + 1);
            if left == 0 {
                self.add_last(&bytes[start..end], taken)?;
            }
        }
        self.count(count as i64)
    }

    fn add_last(&mut self, bytes: &[u8], count: usize) -> Result<()> {
        let last = nodes::anchor(&self.heap.arena, self.head)?.last;
        self.add((last, ANCHOR), [bytes, &[]], count).map(drop)
    }

    /// Adds an element at one end; returns how many there are then. `encoded` is what `packed` makes of it.
    pub(super) fn push(&mut self, end: End, encoded: &[u8]) -> Result<u64> {
        let object = nodes::anchor_object(&self.heap.arena, self.head)?;
        let anchor = self.heap.arena.get::<Anchor>(object)?;
        let number = if end == End::Front { anchor.first } else { anchor.last };
        if !self.push_to(number, end, encoded)? {
            let between = if end == End::Front { (ANCHOR, number) } else { (number, ANCHOR) };
            self.add(between, [encoded, &[]], 1)?;
        }
        nodes::count_in(self.heap, object, 1)
    }

    /// Adds an element at one end of a node; false if there is no such node, or it has no room.
    fn push_to(&mut self, number: u32, end: End, encoded: &[u8]) -> Result<bool> {
        if number == ANCHOR {
            return Ok(false);
        }
        let node = self.node(number)?;
        let count = node.count() + 1;
        if !allows(self.limit, node.used() + encoded.len(), count) {
            return Ok(false);
        }
        let at = if end == End::Front { 0 } else { node.used() };
        self.edit(&node, Edit { at, removed: 0, inserted: encoded, count })?;
        Ok(true)
    }

    /// Adds an element before the one at `index`, or behind the last one.
    pub(super) fn insert(&mut self, index: u64, encoded: &[u8]) -> Result<()> {
        let len = nodes::anchor(&self.heap.arena, self.head)?.elements;
        if index == 0 {
            return self.push(End::Front, encoded).map(drop);
        }
        if index >= len {
            return self.push(End::Back, encoded).map(drop);
        }
        let (node, within) = locate(&self.heap.arena, self.head, index)?;
        let (used, count) = (node.used(), node.count());
        if allows(self.limit, used + encoded.len(), count + 1) {
            let at = packed::offset_of(node.elements(&self.heap.arena)?, within, count)?;
            self.edit(&node, Edit { at, removed: 0, inserted: encoded, count: count + 1 })?;
        } else if within == 0 {
            let previous = node.header.previous;
            if !self.push_to(previous, End::Back, encoded)? {
                self.add((previous, node.header.number), [encoded, &[]], 1)?;
            }
        } else {
            self.split(&node, within, encoded)?;
        }
        self.count(1)
    }

    /// Divides a full node before its element at `within`, which is not its first one, and puts another element there.
    fn split(&mut self, node: &Node, within: usize, encoded: &[u8]) -> Result<()> {
        let bytes = node.elements(&self.heap.arena)?;
        let at = packed::offset_of(bytes, within, node.count())?;
        let (right, right_count) = (bytes[at..].to_vec(), node.count() - within);
        let between = (node.header.number, node.header.next);
        let (added, own) = if allows(self.limit, encoded.len() + right.len(), right_count + 1) {
            (self.add(between, [encoded, &right], right_count + 1)?, true)
        } else {
            (self.add(between, [&right, &[]], right_count)?, false)
        };
        // The node's own links have changed, its bytes have not.
        let node = self.node(node.header.number)?;
        let removed = node.used().checked_sub(at).ok_or_else(damaged)?;
        if own {
            return self.edit(&node, Edit { at, removed, inserted: &[], count: within });
        }
        let placed = if allows(self.limit, at + encoded.len(), within + 1) {
            self.edit(&node, Edit { at, removed, inserted: encoded, count: within + 1 })
        } else {
            let between = (node.header.number, added);
            self.add(between, [encoded, &[]], 1)
                .and_then(|_| self.node(node.header.number))
                .and_then(|node| self.edit(&node, Edit { at, removed, inserted: &[], count: within }))
        };
        if placed.is_err() {
            // No element was lost or came twice.
            let added = self.node(added)?;
            nodes::remove(self.heap, self.head, &added)?;
        }
        placed
    }

    /// Puts another element in the place of the one at `index`.
    pub(super) fn set(&mut self, index: u64, encoded: &[u8]) -> Result<()> {
        let (node, within) = locate(&self.heap.arena, self.head, index)?;
        let bytes = node.elements(&self.heap.arena)?;
        let span = packed::item_at(bytes, packed::offset_of(bytes, within, node.count())?)?.span;
        let count = node.count();
        if count == 1 || allows(self.limit, node.used() - span.len() + encoded.len(), count) {
            return self.edit(&node, Edit { at: span.start, removed: span.len(), inserted: encoded, count });
        }
        self.insert(index, encoded)?;
        self.remove(index + 1)
    }

    /// Takes the element at `index` out.
    fn remove(&mut self, index: u64) -> Result<()> {
        let (node, within) = locate(&self.heap.arena, self.head, index)?;
        let bytes = node.elements(&self.heap.arena)?;
        let span = packed::item_at(bytes, packed::offset_of(bytes, within, node.count())?)?.span;
        self.cut(&node, span.start, span.len(), 1)?;
        self.count(-1)
    }

    /// Takes some elements out of a node, which goes with its last one.
    fn cut(&mut self, node: &Node, at: usize, removed: usize, elements: usize) -> Result<()> {
        match node.count().saturating_sub(elements) {
            0 => nodes::remove(self.heap, self.head, node),
            count => self.edit(node, Edit { at, removed, inserted: &[], count }),
        }
    }

    /// Keeps only the elements of a range, which is neither empty nor all of the list.
    pub(super) fn keep(&mut self, range: Range<u64>) -> Result<()> {
        let len = nodes::anchor(&self.heap.arena, self.head)?.elements;
        let (mut front, mut back) = (range.start, len.saturating_sub(range.end));
        if self.head.count > FEW_NODES && !drops_few(&self.heap.arena, self.head, &range)? {
            let (first, before) = locate(&self.heap.arena, self.head, range.start)?;
            let (last, within) = locate(&self.heap.arena, self.head, range.end.saturating_sub(1))?;
            let (before, behind) = (before as u64, (last.count() - 1 - within) as u64);
            let elements = (range.end - range.start).saturating_add(before).saturating_add(behind);
            if nodes::keep_only(self.heap, self.head, (first.header.number, last.header.number), elements)? {
                (front, back) = (before, behind);
            }
        }
        self.drop_end(End::Back, back)?;
        self.drop_end(End::Front, front)
    }

    /// As [`Chain::keep`], of a range for which the chain was divided.
    pub(super) fn keep_split(&mut self, split: TableSplit, nodes: [Handle; 2]) -> Result<()> {
        let ends = nodes::take_split(self.heap, self.head, split, nodes)?;
        self.drop_end(End::Back, ends.behind)?;
        self.drop_end(End::Front, ends.before)
    }

    /// Calls `f` with the element at one end, and takes it off unless it returns false. `None`, and nothing is done, if there are no more
    /// than that one.
    pub(super) fn pop(&mut self, end: End, f: &mut dyn FnMut(Element<'_>) -> bool) -> Result<Option<bool>> {
        let object = nodes::anchor_object(&self.heap.arena, self.head)?;
        let anchor = self.heap.arena.get::<Anchor>(object)?;
        if anchor.elements <= 1 {
            return Ok(None);
        }
        let node = self.node(if end == End::Front { anchor.first } else { anchor.last })?;
        let bytes = node.elements(&self.heap.arena)?;
        let item =
            if end == End::Front { packed::item_at(bytes, 0)? } else { packed::item_before(bytes, bytes.len())? };
        if !f(item.element) {
            return Ok(Some(false));
        }
        let span = item.span;
        self.cut(&node, span.start, span.len(), 1)?;
        nodes::count_in(self.heap, object, -1)?;
        Ok(Some(true))
    }

    /// Takes so many elements off one end; there are more.
    pub(super) fn drop_end(&mut self, end: End, elements: u64) -> Result<()> {
        let mut left = elements;
        while left > 0 {
            let anchor = nodes::anchor(&self.heap.arena, self.head)?;
            let node = self.node(if end == End::Front { anchor.first } else { anchor.last })?;
            let gone = left.min(node.count() as u64) as usize;
            if gone == node.count() {
                nodes::remove(self.heap, self.head, &node)?;
            } else {
                let bytes = node.elements(&self.heap.arena)?;
                let (at, removed) = match end {
                    End::Front => (0, packed::end_of(bytes, gone)?),
                    End::Back => {
                        let at = packed::start_of(bytes, gone)?;
                        (at, bytes.len() - at)
                    }
                };
                self.cut(&node, at, removed, gone)?;
            }
            self.count(-(gone as i64))?;
            left -= gone as u64;
        }
        Ok(())
    }

    /// Takes up to `most` elements that equal `wanted` out, from one end on; returns how many.
    pub(super) fn remove_equal(&mut self, from: End, wanted: &SoughtElement<'_>, most: u64) -> Result<u64> {
        let anchor = nodes::anchor(&self.heap.arena, self.head)?;
        let mut number = if from == End::Front { anchor.first } else { anchor.last };
        let (mut removed, mut budget) = (0, WalkBudget::new(&self.heap.arena));
        for _ in 0..self.head.count {
            if number == ANCHOR || removed == most {
                return Ok(removed);
            }
            let node = self.node(number)?;
            budget.pass(&node)?;
            number = if from == End::Front { node.header.next } else { node.header.previous };
            let bytes = node.elements(&self.heap.arena)?;
            let Some(kept) = without(bytes, node.count(), from, wanted, most - removed)? else { continue };
            let gone = node.count() - kept.1;
            match kept {
                (_, 0) => nodes::remove(self.heap, self.head, &node)?,
                (kept, count) => self.edit(&node, Edit { at: 0, removed: node.used(), inserted: &kept, count })?,
            }
            self.count(-(gone as i64))?;
            removed += gone as u64;
        }
        if number == ANCHOR { Ok(removed) } else { Err(StoreError::damaged("a list's nodes have no end")) }
    }
}

/// What is left of some elements, and how many, without up to `most` that equal `wanted`; none if all are.
pub(super) fn without(
    bytes: &[u8],
    count: usize,
    from: End,
    wanted: &SoughtElement<'_>,
    most: u64,
) -> Result<Option<(Vec<u8>, usize)>> {
    let mut spans = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let item = packed::item_at(bytes, at)?;
        at = item.span.end;
        if wanted.is(&item.element) {
            spans.push(item.span);
        }
    }
    let most = spans.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    if most == 0 {
        return Ok(None);
    }
    let gone = if from == End::Front { &spans[..most] } else { &spans[spans.len() - most..] };
    let (mut kept, mut start) = (Vec::with_capacity(bytes.len()), 0);
    for span in gone {
        kept.extend_from_slice(&bytes[start..span.start]);
        start = span.end;
    }
    kept.extend_from_slice(&bytes[start..at]);
    Ok(Some((kept, count - most)))
}
