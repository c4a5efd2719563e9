//! Times to live of hashes' fields, against a model of ordinary maps: a field whose time has come is found by no operation, whatever the
//! hash's layout, and the search takes out those only, as many as it may.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::{CopyProgress, DbId, EncodingLimits, KeyFate, Store, StoreError, hash};

use crate::common::copy_steps::{
    self, BUDGET, Event, OWNER, assert_image_without_copy, assert_one_value, free_all, make_whole,
};
use crate::common::{self, image_of, open};

const DB: DbId = DbId(0);
const OTHER: DbId = DbId(1);
const KEYS: u8 = 4;
const FIELDS: u8 = 20;
/// Fields up to which a hash is packed here.
const PACKED: usize = 8;

type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

#[derive(Clone, Debug)]
enum Op {
    Set(u8, u8, usize),
    SetNew(u8, u8),
    Incr(u8, u8, i64),
    Del(u8, u8),
    Expire(u8, u8, i64),
    Persist(u8, u8),
    Load(u8, u8, Option<i64>),
    Fill(u8, i64),
    Advance(i64),
    Step(usize),
    Remove(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    Move(u8),
    Swap,
    Flush,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let (key, field) = (|| 0..KEYS, || 0..FIELDS);
    prop_oneof![
        6 => (key(), field(), 0usize..80).prop_map(|(key, field, len)| Op::Set(key, field, len)),
        1 => (key(), field()).prop_map(|(key, field)| Op::SetNew(key, field)),
        2 => (key(), field(), -9i64..9).prop_map(|(key, field, by)| Op::Incr(key, field, by)),
        3 => (key(), field()).prop_map(|(key, field)| Op::Del(key, field)),
        9 => (key(), field(), 1i64..60).prop_map(|(key, field, in_ms)| Op::Expire(key, field, in_ms)),
        3 => (key(), field()).prop_map(|(key, field)| Op::Persist(key, field)),
        2 => (key(), field(), prop::option::of(-20i64..60)).prop_map(|(key, field, in_ms)| Op::Load(key, field, in_ms)),
        1 => (key(), 1i64..60).prop_map(|(key, in_ms)| Op::Fill(key, in_ms)),
        4 => (0i64..25).prop_map(Op::Advance),
        4 => (0usize..40).prop_map(Op::Step),
        1 => key().prop_map(Op::Remove),
        1 => (key(), key()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (key(), key()).prop_map(|(from, to)| Op::Copy(from, to)),
        1 => key().prop_map(Op::Move),
        1 => Just(Op::Swap),
        1 => Just(Op::Flush),
        1 => Just(Op::Reopen),
    ]
}

fn key_of(key: u8) -> Vec<u8> {
    format!("hash:{key}").into_bytes()
}

fn field_of(field: u8) -> Vec<u8> {
    // Some are too long to be packed.
    format!("field:{field}:{}", "x".repeat(if field == 19 { 70 } else { usize::from(field) })).into_bytes()
}

fn small() -> Store {
    let mut store = Store::create(common::config()).unwrap();
    prepare(&mut store, 1000);
    store
}

fn prepare(store: &mut Store, now_ms: i64) {
    store.set_limits(EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, PACKED));
    store.set_noting_expired(true);
    store.set_now_ms(now_ms);
}

struct Pair {
    store: Store,
    dbs: [BTreeMap<Vec<u8>, Fields>; 2],
    now_ms: i64,
}

impl Pair {
    fn new() -> Pair {
        Pair { store: small(), dbs: Default::default(), now_ms: 1000 }
    }

    fn live(&self, key: &[u8], field: &[u8]) -> Option<&(Vec<u8>, Option<i64>)> {
        let (_, stored) = self.dbs[0].get_key_value(key)?;
        stored.get(field).filter(|(_, at_ms)| at_ms.is_none_or(|at_ms| at_ms > self.now_ms))
    }

    fn put(&mut self, key: &[u8], field: &[u8], value: Vec<u8>, at_ms: Option<i64>) {
        self.dbs[0].entry(key.to_vec()).or_default().insert(field.to_vec(), (value, at_ms));
    }

