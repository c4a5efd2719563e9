//! Copying a large sorted set in steps: first every member and node, as any table is copied, then the handles that nodes have.
//!
//! Relies on `TableCopy` for what is copied and what is yet to be linked.

use quire_arena::Handle;

use crate::error::Result;
use crate::heap::Heap;
use crate::table::copy::{TableCopy, WEIGHT_BYTES};

use super::members;
use super::nodes::{self, Node, Slot};

/// Copies on for about so many items, or slots of nodes.
pub(in crate::value) fn copy_step(heap: &mut Heap, copy: &mut TableCopy, budget: usize) -> Result<usize> {
    let mut spent = copy.step_with_room(heap, budget, nodes::room_of_copy)?;
    while spent < budget && copy.has_all_items() {
        let Some((node, first)) = copy.next_unlinked() else { break };
        spent += link(heap, copy, node, first, budget - spent)?;
    }
    Ok(spent)
}

/// Gives the copy of a node, from a slot on, the handles of the copies of what it leads to, until the budget is spent: a slot costs
/// one, and one for each KiB of its member, which is compared with its copy. Returns what was spent.
fn link(heap: &mut Heap, copy: &mut TableCopy, from: Handle, first: usize, budget: usize) -> Result<usize> {
    let node = Node::read(&heap.arena, from)?;
    let own = copy.counterpart(&heap.arena, from, |item| Ok(!members::is_member(&heap.arena, item)?))?;
    let mut target = Node::read(&heap.arena, own)?;
    target.check_fits(&heap.arena)?;
    if heap.arena.may_be_wide() {
        // There is room for that in each copy of a node.
        target.widen_in_place(&mut heap.arena)?;
    }
    if from == copy.source().root() {
        copy.set_root(own);
    }
    let (mut at, mut spent) = (first, 0);
    while at < node.used && spent < budget {
        let slot = node.slot(&heap.arena, at)?;
        spent += 1 + members::text(&heap.arena, slot.member)?.len() / WEIGHT_BYTES as usize;
        let member =
            copy.counterpart(&heap.arena, slot.member, |item| members::is_like(&heap.arena, item, slot.member))?;
        let mut child = Handle::NULL;
        if node.level > 0 {
            let below = node.child(&heap.arena, at)?.handle;
            child = copy.counterpart(&heap.arena, below, |item| Ok(!members::is_member(&heap.arena, item)?))?;
            copy.link_later(below, 0)?;
        }
        target.put_slot(&mut heap.arena, at, Slot { member, child, ..slot })?;
        at += 1;
    }
    if at < node.used {
        copy.link_later(from, at)?;
    }
    Ok(spent.max(1))
}
