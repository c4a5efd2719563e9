//! Making entries, and giving an existing one another length, time to live or encoding.
//!
//! The one place that allocates and moves entries. Memory is taken before anything changes, so a failure leaves the
//! entry as it was. An entry moves only if its size class changes; then its tables are told.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::db::DbId;
use crate::encoding::Encoding;
use crate::error::{Result, StoreError};
use crate::heap::External;
use crate::keyspace::access::AccessStamp;
use crate::keyspace::entry::{
    EXPIRES, EXPIRY_BYTES, EXTERNAL, Entry, EntryHeader, HEADER_BYTES, INLINE_MAX, KEY_INLINE_MAX, LONG_KEY, RAW,
    ROOMY, TEXT, key_offset,
};
use crate::keyspace::subkey_index;
use crate::keyspace::{Keyspace, STRING_MAX_BYTES};
use crate::table::defrag::DefragTally;
use crate::table::{Hash, TableHead};

/// What an entry is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryLayout {
    pub(crate) encoding: Encoding,
    pub(crate) value_len: usize,
    /// Bytes of the old value that stay; what follows them is for the caller to write.
    pub(crate) keep: usize,
    pub(crate) expiry: Option<i64>,
    /// Bytes that a big value gets in reserve.
    pub(crate) reserve: usize,
}

impl EntryLayout {
    /// A whole new value.
    pub(crate) fn new(encoding: Encoding, value_len: usize, expiry: Option<i64>) -> EntryLayout {
        EntryLayout { encoding, value_len, keep: 0, expiry, reserve: 0 }
    }
}

/// Where an entry's value goes: into the entry, or into an object of its own.
struct EntryPlacement {
    flags: u8,
    total: usize,
    external: Option<External>,
}

/// A new entry, already in its tables; its value's bytes are for the caller to write.
pub(super) fn create(keyspace: &mut Keyspace, db: DbId, key: &[u8], hash: Hash, layout: EntryLayout) -> Result<Entry> {
    let index = keyspace.db_index(db)?;
    let entry = allocate(keyspace, key, hash, layout)?;
    if let Err(error) = link(keyspace, index, &entry, hash) {
        discard(keyspace, &entry)?;
        return Err(error);
    }
    keyspace.events.note_made(db, key);
    Ok(entry)
}

/// An entry that is in no table yet.
pub(super) fn allocate(keyspace: &mut Keyspace, key: &[u8], hash: Hash, layout: EntryLayout) -> Result<Entry> {
    let expiry = if layout.expiry.is_some() { EXPIRES } else { 0 };
    let key_room = if key.len() > KEY_INLINE_MAX { External::BYTES } else { key.len() };
    let big = key_offset(expiry) + key_room + layout.value_len > INLINE_MAX;
    allocate_as(keyspace, key, hash, layout, big)
}

/// An entry that is in no table yet, whose value gets an object of its own if `big`.
pub(super) fn allocate_as(
    keyspace: &mut Keyspace,
    key: &[u8],
    hash: Hash,
    layout: EntryLayout,
    big: bool,
) -> Result<Entry> {
    check_len(layout.value_len)?;
    check_len(key.len())?;
    let long_key = key.len() > KEY_INLINE_MAX;
    let key_room = if long_key { External::BYTES } else { key.len() };
    let mut flags = if long_key { LONG_KEY } else { 0 };
    flags |= if layout.expiry.is_some() { EXPIRES } else { 0 };
    let fixed = key_offset(flags) + key_room;
    flags |= if big { EXTERNAL } else { 0 };
    let total = fixed + if big { External::BYTES } else { layout.value_len };

    let handle = keyspace.heap.alloc(total)?;
    let header = EntryHeader {
        hash: hash.low,
        encoding: layout.encoding as u8,
        flags,
        key_len: if long_key { 0 } else { key.len() as u16 },
        clock: AccessStamp::new(keyspace.clock.seconds).raw(),
        value_len: layout.value_len as u32,
    };
    let entry = Entry { handle, header };
    let parts = allocate_parts(keyspace, long_key.then_some(key), big.then_some(layout.value_len + layout.reserve));
    let (key_object, value_object) = match parts {
        Ok(parts) => parts,
        Err(error) => {
            keyspace.heap.arena.free(handle)?;
            return Err(error);
        }
    };
    let bytes = keyspace.heap.arena.bytes_mut(handle, 0, total)?;
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    if let Some(at_ms) = layout.expiry {
        bytes[HEADER_BYTES..][..EXPIRY_BYTES].copy_from_slice(&at_ms.to_ne_bytes());
    }
    let key_reference = key_object.map(External::to_bytes);
    let key = key_reference.as_ref().map_or(key, |bytes| bytes.as_slice());
    bytes[entry.key_offset()..][..key_room].copy_from_slice(key);
    if let Some(object) = value_object {
        bytes[entry.value_offset()..][..External::BYTES].copy_from_slice(&object.to_bytes());
    }
    Ok(entry)
}

