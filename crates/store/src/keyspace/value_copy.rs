//! What is made of a value in steps: a copy of the table that it owns, or of the object in which its bytes lie, with room for more if
//! it is to grow; or the two tables into which the one of a long list is divided.
//!
//! Relies on the caller that the source stays as it is between two steps. The copy of a table lists what it consists of
//! itself. That of an object is the only item of a table made for it, the *holder*: so what is left of any of them are tables, as
//! the list of what is to be freed takes them, and older versions know how to free them.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::{External, Heap};
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{CopyStepOf, Ops};
use crate::table::bucket::Tag;
use crate::table::copy::{TableCopy, cost};
use crate::table::reclaim::{self, Items};
use crate::table::split::TableSplit;
use crate::table::{Hash, TableHead};

/// What costs no more is done at once: as much as is freed in one step.
pub(crate) const AT_ONCE: u64 = 512;
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
            CopySource::Object(_, len) => cost_of_bytes(*len),
        }
    }
}

/// What it costs to write so many bytes, in units of a step's budget.
pub(crate) fn cost_of_bytes(bytes: usize) -> u64 {
    bytes.div_ceil(WEIGHT_BYTES) as u64
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

/// What is being made of a value.
#[derive(Debug)]
pub(crate) enum ValueCopy {
    Table(TableCopy, CopyStepOf),
    Object(ObjectCopy),
    Split(TableSplit),
}

/// The copy of an object that is being made, and of zeros behind it.
#[derive(Debug)]
pub(crate) struct ObjectCopy {
    /// The object that is copied; none if the bytes lie in the entry, or there is none.
    source: Option<External>,
    /// Bytes to be copied…
    len: usize,
    /// …and to be there in the end, those behind them zeros…
    total: usize,
    /// …and how many of them are.
    written: usize,
    target: External,
    /// A table that has the target for its only item.
    holder: TableHead,
}

impl ValueCopy {
    /// All memory that the copy of an object takes is taken here. Nothing has changed if this fails.
    pub(crate) fn begin(heap: &mut Heap, source: CopySource, copy_step: CopyStepOf) -> Result<ValueCopy> {
        match source {
            CopySource::Table(head) => Ok(ValueCopy::Table(TableCopy::new(head), copy_step)),
            CopySource::Object(object, len) => {
                ObjectCopy::begin(heap, Some(object), (len, len), len).map(ValueCopy::Object)
            }
        }
    }

    /// As [`ValueCopy::begin`], of a string that is to grow: a place of `room` bytes that begins with the `total` first ones of the longer
    /// string, the old ones and zeros.
    pub(crate) fn begin_growth(heap: &mut Heap, entry: Option<&Entry>, total: usize, room: usize) -> Result<ValueCopy> {
        let len = entry.map_or(0, |entry| entry.header.value_len as usize);
        let source = entry.map(|entry| entry.value_object(&heap.arena)).transpose()?.flatten();
        let mut copy = ObjectCopy::begin(heap, source, (len, total), room)?;
        if let Some(entry) = entry.filter(|_| source.is_none()) {
            // As few as an entry holds.
            let (object, offset) = entry.value_place(&heap.arena)?;
            heap.arena.copy(object, offset, copy.target.object, 0, len)?;
            copy.written = len;
        }
        Ok(ValueCopy::Object(copy))
    }

    /// What it is made of; `None` for a value that lies in its entry, or isn't there.
    pub(crate) fn source(&self) -> Option<CopySource> {
        match self {
            ValueCopy::Table(table, _) => Some(CopySource::Table(*table.source())),
            ValueCopy::Object(object) => object.source.map(|source| CopySource::Object(source, object.len)),
            ValueCopy::Split(split) => Some(CopySource::Table(*split.source())),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        match self {
            ValueCopy::Table(table, _) => table.is_complete(),
            ValueCopy::Object(object) => object.written == object.total,
            ValueCopy::Split(split) => split.is_complete(),
        }
    }

    /// Bytes that it takes so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            ValueCopy::Table(table, _) => table.bytes(),
            ValueCopy::Object(object) => object.holder.own_bytes().saturating_add(u64::from(object.target.size)),
            ValueCopy::Split(split) => split.bytes(),
        }
    }

    /// What has to be freed if it is given up.
    pub(crate) fn remains(&self) -> Vec<(Items, TableHead)> {
        match self {
            ValueCopy::Table(table, _) => vec![(Items::Objects, table.target())],
            ValueCopy::Object(object) => vec![(Items::Objects, object.holder)],
            ValueCopy::Split(split) => split.tables().map(|table| (Items::Borrowed, table)).to_vec(),
        }
    }

    /// Goes on until the budget is spent; returns what was spent. What is made so far is in [`ValueCopy::remains`], whether this
    /// fails or not.
    pub(crate) fn step(&mut self, heap: &mut Heap, budget: usize) -> Result<usize> {
        match self {
            ValueCopy::Table(table, copy_step) => copy_step(heap, table, budget),
            ValueCopy::Object(object) => object.step(heap, budget),
            ValueCopy::Split(split) => split.step(heap, budget),
        }
    }
}

