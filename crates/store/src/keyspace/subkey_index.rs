//! The index of values with expiring subkeys: hashes with such fields. One table for each database, beside its other
//! two, in an object that the root names as long as there are such keys.
//!
//! A value belongs in it by its encoding. Relies on `entries` and `keys` to tell what becomes of an entry, as they tell the index of
//! expiring keys.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::encoding::Encoding;
use crate::error::Result;
use crate::heap::External;
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::keyspace::root::{self, DATABASES};
use crate::table::TableHead;
use crate::table::reclaim::{self, Items};

/// A table of so many buckets is freed at once.
const FEW_BUCKETS: u32 = 64;

/// The index: keys that hold values with expiring subkeys, by the same hash as in the other tables.
#[derive(Debug, Default)]
pub(crate) struct SubkeyIndex {
    /// Where the tables lie in the arena; null as long as there is no such key.
    object: Handle,
    pub(super) tables: Box<[TableHead; DATABASES]>,
    /// The database to go on with.
    pub(super) next_db: usize,
    /// How far the search has come in each.
    pub(super) cursors: [u64; DATABASES],
}

impl SubkeyIndex {
    /// The index of an arena whose root was opened.
    pub(super) fn open(arena: &Arena, root: Handle) -> Result<SubkeyIndex> {
        let object = root::subkey_index(arena, root)?.object;
        let mut tables = Box::new([TableHead::default(); DATABASES]);
        if !object.is_null() {
            tables.copy_from_slice(arena.slice::<TableHead>(object, 0, DATABASES)?);
            tables.iter().try_for_each(|table| table.check(arena))?;
        }
        Ok(SubkeyIndex { object, tables, next_db: 0, cursors: [0; DATABASES] })
    }

    /// Writes a database's table through.
    fn sync(&self, arena: &mut Arena, index: usize) -> Result<()> {
        if self.object.is_null() {
            return Ok(());
        }
        let bytes = arena.bytes_mut(self.object, index * TableHead::BYTES, TableHead::BYTES)?;
        bytes.copy_from_slice(self.tables[index].as_bytes());
        Ok(())
    }
}

/// Whether an entry belongs in the index.
#[inline]
pub(super) fn has_expiring_subkeys(entry: &Entry) -> bool {
    entry.encoding().is_ok_and(Encoding::has_expiring_subkeys)
}

/// Tells the index that an entry came, moved or went. Nothing has changed if there is no memory for it.
pub(super) fn index(
    keyspace: &mut Keyspace,
    index: usize,
    hash: u32,
    old: Option<Handle>,
    new: Option<Handle>,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    if keyspace.searches.subkeys.object.is_null() {
        make(keyspace)?;
    }
    let Keyspace { heap, searches, .. } = keyspace;
    let subkeys = &mut searches.subkeys;
    let done = subkeys.tables[index].reindex(heap, hash, old, new);
    if matches!(done, Ok(false)) {
        return Ok(());
    }
    subkeys.sync(&mut heap.arena, index)?;
    let released = if new.is_none() || done.is_err() { release(keyspace) } else { Ok(()) };
    done.map(drop).and(released)
}

/// Makes the tables, all empty.
fn make(keyspace: &mut Keyspace) -> Result<()> {
    let bytes = DATABASES * TableHead::BYTES;
    let object = keyspace.heap.alloc_external(bytes)?;
    keyspace.heap.arena.bytes_mut(object, 0, bytes)?.fill(0);
    root::set_subkey_index(&mut keyspace.heap.arena, keyspace.root, External { object, size: bytes as u32 })?;
    keyspace.searches.subkeys.object = object;
    Ok(())
}

/// Gives the tables back if no key is in them any more, and nothing waits to be freed, which may be such values: then a database has no byte for such
/// values, and older programs know all that it has.
pub(super) fn release(keyspace: &mut Keyspace) -> Result<()> {
    if keyspace.searches.subkeys.object.is_null() || is_in_use(keyspace) || !keyspace.heap.reclaim.is_empty() {
        return Ok(());
    }
    let own_root = keyspace.root;
    let Keyspace { heap, searches, .. } = keyspace;
    let subkeys = &mut searches.subkeys;
    for table in subkeys.tables.iter_mut().map(std::mem::take) {
        // It has few buckets without keys, unless damage says otherwise.
        if table.buckets() <= FEW_BUCKETS {
            reclaim::dissolve(heap, table)?;
        } else {
            reclaim::retire(heap, table, Items::Borrowed)?;
        }
    }
    root::set_subkey_index(&mut heap.arena, own_root, External::default())?;
    let object = std::mem::replace(&mut subkeys.object, Handle::NULL);
    Ok(heap.arena.free(object)?)
}

/// Whether any key is in it.
pub(super) fn is_in_use(keyspace: &Keyspace) -> bool {
    keyspace.searches.subkeys.tables.iter().any(|table| table.count > 0)
}

/// Takes the index of a database away, for the caller to free.
pub(super) fn take(keyspace: &mut Keyspace, index: usize) -> Result<TableHead> {
    let Keyspace { heap, searches, .. } = &mut *keyspace;
    let table = std::mem::take(&mut searches.subkeys.tables[index]);
    searches.subkeys.cursors[index] = 0;
    searches.subkeys.sync(&mut heap.arena, index)?;
    release(keyspace)?;
    Ok(table)
}

/// Exchanges the indexes of two databases.
pub(super) fn swap(keyspace: &mut Keyspace, a: usize, b: usize) -> Result<()> {
    let Keyspace { heap, searches, .. } = keyspace;
    searches.subkeys.tables.swap(a, b);
    searches.subkeys.cursors.swap(a, b);
    searches.subkeys.sync(&mut heap.arena, a)?;
    searches.subkeys.sync(&mut heap.arena, b)
}

#[cfg(test)]
mod tests {
    use crate::{DbId, Store, StoreConfig, hash};

    #[test]
    fn what_waits_to_be_freed_keeps_the_index_as_values_do() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        store.set_now_ms(1);
        let mut large = hash::open_mut(&mut store, DbId(0), b"key").unwrap();
        for number in 0..1000 {
            large.set(format!("field {number}").as_bytes(), b"value").unwrap();
            large.set_expiry(format!("field {number}").as_bytes(), Some(1_000_000)).unwrap();
        }
        drop(large);
        assert_eq!(store.flush(DbId(0)).unwrap(), 1);
        // An older program that opened an image of now would not know what it frees.
        assert!(!store.heap.reclaim.is_empty() && !store.searches.subkeys.object.is_null());
        while store.reclaim_step(100).unwrap() > 0 {}
        assert!(store.heap.reclaim.is_empty() && store.searches.subkeys.object.is_null());
    }
}
