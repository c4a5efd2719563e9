//! A key's value that was looked up once, to be changed.
//!
//! What is done to a value through [`ValueMut`] is counted as a change and told to `events` when the `ValueMut` goes, so no
//! operation of a type can forget it. Operations on several members at once count each. Relies on `entries` for moving values.

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::Encoding;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entries::EntryLayout;
use crate::keyspace::entry::Entry;
use crate::table::{Hash, TableHead};

/// A key's value to be changed, or made if there is none.
#[derive(Debug)]
pub(crate) struct ValueMut<'a> {
    pub(crate) keyspace: &'a mut Keyspace,
    db: DbId,
    key: &'a [u8],
    hash: Hash,
    entry: Option<Entry>,
    changed: bool,
    /// Members that were changed, as far as the operation counts them.
    members: u64,
    /// Made aside, where no command finds it: what becomes of it is no change.
    aside: bool,
}

impl<'a> ValueMut<'a> {
    pub(crate) fn new(
        keyspace: &'a mut Keyspace,
        db: DbId,
        key: &'a [u8],
        hash: Hash,
        entry: Option<Entry>,
    ) -> ValueMut<'a> {
        ValueMut { keyspace, db, key, hash, entry, changed: false, members: 0, aside: false }
    }

    /// A value that is made aside, under a key that no command knows, to replace another one.
    pub(crate) fn set_aside(&mut self) {
        self.aside = true;
    }

    /// Counts a member that was changed.
    pub(crate) fn count_member(&mut self) {
        self.members += 1;
    }

    /// How the value is stored; `None` if there is none.
    pub(crate) fn encoding(&self) -> Result<Option<Encoding>> {
        self.entry.map(|entry| entry.encoding()).transpose()
    }

    /// The entry as it is now.
    pub(crate) fn looked_up(&self) -> Option<Entry> {
        self.entry
    }

    fn entry(&self) -> Result<Entry> {
        self.entry.ok_or(StoreError::NoSuchKey)
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.keyspace.heap.arena
    }

    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        self.entry()?.value(self.arena())
    }

    /// Bytes of the value, to be written to.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let entry = self.entry()?;
        self.changed = true;
        entry.value_mut(&mut self.keyspace.heap.arena, 0, entry.header.value_len as usize)
    }

    /// Makes the value `len` bytes of this encoding, of which the first `keep` stay. The value is made if there is none. A
    /// table that it was is for the caller to retire.
    pub(crate) fn set_len(&mut self, encoding: Encoding, len: usize, keep: usize) -> Result<()> {
        let new = match self.entry {
            None => self.keyspace.create_entry(self.db, self.key, self.hash, EntryLayout::new(encoding, len, None))?,
            Some(entry) => {
                let expiry = entry.expiry(self.arena())?;
                let layout = EntryLayout { encoding, value_len: len, keep, expiry, reserve: 0 };
                self.keyspace.reshape(self.db, entry, layout)?
            }
        };
        self.entry = Some(new);
        self.changed = true;
        Ok(())
    }

    /// The table that the value is.
    pub(crate) fn table(&self) -> Result<TableHead> {
        self.entry()?.table(self.arena())
    }

    /// Writes the table's head back. It is a change only if `changed`: a table may split a bucket all the same.
    pub(crate) fn set_table(&mut self, head: &TableHead, changed: bool) -> Result<()> {
        self.changed |= changed;
        self.entry()?.set_table(&mut self.keyspace.heap.arena, head)
    }

    /// Deletes the key.
    pub(crate) fn delete(&mut self) -> Result<()> {
        match self.entry.take() {
            Some(entry) => {
                self.changed = true;
                self.keyspace.delete_entry(self.db, entry)
            }
            None => Ok(()),
        }
    }
}

impl Drop for ValueMut<'_> {
    fn drop(&mut self) {
        if self.changed && !self.aside {
            self.keyspace.changed_members(self.db, self.key, self.entry.is_some(), self.members.max(1));
        }
    }
}
