//! Active defragmentation beside maps: whatever commands, saves and restarts come between its steps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::list::End;
use quire_store::stream::{StreamCut, StreamTrim};
use quire_store::{
    DbId, DefragSummary, EvictionOrder, EvictionPolicy, ExpiryChange, Store, StreamId, evict_key, hash, list, set,
    stream, string, zset,
};

use crate::common::defrag::{DB, NOW_MS, defrag, key_of, value_of};
use crate::common::{Image, config, image_of, open};

#[derive(Clone, Debug)]
enum Op {
    Put(u32, u32, Option<i64>),
    Remove(u32, u32, u32),
    SetExpiry(u32, Option<i64>),
    Copy(u32, u32),
    Rename(u32, u32),
    PutFields(u32, u32),
    PutItems(u32, u32),
    RemoveItems(u32, u32),
    Advance(i64),
    Evict(usize),
    Swap,
    Flush,
    Defrag(usize),
    DefragAll,
    SaveMeanwhile(u32),
    Reopen,
}

const KEYS: u32 = 1500;

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        6 => (key(), 200u32..800, prop::option::of(1i64..500)).prop_map(|(first, count, left)| Op::Put(first, count, left)),
        6 => (key(), 200u32..1500, 2u32..6).prop_map(|(first, count, of)| Op::Remove(first, count, of)),
        2 => (key(), prop::option::of(1i64..300)).prop_map(|(key, left)| Op::SetExpiry(key, left)),
        2 => (key(), key()).prop_map(|(from, to)| Op::Copy(from, to)),
        2 => (key(), key()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (0u32..300, 1u32..200).prop_map(|(first, count)| Op::PutFields(first, count)),
        3 => (0u32..3000, 1u32..1500).prop_map(|(first, count)| Op::PutItems(first, count)),
        3 => (0u32..3000, 2u32..6).prop_map(|(left, of)| Op::RemoveItems(left, of)),
        2 => (1i64..200).prop_map(Op::Advance),
        1 => (1usize..30).prop_map(Op::Evict),
        1 => Just(Op::Swap),
        1 => Just(Op::Flush),
        6 => (1usize..500).prop_map(Op::Defrag),
        3 => Just(Op::DefragAll),
        1 => key().prop_map(Op::SaveMeanwhile),
        1 => Just(Op::Reopen),
    ]
}

/// Strings with their ends.
type Strings = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

/// A store, and the strings of its first two databases.
struct Pair {
    store: Store,
    model: [Strings; 2],
    /// The members of a set, and the fields of a hash with their values, in the fourth database.
    items: BTreeMap<u32, u32>,
    salt: u32,
}

const ITEMS: DbId = DbId(3);

fn item_of(number: u32) -> Vec<u8> {
    format!("item:{number}:{}", "x".repeat(number as usize % 3 * 50)).into_bytes()
}

impl Pair {
    fn new() -> Pair {
        let mut store = Store::create(config()).unwrap();
        store.set_now_ms(NOW_MS);
        Pair { store, model: Default::default(), items: BTreeMap::new(), salt: 0 }
    }

    fn put(&mut self, number: u32, left_ms: Option<i64>) {
        let (key, value) = (key_of(number), value_of(number, self.salt));
        let at_ms = left_ms.map(|left_ms| self.store.now_ms() + left_ms);
        let expiry = at_ms.map_or(ExpiryChange::Clear, ExpiryChange::At);
        string::set(&mut self.store, DB, &key, &value, expiry).unwrap();
        self.model[0].insert(key, (value, at_ms));
    }

    fn unchanged_by(&mut self, act: impl FnOnce(&mut Store)) {
        let state = |store: &Store| {
            (
                store.digest().unwrap(),
                store.changes(),
                store.arena().stats().allocated_bytes,
                store.arena().stats().objects,
            )
        };
        let before = state(&self.store);
        act(&mut self.store);
        assert_eq!(state(&self.store), before);
    }

