//! The types of values, a folder each. Which functions the keyspace calls for a value is decided here, by one match.

pub mod hash;
pub mod list;
pub mod set;
pub mod stream;
pub mod string;
mod varint;
pub mod zset;

use quire_arena::Handle;

use crate::encoding::{Encoding, ValueType};
use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::heap::reclaim::ReclaimState;
use crate::keyspace::entry::Entry;
use crate::keyspace::free_entry;
use crate::keyspace::ops::{Ops, Values};
use crate::keyspace::subkey_expiry::SubkeyOps;
use crate::limits::{EncodingLimit, EncodingLimits};
use crate::table::reclaim::{self, Items, free_object, leave};

/// What the keyspace treats values by.
pub(crate) const VALUES: Values = Values { ops, free_step, subkey_ops: PART_OPS };

/// What is done with subkeys that have times to live: only hashes have any.
const PART_OPS: &SubkeyOps = &SubkeyOps { first_expiry: hash::first_expiry, expire: hash::expire_fields };

fn ops(encoding: Encoding) -> &'static Ops {
    match encoding {
        Encoding::String => &string::OPS,
        Encoding::PackedHash => &hash::PACKED_OPS,
        Encoding::TableHash => &hash::TABLE_OPS,
        Encoding::PackedTtlHash => &hash::PACKED_TTL_OPS,
        Encoding::TableTtlHash => &hash::TABLE_TTL_OPS,
        Encoding::IntSet => &set::INT_OPS,
        Encoding::PackedSet => &set::PACKED_OPS,
        Encoding::TableSet => &set::TABLE_OPS,
        Encoding::PackedList => &list::PACKED_OPS,
        Encoding::NodeList => &list::NODES_OPS,
        Encoding::PackedZset => &zset::PACKED_OPS,
        Encoding::TreeZset => &zset::TREE_OPS,
        Encoding::PackedStream => &stream::PACKED_OPS,
        Encoding::TreeStream => &stream::TREE_OPS,
    }
}

/// The limits that the types declare.
pub fn declared_limits() -> impl Iterator<Item = &'static EncodingLimit> {
    let of = |kind| match kind {
        ValueType::String => &[],
        ValueType::Hash => hash::limits::ALL,
        ValueType::Set => set::limits::ALL,
        ValueType::List => list::limits::ALL,
        ValueType::Zset => zset::limits::ALL,
        ValueType::Stream => stream::limits::ALL,
    };
    ValueType::ALL.into_iter().flat_map(of)
}

impl Default for EncodingLimits {
    fn default() -> EncodingLimits {
        EncodingLimits::of(declared_limits())
    }
}

fn free_step(heap: &mut Heap, what: u32, remains: &mut ReclaimState, budget: usize) -> Result<(usize, bool)> {
    let free = match Items::from_raw(what) {
        Some(Items::Borrowed) => leave,
        Some(Items::Entries) => free_with_value,
        Some(Items::Objects) => free_object,
        None => return Err(StoreError::newer(format!("a table to be freed of unknown items {what}"))),
    };
    let (done, is_gone) = reclaim::free_step(heap, remains, budget, free)?;
    heap.reclaim.freed_values += u64::from(is_gone && what == Items::Objects as u32);
    Ok((done, is_gone))
}

fn free_with_value(heap: &mut Heap, item: Handle) -> Result<()> {
    let (entry, waiting) = (Entry::read(&heap.arena, item)?, heap.reclaim.nodes());
    free_entry(heap, entry, ops)?;
    // A value that waits in its turn counts when it is gone.
    heap.reclaim.freed_values += u64::from(heap.reclaim.nodes() == waiting);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_a_place_of_its_own_and_stays_within_its_bound() {
        let limits: Vec<&EncodingLimit> = declared_limits().collect();
        for limit in &limits {
            assert!((limit.min..=limit.max).contains(&limit.default), "{}", limit.name);
            let set = EncodingLimits::default().with(limit, 7);
            for other in &limits {
                let expected = if other.name == limit.name { 7 } else { other.default };
                assert_eq!(set.number(other), expected, "{} and {}", limit.name, other.name);
            }
            assert_eq!(EncodingLimits::default().with(limit, usize::MAX).number(limit), limit.max, "{}", limit.name);
            let mut least = EncodingLimits::default();
            least.set(limit, i64::MIN);
            assert_eq!(least.number(limit), limit.min, "{}", limit.name);
        }
    }
}
