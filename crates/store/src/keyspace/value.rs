//! A key's value that was looked up once, to be read or to be changed: the only ways in which a type gets at its values.
//!
//! What is done to a value through [`ValueMut`] is written back to its entry at once, and counted as a change and told to
//! `events` when the `ValueMut` goes. [`Keyspace::put`] does both for a value that is replaced whole whatever it was (SET): the
//! one other way, because a `ValueMut` costs that common case an eighth more instructions. Nothing else in `value/` may change
//! an entry, or is given the heap to change what the entry owns, so no operation of a type can forget either.
//!
//! Relies on `entries` for moving values; what is done to the table that a value is stands in `value_table`.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::db::{DbId, ExpiryChange};
use crate::encoding::{Encoding, ValueType};
use crate::error::{Result, StoreError};
use crate::heap::{External, Heap};
use crate::keyspace::access;
use crate::keyspace::copying::{Making, Purpose};
use crate::keyspace::entries::{self, EntryLayout};
use crate::keyspace::entry::{EXPIRES, EXTERNAL, Entry, EntryHeader, HEADER_BYTES, INLINE_MAX, RAW, ROOMY, TEXT};
use crate::keyspace::value_copy::ValueCopy;
use crate::keyspace::{Keyspace, MemberHasher};
use crate::limits::{EncodingLimit, PACKED_MAX_BYTES};
use crate::table::{Hash, TableHead, reclaim};

/// Memory to put a value together in that is kept.
const KEPT_SCRATCH_BYTES: usize = 2 * PACKED_MAX_BYTES;

/// Refuses an entry of another type.
#[inline]
fn check_kind(found: Option<Entry>, kind: ValueType) -> Result<Option<Entry>> {
    match found {
        Some(entry) if entry.encoding()?.kind() != kind => Err(StoreError::WrongType),
        found => Ok(found),
    }
}

/// A key's value to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueRef<'a> {
    keyspace: &'a Keyspace,
    entry: Entry,
}

impl<'a> ValueRef<'a> {
    /// The value of an entry that was looked up, and has not been changed since.
    #[inline]
    pub(crate) fn new(keyspace: &'a Keyspace, entry: Entry) -> ValueRef<'a> {
        ValueRef { keyspace, entry }
    }

    #[inline]
    pub(crate) fn keyspace(&self) -> &'a Keyspace {
        self.keyspace
    }

    #[inline]
    pub(crate) fn arena(&self) -> &'a Arena {
        &self.keyspace.heap.arena
    }

    /// The entry that holds the value.
    #[inline]
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    #[inline]
    pub(crate) fn encoding(&self) -> Result<Encoding> {
        self.entry.encoding()
    }

    /// Bytes of the value.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entry.header.value_len as usize
    }

    #[inline]
    pub(crate) fn bytes(&self) -> Result<&'a [u8]> {
        self.entry.value(self.arena())
    }

    /// The head of the table that the value is.
    #[inline]
    pub(crate) fn table(&self) -> Result<TableHead> {
        self.entry.table(self.arena())
    }
}

/// A key's value to be changed, or made if there is none.
#[derive(Debug)]
pub(crate) struct ValueMut<'a> {
    pub(super) keyspace: &'a mut Keyspace,
    db: DbId,
    key: &'a [u8],
    hash: Hash,
    entry: Option<Entry>,
    pub(super) changed: bool,
    /// Members that were changed, as far as the operation counts them.
    members: u64,
    /// Made aside, where no command finds it: what becomes of it is no change.
    aside: bool,
    /// The change of it is told, and counted with that of another key.
    counted_elsewhere: bool,
    /// The change of it is counted, and told to no watcher but the copy that is under way.
    untold: bool,
}

impl Keyspace {
    /// A key's value of one type, to be read. Counts a hit or a miss, and notes an access.
    #[inline]
    pub(crate) fn open(&mut self, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<ValueRef<'_>>> {
        match check_kind(self.find_to_read(db, key)?, kind)? {
            Some(entry) => Ok(Some(ValueRef::new(self, entry))),
            None => Ok(None),
        }
    }

    /// A key's value of one type, for a command that looks at it to change it: an access, but no read that counts.
    pub(crate) fn open_to_change(&mut self, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<ValueRef<'_>>> {
        let found = check_kind(access::look_up_used(self, db, key)?, kind)?;
        Ok(found.map(|entry| ValueRef::new(self, entry)))
    }

