//! The fields of a hash that is a table: one arena object each.
//!
//! ```text
//! 0  hash u32 · field length u32 · value length u32
//! 12 field bytes · value bytes
//! ```
//!
//! Functions on the table's head; the caller writes it back to the entry.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::MemberHasher;
use crate::table::{Hash, TableHead};

use super::packed;

/// Bytes before a field's name.
pub(super) const HEADER_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FieldHeader {
    hash: u32,
    field_len: u32,
    value_len: u32,
}

const _: () = assert!(size_of::<FieldHeader>() == HEADER_BYTES);

/// What stands before a field's name.
pub(super) fn header_bytes(hash: u32, field_len: usize, value_len: usize) -> [u8; HEADER_BYTES] {
    zerocopy::transmute!(FieldHeader { hash, field_len: field_len as u32, value_len: value_len as u32 })
}

/// A field's object and header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    handle: Handle,
    header: FieldHeader,
}

impl Field {
    #[inline]
    pub(crate) fn read(arena: &Arena, handle: Handle) -> Result<Field> {
        Ok(Field { handle, header: *arena.get::<FieldHeader>(handle)? })
    }

    #[inline]
    pub(crate) fn name<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        Ok(arena.bytes(self.handle, HEADER_BYTES, self.header.field_len as usize)?)
    }

    #[inline]
    pub(crate) fn value<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        let offset = HEADER_BYTES + self.header.field_len as usize;
        Ok(arena.bytes(self.handle, offset, self.header.value_len as usize)?)
    }

    fn size(&self) -> usize {
        Arena::class_size(HEADER_BYTES + self.header.field_len as usize + self.header.value_len as usize)
    }
}

/// Finds a field.
#[inline]
pub(crate) fn find(arena: &Arena, head: &TableHead, hash: Hash, name: &[u8]) -> Result<Option<Field>> {
    let found = head.find(arena, hash, |item| {
        let field = Field::read(arena, item)?;
        Ok(field.header.hash == hash.low && field.name(arena)? == name)
    })?;
    found.map(|handle| Field::read(arena, handle)).transpose()
}

fn create(heap: &mut Heap, hash: Hash, name: &[u8], value: &[u8]) -> Result<Field> {
    let total = HEADER_BYTES + name.len() + value.len();
    let handle = heap.alloc(total)?;
    let header = FieldHeader { hash: hash.low, field_len: name.len() as u32, value_len: value.len() as u32 };
    let bytes = heap.arena.bytes_mut(handle, 0, total)?;
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes[HEADER_BYTES..][..name.len()].copy_from_slice(name);
    bytes[HEADER_BYTES + name.len()..].copy_from_slice(value);
    Ok(Field { handle, header })
}

/// Adds a field that the table doesn't have. Nothing has changed if this fails.
pub(crate) fn insert(heap: &mut Heap, head: &mut TableHead, hash: Hash, name: &[u8], value: &[u8]) -> Result<()> {
    let field = create(heap, hash, name, value)?;
    if let Err(error) = heap.with_room(|arena| head.insert(arena, hash, field.handle)) {
        heap.arena.free(field.handle)?;
        return Err(error);
    }
    head.item_bytes = head.item_bytes.saturating_add(field.size() as u64);
    Ok(())
}

/// Adds the fields of a packed hash, but for one that is named, to a table that has none of them.
pub(super) fn insert_packed(
    heap: &mut Heap,
    hasher: &MemberHasher,
    head: &mut TableHead,
    bytes: &[u8],
    except: Option<&[u8]>,
) -> Result<()> {
    for span in packed::pairs(bytes)? {
        let span = span?;
        let name = &bytes[span.field..][..span.field_len];
        if except != Some(name) {
            insert(heap, head, hasher.hash(name), name, &bytes[span.value..span.end()])?;
        }
    }
    Ok(())
}

/// Gives a field another value. Nothing has changed if this fails.
pub(crate) fn set_value(heap: &mut Heap, head: &mut TableHead, field: Field, hash: Hash, value: &[u8]) -> Result<()> {
    let mut new = field;
    new.header.value_len = value.len() as u32;
    if new.size() == field.size() {
        let offset = HEADER_BYTES + field.header.field_len as usize;
        let bytes = heap.arena.bytes_mut(field.handle, 0, offset + value.len())?;
        bytes[..HEADER_BYTES].copy_from_slice(new.header.as_bytes());
        bytes[offset..].copy_from_slice(value);
        return Ok(());
    }
    new.handle = heap.alloc(HEADER_BYTES + new.header.field_len as usize + value.len())?;
    if let Err(error) = fill_from(&mut heap.arena, &field, &new, value) {
        heap.arena.free(new.handle)?;
        return Err(error);
    }
    if !head.replace(&mut heap.arena, hash.low, field.handle, new.handle)? {
        return Err(StoreError::damaged("a field is not in its table"));
    }
    heap.arena.free(field.handle)?;
    head.item_bytes = head.item_bytes.saturating_sub(field.size() as u64).saturating_add(new.size() as u64);
    Ok(())
}

/// Writes a new field that takes its name from an old one.
fn fill_from(arena: &mut Arena, old: &Field, new: &Field, value: &[u8]) -> Result<()> {
    let name_len = old.header.field_len as usize;
    arena.bytes_mut(new.handle, 0, HEADER_BYTES)?.copy_from_slice(new.header.as_bytes());
    arena.copy(old.handle, HEADER_BYTES, new.handle, HEADER_BYTES, name_len)?;
    arena.bytes_mut(new.handle, HEADER_BYTES + name_len, value.len())?.copy_from_slice(value);
    Ok(())
}

/// Takes a field out and frees it.
pub(crate) fn remove(arena: &mut Arena, head: &mut TableHead, field: Field) -> Result<()> {
    if !head.remove(arena, field.header.hash, field.handle)? {
        return Err(StoreError::damaged("a field is not in its table"));
    }
    head.item_bytes = head.item_bytes.saturating_sub(field.size() as u64);
    Ok(arena.free(field.handle)?)
}
