//! Stores with sorted sets, what they hold, and members for them.

use std::ops::Range;

use quire_store::zset;
use quire_store::{DbId, Direction, EncodingLimits, Keyspace, Store, StoreConfig};

pub const ZERO: DbId = DbId(0);

/// The usual limits, but for how many members may be packed.
pub fn limits(members: usize) -> EncodingLimits {
    EncodingLimits::default().with(&zset::MAX_PACKED_MEMBERS, members)
}

/// A store with these limits.
pub fn store_of(members: usize) -> Store {
    let config = StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        limits: limits(members),
        ..StoreConfig::default()
    };
    Store::create(config).unwrap()
}

/// Members and their scores, in order.
pub type Members = Vec<(f64, Vec<u8>)>;

/// The members of a sorted set.
pub fn all(store: &mut Keyspace, key: &[u8]) -> Members {
    part(store, key, 0..u64::MAX, Direction::Up)
}

/// Those of some ranks.
pub fn part(store: &mut Keyspace, key: &[u8], ranks: Range<u64>, direction: Direction) -> Members {
    let zset = zset::view(store, ZERO, key).unwrap();
    let mut members = Vec::new();
    zset.range(ranks, direction, |score, member| {
        members.push((score, member.to_vec()));
        true
    })
    .unwrap();
    members
}

/// Gives members scores.
pub fn set_scores(store: &mut Keyspace, key: &[u8], members: impl IntoIterator<Item = (f64, Vec<u8>)>) {
    let mut zset = zset::open_mut(store, ZERO, key).unwrap();
    members.into_iter().for_each(|(score, member)| _ = zset.set(&member, score).unwrap());
}
