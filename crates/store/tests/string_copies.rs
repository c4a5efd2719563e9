//! COPY of a long string in steps: at every point of it the copy isn't there or whole and of one time, whatever happens to its
//! source meanwhile; an image cut at any step, and memory that is refused, have nothing of it left.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::{
    CopyProgress, CopyStep, DbId, ExpiryChange, ImageLocation, RestoreMode, Store, StoreConfig, StoreError, set, string,
};

use crate::common::copy_steps::{
    BUDGET, DB, Event, OWNER, assert_image_without_copy, assert_one_value, begin, config, free_all, make_whole,
};

/// Bytes that one unit of a budget copies.
const UNIT_BYTES: usize = 2048;
const LEN: usize = 5 << 20;

/// Bytes that differ from those of another seed, and from place to place.
fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16).wrapping_add(seed.wrapping_mul(37)) as u8).collect()
}

fn filled() -> Store {
    let mut store = Store::create(config()).unwrap();
    string::set(&mut store, DB, b"source", &content(1, LEN), ExpiryChange::Clear).unwrap();
    store
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    string::peek(store, DB, key).unwrap().map(<[u8]>::to_vec)
}

#[test]
fn a_long_string_is_copied_in_steps_of_the_budget_and_appears_when_it_is_whole() {
    let mut store = filled();
    store.set_expiry(DB, b"source", Some(99_000)).unwrap();
    let changes = store.changes();
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    let mut steps = 1;
    while store.copy_step(BUDGET).unwrap() == CopyStep::More {
        steps += 1;
        assert_eq!((begin(&mut store), store.len(DB), store.changes()), (CopyProgress::UnderWay, 1, changes));
    }
    assert_eq!((steps, store.longest_copy_step()), (LEN.div_ceil(BUDGET * UNIT_BYTES), BUDGET));
    let objects = store.arena().stats().objects;
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert!(store.arena().stats().objects < objects, "nothing that served the copy alone is left");
    assert_eq!(value(&store, b"target"), Some(content(1, LEN)));
    assert!(store.check_value(DB, b"target").unwrap());
    assert_eq!((store.expiry(DB, b"target").unwrap(), store.changes()), (Some(Some(99_000)), changes + 1));
    assert_eq!((store.copy_owner(), store.copied_bytes(OWNER)), (None, 0));
    assert_eq!(store.encoding(DB, b"target").unwrap(), store.encoding(DB, b"source").unwrap());
}

#[test]
fn strings_up_to_what_a_step_of_the_server_copies_are_copied_at_once() {
    for (len, expected) in
        [(512 * UNIT_BYTES, CopyProgress::Done(true)), (512 * UNIT_BYTES + 1, CopyProgress::UnderWay)]
    {
        let mut store = Store::create(config()).unwrap();
        string::set(&mut store, DB, b"source", &content(1, len), ExpiryChange::Clear).unwrap();
        assert_eq!(begin(&mut store), expected, "{len}");
    }
}

#[test]
fn the_memory_of_the_whole_copy_is_taken_before_the_first_step() {
    let mut store = filled();
    let before = store.arena().stats().allocated_bytes;
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    let taken = store.arena().stats().allocated_bytes;
    assert!(taken >= before + LEN as u64);
    assert!((LEN as u64..=taken - before).contains(&store.copied_bytes(OWNER)), "{}", store.copied_bytes(OWNER));
    make_whole(&mut store);
    assert_eq!(store.arena().stats().allocated_bytes, taken);
}

#[test]
fn a_copy_for_which_there_is_no_memory_is_refused_before_it_begins_and_leaves_nothing() {
    let config = StoreConfig { max_memory_bytes: 16 << 20, ..config() };
    let mut store = Store::create(config).unwrap();
    string::set(&mut store, DB, b"source", &content(1, 6 << 20), ExpiryChange::Clear).unwrap();
    string::set(&mut store, DB, b"target", b"old", ExpiryChange::Clear).unwrap();
    let before = (store.digest().unwrap(), store.arena().stats().objects, store.arena().stats().allocated_bytes);
    let refused = store.copy_in_steps(OWNER, DB, b"source", DB, b"target", true);
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
    let after = (store.digest().unwrap(), store.arena().stats().objects, store.arena().stats().allocated_bytes);
    assert_eq!((after, store.copy_owner(), store.has_copy_step()), (before, None, false));
}

