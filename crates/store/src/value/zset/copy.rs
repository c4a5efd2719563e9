//! Copying a large sorted set in steps: first every member and node, as any table is copied, then the handles that nodes have.
//!
//! Relies on `TableCopy` for what is copied and what is yet to be linked.

use quire_arena::{Arena, Handle};

use crate::error::Result;
use crate::heap::Heap;
use crate::table::copy::TableCopy;

use super::members;
use super::nodes::{Node, Slot};

/// Copies on for about so many items, or slots of nodes.
pub(super) fn copy_step(heap: &mut Heap, copy: &mut TableCopy, budget: usize) -> Result<usize> {
    let mut spent = copy.step(heap, budget)?;
    while spent < budget && copy.has_all_items() {
        let Some((node, first)) = copy.next_unlinked() else { break };
        spent += link(heap, copy, node, first, budget - spent)?;
    }
    Ok(spent)
}

/// Gives the copy of a node, from a slot on, the handles of the copies of what it leads to.
fn link(heap: &mut Heap, copy: &mut TableCopy, from: Handle, first: usize, budget: usize) -> Result<usize> {
    let node = Node::read(&heap.arena, from)?;
    let own = copy.counterpart(&heap.arena, from, |item| Ok(!members::is_member(&heap.arena, item)?))?;
    let target = Node::read(&heap.arena, own)?;
    if from == copy.source().root {
        copy.set_root(own);
    }
    let end = node.used.min(first.saturating_add(budget));
    if end < node.used {
        copy.link_later(from, end)?;
    }
    for at in first..end {
        let slot = node.slot(&heap.arena, at)?;
        let member = member_of(&heap.arena, copy, slot.member)?;
        let mut child = Handle::NULL;
        if node.level > 0 {
            let below = node.child(&heap.arena, at)?.handle;
            child = copy.counterpart(&heap.arena, below, |item| Ok(!members::is_member(&heap.arena, item)?))?;
            copy.link_later(below, 0)?;
        }
        target.set_slot(&mut heap.arena, at, Slot { member, child, ..slot })?;
    }
    Ok(end.saturating_sub(first).max(1))
}

fn member_of(arena: &Arena, copy: &TableCopy, member: Handle) -> Result<Handle> {
    let text = members::text(arena, member)?;
    copy.counterpart(arena, member, |item| Ok(members::is_member(arena, item)? && members::text(arena, item)? == text))
}
