//! Strings that were looked up once, to be read and written over many times by one command, which is one change.
//!
//! Relies on `growth` for those that get longer.

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::keyspace::value::ValueMut;
use crate::keyspace::{Keyspace, STRING_MAX_BYTES};

use super::{growth, pad};

/// A string to be changed, which has all bytes that are going to be written over.
#[derive(Debug)]
pub struct StringMut<'a> {
    value: ValueMut<'a>,
}

/// A key's string, made at least `len` bytes long, padded with zeros; it is created if need be.
///
/// # Errors
/// As [`super::set_range`].
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8], len: usize) -> Result<StringMut<'a>> {
    let string = keyspace.open_mut(db, key, ValueType::String)?;
    padded(string, len, false)
}

/// As [`open_mut`], in steps as [`super::append_in_steps`].
///
/// # Errors
/// As [`open_mut`].
pub fn open_mut_in_steps<'a>(
    keyspace: &'a mut Keyspace,
    owner: u64,
    db: DbId,
    key: &'a [u8],
    len: usize,
) -> Result<Option<StringMut<'a>>> {
    let Some(growing) = growth::open(keyspace, owner, db, key, |_| len as u64, true)? else { return Ok(None) };
    padded(growing.string, len, growing.is_cleared).map(Some)
}

fn padded(string: ValueMut<'_>, len: usize, is_cleared: bool) -> Result<StringMut<'_>> {
    if len > STRING_MAX_BYTES {
        return Err(StoreError::TooLarge { len: len as u64 });
    }
    let mut value = string;
    pad(&mut value, len, is_cleared)?;
    Ok(StringMut { value })
}

impl StringMut<'_> {
    /// Its bytes.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn bytes(&self) -> Result<&[u8]> {
        self.value.bytes()
    }

    /// Writes over some bytes that it has. Those that are the same already are no change.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], also of bytes that it doesn't have.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let same = self.bytes()?.get(offset..).and_then(|rest| rest.get(..bytes.len())) == Some(bytes);
        if !same {
            self.value.part_mut(offset, bytes.len())?.copy_from_slice(bytes);
        }
        Ok(())
    }
}
