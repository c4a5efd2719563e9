//! A value of the store, written as RDB bytes: in the plain form of its type, which every version of Redis loads and packs again by
//! its own limits.

use std::io::Write;

use quire_rdb::{Encoder, ValueKind};
use quire_store::{DbId, Direction, Store, StoreError, ValueType, hash, list, set, string, zset};

use super::streams::encode_stream;

/// The form of a type's values.
pub fn kind_of(kind: ValueType) -> ValueKind {
    match kind {
        ValueType::String => ValueKind::String,
        ValueType::Hash => ValueKind::Hash,
        ValueType::Set => ValueKind::Set,
        ValueType::List => ValueKind::List,
        ValueType::Zset => ValueKind::Zset,
        ValueType::Stream => ValueKind::Stream,
    }
}

/// Writes the value of a key that exists, and is of this type. Whether the sink took it, the encoder tells.
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
            out.length(hash.field_count()? as u64);
            hash.for_each(&mut |field, value| {
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
