//! The keys on which clients wait (BLPOP, BZPOPMIN), for a value of which type, and who waits on each, in the order in which they came.
//!
//! A client's wait begins when its request is run and finds none of its keys ready, and ends when the request has been carried out, its
//! time is up or the client is gone. The request is run again whenever one of the keys may be ready; meanwhile it keeps its place.
//! Relies on the store to tell of changes of the keys, which is asked here for exactly those on which clients wait.

use std::collections::{BTreeMap, HashMap, HashSet};

use quire_store::{DbId, Keyspace, StreamId, ValueType};

/// A key and its database.
type KeyName = (DbId, Box<[u8]>);

/// Bytes of a key's entries in the tables here and in the store besides its name, about: three buckets of hash tables with names, the list of
/// the key's clients and that of its listeners, the client's own list.
const KEY_BYTES: usize = 640;

/// How a client was unblocked by another one (CLIENT UNBLOCK).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnblockOutcome {
    /// As if its time was up.
    TimeOut,
    /// With an error.
    Error,
}

/// A client's wait.
#[derive(Debug)]
pub struct KeyWait {
    keys: Vec<KeyName>,
    /// The type of the value that the request takes something from.
    kind: ValueType,
    /// Its place among all who wait: those are served first who came first.
    pub place: u64,
    /// When its time is up, on the server's monotonic clock; `None` for never.
    pub deadline_ms: Option<u64>,
    /// Another client has ended the waiting.
    pub unblocked: Option<UnblockOutcome>,
    /// Behind which entries the client reads, if it waits for streams.
    pub stream_ids: Vec<StreamId>,
    /// The client is told when one of its keys is gone: it reads in a group's name.
    told_of_loss: bool,
}

impl KeyWait {
    /// How the waiting has ended, if it has, before there was something to take: time is up, or another client says so.
    pub fn ended(&self, now_ms: u64) -> Option<UnblockOutcome> {
        let timed_out = self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        self.unblocked.or(timed_out.then_some(UnblockOutcome::TimeOut))
    }
}

/// All waits.
#[derive(Debug, Default)]
pub struct AwaitedKeys {
    of: HashMap<u64, KeyWait>,
    /// Who waits on a key: clients by the type for which they wait and their places.
    by_key: HashMap<KeyName, BTreeMap<(ValueType, u64), u64>>,
    /// How many waits have begun.
    begun: u64,
}

impl AwaitedKeys {
    /// Client `id` waits from now on until some keys of a database have a value of a type. Returns its place among all who wait, and
    /// the memory that this takes.
    pub fn begin<'k>(
        &mut self,
        store: &mut Keyspace,
        id: u64,
        (db, kind, keys): (DbId, ValueType, impl Iterator<Item = &'k [u8]>),
        deadline_ms: Option<u64>,
    ) -> (u64, usize) {
        self.end(store, id);
        let place = self.begun;
        self.begun += 1;
        let (told_of_loss, stream_ids) = (false, Vec::new());
        let mut wait =
            KeyWait { keys: Vec::new(), kind, place, deadline_ms, unblocked: None, stream_ids, told_of_loss };
        let mut bytes = 0;
        for key in keys {
            let name: KeyName = (db, key.into());
            let clients = self.by_key.entry(name.clone()).or_default();
            if clients.is_empty() {
                store.await_key(db, key);
            }
            if clients.insert((kind, place), id).is_none() {
                // The name is here twice, and in the store once, and once more when the key is ready.
                bytes += KEY_BYTES + 4 * key.len();
                wait.keys.push(name);
            }
        }
        self.of.insert(id, wait);
        (place, bytes)
    }

    /// The wait of a client, if it is waiting.
    pub fn of(&self, id: u64) -> Option<&KeyWait> {
        self.of.get(&id)
    }