#[test]
fn a_copy_takes_the_memory_of_what_was_deleted_and_is_not_freed_yet() {
    let config = StoreConfig { max_memory_bytes: 32 << 20, ..config() };
    let mut store = Store::create(config).unwrap();
    let mut members = set::open_mut(&mut store, DB, b"old").unwrap();
    (0..).find(|number| members.add(format!("{number:01000}").as_bytes()).is_err()).unwrap();
    drop(members);
    store.remove(DB, b"old").unwrap();
    string::set(&mut store, DB, b"source", &content(1, LEN), ExpiryChange::Clear).unwrap();
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    make_whole(&mut store);
    assert_eq!((begin(&mut store), value(&store, b"target")), (CopyProgress::Done(true), Some(content(1, LEN))));
}

#[test]
fn a_copy_has_one_value_of_its_source_whatever_happens_to_that_between_two_steps() {
    let gone: [Event; 5] = [
        |store| assert!(store.remove(DB, b"source").unwrap()),
        |store| assert!(store.rename(DB, b"source", b"elsewhere").unwrap()),
        |store| assert_eq!(store.flush_all().unwrap(), 1),
        |store| store.swap(DB, DbId(1)).unwrap(),
        |store| store.set_now_ms(5000),
    ];
    let changed: [Event; 6] = [
        |store| assert_eq!(string::append(store, DB, b"source", b"more").unwrap(), LEN + 4),
        |store| assert_eq!(string::set_range(store, DB, b"source", 7, b"else").unwrap(), LEN),
        |store| assert!(!string::set_bit(store, DB, b"source", 8 * LEN as u64 - 1, true).unwrap()),
        |store| string::set(store, DB, b"source", &content(2, LEN), ExpiryChange::Clear).unwrap(),
        |store| string::set(store, DB, b"source", b"short now", ExpiryChange::Clear).unwrap(),
        |store| {
            // It may get the same places again.
            store.remove(DB, b"source").unwrap();
            string::set(store, DB, b"source", &content(2, LEN), ExpiryChange::Clear).unwrap();
        },
    ];
    let filled = || {
        let mut store = filled();
        // The last bit is not set.
        string::set_range(&mut store, DB, b"source", LEN as u64 - 1, b"\0").unwrap();
        store
    };
    assert_one_value(filled, &gone, &changed);
}

#[test]
fn a_copy_that_is_given_up_at_any_step_gives_its_memory_back() {
    for steps in 0..LEN.div_ceil(BUDGET * UNIT_BYTES) + 1 {
        let mut store = filled();
        let before = (store.arena().stats().objects, store.arena().stats().allocated_bytes);
        assert_eq!(begin(&mut store), CopyProgress::UnderWay);
        for _ in 0..steps {
            store.copy_step(BUDGET).unwrap();
        }
        store.cancel_copy(OWNER).unwrap();
        free_all(&mut store);
        assert_eq!((store.arena().stats().objects, store.arena().stats().allocated_bytes), before, "{steps}");
        assert_eq!((store.len(DB), value(&store, b"source")), (1, Some(content(1, LEN))));
    }
}

#[test]
fn an_image_cut_at_any_step_of_a_copy_has_neither_the_key_nor_its_memory() {
    let all = LEN.div_ceil(BUDGET * UNIT_BYTES);
    for steps in [0, 1, all / 2, all - 1, all] {
        assert_image_without_copy(filled, steps);
    }
}

#[test]
fn a_copy_at_once_is_the_same_one() {
    let mut store = filled();
    assert!(store.copy(DB, b"source", DB, b"target", false).unwrap());
    assert_eq!(value(&store, b"target"), Some(content(1, LEN)));
}

