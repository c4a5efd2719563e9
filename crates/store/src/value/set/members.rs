//! The members of a set that is a table: one arena object each.
//!
//! ```text
//! 0  hash u32 · length u32
//! 8  bytes
//! ```
//!
//! Functions on the table's head; the caller writes it back to the entry.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::{Hash, TableHead};

const HEADER_BYTES: usize = 8;

/// The bytes of a member.
#[inline]
pub(crate) fn read(arena: &Arena, item: Handle) -> Result<&[u8]> {
    let len = arena.slice::<u32>(item, 4, 1)?[0];
    Ok(arena.bytes(item, HEADER_BYTES, len as usize)?)
}

/// Finds a member.
#[inline]
pub(crate) fn find(arena: &Arena, head: &TableHead, hash: Hash, member: &[u8]) -> Result<Option<Handle>> {
    head.find(arena, hash, |item| Ok(*arena.get::<u32>(item)? == hash.low && read(arena, item)? == member))
}

/// Adds a member that the table doesn't have. Nothing has changed if this fails, but for a bucket that may be split.
pub(crate) fn insert(heap: &mut Heap, head: &mut TableHead, hash: Hash, member: &[u8]) -> Result<()> {
    let total = HEADER_BYTES + member.len();
    let item = heap.alloc(total)?;
    let bytes = heap.arena.bytes_mut(item, 0, total)?;
    bytes[..4].copy_from_slice(&hash.low.to_ne_bytes());
    bytes[4..HEADER_BYTES].copy_from_slice(&(member.len() as u32).to_ne_bytes());
    bytes[HEADER_BYTES..].copy_from_slice(member);
    if let Err(error) = heap.with_room(|arena| head.insert(arena, hash, item)) {
        heap.arena.free(item)?;
        return Err(error);
    }
    head.item_bytes = head.item_bytes.saturating_add(Arena::class_size(total) as u64);
    Ok(())
}

/// Takes a member out and frees it.
pub(crate) fn remove(heap: &mut Heap, head: &mut TableHead, item: Handle) -> Result<()> {
    let low = *heap.arena.get::<u32>(item)?;
    let bytes = heap.arena.usable_size(item)?;
    if !head.remove(&mut heap.arena, low, item)? {
        return Err(StoreError::damaged("a member is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(bytes as u64);
    Ok(heap.arena.free(item)?)
}
