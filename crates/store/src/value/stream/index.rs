//! The index of a large stream: one B+-tree of everything in it that has an order. A key is a space and an ID within that: the blocks of
//! entries by their first IDs, groups, consumers by their groups, and what is pending, for each group and for each consumer.
//!
//! Relies on `nodes` for the nodes and on `items` for their objects. The ways down are bounded, since each level is one below the last.

use std::cmp::Ordering;

use quire_arena::Arena;
use zerocopy::IntoBytes;

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::TableHead;

use super::id::StreamId;
use super::items::{self, HEADER_BYTES, ItemHeader, ItemKind};
use super::nodes::{Key, MAX_LEVEL, MOST_SLOTS, Node, SLOT_BYTES, Slot, damaged};

/// Slots that a node is made with, if it is the only one.
const FIRST_SLOTS: usize = 4;
/// A node of whose slots fewer than one in so many are in use is joined with a neighbour.
const JOIN_ONE_IN: usize = 4;

/// Which way keys are walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOrder {
    /// From the lowest ID on.
    Up,
    /// From the highest ID on.
    Down,
}

/// A way from the root to a slot, or behind the last one, of a leaf.
#[derive(Clone, Debug)]
struct Path {
    steps: Vec<(Node, usize)>,
}

impl Path {
    /// To the first slot of its leaf that is not before a key.
    fn to(arena: &Arena, head: &TableHead, root: u32, key: &Key) -> Result<Path> {
        let mut node = Node::read(arena, head, root)?;
        let mut steps = Vec::with_capacity(node.level as usize + 1);
        while node.level > 0 {
            let at = node.way_to(arena, key)?;
            let child = node.child(arena, head, at)?;
            steps.push((node, at));
            node = child;
        }
        let at = node.slots_before(arena, key)?;
        steps.push((node, at));
        Ok(Path { steps })
    }

    fn leaf(&self) -> Result<(Node, usize)> {
        self.steps.last().copied().ok_or_else(damaged)
    }

