//! The keyspace: databases of keys with times to live, in one arena, and how a key is found.
//!
//! Knows no types: what has to be done with a value is asked of its encoding's table of functions (`ops`). Relies on
//! `table` for finding, on `entry` for the layout of what is found. Table heads are kept here and written through to the
//! root after each change, so the arena is complete at every command boundary.

pub(crate) mod access;
pub mod attachment;
pub(crate) mod copying;
pub(crate) mod defrag;
pub(crate) mod digest;
pub(crate) mod entries;
pub(crate) mod entry;
pub(crate) mod eviction;
pub(crate) mod expiry;
mod key_hash;
mod keys;
mod member_hasher;
pub(crate) mod ops;
pub(crate) mod root;
pub(crate) mod stats;
pub(crate) mod subkey_expiry;
mod subkey_index;
pub(crate) mod value;
pub(crate) mod value_copy;
mod value_table;

use quire_arena::Arena;
use quire_rng::SplitMix64;

pub use key_hash::Prefetched;
pub(crate) use member_hasher::MemberHasher;

use crate::config::StoreConfig;
use crate::db::DbId;
use crate::effects::{Effects, ExpiredKey};
use crate::error::{Result, StoreError};
use crate::events::{Events, KeyEvent, KeyFate, KeyName, Watcher};
use crate::heap::Heap;
use crate::keyspace::access::{AccessCounting, AccessStamp, Clock};
use crate::keyspace::copying::Copies;
use crate::keyspace::entry::Entry;
use crate::keyspace::eviction::Searches;
use crate::keyspace::key_hash::KeyHasher;
use crate::keyspace::ops::{Ops, OpsOf, Values};
use crate::keyspace::root::{DATABASES, DbRoot};
use crate::keyspace::stats::{Counters, DbStats, StoreStats};
use crate::keyspace::subkey_index::SubkeyIndex;
use crate::limits::EncodingLimits;
use crate::table::{Hash, reclaim};

/// Longest string, as Redis' `proto-max-bulk-len` has it.
pub const STRING_MAX_BYTES: usize = 512 << 20;

/// Databases of keys in one arena.
pub struct Keyspace {
    heap: Heap,
    root: quire_arena::Handle,
    hasher: KeyHasher,
    pub(crate) dbs: Box<[DbRoot; DATABASES]>,
    /// Databases in use.
    databases: u8,
    values: Values,
    pub(crate) clock: Clock,
    pub(crate) limits: EncodingLimits,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) effects: Effects,
    pub(crate) rng: SplitMix64,
    searches: Searches,
    copies: Copies,
    /// Kept for its capacity.
    pub(crate) scratch: Vec<u8>,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Keyspace")
            .field("root", &self.root)
            .field("databases", &self.databases)
            .finish_non_exhaustive()
    }
}

pub(crate) fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|error| StoreError::NoSeed { detail: error.to_string() })
}

impl Keyspace {
    /// The keyspace whose root was opened.
    pub(crate) fn new(
        arena: Arena,
        opened: root::OpenedRoot,
        config: &StoreConfig,
        values: Values,
    ) -> Result<Keyspace> {
        let root::OpenedRoot { handle, seed, reclaim, dbs, .. } = opened;
        let subkeys = SubkeyIndex::open(&arena, handle)?;
        Ok(Keyspace {
            heap: Heap::new(arena, reclaim, (handle, root::RECLAIM_OFFSET), values.free_step),
            root: handle,
            hasher: KeyHasher::new(MemberHasher::with_keys(seed[0], seed[1])),
            dbs,
            databases: config.databases.clamp(1, DATABASES as u8),
            values,
            clock: Clock { now_ms: 0, seconds: 0, touching: true, counting: None, holding_expired: false },
            limits: config.limits,
            counters: Counters::default(),
            events: Events::default(),
            effects: Effects::default(),
            rng: SplitMix64::new(config.seed.map_or_else(random_u64, Ok)?),
            searches: Searches { subkeys, ..Searches::default() },
            copies: Copies::default(),
            scratch: Vec::new(),
        })
    }

    /// The memory below.
    pub fn arena(&self) -> &Arena {
        &self.heap.arena
    }

