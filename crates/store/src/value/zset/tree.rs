//! The tree of a large sorted set: a B+-tree that counts, so that ranks are found as members are.
//!
//! The slot of a child has the child's first member always, so no slot has a member that was removed. What adds a member makes all
//! nodes that it needs before it changes any, so nothing has changed if this fails. Nodes that got empty are freed, and those with
//! few slots joined with a neighbour.
//!
//! Relies on `nodes` for the nodes and on `path` for the ways down, which are bounded.

use std::ops::Range;

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::{Hash, TableHead};

use super::members;
use super::nodes::{INNER_SLOTS, LEAF_SLOTS, LEVELS, Node, Slot};
use super::order::{Cut, Direction, precedes};
use super::path::{Path, Step};

/// Members whose loading is started before they are asked for.
const AHEAD: usize = 8;
/// A node of whose slots fewer than one in so many are in use is joined with a neighbour.
const JOIN_ONE_IN: usize = 4;
/// A member with its header takes at least so many bytes.
const LEAST_BYTES: u64 = 16;

fn damaged() -> StoreError {
    StoreError::damaged("a sorted set's tree that is not well-formed")
}

/// Members of the tree.
#[inline]
pub(super) fn len(arena: &Arena, head: &TableHead) -> Result<u64> {
    if head.root().is_null() {
        return Ok(0);
    }
    let elements = Node::read(arena, head.root())?.elements(arena)?;
    // No walk through the members is longer than this, in a damaged image either.
    if elements > head.count || elements > arena.stats().committed_bytes / LEAST_BYTES {
        return Err(StoreError::damaged("a sorted set with fewer members than it says"));
    }
    Ok(elements)
}

/// The way to a place.
fn descend(arena: &Arena, head: &TableHead, cut: &Cut<'_>) -> Result<Path> {
    let mut path = Path::new();
    let mut node = Node::read(arena, head.root())?;
    loop {
        let before = node.slots_before(arena, cut)?;
        if node.level == 0 {
            path.push(node, before)?;
            return Ok(path);
        }
        let at = before.saturating_sub(1);
        path.push(node, at)?;
        node = node.child(arena, at)?;
    }
}

/// How many members lie before a place; no more than there are.
pub(super) fn rank(arena: &Arena, head: &TableHead, cut: &Cut<'_>) -> Result<u64> {
    if head.root().is_null() {
        return Ok(0);
    }
    let (mut rank, mut node) = (0, Node::read(arena, head.root())?);
    while node.level > 0 {
        let at = node.slots_before(arena, cut)?.saturating_sub(1);
        rank += node.elements_in(arena, 0..at)?;
        node = node.child(arena, at)?;
    }
    rank += node.slots_before(arena, cut)? as u64;
    if rank > len(arena, head)? {
        return Err(StoreError::damaged("a sorted set with more members than it says"));
    }
    Ok(rank)
}

/// The way to the member of a rank.
fn seek(arena: &Arena, head: &TableHead, rank: u64) -> Result<Path> {
    let (mut path, mut rank) = (Path::new(), rank);
    let mut node = Node::read(arena, head.root())?;
    loop {
        let (at, below) = node.slot_of_rank(arena, rank)?;
        path.push(node, at)?;
        if node.level == 0 {
            return Ok(path);
        }
        (node, rank) = (node.child(arena, at)?, below);
    }
}

/// The way to a member that the table has.
fn locate(arena: &Arena, head: &TableHead, item: Handle) -> Result<Path> {
    let cut = Cut::Behind(members::score(arena, item)?, members::text(arena, item)?);
    let mut path = descend(arena, head, &cut)?;
    let step = &mut path.steps[path.len - 1];
    step.at = step.at.checked_sub(1).ok_or_else(damaged)?;
    if step.node.members(arena)?.at(step.at) == item { Ok(path) } else { Err(damaged()) }
}

/// The member of a rank.
pub(super) fn item_at(arena: &Arena, head: &TableHead, rank: u64) -> Result<Handle> {
    let path = seek(arena, head, rank)?;
    Ok(path.leaf().node.slot(arena, path.leaf().at)?.member)
}

