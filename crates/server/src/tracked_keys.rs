//! Which keys clients may have in caches of their own: the table that CLIENT TRACKING fills and that a change of a key empties.
//!
//! Entries lie in the order of their keys' hashes, which have a seed of their own: so a random one is found by a random number, and no
//! entry's coming moves all others, as it would in a hash table that grows. Relies on nothing.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Bytes of an entry besides the key itself and its clients, about.
const ENTRY_BYTES: usize = 112;

/// A key, and the clients that may have it.
#[derive(Debug)]
pub struct TrackedKey {
    /// The key, of whatever database.
    pub key: Box<[u8]>,
    /// The clients' numbers, in ascending order. Some may be gone.
    pub clients: Vec<u64>,
}

impl TrackedKey {
    fn memory_bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.clients.capacity() * size_of::<u64>()
    }
}

type Entries = BTreeMap<u64, TrackedKey>;

/// The table.
#[derive(Default, Debug)]
pub struct TrackedKeys {
    entries: Entries,
    /// Emptied tables whose memory is freed in steps.
    leaving: Vec<Entries>,
    hasher: RandomState,
    /// Clients of all keys together.
    items: usize,
    bytes: usize,
    /// Random numbers that were drawn.
    draws: u64,
}

impl TrackedKeys {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many clients the keys have, one counted for each of its keys.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Memory that the table takes, about, with what is still to be freed.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Client `id` may have the key from now on. Returns another key that had to make way for it, whose clients must be told: one with
    /// the same hash.
    pub fn remember(&mut self, key: &[u8], id: u64) -> Option<TrackedKey> {
        let hash = self.hasher.hash_one(key);
        let displaced = match self.entries.get(&hash) {
            Some(entry) if *entry.key != *key => self.remove(hash),
            _ => None,
        };
        let (entries, bytes) = (&mut self.entries, &mut self.bytes);
        let entry = entries.entry(hash).or_insert_with(|| {
            let entry = TrackedKey { key: key.into(), clients: Vec::with_capacity(1) };
            *bytes += entry.memory_bytes();
            entry
        });
        if let Err(at) = entry.clients.binary_search(&id) {
            let before = entry.memory_bytes();
            entry.clients.insert(at, id);
            *bytes += entry.memory_bytes() - before;
            self.items += 1;
        }
        displaced
    }

    /// Takes a key out of the table.
    pub fn take(&mut self, key: &[u8]) -> Option<TrackedKey> {
        let hash = self.hasher.hash_one(key);
        if *self.entries.get(&hash)?.key == *key { self.remove(hash) } else { None }
    }

    /// Takes a random key out of the table.
    pub fn take_any(&mut self) -> Option<TrackedKey> {
        self.draws += 1;
        let drawn = self.hasher.hash_one(self.draws);
        let hash = *self.entries.range(drawn..).next().or_else(|| self.entries.first_key_value())?.0;
        self.remove(hash)
    }

    fn remove(&mut self, hash: u64) -> Option<TrackedKey> {
        let entry = self.entries.remove(&hash)?;
        self.items -= entry.clients.len();
        self.bytes -= entry.memory_bytes();
        Some(entry)
    }

    /// Empties the table; its memory is freed by [`TrackedKeys::free`].
    pub fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.leaving.push(std::mem::take(&mut self.entries));
        }
        self.items = 0;
    }

    /// Frees so many entries of what was emptied; true if there are more.
    pub fn free(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(table) = self.leaving.last_mut() else { return false };
            match table.pop_first() {
                Some((_, entry)) => self.bytes -= entry.memory_bytes(),
                None => drop(self.leaving.pop()),
            }
        }
        !self.leaving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use quire_rng::SplitMix64;

    use super::*;

    #[test]
    fn the_table_is_as_a_map_of_sets_and_gives_its_memory_back() {
        let (mut random, mut table) = (SplitMix64::new(5), TrackedKeys::default());
        let mut model: HashMap<Vec<u8>, BTreeSet<u64>> = HashMap::new();
        for _ in 0..20_000 {
            let key = format!("key{}", random.below(300)).into_bytes();
            match random.below(20) {
                0 => {
                    let taken = table.take_any();
                    assert_eq!(taken.is_some(), !model.is_empty());
                    if let Some(TrackedKey { key, clients }) = taken {
                        assert_eq!(model.remove(&*key), Some(clients.into_iter().collect()));
                    }
                }
                1..=4 => {
                    let clients = table.take(&key).map(|taken| taken.clients.into_iter().collect());
                    assert_eq!(clients, model.remove(&key));
                }
                5 if random.below(50) == 0 => {
                    table.clear();
                    model.clear();
                }
                _ => {
                    let id = random.below(40);
                    assert!(table.remember(&key, id).is_none(), "no two hashes are the same");
                    model.entry(key).or_default().insert(id);
                }
            }
            assert_eq!((table.len(), table.items()), (model.len(), model.values().map(BTreeSet::len).sum()));
        }
        assert!(table.memory_bytes() > table.len() * ENTRY_BYTES);
        table.clear();
        assert!(table.is_empty() && table.free(1), "it is freed in steps");
        while table.free(16) {}
        assert_eq!(table.memory_bytes(), 0);
    }

    #[test]
    fn any_key_may_be_the_one_that_is_taken() {
        let mut first = BTreeSet::new();
        for _ in 0..400 {
            let mut table = TrackedKeys::default();
            for key in 0..8u8 {
                table.remember(&[key], 1);
            }
            first.insert(table.take_any().unwrap().key);
        }
        assert_eq!(first.len(), 8);
    }
}
