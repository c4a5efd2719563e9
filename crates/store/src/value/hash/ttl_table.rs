//! The fields of a hash that is a table and of which some have times to live: one arena object each. Those that have are in a tree, by
//! their expiries; its nodes are items of the same table (`zset::schedule`).
//!
//! ```text
//! a field without an expiry: as in `fields`
//! a field with an expiry:    0  hash u32 · field length u32 (bit 30 set) · expiry f64, in unix milliseconds
//!                             16 field bytes · value length u32 · value bytes
//! ```
//!
//! The value in the entry is the table's head and, behind it, how many fields there are (u64): the head's count has the nodes, too. A
//! table of fields without expiries becomes such a one, and such a one a table of fields again, by these eight bytes alone.
//!
//! Relies on the tree for the order; a field's object changes only here, so that the tree has its handle and expiry.

use quire_arena::{Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::{Hash, TableHead};
use crate::value::zset::schedule::{self, NODE, TTL, Tree};

use super::fields::{self, Field};
use super::packed_ttl::MAX_EXPIRY_MS;

/// Bytes of the value in its entry.
const VALUE_BYTES: usize = TableHead::BYTES + size_of::<u64>();

const PLAIN_HEADER_BYTES: usize = fields::HEADER_BYTES;
const LEN_OFFSET: usize = 4;
const EXPIRY_OFFSET: usize = 8;
const HEADER_BYTES: usize = 16;
const VALUE_LEN_BYTES: usize = 4;

fn damaged() -> StoreError {
    StoreError::damaged("a field of a hash that is not well-formed")
}

/// How many fields there are, as the value says that begins with the table's head.
pub(super) fn field_count(value: &[u8]) -> Result<u64> {
    if value.len() != VALUE_BYTES {
        return Err(damaged());
    }
    let bytes = value[TableHead::BYTES..].first_chunk();
    bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or_else(damaged)
}

/// An expiry as the tree has it. Every one that a hash has is exact.
pub(super) fn tree_number(at_ms: i64) -> f64 {
    at_ms as f64
}

/// A field's object, and what it says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct TtlField {
    pub(super) handle: Handle,
    hash: u32,
    name_len: usize,
    value_len: usize,
    /// When it expires, in unix milliseconds.
    pub(super) expiry_ms: Option<i64>,
}

impl TtlField {
    /// Reads an item of the table; `None` if it is a node of the tree.
    pub(super) fn read(arena: &Arena, handle: Handle) -> Result<Option<TtlField>> {
        let &[hash, len] = arena.slice::<u32>(handle, 0, 2)?.first_chunk::<2>().ok_or_else(damaged)?;
        if len & NODE != 0 {
            return Ok(None);
        }
        let name_len = (len & !TTL) as usize;
        if len & TTL == 0 {
            let value_len = arena.slice::<u32>(handle, LEN_OFFSET + size_of::<u32>(), 1)?[0] as usize;
            return Ok(Some(TtlField { handle, hash, name_len, value_len, expiry_ms: None }));
        }
        let at_ms = arena.slice::<f64>(handle, EXPIRY_OFFSET, 1)?[0] as i64;
        if !(1..=MAX_EXPIRY_MS).contains(&at_ms) {
            return Err(damaged());
        }
        let expiry_ms = Some(at_ms);
        let value_len = arena.bytes(handle, HEADER_BYTES + name_len, VALUE_LEN_BYTES)?.first_chunk();
        let value_len = value_len.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or_else(damaged)? as usize;
        Ok(Some(TtlField { handle, hash, name_len, value_len, expiry_ms }))
    }

    fn name_offset(&self) -> usize {
        if self.expiry_ms.is_some() { HEADER_BYTES } else { PLAIN_HEADER_BYTES }
    }

    fn value_offset(&self) -> usize {
        let between = if self.expiry_ms.is_some() { VALUE_LEN_BYTES } else { 0 };
        self.name_offset() + self.name_len + between
    }

    fn size(&self) -> usize {
        Arena::class_size(self.value_offset() + self.value_len)
    }

    pub(super) fn name<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        Ok(arena.bytes(self.handle, self.name_offset(), self.name_len)?)
    }

    pub(super) fn value<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        Ok(arena.bytes(self.handle, self.value_offset(), self.value_len)?)
    }

    /// Whether its time has not come.
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        self.expiry_ms.is_none_or(|at_ms| at_ms > now_ms)
    }
}

/// Finds a field, expired or not.
pub(super) fn find(arena: &Arena, head: &TableHead, hash: Hash, name: &[u8]) -> Result<Option<TtlField>> {
    let found = head.find(arena, hash, |item| {
        let words = arena.slice::<u32>(item, 0, 2)?;
        if words[0] != hash.low || words[1] & !TTL != name.len() as u32 {
            return Ok(false);
        }
        let offset = if words[1] & TTL != 0 { HEADER_BYTES } else { PLAIN_HEADER_BYTES };
        Ok(arena.bytes(item, offset, name.len())? == name)
    })?;
    found.map_or(Ok(None), |handle| TtlField::read(arena, handle))
}