    /// Notes behind which entries of its streams a client reads on that waits, and whether in a group's name.
    pub fn remember_ids(&mut self, id: u64, stream_ids: Vec<StreamId>, in_group: bool) {
        if let Some(wait) = self.of.get_mut(&id) {
            (wait.stream_ids, wait.told_of_loss) = (stream_ids, in_group);
        }
    }

    /// Client `id` was unblocked by another one.
    pub fn unblock(&mut self, id: u64, how: UnblockOutcome) {
        if let Some(wait) = self.of.get_mut(&id) {
            wait.unblocked = Some(how);
        }
    }

    /// Client `id` doesn't wait any more; whether it did.
    pub fn end(&mut self, store: &mut Keyspace, id: u64) -> bool {
        let Some(wait) = self.of.remove(&id) else { return false };
        for name in wait.keys {
            if let Some(clients) = self.by_key.get_mut(&name) {
                clients.remove(&(wait.kind, wait.place));
                if clients.is_empty() {
                    store.forget_key(name.0, &name.1);
                    self.by_key.remove(&name);
                }
            }
        }
        true
    }

    /// Who waits until a key has a value of this type, and came next after the one at a place.
    pub fn next_on(&self, db: DbId, key: &[u8], kind: ValueType, after: Option<u64>) -> Option<(u64, u64)> {
        let clients = self.by_key.get(&(db, Box::from(key)))?;
        let from = after.map_or(0, |place| place + 1);
        clients.range((kind, from)..=(kind, u64::MAX)).next().map(|(&(_, place), &id)| (place, id))
    }

    /// Asks a store that has come in the place of another one to tell of changes of the keys.
    pub fn await_all(&self, store: &mut Keyspace) {
        self.by_key.keys().for_each(|(db, key)| store.await_key(*db, key));
    }

    /// Whether no client waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Keys on which clients wait.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Those among them of whose end a client is told.
    pub fn len_told_of_loss(&self) -> usize {
        let waits = self.of.values().filter(|wait| wait.told_of_loss);
        waits.flat_map(|wait| &wait.keys).collect::<HashSet<&KeyName>>().len()
    }
}

#[cfg(test)]
mod tests {
    use quire_store::list::{self, End};
    use quire_store::{Store, StoreConfig};

    use super::*;

    const DB: DbId = DbId(0);

    fn push(store: &mut Store, key: &[u8]) {
        list::open_mut(store, DB, key).unwrap().push(End::Back, b"x").unwrap();
    }