    /// The bytes of a key's value of one type. As [`Keyspace::open`] and [`ValueRef::bytes`], but for GET, which should not
    /// pay for a `ValueRef`.
    #[inline]
    pub(crate) fn read(&mut self, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<&[u8]>> {
        match check_kind(self.find_to_read(db, key)?, kind)? {
            Some(entry) => Ok(Some(entry.value(&self.heap.arena)?)),
            None => Ok(None),
        }
    }

    /// As [`Keyspace::open`], but counts nothing.
    pub(crate) fn peek(&self, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<ValueRef<'_>>> {
        let found = check_kind(self.peek_entry(db, key)?, kind)?;
        Ok(found.map(|entry| ValueRef::new(self, entry)))
    }

    /// A key's value of one type to be changed, or to be made.
    #[inline]
    pub(crate) fn open_mut<'a>(&'a mut self, db: DbId, key: &'a [u8], kind: ValueType) -> Result<ValueMut<'a>> {
        let value = self.open_any_mut(db, key)?;
        check_kind(value.entry, kind)?;
        Ok(value)
    }

    /// A key's value of any type, to be replaced.
    #[inline]
    pub(crate) fn open_any_mut<'a>(&'a mut self, db: DbId, key: &'a [u8]) -> Result<ValueMut<'a>> {
        let hash = self.key_hash(key);
        let entry = self.find_to_write(db, key, hash)?;
        let (changed, members, aside, counted_elsewhere, untold) = (false, 0, false, false, false);
        Ok(ValueMut { keyspace: self, db, key, hash, entry, changed, members, aside, counted_elsewhere, untold })
    }

    /// Gives a key a value of these bytes, whatever it held before, which is one change.
    #[inline]
    pub(crate) fn put(
        &mut self,
        db: DbId,
        key: &[u8],
        encoding: Encoding,
        bytes: &[u8],
        expiry: ExpiryChange,
    ) -> Result<()> {
        let hash = self.key_hash(key);
        let found = self.find_to_write(db, key, hash)?;
        self.put_at(db, (key, hash), found, encoding, bytes, expiry)?;
        self.changed(db, key, true, 1);
        Ok(())
    }

    /// Writes a whole value to the entry that was found, or to a new one; returns which it is now. Nothing has changed if this
    /// fails.
    #[inline(always)]
    fn put_at(
        &mut self,
        db: DbId,
        (key, hash): (&[u8], Hash),
        found: Option<Entry>,
        encoding: Encoding,
        bytes: &[u8],
        expiry: ExpiryChange,
    ) -> Result<Handle> {
        match found {
            Some(entry) if self.overwrite(&entry, encoding, bytes, expiry)? => Ok(entry.handle),
            Some(entry) => self.replace_value(db, entry, encoding, bytes, expiry),
            None => {
                let expiry = if let ExpiryChange::At(at_ms) = expiry { Some(at_ms) } else { None };
                let new = entries::create(self, db, key, hash, EntryLayout::new(encoding, bytes.len(), expiry))?;
                new.value_mut(&mut self.heap.arena, 0, bytes.len())?.copy_from_slice(bytes);
                Ok(new.handle)
            }
        }
    }
}

impl ValueMut<'_> {
    /// A value that is made aside, under a key that no command knows, to replace another one.
    pub(crate) fn set_aside(&mut self) {
        self.aside = true;
    }

    /// A change of it is one with that of another key, which counts.
    pub(crate) fn count_elsewhere(&mut self) {
        self.counted_elsewhere = true;
    }

    /// A change of it is told to no watcher.
    pub(crate) fn tell_no_watcher(&mut self) {
        self.untold = true;
    }

    /// Counts a member that was changed.
    #[inline]
    pub(crate) fn count_member(&mut self) {
        self.members += 1;
    }

    /// Counts members that were changed.
    pub(crate) fn count_members(&mut self, count: u64) {
        self.members = self.members.saturating_add(count);
    }

    /// How the value is stored; `None` if there is none.
    #[inline]
    pub(crate) fn encoding(&self) -> Result<Option<Encoding>> {
        self.entry.map(|entry| entry.encoding()).transpose()
    }

