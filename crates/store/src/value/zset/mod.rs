//! Sorted sets: different members in the order of their scores, those of equal scores in the order of their bytes. Small ones are
//! packed into their entry, large ones are a table of members and a tree that has them in order.
//!
//! Relies on `packed` and on `members`, `nodes` and `tree` for the two layouts; a sorted set becomes a tree when it outgrows the
//! limits, and never a packed one again, as in Redis. A sorted set without members doesn't exist.

mod aggregate;
mod algebra;
mod change;
mod copy;
pub(super) mod limits;
mod members;
mod nodes;
mod order;
mod packed;
mod path;
pub(super) mod schedule;
mod scored;
mod store;
mod tree;
mod view;
mod walks;

use std::collections::HashSet;

use quire_arena::Arena;

use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, no_copy_step, no_memory, no_table, table_memory, table_of};
use crate::numbers::format_g17;
use crate::table::check::check_items;

use nodes::Node;
use view::ZsetValue;

pub use aggregate::Aggregate;
pub use algebra::{Operand, collect, combine, operands};
pub use change::{ScoreChange, ZsetMut, open_mut};
pub use limits::{MAX_PACKED_LEN, MAX_PACKED_MEMBERS};
pub use order::{Cut, Direction};
pub use scored::ScoredMembers;
pub use store::{store_combination, store_members, store_range};
pub use view::{ZsetView, view};
pub use walks::random_members;

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 3;

/// What the keyspace asks of packed sorted sets.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("listpack"),
    check: check_packed,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of sorted sets that are trees.
pub(crate) static TREE_OPS: Ops = Ops {
    name: |_, _| Ok("skiplist"),
    check: check_tree,
    table: table_of,
    copy_step: copy::copy_step,
    has_movable_items: false,
    digest,
    memory: table_memory,
};

fn check_packed(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let bytes = entry.value(keyspace.arena())?;
    let (mut end, mut seen, mut last) = (packed::COUNT_BYTES, HashSet::new(), None);
    for item in packed::items(bytes)? {
        let item = item?;
        let in_order = last.is_none_or(|last| order::precedes(last, (item.score, item.member)));
        if !in_order || item.score.is_nan() || !seen.insert(item.member) {
            return Err(StoreError::damaged("a packed sorted set whose members are not in order"));
        }
        (end, last) = (item.end, Some((item.score, item.member)));
    }
    match end == bytes.len() && !seen.is_empty() {
        true => Ok(()),
        false => Err(StoreError::damaged("a packed sorted set that is longer than its members")),
    }
}

fn check_tree(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = keyspace.arena();
    let head = entry.table(arena)?;
    let hash_of = |item| match members::is_member(arena, item)? {
        true => Ok(keyspace.hash(members::text(arena, item)?)),
        false => Ok(nodes::hash_of(Node::read(arena, item)?.number(arena)?)),
    };
    check_items(arena, &head, hash_of)?;
    tree::check(arena, &head, &|item| {
        // Neither two nodes of one number nor two members of the same bytes can both be the first that is found.
        let hash = hash_of(item)?;
        let found = match members::is_member(arena, item)? {
            true => members::find(arena, &head, hash, members::text(arena, item)?)?,
            false => head.find(arena, hash, |other| {
                Ok(*arena.get::<u32>(other)? == hash.low && !members::is_member(arena, other)?)
            })?,
        };
        Ok(found == Some(item))
    })
}

/// Toggles one digest per member, which mixes it with its score, so that their order does not matter.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    ZsetValue::read(arena, entry)?.range(arena, 0..u64::MAX, Direction::Up, &mut |score, member| {
        let mut own = Digest::default();
        own.mix(member);
        own.mix(format_g17(score).as_bytes());
        digest.toggle(&own.0);
        true
    })
}
