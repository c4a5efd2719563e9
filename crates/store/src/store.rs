//! The store: one arena, its root, and how a key is found.
//!
//! Relies on `table` for finding, on `entry` for the layout of what is found. The families (`strings`, `hashes`, `keys`,
//! …) are further `impl Store` blocks in files of their own. Table heads are kept here and written through to the root
//! after each change, so the arena is complete at every command boundary.

use quire_arena::{Arena, ArenaConfig};
use quire_checkpoint::Restore;
use siphasher::sip::SipHasher13;

use crate::config::StoreConfig;
use crate::db::DbId;
use crate::entry::{Entry, EntryHeader, Form, Kind};
use crate::error::{Result, StoreError};
use crate::expiration::Expiration;
use crate::logged::Logged;
use crate::reclaim::Reclaim;
use crate::root::{self, DATABASES, DbRoot, Opened};
use crate::saves::Saves;
use crate::stats::{Counters, DbStats, StoreStats};
use crate::table::{Hash, beyond};
use crate::watch::Watchers;

/// Longest string, as Redis' `proto-max-bulk-len` has it.
pub const STRING_MAX_BYTES: usize = 512 << 20;
/// Cache lines of an entry that a prefetch starts.
const PREFETCH_LINES: usize = 4;

/// The keyspace: databases of strings and hashes in one arena.
pub struct Store {
    pub(crate) arena: Arena,
    pub(crate) root: quire_arena::Handle,
    hasher: SipHasher13,
    pub(crate) dbs: Box<[DbRoot; DATABASES]>,
    /// Databases in use.
    databases: u8,
    pub(crate) reclaim: Reclaim,
    now_ms: i64,
    /// `now_ms` in seconds, as entries have it.
    pub(crate) clock: u32,
    /// Whether reads set access clocks.
    touching: bool,
    pub(crate) hash_max_packed_entries: usize,
    pub(crate) hash_max_packed_value: usize,
    pub(crate) counters: Counters,
    pub(crate) watchers: Watchers,
    pub(crate) random: u64,
    pub(crate) expiry: Expiration,
    /// Kept for its capacity.
    pub(crate) scratch: Vec<u8>,
    pub(crate) saves: Saves,
    /// The image that is being brought back, until that is done.
    pub(crate) restore: Option<Restore>,
    /// What whoever keeps a log has to know.
    pub(crate) logged: Logged,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Store").field("root", &self.root).field("databases", &self.databases).finish_non_exhaustive()
    }
}

/// A key's hash, from [`Store::prefetch`].
#[derive(Clone, Copy, Debug)]
pub struct Prefetched {
    db: DbId,
    hash: Hash,
}

fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|error| StoreError::NoSeed { detail: error.to_string() })
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// The system has no memory or no random numbers.
    pub fn create(config: StoreConfig) -> Result<Store> {
        let arena =
            Arena::create(ArenaConfig { max_bytes: config.max_memory_bytes, budget_bytes: config.budget_bytes })?;
        Store::from_arena(arena, config)
    }

    /// The store that an arena holds; an empty one if the arena is empty.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the arena holds something else.
    pub fn from_arena(mut arena: Arena, config: StoreConfig) -> Result<Store> {
        let opened = match arena.root().is_null() {
            true => root::create(&mut arena, [random_u64()?, random_u64()?])?,
            false => root::open(&arena)?,
        };
        let Opened { handle, seed, reclaim, dbs, log_position } = opened;
        Ok(Store {
            arena,
            root: handle,
            hasher: SipHasher13::new_with_keys(seed[0], seed[1]),
            dbs,
            databases: config.databases.clamp(1, DATABASES as u8),
            reclaim: Reclaim::new(reclaim),
            now_ms: 0,
            clock: 0,
            touching: true,
            hash_max_packed_entries: config.hash_max_packed_entries.min(crate::packed::MAX_FIELDS),
            hash_max_packed_value: config.hash_max_packed_value,
            counters: Counters::default(),
            watchers: Watchers::default(),
            random: random_u64()? | 1,
            expiry: Expiration::default(),
            scratch: Vec::new(),
            saves: Saves::default(),
            restore: None,
            logged: Logged::new(seed, log_position),
        })
    }

    /// The memory below.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The memory below, to cut, trim or adopt regions. Its objects are the store's alone.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Sets the time, in unix milliseconds, by which keys expire. Commands between two calls see one instant.
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.clock = (now_ms.max(0) / 1000) as u32;
    }

    /// The time by which keys expire.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Changes made since the store was opened.
    pub fn changes(&self) -> u64 {
        self.counters.changes
    }

    /// Databases in use.
    pub fn databases(&self) -> u8 {
        self.databases
    }

    /// Sets how many fields of which length a hash may have before it becomes a table.
    pub fn set_hash_limits(&mut self, max_entries: usize, max_value: usize) {
        self.hash_max_packed_entries = max_entries.min(crate::packed::MAX_FIELDS);
        self.hash_max_packed_value = max_value;
    }

    /// The limits set by [`Store::set_hash_limits`].
    pub fn hash_limits(&self) -> (usize, usize) {
        (self.hash_max_packed_entries, self.hash_max_packed_value)
    }

    /// Says whether reads set access clocks (CLIENT NO-TOUCH).
    pub fn set_touching(&mut self, touching: bool) {
        self.touching = touching;
    }

    /// Figures of the store and its arena.
    pub fn stats(&self) -> StoreStats {
        let databases: Vec<DbStats> = (0..self.databases)
            .map(|db| {
                let roots = &self.dbs[db as usize];
                DbStats {
                    keys: roots.keys.count,
                    expires: roots.expires.count,
                    avg_ttl_ms: self.expiry.avg_ttl_ms[db as usize],
                    overhead_bytes: roots.keys.own_bytes() + roots.expires.own_bytes(),
                    expires_overhead_bytes: roots.expires.own_bytes(),
                }
            })
            .collect();
        StoreStats {
            overhead_bytes: databases.iter().map(|db| db.overhead_bytes).sum(),
            databases,
            hits: self.counters.hits,
            misses: self.counters.misses,
            expired: self.counters.expired,
            changes: self.counters.changes,
            reclaim_pending: u64::from(self.reclaim.root.nodes),
            arena: self.arena.stats(),
        }
    }

    /// Sets hits, misses and expirations to zero (CONFIG RESETSTAT).
    pub fn reset_stats(&mut self) {
        self.counters = Counters { changes: self.counters.changes, ..Counters::default() };
    }

    /// Starts loading the bucket of a key. For a batch of commands: first this for every key, then
    /// [`Store::prefetch_entry`] for each, then the commands.
    #[inline]
    pub fn prefetch(&self, db: DbId, key: &[u8]) -> Prefetched {
        let hash = self.hash(key);
        if let Some(roots) = self.dbs.get(db.0 as usize) {
            roots.keys.prefetch(&self.arena, hash);
        }
        Prefetched { db, hash }
    }

    /// Starts loading the entry of a key whose bucket has been asked for.
    #[inline]
    pub fn prefetch_entry(&self, token: Prefetched) {
        let Some(roots) = self.dbs.get(token.db.0 as usize) else { return };
        if let Some(entry) = roots.keys.guess(&self.arena, token.hash) {
            for line in 0..PREFETCH_LINES {
                self.arena.prefetch(beyond(entry, line * 64));
            }
        }
    }

    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> Hash {
        Hash::from(self.hasher.hash(bytes))
    }

    /// Index of a database that exists.
    #[inline]
    pub(crate) fn db_index(&self, db: DbId) -> Result<usize> {
        if db.0 < self.databases { Ok(db.0 as usize) } else { Err(StoreError::NoSuchDb { db: db.0 }) }
    }

    /// The entry of a key, expired or not.
    #[inline]
    pub(crate) fn find_any(&self, db: DbId, key: &[u8], hash: Hash) -> Result<Option<Entry>> {
        let table = &self.dbs[self.db_index(db)?].keys;
        let arena = &self.arena;
        match table.find(arena, hash, |item| Entry::is(arena, item, hash, key))? {
            Some(handle) => Ok(Some(Entry::read(arena, handle)?)),
            None => Ok(None),
        }
    }

    /// Whether an entry's time has come.
    #[inline]
    pub(crate) fn has_expired(&self, entry: &Entry) -> Result<bool> {
        Ok(entry.expiry(&self.arena)?.is_some_and(|at_ms| at_ms <= self.now_ms))
    }

    /// The entry of a key that has not expired; changes nothing.
    #[inline]
    pub(crate) fn peek_entry(&self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        match self.find_any(db, key, self.hash(key))? {
            Some(entry) if !self.has_expired(&entry)? => Ok(Some(entry)),
            _ => Ok(None),
        }
    }

    /// The entry of a key, to be changed. Deletes it if its time has come.
    #[inline]
    pub(crate) fn find(&mut self, db: DbId, key: &[u8], hash: Hash) -> Result<Option<Entry>> {
        match self.find_any(db, key, hash)? {
            Some(entry) if self.has_expired(&entry)? => {
                self.expire_entry(db, key, entry)?;
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// The entry of a key, to be read: counts, and sets the access clock.
    #[inline]
    pub(crate) fn find_to_read(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        let found = self.find(db, key, self.hash(key))?;
        self.count_read(found.is_some());
        if self.touching
            && let Some(entry) = &found
        {
            self.set_clock(entry);
        }
        Ok(found)
    }

    /// Counts a hit or a miss, for look-ups that don't do so themselves.
    #[inline]
    pub fn count_read(&mut self, hit: bool) {
        if hit {
            self.counters.hits += 1;
        } else {
            self.counters.misses += 1;
        }
    }

    /// As [`Store::find_to_read`], for an operation on values of one type.
    #[inline]
    pub(crate) fn find_kind_to_read(&mut self, db: DbId, key: &[u8], kind: Kind) -> Result<Option<Entry>> {
        let found = self.find_to_read(db, key)?;
        check_kind(found, kind)
    }

    /// As [`Store::find`], for an operation on values of one type.
    #[inline]
    pub(crate) fn find_kind(&mut self, db: DbId, key: &[u8], hash: Hash, kind: Kind) -> Result<Option<Entry>> {
        let found = self.find(db, key, hash)?;
        check_kind(found, kind)
    }

    /// Notes an access. The clock is a hint, so it may stay as it is while a snapshot is open.
    #[inline]
    pub(crate) fn set_clock(&mut self, entry: &Entry) {
        if entry.header.clock != self.clock
            && let Some(header) = self.arena.hint_mut::<EntryHeader>(entry.handle)
        {
            header.clock = self.clock;
        }
    }

    /// Counts a change and tells whoever watches the key.
    #[inline]
    pub(crate) fn changed(&mut self, db: DbId, key: &[u8], exists: bool) {
        self.counters.changes += 1;
        if !self.watchers.is_empty() {
            self.watchers.touch(db, key, exists);
        }
    }

    /// Writes a database's table heads through.
    #[inline]
    pub(crate) fn sync_db(&mut self, db: usize) -> Result<()> {
        root::set_db(&mut self.arena, self.root, db, &self.dbs[db])
    }

    /// Writes the reclaim list's head through.
    pub(crate) fn sync_reclaim(&mut self) -> Result<()> {
        root::set_reclaim(&mut self.arena, self.root, &self.reclaim.root)
    }

    /// Takes an entry out of its tables and frees it.
    pub(crate) fn delete_entry(&mut self, db: DbId, entry: Entry) -> Result<()> {
        let index = self.db_index(db)?;
        self.unlink(index, &entry)?;
        let freed = self.reclaim.free_entry(&mut self.arena, entry);
        if entry.form()? == Form::TableHash {
            self.sync_reclaim()?;
        }
        freed
    }

    /// Takes an entry out of its tables.
    pub(crate) fn unlink(&mut self, index: usize, entry: &Entry) -> Result<()> {
        let Store { arena, dbs, .. } = self;
        let roots = &mut dbs[index];
        let hash = entry.header.hash;
        let removed = roots.keys.remove(arena, hash, entry.handle);
        if entry.has(crate::entry::EXPIRES) {
            roots.expires.remove(arena, hash, entry.handle)?;
        }
        // Even if the table proved damaged half-way, what it says of itself is written through.
        self.sync_db(index)?;
        if removed? { Ok(()) } else { Err(StoreError::damaged("an entry is not in its table")) }
    }

    /// Deletes an entry whose time has come.
    fn expire_entry(&mut self, db: DbId, key: &[u8], entry: Entry) -> Result<()> {
        self.delete_entry(db, entry)?;
        self.counters.expired += 1;
        self.logged.note_expired(db, key);
        if !self.watchers.is_empty() {
            self.watchers.touch(db, key, false);
        }
        Ok(())
    }

    /// Frees about `budget` objects of deleted tables; returns how many were looked at, 0 if nothing is left.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; what was being freed is lost then, not tried again.
    pub fn reclaim_step(&mut self, budget: usize) -> Result<usize> {
        if self.reclaim.is_empty() {
            return Ok(0);
        }
        let done = self.reclaim.step(&mut self.arena, budget);
        self.sync_reclaim()?;
        done
    }

    /// Watches a key for `watcher`: any change of it is reported by [`Store::take_touched`].
    pub fn watch(&mut self, watcher: u64, db: DbId, key: &[u8]) {
        let entry = self.find_any(db, key, self.hash(key)).ok().flatten();
        let expired = entry.is_some_and(|entry| self.has_expired(&entry).unwrap_or(false));
        self.watchers.add(watcher, db, key, expired);
    }

    /// Ends all watches of `watcher`.
    pub fn unwatch_all(&mut self, watcher: u64) {
        self.watchers.remove_all(watcher);
    }

    /// Watchers of which a key has changed since the last call.
    #[inline]
    pub fn take_touched(&mut self) -> Vec<u64> {
        self.watchers.take_touched()
    }

    /// For EXEC: whether a key that `watcher` watches has expired since, though nobody has deleted it yet.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn watched_expired(&self, watcher: u64) -> Result<bool> {
        for (db, key) in self.watchers.live_keys(watcher) {
            if let Some(entry) = self.find_any(db, key, self.hash(key))?
                && self.has_expired(&entry)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Refuses an entry of another type.
#[inline]
pub(crate) fn check_kind(found: Option<Entry>, kind: Kind) -> Result<Option<Entry>> {
    match found {
        Some(entry) if entry.form()?.kind() != kind => Err(StoreError::WrongType),
        found => Ok(found),
    }
}