/// Calls `f` with the members of a range of ranks that lies in the tree, until it returns false.
pub(super) fn walk<'a>(
    arena: &'a Arena,
    head: &TableHead,
    ranks: Range<u64>,
    direction: Direction,
    f: &mut dyn FnMut(f64, &'a [u8]) -> bool,
) -> Result<()> {
    let mut left = ranks.end.saturating_sub(ranks.start);
    if left == 0 {
        return Ok(());
    }
    let mut path = seek(arena, head, if direction == Direction::Up { ranks.start } else { ranks.end - 1 })?;
    loop {
        let Step { node, at } = *path.leaf();
        let (scores, items) = (node.scores(arena)?, node.members(arena)?);
        let here = (left.min(if direction == Direction::Up { node.used - at } else { at + 1 } as u64)) as usize;
        let place = |number: usize| if direction == Direction::Up { at + number } else { at - number };
        (0..here.min(AHEAD)).for_each(|number| arena.prefetch(items.at(place(number))));
        for number in 0..here {
            if number + AHEAD < here {
                arena.prefetch(items.at(place(number + AHEAD)));
            }
            if !f(scores[place(number)], members::text(arena, items.at(place(number)))?) {
                return Ok(());
            }
        }
        left -= here as u64;
        if left == 0 {
            return Ok(());
        }
        if !path.go_on(arena, direction)? {
            // A reply has said how many members follow, so fewer must not pass for all.
            return Err(StoreError::damaged("a sorted set with fewer members than it says"));
        }
    }
}

/// A sorted set's tree, to be changed.
pub(in crate::value) struct Tree<'a> {
    pub(in crate::value) heap: &'a mut Heap,
    pub(in crate::value) head: &'a mut TableHead,
    /// Numbers new nodes.
    pub(in crate::value) hasher: &'a MemberHasher,
}

