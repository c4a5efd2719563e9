//! Bytes that lie beside the keys: every image has them, and what they mean is the caller's. No command on keys touches them.
//!
//! Relies on the root, which names the one object that holds them. New bytes get an object of their own before the root names it, so
//! that what was there stays when memory is short.

use crate::error::{Result, StoreError};
use crate::heap::External;
use crate::keyspace::{Keyspace, root};

/// The bytes; none if there never were any, or they were taken away.
///
/// # Errors
/// [`StoreError::Damaged`].
pub fn get(keyspace: &Keyspace) -> Result<Option<&[u8]>> {
    let arena = keyspace.arena();
    let External { object, size } = root::attachment(arena, keyspace.root())?;
    if object.is_null() {
        return Ok(None);
    }
    Ok(Some(arena.bytes(object, 0, size as usize)?))
}

/// Puts these bytes in the place of those that are there; no bytes take them away.
///
/// # Errors
/// [`StoreError::OutOfMemory`], [`StoreError::TooLarge`], [`StoreError::Damaged`]; what was there stays.
pub fn set(keyspace: &mut Keyspace, bytes: &[u8]) -> Result<()> {
    let old = root::attachment(keyspace.arena(), keyspace.root())?;
    if old.object.is_null() && bytes.is_empty() {
        return Ok(());
    }
    let mut new = External::default();
    if !bytes.is_empty() {
        let size = size_of_bytes(bytes.len())?;
        new = External { object: keyspace.heap.alloc_external(bytes.len())?, size };
        keyspace.heap.arena.bytes_mut(new.object, 0, bytes.len())?.copy_from_slice(bytes);
    }
    root::set_attachment(&mut keyspace.heap.arena, keyspace.root, new)?;
    keyspace.counters.changes += 1;
    if !old.object.is_null() {
        keyspace.heap.arena.free(old.object)?;
    }
    Ok(())
}

/// Their number as the root keeps it, beside the highest bit.
fn size_of_bytes(len: usize) -> Result<u32> {
    i32::try_from(len).map(i32::cast_unsigned).map_err(|_| StoreError::TooLarge { len: len as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_too_many_for_the_root_are_refused_rather_than_cut() {
        assert_eq!(size_of_bytes(i32::MAX as usize).unwrap(), 0x7fff_ffff);
        assert!(matches!(size_of_bytes(1 << 31), Err(StoreError::TooLarge { len: 0x8000_0000 })));
    }
}
