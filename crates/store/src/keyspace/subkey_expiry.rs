//! Subkeys, as Redis calls the fields of a hash that have times to live of their own: the search for those whose time has come. Reads and writes only pass over them;
//! here they are taken out.
//!
//! Relies on `subkey_index` for the keys that hold such values. Knows no types: what is done with a value is asked of the functions that
//! the keyspace is made with.

use quire_arena::{Arena, Handle};

use crate::db::DbId;
use crate::error::{Result, StoreError};
use crate::events::KeyFate;
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::keyspace::root::DATABASES;
use crate::keyspace::subkey_index::has_expiring_subkeys;

/// What the keyspace asks of values with expiring subkeys.
#[derive(Debug)]
pub(crate) struct SubkeyOps {
    /// The first instant at which a subkey expires; `None` if none does any more.
    pub(crate) first_expiry: fn(&Arena, &Entry) -> Result<Option<i64>>,
    /// Takes up to so many subkeys out whose time has come, which is told by the caller; the last one takes the key with it.
    pub(crate) expire: fn(&mut Keyspace, DbId, &[u8], usize) -> Result<ExpiredSubkeys>,
}

/// What was taken out of a value.
#[derive(Debug)]
pub(crate) struct ExpiredSubkeys {
    pub(crate) names: Vec<Box<[u8]>>,
    pub(crate) is_key_gone: bool,
}

/// What a step of the search did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubkeysSearched {
    /// Values, subkeys and buckets that were looked at.
    pub(super) examined: usize,
    /// Parts that were taken out.
    pub(super) expired: usize,
}

/// Looks at about `budget` values and subkeys, database after database, and takes subkeys out whose time has come.
pub(super) fn step(keyspace: &mut Keyspace, budget: usize) -> Result<SubkeysSearched> {
    let mut searched = SubkeysSearched::default();
    let busy = keyspace.searches.subkeys.tables.iter().filter(|table| table.count > 0).count();
    let Some(share) = budget.checked_div(busy) else { return Ok(searched) };
    for _ in 0..DATABASES {
        let index = keyspace.searches.subkeys.next_db;
        keyspace.searches.subkeys.next_db = (index + 1) % DATABASES;
        // Those that are not in use keep what they have.
        if index < usize::from(keyspace.databases) {
            search(keyspace, index, share.max(1), &mut searched)?;
        }
        if searched.examined >= budget {
            break;
        }
    }
    Ok(searched)
}

/// Searches one database, from where the last step stopped.
fn search(keyspace: &mut Keyspace, index: usize, budget: usize, searched: &mut SubkeysSearched) -> Result<()> {
    let end = searched.examined.saturating_add(budget);
    let (mut batch, mut rounds): (Vec<Handle>, u32) = (Vec::new(), 0);
    while searched.examined < end && keyspace.searches.subkeys.tables[index].count > 0 {
        batch.clear();
        let cursor = keyspace.searches.subkeys.cursors[index];
        let next = keyspace.searches.subkeys.tables[index].scan(&keyspace.heap.arena, cursor, |item| {
            batch.push(item);
            Ok(())
        })?;
        keyspace.searches.subkeys.cursors[index] = next;
        searched.examined += 1;
        let mut failed = None;
        for &item in &batch {
            let left = end.saturating_sub(searched.examined).max(1);
            // A damaged value must not hold up those behind it, each time that the search comes by.
            let expired = expire_subkeys(keyspace, index, item, left).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                0
            });
            searched.examined += 1 + expired;
            searched.expired += expired;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // A search that begins in the middle comes by every value: if there are few, each may have many subkeys.
        rounds += u32::from(next == 0);
        if rounds == 2 {
            break;
        }
    }
    Ok(())
}

/// Takes up to `most` subkeys out of a value whose time has come; returns how many.
fn expire_subkeys(keyspace: &mut Keyspace, index: usize, item: Handle, most: usize) -> Result<usize> {
    let arena = &keyspace.heap.arena;
    let entry = Entry::read(arena, item)?;
    if !has_expiring_subkeys(&entry) {
        return Err(StoreError::damaged("an index of values with expiring subkeys"));
    }
    let (SubkeyOps { first_expiry, expire }, key) = (keyspace.values.subkey_ops, entry.key(arena)?);
    // A copy of a value that is changed would begin again.
    let is_copied = keyspace.copy_source().is_some_and(|source| source == key);
    if is_copied || first_expiry(arena, &entry)?.is_some_and(|at_ms| at_ms > keyspace.now_ms()) {
        return Ok(0);
    }
    let (db, key) = (DbId(index as u8), key.to_vec());
    // It is no access.
    let touching = std::mem::replace(&mut keyspace.clock.touching, false);
    let gone = expire(keyspace, db, &key, most);
    keyspace.clock.touching = touching;
    let ExpiredSubkeys { names, is_key_gone } = gone?;
    let expired = names.len();
    if expired > 0 {
        keyspace.counters.expired_subkeys += expired as u64;
        keyspace.effects.note_expired_subkeys(db, &key, names);
        let fate = if is_key_gone { KeyFate::LastFieldsExpired } else { KeyFate::FieldsExpired };
        keyspace.events.emit(db, &key, fate);
    }
    Ok(expired)
}