/// An entry that is in no table yet, of a value that lies in `object` already.
pub(super) fn allocate_around(
    keyspace: &mut Keyspace,
    key: &[u8],
    hash: Hash,
    layout: EntryLayout,
    object: External,
) -> Result<Entry> {
    check_len(layout.value_len)?;
    // In the place of the value's bytes comes the reference to them.
    let mut entry = allocate_as(keyspace, key, hash, EntryLayout { value_len: External::BYTES, ..layout }, false)?;
    let offset = entry.value_offset();
    entry.header.value_len = layout.value_len as u32;
    entry.header.flags |= EXTERNAL;
    let bytes = keyspace.heap.arena.bytes_mut(entry.handle, 0, offset + External::BYTES)?;
    bytes[..HEADER_BYTES].copy_from_slice(entry.header.as_bytes());
    bytes[offset..].copy_from_slice(&object.to_bytes());
    Ok(entry)
}

/// The objects beside an entry: a long key's, a big value's.
fn allocate_parts(
    keyspace: &mut Keyspace,
    key: Option<&[u8]>,
    value_bytes: Option<usize>,
) -> Result<(Option<External>, Option<External>)> {
    let value = value_bytes.map(|bytes| keyspace.heap.allocate_external(bytes)).transpose()?;
    let Some(key) = key else { return Ok((None, value)) };
    match keyspace.heap.allocate_external(key.len()) {
        Ok(object) => {
            keyspace.heap.arena.bytes_mut(object.object, 0, key.len())?.copy_from_slice(key);
            Ok((Some(External { size: key.len() as u32, ..object }), value))
        }
        Err(error) => {
            if let Some(value) = value {
                keyspace.heap.arena.free(value.object)?;
            }
            Err(error)
        }
    }
}

/// Puts an entry into its database's tables. Nothing has changed if this fails.
pub(super) fn link(keyspace: &mut Keyspace, index: usize, entry: &Entry, hash: Hash) -> Result<()> {
    let Keyspace { heap, dbs, .. } = keyspace;
    let roots = &mut dbs[index];
    let mut result = heap.with_room(|arena| roots.keys.insert(arena, hash, entry.handle));
    if result.is_ok() && entry.has(EXPIRES) {
        result = heap.with_room(|arena| roots.expires.insert(arena, Hash::without_tag(hash.low), entry.handle));
        if result.is_err() {
            roots.keys.remove(&mut heap.arena, hash.low, entry.handle)?;
        }
    }
    if result.is_ok() && subkey_index::has_expiring_subkeys(entry) {
        result = subkey_index::index(keyspace, index, hash.low, None, Some(entry.handle));
        if result.is_err() {
            let Keyspace { heap, dbs, .. } = &mut *keyspace;
            dbs[index].keys.remove(&mut heap.arena, hash.low, entry.handle)?;
            if entry.has(EXPIRES) {
                dbs[index].expires.remove(&mut heap.arena, hash.low, entry.handle)?;
            }
        }
    }
    keyspace.sync_db(index)?;
    result
}

/// Frees an entry that is in no table, but not a hash's fields.
pub(super) fn discard(keyspace: &mut Keyspace, entry: &Entry) -> Result<()> {
    if let Some(key) = entry.key_object(&keyspace.heap.arena)? {
        keyspace.heap.arena.free(key.object)?;
    }
    if let Some(value) = entry.value_object(&keyspace.heap.arena)? {
        keyspace.heap.arena.free(value.object)?;
    }
    Ok(keyspace.heap.arena.free(entry.handle)?)
}

