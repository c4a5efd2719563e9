//! Random choice of a table's items.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::table::TableHead;

/// Items of a chain that have a fair chance; longer chains are very rare.
const FAIR_ITEMS: usize = 32;
/// Tries before a walk decides. A table has at least 2.5 items a bucket but for its first four.
const TRIES: usize = 1000;

/// The next pseudo-random number (xorshift64*). The state must not be 0.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// A number below `bound`, which must not be 0.
pub(crate) fn random_below(state: &mut u64, bound: u64) -> u64 {
    ((u128::from(next_random(state)) * u128::from(bound)) >> 64) as u64
}

/// One of the table's items, all equally likely; `None` if it has none.
pub(crate) fn random_item(arena: &Arena, table: &TableHead, state: &mut u64) -> Result<Option<Handle>> {
    if table.count == 0 || table.buckets() == 0 {
        return Ok(None);
    }
    let mut items = Vec::with_capacity(FAIR_ITEMS);
    for _ in 0..TRIES {
        let bucket = random_below(state, u64::from(table.buckets())) as u32;
        items.clear();
        table.visit(arena, bucket, |item| {
            items.push(item);
            Ok(())
        })?;
        // Refusing in proportion makes items of full and of empty buckets equally likely.
        let bound = items.len().max(FAIR_ITEMS);
        if let Some(&item) = items.get(random_below(state, bound as u64) as usize) {
            return Ok(Some(item));
        }
    }
    let mut first = None;
    for bucket in 0..table.buckets() {
        table.visit(arena, bucket, |item| {
            first = Some(item);
            Ok(())
        })?;
        if first.is_some() {
            return Ok(first);
        }
    }
    Err(StoreError::damaged("a table has fewer items than it says"))
}

/// Chooses `wanted` of `left` items that pass by, each set of them equally likely.
pub(crate) struct Chooser {
    pub(crate) wanted: u64,
    pub(crate) left: u64,
}

impl Chooser {
    pub(crate) fn takes(&mut self, random: &mut u64) -> bool {
        let takes = self.left > 0 && random_below(random, self.left) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= u64::from(takes);
        takes
    }
}
