//! The hash of a key, calculated once: the server has the buckets of a whole batch of keys loaded before it runs the first command, and
//! each command then finds its key by the hash with which its bucket was asked for.
//!
//! Relies on the server for the place of the key's bytes: while the command runs they stay where they are, unchanged, so bytes in the
//! same place are the same key. Its hash depends on nothing else but the secret of the keyspace, which stays what it is; a command may put
//! another keyspace in the place of this one, so it is told from others by a number.

use std::sync::atomic::{AtomicU64, Ordering};

use quire_arena::Arena;

use crate::db::DbId;
use crate::keyspace::MemberHasher;
use crate::keyspace::root::DbRoot;
use crate::table::{Hash, beyond};

/// Cache lines of an entry that a prefetch starts.
const PREFETCH_LINES: usize = 4;

/// The number of the next keyspace of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Where a key's bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KeyPlace {
    address: usize,
    len: usize,
}

impl KeyPlace {
    #[inline]
    fn of(key: &[u8]) -> KeyPlace {
        KeyPlace { address: key.as_ptr().addr(), len: key.len() }
    }
}

/// A key whose bucket was asked for, from [`Keyspace::prefetch`](crate::keyspace::Keyspace::prefetch).
#[derive(Clone, Copy, Debug)]
pub struct Prefetched {
    /// The number of the keyspace.
    keyspace: u64,
    db: DbId,
    place: KeyPlace,
    hash: Hash,
}

/// Hashes keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHasher {
    /// What hashes members, and keys of which nothing is known.
    pub(super) members: MemberHasher,
    /// The number of the keyspace.
    number: u64,
    /// The key of the command that runs, if its hash is known.
    expected: Option<(KeyPlace, Hash)>,
}

impl KeyHasher {
    pub(super) fn new(members: MemberHasher) -> KeyHasher {
        KeyHasher { members, number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), expected: None }
    }

    /// The hash of a key that a command names.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        match self.expected {
            Some((place, hash)) if place == KeyPlace::of(key) => {
                debug_assert_eq!(hash, self.members.hash(key), "the key of a command has changed while it runs");
                hash
            }
            _ => self.members.hash(key),
        }
    }

    /// Starts loading the bucket of a key.
    #[inline]
    pub(super) fn prefetch(&self, arena: &Arena, dbs: &[DbRoot], db: DbId, key: &[u8]) -> Prefetched {
        let hash = self.members.hash(key);
        if let Some(roots) = dbs.get(db.0 as usize) {
            roots.keys.prefetch(arena, hash);
        }
        Prefetched { keyspace: self.number, db, place: KeyPlace::of(key), hash }
    }

    /// As [`Keyspace::expect_key`](crate::keyspace::Keyspace::expect_key).
    #[inline]
    pub(super) fn expect(&mut self, token: Option<&Prefetched>) {
        let own = token.filter(|token| token.keyspace == self.number);
        self.expected = own.map(|token| (token.place, token.hash));
    }
}

impl Prefetched {
    /// Starts loading the entry, once its bucket was asked for.
    #[inline]
    pub(super) fn prefetch_entry(&self, arena: &Arena, dbs: &[DbRoot]) {
        let Some(roots) = dbs.get(self.db.0 as usize) else { return };
        if let Some(entry) = roots.keys.guess(arena, self.hash) {
            for line in 0..PREFETCH_LINES {
                arena.prefetch(beyond(entry, line * 64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::db::ExpiryChange;
    use crate::store::Store;
    use crate::value::string;

    const DB: DbId = DbId(0);

    fn store() -> Store {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let mut store = Store::create(config).unwrap();
        for (key, value) in [(b"first", b"1"), (b"other", b"2")] {
            string::set(&mut store, DB, key, value, ExpiryChange::Clear).unwrap();
        }
        store
    }

    #[test]
    fn a_key_that_was_prefetched_is_found_by_its_bytes_wherever_they_lie() {
        let (mut store, buffer) = (store(), b"first other".to_vec());
        let (first, other) = (&buffer[..5], &buffer[6..]);
        let token = store.prefetch(DB, first);
        store.expect_key(Some(&token));
        assert_eq!(store.key_hash(first), store.hash(b"first"));
        for (key, value) in [(first, b"1"), (other, b"2"), (b"first", b"1"), (b"other", b"2")] {
            assert_eq!(string::get(&mut store, DB, key).unwrap(), Some(&value[..]));
        }
        // A part of it is another key.
        assert_eq!(string::get(&mut store, DB, &first[..4]).unwrap(), None);
    }

    #[test]
    fn a_hash_is_known_for_one_command_and_not_for_what_comes_in_its_place() {
        let (mut store, mut buffer) = (store(), b"first".to_vec());
        let token = store.prefetch(DB, &buffer);
        store.expect_key(Some(&token));
        assert_eq!(string::get(&mut store, DB, &buffer).unwrap(), Some(&b"1"[..]));
        store.expect_key(None);
        buffer.copy_from_slice(b"other");
        assert_eq!(string::get(&mut store, DB, &buffer).unwrap(), Some(&b"2"[..]));
    }

    #[test]
    fn a_key_that_another_keyspace_has_prefetched_is_hashed_anew() {
        let (before, mut store, key) = (store(), store(), b"first".to_vec());
        let token = before.prefetch(DB, &key);
        assert_ne!(token.hash, store.hash(&key), "each has a secret of its own");
        store.expect_key(Some(&token));
        assert_eq!(string::get(&mut store, DB, &key).unwrap(), Some(&b"1"[..]));
    }

    #[test]
    fn a_prefetched_key_that_was_deleted_and_made_again_meanwhile_is_found() {
        let (mut store, key) = (store(), b"first".to_vec());
        let token = store.prefetch(DB, &key);
        store.flush_all().unwrap();
        (0..1000).for_each(|number: u32| {
            string::set(&mut store, DB, &number.to_ne_bytes(), b"", ExpiryChange::Clear).unwrap();
        });
        store.expect_key(Some(&token));
        assert_eq!(string::get(&mut store, DB, &key).unwrap(), None);
        string::set(&mut store, DB, &key, b"3", ExpiryChange::Clear).unwrap();
        store.expect_key(None);
        assert_eq!(string::get(&mut store, DB, b"first").unwrap(), Some(&b"3"[..]));
    }
}
