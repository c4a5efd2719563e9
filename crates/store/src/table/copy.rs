//! Copying a table of objects that own no others, one bucket at a time.

use quire_arena::Handle;

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::{Hash, TableHead, item_hash};

/// Adds copies of the items of bucket `index` of `source` to `target`. Copied so far is what `target` holds, whether this
/// fails or not.
pub(crate) fn copy_bucket(heap: &mut Heap, source: &TableHead, index: u32, target: &mut TableHead) -> Result<()> {
    let mut items: Vec<(u16, Handle)> = Vec::new();
    for bucket in source.chain(&heap.arena, index)? {
        items.extend(bucket.read(&heap.arena)?.iter());
    }
    for (tag, item) in items {
        if target.count >= source.count {
            return Err(StoreError::damaged("a table holds more items than it says"));
        }
        let hash = Hash { low: item_hash(&heap.arena, item)?, tag };
        let bytes = heap.arena.usable_size(item)?;
        let new = heap.alloc(bytes)?;
        let added = heap
            .arena
            .copy(item, 0, new, 0, bytes)
            .map_err(StoreError::from)
            .and_then(|()| target.insert(&mut heap.arena, hash, new));
        if let Err(error) = added {
            heap.arena.free(new)?;
            return Err(error);
        }
        target.item_bytes = target.item_bytes.saturating_add(bytes as u64);
    }
    Ok(())
}
