//! The members of a sorted set that is a tree: one arena object each, found by its hash in the table.
//!
//! ```text
//! 0  hash u32 · length u32 (bit 31 marks what is a node of the tree)
//! 8  score f64
//! 16 bytes
//! ```
//!
//! A field of a hash that has a time to live begins in the same way, with bit 30 of the length set, so that the tree takes it, too.
//!
//! Functions on the table's head; the caller writes it back to the entry.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::table::{Hash, TableHead};

const LEN_OFFSET: usize = 4;
const SCORE_OFFSET: usize = 8;
const HEADER_BYTES: usize = 16;
/// In the place of a member's length: the item is a node.
pub(in crate::value) const NODE: u32 = 1 << 31;
/// Beside the length: the item is a hash's field that has a time to live.
pub(in crate::value) const TTL: u32 = 1 << 30;

/// The bytes of a member.
#[inline]
pub(super) fn text(arena: &Arena, item: Handle) -> Result<&[u8]> {
    let len = arena.slice::<u32>(item, LEN_OFFSET, 1)?[0];
    if len & NODE != 0 {
        return Err(StoreError::damaged("a node in the place of a sorted set's member"));
    }
    Ok(arena.bytes(item, HEADER_BYTES, (len & !TTL) as usize)?)
}

/// Whether an item is a member of the same kind as another one, and has its bytes.
pub(super) fn is_like(arena: &Arena, item: Handle, member: Handle) -> Result<bool> {
    let len_of = |item| arena.slice::<u32>(item, LEN_OFFSET, 1).map(|len| len[0]);
    // A field of a hash that has no time to live has its bytes elsewhere.
    Ok(len_of(item)? == len_of(member)? && text(arena, item)? == text(arena, member)?)
}

/// Whether an item of the table is a member.
pub(super) fn is_member(arena: &Arena, item: Handle) -> Result<bool> {
    Ok(arena.slice::<u32>(item, LEN_OFFSET, 1)?[0] & NODE == 0)
}

#[inline]
pub(super) fn score(arena: &Arena, item: Handle) -> Result<f64> {
    Ok(arena.slice::<f64>(item, SCORE_OFFSET, 1)?[0])
}

pub(super) fn set_score(arena: &mut Arena, item: Handle, score: f64) -> Result<()> {
    arena.slice_mut::<f64>(item, SCORE_OFFSET, 1)?[0] = score;
    Ok(())
}

/// Finds a member.
#[inline]
pub(super) fn find(arena: &Arena, head: &TableHead, hash: Hash, member: &[u8]) -> Result<Option<Handle>> {
    head.find(arena, hash, |item| {
        let words = arena.slice::<u32>(item, 0, 2)?;
        let alike = words[0] == hash.low && words[1] as usize == member.len();
        Ok(alike && arena.bytes(item, HEADER_BYTES, member.len())? == member)
    })
}

/// Adds an item to the table, which takes over an object that was made for so many bytes and begins with its hash; the object is freed if
/// this fails.
pub(super) fn list(heap: &mut Heap, head: &mut TableHead, hash: Hash, item: Handle, bytes: usize) -> Result<()> {
    if let Err(error) = heap.with_room(|arena| head.insert(arena, hash, item)) {
        heap.arena.free(item)?;
        return Err(error);
    }
    head.item_bytes = head.item_bytes.saturating_add(Arena::class_size(bytes) as u64);
    Ok(())
}

/// Takes an item out of the table and frees it.
pub(super) fn unlist(heap: &mut Heap, head: &mut TableHead, item: Handle) -> Result<()> {
    let low = *heap.arena.get::<u32>(item)?;
    let bytes = heap.arena.usable_size(item)?;
    if !head.remove(&mut heap.arena, low, item)? {
        return Err(StoreError::damaged("an item is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(bytes as u64);
    Ok(heap.arena.free(item)?)
}

/// Adds a member that the table doesn't have. Nothing has changed if this fails, but for a bucket that may be split.
pub(super) fn add(heap: &mut Heap, head: &mut TableHead, hash: Hash, score: f64, member: &[u8]) -> Result<Handle> {
    let total = HEADER_BYTES + member.len();
    let item = heap.alloc(total)?;
    let bytes = heap.arena.bytes_mut(item, 0, total)?;
    bytes[..LEN_OFFSET].copy_from_slice(&hash.low.to_ne_bytes());
    bytes[LEN_OFFSET..SCORE_OFFSET].copy_from_slice(&(member.len() as u32).to_ne_bytes());
    bytes[SCORE_OFFSET..HEADER_BYTES].copy_from_slice(&score.to_ne_bytes());
    bytes[HEADER_BYTES..].copy_from_slice(member);
    list(heap, head, hash, item, total)?;
    Ok(item)
}