    /// The memory below, to cut, trim or adopt regions. Its objects are the keyspace's alone.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.heap.arena
    }

    pub(crate) fn root(&self) -> quire_arena::Handle {
        self.root
    }

    /// The functions of an entry's encoding.
    pub(crate) fn ops(&self, entry: &Entry) -> Result<&'static Ops> {
        Ok((self.values.ops)(entry.encoding()?))
    }

    /// Sets the time, in unix milliseconds, by which keys expire. Commands between two calls see one instant.
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.clock.now_ms = now_ms;
        self.clock.seconds = (now_ms.max(0) / 1000) as u32;
    }

    /// Says whether keys whose time has come stay: readers don't find them, but nothing deletes them, except a command that
    /// writes to the very key.
    pub fn set_holding_expired(&mut self, holding: bool) {
        self.clock.holding_expired = holding;
    }

    /// The time by which keys expire.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms
    }

    /// Changes made since the store was opened.
    pub fn changes(&self) -> u64 {
        self.counters.changes
    }

    /// Databases in use.
    pub fn databases(&self) -> u8 {
        self.databases
    }

    /// Sets up to what size values are packed, from the next change of each on.
    pub fn set_limits(&mut self, limits: EncodingLimits) {
        self.limits = limits;
    }

    /// The limits set by [`Keyspace::set_limits`].
    pub fn limits(&self) -> EncodingLimits {
        self.limits
    }

    /// Says whether commands note accesses (CLIENT NO-TOUCH).
    pub fn set_touching(&mut self, touching: bool) {
        self.clock.touching = touching;
    }

    /// Says how accesses are counted, if they are: `None` as long as no policy of eviction needs it.
    pub fn set_access_counting(&mut self, counting: Option<AccessCounting>) {
        self.clock.counting = counting;
    }

    /// Figures of the store and its arena.
    pub fn stats(&self) -> StoreStats {
        let databases: Vec<DbStats> = (0..self.databases)
            .map(|db| {
                let roots = &self.dbs[db as usize];
                DbStats {
                    keys: roots.keys.count,
                    expires: roots.expires.count,
                    avg_ttl_ms: self.searches.expiry.avg_ttl_ms[db as usize],
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
            expired_subkeys: self.counters.expired_subkeys,
            evicted: self.counters.evicted,
            changes: self.counters.changes,
            reclaim_pending: u64::from(self.heap.reclaim.nodes()),
            freed_in_steps: self.heap.reclaim.freed_values,
            arena: self.heap.arena.stats(),
        }
    }

    /// Sets hits, misses, expirations, evictions and what was freed in steps to zero (CONFIG RESETSTAT).
    pub fn reset_stats(&mut self) {
        self.heap.reclaim.freed_values = 0;
        self.counters = Counters { changes: self.counters.changes, ..Counters::default() };
    }

    /// What hashes keys and members.
    pub(crate) fn hasher(&self) -> MemberHasher {
        self.hasher.members
    }

    /// Starts loading the bucket of a key. For a batch of commands: first this for every key, then [`Keyspace::prefetch_entry`] for each, then the
    /// commands, each within two calls of [`Keyspace::expect_key`].
    #[inline]
    pub fn prefetch(&self, db: DbId, key: &[u8]) -> Prefetched {
        self.hasher.prefetch(&self.heap.arena, &self.dbs[..], db, key)
    }

    /// Starts loading the entry of a key whose bucket has been asked for.
    #[inline]
    pub fn prefetch_entry(&self, token: &Prefetched) {
        token.prefetch_entry(&self.heap.arena, &self.dbs[..]);
    }

    /// Says which key the next command is about: its bytes must lie where they lay when it was prefetched, and stay, until this is called again.
    /// With `None` nothing is known of any key; so it has to be before those bytes change. Nor is it of one that another keyspace has prefetched.
    #[inline]
    pub fn expect_key(&mut self, token: Option<&Prefetched>) {
        self.hasher.expect(token);
    }

    #[inline]
    pub(crate) fn key_hash(&self, key: &[u8]) -> Hash {
        self.hasher.hash(key)
    }

    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> Hash {
        self.hasher.members.hash(bytes)
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
        let arena = &self.heap.arena;
        match table.find(arena, hash, |item| Entry::is(arena, item, hash, key))? {
            Some(handle) => Ok(Some(Entry::read(arena, handle)?)),
            None => Ok(None),
        }
    }

    /// Whether an entry's time has come.
    #[inline]
    pub(crate) fn has_expired(&self, entry: &Entry) -> Result<bool> {
        Ok(entry.expiry(&self.heap.arena)?.is_some_and(|at_ms| at_ms <= self.clock.now_ms))
    }

    /// The entry of a key that has not expired; changes nothing.
    #[inline]
    pub(crate) fn peek_entry(&self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        match self.find_any(db, key, self.key_hash(key))? {
            Some(entry) if !self.has_expired(&entry)? => Ok(Some(entry)),
            _ => Ok(None),
        }
    }

    /// The entry of a key, to be changed. Deletes it if its time has come.
    #[inline]
    fn find(&mut self, db: DbId, key: &[u8], hash: Hash) -> Result<Option<Entry>> {
        match self.find_any(db, key, hash)? {
            Some(entry) if self.has_expired(&entry)? => {
                self.expire_entry(db, key, entry)?;
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// As [`Keyspace::find`], and notes an access: what writes the header of the entry that is returned writes the stamp, too.
    #[inline]
    fn find_to_write(&mut self, db: DbId, key: &[u8], hash: Hash) -> Result<Option<Entry>> {
        let mut found = self.find(db, key, hash)?;
        if self.clock.touching
            && let Some(entry) = &mut found
        {
            entry.header.clock = access::stamp_used(self, AccessStamp::of(entry)).raw();
        }
        Ok(found)
    }

    /// The entry of a key, to be read: counts, and notes an access, or that there is none.
    #[inline]
    pub(crate) fn find_to_read(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        let found = access::look_up_used(self, db, key)?;
        self.note_read(db, key, found.is_some());
        Ok(found)
    }

    /// Counts a hit or a miss and notes a miss, for look-ups that don't do so themselves.
    #[inline]
    pub fn note_read(&mut self, db: DbId, key: &[u8], hit: bool) {
        self.count_read(hit);
        if !hit {
            self.events.note_miss(db, key);
        }
    }

    /// Counts a hit or a miss of a look-up whose misses are told to no client.
    #[inline]
    pub fn count_read(&mut self, hit: bool) {
        if hit {
            self.counters.hits += 1;
        } else {
            self.counters.misses += 1;
        }
    }

    /// Counts a change of so many members, 1 for a value of one piece, and tells those who watch the key.
    #[inline]
    fn changed(&mut self, db: DbId, key: &[u8], exists: bool, members: u64) {
        self.counters.changes += members;
        self.events.emit(db, key, if exists { KeyFate::Changed } else { KeyFate::Gone });
    }

    /// Writes a database's table heads through.
    #[inline]
    fn sync_db(&mut self, db: usize) -> Result<()> {
        root::set_db(&mut self.heap.arena, self.root, db, &self.dbs[db])
    }

    /// Takes an entry out of its tables and frees it. Of a damaged one at least the key goes; one that a newer version has made stays.
    fn delete_entry(&mut self, db: DbId, entry: Entry) -> Result<()> {
        let index = self.db_index(db)?;
        if let Err(error @ StoreError::Newer { .. }) = entry.encoding() {
            return Err(error);
        }
        self.unlink(index, &entry)?;
        free_entry(&mut self.heap, entry, self.values.ops)
    }

    /// Takes an entry out of its tables.
    fn unlink(&mut self, index: usize, entry: &Entry) -> Result<()> {
        let Keyspace { heap: Heap { arena, .. }, dbs, .. } = self;
        let roots = &mut dbs[index];
        let hash = entry.header.hash;
        let removed = roots.keys.remove(arena, hash, entry.handle);
        let unindexed =
            if entry.has(entry::EXPIRES) { roots.expires.remove(arena, hash, entry.handle) } else { Ok(false) };
        // Even if a table proved damaged half-way, what both say of themselves is written through.
        self.sync_db(index)?;
        unindexed?;
        if subkey_index::has_expiring_subkeys(entry) {
            subkey_index::index(self, index, hash, Some(entry.handle), None)?;
        }
        if removed? { Ok(()) } else { Err(StoreError::damaged("an entry is not in its table")) }
    }

    /// Deletes an entry whose time has come.
    fn expire_entry(&mut self, db: DbId, key: &[u8], entry: Entry) -> Result<()> {
        self.delete_entry(db, entry)?;
        self.counters.expired += 1;
        self.effects.note_expired(db, key);
        self.events.emit(db, key, KeyFate::Expired);
        Ok(())
    }

    /// Frees about `budget` objects of deleted tables; returns how many were looked at, 0 if nothing is left.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; what was being freed is lost then, not tried again.
    pub fn reclaim_step(&mut self, budget: usize) -> Result<usize> {
        let looked_at = self.heap.free_step(budget)?;
        subkey_index::release(self).map(|()| looked_at)
    }

    /// Watches a key for `watcher`: any change of it is reported by [`Keyspace::take_touched`]. Returns the memory that this takes,
    /// none if it was watching the key.
    pub fn watch(&mut self, watcher: u64, db: DbId, key: &[u8]) -> usize {
        let entry = self.find_any(db, key, self.hash(key)).ok().flatten();
        let expired = entry.is_some_and(|entry| self.has_expired(&entry).unwrap_or(false));
        self.events.watchers.add(Watcher::Client(watcher), db, key, expired)
    }

    /// Ends all watches of `watcher`.
    pub fn unwatch_all(&mut self, watcher: u64) {
        self.events.watchers.remove_all(Watcher::Client(watcher));
    }

    /// Watchers of which a key has changed since the last call.
    #[inline]
    pub fn take_touched(&mut self) -> Vec<u64> {
        self.events.watchers.take_touched()
    }

    /// Has changes of a key told by [`Keyspace::next_ready_key`]: clients are blocked on it.
    pub fn await_key(&mut self, db: DbId, key: &[u8]) {
        self.events.watchers.await_key(db, key);
    }

    /// No client is blocked on the key any more.
    pub fn forget_key(&mut self, db: DbId, key: &[u8]) {
        self.events.watchers.forget_key(db, key);
    }

    /// Whether [`Keyspace::next_ready_key`] has one.
    #[inline]
    pub fn has_ready_keys(&self) -> bool {
        self.events.watchers.has_ready()
    }

    /// A key on which clients are blocked and that was changed, and there, since it was last told; those first that were changed first.
    pub fn next_ready_key(&mut self) -> Option<KeyName> {
        self.events.watchers.next_ready()
    }

    /// For EXEC: whether a key that `watcher` watches has expired since, though no command has deleted it yet.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn watched_expired(&self, watcher: u64) -> Result<bool> {
        for (db, key) in self.events.watchers.live_keys(watcher) {
            if let Some(entry) = self.find_any(db, key, self.hash(key))?
                && self.has_expired(&entry)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says whether what happens to keys is noted for [`Keyspace::take_key_events`]. What is noted and not taken uses memory.
    pub fn set_noting_key_events(&mut self, noting: bool) {
        self.events.set_noting(noting);
    }

    /// Says whether reads of keys that are not there are noted for [`Keyspace::take_key_events`], as long as other events are.
    pub fn set_noting_misses(&mut self, noting: bool) {
        self.events.set_noting_misses(noting);
    }

    /// Notes that something happened to a key that changed nothing, or nothing for its watchers, if such things are noted.
    pub fn note_key_event(&mut self, db: DbId, key: &[u8]) {
        self.events.note(db, key, KeyFate::Changed);
    }

    /// Whether something happened to keys that was not taken.
    #[inline]
    pub fn has_key_events(&self) -> bool {
        self.events.has_noted()
    }

    /// How much did.
    #[inline]
    pub fn key_event_count(&self) -> usize {
        self.events.noted_count()
    }

    /// What happened to keys since the last call, in that order.
    pub fn take_key_events(&mut self) -> Vec<KeyEvent> {
        self.events.take_noted()
    }

    /// Says whether keys that expire are noted for [`Keyspace::take_expired`].
    pub fn set_noting_expired(&mut self, noting: bool) {
        self.effects.set_noting(noting);
    }

    /// Whether keys have expired that the log's writer has not taken.
    #[inline]
    pub fn has_expired_keys(&self) -> bool {
        self.effects.has_expired()
    }

    /// The keys that have expired since the last call, in that order.
    pub fn take_expired(&mut self) -> Vec<ExpiredKey> {
        self.effects.take_expired()
    }
}

/// Frees an entry that is in no table any more, and all that belongs to it.
pub(crate) fn free_entry(heap: &mut Heap, entry: Entry, ops: OpsOf) -> Result<()> {
    let table = (ops(entry.encoding()?).table)(&heap.arena, &entry)?;
    if let Some(key) = entry.key_object(&heap.arena)? {
        heap.arena.free(key.object)?;
    }
    if let Some(value) = entry.value_object(&heap.arena)? {
        heap.arena.free(value.object)?;
    }
    heap.arena.free(entry.handle)?;
    table.map_or(Ok(()), |table| reclaim::retire_objects(heap, table))
}