    fn take(&mut self, db: usize, key: &[u8], field: &[u8]) -> Option<(Vec<u8>, Option<i64>)> {
        let stored = self.dbs[db].get_mut(key)?;
        let taken = stored.remove(field);
        if stored.is_empty() {
            self.dbs[db].remove(key);
        }
        taken
    }

    fn change(&mut self, op: &Op) {
        let now_ms = self.now_ms;
        match *op {
            Op::Set(key, field, len) => {
                let (key, field, value) = (key_of(key), field_of(field), vec![b'v'; len]);
                let is_new = self.live(&key, &field).is_none();
                assert_eq!(hash::set(&mut self.store, DB, &key, &field, &value).unwrap(), is_new);
                self.put(&key, &field, value, None);
            }
            Op::SetNew(key, field) => {
                let (key, field) = (key_of(key), field_of(field));
                let is_new = self.live(&key, &field).is_none();
                let mut hash = hash::open_mut(&mut self.store, DB, &key).unwrap();
                assert_eq!(hash.set_new(&field, b"new").unwrap(), is_new);
                drop(hash);
                if is_new {
                    self.put(&key, &field, b"new".to_vec(), None);
                }
            }
            Op::Incr(key, field, by) => {
                let (key, field) = (key_of(key), field_of(field));
                let known = self.live(&key, &field).cloned();
                let number =
                    known.as_ref().map_or(Some(0), |(text, _)| std::str::from_utf8(text).unwrap().parse::<i64>().ok());
                let mut hash = hash::open_mut(&mut self.store, DB, &key).unwrap();
                let sum = hash.incr_by(&field, by);
                drop(hash);
                match number {
                    Some(number) => {
                        assert_eq!(sum.unwrap(), number + by);
                        let at_ms = known.and_then(|(_, at_ms)| at_ms);
                        self.put(&key, &field, (number + by).to_string().into_bytes(), at_ms);
                    }
                    None => assert!(matches!(sum, Err(StoreError::HashValueNotInteger))),
                }
            }
            Op::Del(key, field) => {
                let (key, field) = (key_of(key), field_of(field));
                let was_there = self.live(&key, &field).is_some();
                assert_eq!(hash::del(&mut self.store, DB, &key, &field).unwrap(), was_there);
                self.take(0, &key, &field);
            }
            Op::Expire(key, field, in_ms) => self.expire(&key_of(key), &field_of(field), Some(now_ms + in_ms)),
            Op::Persist(key, field) => self.expire(&key_of(key), &field_of(field), None),
            Op::Load(..) | Op::Fill(..) => self.fill(op),
            _ => self.change_keys(op),
        }
    }

    fn fill(&mut self, op: &Op) {
        let now_ms = self.now_ms;
        match *op {
            Op::Load(key, field, in_ms) => {
                let (key, field) = (key_of(key), field_of(field));
                let is_new = self.dbs[0].get(&key).is_none_or(|stored| !stored.contains_key(&field));
                let at_ms = in_ms.map(|in_ms| now_ms + in_ms);
                let mut hash = hash::open_mut(&mut self.store, DB, &key).unwrap();
                assert_eq!(hash.load(&field, b"loaded", at_ms).unwrap(), is_new);
                drop(hash);
                self.put(&key, &field, b"loaded".to_vec(), at_ms.filter(|_| is_new));
            }
            Op::Fill(key, in_ms) => {
                for field in 0..FIELDS {
                    self.change(&Op::Set(key, field, 9));
                    if field % 2 == 0 {
                        self.change(&Op::Expire(key, field, in_ms + i64::from(field)));
                    }
                }
            }
            _ => panic!("{op:?} fills nothing"),
        }
    }

    fn expire(&mut self, key: &[u8], field: &[u8], at_ms: Option<i64>) {
        let known = self.live(key, field).cloned();
        let mut hash = hash::open_mut(&mut self.store, DB, key).unwrap();
        assert_eq!(hash.expiry(field).unwrap(), known.as_ref().map(|(_, at_ms)| *at_ms));
        assert_eq!(hash.set_expiry(field, at_ms).unwrap(), known.is_some());
        drop(hash);
        if let Some((value, _)) = known {
            self.put(key, field, value, at_ms);
        }
    }