/// What was made, whole, for the request that asked for it.
#[derive(Debug)]
pub(crate) struct MadeValue {
    pub(crate) value: ValueCopy,
    /// Nodes of the list of what is to be freed, one for each of [`ValueCopy::remains`].
    pub(crate) nodes: Vec<Handle>,
}

impl MadeValue {
    /// Gives up what was made: it is freed in steps.
    pub(crate) fn retire(self, heap: &mut Heap) -> Result<()> {
        for (node, (items, table)) in self.nodes.iter().zip(self.value.remains()) {
            heap.retire_as(*node, items as u32, zerocopy::transmute!(table))?;
        }
        Ok(())
    }

    /// Hands over a copy.
    pub(crate) fn into_copy(self, heap: &mut Heap) -> Result<CopiedValue> {
        self.nodes.into_iter().try_for_each(|node| heap.arena.free(node))?;
        match self.value {
            ValueCopy::Table(table, _) => Ok(CopiedValue::Table(table.target())),
            ValueCopy::Object(object) => {
                reclaim::dissolve(heap, object.holder)?;
                Ok(CopiedValue::Object(object.target))
            }
            ValueCopy::Split(_) => Err(StoreError::damaged("a divided table where a copy was asked for")),
        }
    }
}

impl ObjectCopy {
    fn begin(
        heap: &mut Heap,
        source: Option<External>,
        (len, total): (usize, usize),
        room: usize,
    ) -> Result<ObjectCopy> {
        if let Some(source) = source {
            // A length that damage has made is found before memory is taken for it.
            heap.arena.bytes(source.object, 0, len)?;
        }
        let target = heap.allocate_external(room)?;
        let mut holder = TableHead::default();
        // A table of one item is never split, so nothing asks the item for its hash.
        let hash = Hash { low: 0, tag: Tag::of(1) };
        if let Err(error) = heap.with_room(|arena| holder.insert(arena, hash, target.object)) {
            heap.arena.free(target.object)?;
            return Err(error);
        }
        Ok(ObjectCopy { source, len, total, written: 0, target, holder })
    }

    fn step(&mut self, heap: &mut Heap, budget: usize) -> Result<usize> {
        let most = budget.saturating_mul(WEIGHT_BYTES);
        let copied = most.min(self.len.saturating_sub(self.written));
        if let Some(source) = self.source.filter(|_| copied > 0) {
            heap.arena.copy(source.object, self.written, self.target.object, self.written, copied)?;
        }
        self.written += copied;
        let zeros = (most - copied).min(self.total - self.written);
        heap.arena.bytes_mut(self.target.object, self.written, zeros)?.fill(0);
        self.written += zeros;
        Ok((copied + zeros).div_ceil(WEIGHT_BYTES))
    }
}