    fn run(&mut self, op: &Op) {
        self.salt += 1;
        let Pair { store, model, .. } = self;
        match *op {
            Op::Put(first, count, left_ms) => {
                (first..first + count).for_each(|number| self.put(number % KEYS, left_ms))
            }
            Op::Remove(first, count, of) => {
                for number in
                    (first..first + count).filter(|number| (number.wrapping_mul(2_654_435_761) >> 16) % of > 0)
                {
                    let key = key_of(number % KEYS);
                    assert_eq!(store.remove(DB, &key).unwrap(), model[0].remove(&key).is_some());
                }
            }
            Op::SetExpiry(number, left_ms) => {
                let (key, at_ms) = (key_of(number), left_ms.map(|left_ms| store.now_ms() + left_ms));
                let found = model[0].get_mut(&key).map(|item| item.1 = at_ms);
                assert_eq!(store.set_expiry(DB, &key, at_ms).unwrap(), found.is_some());
            }
            Op::Copy(from, to) => {
                let (from, to) = (key_of(from), key_of(to));
                let item = model[0].get(&from).filter(|_| from != to).cloned();
                assert_eq!(store.copy(DB, &from, DB, &to, true).unwrap(), item.is_some());
                model[0].extend(item.map(|item| (to, item)));
            }
            Op::Rename(from, to) => {
                let (from, to) = (key_of(from), key_of(to));
                let item = model[0].remove(&from);
                assert_eq!(store.rename(DB, &from, &to).unwrap(), item.is_some());
                model[0].extend(item.map(|item| (to, item)));
            }
            Op::PutFields(first, count) => self.put_fields(first, count),
            Op::PutItems(first, count) => self.put_items(first, count),
            Op::RemoveItems(left, of) => self.remove_items(left, of),
            Op::Advance(by_ms) => self.advance(by_ms),
            Op::Evict(count) => self.evict(count),
            Op::Swap => {
                store.swap(DB, DbId(1)).unwrap();
                model.swap(0, 1);
            }
            Op::Flush => {
                store.flush(DbId(1)).unwrap();
                model[1].clear();
            }
            Op::Defrag(budget) => self.unchanged_by(|store| assert!(store.defrag_step(budget).unwrap().examined > 0)),
            // What is left of the cycle that is under way, and another one.
            Op::DefragAll => {
                self.unchanged_by(|store| [(), ()].into_iter().for_each(|()| assert!(defrag(store).is_cycle_done)))
            }
            Op::SaveMeanwhile(number) => self.save_meanwhile(number),
            Op::Reopen => self.reopen(),
        }
    }

    /// Hashes in the third database, with fields that have times to live: those are in an index of their own.
    fn put_fields(&mut self, first: u32, count: u32) {
        for number in first..first + count {
            let key = format!("hash:{number}");
            let mut hash = hash::open_mut(&mut self.store, DbId(2), key.as_bytes()).unwrap();
            hash.load(b"first", &value_of(0, number), None).unwrap();
            hash.load(b"second", &value_of(1, number), Some(NOW_MS + 100 * i64::from(number))).unwrap();
        }
    }

    /// Values that are tables: items of all types of which nothing but the table knows where they are, and of one of which others do.
    fn put_items(&mut self, first: u32, count: u32) {
        for number in first..first + count {
            let (item, value) = (item_of(number), value_of(number % 3, self.salt));
            hash::set(&mut self.store, ITEMS, b"hash", &item, &value).unwrap();
            set::open_mut(&mut self.store, ITEMS, b"set").unwrap().add(&item).unwrap();
            zset::open_mut(&mut self.store, ITEMS, b"zset").unwrap().set(&item, f64::from(number)).unwrap();
            let mut list = list::open_mut(&mut self.store, ITEMS, b"list").unwrap();
            list.make_room([&value[..]]).unwrap();
            list.push(if number % 2 == 0 { End::Front } else { End::Back }, &value).unwrap();
            drop(list);
            let id = StreamId { ms: self.salt.into(), seq: (number + 1).into() };
            let mut stream = stream::open_mut(&mut self.store, ITEMS, b"stream").unwrap();
            stream.add(id, &[b"field", value.as_slice()]).unwrap();
            drop(stream);
            self.items.insert(number, self.salt);
        }
    }

    fn remove_items(&mut self, left: u32, of: u32) {
        for number in (0..6000u32).filter(|number| (number.wrapping_mul(2_654_435_761) >> 16) % of > 0) {
            let (item, was) = (item_of(number), self.items.remove(&number).is_some());
            assert_eq!(hash::del(&mut self.store, ITEMS, b"hash", &item).unwrap(), was);
            assert_eq!(set::open_mut(&mut self.store, ITEMS, b"set").unwrap().remove(&item).unwrap(), was);
            zset::open_mut(&mut self.store, ITEMS, b"zset").unwrap().remove(&item).unwrap();
        }
        let mut list = list::open_mut(&mut self.store, ITEMS, b"list").unwrap();
        let len = list.len().unwrap();
        list.keep(len / 4..(len / 4 + u64::from(left)).min(len)).unwrap();
        drop(list);
        let trim = StreamTrim { cut: StreamCut::MaxLen(left.into()), whole_blocks: false, limit: 0 };
        let mut stream = stream::open_mut(&mut self.store, ITEMS, b"stream").unwrap();
        if stream.exists() {
            stream.trim(&trim).unwrap();
        }
    }

