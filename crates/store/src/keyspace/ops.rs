//! What the keyspace asks of a value of which it does not know the type: one table of functions for each encoding, which
//! `value::ops` chooses.

use quire_arena::Arena;

use crate::encoding::Encoding;
use crate::error::Result;
use crate::heap::Heap;
use crate::heap::reclaim::FreeStep;
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::Entry;
use crate::keyspace::subkey_expiry::SubkeyOps;
use crate::table::TableHead;
use crate::table::copy::TableCopy;

/// The functions of one encoding.
#[derive(Debug)]
pub(crate) struct Ops {
    /// Redis' name of the encoding, for OBJECT ENCODING.
    pub(crate) name: fn(&Arena, &Entry) -> Result<&'static str>,
    /// Whether the value is well-formed; takes as long as the value is large.
    pub(crate) check: fn(&Keyspace, &Entry) -> Result<()>,
    /// The table of objects that the value owns beside its entry. It outlives the entry in the heap's list of what is freed in
    /// steps.
    pub(crate) table: fn(&Arena, &Entry) -> Result<Option<TableHead>>,
    /// Copies on for about so many items of that table; returns what was spent of the budget.
    pub(crate) copy_step: CopyStepOf,
    /// Whether only the buckets of that table lead to its items, so that those can move.
    pub(crate) has_movable_items: bool,
    /// Adds the type and the value.
    pub(crate) digest: fn(&Arena, &Entry, &mut Digest) -> Result<()>,
    /// Bytes that the value takes beside its entry and the entry's own objects.
    pub(crate) memory: fn(&Arena, &Entry) -> Result<u64>,
}

/// A step of a copy of what a value owns beside its entry.
pub(crate) type CopyStepOf = fn(&mut Heap, &mut TableCopy, usize) -> Result<usize>;

/// Chooses the functions of an encoding.
pub(crate) type OpsOf = fn(Encoding) -> &'static Ops;

/// What the keyspace is given to treat values by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub(crate) ops: OpsOf,
    pub(crate) free_step: FreeStep,
    pub(crate) subkey_ops: &'static SubkeyOps,
}

/// For encodings whose values lie in their entries whole.
pub(crate) fn no_table(_: &Arena, _: &Entry) -> Result<Option<TableHead>> {
    Ok(None)
}

/// For encodings whose values lie in their entries whole.
pub(crate) fn no_memory(_: &Arena, _: &Entry) -> Result<u64> {
    Ok(0)
}

/// For encodings whose values lie in their entries whole.
pub(crate) fn no_copy_step(_: &mut Heap, _: &mut TableCopy, _: usize) -> Result<usize> {
    Ok(0)
}

/// For encodings whose values are the heads of tables of objects.
pub(crate) fn copy_table_step(heap: &mut Heap, copy: &mut TableCopy, budget: usize) -> Result<usize> {
    copy.link_nothing();
    copy.step(heap, budget)
}

/// For encodings whose values are the heads of tables.
pub(crate) fn table_of(arena: &Arena, entry: &Entry) -> Result<Option<TableHead>> {
    Ok(Some(entry.table(arena)?))
}

/// For encodings whose values are the heads of tables.
pub(crate) fn table_memory(arena: &Arena, entry: &Entry) -> Result<u64> {
    let table = entry.table(arena)?;
    Ok(table.own_bytes().saturating_add(table.item_bytes))
}

/// Fills the value of the second entry, which has the first one's encoding and length.
pub(crate) fn copy_bytes(arena: &mut Arena, from: &Entry, to: &Entry) -> Result<()> {
    let (source, source_offset) = from.value_place(arena)?;
    let (target, target_offset) = to.value_place(arena)?;
    Ok(arena.copy(source, source_offset, target, target_offset, from.header.value_len as usize)?)
}
