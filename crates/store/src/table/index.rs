//! A table as an index: its items belong to another table, and are found in it by their handles.
//!
//! Relies on its owner to tell what becomes of each item, and to write the head back where that has changed.

use quire_arena::Handle;

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::{Hash, TableHead};

impl TableHead {
    /// Notes that an item came, moved or went; returns whether the head may have changed. It may also if this fails: if there is no memory for an
    /// item, a bucket may have been split all the same.
    pub(crate) fn reindex(
        &mut self,
        heap: &mut Heap,
        hash: u32,
        old: Option<Handle>,
        new: Option<Handle>,
    ) -> Result<bool> {
        match (old, new) {
            (Some(old), Some(new)) => {
                if old != new && !self.replace(&mut heap.arena, hash, old, new)? {
                    return Err(StoreError::damaged("an entry is not in an index that it belongs in"));
                }
                Ok(false)
            }
            (Some(old), None) => self.remove(&mut heap.arena, hash, old).map(|_| true),
            (None, Some(new)) => {
                heap.with_room(|arena| self.insert(arena, Hash::without_tag(hash), new)).map(|()| true)
            }
            (None, None) => Ok(false),
        }
    }
}