    fn advance(&mut self, by_ms: i64) {
        let now_ms = self.store.now_ms() + by_ms;
        self.store.set_now_ms(now_ms);
        // The first step may begin in the middle.
        for _ in 0..3 {
            self.store.expire_step(100_000).unwrap();
        }
        for model in &mut self.model {
            model.retain(|_, (_, at_ms)| at_ms.is_none_or(|at_ms| at_ms > now_ms));
        }
    }

    fn evict(&mut self, count: usize) {
        self.store.set_noting_key_events(true);
        let policy = EvictionPolicy { order: EvictionOrder::LeastRecentlyUsed, only_expiring: true };
        for _ in 0..count {
            evict_key(&mut self.store, policy, 5).unwrap();
        }
        for event in self.store.take_key_events() {
            if let Some(model) = self.model.get_mut(event.db.0 as usize) {
                assert!(model.remove(&*event.key).is_some());
            }
        }
        self.store.set_noting_key_events(false);
    }

    /// An image is as it was at its cut, whatever is written and asked for before it is read.
    fn save_meanwhile(&mut self, number: u32) {
        let digest = self.store.digest().unwrap();
        let mut snapshot = self.store.arena_mut().cut().unwrap();
        (number..number + 20).for_each(|number| self.put(number % KEYS, None));
        assert_eq!(self.store.defrag_step(10_000).unwrap(), DefragSummary::default());
        let mut image = Image { page_count: snapshot.page_count(), pages: Vec::new() };
        let mut page = vec![0; quire_snapshot::PAGE_SIZE];
        for number in 0..image.page_count {
            if snapshot.take(number, &mut page) == quire_snapshot::TakeOutcome::Copied {
                image.pages.push((number, page.clone()));
            }
        }
        drop(snapshot);
        assert!(self.store.arena_mut().try_finish());
        assert_eq!(open(&image).unwrap().digest().unwrap(), digest);
    }

    fn reopen(&mut self) {
        let (digest, now_ms) = (self.store.digest().unwrap(), self.store.now_ms());
        let image = image_of(&mut self.store);
        self.store = open(&image).unwrap();
        self.store.set_now_ms(now_ms);
        assert_eq!(self.store.digest().unwrap(), digest);
    }

    fn check(&mut self) {
        for (db, model) in self.model.iter().enumerate() {
            let db = DbId(db as u8);
            assert_eq!(self.store.len(db), model.len() as u64);
            assert_eq!(self.store.expires_len(db), model.values().filter(|item| item.1.is_some()).count() as u64);
            for (key, (value, at_ms)) in model {
                assert_eq!(string::get(&mut self.store, db, key).unwrap(), Some(&value[..]));
                assert_eq!(self.store.expiry(db, key).unwrap(), Some(*at_ms));
            }
        }
        for key in [b"hash".as_slice(), b"set", b"zset", b"list", b"stream"] {
            self.store.check_value(ITEMS, key).unwrap();
        }
        assert_eq!(hash::len(&mut self.store, ITEMS, b"hash").unwrap(), self.items.len());
        for (&number, &salt) in &self.items {
            let value = value_of(number % 3, salt);
            assert_eq!(hash::get(&mut self.store, ITEMS, b"hash", &item_of(number)).unwrap(), Some(&value[..]));
        }
        for number in 0..500u32 {
            let key = format!("hash:{number}");
            if self.store.check_value(DbId(2), key.as_bytes()).unwrap() {
                let found = hash::get(&mut self.store, DbId(2), key.as_bytes(), b"first").unwrap();
                assert_eq!(found, Some(&value_of(0, number)[..]));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_store_that_is_defragmented_behaves_as_a_map(ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new();
        pair.run(&Op::Put(0, KEYS, None));
        pair.run(&Op::Put(0, KEYS / 3, Some(400)));
        for op in &ops {
            pair.run(op);
        }
        pair.check();
        pair.run(&Op::DefragAll);
        pair.check();
        // Whatever moved, every object still has its owner.
        for db in 0..4 {
            pair.store.flush(DbId(db)).unwrap();
        }
        while pair.store.reclaim_step(10_000).unwrap() > 0 {}
        prop_assert_eq!(pair.store.arena().stats().objects, Store::create(config()).unwrap().arena().stats().objects);
    }
}
