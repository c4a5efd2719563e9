//! An entry of the keyspace: one arena object with header, time to live, key and value.
//!
//! ```text
//! 0   hash u32 · encoding u8 · flags u8 · key length u16 · access clock u32 · value length u32
//! 16  time to live, i64 in unix milliseconds          (flag EXPIRES)
//! ..  key bytes, or {handle, length} of a long key    (flag LONG_KEY)
//! ..  value bytes, or {handle, capacity} of a big one (flag EXTERNAL)
//! ```
//!
//! Lengths are bounds-checked by the arena when they are used, so an entry from a damaged image gives an error.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::encoding::Encoding;
use crate::error::{Result, StoreError};
use crate::heap::External;
use crate::table::{Hash, TableHead};

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a time to live.
pub(crate) const EXPIRY_BYTES: usize = 8;
/// An entry that would be larger keeps its value in an object of its own.
pub(crate) const INLINE_MAX: usize = 16 << 10;
/// A longer key has an object of its own.
pub(crate) const KEY_INLINE_MAX: usize = 8 << 10;

/// The entry has a time to live.
pub(crate) const EXPIRES: u8 = 1;
/// The key lies in an object of its own.
pub(crate) const LONG_KEY: u8 = 2;
/// The value lies in an object of its own.
pub(crate) const EXTERNAL: u8 = 4;
/// The object is larger than the entry's length explains.
pub(crate) const ROOMY: u8 = 8;
/// The string was changed in part; Redis would no longer encode it as an integer or embedded string.
pub(crate) const RAW: u8 = 16;
/// The string was calculated as a fraction; Redis would not encode it as an integer even if it is one.
pub(crate) const TEXT: u8 = 32;

/// The fixed part of every entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EntryHeader {
    pub(crate) hash: u32,
    pub(crate) encoding: u8,
    pub(crate) flags: u8,
    pub(crate) key_len: u16,
    /// When and how often it was used (`access`).
    pub(crate) clock: u32,
    pub(crate) value_len: u32,
}

const _: () = assert!(size_of::<EntryHeader>() == HEADER_BYTES);

/// An entry that was looked up: its handle and a copy of its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) handle: Handle,
    pub(crate) header: EntryHeader,
}

impl Entry {
    #[inline]
    pub(crate) fn read(arena: &Arena, handle: Handle) -> Result<Entry> {
        Ok(Entry { handle, header: *arena.get::<EntryHeader>(handle)? })
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    #[inline]
    pub(crate) fn encoding(&self) -> Result<Encoding> {
        Encoding::from_raw(self.header.encoding)
    }

    #[inline]
    pub(crate) fn key_offset(&self) -> usize {
        key_offset(self.header.flags)
    }

    /// Bytes that the key takes in the entry itself.
    #[inline]
    pub(crate) fn key_room(&self) -> usize {
        if self.has(LONG_KEY) { External::BYTES } else { self.header.key_len as usize }
    }

    #[inline]
    pub(crate) fn value_offset(&self) -> usize {
        self.key_offset() + self.key_room()
    }

    /// Bytes that the entry needs.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let value = if self.has(EXTERNAL) { External::BYTES } else { self.header.value_len as usize };
        self.value_offset() + value
    }

    /// Bytes of the entry's object.
    #[inline]
    pub(crate) fn capacity(&self, arena: &Arena) -> Result<usize> {
        Ok(if self.has(ROOMY) { arena.usable_size(self.handle)? } else { Arena::class_size(self.len()) })
    }

    /// Where a long key lies.
    pub(crate) fn key_object(&self, arena: &Arena) -> Result<Option<External>> {
        self.has(LONG_KEY).then(|| External::read(arena, self.handle, self.key_offset())).transpose()
    }

    /// Where a big value lies.
    pub(crate) fn value_object(&self, arena: &Arena) -> Result<Option<External>> {
        self.has(EXTERNAL).then(|| External::read(arena, self.handle, self.value_offset())).transpose()
    }

    #[inline]
    pub(crate) fn key<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        if self.has(LONG_KEY) {
            let key = External::read(arena, self.handle, self.key_offset())?;
            return Ok(arena.bytes(key.object, 0, key.size as usize)?);
        }
        Ok(arena.bytes(self.handle, self.key_offset(), self.header.key_len as usize)?)
    }

    /// The object that holds the value's bytes, and the offset at which they begin.
    #[inline]
    pub(crate) fn value_place(&self, arena: &Arena) -> Result<(Handle, usize)> {
        if self.has(EXTERNAL) {
            return Ok((External::read(arena, self.handle, self.value_offset())?.object, 0));
        }
        Ok((self.handle, self.value_offset()))
    }

    #[inline]
    pub(crate) fn value<'a>(&self, arena: &'a Arena) -> Result<&'a [u8]> {
        let (object, offset) = self.value_place(arena)?;
        Ok(arena.bytes(object, offset, self.header.value_len as usize)?)
    }

    /// The value's bytes from `offset`, to be changed.
    #[inline]
    pub(super) fn value_mut<'a>(&self, arena: &'a mut Arena, offset: usize, len: usize) -> Result<&'a mut [u8]> {
        let (object, start) = self.value_place(arena)?;
        Ok(arena.bytes_mut(object, start + offset, len)?)
    }

    /// Unix milliseconds at which the entry expires.
    #[inline]
    pub(crate) fn expiry(&self, arena: &Arena) -> Result<Option<i64>> {
        if !self.has(EXPIRES) {
            return Ok(None);
        }
        let bytes = arena.bytes(self.handle, HEADER_BYTES, EXPIRY_BYTES)?;
        Ok(Some(i64::read_from_bytes(bytes).map_err(|_| StoreError::damaged("a time cut short"))?))
    }

    /// The head of the table that the value is.
    pub(crate) fn table(&self, arena: &Arena) -> Result<TableHead> {
        let bytes = arena.bytes(self.handle, self.value_offset(), TableHead::BYTES)?;
        let head = TableHead::read_from_bytes(bytes).map_err(|_| StoreError::damaged("a table cut short"))?;
        head.check(arena)?;
        Ok(head)
    }

    pub(super) fn set_table(&self, arena: &mut Arena, head: &TableHead) -> Result<()> {
        arena.bytes_mut(self.handle, self.value_offset(), TableHead::BYTES)?.copy_from_slice(head.as_bytes());
        Ok(())
    }

    /// Whether this is the entry of `key`.
    #[inline]
    pub(crate) fn is(arena: &Arena, handle: Handle, hash: Hash, key: &[u8]) -> Result<bool> {
        let entry = Entry::read(arena, handle)?;
        Ok(entry.header.hash == hash.low && entry.key(arena)? == key)
    }
}

/// Where the key begins in an entry with these flags.
#[inline]
pub(crate) fn key_offset(flags: u8) -> usize {
    HEADER_BYTES + if flags & EXPIRES != 0 { EXPIRY_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_string_takes_one_cache_line() {
        let header = EntryHeader { key_len: 16, value_len: 32, ..EntryHeader::default() };
        assert_eq!(Entry { handle: Handle::NULL, header }.len(), 64);
        assert_eq!(Arena::class_size(64), 64);
    }
}
