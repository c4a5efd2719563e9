//! The store against a model of ordinary maps: random commands, a clock that jumps, databases that are flushed, swapped
//! and expired.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quire_store::{DbId, EncodingLimits, ExpiryChange, Store, StoreConfig, StoreError, ValueType, hash, string};

const DATABASES: u8 = 3;
const KEYS: u16 = 40;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

#[derive(Clone, Debug)]
struct Item {
    value: Value,
    expiry: Option<i64>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    dbs: Vec<BTreeMap<Vec<u8>, Item>>,
    now_ms: i64,
}

impl Model {
    fn expire(&mut self) {
        let now_ms = self.now_ms;
        for db in &mut self.dbs {
            db.retain(|_, item| item.expiry.is_none_or(|at_ms| at_ms > now_ms));
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Get(u16),
    Set(u16, usize, Option<Option<i64>>),
    Append(u16, usize),
    SetRange(u16, u64, usize),
    SetBit(u16, u64, bool),
    Incr(u16, i64),
    Remove(u16),
    SetExpiry(u16, Option<i64>),
    Rename(u16, u16),
    Copy(u16, u8, u16, bool),
    Move(u16, u8),
    HashSet(u16, u16, usize),
    HashDel(u16, u16),
    HashIncr(u16, u16, i64),
    HashFill(u16, u16, u16),
    HashDrain(u16, u16, u16),
    Flush,
    Swap(u8),
    Advance(i64),
    ExpireStep(usize),
    Reclaim(usize),
    Check,
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..100, 2 => 100usize..3000, 1 => 15_000usize..40_000]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    let expiry = || prop::option::of(-5i64..200);
    prop_oneof![
        4 => key().prop_map(Op::Get),
        6 => (key(), len(), prop::option::of(expiry())).prop_map(|(key, len, expiry)| Op::Set(key, len, expiry)),
        4 => (key(), len()).prop_map(|(key, len)| Op::Append(key, len)),
        2 => (key(), 0u64..20_000, len()).prop_map(|(key, offset, len)| Op::SetRange(key, offset, len)),
        2 => (key(), 0u64..5000, any::<bool>()).prop_map(|(key, offset, bit)| Op::SetBit(key, offset, bit)),
        2 => (key(), -50i64..50).prop_map(|(key, by)| Op::Incr(key, by)),
        3 => key().prop_map(Op::Remove),
        4 => (key(), expiry()).prop_map(|(key, expiry)| Op::SetExpiry(key, expiry)),
        2 => (key(), key()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (key(), 0..DATABASES, key(), any::<bool>()).prop_map(|(from, db, to, replace)| Op::Copy(from, db, to, replace)),
        2 => (key(), 0..DATABASES).prop_map(|(key, db)| Op::Move(key, db)),
        6 => (key(), 0u16..60, 0usize..90).prop_map(|(key, field, len)| Op::HashSet(key, field, len)),
        4 => (key(), 0u16..60).prop_map(|(key, field)| Op::HashDel(key, field)),
        2 => (key(), 0u16..60, -50i64..50).prop_map(|(key, field, by)| Op::HashIncr(key, field, by)),
        2 => (key(), 0u16..300, 1u16..400).prop_map(|(key, first, count)| Op::HashFill(key, first, count)),
        2 => (key(), 0u16..300, 1u16..400).prop_map(|(key, first, count)| Op::HashDrain(key, first, count)),
        1 => Just(Op::Flush),
        1 => (0..DATABASES).prop_map(Op::Swap),
        2 => (0i64..100).prop_map(Op::Advance),
        2 => (1usize..100).prop_map(Op::ExpireStep),
        2 => (1usize..200).prop_map(Op::Reclaim),
        1 => Just(Op::Check),
    ]
}

/// Short keys, and one long enough to get an object of its own.
fn key_of(number: u16) -> Vec<u8> {
    let mut key = format!("key:{number}").into_bytes();
    if number == 7 {
        key.resize(9000, b'k');
    }
    key
}

fn field_of(number: u16) -> Vec<u8> {
    let mut field = format!("field:{number}").into_bytes();
    field.resize(field.len() + (number % 23) as usize, b'.');
    field
}

fn bytes_of(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ seed) as u8).collect()
}

struct Pair {
    store: Store,
    model: Model,
    db: u8,
    /// Varies what is written.
    step: usize,
}