impl Tree<'_> {
    fn create(&mut self, level: u32, slots: usize) -> Result<Node> {
        Node::create(self.heap, self.head, self.hasher, level, slots)
    }

    fn destroy(&mut self, node: Node) -> Result<()> {
        node.destroy(self.heap, self.head)
    }

    /// Adds a member that the tree has not.
    pub(super) fn add(&mut self, score: f64, member: &[u8]) -> Result<()> {
        self.add_hashed(self.hasher.hash(member), score, member)
    }

    /// As [`Tree::add`], of a member whose hash is known.
    pub(super) fn add_hashed(&mut self, hash: Hash, score: f64, member: &[u8]) -> Result<()> {
        let item = members::add(self.heap, self.head, hash, score, member)?;
        let inserted = self.insert(score, item);
        if inserted.is_err() {
            members::unlist(self.heap, self.head, item)?;
        }
        inserted
    }

    /// Takes a member out, and frees it.
    pub(super) fn remove(&mut self, item: Handle) -> Result<()> {
        let path = locate(&self.heap.arena, self.head, item)?;
        self.take_out(path)?;
        members::unlist(self.heap, self.head, item)
    }

    /// Takes the members of some ranks out, from the first one on, and counts them.
    pub(super) fn remove_ranks(&mut self, ranks: Range<u64>, removed: &mut u64) -> Result<()> {
        for _ in ranks.clone() {
            let path = seek(&self.heap.arena, self.head, ranks.start)?;
            let item = path.leaf().node.slot(&self.heap.arena, path.leaf().at)?.member;
            self.take_out(path)?;
            *removed += 1;
            members::unlist(self.heap, self.head, item)?;
        }
        Ok(())
    }

    /// Gives a member another score.
    pub(in crate::value) fn move_to(&mut self, item: Handle, score: f64) -> Result<()> {
        let mut path = locate(&self.heap.arena, self.head, item)?;
        self.widen(&mut path)?;
        if self.stays(&path, item, score)? {
            let Step { node, at } = *path.leaf();
            let slot = node.slot(&self.heap.arena, at)?;
            node.set_slot(&mut self.heap.arena, at, Slot { score, ..slot })?;
            return members::set_score(&mut self.heap.arena, item, score);
        }
        let before = members::score(&self.heap.arena, item)?;
        if path.leaf().at > 0 {
            // The way back leads to the same leaf, which has room then, also if it was joined with another one: it can be put back without
            // memory. The first member of a leaf might have to go behind the last one of a full leaf.
            self.take_out(path)?;
            let moved = self.insert(score, item);
            return match moved {
                Ok(()) => members::set_score(&mut self.heap.arena, item, score),
                Err(error) => self.insert(before, item).and(Err(error)),
            };
        }
        // Added first: if there is no memory for that, nothing has changed. Until then it is in the tree twice, with two scores.
        self.insert(score, item)?;
        let path = locate(&self.heap.arena, self.head, item)?;
        self.take_out(path)?;
        members::set_score(&mut self.heap.arena, item, score)
    }

    /// Whether a member keeps its place with another score, as far as its own leaf tells.
    fn stays(&self, path: &Path, item: Handle, score: f64) -> Result<bool> {
        let arena = &self.heap.arena;
        let Step { node, at } = *path.leaf();
        let (is_root, text) = (path.len == 1, members::text(arena, item)?);
        let key = |at: usize| -> Result<(f64, &[u8])> {
            let slot = node.slot(arena, at)?;
            Ok((slot.score, members::text(arena, slot.member)?))
        };
        let above = match at {
            0 => is_root,
            at => precedes(key(at - 1)?, (score, text)),
        };
        Ok(above && if at + 1 < node.used { precedes((score, text), key(at + 1)?) } else { is_root })
    }

    /// Takes an item out that stays in the table.
    pub(in crate::value) fn withdraw(&mut self, item: Handle) -> Result<()> {
        let path = locate(&self.heap.arena, self.head, item)?;
        self.take_out(path)
    }

    /// Has another item in the place of one, whose score and bytes it has. Nothing has changed if this fails.
    pub(in crate::value) fn exchange(&mut self, old: Handle, new: Handle) -> Result<()> {
        let mut path = locate(&self.heap.arena, self.head, old)?;
        self.widen(&mut path)?;
        for Step { node, at } in path.steps[..path.len].iter().rev() {
            let slot = node.slot(&self.heap.arena, *at)?;
            if slot.member != old {
                return Err(damaged());
            }
            node.set_slot(&mut self.heap.arena, *at, Slot { member: new, ..slot })?;
            if *at > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Puts an item in the tree, by this score.
    pub(in crate::value) fn insert(&mut self, score: f64, item: Handle) -> Result<()> {
        let slot = Slot { score, member: item, child: Handle::NULL, elements: 1 };
        if self.head.root().is_null() {
            let mut root = self.create(0, LEAF_SLOTS[0])?;
            root.insert(&mut self.heap.arena, 0, slot)?;
            self.head.set_root(root.handle);
            return Ok(());
        }
        let arena = &self.heap.arena;
        let mut path = descend(arena, self.head, &Cut::Behind(score, members::text(arena, item)?))?;
        self.widen(&mut path)?;
        let Step { node, at } = *path.leaf();
        if node.is_full() {
            let larger = LEAF_SLOTS.into_iter().find(|&slots| slots > node.slots).filter(|_| path.len == 1);
            match larger {
                Some(slots) => path.steps[0].node = self.enlarge(node, slots)?,
                None => return self.insert_and_split(&path, slot),
            }
        }
        path.steps[path.len - 1].node.insert(&mut self.heap.arena, at, slot)?;
        self.count_above(&path, path.len - 1, (at == 0).then_some(slot))
    }

    /// Puts wide nodes in the place of those on a path that are not, where any of them may get a handle of more than 32 bits.
    fn widen(&mut self, path: &mut Path) -> Result<()> {
        if !self.heap.arena.may_be_wide() {
            return Ok(());
        }
        for index in 0..path.len {
            let mut old = path.steps[index].node;
            if old.widen_in_place(&mut self.heap.arena)? {
                path.steps[index].node = old;
                continue;
            }
            let mut new = self.create(old.level, old.slots)?;
            old.move_tail(&mut self.heap.arena, 0, &mut new)?;
            match index.checked_sub(1) {
                None => self.head.set_root(new.handle),
                Some(above) => {
                    let Step { node, at } = path.steps[above];
                    let slot = node.slot(&self.heap.arena, at)?;
                    node.set_slot(&mut self.heap.arena, at, Slot { child: new.handle, ..slot })?;
                }
            }
            self.destroy(old)?;
            path.steps[index].node = new;
        }
        Ok(())
    }

    /// Gives the only leaf more slots.
    fn enlarge(&mut self, mut old: Node, slots: usize) -> Result<Node> {
        let mut new = self.create(0, slots)?;
        old.move_tail(&mut self.heap.arena, 0, &mut new)?;
        self.head.set_root(new.handle);
        self.destroy(old)?;
        Ok(new)
    }

    /// Counts one member more in the slots above the step at `index`. `first` is the new first one below that, if it has changed.
    fn count_above(&mut self, path: &Path, index: usize, first: Option<Slot>) -> Result<()> {
        let mut first = first;
        for Step { node, at } in path.steps[..index].iter().rev() {
            node.count_one_more(&mut self.heap.arena, *at)?;
            if let Some(first) = first {
                let slot = node.slot(&self.heap.arena, *at)?;
                node.set_slot(&mut self.heap.arena, *at, Slot { score: first.score, member: first.member, ..slot })?;
            }
            first = first.filter(|_| *at == 0);
        }
        Ok(())
    }

    /// Makes the nodes that a split of the path's full nodes needs, from the leaf up.
    fn make_spare(&mut self, path: &Path) -> Result<Vec<Node>> {
        let full = path.steps[..path.len].iter().rev().take_while(|step| step.node.is_full()).count();
        let levels = full + usize::from(full == path.len);
        if levels > LEVELS || path.leaf().node.level != 0 {
            return Err(damaged());
        }
        let mut spare = Vec::with_capacity(levels);
        for level in 0..levels as u32 {
            let slots = if level == 0 { LEAF_SLOTS[LEAF_SLOTS.len() - 1] } else { INNER_SLOTS };
            match self.create(level, slots) {
                Ok(node) => spare.push(node),
                Err(error) => {
                    for node in spare {
                        self.destroy(node)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(spare)
    }

    /// Puts a slot into a full leaf, whose half goes to a new one.
    fn insert_and_split(&mut self, path: &Path, slot: Slot) -> Result<()> {
        let mut spare = self.make_spare(path)?.into_iter();
        // What is added at an end only, as times are, fills the nodes.
        let (is_first, is_last) = (path.is_first(), path.is_last());
        let (mut index, mut carried, mut at) = (path.len - 1, slot, path.leaf().at);
        let mut first = (at == 0).then_some(slot);
        loop {
            let mut node = path.steps[index].node;
            let arena = &mut self.heap.arena;
            if !node.is_full() {
                node.insert(arena, at, carried)?;
                return self.count_above(path, index, first);
            }
            let mut right = spare.next().ok_or_else(damaged)?;
            let kept = if is_first || is_last { at } else { node.used / 2 };
            node.move_tail(arena, kept, &mut right)?;
            if at <= kept && !is_last {
                node.insert(arena, at, carried)?;
            } else {
                right.insert(arena, at - kept, carried)?;
            }
            let (left, added) = (node.summary(arena)?, right.summary(arena)?);
            let Some(above) = index.checked_sub(1) else {
                let mut root = spare.next().ok_or_else(damaged)?;
                root.insert(arena, 0, left)?;
                root.insert(arena, 1, added)?;
                self.head.set_root(root.handle);
                return Ok(());
            };
            let Step { node: parent, at: own } = path.steps[above];
            parent.set_slot(arena, own, left)?;
            first = first.filter(|_| own == 0);
            (index, carried, at) = (above, added, own + 1);
        }
    }

    /// Takes the slot to which a path leads out of its leaf, and the nodes that are empty then.
    fn take_out(&mut self, mut path: Path) -> Result<()> {
        let leaf = path.len - 1;
        let at = path.steps[leaf].at;
        path.steps[leaf].node.remove(&mut self.heap.arena, at)?;
        for above in (0..leaf).rev() {
            let node = path.steps[above + 1].node;
            let Step { node: mut parent, at: own } = path.steps[above];
            if node.used == 0 {
                parent.remove(&mut self.heap.arena, own)?;
                self.destroy(node)?;
            } else {
                let arena = &mut self.heap.arena;
                let (slot, first) = (parent.slot(arena, own)?, node.slot(arena, 0)?);
                let elements = slot.elements.checked_sub(1).ok_or_else(damaged)?;
                let slot = Slot { score: first.score, member: first.member, child: slot.child, elements };
                parent.set_slot(arena, own, slot)?;
                if node.used < node.slots / JOIN_ONE_IN {
                    self.join(&mut parent, own)?;
                }
            }
            path.steps[above].node = parent;
        }
        self.settle_root(path.steps[0].node)
    }

    /// Joins a child that has few slots with a neighbour, if both leave room for more.
    fn join(&mut self, parent: &mut Node, own: usize) -> Result<()> {
        for at in [Some(own), own.checked_sub(1)].into_iter().flatten() {
            if at + 1 >= parent.used {
                continue;
            }
            let arena = &mut self.heap.arena;
            let (mut left, mut right) = (parent.child(arena, at)?, parent.child(arena, at + 1)?);
            if (left.used + right.used) * 4 > left.slots * 3 || (right.is_wide && !left.is_wide) {
                continue;
            }
            right.move_tail(arena, 0, &mut left)?;
            let (slot, other) = (parent.slot(arena, at)?, parent.slot(arena, at + 1)?);
            let elements = slot.elements.checked_add(other.elements).ok_or_else(damaged)?;
            parent.set_slot(arena, at, Slot { elements, ..slot })?;
            parent.remove(arena, at + 1)?;
            return self.destroy(right);
        }
        Ok(())
    }

    /// Frees a root without members, or that leads to one node only.
    fn settle_root(&mut self, root: Node) -> Result<()> {
        let mut root = root;
        if root.used == 0 {
            self.head.set_root(Handle::NULL);
            return self.destroy(root);
        }
        while root.level > 0 && root.used == 1 {
            let child = root.child(&self.heap.arena, 0)?;
            self.head.set_root(child.handle);
            self.destroy(root)?;
            root = child;
        }
        Ok(())
    }
}

/// Checks the tree of a table whose items were checked; `is_listed` tells whether an item is in the table. Takes as long as the tree
/// is large.
pub(super) fn check(arena: &Arena, head: &TableHead, is_listed: &dyn Fn(Handle) -> Result<bool>) -> Result<()> {
    let (elements, nodes) = check_nodes(arena, head, is_listed)?;
    if elements + nodes == head.count { Ok(()) } else { Err(damaged()) }
}

/// As [`check`], of a table that may have other items; returns how many are in the tree, and its nodes.
pub(super) fn check_nodes(
    arena: &Arena,
    head: &TableHead,
    is_listed: &dyn Fn(Handle) -> Result<bool>,
) -> Result<(u64, u64)> {
    let (mut nodes, mut last) = (0, None);
    let root = Node::read(arena, head.root())?;
    let elements = check_node(arena, &root, is_listed, &mut nodes, &mut last)?;
    Ok((elements, nodes))
}

/// Checks a node and what is below it, behind the last member that was passed; returns how many members that are.
fn check_node<'a>(
    arena: &'a Arena,
    node: &Node,
    is_listed: &dyn Fn(Handle) -> Result<bool>,
    nodes: &mut u64,
    last: &mut Option<(f64, &'a [u8])>,
) -> Result<u64> {
    let is_root = *nodes == 0;
    *nodes += 1;
    node.check_fits(arena)?;
    if !node.has_usual_slots(is_root) || !is_listed(node.handle)? {
        return Err(damaged());
    }
    let mut elements = 0;
    for at in 0..node.used {
        let slot = node.slot(arena, at)?;
        if node.level == 0 {
            let key = (slot.score, members::text(arena, slot.member)?);
            let own_score = members::score(arena, slot.member)?.to_bits() == slot.score.to_bits();
            let in_order = last.is_none_or(|last| precedes(last, key));
            if !own_score || !in_order || slot.score.is_nan() || !is_listed(slot.member)? {
                return Err(damaged());
            }
            *last = Some(key);
        } else if node.child(arena, at)?.summary(arena)? != slot {
            return Err(damaged());
        } else {
            // A node that is there twice has members that are not in order.
            check_node(arena, &node.child(arena, at)?, is_listed, nodes, last)?;
        }
        elements += u64::from(slot.elements);
    }
    Ok(elements)
}
