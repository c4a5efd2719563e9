//! Stores with streams, what they hold, and a simple model of a stream.

use std::collections::BTreeMap;

use quire_store::{DbId, EncodingLimits, Keyspace, Store, StoreConfig, StreamId, StreamOrder, stream};

pub const ZERO: DbId = DbId(0);

/// Fields and values, one after the other.
pub type Words = Vec<Vec<u8>>;

pub fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

/// The usual limits, but for how many entries a block may have.
pub fn limits(entries: usize) -> EncodingLimits {
    EncodingLimits::default().with(&stream::MAX_BLOCK_ENTRIES, entries)
}

/// A store with these limits.
pub fn store_of(entries: usize) -> Store {
    let config = StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        limits: limits(entries),
        ..StoreConfig::default()
    };
    Store::create(config).unwrap()
}

/// Adds an entry.
pub fn add(store: &mut Keyspace, key: &[u8], at: StreamId, words: &[&[u8]]) {
    stream::open_mut(store, ZERO, key).unwrap().add(at, words).unwrap();
}

/// The entries between two IDs.
pub fn part(store: &mut Keyspace, key: &[u8], ids: (StreamId, StreamId), order: StreamOrder) -> Vec<(StreamId, Words)> {
    let mut entries = Vec::new();
    let text = |element: quire_store::Element<'_>| element.text(&mut itoa::Buffer::new()).to_vec();
    stream::view(store, ZERO, key)
        .unwrap()
        .range(ids, order, |id, fields| {
            entries.push((id, fields.flat_map(|(field, value)| [text(field), text(value)]).collect()));
            true
        })
        .unwrap();
    entries
}

/// All entries.
pub fn all(store: &mut Keyspace, key: &[u8]) -> Vec<(StreamId, Words)> {
    part(store, key, (StreamId::MIN, StreamId::MAX), StreamOrder::Up)
}

/// A group as a model has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupModel {
    pub last_id: StreamId,
    pub read: Option<i64>,
    pub consumers: BTreeMap<Vec<u8>, i64>,
    /// Consumers, times and counts.
    pub pending: BTreeMap<StreamId, (Vec<u8>, i64, u64)>,
}

/// All groups of a stream, with everything in them.
pub fn groups(store: &mut Keyspace, key: &[u8]) -> BTreeMap<Vec<u8>, GroupModel> {
    let view = stream::view(store, ZERO, key).unwrap();
    let every = (StreamId::MIN, StreamId::MAX);
    let mut all = BTreeMap::new();
    for group in view.groups().unwrap() {
        let mut model = GroupModel { last_id: group.last_id, read: group.entries_read, ..GroupModel::default() };
        let mut pending = Vec::new();
        view.pending(&group, every, StreamOrder::Up, |entry| {
            pending.push(entry);
            true
        })
        .unwrap();
        assert_eq!(pending.len() as u64, group.pending);
        for entry in pending {
            let consumer = view.consumer_of(&group, &entry).unwrap();
            assert!(consumer.has(&entry));
            model.pending.insert(entry.id, (consumer.name.to_vec(), entry.time_ms, entry.count));
        }
        let consumers = view.consumers(&group).unwrap();
        assert_eq!(consumers.len() as u64, group.consumers);
        for consumer in consumers {
            let mut own = Vec::new();
            view.pending_of(&group, &consumer, every, |entry| {
                own.push(entry.id);
                true
            })
            .unwrap();
            let expected = model.pending.iter().filter(|(_, (name, ..))| **name == *consumer.name);
            assert_eq!(own, expected.map(|(id, _)| *id).collect::<Vec<_>>());
            assert_eq!(own.len() as u64, consumer.pending);
            model.consumers.insert(consumer.name.to_vec(), consumer.seen_ms);
        }
        all.insert(group.name.to_vec(), model);
    }
    all
}