/// Gives an entry another shape, in place if its size class stays. Bytes beyond `keep` are for the caller to write. A table of fields that the entry
/// held is for the caller to retire.
pub(super) fn reshape(keyspace: &mut Keyspace, db: DbId, entry: Entry, layout: EntryLayout) -> Result<Entry> {
    check_len(layout.value_len)?;
    let index = keyspace.db_index(db)?;
    let plan = plan(keyspace, &entry, &layout)?;
    let in_place = plan.external.is_some() == entry.has(EXTERNAL)
        && (plan.external.is_none() || plan.external == entry.value_object(&keyspace.heap.arena)?);
    let capacity = entry.capacity(&keyspace.heap.arena)?;
    if in_place && Arena::class_size(plan.total) == capacity {
        return reshape_in_place(keyspace, index, entry, &layout, plan.flags);
    }
    match relocate(keyspace, index, entry, &layout, &plan) {
        Err(error @ StoreError::OutOfMemory { .. }) => {
            // A value that gets shorter must not fail for lack of memory: it wastes some instead.
            let (flags, total) = match plan.external {
                None if entry.has(EXTERNAL) => (plan.flags | EXTERNAL, plan.total - layout.value_len + External::BYTES),
                _ => (plan.flags, plan.total),
            };
            let external = entry.value_object(&keyspace.heap.arena)?;
            let fits = external.is_none_or(|object| object.size as usize >= layout.value_len);
            let stays = flags & EXTERNAL == entry.header.flags & EXTERNAL;
            // A table's head always lies in its entry.
            let sound = !layout.encoding.is_table() || flags & EXTERNAL == 0;
            if !(fits && stays && sound) || total > capacity {
                return Err(error);
            }
            reshape_in_place(keyspace, index, entry, &layout, flags | ROOMY)
        }
        other => other,
    }
}

/// Decides where the value goes. A big value's object stays if it has room and doesn't waste most of it; a null
/// object stands for one to be allocated.
fn plan(keyspace: &Keyspace, entry: &Entry, layout: &EntryLayout) -> Result<EntryPlacement> {
    let mut flags = entry.header.flags & if layout.keep > 0 { LONG_KEY | RAW | TEXT } else { LONG_KEY };
    flags |= if layout.expiry.is_some() { EXPIRES } else { 0 };
    let fixed = key_offset(flags) + entry.key_room();
    if fixed + layout.value_len <= INLINE_MAX {
        return Ok(EntryPlacement { flags, total: fixed + layout.value_len, external: None });
    }
    let old = entry.value_object(&keyspace.heap.arena)?;
    let external = old.filter(|object| keeps(object, layout.value_len, layout.reserve)).unwrap_or_default();
    Ok(EntryPlacement { flags: flags | EXTERNAL, total: fixed + External::BYTES, external: Some(external) })
}

/// Whether a big value stays in its object when it gets a length, and as much in reserve.
pub(crate) fn keeps(object: &External, value_len: usize, reserve: usize) -> bool {
    let size = object.size as usize;
    size >= value_len && size / 4 <= value_len + reserve
}

/// A new entry of an empty string that has `object` to grow in, already in its tables. Nothing has changed if this fails.
pub(super) fn create_around(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    hash: Hash,
    object: External,
) -> Result<Entry> {
    let index = keyspace.db_index(db)?;
    let entry = allocate_around(keyspace, key, hash, EntryLayout::new(Encoding::String, 0, None), object)?;
    if let Err(error) = link(keyspace, index, &entry, hash) {
        let shell = Entry { header: EntryHeader { flags: entry.header.flags & !EXTERNAL, ..entry.header }, ..entry };
        discard(keyspace, &shell)?;
        return Err(error);
    }
    keyspace.events.note_made(db, key);
    Ok(entry)
}

/// Gives a string another object that has its bytes already. Nothing has changed if there is no memory for it.
pub(super) fn move_to(keyspace: &mut Keyspace, db: DbId, entry: Entry, object: External) -> Result<Entry> {
    let index = keyspace.db_index(db)?;
    let (expiry, value_len) = (entry.expiry(&keyspace.heap.arena)?, entry.header.value_len as usize);
    let layout = EntryLayout::new(Encoding::String, value_len, expiry);
    let flags = entry.header.flags & (LONG_KEY | RAW | TEXT | EXPIRES) | EXTERNAL;
    let total = key_offset(flags) + entry.key_room() + External::BYTES;
    relocate(keyspace, index, entry, &layout, &EntryPlacement { flags, total, external: Some(object) })
}

fn reshape_in_place(
    keyspace: &mut Keyspace,
    index: usize,
    entry: Entry,
    layout: &EntryLayout,
    flags: u8,
) -> Result<Entry> {
    let new = Entry { header: reshaped(&entry, layout, flags), ..entry };
    index_anew(keyspace, index, &entry, &new)?;
    if entry.has(EXPIRES) != new.has(EXPIRES) {
        let inline = if new.has(EXTERNAL) { External::BYTES } else { layout.keep };
        let len = entry.key_room() + inline;
        keyspace.heap.arena.copy(entry.handle, entry.key_offset(), entry.handle, new.key_offset(), len)?;
    }
    write_fixed(keyspace, &new, layout)?;
    Ok(new)
}

