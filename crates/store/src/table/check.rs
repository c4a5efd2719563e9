//! Whether a table is what it says: every item where its hash leads, and as many as it counts.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::table::{Hash, TableHead, item_hash};

/// Checks a table that has items; `hash_of` reads an item and calculates its hash. Takes as long as the table is large.
pub(crate) fn check_items(
    arena: &Arena,
    head: &TableHead,
    mut hash_of: impl FnMut(Handle) -> Result<Hash>,
) -> Result<()> {
    head.check(arena)?;
    let mut count = 0;
    for index in 0..head.buckets() {
        for place in head.chain(arena, index)? {
            for (tag, item) in place.read(arena)?.iter() {
                count += 1;
                if count > head.count {
                    return Err(StoreError::damaged("a table holds more items than it says"));
                }
                let hash = hash_of(item)?;
                let leads_here = head.index(hash.low) == index && hash.tag.agrees(tag);
                if !leads_here || item_hash(arena, item)? != hash.low {
                    return Err(StoreError::damaged("an item is not where its hash leads"));
                }
            }
        }
    }
    if count < head.count || count == 0 {
        return Err(StoreError::damaged(format!("a table of {count} items that says it has {}", head.count)));
    }
    Ok(())
}