impl Pair {
    fn new() -> Pair {
        let config = StoreConfig {
            max_memory_bytes: 256 << 20,
            budget_bytes: 1 << 20,
            limits: EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, 24),
            seed: Some(2026),
            ..StoreConfig::default()
        };
        let mut store = Store::create(config).unwrap();
        store.set_now_ms(1_000_000);
        let dbs = vec![BTreeMap::new(); DATABASES as usize];
        Pair { store, model: Model { dbs, now_ms: 1_000_000 }, db: 0, step: 0 }
    }

    fn item(&mut self, key: u16) -> Option<&mut Item> {
        self.model.dbs[self.db as usize].get_mut(&key_of(key))
    }

    fn put(&mut self, key: u16, value: Value, expiry: Option<i64>) {
        self.model.dbs[self.db as usize].insert(key_of(key), Item { value, expiry });
    }

    fn expiry_of(&mut self, key: u16) -> Option<i64> {
        self.item(key).and_then(|item| item.expiry)
    }

    /// The string under a key, empty if there is none; `None` for another type.
    fn string(&mut self, key: u16) -> Option<Vec<u8>> {
        match self.item(key).map(|item| &item.value) {
            Some(Value::String(bytes)) => Some(bytes.clone()),
            Some(Value::Hash(_)) => None,
            None => Some(Vec::new()),
        }
    }

    fn hash(&mut self, key: u16) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        match self.item(key).map(|item| &item.value) {
            Some(Value::Hash(fields)) => Some(fields.clone()),
            Some(Value::String(_)) => None,
            None => Some(BTreeMap::new()),
        }
    }

    fn put_string(&mut self, key: u16, bytes: Vec<u8>) {
        let expiry = self.expiry_of(key);
        self.put(key, Value::String(bytes), expiry);
    }

    fn put_hash(&mut self, key: u16, fields: BTreeMap<Vec<u8>, Vec<u8>>) {
        if fields.is_empty() {
            self.model.dbs[self.db as usize].remove(&key_of(key));
        } else {
            let expiry = self.expiry_of(key);
            self.put(key, Value::Hash(fields), expiry);
        }
    }

    fn run(&mut self, op: &Op) {
        self.step += 1;
        match *op {
            Op::Get(..) | Op::Set(..) | Op::Append(..) | Op::SetRange(..) => self.run_string(op),
            Op::SetBit(..) | Op::Incr(..) => self.run_part(op),
            Op::HashSet(..) | Op::HashDel(..) | Op::HashIncr(..) | Op::HashFill(..) | Op::HashDrain(..) => {
                self.run_hash(op);
            }
            _ => self.run_generic(op),
        }
    }

    fn run_string(&mut self, op: &Op) {
        let (db, step, now_ms) = (DbId(self.db), self.step, self.model.now_ms);
        match *op {
            Op::Get(key) => {
                let expected = self.string(key);
                let exists = self.item(key).is_some();
                match (string::get(&mut self.store, db, &key_of(key)), expected) {
                    (Err(StoreError::WrongType), None) => {}
                    (Ok(got), Some(bytes)) => assert_eq!(got, exists.then_some(&bytes[..])),
                    other => panic!("{other:?}"),
                }
            }
            Op::Set(key, len, expiry) => {
                let bytes = bytes_of(step, len);
                let (wanted, after) = match expiry {
                    None => (ExpiryChange::Keep, self.expiry_of(key)),
                    Some(None) => (ExpiryChange::Clear, None),
                    Some(Some(in_ms)) => (ExpiryChange::At(now_ms + in_ms), Some(now_ms + in_ms)),
                };
                string::set(&mut self.store, db, &key_of(key), &bytes, wanted).unwrap();
                self.put(key, Value::String(bytes), after);
                self.model.expire();
            }
            Op::Append(key, len) => {
                let added = bytes_of(step, len);
                let result = string::append(&mut self.store, db, &key_of(key), &added);
                let Some(mut bytes) = self.string(key) else { return wrong_type(result) };
                bytes.extend_from_slice(&added);
                assert_eq!(result.unwrap(), bytes.len());
                self.put_string(key, bytes);
            }
            Op::SetRange(key, offset, len) => {
                let added = bytes_of(step, len);
                let result = string::set_range(&mut self.store, db, &key_of(key), offset, &added);
                let Some(mut bytes) = self.string(key) else { return wrong_type(result) };
                let end = offset as usize + added.len();
                if !added.is_empty() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset as usize..end].copy_from_slice(&added);
                }
                assert_eq!(result.unwrap(), bytes.len());
                if !bytes.is_empty() {
                    self.put_string(key, bytes);
                }
            }
            _ => unreachable!(),
        }
    }

    /// A bit of a string, or a number that it is.
    fn run_part(&mut self, op: &Op) {
        let db = DbId(self.db);
        match *op {
            Op::SetBit(key, offset, bit) => {
                let result = string::set_bit(&mut self.store, db, &key_of(key), offset, bit);
                let Some(mut bytes) = self.string(key) else { return wrong_type(result) };
                let (byte, mask) = (offset as usize / 8, 0x80 >> (offset % 8));
                bytes.resize(bytes.len().max(byte + 1), 0);
                assert_eq!(result.unwrap(), bytes[byte] & mask != 0);
                bytes[byte] = if bit { bytes[byte] | mask } else { bytes[byte] & !mask };
                self.put_string(key, bytes);
            }
            Op::Incr(key, by) => {
                let exists = self.item(key).is_some();
                let result = string::incr_by(&mut self.store, db, &key_of(key), by);
                let Some(bytes) = self.string(key) else { return wrong_type(result) };
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let old = if exists { text.parse().ok().filter(|old: &i64| old.to_string() == text) } else { Some(0) };
                match (result, old) {
                    (Ok(sum), Some(old)) => {
                        assert_eq!(sum, old + by);
                        self.put_string(key, sum.to_string().into_bytes());
                    }
                    (Err(StoreError::NotInteger), None) => {}
                    other => panic!("{other:?}"),
                }
            }
            _ => unreachable!(),
        }
    }

    fn run_hash(&mut self, op: &Op) {
        let (db, step) = (DbId(self.db), self.step);
        match *op {
            Op::HashSet(key, field, len) => {
                let value = bytes_of(step, len);
                let result = hash::set(&mut self.store, db, &key_of(key), &field_of(field), &value);
                let Some(mut fields) = self.hash(key) else { return wrong_type(result) };
                assert_eq!(result.unwrap(), fields.insert(field_of(field), value).is_none());
                self.put_hash(key, fields);
            }
            Op::HashDel(key, field) => {
                let result = hash::del(&mut self.store, db, &key_of(key), &field_of(field));
                let Some(mut fields) = self.hash(key) else { return wrong_type(result) };
                assert_eq!(result.unwrap(), fields.remove(&field_of(field)).is_some());
                self.put_hash(key, fields);
            }
            Op::HashIncr(key, field, by) => {
                let result = hash::open_mut(&mut self.store, db, &key_of(key))
                    .and_then(|mut hash| hash.incr_by(&field_of(field), by));
                let Some(mut fields) = self.hash(key) else { return wrong_type(result) };
                let text = fields.get(&field_of(field)).map_or("0".into(), |value| String::from_utf8_lossy(value));
                let old = text.parse().ok().filter(|old: &i64| old.to_string() == *text);
                match (result, old) {
                    (Ok(sum), Some(old)) => {
                        assert_eq!(sum, old + by);
                        fields.insert(field_of(field), sum.to_string().into_bytes());
                        self.put_hash(key, fields);
                    }
                    (Err(StoreError::HashValueNotInteger), None) => {}
                    other => panic!("{other:?}"),
                }
            }
            Op::HashFill(key, first, count) => {
                let Some(mut fields) = self.hash(key) else { return };
                for field in (first..first + count).map(field_of) {
                    let value = bytes_of(step, field.len() % 40);
                    hash::set(&mut self.store, db, &key_of(key), &field, &value).unwrap();
                    fields.insert(field, value);
                }
                self.put_hash(key, fields);
            }
            Op::HashDrain(key, first, count) => {
                let Some(mut fields) = self.hash(key) else { return };
                for field in (first..first + count).map(field_of) {
                    let removed = hash::del(&mut self.store, db, &key_of(key), &field).unwrap();
                    assert_eq!(removed, fields.remove(&field).is_some());
                }
                self.put_hash(key, fields);
            }
            _ => unreachable!(),
        }
    }

    fn run_generic(&mut self, op: &Op) {
        let (db, now_ms) = (DbId(self.db), self.model.now_ms);
        let map = self.db as usize;
        match *op {
            Op::Remove(key) => {
                let removed = self.model.dbs[map].remove(&key_of(key)).is_some();
                assert_eq!(self.store.remove(db, &key_of(key)).unwrap(), removed);
            }
            Op::SetExpiry(key, in_ms) => {
                let at_ms = in_ms.map(|in_ms| now_ms + in_ms);
                let found = self.item(key).map(|item| item.expiry = at_ms).is_some();
                assert_eq!(self.store.set_expiry(db, &key_of(key), at_ms).unwrap(), found);
                self.model.expire();
            }
            Op::Rename(from, to) => {
                let item = self.model.dbs[map].remove(&key_of(from));
                assert_eq!(self.store.rename(db, &key_of(from), &key_of(to)).unwrap(), item.is_some());
                if let Some(item) = item {
                    self.model.dbs[map].insert(key_of(to), item);
                }
            }
            Op::Copy(from, to_db, to, replace) => {
                let item = self.item(from).cloned();
                let target = &mut self.model.dbs[to_db as usize];
                let same = to_db == db.0 && from == to;
                let expected = item.is_some() && !same && (replace || !target.contains_key(&key_of(to)));
                if expected {
                    target.insert(key_of(to), item.unwrap());
                }
                let copied = self.store.copy(db, &key_of(from), DbId(to_db), &key_of(to), replace).unwrap();
                assert_eq!(copied, expected);
            }
            Op::Move(key, to_db) => {
                let exists = self.item(key).is_some();
                let expected = exists && to_db != db.0 && !self.model.dbs[to_db as usize].contains_key(&key_of(key));
                if expected {
                    let item = self.model.dbs[map].remove(&key_of(key)).unwrap();
                    self.model.dbs[to_db as usize].insert(key_of(key), item);
                }
                assert_eq!(self.store.move_key(db, &key_of(key), DbId(to_db)).unwrap(), expected);
            }
            Op::Flush => {
                self.store.flush(db).unwrap();
                self.model.dbs[map].clear();
            }
            Op::Swap(other) => {
                self.store.swap(db, DbId(other)).unwrap();
                self.model.dbs.swap(map, other as usize);
                self.db = other;
            }
            Op::Advance(by_ms) => {
                self.model.now_ms += by_ms;
                self.store.set_now_ms(self.model.now_ms);
                self.model.expire();
            }
            Op::ExpireStep(budget) => drop(self.store.expire_step(budget).unwrap()),
            Op::Reclaim(budget) => drop(self.store.reclaim_step(budget).unwrap()),
            _ => self.check(),
        }
    }

    /// Everything that the store holds and says is what the model holds.
    fn check(&mut self) {
        for db in 0..DATABASES {
            let model = self.model.dbs[db as usize].clone();
            let mut walked = BTreeSet::new();
            self.store.for_each_key(DbId(db), &mut |key, _| assert!(walked.insert(key.to_vec()))).unwrap();
            assert!(walked.iter().eq(model.keys()));
            let mut scanned = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = self.store.scan(DbId(db), cursor, 3, &mut |key, _| _ = scanned.insert(key.to_vec())).unwrap();
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(walked, scanned);
            let random = self.store.random_key(DbId(db)).unwrap();
            assert_eq!(random.is_some(), !model.is_empty());
            assert!(random.is_none_or(|key| model.contains_key(&key)));
            for (key, item) in &model {
                self.check_item(DbId(db), key, item);
            }
        }
    }

    fn check_item(&mut self, db: DbId, key: &[u8], item: &Item) {
        let store = &mut self.store;
        assert_eq!(store.expiry(db, key).unwrap(), Some(item.expiry));
        assert!(store.memory_usage(db, key).unwrap().unwrap() > key.len() as u64);
        match &item.value {
            Value::String(bytes) => {
                assert_eq!(store.kind(db, key).unwrap(), Some(ValueType::String));
                assert_eq!(string::peek(store, db, key).unwrap(), Some(&bytes[..]));
                assert_eq!(string::strlen(store, db, key).unwrap(), bytes.len());
            }
            Value::Hash(fields) => {
                assert_eq!(store.kind(db, key).unwrap(), Some(ValueType::Hash));
                assert_eq!(hash::len(store, db, key).unwrap(), fields.len());
                let mut all = BTreeMap::new();
                let mut note = |field: &[u8], value: &[u8]| drop(all.insert(field.to_vec(), value.to_vec()));
                hash::for_each(store, db, key, &mut note).unwrap();
                assert_eq!(&all, fields);
                for (field, value) in fields {
                    assert_eq!(hash::get(store, db, key, field).unwrap(), Some(&value[..]));
                }
                let mut random = BTreeSet::new();
                let mut note = |field: &[u8], _: &[u8]| assert!(random.insert(field.to_vec()));
                hash::random_fields(store, db, key, 5, true, &mut note).unwrap();
                assert_eq!(random.len(), fields.len().min(5));
                assert!(random.iter().all(|field| fields.contains_key(field)));
            }
        }
    }
}

fn wrong_type<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::WrongType)), "{result:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn the_store_behaves_as_maps_do(ops in prop::collection::vec(op(), 1..250)) {
        let mut pair = Pair::new();
        let empty_objects = pair.store.arena().stats().objects;
        for op in &ops {
            pair.run(op);
        }
        pair.check();
        // What was deleted is free again in the end, to the last object.
        pair.store.flush_all().unwrap();
        while pair.store.reclaim_step(100).unwrap() > 0 {}
        prop_assert_eq!(pair.store.arena().stats().objects, empty_objects);
    }
}