fn relocate(
    keyspace: &mut Keyspace,
    index: usize,
    entry: Entry,
    layout: &EntryLayout,
    plan: &EntryPlacement,
) -> Result<Entry> {
    let handle = keyspace.heap.alloc(plan.total)?;
    let new = Entry { handle, header: reshaped(&entry, layout, plan.flags) };
    let external = match plan.external {
        Some(object) if object.object.is_null() => {
            match keyspace.heap.allocate_external(layout.value_len + layout.reserve) {
                Ok(object) => Some(object),
                Err(error) => {
                    keyspace.heap.arena.free(handle)?;
                    return Err(error);
                }
            }
        }
        kept => kept,
    };
    let indexed = index_anew(keyspace, index, &entry, &new);
    let old_external = entry.value_object(&keyspace.heap.arena)?;
    let stays = external.is_some() && external == old_external;
    if let Err(error) = indexed {
        keyspace.heap.arena.free(handle)?;
        if let Some(object) = external.filter(|_| !stays) {
            keyspace.heap.arena.free(object.object)?;
        }
        return Err(error);
    }
    write_fixed(keyspace, &new, layout)?;
    keyspace.heap.arena.copy(entry.handle, entry.key_offset(), handle, new.key_offset(), entry.key_room())?;
    let (from, from_offset) = entry.value_place(&keyspace.heap.arena)?;
    if let Some(object) = external {
        let offset = new.value_offset();
        keyspace.heap.arena.bytes_mut(handle, offset, External::BYTES)?.copy_from_slice(&object.to_bytes());
    }
    if !stays {
        let (to, to_offset) = new.value_place(&keyspace.heap.arena)?;
        keyspace.heap.arena.copy(from, from_offset, to, to_offset, layout.keep)?;
    }
    if !keyspace.dbs[index].keys.replace(&mut keyspace.heap.arena, entry.header.hash, entry.handle, handle)? {
        return Err(StoreError::damaged("an entry is not in its table"));
    }
    if let Some(object) = old_external.filter(|_| !stays) {
        keyspace.heap.arena.free(object.object)?;
    }
    keyspace.heap.arena.free(entry.handle)?;
    Ok(new)
}

/// Moves an entry as it is, if it lies in a mostly empty slab.
pub(super) fn move_entry(
    keyspace: &mut Keyspace,
    index: usize,
    entry: Entry,
    tally: &mut DefragTally,
) -> Result<Entry> {
    let arena = &keyspace.heap.arena;
    if arena.is_sparse(entry.handle)? {
        if entry.len() > arena.usable_size(entry.handle)? {
            return Err(StoreError::damaged("an entry that is longer than its object"));
        }
        // Everything that is to lead to the copy is looked for before anything changes.
        check_indexed(keyspace, index, &entry)?;
    }
    let Some(handle) = keyspace.heap.arena.evacuate(entry.handle)? else {
        tally.stayed += 1;
        return Ok(entry);
    };
    let new = Entry { handle, ..entry };
    index_anew(keyspace, index, &entry, &new)?;
    if !keyspace.dbs[index].keys.replace(&mut keyspace.heap.arena, entry.header.hash, entry.handle, handle)? {
        return Err(StoreError::damaged("an entry is not in its table"));
    }
    tally.moved += 1;
    tally.moved_bytes += entry.len();
    keyspace.heap.arena.free(entry.handle)?;
    Ok(new)
}

/// Checks that an entry is in each table that it belongs in.
fn check_indexed(keyspace: &Keyspace, index: usize, entry: &Entry) -> Result<()> {
    let (arena, roots) = (&keyspace.heap.arena, &keyspace.dbs[index]);
    let has =
        |table: &TableHead| Ok::<bool, StoreError>(table.tag_of(arena, entry.header.hash, entry.handle)?.is_some());
    let is_indexed = has(&roots.keys)?
        && (!entry.has(EXPIRES) || has(&roots.expires)?)
        && (!subkey_index::has_expiring_subkeys(entry) || has(&keyspace.searches.subkeys.tables[index])?);
    if is_indexed { Ok(()) } else { Err(StoreError::damaged("an entry is not in its tables")) }
}

