//! A value of the store, written as RDB bytes: in the plain form of its type, which every version of Redis loads and packs again by
//! its own limits. Only a hash whose fields have times to live has a form that versions before 7.4 don't know.

use std::io::Write;

use quire_rdb::{Encoder, ValueKind};
use quire_store::{DbId, Direction, Store, StoreError, ValueType, hash, list, set, string, zset};

use super::streams::encode_stream;

/// The form of the value of a key that exists, and is of this type; `None` for a hash without fields whose time has not come: there is no
/// such value in Redis.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
pub fn kind_of(store: &Store, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<ValueKind>, StoreError> {
    Ok(Some(match kind {
        ValueType::String => ValueKind::String,
        ValueType::Hash => {
            let hash = hash::peek(store, db, key)?;
            if hash.field_count()? == 0 {
                return Ok(None);
            }
            if hash.first_expiry()?.is_some() { ValueKind::TtlHash } else { ValueKind::Hash }
        }
        ValueType::Set => ValueKind::Set,
        ValueType::List => ValueKind::List,
        ValueType::Zset => ValueKind::Zset,
        ValueType::Stream => ValueKind::Stream,
    }))
}

/// Writes the value of a key that exists, and is of this type, in the form that [`kind_of`] says. Whether the sink took it, the encoder tells.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
pub fn encode_value<W: Write>(
    store: &mut Store,
    db: DbId,
    key: &[u8],
    kind: ValueType,
    out: &mut Encoder<W>,
) -> Result<(), StoreError> {
    match kind {
        ValueType::String => out.string(string::get(store, db, key)?.unwrap_or_default()),
        ValueType::List => {
            let list = list::view(store, db, key)?;
            let len = list.len()?;
            out.length(len);
            list.range(0..len, |element| out.string(element.text(&mut itoa::Buffer::new())))?;
        }
        ValueType::Set => {
            let set = set::view(store, db, key)?;
            out.length(set.len()? as u64);
            set.for_each(|member| {
                out.string(member.text(&mut itoa::Buffer::new()));
                true
            })?;
        }
        ValueType::Hash => {
            let hash = hash::view(store, db, key)?;
            let (count, first_ms) = (hash.field_count()? as u64, hash.first_expiry()?);
            first_ms.into_iter().for_each(|first_ms| out.first_expiry(first_ms));
            out.length(count);
            hash.for_each_with_expiry(&mut |field, value, expire_ms| {
                first_ms.into_iter().for_each(|first_ms| out.field_expiry(expire_ms, first_ms));
                out.string(field);
                out.string(value);
            })?;
        }
        ValueType::Zset => {
            let zset = zset::view(store, db, key)?;
            out.length(zset.len()?);
            zset.range(0..u64::MAX, Direction::Up, |score, member| {
                out.string(member);
                out.score(score);
                true
            })?;
        }
        ValueType::Stream => encode_stream(store, db, key, out)?,
    }
    Ok(())
}