    /// The value as it is now; `None` if there is none.
    #[inline]
    pub(crate) fn get(&self) -> Option<ValueRef<'_>> {
        self.entry.map(|entry| ValueRef::new(self.keyspace, entry))
    }

    #[inline]
    pub(super) fn entry(&self) -> Result<Entry> {
        self.entry.ok_or(StoreError::NoSuchKey)
    }

    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.keyspace.heap.arena
    }

    /// What a limit of the value's type is that may be negative.
    pub(crate) fn number(&self, limit: &EncodingLimit) -> i64 {
        self.keyspace.limits.number(limit)
    }

    /// What a limit of the value's type is.
    #[inline]
    pub(crate) fn limit(&self, limit: &EncodingLimit) -> usize {
        self.keyspace.limits.get(limit)
    }

    /// The hash of a member.
    #[inline]
    pub(crate) fn hash_of(&self, member: &[u8]) -> Hash {
        self.keyspace.hash(member)
    }

    /// The time by which what has a time to live expires.
    pub(crate) fn now_ms(&self) -> i64 {
        self.keyspace.clock.now_ms
    }

    /// What hashes members.
    pub(crate) fn hasher(&self) -> MemberHasher {
        self.keyspace.hasher()
    }

    /// Does something with empty bytes to put a value together in.
    #[inline]
    pub(crate) fn with_scratch<R>(&mut self, act: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<R>) -> Result<R> {
        let mut scratch = self.take_scratch();
        scratch.clear();
        let done = act(self, &mut scratch);
        self.give_scratch(scratch);
        done
    }

    /// Bytes to put a value together in, kept for their capacity: to be given back.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.keyspace.scratch)
    }

    /// Takes back what [`ValueMut::take_scratch`] gave. What a packed value never needs is freed.
    pub(crate) fn give_scratch(&mut self, scratch: Vec<u8>) {
        if scratch.capacity() <= KEPT_SCRATCH_BYTES {
            self.keyspace.scratch = scratch;
        }
    }

    /// Bytes of the value.
    #[inline]
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        self.entry()?.value(self.arena())
    }

    /// Bytes of the value, to be written to.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let len = self.entry()?.header.value_len as usize;
        self.part_mut(0, len)
    }

    /// Some bytes of the value, to be written to.
    #[inline]
    pub(crate) fn part_mut(&mut self, offset: usize, len: usize) -> Result<&mut [u8]> {
        let entry = self.entry()?;
        self.changed = true;
        entry.value_mut(&mut self.keyspace.heap.arena, offset, len)
    }

    /// Makes the value `len` bytes of this encoding, of which the first `keep` stay. The value is made if there is none. It
    /// must not be a table.
    pub(crate) fn set_len(&mut self, encoding: Encoding, len: usize, keep: usize) -> Result<()> {
        self.lay_out(EntryLayout { keep, ..EntryLayout::new(encoding, len, None) })
    }

    /// As [`ValueMut::set_len`], for a value that will get longer again: a big one gets `reserve` bytes more than it needs.
    pub(crate) fn grow(&mut self, encoding: Encoding, len: usize, reserve: usize) -> Result<()> {
        let keep = self.entry.map_or(0, |entry| entry.header.value_len as usize);
        // A new value isn't one that gets longer.
        let reserve = if self.entry.is_some() { reserve } else { 0 };
        self.lay_out(EntryLayout { keep, reserve, ..EntryLayout::new(encoding, len, None) })
    }

    /// Has the string, or a new empty one, go on in an object that has its bytes already and room for more. That alone is no change.
    /// If there is no memory for it nothing has changed, and the object is the caller's.
    pub(crate) fn move_to(&mut self, object: External) -> Result<()> {
        let new = match self.entry {
            None => entries::create_around(self.keyspace, self.db, self.key, self.hash, object)?,
            Some(entry) => entries::move_to(self.keyspace, self.db, entry, object)?,
        };
        self.entry = Some(new);
        Ok(())
    }

    /// As [`Keyspace::make_in_steps`], of this value.
    pub(crate) fn make_in_steps(
        &mut self,
        owner: u64,
        purpose: Purpose,
        begin: impl FnOnce(&mut Heap) -> Result<ValueCopy>,
    ) -> Result<Making> {
        self.keyspace.make_in_steps(owner, (self.db, self.key), self.entry.as_ref(), purpose, begin)
    }

    /// The request of `owner` is run without anything that is made in steps.
    pub(crate) fn cancel_steps(&mut self, owner: u64) -> Result<()> {
        self.keyspace.cancel_copy(owner)
    }

    /// The heap, for what was made in steps and is in no entry yet.
    pub(crate) fn heap(&mut self) -> &mut Heap {
        &mut self.keyspace.heap
    }

    fn lay_out(&mut self, layout: EntryLayout) -> Result<()> {
        let new = match self.entry {
            None => entries::create(self.keyspace, self.db, self.key, self.hash, layout)?,
            Some(entry) => {
                let expiry = entry.expiry(self.arena())?;
                entries::reshape(self.keyspace, self.db, entry, EntryLayout { expiry, ..layout })?
            }
        };
        self.entry = Some(new);
        self.changed = true;
        Ok(())
    }

    /// Makes the value these bytes, whatever it was. Nothing has changed if this fails.
    pub(crate) fn replace(&mut self, encoding: Encoding, bytes: &[u8], expiry: ExpiryChange) -> Result<()> {
        let new = self.keyspace.put_at(self.db, (self.key, self.hash), self.entry, encoding, bytes, expiry)?;
        self.changed = true;
        self.entry = Some(Entry::read(self.arena(), new)?);
        Ok(())
    }

    /// Notes how the value came to be, for the name of its encoding. That alone is no change.
    pub(crate) fn mark(&mut self, flags: u8) -> Result<()> {
        let mut entry = self.entry()?;
        entries::mark(self.keyspace, &entry, flags)?;
        entry.header.flags |= flags;
        self.entry = Some(entry);
        Ok(())
    }

    /// Gives a value that was made aside a key, which is a change of that one; what it held is deleted. If this fails, the
    /// value is deleted.
    pub(crate) fn rename(&mut self, to: &[u8]) -> Result<()> {
        let named = self.keyspace.give_key(self.db, &self.entry()?, to);
        match named {
            Ok(()) => self.entry = None,
            Err(_) => self.delete()?,
        }
        named
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
    #[inline]
    fn drop(&mut self) {
        if self.changed && !self.aside {
            if let Some(entry) = &self.entry {
                access::set_stamp(self.keyspace, entry);
            }
            let counted = if self.counted_elsewhere { 0 } else { self.members.max(1) };
            if self.untold {
                self.keyspace.counters.changes += counted;
                return self.keyspace.events.watchers.touch_copy(self.db, self.key);
            }
            self.keyspace.changed(self.db, self.key, self.entry.is_some(), counted);
        }
    }
}

