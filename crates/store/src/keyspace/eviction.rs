//! Eviction: choosing the key that is to go when memory is short, as Redis does, from samples and a pool of the best candidates of
//! earlier ones.
//!
//! A sample is what lies in some buckets drawn by chance, all of it, so every key has the same chance. What a candidate was worth is
//! looked at again before it goes: one that was used meanwhile stays. How much is to go is for the server to say, key by key.

use quire_arena::Handle;

use crate::db::DbId;
use crate::error::Result;
use crate::events::KeyFate;
use crate::keyspace::Keyspace;
use crate::keyspace::access::AccessStamp;
use crate::keyspace::defrag::Defrag;
use crate::keyspace::entry::{EXPIRES, Entry};
use crate::keyspace::expiry::Expiration;
use crate::keyspace::subkey_index::SubkeyIndex;
use crate::table::TableHead;
use crate::table::sample::{random_bucket_items, random_item};

/// Candidates that are kept, as many as Redis keeps.
const POOL: usize = 16;
/// Most items of a sample, whatever the setting says: a step must be short.
const MOST_SAMPLES: usize = 64;
/// Samples taken for one key. Only keys that are used between sample and eviction, or damage, need a second one.
const TRIES: usize = 64;

/// Which key goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionOrder {
    /// The one that was not used for the longest time.
    LeastRecentlyUsed,
    /// The one that is used least often, among equals the one that was not used for the longest time.
    LeastFrequentlyUsed,
    /// The one that expires first. Only for keys that do.
    FirstToExpire,
    /// Any.
    Random,
}

/// Which keys go, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionPolicy {
    /// Which key goes first.
    pub order: EvictionOrder,
    /// Keys without a time to live stay.
    pub only_expiring: bool,
}

/// A key that may go soon. Handle and hash tell whether it is still there, and was not moved; another key that has taken the place of
/// both is as good.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    db: usize,
    hash: u32,
    handle: Handle,
    rank: u64,
}

/// The best candidates so far.
#[derive(Debug, Default)]
pub(crate) struct CandidatePool {
    /// By rank, the best one last.
    best: Vec<Candidate>,
    /// What their ranks mean.
    policy: Option<EvictionPolicy>,
}

impl CandidatePool {
    fn offer(&mut self, candidate: Candidate) {
        let is_same = |other: &Candidate| (other.db, other.handle) == (candidate.db, candidate.handle);
        self.best.retain(|other| !is_same(other));
        let place = self.best.partition_point(|other| other.rank < candidate.rank);
        if self.best.len() < POOL {
            self.best.insert(place, candidate);
        } else if place > 0 {
            self.best[..place].rotate_left(1);
            self.best[place - 1] = candidate;
        }
    }
}

/// How far the searches have come that remove keys, or move them.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    /// For keys whose time has come.
    pub(crate) expiry: Expiration,
    /// For subkeys whose time has come, and the index of those.
    pub(crate) subkeys: SubkeyIndex,
    /// For keys to evict.
    pub(crate) pool: CandidatePool,
    /// For objects in mostly empty slabs.
    pub(crate) defrag: Defrag,
}