    fn change_keys(&mut self, op: &Op) {
        match *op {
            Op::Advance(by_ms) => {
                self.now_ms += by_ms;
                self.store.set_now_ms(self.now_ms);
            }
            Op::Step(budget) => {
                let expired = self.store.expire_step(budget).unwrap().expired;
                self.note_expired(budget, expired);
            }
            Op::Remove(key) => {
                let was_there = self.dbs[0].remove(&key_of(key)).is_some();
                assert_eq!(self.store.remove(DB, &key_of(key)).unwrap(), was_there);
            }
            Op::Rename(from, to) => {
                let fields = self.dbs[0].remove(&key_of(from));
                assert_eq!(self.store.rename(DB, &key_of(from), &key_of(to)).unwrap(), fields.is_some());
                fields.into_iter().for_each(|fields| _ = self.dbs[0].insert(key_of(to), fields));
            }
            Op::Copy(from, to) => {
                let fields = self.dbs[0].get(&key_of(from)).cloned().filter(|_| from != to);
                assert_eq!(self.store.copy(DB, &key_of(from), DB, &key_of(to), true).unwrap(), fields.is_some());
                fields.into_iter().for_each(|fields| _ = self.dbs[0].insert(key_of(to), fields));
            }
            Op::Move(key) => {
                let moves = !self.dbs[1].contains_key(&key_of(key));
                let fields = if moves { self.dbs[0].remove(&key_of(key)) } else { None };
                assert_eq!(self.store.move_key(DB, &key_of(key), OTHER).unwrap(), fields.is_some());
                fields.into_iter().for_each(|fields| _ = self.dbs[1].insert(key_of(key), fields));
            }
            Op::Swap => {
                self.store.swap(DB, OTHER).unwrap();
                self.dbs.swap(0, 1);
            }
            Op::Flush => {
                self.store.flush(DB).unwrap();
                self.dbs[0].clear();
            }
            _ => {
                let image = image_of(&mut self.store);
                self.store = open(&image).unwrap();
                prepare(&mut self.store, self.now_ms);
            }
        }
    }

    /// What the search took out had expired, and was as much as it says.
    fn note_expired(&mut self, budget: usize, expired: usize) {
        // Each hash of a bucket gets its turn.
        assert!(expired <= budget / 2 + 8, "{expired} of {budget}");
        let mut noted = 0;
        for gone in self.store.take_expired() {
            assert!(!gone.fields.is_empty());
            noted += gone.fields.len();
            for field in gone.fields {
                let (_, at_ms) = self.take(gone.db.0 as usize, &gone.key, &field).expect("a field that was there");
                assert!(at_ms.is_some_and(|at_ms| at_ms <= self.now_ms));
            }
        }
        assert_eq!(noted, expired);
    }

    /// Everything that the store says is what the model holds; the digests, too, if they are to be computed.
    fn check(&mut self, with_digests: bool) {
        for db in [DB, OTHER] {
            let model = self.dbs[db.0 as usize].clone();
            assert_eq!(self.store.len(db), model.len() as u64);
            for (key, stored) in &model {
                self.check_hash(db, key, stored);
                if with_digests {
                    self.check_digest(db, key, stored);
                }
            }
        }
        let expires = |fields: &Fields| fields.values().any(|(_, at_ms)| at_ms.is_some());
        let any = self.dbs.iter().flat_map(BTreeMap::values).any(expires);
        assert_eq!(self.store.has_expiring_subkeys(), any);
    }