    /// Goes to the first slot of the next leaf, or the last slot of the one before; false if there is none.
    fn turn(&mut self, arena: &Arena, head: &TableHead, order: StreamOrder) -> Result<bool> {
        let depth = self.steps.len();
        while let Some((node, at)) = self.steps.pop() {
            if node.level == 0 {
                continue;
            }
            let next = match order {
                StreamOrder::Up => Some(at + 1).filter(|&at| at < node.used),
                StreamOrder::Down => at.checked_sub(1),
            };
            let Some(at) = next else { continue };
            self.steps.push((node, at));
            while self.steps.len() < depth {
                let (node, at) = self.leaf()?;
                let child = node.child(arena, head, at)?;
                self.steps.push((child, if order == StreamOrder::Up { 0 } else { child.used - 1 }));
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// The slot of a key.
pub(super) fn get(arena: &Arena, head: &TableHead, root: u32, key: &Key) -> Result<Option<Slot>> {
    if root == 0 {
        return Ok(None);
    }
    let (leaf, at) = Path::to(arena, head, root, key)?.leaf()?;
    Ok(leaf.slots(arena)?.get(at).filter(|slot| slot.key() == *key).copied())
}

/// The first slot of all: one of the first space, unless that is empty.
pub(super) fn first(arena: &Arena, head: &TableHead, root: u32) -> Result<Option<Slot>> {
    if root == 0 {
        return Ok(None);
    }
    let mut node = Node::read(arena, head, root)?;
    while node.level > 0 {
        node = node.child(arena, head, 0)?;
    }
    Ok(node.slots(arena)?.first().copied())
}

/// The last slot of the key's space that is not behind it.
pub(super) fn floor(arena: &Arena, head: &TableHead, root: u32, key: &Key) -> Result<Option<Slot>> {
    let mut found = None;
    walk(arena, head, root, (Key::new(key.space, StreamId::MIN), *key), StreamOrder::Down, &mut |slot| {
        found = Some(*slot);
        Ok(false)
    })?;
    Ok(found)
}

/// Calls `f` with the slots from one key to another one, both included, until it returns false.
pub(super) fn walk(
    arena: &Arena,
    head: &TableHead,
    root: u32,
    (from, to): (Key, Key),
    order: StreamOrder,
    f: &mut dyn FnMut(&Slot) -> Result<bool>,
) -> Result<()> {
    if root == 0 || from > to {
        return Ok(());
    }
    let mut path = Path::to(arena, head, root, if order == StreamOrder::Up { &from } else { &to })?;
    let (leaf, at) = path.leaf()?;
    let slots = leaf.slots(arena)?;
    let mut here = match order {
        StreamOrder::Up => &slots[at..],
        StreamOrder::Down => &slots[..at + usize::from(slots.get(at).is_some_and(|slot| slot.key() == to))],
    };
    let mut last = None;
    loop {
        for number in 0..here.len() {
            let slot = &here[if order == StreamOrder::Up { number } else { here.len() - 1 - number }];
            let key = slot.key();
            if key < from || key > to {
                return Ok(());
            }
            // Also ends the walk through nodes that a damaged image has more than once.
            let expected = if order == StreamOrder::Up { Ordering::Less } else { Ordering::Greater };
            if last.replace(key).is_some_and(|last: Key| last.cmp(&key) != expected) {
                return Err(StoreError::damaged("a stream's index that is not in order"));
            }
            if !f(slot)? {
                return Ok(());
            }
        }
        if !path.turn(arena, head, order)? {
            return Ok(());
        }
        here = path.leaf()?.0.slots(arena)?;
    }
}

/// The index, to be changed.
pub(super) struct Index<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) head: &'a mut TableHead,
    /// Numbers new nodes.
    pub(super) hasher: &'a MemberHasher,
}

impl Index<'_> {
    fn root(&self) -> Result<u32> {
        Ok(items::anchor(&self.heap.arena, self.head)?.root)
    }

    fn set_root(&mut self, root: u32) -> Result<()> {
        items::change_anchor(self.heap, self.head, |anchor| anchor.root = root)
    }

    fn node(&self, number: u32) -> Result<Node> {
        Node::read(&self.heap.arena, self.head, number)
    }

    /// Makes a node of some slots; there is at least one.
    fn create(&mut self, level: u32, slots: &[Slot], room: usize) -> Result<Node> {
        let number = items::new_number(self.heap, self.head, self.hasher)?;
        let header =
            ItemHeader { number, kind: ItemKind::Node as u32 | level << 8, word: slots.len() as u32, name_len: 0 };
        let handle = items::add(self.heap, self.head, number, HEADER_BYTES + room * SLOT_BYTES, |bytes| {
            bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            bytes[HEADER_BYTES..][..slots.len() * SLOT_BYTES].copy_from_slice(slots.as_bytes());
        })?;
        Ok(Node { handle, number, level, used: slots.len() })
    }

    fn destroy(&mut self, node: Node) -> Result<()> {
        items::remove(self.heap, self.head, node.handle)
    }

    /// Gives a key a value, a new one or another one. Nothing has changed if this fails.
    pub(super) fn set(&mut self, slot: Slot) -> Result<()> {
        let root = self.root()?;
        if root == 0 {
            let node = self.create(0, &[slot], FIRST_SLOTS)?;
            return self.set_root(node.number);
        }
        let path = Path::to(&self.heap.arena, self.head, root, &slot.key())?;
        let (leaf, at) = path.leaf()?;
        if at < leaf.used && leaf.slot(&self.heap.arena, at)?.key() == slot.key() {
            return leaf.put(&mut self.heap.arena, at, slot);
        }
        if leaf.used < MOST_SLOTS {
            let mut leaf = self.with_room(leaf)?;
            return leaf.insert(&mut self.heap.arena, at, slot);
        }
        self.split(path, slot)
    }

    /// The node with room for a slot more; there is one that it may have.
    fn with_room(&mut self, node: Node) -> Result<Node> {
        if node.room(&self.heap.arena)? > node.used {
            return Ok(node);
        }
        let keep = HEADER_BYTES + node.used * SLOT_BYTES;
        let room = (2 * node.used).clamp(FIRST_SLOTS, MOST_SLOTS);
        let bytes = HEADER_BYTES + room * SLOT_BYTES;
        let handle = items::resize(self.heap, self.head, node.handle, keep, bytes)?;
        Ok(Node { handle, ..node })
    }

    /// Puts a slot into a full leaf, whose half goes to a new one. All nodes that this needs are made before any is changed.
    fn split(&mut self, path: Path, slot: Slot) -> Result<()> {
        let full = path.steps.iter().rev().take_while(|(node, _)| node.used >= MOST_SLOTS).count();
        let mut spare = Vec::with_capacity(full + 1);
        let made = self.make_spare(&path, full, &mut spare);
        if let Err(error) = made {
            spare.into_iter().try_for_each(|node| self.destroy(node))?;
            return Err(error);
        }
        // What is added at the end only, as times are, fills the nodes.
        let is_last = path.steps.iter().all(|(node, at)| at + usize::from(node.level > 0) == node.used);
        let (mut carried, mut spare) = (slot, spare.into_iter());
        for (depth, (mut node, at)) in path.steps.iter().copied().enumerate().rev() {
            let at = at + usize::from(node.level > 0);
            if node.used < MOST_SLOTS {
                let mut node = self.node(node.number)?;
                return node.insert(&mut self.heap.arena, at, carried);
            }
            let mut right = spare.next().ok_or_else(damaged)?;
            let arena = &mut self.heap.arena;
            let mut slots = node.slots(arena)?.to_vec();
            slots.insert(at, carried);
            let kept = if is_last { node.used } else { slots.len() / 2 };
            node.room(arena)?;
            arena.slice_mut::<Slot>(node.handle, HEADER_BYTES, kept)?.copy_from_slice(&slots[..kept]);
            node.set_used(arena, kept)?;
            let moved = &slots[kept..];
            arena.slice_mut::<Slot>(right.handle, HEADER_BYTES, moved.len())?.copy_from_slice(moved);
            right.set_used(arena, moved.len())?;
            carried = Slot::new(moved[0].key(), right.number);
            if depth == 0 {
                let root = spare.next().ok_or_else(damaged)?;
                let first = Slot::new(slots[0].key(), node.number);
                root.put(&mut self.heap.arena, 0, first)?;
                let mut root = root;
                root.insert(&mut self.heap.arena, 1, carried)?;
                return self.set_root(root.number);
            }
        }
        Err(damaged())
    }

    /// The nodes for a split of the path's full nodes, from the leaf up, and room in the node above them.
    fn make_spare(&mut self, path: &Path, full: usize, spare: &mut Vec<Node>) -> Result<()> {
        let levels = full + usize::from(full == path.steps.len());
        if levels > MAX_LEVEL as usize {
            return Err(damaged());
        }
        for level in 0..levels as u32 {
            spare.push(self.create(level, &[Slot::default()], MOST_SLOTS)?);
        }
        if let Some((node, _)) = path.steps.len().checked_sub(full + 1).and_then(|depth| path.steps.get(depth)) {
            self.with_room(*node)?;
        }
        Ok(())
    }

    /// Takes a key out; returns what it had.
    pub(super) fn remove(&mut self, key: &Key) -> Result<Option<Slot>> {
        let root = self.root()?;
        if root == 0 {
            return Ok(None);
        }
        let path = Path::to(&self.heap.arena, self.head, root, key)?;
        let (leaf, at) = path.leaf()?;
        let found = leaf.slots(&self.heap.arena)?.get(at).filter(|slot| slot.key() == *key).copied();
        if found.is_some() {
            self.take_out(path)?;
        }
        Ok(found)
    }

    /// Takes the slot to which a path leads out of its leaf, and the nodes that are empty then.
    fn take_out(&mut self, path: Path) -> Result<()> {
        let mut below: Option<Node> = None;
        for (mut node, at) in path.steps.into_iter().rev() {
            match below {
                Some(child) if child.used > 0 => {
                    if child.used < MOST_SLOTS / JOIN_ONE_IN {
                        self.join(&mut node, at)?;
                    }
                }
                Some(child) => {
                    node.remove(&mut self.heap.arena, at)?;
                    self.destroy(child)?;
                }
                None => node.remove(&mut self.heap.arena, at)?,
            }
            below = Some(node);
        }
        let root = below.ok_or_else(damaged)?;
        self.settle_root(root)
    }

    /// Joins a child that has few slots with a neighbour, if both leave room for more.
    fn join(&mut self, parent: &mut Node, own: usize) -> Result<()> {
        for at in [Some(own), own.checked_sub(1)].into_iter().flatten() {
            if at + 1 >= parent.used {
                continue;
            }
            let arena = &self.heap.arena;
            let (mut left, right) = (parent.child(arena, self.head, at)?, parent.child(arena, self.head, at + 1)?);
            let (used, room) = (left.used + right.used, left.room(arena)?);
            if used * 4 > MOST_SLOTS * 3 || used > room {
                continue;
            }
            let moved = right.slots(arena)?.to_vec();
            let arena = &mut self.heap.arena;
            arena.slice_mut::<Slot>(left.handle, HEADER_BYTES, used)?[left.used..].copy_from_slice(&moved);
            left.set_used(arena, used)?;
            parent.remove(arena, at + 1)?;
            return self.destroy(right);
        }
        Ok(())
    }

    /// Frees a root that is empty, or that leads to one node only.
    fn settle_root(&mut self, root: Node) -> Result<()> {
        if root.used == 0 {
            self.set_root(0)?;
            return self.destroy(root);
        }
        let mut root = root;
        while root.level > 0 && root.used == 1 {
            let child = root.child(&self.heap.arena, self.head, 0)?;
            self.set_root(child.number)?;
            self.destroy(root)?;
            root = child;
        }
        Ok(())
    }
}

/// What a check of an index has passed so far.
struct Passed {
    nodes: u64,
    last: Option<Key>,
    /// What leads to a key is not behind it.
    least: Key,
}

/// Checks the nodes of an index: keys in order, each behind what leads to it. Calls `f` with every slot of the leaves; returns how many
/// nodes there are. Takes as long as the index is large.
pub(super) fn check(arena: &Arena, head: &TableHead, root: u32, f: &mut dyn FnMut(&Slot) -> Result<()>) -> Result<u64> {
    if root == 0 {
        return Ok(0);
    }
    let mut passed = Passed { nodes: 0, last: None, least: Key::default() };
    check_node(arena, head, &Node::read(arena, head, root)?, &mut passed, f)?;
    Ok(passed.nodes)
}

fn check_node(
    arena: &Arena,
    head: &TableHead,
    node: &Node,
    passed: &mut Passed,
    f: &mut dyn FnMut(&Slot) -> Result<()>,
) -> Result<()> {
    // A node that is there twice has keys that are not in order.
    passed.nodes += 1;
    node.room(arena)?;
    for at in 0..node.used {
        let slot = node.slot(arena, at)?;
        let in_order = passed.last.is_none_or(|last| slot.key() > last);
        if node.level > 0 {
            if at > 0 {
                passed.least = slot.key();
            }
            if at > 0 && !in_order {
                return Err(damaged());
            }
            check_node(arena, head, &node.child(arena, head, at)?, passed, f)?;
        } else if in_order && slot.key() >= passed.least {
            passed.last = Some(slot.key());
            f(&slot)?;
        } else {
            return Err(damaged());
        }
    }
    Ok(())
}
