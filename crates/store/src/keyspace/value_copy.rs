//! What a copy in steps copies: the table that a value owns, or the object in which a big value's bytes lie; and what it has
//! of that so far.
//!
//! Relies on the caller that the source stays as it is between two steps. The copy of a table lists what it consists of
//! itself. That of an object is the only item of a table made for it, the *holder*: so what is left of either is a table of
//! objects, as the list of what is to be freed takes it, and older versions know how to free both.

use quire_arena::Arena;

use crate::error::Result;
use crate::heap::{External, Heap};
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::Ops;
use crate::table::copy::{TableCopy, cost};
use crate::table::reclaim;
use crate::table::{Hash, TableHead};

/// Bytes of an object that weigh as much in a step's budget as an item of a table: one long run of bytes is copied faster than
/// as many in objects that have to be made. 512 of them, the server's step, are 1 MiB.
const WEIGHT_BYTES: usize = 2048;

/// What of a value is copied in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CopySource {
    /// The table that the value is.
    Table(TableHead),
    /// The object in which its bytes lie, and how many they are.
    Object(External, usize),
}

impl CopySource {
    /// `None` for a value that lies in its entry.
    pub(crate) fn of(arena: &Arena, entry: &Entry, ops: &Ops) -> Result<Option<CopySource>> {
        if let Some(head) = (ops.table)(arena, entry)? {
            return Ok(Some(CopySource::Table(head)));
        }
        let object = entry.value_object(arena)?;
        Ok(object.map(|object| CopySource::Object(object, entry.header.value_len as usize)))
    }

    /// What copying it costs, in units of a step's budget, about.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            CopySource::Table(head) => cost(head),
            CopySource::Object(_, len) => len.div_ceil(WEIGHT_BYTES) as u64,
        }
    }
}

/// What was copied, when it is whole: its entry is yet to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopiedValue {
    Table(TableHead),
    Object(External),
}

impl CopiedValue {
    /// Frees what gets no entry, a large table in steps.
    pub(crate) fn retire(self, heap: &mut Heap) -> Result<()> {
        match self {
            CopiedValue::Table(head) => reclaim::retire_objects(heap, head),
            CopiedValue::Object(object) => Ok(heap.arena.free(object.object)?),
        }
    }
}

/// The copy of a value that is being made.
#[derive(Debug)]
pub(crate) enum ValueCopy {
    Table(TableCopy),
    Object(ObjectCopy),
}

/// The copy of an object that is being made.
#[derive(Debug)]
pub(crate) struct ObjectCopy {
    source: External,
    /// Bytes to be copied…
    len: usize,
    /// …and how many of them are.
    copied: usize,
    target: External,
    /// A table that has the target for its only item.
    holder: TableHead,
}

impl ValueCopy {
    /// All memory that the copy of an object takes is taken here. Nothing has changed if this fails.
    pub(crate) fn begin(heap: &mut Heap, source: CopySource) -> Result<ValueCopy> {
        match source {
            CopySource::Table(head) => Ok(ValueCopy::Table(TableCopy::new(head))),
            CopySource::Object(object, len) => ObjectCopy::begin(heap, object, len).map(ValueCopy::Object),
        }
    }

    /// What it is a copy of.
    pub(crate) fn source(&self) -> CopySource {
        match self {
            ValueCopy::Table(table) => CopySource::Table(*table.source()),
            ValueCopy::Object(object) => CopySource::Object(object.source, object.len),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        match self {
            ValueCopy::Table(table) => table.is_complete(),
            ValueCopy::Object(object) => object.copied == object.len,
        }
    }

    /// Bytes that the copy takes so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            ValueCopy::Table(table) => table.bytes(),
            ValueCopy::Object(object) => object.holder.own_bytes().saturating_add(u64::from(object.target.size)),
        }
    }

    /// What has to be freed if the copy is given up: a table of objects.
    pub(crate) fn remains(&self) -> TableHead {
        match self {
            ValueCopy::Table(table) => table.target(),
            ValueCopy::Object(object) => object.holder,
        }
    }

    /// Goes on until the budget is spent; returns what was spent. What is copied so far is in [`ValueCopy::remains`], whether this
    /// fails or not.
    pub(crate) fn step(&mut self, heap: &mut Heap, ops: &Ops, budget: usize) -> Result<usize> {
        match self {
            ValueCopy::Table(table) => (ops.copy_step)(heap, table, budget),
            ValueCopy::Object(object) => object.step(heap, budget),
        }
    }

    /// Hands over a copy that is whole.
    pub(crate) fn finish(self, heap: &mut Heap) -> Result<CopiedValue> {
        match self {
            ValueCopy::Table(table) => Ok(CopiedValue::Table(table.target())),
            ValueCopy::Object(object) => {
                reclaim::dissolve(heap, object.holder)?;
                Ok(CopiedValue::Object(object.target))
            }
        }
    }
}

impl ObjectCopy {
    fn begin(heap: &mut Heap, source: External, len: usize) -> Result<ObjectCopy> {
        // A length that damage has made is found before memory is taken for it.
        heap.arena.bytes(source.object, 0, len)?;
        let target = heap.allocate_external(len)?;
        let mut holder = TableHead::default();
        // A table of one item is never split, so nothing asks the item for its hash.
        let hash = Hash { low: 0, tag: 1 };
        if let Err(error) = heap.with_room(|arena| holder.insert(arena, hash, target.object)) {
            heap.arena.free(target.object)?;
            return Err(error);
        }
        Ok(ObjectCopy { source, len, copied: 0, target, holder })
    }

    fn step(&mut self, heap: &mut Heap, budget: usize) -> Result<usize> {
        let len = budget.saturating_mul(WEIGHT_BYTES).min(self.len - self.copied);
        heap.arena.copy(self.source.object, self.copied, self.target.object, self.copied, len)?;
        self.copied += len;
        Ok(len.div_ceil(WEIGHT_BYTES))
    }
}