/// What the model has of a key: its string, and when it expires.
type Model = BTreeMap<(u8, usize), (Vec<u8>, Option<i64>)>;

const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];

#[derive(Clone, Debug)]
enum Op {
    Copy(u8, usize, u8, usize, bool),
    Step(usize),
    Set(u8, usize, usize, usize),
    Append(u8, usize, usize, usize),
    SetRange(u8, usize, usize, usize),
    Delete(u8, usize),
    Expire(u8, usize, i64),
    Rename(u8, usize, usize),
    Swap,
    Flush(u8),
    Advance(i64),
    Reclaim,
    Cancel,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let (db, key, seed) = (|| 0u8..2, || 0usize..KEYS.len(), || 0usize..200);
    prop_oneof![
        6 => (db(), key(), db(), key(), any::<bool>()).prop_map(|(a, b, c, d, e)| Op::Copy(a, b, c, d, e)),
        12 => (1usize..900).prop_map(Op::Step),
        4 => (db(), key(), 1usize..4_000_000, seed()).prop_map(|(db, key, len, seed)| Op::Set(db, key, len, seed)),
        1 => (db(), key(), 1usize..1_500_000, seed()).prop_map(|(db, key, len, seed)| Op::Append(db, key, len, seed)),
        1 => (db(), key(), 0usize..4_500_000, seed()).prop_map(|(db, key, at, seed)| Op::SetRange(db, key, at, seed)),
        1 => (db(), key()).prop_map(|(db, key)| Op::Delete(db, key)),
        1 => (db(), key(), 1i64..50).prop_map(|(db, key, in_ms)| Op::Expire(db, key, in_ms)),
        1 => (db(), key(), key()).prop_map(|(db, from, to)| Op::Rename(db, from, to)),
        1 => Just(Op::Swap),
        1 => (0u8..40).prop_map(Op::Flush),
        2 => (0i64..20).prop_map(Op::Advance),
        2 => Just(Op::Reclaim),
        1 => Just(Op::Cancel),
        1 => Just(Op::Restart),
    ]
}

struct Pair {
    store: Store,
    model: Model,
    now_ms: i64,
    /// The copy that a client has asked for and has no reply to.
    asked: Option<(u8, usize, u8, usize, bool)>,
    dir: tempfile::TempDir,
}