/// Moves the objects beside an entry, a long key's and a big value's, if they lie in mostly empty slabs.
pub(super) fn move_parts(arena: &mut Arena, entry: &Entry, tally: &mut DefragTally) -> Result<()> {
    for (flag, offset) in [(LONG_KEY, entry.key_offset()), (EXTERNAL, entry.value_offset())] {
        if !entry.has(flag) {
            continue;
        }
        let part = External::read(arena, entry.handle, offset)?;
        if part.size as usize > arena.usable_size(part.object)? {
            return Err(StoreError::damaged("a part of an entry that is longer than its object"));
        }
        tally.move_object(arena, part.object, |arena, copy| {
            if !copy.is_narrow() && !copy.is_aligned() {
                return Err(StoreError::damaged("a part of an entry that no reference can name"));
            }
            let reference = External { object: copy, ..part }.to_bytes();
            arena.bytes_mut(entry.handle, offset, External::BYTES)?.copy_from_slice(&reference);
            Ok(())
        })?;
    }
    Ok(())
}

fn reshaped(entry: &Entry, layout: &EntryLayout, flags: u8) -> EntryHeader {
    EntryHeader { encoding: layout.encoding as u8, flags, value_len: layout.value_len as u32, ..entry.header }
}

fn write_fixed(keyspace: &mut Keyspace, entry: &Entry, layout: &EntryLayout) -> Result<()> {
    let bytes = keyspace.heap.arena.bytes_mut(entry.handle, 0, entry.key_offset())?;
    bytes[..HEADER_BYTES].copy_from_slice(entry.header.as_bytes());
    if let Some(at_ms) = layout.expiry {
        bytes[HEADER_BYTES..].copy_from_slice(&at_ms.to_ne_bytes());
    }
    Ok(())
}

/// Notes how a value came to be, for the name of its encoding.
pub(super) fn mark(keyspace: &mut Keyspace, entry: &Entry, flags: u8) -> Result<()> {
    if entry.header.flags & flags != flags {
        keyspace.heap.arena.get_mut::<EntryHeader>(entry.handle)?.flags |= flags;
    }
    Ok(())
}

/// Tells the indexes of expiring keys, and of values with expiring subkeys, that an entry gets another shape or place. Nothing has changed if
/// there is no memory for it.
fn index_anew(keyspace: &mut Keyspace, index: usize, old: &Entry, new: &Entry) -> Result<()> {
    let hash = old.header.hash;
    let in_one = |entry: &Entry| entry.has(EXPIRES).then_some(entry.handle);
    let in_other = |entry: &Entry| subkey_index::has_expiring_subkeys(entry).then_some(entry.handle);
    // What comes into an index takes memory, what is replaced or goes takes none.
    if in_other(old).is_none() && in_other(new).is_some() {
        subkey_index::index(keyspace, index, hash, None, in_other(new))?;
        let indexed = index_expiry(keyspace, index, hash, in_one(old), in_one(new));
        if indexed.is_err() {
            subkey_index::index(keyspace, index, hash, in_other(new), None)?;
        }
        return indexed;
    }
    index_expiry(keyspace, index, hash, in_one(old), in_one(new))?;
    subkey_index::index(keyspace, index, hash, in_other(old), in_other(new))
}

/// Tells the index of expiring keys that an entry moved, came or went.
fn index_expiry(
    keyspace: &mut Keyspace,
    index: usize,
    hash: u32,
    old: Option<Handle>,
    new: Option<Handle>,
) -> Result<()> {
    let Keyspace { heap, dbs, .. } = keyspace;
    let done = dbs[index].expires.reindex(heap, hash, old, new);
    if !matches!(done, Ok(false)) {
        keyspace.sync_db(index)?;
    }
    done.map(drop)
}

/// Refuses a string that is longer than any may be.
pub(crate) fn check_len(len: usize) -> Result<()> {
    if len > STRING_MAX_BYTES { Err(StoreError::TooLarge { len: len as u64 }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::keyspace::root;
    use crate::{DbId, ExpiryChange, Store, StoreConfig, StoreError, string};

    #[test]
    fn a_key_that_goes_though_an_index_is_damaged_is_gone_from_the_root() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        store.set_now_ms(1);
        for number in 0..100 {
            let key = format!("key {number}").into_bytes();
            string::set(&mut store, DbId(0), &key, b"value", ExpiryChange::At(1000)).unwrap();
        }
        let index = store.dbs[0].expires;
        for bucket in 0..index.buckets() {
            let place = index.place(&store.heap.arena, bucket).unwrap();
            // The chain has no end.
            place.write(&mut store.heap.arena).unwrap().set_overflow(place.object);
        }
        let removed = store.remove(DbId(0), b"key 5");
        assert!(matches!(removed, Err(StoreError::Damaged { .. })), "{removed:?}");
        assert_eq!(store.dbs[0].keys.count, 99);
        assert_eq!(root::open(&store.heap.arena).unwrap().dbs[0].keys, store.dbs[0].keys);
    }
}
