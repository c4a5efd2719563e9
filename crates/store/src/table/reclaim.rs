//! Freeing tables: bucket after bucket, so that a step is as short as its budget asks for.
//!
//! Relies on `resize` to take tables apart, and on the heap's list of what waits to be freed.

use quire_arena::Handle;

use crate::error::Result;
use crate::heap::Heap;
use crate::heap::reclaim::ReclaimState;
use crate::table::TableHead;

/// A table of so many items and buckets or fewer is freed at once.
const SMALL_ITEMS: u64 = 64;

/// What the items of a table that goes are, as a node of the reclaim list says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Items {
    /// Entries that belong to another table.
    Borrowed = 0,
    /// Entries with keys and values.
    Entries = 1,
    /// Objects that own no others: a hash's fields, a set's members.
    Objects = 2,
}

impl Items {
    pub(crate) fn from_raw(raw: u32) -> Option<Items> {
        [Items::Borrowed, Items::Entries, Items::Objects].into_iter().find(|items| *items as u32 == raw)
    }
}

/// Frees one item, if it isn't an object that owns no others.
pub(crate) type FreeItem = fn(&mut Heap, Handle) -> Result<()>;

/// Takes over a table of any items that nothing points to any more.
pub(crate) fn retire(heap: &mut Heap, head: TableHead, items: Items) -> Result<()> {
    if head.directory().is_null() {
        return Ok(());
    }
    heap.retire(items as u32, zerocopy::transmute!(head))
}

/// Takes over a table of objects; a small one is freed at once.
pub(crate) fn retire_objects(heap: &mut Heap, head: TableHead) -> Result<()> {
    if head.count.max(u64::from(head.buckets())) <= SMALL_ITEMS {
        return destroy(heap, head);
    }
    retire(heap, head, Items::Objects)
}

/// Frees a whole table of objects at once.
pub(crate) fn destroy(heap: &mut Heap, mut head: TableHead) -> Result<()> {
    while !head.directory().is_null() {
        drop_bucket(heap, &mut head, free_object)?;
    }
    Ok(())
}

/// Frees a whole table at once, but leaves its items to the caller.
pub(crate) fn dissolve(heap: &mut Heap, mut head: TableHead) -> Result<()> {
    while !head.directory().is_null() {
        drop_bucket(heap, &mut head, leave)?;
    }
    Ok(())
}

/// Frees about `budget` items; returns how many buckets and items were looked at, and whether the table is gone.
pub(crate) fn free_step(
    heap: &mut Heap,
    remains: &mut ReclaimState,
    budget: usize,
    free: FreeItem,
) -> Result<(usize, bool)> {
    let mut head: TableHead = zerocopy::transmute!(*remains);
    head.check(&heap.arena)?;
    let mut done = 0;
    while done < budget && !head.directory().is_null() {
        done += 1 + drop_bucket(heap, &mut head, free)?;
    }
    *remains = zerocopy::transmute!(head);
    Ok((done, head.directory().is_null()))
}

/// Frees the last bucket's items; returns how many.
fn drop_bucket(heap: &mut Heap, head: &mut TableHead, free: FreeItem) -> Result<usize> {
    let mut batch = std::mem::take(&mut heap.reclaim.batch);
    batch.clear();
    head.drop_last_bucket(&mut heap.arena, &mut batch)?;
    for &item in &batch {
        free(heap, item)?;
    }
    let freed = batch.len();
    heap.reclaim.batch = batch;
    Ok(freed)
}

/// Frees an item that owns no others.
pub(crate) fn free_object(heap: &mut Heap, item: Handle) -> Result<()> {
    Ok(heap.arena.free(item)?)
}

/// Leaves an item to the table that owns it.
pub(crate) fn leave(_: &mut Heap, _: Handle) -> Result<()> {
    Ok(())
}
