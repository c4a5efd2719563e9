//! What can be done with keys whatever their values are: one at a time, a database at a time, and walking through them (SCAN,
//! KEYS, RANDOMKEY, digests of all). A value that is made aside, where no command finds it, gets its key here at one instant.

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::events::KeyFate;
use crate::heap::External;
use crate::keyspace::Keyspace;
use crate::keyspace::access::{self, AccessStamp};
use crate::keyspace::digest::Digest;
use crate::keyspace::entries::{self, EntryLayout};
use crate::keyspace::entry::{EXPIRES, EXTERNAL, Entry, EntryHeader, RAW, TEXT};
use crate::keyspace::subkey_index;
use crate::table::reclaim::{self, Items};
use crate::table::sample::random_item;

/// Buckets per wanted key that a scan looks at before it returns, however few keys it met.
const BUCKETS_PER_COUNT: usize = 10;
/// Expired keys that a random pick may hit before it gives up.
const RANDOM_TRIES: usize = 100;
/// Before the names under which values are made aside, which no command knows.
const ASIDE: &[u8] = b"\0quire: a value that is being built\0";
/// A key's share of a table's buckets, about.
const TABLE_SHARE_BYTES: u64 = 10;

impl Keyspace {
    /// Whether a key exists. Counts a hit or a miss but is no access.
    ///
    /// # Errors
    /// As all operations here: [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn exists(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let exists = self.look_up(db, key)?.is_some();
        self.note_read(db, key, exists);
        Ok(exists)
    }

    /// The type of a key's value.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn kind(&mut self, db: DbId, key: &[u8]) -> Result<Option<ValueType>> {
        let found = self.look_up(db, key)?;
        found.map(|entry| Ok(entry.encoding()?.kind())).transpose()
    }

    /// Deletes a key. A big value is freed later, by [`Keyspace::reclaim_step`].
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn remove(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let Some(entry) = self.find(db, key, self.key_hash(key))? else { return Ok(false) };
        self.delete_entry(db, entry)?;
        self.changed(db, key, false, 1);
        Ok(true)
    }

    /// Notes an access to a key, even where reads don't.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn touch(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let found = self.look_up(db, key)?;
        self.note_read(db, key, found.is_some());
        if let Some(entry) = &found {
            access::note_access(self, entry);
        }
        Ok(found.is_some())
    }

    /// Seconds since a key was last accessed.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn idle_seconds(&self, db: DbId, key: &[u8]) -> Result<Option<u64>> {
        let found = self.peek_entry(db, key)?;
        Ok(found.map(|entry| u64::from(AccessStamp::of(&entry).idle_seconds(self.clock.seconds))))
    }

    /// What a key's counter of accesses says.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn access_count(&self, db: DbId, key: &[u8]) -> Result<Option<u8>> {
        let found = self.peek_entry(db, key)?;
        Ok(found.map(|entry| AccessStamp::of(&entry).count_now(self.clock.seconds, self.clock.decay_minutes())))
    }

    /// How a value is stored, in Redis' words.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn encoding(&self, db: DbId, key: &[u8]) -> Result<Option<&'static str>> {
        let found = self.peek_entry(db, key)?;
        found.map(|entry| (self.ops(&entry)?.name)(&self.heap.arena, &entry)).transpose()
    }

    /// Checks that a key's value is well-formed, which the operations on it check only as far as they read it. False if there is
    /// no such key. Takes as long as the value is large.
    ///
    /// # Errors
    /// As [`Keyspace::exists`].
    pub fn check_value(&self, db: DbId, key: &[u8]) -> Result<bool> {
        let found = self.peek_entry(db, key)?;
        found.map_or(Ok(false), |entry| (self.ops(&entry)?.check)(self, &entry).map(|()| true))
    }

    /// Bytes that a key takes: entry, value, its share of the keyspace's tables. Exact but for that
    /// share; nothing is sampled.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn memory_usage(&self, db: DbId, key: &[u8]) -> Result<Option<u64>> {
        self.peek_entry(db, key)?.map(|entry| self.entry_bytes(&entry)).transpose()
    }

    /// How a value is stored, the bytes that its key takes, and seconds since it was last accessed; also if its time has come and it was not
    /// deleted yet.
    ///
    /// # Errors
    /// As [`Keyspace::memory_usage`].
    pub fn stored_as(&self, db: DbId, key: &[u8]) -> Result<Option<(&'static str, u64, u64)>> {
        let Some(entry) = self.find_any(db, key, self.hash(key))? else { return Ok(None) };
        let name = (self.ops(&entry)?.name)(&self.heap.arena, &entry)?;
        let idle_s = u64::from(AccessStamp::of(&entry).idle_seconds(self.clock.seconds));
        Ok(Some((name, self.entry_bytes(&entry)?, idle_s)))
    }

    fn entry_bytes(&self, entry: &Entry) -> Result<u64> {
        let mut bytes = entry.capacity(&self.heap.arena)? as u64 + TABLE_SHARE_BYTES;
        if entry.has(EXPIRES) {
            bytes += TABLE_SHARE_BYTES;
        }
        if subkey_index::has_expiring_subkeys(entry) {
            bytes += TABLE_SHARE_BYTES;
        }
        if let Some(key) = entry.key_object(&self.heap.arena)? {
            bytes += Arena::class_size(key.size as usize) as u64;
        }
        if let Some(value) = entry.value_object(&self.heap.arena)? {
            bytes += self.heap.arena.usable_size(value.object)? as u64;
        }
        bytes = bytes.saturating_add((self.ops(entry)?.memory)(&self.heap.arena, entry)?);
        Ok(bytes)
    }

    /// Renames a key; what the new name held is deleted. False if there is no such key.
    ///
    /// # Errors
    /// [`crate::StoreError::OutOfMemory`], [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn rename(&mut self, db: DbId, from: &[u8], to: &[u8]) -> Result<bool> {
        self.db_index(db)?;
        let Some(entry) = self.find(db, from, self.hash(from))? else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        self.give_key(db, &entry, to)?;
        // One change, though two keys have changed.
        self.events.emit(db, from, KeyFate::Gone);
        Ok(true)
    }

    /// Gives an entry another key, which is a change of that one; what it held is deleted.
    pub(super) fn give_key(&mut self, db: DbId, entry: &Entry, to: &[u8]) -> Result<()> {
        let index = self.db_index(db)?;
        let hash = self.hash(to);
        let target = self.find(db, to, hash)?;
        let new = self.allocate_renamed(entry, to)?;
        // A handle tells the new entry from the target, so both may be in the table for a moment.
        if let Err(error) = entries::link(self, index, &new, hash) {
            self.free_shell(&new)?;
            return Err(error);
        }
        match target {
            Some(target) => self.delete_entry(db, target)?,
            None => self.events.note_made(db, to),
        }
        self.unlink(index, entry)?;
        self.free_shell(entry)?;
        self.changed(db, to, true, 1);
        Ok(())
    }

    /// An entry of another name that has taken over an entry's value.
    fn allocate_renamed(&mut self, entry: &Entry, to: &[u8]) -> Result<Entry> {
        let encoding = entry.encoding()?;
        let expiry = entry.expiry(&self.heap.arena)?;
        let external = entry.value_object(&self.heap.arena)?;
        // In the place of a big value's bytes comes the reference to them.
        let value_len = if external.is_some() { External::BYTES } else { entry.header.value_len as usize };
        let layout = EntryLayout::new(encoding, value_len, expiry);
        let mut new = entries::allocate_as(self, to, self.hash(to), layout, false)?;
        let (from_offset, to_offset) = (entry.value_offset(), new.value_offset());
        self.heap.arena.copy(entry.handle, from_offset, new.handle, to_offset, value_len)?;
        new.header.value_len = entry.header.value_len;
        new.header.flags |= entry.header.flags & (EXTERNAL | RAW | TEXT);
        new.header.clock = entry.header.clock;
        *self.heap.arena.get_mut::<EntryHeader>(new.handle)? = new.header;
        Ok(new)
    }

    /// Frees an entry but not its value.
    fn free_shell(&mut self, entry: &Entry) -> Result<()> {
        if let Some(key) = entry.key_object(&self.heap.arena)? {
            self.heap.arena.free(key.object)?;
        }
        Ok(self.heap.arena.free(entry.handle)?)
    }

    /// A key under which a value can be made aside. It is to be published or discarded within the same command.
    pub fn aside_key(&mut self) -> Vec<u8> {
        [ASIDE, &self.rng.next_u64().to_ne_bytes()].concat()
    }

    /// Gives a value that was made aside a key and perhaps an end, which is one change of that key; what it held is deleted.
    ///
    /// # Errors
    /// [`StoreError::NoSuchKey`] if nothing was made aside, [`StoreError::OutOfMemory`], [`StoreError::Damaged`]; the value made aside is
    /// deleted then, and the key holds what it held.
    pub fn publish_aside(&mut self, db: DbId, aside: &[u8], to: &[u8], expire_ms: Option<i64>) -> Result<()> {
        let entry = self.find_any(db, aside, self.hash(aside))?.ok_or(StoreError::NoSuchKey)?;
        let published = self.mortal(db, entry, expire_ms).and_then(|entry| self.give_key(db, &entry, to));
        if published.is_err() {
            self.discard_aside(db, aside)?;
        }
        published
    }

    /// The entry, with an end if it gets one.
    fn mortal(&mut self, db: DbId, entry: Entry, expire_ms: Option<i64>) -> Result<Entry> {
        if expire_ms.is_none() {
            return Ok(entry);
        }
        let keep = entry.header.value_len as usize;
        let layout = EntryLayout { keep, ..EntryLayout::new(entry.encoding()?, keep, expire_ms) };
        entries::reshape(self, db, entry, layout)
    }

    /// Deletes what was made aside, if anything was.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn discard_aside(&mut self, db: DbId, aside: &[u8]) -> Result<()> {
        match self.find_any(db, aside, self.hash(aside))? {
            Some(entry) => self.delete_entry(db, entry),
            None => Ok(()),
        }
    }

    /// Sets for how many seconds a key was not used, which is no change. False if there is no such key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
    pub fn set_idle_seconds(&mut self, db: DbId, key: &[u8], idle_s: u64) -> Result<bool> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(false) };
        access::set_idle(self, &entry, idle_s);
        Ok(true)
    }

    /// Sets what a key's counter of accesses says, as of now, which is no change. False if there is no such key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
    pub fn set_access_count(&mut self, db: DbId, key: &[u8], count: u8) -> Result<bool> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(false) };
        access::set_count(self, &entry, count);
        Ok(true)
    }

    /// Moves a key to another database. False if there is no such key, or the other database has one of that name.
    ///
    /// # Errors
    /// As [`Keyspace::rename`].
    pub fn move_key(&mut self, db: DbId, key: &[u8], to_db: DbId) -> Result<bool> {
        let (from_index, to_index) = (self.db_index(db)?, self.db_index(to_db)?);
        let hash = self.hash(key);
        let Some(entry) = self.find(db, key, hash)? else { return Ok(false) };
        if from_index == to_index || self.find(to_db, key, hash)?.is_some() {
            return Ok(false);
        }
        entries::link(self, to_index, &entry, hash)?;
        self.unlink(from_index, &entry)?;
        self.changed(db, key, false, 1);
        self.events.note_made(to_db, key);
        self.events.emit(to_db, key, KeyFate::Changed);
        Ok(true)
    }

    /// Keys in a database, expired ones that no command has met yet included.
    pub fn len(&self, db: DbId) -> u64 {
        self.dbs.get(db.0 as usize).map_or(0, |roots| roots.keys.count)
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: DbId) -> bool {
        self.len(db) == 0
    }

    /// Keys that have a time to live.
    pub fn expires_len(&self, db: DbId) -> u64 {
        self.dbs.get(db.0 as usize).map_or(0, |roots| roots.expires.count)
    }

    /// Empties a database at once; its memory is freed later, by [`Keyspace::reclaim_step`]. Returns how many keys went.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn flush(&mut self, db: DbId) -> Result<u64> {
        let index = self.db_index(db)?;
        let keys = self.dbs[index].keys.count;
        for key in self.events.watchers.keys_of(db) {
            if self.find_any(db, &key, self.hash(&key))?.is_some() {
                self.events.watchers.touch(db, &key, false);
            }
        }
        let roots = std::mem::take(&mut self.dbs[index]);
        self.sync_db(index)?;
        self.searches.expiry.cursors[index] = 0;
        self.searches.expiry.avg_ttl_ms[index] = 0;
        let retired = reclaim::retire(&mut self.heap, roots.expires, Items::Borrowed)
            .and_then(|()| reclaim::retire(&mut self.heap, roots.keys, Items::Entries));
        let subkeys = subkey_index::take(self, index);
        let indexes = subkeys.and_then(|subkeys| reclaim::retire(&mut self.heap, subkeys, Items::Borrowed));
        self.counters.changes += keys;
        retired.and(indexes).map(|()| keys)
    }

    /// Empties all databases. Returns how many keys went.
    ///
    /// # Errors
    /// As [`Keyspace::flush`].
    pub fn flush_all(&mut self) -> Result<u64> {
        let mut keys = 0;
        for db in 0..self.databases() {
            keys += self.flush(DbId(db))?;
        }
        Ok(keys)
    }

    /// Exchanges two databases.
    ///
    /// # Errors
    /// As [`Keyspace::flush`].
    pub fn swap(&mut self, a: DbId, b: DbId) -> Result<()> {
        let (index_a, index_b) = (self.db_index(a)?, self.db_index(b)?);
        if index_a == index_b {
            return Ok(());
        }
        self.touch_exchanged(a, b)?;
        self.touch_exchanged(b, a)?;
        self.dbs.swap(index_a, index_b);
        self.searches.expiry.cursors.swap(index_a, index_b);
        self.searches.expiry.avg_ttl_ms.swap(index_a, index_b);
        subkey_index::swap(self, index_a, index_b)?;
        self.sync_db(index_a)?;
        self.sync_db(index_b)?;
        self.counters.changes += 1;
        Ok(())
    }

    /// Tells the watchers of a database's keys that it gets the content of another one.
    fn touch_exchanged(&mut self, db: DbId, other: DbId) -> Result<()> {
        for key in self.events.watchers.keys_of(db) {
            let hash = self.hash(&key);
            let goes = self.find_any(db, &key, hash)?.is_some();
            let comes = self.find_any(other, &key, hash)?.map(|entry| self.has_expired(&entry)).transpose()?;
            if goes || comes.is_some() {
                self.events.watchers.exchange(db, &key, goes, comes);
            }
        }
        Ok(())
    }

    /// Calls `f` with about `count` keys and returns the cursor to go on with, 0 at the end.
    ///
    /// A key that exists during a whole scan is passed at least once; one that comes or goes may be; some twice.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn scan(&self, db: DbId, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], ValueType)) -> Result<u64> {
        self.scan_items(db, cursor, count, &mut |item| self.show(item, f))
    }

    /// As [`Keyspace::scan`], and deletes keys that it meets whose time has come, unless such keys are held.
    ///
    /// # Errors
    /// As [`Keyspace::scan`].
    pub fn scan_expiring(
        &mut self,
        db: DbId,
        cursor: u64,
        count: usize,
        f: &mut dyn FnMut(&[u8], ValueType),
    ) -> Result<u64> {
        let mut expired: Vec<Vec<u8>> = Vec::new();
        let next = self.scan_items(db, cursor, count, &mut |item| {
            let entry = Entry::read(&self.heap.arena, item)?;
            if self.has_expired(&entry)? {
                expired.push(entry.key(&self.heap.arena)?.to_vec());
            }
            self.show(item, f)
        })?;
        for key in expired {
            self.look_up(db, &key)?;
        }
        Ok(next)
    }

    fn scan_items(
        &self,
        db: DbId,
        cursor: u64,
        count: usize,
        each: &mut dyn FnMut(quire_arena::Handle) -> Result<()>,
    ) -> Result<u64> {
        let table = &self.dbs[self.db_index(db)?].keys;
        let mut cursor = cursor;
        let mut seen = 0;
        for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
            cursor = table.scan(&self.heap.arena, cursor, |item| {
                seen += 1;
                each(item)
            })?;
            if cursor == 0 || seen >= count {
                break;
            }
        }
        Ok(cursor)
    }

    /// Calls `f` with every key.
    ///
    /// # Errors
    /// As [`Keyspace::scan`].
    pub fn for_each_key(&self, db: DbId, f: &mut dyn FnMut(&[u8], ValueType)) -> Result<()> {
        self.dbs[self.db_index(db)?].keys.for_each(&self.heap.arena, |item| self.show(item, f))
    }

    fn show(&self, item: quire_arena::Handle, f: &mut dyn FnMut(&[u8], ValueType)) -> Result<()> {
        let entry = Entry::read(&self.heap.arena, item)?;
        if !self.has_expired(&entry)? {
            f(entry.key(&self.heap.arena)?, entry.encoding()?.kind());
        }
        Ok(())
    }

    /// Some key; every one is equally likely.
    ///
    /// # Errors
    /// As [`Keyspace::scan`].
    pub fn random_key(&mut self, db: DbId) -> Result<Option<Vec<u8>>> {
        let index = self.db_index(db)?;
        for attempt in 0..RANDOM_TRIES {
            let table = self.dbs[index].keys;
            let Some(item) = random_item(&self.heap.arena, &table, &mut self.rng)? else { return Ok(None) };
            let entry = Entry::read(&self.heap.arena, item)?;
            let key = entry.key(&self.heap.arena)?.to_vec();
            let expired = self.has_expired(&entry)?;
            if !expired || attempt + 1 == RANDOM_TRIES {
                return Ok((!expired).then_some(key));
            }
            self.look_up(db, &key)?;
        }
        Ok(None)
    }

    /// The digest of all databases. Walks through all data.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`].
    pub fn digest(&self) -> Result<[u8; 20]> {
        let mut all = Digest::default();
        for (index, roots) in self.dbs.iter().enumerate() {
            if roots.keys.count == 0 {
                continue;
            }
            all.mix(&(index as u32).to_be_bytes());
            roots.keys.for_each(&self.heap.arena, |item| {
                let entry = Entry::read(&self.heap.arena, item)?;
                let mut digest = Digest::default();
                digest.mix(entry.key(&self.heap.arena)?);
                self.mix_value(&mut digest, &entry)?;
                all.toggle(&digest.0);
                Ok(())
            })?;
        }
        Ok(all.0)
    }

    /// The digest of one key's value and of whether it expires.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn digest_value(&self, db: DbId, key: &[u8]) -> Result<Option<[u8; 20]>> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(None) };
        // A digest is asked for to find differences; damage is one.
        (self.ops(&entry)?.check)(self, &entry)?;
        let mut digest = Digest::default();
        self.mix_value(&mut digest, &entry)?;
        Ok(Some(digest.0))
    }

    fn mix_value(&self, digest: &mut Digest, entry: &Entry) -> Result<()> {
        (self.ops(entry)?.digest)(&self.heap.arena, entry, digest)?;
        if entry.has(EXPIRES) {
            digest.toggle(b"!!expire!!");
        }
        Ok(())
    }
}