/// What a request came to; `None` if there was no memory for it.
fn unless_refused<T>(done: Result<T, StoreError>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(StoreError::OutOfMemory { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// As little that copies are refused at times.
fn tight() -> StoreConfig {
    StoreConfig { max_memory_bytes: 20 << 20, ..config() }
}

impl Pair {
    fn run(&mut self, op: &Op) {
        match *op {
            Op::Copy(db, from, to_db, to, replace) => {
                self.asked.get_or_insert((db, from, to_db, to, replace));
                self.ask();
            }
            Op::Step(budget) => {
                if self.store.copy_step(budget).unwrap() == CopyStep::Ended {
                    self.ask();
                }
            }
            Op::Cancel => {
                self.store.cancel_copy(OWNER).unwrap();
                self.asked = None;
            }
            Op::Advance(by_ms) => {
                self.now_ms += by_ms;
                self.store.set_now_ms(self.now_ms);
                let now_ms = self.now_ms;
                self.model.retain(|_, (_, expiry)| expiry.is_none_or(|at_ms| at_ms > now_ms));
            }
            Op::Reclaim => drop(self.store.reclaim_step(300).unwrap()),
            Op::Restart => self.restart(),
            Op::Set(..) | Op::Append(..) | Op::SetRange(..) => self.write(op),
            _ => self.change_keys(op),
        }
    }

    /// An image is cut as things are, and the store goes on as what was restored from it.
    fn restart(&mut self) {
        let place = ImageLocation::new(self.dir.path(), "dump.quire");
        self.store.save_blocking(&place).unwrap();
        (self.store, _) = Store::open(tight(), &place, RestoreMode::Load, false).unwrap();
        self.store.set_now_ms(self.now_ms);
        self.asked = None;
        self.check();
    }

    fn write(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Set(db, key, len, seed) => {
                let bytes = content(seed, len);
                if unless_refused(string::set(store, DbId(db), KEYS[key], &bytes, ExpiryChange::Clear)).is_some() {
                    model.insert((db, key), (bytes, None));
                }
            }
            Op::Append(db, key, len, seed) => {
                let bytes = content(seed, len);
                if unless_refused(string::append(store, DbId(db), KEYS[key], &bytes)).is_some() {
                    model.entry((db, key)).or_default().0.extend(bytes);
                }
            }
            Op::SetRange(db, key, at, seed) => {
                let bytes = content(seed, 5000);
                if unless_refused(string::set_range(store, DbId(db), KEYS[key], at as u64, &bytes)).is_some() {
                    let value = &mut model.entry((db, key)).or_default().0;
                    value.resize(value.len().max(at + bytes.len()), 0);
                    value[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            _ => unreachable!(),
        }
    }

    fn change_keys(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Delete(db, key) => {
                assert_eq!(store.remove(DbId(db), KEYS[key]).unwrap(), model.remove(&(db, key)).is_some());
            }
            Op::Expire(db, key, in_ms) => {
                let at_ms = Some(self.now_ms + in_ms);
                if unless_refused(store.set_expiry(DbId(db), KEYS[key], at_ms)).is_some() {
                    model.entry((db, key)).and_modify(|item| item.1 = at_ms);
                }
            }
            Op::Rename(db, from, to) => {
                if unless_refused(store.rename(DbId(db), KEYS[from], KEYS[to])).is_some()
                    && let Some(item) = model.remove(&(db, from))
                {
                    model.insert((db, to), item);
                }
            }
            Op::Swap => {
                store.swap(DB, DbId(1)).unwrap();
                *model = std::mem::take(model).into_iter().map(|((db, key), item)| ((1 - db, key), item)).collect();
            }
            // Not often: it leaves little to be copied.
            Op::Flush(db @ 0..2) => {
                store.flush(DbId(db)).unwrap();
                model.retain(|&(other, _), _| other != db);
            }
            _ => {}
        }
    }

    /// The client asks (again) for its copy.
    fn ask(&mut self) {
        let Some((db, from, to_db, to, replace)) = self.asked else { return };
        let asked = self.store.copy_in_steps(OWNER, DbId(db), KEYS[from], DbId(to_db), KEYS[to], replace);
        let Some(asked) = unless_refused(asked) else {
            self.asked = None;
            return;
        };
        let CopyProgress::Done(copied) = asked else { return };
        self.asked = None;
        let source = self.model.get(&(db, from)).cloned();
        let free = replace || !self.model.contains_key(&(to_db, to));
        assert_eq!(copied, source.is_some() && free && (db, from) != (to_db, to));
        if copied && let Some(source) = source {
            self.model.insert((to_db, to), source);
        }
    }

    fn check(&mut self) {
        for db in 0..2u8 {
            for (index, key) in KEYS.iter().enumerate() {
                let expected = self.model.get(&(db, index));
                assert_eq!(self.store.expiry(DbId(db), key).unwrap(), expected.map(|item| item.1));
                let found = string::peek(&self.store, DbId(db), key).unwrap();
                assert!(found == expected.map(|item| &item.0[..]), "the value of {db} {index}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn copies_of_strings_between_other_commands_are_what_the_model_says(ops in prop::collection::vec(op(), 1..100)) {
        let mut store = Store::create(tight()).unwrap();
        let empty = store.arena().stats().objects;
        store.set_now_ms(1_000_000);
        let dir = tempfile::tempdir().unwrap();
        let mut pair = Pair { store, model: Model::new(), now_ms: 1_000_000, asked: None, dir };
        for op in &ops {
            pair.run(op);
        }
        pair.check();
        pair.store.cancel_copy(OWNER).unwrap();
        pair.store.flush_all().unwrap();
        free_all(&mut pair.store);
        prop_assert_eq!(pair.store.arena().stats().objects, empty);
    }
}
