//! The tree of a large sorted set over items that are no members of one: the fields of a hash, by the instants at which they expire.
//!
//! Such an item begins as a member does (`members`). Of a table's items those are in the tree that have a number; others aren't. Relies on
//! `tree` and `nodes`, whose nodes are items of the same table, and on `copy`, which copies table and tree alike.

use quire_arena::{Arena, Handle};

use crate::error::Result;
use crate::table::{Hash, TableHead};

use super::nodes::{self, Node};
use super::order::Cut;
use super::{members, tree};

pub(in crate::value) use super::copy::copy_step;
pub(in crate::value) use super::members::{NODE, TTL};
pub(in crate::value) use super::tree::Tree;

/// Items in the tree.
pub(in crate::value) fn len(arena: &Arena, head: &TableHead) -> Result<u64> {
    tree::len(arena, head)
}

/// How many items of the tree have a number up to this.
pub(in crate::value) fn count_up_to(arena: &Arena, head: &TableHead, bound: f64) -> Result<u64> {
    tree::rank(arena, head, &Cut::UpToScore(bound))
}

/// The item of a rank, which the tree has.
pub(in crate::value) fn item_at(arena: &Arena, head: &TableHead, rank: u64) -> Result<Handle> {
    tree::item_at(arena, head, rank)
}

/// The item with the lowest number, if the tree has any.
pub(in crate::value) fn first(arena: &Arena, head: &TableHead) -> Result<Option<(f64, Handle)>> {
    if head.root().is_null() {
        return Ok(None);
    }
    let item = tree::item_at(arena, head, 0)?;
    Ok(Some((members::score(arena, item)?, item)))
}

/// The hash by which the table holds a node.
pub(in crate::value) fn hash_of_node(arena: &Arena, item: Handle) -> Result<Hash> {
    Ok(nodes::hash_of(Node::read(arena, item)?.number(arena)?))
}

/// Checks the tree of a table whose items were checked; `is_listed` tells whether a field is in the table. Returns how many items are
/// in the tree, and its nodes. Takes as long as the tree is large.
pub(in crate::value) fn check(
    arena: &Arena,
    head: &TableHead,
    is_listed: &dyn Fn(Handle) -> Result<bool>,
) -> Result<(u64, u64)> {
    if head.root().is_null() {
        return Ok((0, 0));
    }
    tree::check_nodes(arena, head, &|item| {
        if members::is_member(arena, item)? {
            return is_listed(item);
        }
        let hash = hash_of_node(arena, item)?;
        let found = head.find(arena, hash, |other| {
            Ok(*arena.get::<u32>(other)? == hash.low && !members::is_member(arena, other)?)
        })?;
        Ok(found == Some(item))
    })
}