/// Such a table, to be changed. The caller counts the fields.
pub(super) struct TtlTable<'a> {
    pub(super) heap: &'a mut Heap,
    pub(super) head: &'a mut TableHead,
    /// Numbers new nodes.
    pub(super) hasher: &'a MemberHasher,
}

impl TtlTable<'_> {
    fn tree(&mut self) -> Tree<'_> {
        Tree { heap: self.heap, head: self.head, hasher: self.hasher }
    }

    /// Adds a field that the table doesn't have. Nothing has changed if this fails, but for a bucket that may be split.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], expiry_ms: Option<i64>) -> Result<()> {
        let hash = self.hasher.hash(name);
        let Some(at_ms) = expiry_ms else { return fields::insert(self.heap, self.head, hash, name, value) };
        let field = create(self.heap, hash.low, name, value, expiry_ms)?;
        let listed = self.heap.with_room(|arena| self.head.insert(arena, hash, field.handle));
        if let Err(error) = listed {
            self.heap.arena.free(field.handle)?;
            return Err(error);
        }
        self.head.item_bytes = self.head.item_bytes.saturating_add(field.size() as u64);
        let scheduled = self.tree().insert(tree_number(at_ms), field.handle);
        if let Err(error) = scheduled {
            self.unlist(field)?;
            return Err(error);
        }
        Ok(())
    }

    /// Takes a field out and frees it.
    pub(super) fn remove(&mut self, field: TtlField) -> Result<()> {
        if field.expiry_ms.is_some() {
            self.tree().withdraw(field.handle)?;
        }
        self.unlist(field)
    }

    /// Gives a field another value and another expiry, or none. Nothing has changed if this fails.
    pub(super) fn set(&mut self, old: TtlField, name: &[u8], value: &[u8], expiry_ms: Option<i64>) -> Result<()> {
        match (old.expiry_ms, expiry_ms) {
            (None, None) => {
                let field = Field::read(&self.heap.arena, old.handle)?;
                fields::set_value(self.heap, self.head, field, self.hasher.hash(name), value)
            }
            (Some(_), None) => {
                let new = create(self.heap, old.hash, name, value, None)?;
                self.tree().withdraw(old.handle)?;
                self.replace(old, new)
            }
            (before, Some(at_ms)) => self.set_with_expiry(old, (name, value), before, at_ms),
        }
    }

    fn set_with_expiry(
        &mut self,
        old: TtlField,
        (name, value): (&[u8], &[u8]),
        before: Option<i64>,
        at_ms: i64,
    ) -> Result<()> {
        let new_size = Arena::class_size(HEADER_BYTES + name.len() + VALUE_LEN_BYTES + value.len());
        if before == Some(at_ms) && new_size == old.size() {
            return write_value(&mut self.heap.arena, &old, value);
        }
        let new = create(self.heap, old.hash, name, value, Some(at_ms))?;
        let scheduled = match before {
            // In the tree two fields of one name can't have one expiry, not even for a moment.
            Some(before) if before == at_ms => self.tree().exchange(old.handle, new.handle),
            Some(_) | None => self.tree().insert(tree_number(at_ms), new.handle),
        };
        if let Err(error) = scheduled {
            self.heap.arena.free(new.handle)?;
            return Err(error);
        }
        if before.is_some_and(|before| before != at_ms) {
            self.tree().withdraw(old.handle)?;
        }
        self.replace(old, new)
    }

    /// Gives a field another expiry, or none. Nothing has changed if this fails.
    pub(super) fn set_expiry(&mut self, field: TtlField, expiry_ms: Option<i64>) -> Result<()> {
        match (field.expiry_ms, expiry_ms) {
            (before, after) if before == after => Ok(()),
            (Some(_), Some(at_ms)) => self.tree().move_to(field.handle, tree_number(at_ms)),
            (Some(_), None) => {
                let new = create_from(self.heap, &field, None)?;
                self.tree().withdraw(field.handle)?;
                self.replace(field, new)
            }
            (None, Some(at_ms)) => {
                let new = create_from(self.heap, &field, expiry_ms)?;
                let scheduled = self.tree().insert(tree_number(at_ms), new.handle);
                if let Err(error) = scheduled {
                    self.heap.arena.free(new.handle)?;
                    return Err(error);
                }
                self.replace(field, new)
            }
            (None, None) => Ok(()),
        }
    }

    /// The field that expires first, if any does.
    pub(super) fn first(&self) -> Result<Option<TtlField>> {
        match schedule::first(&self.heap.arena, self.head)? {
            Some((_, item)) => TtlField::read(&self.heap.arena, item),
            None => Ok(None),
        }
    }

    /// Puts a field's new object, which the tree knows already if it has an expiry, in the place of the old one, which the tree has forgotten.
    fn replace(&mut self, old: TtlField, new: TtlField) -> Result<()> {
        if !self.head.replace(&mut self.heap.arena, old.hash, old.handle, new.handle)? {
            return Err(StoreError::damaged("a field is not in its table"));
        }
        self.heap.arena.free(old.handle)?;
        let others = self.head.item_bytes.saturating_sub(old.size() as u64);
        self.head.item_bytes = others.saturating_add(new.size() as u64);
        Ok(())
    }

    /// Takes a field that is not in the tree out of the table, and frees it.
    fn unlist(&mut self, field: TtlField) -> Result<()> {
        if !self.head.remove(&mut self.heap.arena, field.hash, field.handle)? {
            return Err(StoreError::damaged("a field is not in its table"));
        }
        self.head.item_bytes = self.head.item_bytes.saturating_sub(field.size() as u64);
        Ok(self.heap.arena.free(field.handle)?)
    }
}