    fn ready(store: &mut Store) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| store.next_ready_key()).map(|(_, key)| key.into()).collect()
    }

    /// Who waits until a key has a value of a type.
    fn waiting(all: &AwaitedKeys, key: &[u8], kind: ValueType) -> Vec<u64> {
        let mut after = None;
        std::iter::from_fn(|| {
            let (place, id) = all.next_on(DB, key, kind, after)?;
            after = Some(place);
            Some(id)
        })
        .collect()
    }

    #[test]
    fn who_waits_for_another_type_is_passed_over_and_keeps_the_place() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut all = AwaitedKeys::default();
        for (id, kind) in [(1, ValueType::Zset), (2, ValueType::List), (3, ValueType::Zset), (4, ValueType::List)] {
            all.begin(&mut store, id, (DB, kind, [b"a".as_slice()].into_iter()), None);
        }
        let both = |all: &AwaitedKeys| [ValueType::List, ValueType::Zset].map(|kind| waiting(all, b"a", kind));
        assert_eq!((both(&all), all.len()), ([vec![2, 4], vec![1, 3]], 1));
        assert_eq!(waiting(&all, b"a", ValueType::Set), Vec::<u64>::new());
        all.end(&mut store, 2);
        all.end(&mut store, 4);
        assert_eq!(both(&all), [vec![], vec![1, 3]]);
        push(&mut store, b"a");
        assert_eq!(ready(&mut store), [b"a"], "the key is still awaited");
        all.end(&mut store, 1);
        all.end(&mut store, 3);
        assert_eq!((all.len(), all.is_empty()), (0, true));
    }

    #[test]
    fn keys_of_whose_end_clients_are_told_count_once_each() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut all = AwaitedKeys::default();
        let waits: [(u64, [&[u8]; 2], bool); 3] =
            [(1, [b"a", b"b"], true), (2, [b"b", b"b"], true), (3, [b"c", b"d"], false)];
        for (id, keys, in_group) in waits {
            all.begin(&mut store, id, (DB, ValueType::Stream, keys.into_iter()), None);
            all.remember_ids(id, Vec::new(), in_group);
        }
        assert_eq!((all.len(), all.len_told_of_loss()), (4, 2));
        all.end(&mut store, 1);
        assert_eq!((all.len(), all.len_told_of_loss()), (3, 1));
    }

    #[test]
    fn those_who_came_first_are_next_and_none_is_left_behind() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut all = AwaitedKeys::default();
        let order = |all: &AwaitedKeys, key: &[u8]| waiting(all, key, ValueType::List);
        let keys = |keys: &'static [&'static [u8]]| (DB, ValueType::List, keys.iter().copied());
        all.begin(&mut store, 9, keys(&[b"a", b"b", b"a"]), None);
        all.begin(&mut store, 3, keys(&[b"a"]), Some(7));
        all.begin(&mut store, 5, keys(&[b"b"]), None);
        assert_eq!((order(&all, b"a"), order(&all, b"b"), all.len()), (vec![9, 3], vec![9, 5], 2));
        let ended = |now_ms| all.of(3).and_then(|wait| wait.ended(now_ms));
        assert_eq!((ended(6), ended(7)), (None, Some(UnblockOutcome::TimeOut)));
        all.unblock(3, UnblockOutcome::Error);
        assert_eq!(
            all.of(3).map(|wait| (wait.deadline_ms, wait.unblocked)),
            Some((Some(7), Some(UnblockOutcome::Error)))
        );
        let ended = |id, now_ms| all.of(id).and_then(|wait| wait.ended(now_ms));
        assert_eq!((ended(3, 6), ended(9, u64::MAX)), (Some(UnblockOutcome::Error), None));
        assert!(all.end(&mut store, 9) && !all.end(&mut store, 9));
        assert_eq!((order(&all, b"a"), order(&all, b"b")), (vec![3], vec![5]));
        all.end(&mut store, 3);
        all.end(&mut store, 5);
        assert!(all.is_empty());
        push(&mut store, b"a");
        assert!(!store.has_ready_keys(), "the store is asked for nothing any more");
    }

    #[test]
    fn a_key_is_told_once_however_often_it_changes_until_it_was_taken() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut all = AwaitedKeys::default();
        all.begin(&mut store, 1, (DB, ValueType::List, [b"b".as_slice(), b"a"].into_iter()), None);
        for key in [b"a".as_slice(), b"b", b"a", b"other"] {
            push(&mut store, key);
        }
        assert_eq!(ready(&mut store), [b"a", b"b"]);
        store.remove(DB, b"a").unwrap();
        assert_eq!(ready(&mut store), [b"a"], "a key that goes is told, too");
        push(&mut store, b"a");
        assert_eq!(ready(&mut store), [b"a"]);
        // Keys that come with another name or from another database are told, too.
        store.rename(DB, b"other", b"b").unwrap();
        assert_eq!(ready(&mut store), [b"b"]);
        store.swap(DB, DbId(1)).unwrap();
        // A swap tells of keys that went, too; who waits on them finds none and goes on waiting.
        ready(&mut store);
        store.swap(DB, DbId(1)).unwrap();
        let mut both = ready(&mut store);
        both.sort();
        assert_eq!(both, [b"a", b"b"]);
        let mut other = Store::create(StoreConfig::default()).unwrap();
        all.await_all(&mut other);
        push(&mut other, b"a");
        assert_eq!(ready(&mut other), [b"a"]);
    }
}
