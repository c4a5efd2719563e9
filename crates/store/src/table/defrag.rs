//! Moving what a table consists of out of mostly empty slabs: overflow buckets and segments, but not the directory, which its head
//! names, and items that own no others and that nothing leads to but their bucket.
//!
//! Relies on the arena for what is to be moved. The head stays as it is, so its owner has nothing to write back.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::table::{BucketRef, SEGMENT_BUCKETS, TableHead, item_hash};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DefragTally {
    /// Objects that were moved, and their bytes.
    pub(crate) moved: usize,
    pub(crate) moved_bytes: usize,
    /// Objects that stayed where they are.
    pub(crate) stayed: usize,
}

impl DefragTally {
    /// Moves an object if it lies in a mostly empty slab: `lead` has whatever leads to it lead to its copy instead. It fails before it has
    /// changed anything.
    pub(crate) fn move_object(
        &mut self,
        arena: &mut Arena,
        object: Handle,
        lead: impl FnOnce(&mut Arena, Handle) -> Result<()>,
    ) -> Result<Handle> {
        let Some(copy) = arena.evacuate(object)? else {
            self.stayed += 1;
            return Ok(object);
        };
        if let Err(error) = lead(arena, copy) {
            arena.free(copy)?;
            return Err(error);
        }
        self.moved += 1;
        self.moved_bytes += arena.usable_size(copy)?;
        arena.free(object)?;
        Ok(copy)
    }
}

/// Moves what a bucket consists of: its overflow buckets, and the segment that begins with it.
pub(crate) fn move_bucket(arena: &mut Arena, table: &TableHead, index: u32, tally: &mut DefragTally) -> Result<()> {
    if index.is_multiple_of(SEGMENT_BUCKETS) {
        let (segment, slot) = (table.place(arena, index)?.object, (index / SEGMENT_BUCKETS) as usize * 4);
        tally.move_object(arena, segment, |arena, copy| {
            // The size is the same, so it has an aligned handle as the segment has.
            let bits = copy.to_aligned().ok_or_else(|| StoreError::damaged("a table with too few buckets"))?;
            arena.slice_mut::<u32>(table.directory(), slot, 1)?[0] = bits;
            Ok(())
        })?;
    }
    let chain = table.chain(arena, index)?;
    let mut before = chain[0];
    for place in &chain[1..] {
        let object = tally.move_object(arena, place.object, |arena, copy| {
            before.write(arena)?.set_overflow(copy);
            Ok(())
        })?;
        before = BucketRef { object, offset: 0 };
    }
    Ok(())
}

/// Moves an item that owns no others and that nothing but its bucket leads to.
pub(crate) fn move_item(arena: &mut Arena, table: &TableHead, item: Handle, tally: &mut DefragTally) -> Result<()> {
    let hash = item_hash(arena, item)?;
    tally.move_object(arena, item, |arena, copy| match table.replace(arena, hash, item, copy)? {
        true => Ok(()),
        false => Err(StoreError::damaged("an item is not where its hash leads")),
    })?;
    Ok(())
}
