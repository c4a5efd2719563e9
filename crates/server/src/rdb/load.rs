//! A value that is read from RDB bytes, put into the store.

use std::io::Read;

use quire_rdb::{Elements, Pairs, Scored, StreamReader, Value};
use quire_store::{DbId, End, ExpiryChange, Store, StreamId, hash, list, set, stream, string, zset};

use super::streams::{self, load_state};

pub use super::load_error::LoadError;

const _: () = assert!(quire_rdb::MAX_FIELD_EXPIRY_MS == hash::MAX_EXPIRY_MS as u64, "what is read can be stored");

/// What came of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loaded {
    /// The key has it.
    Whole,
    /// It has no parts, so there is no key.
    Empty,
    /// This program has no such values. It was read over.
    Unsupported(&'static str),
}

/// Where a value goes: a key that doesn't exist.
#[derive(Clone, Copy, Debug)]
pub struct LoadTarget<'k> {
    /// The database.
    pub db: DbId,
    /// The key.
    pub key: &'k [u8],
    /// It is one at which the value is made aside. A string is not made so: it is set as a whole.
    pub is_aside: bool,
}

/// Reads a value to its end and puts it into the store.
///
/// # Errors
/// The value can't be read or stored; a part of it may be there then.
pub fn load_value<R: Read>(
    store: &mut Store,
    target: LoadTarget<'_>,
    value: Value<'_, R>,
) -> Result<Loaded, LoadError> {
    match value {
        Value::String(bytes) => {
            string::set(store, target.db, target.key, &bytes, ExpiryChange::Clear)?;
            Ok(Loaded::Whole)
        }
        Value::List(elements) => load_list(store, target, elements),
        Value::Set(members) => load_set(store, target, members),
        Value::Hash(pairs) => load_hash(store, target, pairs),
        Value::Zset(scored) => load_zset(store, target, scored),
        Value::Stream(reader) => load_stream(store, target, reader),
        Value::Module(_) => Ok(Loaded::Unsupported("module")),
    }
}

fn stored(parts: u64) -> Loaded {
    if parts == 0 { Loaded::Empty } else { Loaded::Whole }
}

fn load_list<R: Read>(
    store: &mut Store,
    target: LoadTarget<'_>,
    mut elements: Elements<'_, R>,
) -> Result<Loaded, LoadError> {
    let mut list = list::open_mut(store, target.db, target.key)?;
    if target.is_aside {
        list = list.made_aside();
    }
    let (mut count, mut element) = (0, Vec::new());
    while elements.next_into(&mut element)? {
        list.make_room([&element[..]])?;
        list.push(End::Back, &element)?;
        count += 1;
    }
    Ok(stored(count))
}

fn load_set<R: Read>(
    store: &mut Store,
    target: LoadTarget<'_>,
    mut members: Elements<'_, R>,
) -> Result<Loaded, LoadError> {
    let mut set = set::open_mut(store, target.db, target.key)?;
    if target.is_aside {
        set = set.made_aside();
    }
    let (mut count, mut member) = (0, Vec::new());
    while members.next_into(&mut member)? {
        if !set.add(&member)? {
            return Err(LoadError::Content("a set has a member twice"));
        }
        count += 1;
    }
    Ok(stored(count))
}

fn load_hash<R: Read>(store: &mut Store, target: LoadTarget<'_>, mut pairs: Pairs<'_, R>) -> Result<Loaded, LoadError> {
    let mut hash = hash::open_mut(store, target.db, target.key)?;
    if target.is_aside {
        hash = hash.made_aside();
    }
    let (mut count, mut field, mut value) = (0, Vec::new(), Vec::new());
    while pairs.next_into(&mut field, &mut value)? {
        // One whose time has come is there until the search for such fields takes it out, which is logged.
        if !hash.load(&field, &value, pairs.expire_ms())? {
            return Err(LoadError::Content("a hash has a field twice"));
        }
        count += 1;
    }
    Ok(stored(count))
}

fn load_zset<R: Read>(
    store: &mut Store,
    target: LoadTarget<'_>,
    mut scored: Scored<'_, R>,
) -> Result<Loaded, LoadError> {
    let mut zset = zset::open_mut(store, target.db, target.key)?;
    if target.is_aside {
        zset = zset.made_aside();
    }
    let (mut count, mut member) = (0, Vec::new());
    while let Some(score) = scored.next_into(&mut member)? {
        if !zset.set(&member, score)?.is_added() {
            return Err(LoadError::Content("a sorted set has a member twice"));
        }
        count += 1;
    }
    Ok(stored(count))
}

fn load_stream<R: Read>(
    store: &mut Store,
    target: LoadTarget<'_>,
    mut reader: StreamReader<'_, R>,
) -> Result<Loaded, LoadError> {
    let mut stream = stream::open_mut(store, target.db, target.key)?;
    if target.is_aside {
        stream = stream.made_aside();
    }
    // One without entries is a key, too.
    stream.create()?;
    let mut last = StreamId::MIN;
    while let Some(entry) = reader.next_entry()? {
        let id = streams::read(entry.id);
        if id <= last {
            return Err(LoadError::Content("a stream's entries are not in order"));
        }
        let mut words = Vec::with_capacity(2 * entry.field_count());
        entry.for_each(|field, value| words.extend([field.to_vec(), value.to_vec()]));
        stream.add(id, &words.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        last = id;
    }
    load_state(&mut stream, &reader.finish()?)?;
    Ok(Loaded::Whole)
}