    fn check_hash(&mut self, db: DbId, key: &[u8], stored: &Fields) {
        let (store, now_ms) = (&mut self.store, self.now_ms);
        assert!(store.check_value(db, key).unwrap());
        let is_live = |at_ms: Option<i64>| at_ms.is_none_or(|at_ms| at_ms > now_ms);
        let live: Fields =
            stored.iter().filter(|(_, (_, at_ms))| is_live(*at_ms)).map(|(f, v)| (f.clone(), v.clone())).collect();
        let hash = hash::view(store, db, key).unwrap();
        assert_eq!(hash.field_count().unwrap(), live.len());
        let mut walked = Fields::new();
        hash.for_each_with_expiry(&mut |field, value, at_ms| {
            assert!(walked.insert(field.to_vec(), (value.to_vec(), at_ms)).is_none());
        })
        .unwrap();
        assert_eq!(walked, live);
        let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor =
                hash.scan(cursor, 3, &mut |field, value| _ = scanned.insert(field.to_vec(), value.to_vec())).unwrap();
            if cursor == 0 {
                break;
            }
        }
        assert!(scanned.iter().eq(live.iter().map(|(field, (value, _))| (field, value))));
        for (field, (value, at_ms)) in stored {
            let expected = is_live(*at_ms).then_some((value.as_slice(), *at_ms));
            assert_eq!(hash.get(field).unwrap(), expected.map(|(value, _)| value));
            assert_eq!(hash.expiry(field).unwrap(), expected.map(|(_, at_ms)| at_ms));
        }
        let first_ms = stored.values().filter_map(|(_, at_ms)| *at_ms).min();
        assert_eq!(hash.first_expiry().unwrap(), first_ms);
        let packed = store.encoding(db, key).unwrap().unwrap();
        assert!(packed == "hashtable" || (packed == "listpackex") == first_ms.is_some(), "{packed}");
        self.check_random(db, key, &live);
    }

    fn check_random(&mut self, db: DbId, key: &[u8], live: &Fields) {
        for (wanted, distinct) in [(1, true), (3, true), (100, true), (5, false)] {
            let mut drawn = Vec::new();
            hash::random_fields(&mut self.store, db, key, wanted, distinct, &mut |field, _| drawn.push(field.to_vec()))
                .unwrap();
            assert!(drawn.iter().all(|field| live.contains_key(field)));
            let expected = if distinct { wanted.min(live.len()) } else { wanted };
            assert_eq!(drawn.len(), if live.is_empty() { 0 } else { expected });
            drawn.sort();
            drawn.dedup();
            assert!(!distinct || drawn.len() == expected);
        }
    }