impl Keyspace {
    /// The common case of replacing a value: the new one has the old one's encoding and size class and no time to live
    /// changes, so the entry is written over with one pass of the barrier. False if that isn't so.
    #[inline(always)]
    fn overwrite(&mut self, entry: &Entry, encoding: Encoding, bytes: &[u8], expiry: ExpiryChange) -> Result<bool> {
        // Any flag but LONG_KEY stands for something that must be looked after.
        let header = entry.header;
        if header.encoding != encoding as u8
            || entry.has(EXTERNAL | ROOMY | RAW | TEXT | EXPIRES)
            || matches!(expiry, ExpiryChange::At(_))
        {
            return Ok(false);
        }
        let offset = entry.value_offset();
        let total = offset + bytes.len();
        if header.value_len as usize != bytes.len()
            && (total > INLINE_MAX || Arena::class_size(total) != Arena::class_size(entry.len()))
        {
            return Ok(false);
        }
        let header = EntryHeader { value_len: bytes.len() as u32, ..header };
        let object = self.heap.arena.bytes_mut(entry.handle, 0, total)?;
        object[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        object[offset..].copy_from_slice(bytes);
        Ok(true)
    }

    /// The other cases of replacing a value. The table that it was is freed, in steps if it is large.
    fn replace_value(
        &mut self,
        db: DbId,
        entry: Entry,
        encoding: Encoding,
        bytes: &[u8],
        expiry: ExpiryChange,
    ) -> Result<Handle> {
        let expiry = match expiry {
            ExpiryChange::Keep => entry.expiry(&self.heap.arena)?,
            ExpiryChange::Clear => None,
            ExpiryChange::At(at_ms) => Some(at_ms),
        };
        let table = (self.ops(&entry)?.table)(&self.heap.arena, &entry)?;
        let new = entries::reshape(self, db, entry, EntryLayout::new(encoding, bytes.len(), expiry))?;
        new.value_mut(&mut self.heap.arena, 0, bytes.len())?.copy_from_slice(bytes);
        table.map_or(Ok(()), |table| reclaim::retire_objects(&mut self.heap, table))?;
        Ok(new.handle)
    }
}
