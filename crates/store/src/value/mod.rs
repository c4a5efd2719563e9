//! The types of values, a folder each. Which functions the keyspace calls for a value is decided here, by one match.

pub mod hash;
pub mod set;
pub mod string;
mod varint;

use quire_arena::Handle;

use crate::encoding::Encoding;
use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::heap::reclaim::Remains;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::Ops;
use crate::keyspace::{Values, free_entry};
use crate::table::reclaim::{self, Items, free_object, leave};

/// What the keyspace treats values by.
pub(crate) const VALUES: Values = Values { ops, free_step };

fn ops(encoding: Encoding) -> &'static Ops {
    match encoding {
        Encoding::String => &string::OPS,
        Encoding::PackedHash => &hash::PACKED_OPS,
        Encoding::TableHash => &hash::TABLE_OPS,
        Encoding::IntSet => &set::INT_OPS,
        Encoding::PackedSet => &set::PACKED_OPS,
        Encoding::TableSet => &set::TABLE_OPS,
    }
}

fn free_step(heap: &mut Heap, what: u32, remains: &mut Remains, budget: usize) -> Result<(usize, bool)> {
    let free = match Items::from_raw(what) {
        Some(Items::Borrowed) => leave,
        Some(Items::Entries) => free_with_value,
        Some(Items::Objects) => free_object,
        None => return Err(StoreError::newer(format!("a table to be freed of unknown items {what}"))),
    };
    reclaim::free_step(heap, remains, budget, free)
}

fn free_with_value(heap: &mut Heap, item: Handle) -> Result<()> {
    let entry = Entry::read(&heap.arena, item)?;
    free_entry(heap, entry, ops)
}