    /// The digest is that of the same fields in another layout.
    fn check_digest(&mut self, db: DbId, key: &[u8], stored: &Fields) {
        let mut other = Store::create(common::config()).unwrap();
        other.set_limits(EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, 0));
        let mut hash = hash::open_mut(&mut other, DB, key).unwrap();
        for (field, (value, at_ms)) in stored {
            assert!(hash.load(field, value, *at_ms).unwrap());
        }
        drop(hash);
        assert_eq!(self.store.digest_value(db, key).unwrap(), other.digest_value(DB, key).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hashes_behave_as_maps_of_fields_that_expire(ops in prop::collection::vec(op(), 1..120)) {
        let mut pair = Pair::new();
        for (number, op) in ops.iter().enumerate() {
            pair.change(op);
            if number % 8 == 7 {
                pair.check(false);
            }
        }
        pair.check(true);
        pair.store.flush_all().unwrap();
        free_all(&mut pair.store);
        prop_assert_eq!(pair.store.arena().stats().objects, copy_steps::objects_of_an_empty_store());
    }

    #[test]
    fn any_byte_of_an_image_may_be_another_one(seed in any::<u64>(), is_packed in any::<bool>()) {
        let mut image = image_of(&mut filled(if is_packed { PACKED as u32 } else { 300 }));
        let mut rng = quire_rng::SplitMix64::new(seed);
        for _ in 0..4 {
            let page = rng.index(image.pages.len());
            let bytes = &mut image.pages[page].1;
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.index(8);
        }
        if let Ok(mut store) = open(&image) {
            use_all(&mut store);
        }
    }
}

/// A hash of which every second field expires, at instants from 2000 on.
fn filled(fields: u32) -> Store {
    let mut store = small();
    let mut hash = hash::open_mut(&mut store, DB, b"source").unwrap();
    for number in 0..fields {
        let field = format!("field:{number}");
        hash.set(field.as_bytes(), b"value").unwrap();
        if number % 2 == 0 {
            assert!(hash.set_expiry(field.as_bytes(), Some(2000 + i64::from(number % 97))).unwrap());
        }
    }
    drop(hash);
    store
}

/// Everything that such a hash can be asked for, whatever comes of it.
fn use_all(store: &mut Store) {
    prepare(store, 2040);
    let _ = store.check_value(DB, b"source");
    let _ = hash::len(store, DB, b"source");
    let _ = hash::for_each(store, DB, b"source", &mut |_, _| {});
    let _ = hash::scan(store, DB, b"source", 0, 1000, &mut |_, _| {});
    let _ = hash::random_fields(store, DB, b"source", 5, false, &mut |_, _| {});
    let _ = hash::random_fields(store, DB, b"source", 5, true, &mut |_, _| {});
    for number in 0..20 {
        let field = format!("field:{number}");
        let Ok(mut hash) = hash::open_mut(store, DB, b"source") else { continue };
        let _ = (hash.get(field.as_bytes()), hash.expiry(field.as_bytes()));
        let _ = match number % 4 {
            0 => hash.set_expiry(field.as_bytes(), Some(9000)),
            1 => hash.set(field.as_bytes(), b"another value"),
            2 => hash.set_expiry(field.as_bytes(), None),
            _ => hash.remove(field.as_bytes()),
        };
    }
    for _ in 0..20 {
        let _ = store.expire_step(100);
    }
    let _ = store.copy(DB, b"source", DB, b"target", true);
    let _ = store.rename(DB, b"source", b"renamed");
    let _ = store.digest();
    let _ = store.flush_all();
    for _ in 0..100 {
        let _ = store.reclaim_step(1000);
    }
}

#[test]
fn the_first_time_to_live_in_a_table_touches_no_other_field() {
    let mut store = filled(0);
    for number in 0..5000 {
        hash::set(&mut store, DB, b"h", format!("field:{number}").as_bytes(), b"value").unwrap();
    }
    let before = store.memory_usage(DB, b"h").unwrap().unwrap();
    let objects = store.arena().stats().objects;
    let mut hash = hash::open_mut(&mut store, DB, b"h").unwrap();
    assert!(hash.set_expiry(b"field:7", Some(5000)).unwrap());
    drop(hash);
    // A leaf of the tree, the objects of the index, and where a table grows by a bucket.
    assert!(store.arena().stats().objects <= objects + 8);
    let mut hash = hash::open_mut(&mut store, DB, b"h").unwrap();
    assert!(hash.set_expiry(b"field:7", None).unwrap());
    drop(hash);
    // But for some buckets by which the table may have grown.
    assert!(store.memory_usage(DB, b"h").unwrap().unwrap() <= before + 64 * 64);
    assert!(!store.has_expiring_subkeys());
}

#[test]
fn a_step_takes_out_no_more_fields_than_its_budget_and_says_that_more_are_left() {
    let mut store = filled(4000);
    store.set_now_ms(5000);
    let mut steps = 0;
    loop {
        let summary = store.expire_step(200).unwrap();
        assert!(summary.expired <= 100, "{summary:?}");
        if summary.expired == 0 {
            break;
        }
        steps += 1;
        assert!(summary.more || summary.expired < 10, "{summary:?}");
    }
    assert!((20..30).contains(&steps), "{steps}");
    assert_eq!(hash::len(&mut store, DB, b"source").unwrap(), 2000);
    assert_eq!(store.stats().expired_subkeys, 2000);
    assert!(!store.has_expiring_subkeys());
}

#[test]
fn fields_are_held_as_expired_keys_are() {
    let mut store = filled(10);
    store.set_now_ms(5000);
    store.set_holding_expired(true);
    assert_eq!(store.expire_step(1000).unwrap().expired, 0);
    assert_eq!(hash::len(&mut store, DB, b"source").unwrap(), 5);
    store.set_holding_expired(false);
    assert_eq!(store.expire_step(1000).unwrap().expired, 5);
}

#[test]
fn what_the_search_takes_out_is_told_and_the_last_field_takes_its_key_with_it() {
    let mut store = small();
    for (key, lasts) in [(b"goes", false), (b"last", true)] {
        let mut hash = hash::open_mut(&mut store, DB, key).unwrap();
        hash.set(b"field", b"value").unwrap();
        hash.set_expiry(b"field", Some(2000)).unwrap();
        if lasts {
            hash.set(b"other", b"value").unwrap();
        }
    }
    store.watch(7, DB, b"goes");
    store.watch(8, DB, b"last");
    store.set_noting_key_events(true);
    store.set_now_ms(2000);
    // What is not there any more may still be there as a key.
    assert_eq!((hash::len(&mut store, DB, b"goes").unwrap(), store.len(DB)), (0, 2));
    while store.expire_step(100).unwrap().expired > 0 {}
    let mut events = store.take_key_events();
    events.sort_by_key(|event| event.key.clone());
    let fates: Vec<_> = events.iter().map(|event| (&*event.key, event.fate)).collect();
    assert_eq!(fates, [(&b"goes"[..], KeyFate::LastFieldsExpired), (&b"last"[..], KeyFate::FieldsExpired)]);
    assert_eq!((store.take_touched(), store.len(DB)), (vec![7, 8], 1));
    let mut noted = store.take_expired();
    noted.sort_by_key(|gone| gone.key.clone());
    let fields = [Box::from(&b"field"[..])];
    assert!(noted.iter().map(|gone| &*gone.key).eq([&b"goes"[..], b"last"]));
    assert!(noted.iter().all(|gone| gone.fields == fields));
}

#[test]
fn a_copy_of_a_hash_whose_fields_expire_is_whole_or_none() {
    let gone: [Event; 1] = [|store| assert!(store.remove(DB, b"source").unwrap())];
    let changed: [Event; 3] = [
        |store| assert!(hash::set(store, DB, b"source", b"another", b"value").unwrap()),
        |store| assert!(hash::open_mut(store, DB, b"source").unwrap().set_expiry(b"field:1", Some(9000)).unwrap()),
        |store| assert!(hash::open_mut(store, DB, b"source").unwrap().set_expiry(b"field:2", None).unwrap()),
    ];
    assert_one_value(|| filled(3000), &gone, &changed);
    for steps in [1, 30, 45, 60] {
        assert_image_without_copy(|| filled(3000), steps);
    }
}

#[test]
fn the_search_leaves_a_hash_that_is_being_copied_alone() {
    let mut store = filled(3000);
    let ask = |store: &mut Store| store.copy_in_steps(OWNER, DB, b"source", DB, b"target", false).unwrap();
    assert_eq!(ask(&mut store), CopyProgress::UnderWay);
    store.copy_step(BUDGET).unwrap();
    store.set_now_ms(5000);
    assert_eq!(store.expire_step(1000).unwrap().expired, 0);
    make_whole(&mut store);
    assert_eq!(ask(&mut store), CopyProgress::Done(true));
    assert!(store.check_value(DB, b"target").unwrap());
    while store.expire_step(1000).unwrap().expired > 0 {}
    for key in [&b"source"[..], b"target"] {
        assert_eq!(hash::len(&mut store, DB, key).unwrap(), 1500);
        assert!(store.check_value(DB, key).unwrap());
    }
}

#[test]
fn lack_of_memory_changes_nothing() {
    let mut store = filled(300);
    let mut number = 0;
    for bytes in [2000, 200, 20, 1] {
        while hash::set(&mut store, DB, b"fills", format!("{number}").as_bytes(), &vec![7; bytes]).is_ok() {
            number += 1;
        }
    }
    let mut failed = 0;
    for number in 0..300 {
        let field = format!("field:{number}");
        let before = store.digest_value(DB, b"source").unwrap();
        let mut hash = hash::open_mut(&mut store, DB, b"source").unwrap();
        let known = hash.expiry(field.as_bytes()).unwrap();
        let done = hash.set_expiry(field.as_bytes(), Some(7000 + number));
        let now = hash.expiry(field.as_bytes()).unwrap();
        drop(hash);
        match done {
            Ok(done) => assert!(done && now == Some(Some(7000 + number))),
            Err(StoreError::OutOfMemory { .. }) => {
                failed += 1;
                assert_eq!((now, store.digest_value(DB, b"source").unwrap()), (known, before));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(store.check_value(DB, b"source").unwrap());
    }
    assert!(failed > 0);
}