/// Deletes the key that the policy has go first, of about `samples` keys that are looked at. False if there is none.
///
/// # Errors
/// [`crate::StoreError::Damaged`].
pub fn evict_key(keyspace: &mut Keyspace, policy: EvictionPolicy, samples: usize) -> Result<bool> {
    if keyspace.searches.pool.policy != Some(policy) {
        keyspace.searches.pool = CandidatePool { best: Vec::with_capacity(POOL), policy: Some(policy) };
    }
    for _ in 0..TRIES {
        let Some(index) = random_db(keyspace, policy) else { return Ok(false) };
        if policy.order == EvictionOrder::Random {
            let table = *table_of(keyspace, index, policy);
            if let Some(item) = random_item(&keyspace.heap.arena, &table, &mut keyspace.rng)?
                && evict_if_allowed(keyspace, index, item)?
            {
                return Ok(true);
            }
            continue;
        }
        sample(keyspace, index, policy, samples)?;
        if evict_best(keyspace, policy)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A database; each in proportion to the keys that may go.
fn random_db(keyspace: &mut Keyspace, policy: EvictionPolicy) -> Option<usize> {
    let all = (0..keyspace.dbs.len()).map(|index| table_of(keyspace, index, policy).count).fold(0, u64::saturating_add);
    let mut left = keyspace.rng.below(all);
    (0..keyspace.dbs.len()).find(|&index| {
        let count = table_of(keyspace, index, policy).count;
        let found = left < count;
        left = left.saturating_sub(count);
        found
    })
}

fn table_of(keyspace: &Keyspace, index: usize, policy: EvictionPolicy) -> &TableHead {
    let roots = &keyspace.dbs[index];
    if policy.only_expiring { &roots.expires } else { &roots.keys }
}

/// Offers the keys of some buckets to the pool.
fn sample(keyspace: &mut Keyspace, index: usize, policy: EvictionPolicy, samples: usize) -> Result<()> {
    let table = *table_of(keyspace, index, policy);
    let mut items = std::mem::take(&mut keyspace.heap.reclaim.batch);
    let wanted = samples.clamp(1, MOST_SAMPLES);
    let found = random_bucket_items(&keyspace.heap.arena, &table, &mut keyspace.rng, wanted, &mut items);
    items.iter().for_each(|&item| keyspace.heap.arena.prefetch(item));
    for &item in &items {
        // What is damaged is passed over: others can go.
        if let Ok(entry) = Entry::read(&keyspace.heap.arena, item)
            && let Ok(rank) = rank(keyspace, &entry, policy.order)
        {
            let candidate = Candidate { db: index, hash: entry.header.hash, handle: item, rank };
            keyspace.searches.pool.offer(candidate);
        }
    }
    items.clear();
    keyspace.heap.reclaim.batch = items;
    found
}

/// What a key is worth to eviction: the one with the highest number goes first. Only an access or another time to live lowers it.
fn rank(keyspace: &Keyspace, entry: &Entry, order: EvictionOrder) -> Result<u64> {
    let (stamp, now_seconds) = (AccessStamp::of(entry), keyspace.clock.seconds);
    // The instant of the last access, not the time since: it stays true while the candidate waits.
    let last_access = now_seconds.saturating_sub(stamp.idle_seconds(now_seconds));
    let age = u64::from(u32::MAX - last_access);
    Ok(match order {
        EvictionOrder::LeastRecentlyUsed => age,
        EvictionOrder::LeastFrequentlyUsed => {
            u64::from(u8::MAX - stamp.count_now(now_seconds, keyspace.clock.decay_minutes())) << 32 | age
        }
        EvictionOrder::FirstToExpire => {
            let at_ms = entry.expiry(&keyspace.heap.arena)?.unwrap_or(i64::MAX);
            u64::MAX - at_ms.max(0) as u64
        }
        EvictionOrder::Random => 0,
    })
}

/// Deletes the best candidate that is still there and still as good as it was.
fn evict_best(keyspace: &mut Keyspace, policy: EvictionPolicy) -> Result<bool> {
    while let Some(candidate) = keyspace.searches.pool.best.pop() {
        let Candidate { db, hash, handle, rank: known_rank } = candidate;
        let known = keyspace.dbs[db].keys.tag_of(&keyspace.heap.arena, hash, handle);
        if !known.is_ok_and(|tag| tag.is_some()) {
            continue;
        }
        let Ok(entry) = Entry::read(&keyspace.heap.arena, handle) else { continue };
        let is_allowed = !policy.only_expiring || entry.has(EXPIRES);
        if is_allowed
            && rank(keyspace, &entry, policy.order).is_ok_and(|now| now >= known_rank)
            && evict_if_allowed(keyspace, db, handle)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes a key, unless a copy of it is being made, which would begin again, or it is not known what it holds.
fn evict_if_allowed(keyspace: &mut Keyspace, index: usize, item: Handle) -> Result<bool> {
    let db = DbId(index as u8);
    let entry = Entry::read(&keyspace.heap.arena, item)?;
    let key = entry.key(&keyspace.heap.arena)?;
    if entry.encoding().is_err() || keyspace.copy_source().is_some_and(|source| source == key) {
        return Ok(false);
    }
    let told = keyspace.events.heard() || keyspace.effects.notes_expired();
    let key = told.then(|| key.to_vec());
    keyspace.delete_entry(db, entry)?;
    keyspace.counters.evicted += 1;
    if let Some(key) = key {
        keyspace.effects.note_expired(db, &key);
        keyspace.events.emit(db, &key, KeyFate::Evicted);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_best_and_knows_each_once() {
        let mut pool = CandidatePool::default();
        for number in 1..=40u32 {
            let rank = u64::from(number * 7 % 41);
            pool.offer(Candidate { db: 0, hash: number, handle: Handle::from_raw(number.into()), rank });
        }
        let ranks: Vec<u64> = pool.best.iter().map(|candidate| candidate.rank).collect();
        assert_eq!(ranks, (25..=40).collect::<Vec<u64>>());
        let best = pool.best[POOL - 1];
        pool.offer(Candidate { rank: 30, ..best });
        let ranks: Vec<u64> = pool.best.iter().map(|candidate| candidate.rank).collect();
        assert_eq!((ranks.len(), ranks.iter().filter(|&&rank| rank == 30).count()), (POOL, 2));
        assert_eq!(ranks.last(), Some(&39));
    }
}
