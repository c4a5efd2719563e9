//! Random choice of a table's items.

use quire_arena::{Arena, Handle};
use quire_rng::SplitMix64;

use crate::error::{Result, StoreError};
use crate::table::TableHead;

/// Items of a chain that have a fair chance; longer chains are very rare.
const FAIR_ITEMS: usize = 32;
/// Buckets that are looked at for each wanted item.
const BUCKETS_PER_WANTED: usize = 4;
/// Tries before a walk decides. A table has at least 2.5 items a bucket but for its first four.
const TRIES: usize = 1000;

/// One of the table's items, all equally likely; `None` if it has none.
pub(crate) fn random_item(arena: &Arena, table: &TableHead, rng: &mut SplitMix64) -> Result<Option<Handle>> {
    if table.count == 0 || table.buckets() == 0 {
        return Ok(None);
    }
    let mut items = Vec::with_capacity(FAIR_ITEMS);
    for _ in 0..TRIES {
        let bucket = rng.below(u64::from(table.buckets())) as u32;
        items.clear();
        table.visit(arena, bucket, |item| {
            items.push(item);
            Ok(())
        })?;
        // Refusing in proportion makes items of full and of empty buckets equally likely.
        let bound = items.len().max(FAIR_ITEMS);
        if let Some(&item) = items.get(rng.index(bound)) {
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

/// Puts the items of buckets drawn by chance into `items` until they are `wanted` or more: whole buckets, so that all items are
/// equally likely. None only if the table has none.
pub(crate) fn random_bucket_items(
    arena: &Arena,
    table: &TableHead,
    rng: &mut SplitMix64,
    wanted: usize,
    items: &mut Vec<Handle>,
) -> Result<()> {
    items.clear();
    if table.count == 0 || table.buckets() == 0 {
        return Ok(());
    }
    for _ in 0..wanted * BUCKETS_PER_WANTED {
        let bucket = rng.below(u64::from(table.buckets())) as u32;
        let before = items.len();
        table.visit(arena, bucket, |item| {
            items.push(item);
            Ok(())
        })?;
        // Of a long chain, a stretch.
        let many = items.len() - before;
        if many > FAIR_ITEMS {
            let start = rng.index(many - FAIR_ITEMS + 1);
            items.drain(before..before + start);
            items.truncate(before + FAIR_ITEMS);
        }
        if items.len() >= wanted {
            return Ok(());
        }
    }
    if items.is_empty() {
        items.extend(random_item(arena, table, rng)?);
    }
    Ok(())
}

/// Chooses `wanted` of `left` items that pass by, each set of them equally likely.
pub(crate) struct SelectionSampler {
    pub(crate) wanted: u64,
    pub(crate) left: u64,
}

impl SelectionSampler {
    pub(crate) fn takes(&mut self, rng: &mut SplitMix64) -> bool {
        let takes = self.left > 0 && rng.below(self.left) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= u64::from(takes);
        takes
    }
}