/// The object of a field, in no table yet.
fn create(heap: &mut Heap, hash: u32, name: &[u8], value: &[u8], expiry_ms: Option<i64>) -> Result<TtlField> {
    let field = allocate(heap, hash, (name.len(), value.len()), expiry_ms)?;
    heap.arena.bytes_mut(field.handle, field.name_offset(), name.len())?.copy_from_slice(name);
    heap.arena.bytes_mut(field.handle, field.value_offset(), value.len())?.copy_from_slice(value);
    Ok(field)
}

/// The object of a field that is in the table with another expiry, or without one; it is in no table yet.
fn create_from(heap: &mut Heap, old: &TtlField, expiry_ms: Option<i64>) -> Result<TtlField> {
    // A damaged one, which ends before its value does, is found before memory is taken for another.
    old.value(&heap.arena)?;
    let new = allocate(heap, old.hash, (old.name_len, old.value_len), expiry_ms)?;
    heap.arena.copy(old.handle, old.name_offset(), new.handle, new.name_offset(), old.name_len)?;
    heap.arena.copy(old.handle, old.value_offset(), new.handle, new.value_offset(), old.value_len)?;
    Ok(new)
}

/// An object for a field, to which its name and its value are still to be written.
fn allocate(
    heap: &mut Heap,
    hash: u32,
    (name_len, value_len): (usize, usize),
    expiry_ms: Option<i64>,
) -> Result<TtlField> {
    let mut field = TtlField { handle: Handle::NULL, hash, name_len, value_len, expiry_ms };
    field.handle = heap.alloc(field.value_offset() + value_len)?;
    let begin = heap.arena.bytes_mut(field.handle, 0, field.value_offset())?;
    let Some(at_ms) = expiry_ms else {
        begin[..PLAIN_HEADER_BYTES].copy_from_slice(&fields::header_bytes(hash, name_len, value_len));
        return Ok(field);
    };
    begin[..LEN_OFFSET].copy_from_slice(&hash.to_ne_bytes());
    begin[LEN_OFFSET..EXPIRY_OFFSET].copy_from_slice(&(name_len as u32 | TTL).to_ne_bytes());
    begin[EXPIRY_OFFSET..HEADER_BYTES].copy_from_slice(&tree_number(at_ms).to_ne_bytes());
    begin[HEADER_BYTES + name_len..].copy_from_slice(&(value_len as u32).to_ne_bytes());
    Ok(field)
}

/// Writes another value over that of a field with an expiry, whose object has room for it.
fn write_value(arena: &mut Arena, field: &TtlField, value: &[u8]) -> Result<()> {
    let offset = HEADER_BYTES + field.name_len;
    let bytes = arena.bytes_mut(field.handle, offset, VALUE_LEN_BYTES + value.len())?;
    bytes[..VALUE_LEN_BYTES].copy_from_slice(&(value.len() as u32).to_ne_bytes());
    bytes[VALUE_LEN_BYTES..].copy_from_slice(value);
    Ok(())
}

/// Checks the tree of a table whose items were checked, and that every field with an expiry is in it; `hash_of` hashes a name. Takes as long
/// as the table is large.
pub(super) fn check(arena: &Arena, head: &TableHead, field_count: u64, hash_of: impl Fn(&[u8]) -> Hash) -> Result<()> {
    let mut with_expiry = 0;
    head.for_each(arena, |item| {
        let Some(field) = TtlField::read(arena, item)? else { return Ok(()) };
        let name = field.name(arena)?;
        // Of two fields of one name only one is the first that is found.
        if find(arena, head, hash_of(name), name)?.is_none_or(|found| found.handle != item) {
            return Err(damaged());
        }
        if let Some(at_ms) = field.expiry_ms {
            let kept = arena.slice::<f64>(item, EXPIRY_OFFSET, 1)?[0];
            if kept.to_bits() != tree_number(at_ms).to_bits() {
                return Err(damaged());
            }
            with_expiry += 1;
        }
        Ok(())
    })?;
    let is_listed = |item: Handle| -> Result<bool> {
        let Some(field) = TtlField::read(arena, item)? else { return Ok(false) };
        let name = field.name(arena)?;
        let found = find(arena, head, hash_of(name), name)?;
        Ok(field.expiry_ms.is_some() && found.is_some_and(|found| found.handle == item))
    };
    let (in_tree, nodes) = schedule::check(arena, head, &is_listed)?;
    match in_tree == with_expiry && field_count.checked_add(nodes) == Some(head.count) {
        true => Ok(()),
        false => Err(StoreError::damaged("a hash whose fields and times to live don't add up")),
    }
}
