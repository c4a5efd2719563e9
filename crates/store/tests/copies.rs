//! COPY in steps: at every point of it the copy isn't there or whole, whatever happens to its source, to its target and to the
//! databases meanwhile; and what a half copy takes comes back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::{
    CopyProgress, CopyStep, DbId, ExpiryChange, Store, StoreConfig, StoreError, ValueType, hash, set, string, zset,
};

use crate::common::copy_steps::{
    BUDGET, DB, Event, OWNER, assert_image_without_copy, assert_one_value, begin, config, free_all, make_whole,
};

fn filled(members: usize) -> Store {
    let mut store = Store::create(config()).unwrap();
    fill(&mut store, b"source", members);
    store
}

fn fill(store: &mut Store, key: &[u8], members: usize) {
    let mut set = set::open_mut(store, DB, key).unwrap();
    for number in 0..members {
        set.add(format!("member:{number}").as_bytes()).unwrap();
    }
}

/// A sorted set whose copy has to be linked when it has all members.
fn filled_sorted_set(members: usize) -> Store {
    let mut store = Store::create(config()).unwrap();
    let mut zset = zset::open_mut(&mut store, DB, b"source").unwrap();
    for number in 0..members {
        zset.set(format!("member:{number}").as_bytes(), (number * 7919 % 1000) as f64).unwrap();
    }
    drop(zset);
    store
}

#[test]
fn a_copy_of_a_sorted_set_that_is_not_linked_yet_is_none() {
    let gone: [Event; 2] = [
        |store| assert!(store.remove(DB, b"source").unwrap()),
        |store| assert!(store.rename(DB, b"source", b"elsewhere").unwrap()),
    ];
    let changed: [Event; 3] = [
        |store| assert!(zset::open_mut(store, DB, b"source").unwrap().set(b"another", 5.0).unwrap().is_added()),
        |store| assert!(zset::open_mut(store, DB, b"source").unwrap().set(b"member:5", 7.5).unwrap().is_updated()),
        |store| assert!(zset::open_mut(store, DB, b"source").unwrap().remove(b"member:77").unwrap()),
    ];
    assert_one_value(|| filled_sorted_set(3000), &gone, &changed);
    for steps in [1, 30, 45, 60, 200] {
        assert_image_without_copy(|| filled_sorted_set(3000), steps);
    }
    let mut store = filled_sorted_set(3000);
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    make_whole(&mut store);
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert!(store.check_value(DB, b"target").unwrap());
    assert!(store.longest_copy_step() <= BUDGET + 2, "{}", store.longest_copy_step());
}

#[test]
fn a_copy_appears_at_once_when_it_is_whole() {
    let mut store = filled(5000);
    store.set_expiry(DB, b"source", Some(99_000)).unwrap();
    let changes = store.changes();
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    let mut steps = 0;
    while store.copy_step(BUDGET).unwrap() == CopyStep::More {
        steps += 1;
        assert_eq!((begin(&mut store), store.len(DB), store.changes()), (CopyProgress::UnderWay, 1, changes));
    }
    assert!(steps > 5000 / BUDGET, "{steps}");
    assert_eq!((store.kind(DB, b"target").unwrap(), store.copy_step(BUDGET).unwrap()), (None, CopyStep::Idle));
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert!(store.check_value(DB, b"target").unwrap());
    assert_eq!(store.digest_value(DB, b"target").unwrap(), store.digest_value(DB, b"source").unwrap());
    assert_eq!((store.expiry(DB, b"target").unwrap(), store.changes()), (Some(Some(99_000)), changes + 1));
    assert_eq!((store.copy_owner(), store.copy_events()), (None, 2));
}

#[test]
fn no_step_of_a_copy_is_longer_than_its_budget_and_one_item() {
    let mut store = Store::create(config()).unwrap();
    for number in 0..3000usize {
        let value = vec![1; if number % 100 == 0 { 20_000 } else { 50 }];
        hash::set(&mut store, DB, b"source", format!("field:{number}").as_bytes(), &value).unwrap();
    }
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    let before = store.arena().stats().objects;
    let mut steps = 0u64;
    while store.copy_step(BUDGET).unwrap() == CopyStep::More {
        steps += 1;
        let made = store.arena().stats().objects - before;
        // Each item is an object, and may bring a bucket or a segment of the table.
        assert!(made <= steps * 2 * BUDGET as u64, "{made} objects in {steps} steps");
    }
    let largest_item = 20_100 / 1024 + 2;
    assert!((BUDGET..=BUDGET + largest_item).contains(&store.longest_copy_step()), "{}", store.longest_copy_step());
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
}

#[test]
fn small_values_are_copied_at_once_while_another_copy_is_under_way() {
    let mut store = filled(5000);
    fill(&mut store, b"small", 200);
    fill(&mut store, b"large", 2000);
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    let mut other = |from: &[u8], to: &[u8]| store.copy_in_steps(8, DB, from, DB, to, false).unwrap();
    assert_eq!(other(b"small", b"one"), CopyProgress::Done(true));
    assert_eq!(other(b"large", b"two"), CopyProgress::Busy);
    assert_eq!(other(b"missing", b"three"), CopyProgress::Done(false));
    make_whole(&mut store);
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert_eq!(store.copy_in_steps(8, DB, b"large", DB, b"two", false).unwrap(), CopyProgress::UnderWay);
}

#[test]
fn a_copy_whose_source_goes_is_given_up_and_one_whose_source_changes_begins_anew() {
    let gone: [Event; 6] = [
        |store| assert!(store.remove(DB, b"source").unwrap()),
        |store| assert!(store.rename(DB, b"source", b"elsewhere").unwrap()),
        |store| assert!(store.move_key(DB, b"source", DbId(1)).unwrap()),
        |store| assert_eq!(store.flush_all().unwrap(), 1),
        |store| store.swap(DB, DbId(1)).unwrap(),
        |store| store.set_now_ms(5000),
    ];
    let changed: [Event; 5] = [
        |store| assert!(set::open_mut(store, DB, b"source").unwrap().add(b"another").unwrap()),
        |store| assert!(set::open_mut(store, DB, b"source").unwrap().remove(b"member:77").unwrap()),
        |store| assert!(store.set_expiry(DB, b"source", None).unwrap()),
        |store| {
            store.remove(DB, b"source").unwrap();
            fill(store, b"source", 3000);
        },
        |store| {
            store.remove(DB, b"source").unwrap();
            string::set(store, DB, b"source", b"now a string", ExpiryChange::Clear).unwrap();
        },
    ];
    assert_one_value(|| filled(3000), &gone, &changed);
}

#[test]
fn a_step_of_a_copy_does_not_delete_a_source_whose_time_has_come_while_such_keys_are_held() {
    let mut store = filled(3000);
    store.set_expiry(DB, b"source", Some(5000)).unwrap();
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    store.copy_step(BUDGET).unwrap();
    store.set_holding_expired(true);
    store.set_now_ms(6000);
    assert_eq!(store.copy_step(BUDGET).unwrap(), CopyStep::Ended);
    assert_eq!((store.len(DB), store.copy_owner()), (1, None), "it is held, and there is nothing to be copied");
    store.set_holding_expired(false);
    assert_eq!((begin(&mut store), store.len(DB)), (CopyProgress::Done(false), 0));
}

#[test]
fn a_value_that_is_changed_in_place_is_copied_as_it_is_at_the_end() {
    let mut store = Store::create(config()).unwrap();
    let put = |store: &mut Store, number: usize, value: &[u8]| {
        hash::set(store, DB, b"source", format!("field:{number}").as_bytes(), value).unwrap();
    };
    (0..3000).for_each(|number| put(&mut store, number, b"before"));
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    make_whole(&mut store);
    (0..3000).for_each(|number| put(&mut store, number, b"after!"));
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    make_whole(&mut store);
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert_eq!(store.digest_value(DB, b"target").unwrap(), store.digest_value(DB, b"source").unwrap());
}

#[test]
fn a_target_that_comes_meanwhile_is_kept_unless_it_is_to_be_replaced() {
    for replace in [false, true] {
        let mut store = filled(3000);
        let ask = |store: &mut Store| store.copy_in_steps(OWNER, DB, b"source", DB, b"target", replace).unwrap();
        assert_eq!(ask(&mut store), CopyProgress::UnderWay);
        make_whole(&mut store);
        string::set(&mut store, DB, b"target", b"mine", ExpiryChange::Clear).unwrap();
        assert_eq!(ask(&mut store), CopyProgress::Done(replace));
        assert_eq!(store.kind(DB, b"target").unwrap(), Some(if replace { ValueType::Set } else { ValueType::String }));
        assert_eq!(store.copy_owner(), None);
    }
}

#[test]
fn watched_targets_are_touched_when_the_copy_is_whole_and_the_source_never_is() {
    let mut store = filled(3000);
    store.watch(1, DB, b"target");
    store.watch(2, DB, b"source");
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    make_whole(&mut store);
    assert_eq!(store.take_touched(), []);
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert_eq!(store.take_touched(), [1]);
}

#[test]
fn a_copy_that_is_given_up_takes_no_memory() {
    let mut store = filled(20_000);
    let objects = store.arena().stats().objects;
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    for _ in 0..50 {
        store.copy_step(BUDGET).unwrap();
    }
    assert!(store.copied_bytes(OWNER) > 0 && store.copied_bytes(8) == 0);
    store.cancel_copy(8).unwrap();
    assert_eq!(store.copy_owner(), Some(OWNER));
    store.cancel_copy(OWNER).unwrap();
    assert!(store.arena().stats().objects > objects, "it is freed in steps");
    free_all(&mut store);
    assert_eq!((store.arena().stats().objects, store.copy_owner(), store.copied_bytes(OWNER)), (objects, None, 0));
}

#[test]
fn a_copy_that_finds_no_memory_leaves_everything_as_it_was() {
    let config = StoreConfig { max_memory_bytes: 8 << 20, ..config() };
    let mut store = Store::create(config).unwrap();
    for number in 0..3000usize {
        hash::set(&mut store, DB, b"source", format!("field:{number}").as_bytes(), &[1; 1000]).unwrap();
    }
    string::set(&mut store, DB, b"target", b"old", ExpiryChange::Clear).unwrap();
    let (digest, objects) = (store.digest().unwrap(), store.arena().stats().objects);
    let ask = |store: &mut Store| store.copy_in_steps(OWNER, DB, b"source", DB, b"target", true);
    assert_eq!(ask(&mut store).unwrap(), CopyProgress::UnderWay);
    make_whole(&mut store);
    assert!(matches!(ask(&mut store), Err(StoreError::OutOfMemory { .. })));
    free_all(&mut store);
    assert_eq!((store.digest().unwrap(), store.arena().stats().objects), (digest, objects));
    assert!(matches!(store.copy(DB, b"source", DB, b"target", true), Err(StoreError::OutOfMemory { .. })));
    assert_eq!((store.digest().unwrap(), store.arena().stats().objects), (digest, objects));
}

#[test]
fn an_image_cut_in_the_middle_of_a_copy_has_neither_the_key_nor_its_memory() {
    for steps in [0, 1, 40, 1000] {
        assert_image_without_copy(|| filled(5000), steps);
    }
}

/// What the model has of a key: members, and when it expires.
type Model = BTreeMap<(u8, usize), (Vec<u32>, Option<i64>)>;

const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];

#[derive(Clone, Debug)]
enum Op {
    Copy(u8, usize, u8, usize, bool),
    Step(usize),
    Add(u8, usize, u32, u32),
    Remove(u8, usize, u32, u32),
    Delete(u8, usize),
    Expire(u8, usize, i64),
    Persist(u8, usize),
    Rename(u8, usize, usize),
    Move(u8, usize),
    Swap,
    Flush(u8),
    Advance(i64),
    ExpireStep,
    Reclaim,
    Cancel,
}

fn op() -> impl Strategy<Value = Op> {
    let (db, key) = (|| 0u8..2, || 0usize..KEYS.len());
    prop_oneof![
        6 => (db(), key(), db(), key(), any::<bool>()).prop_map(|(a, b, c, d, e)| Op::Copy(a, b, c, d, e)),
        12 => (1usize..400).prop_map(Op::Step),
        4 => (db(), key(), 0u32..2000, 1u32..1500).prop_map(|(db, key, first, count)| Op::Add(db, key, first, count)),
        1 => (db(), key(), 0u32..2000, 1u32..200).prop_map(|(db, key, first, count)| Op::Remove(db, key, first, count)),
        1 => (db(), key()).prop_map(|(db, key)| Op::Delete(db, key)),
        1 => (db(), key(), 1i64..50).prop_map(|(db, key, in_ms)| Op::Expire(db, key, in_ms)),
        1 => (db(), key()).prop_map(|(db, key)| Op::Persist(db, key)),
        1 => (db(), key(), key()).prop_map(|(db, from, to)| Op::Rename(db, from, to)),
        1 => (db(), key()).prop_map(|(db, key)| Op::Move(db, key)),
        1 => Just(Op::Swap),
        1 => (0u8..40).prop_map(Op::Flush),
        2 => (0i64..20).prop_map(Op::Advance),
        2 => Just(Op::ExpireStep),
        2 => Just(Op::Reclaim),
        1 => Just(Op::Cancel),
    ]
}

struct Pair {
    store: Store,
    model: Model,
    now_ms: i64,
    /// The copy that a client has asked for and has no reply to.
    asked: Option<(u8, usize, u8, usize, bool)>,
}

impl Pair {
    fn run(&mut self, op: &Op) {
        match *op {
            Op::Copy(db, from, to_db, to, replace) if self.asked.is_none() => {
                self.asked = Some((db, from, to_db, to, replace));
                self.ask();
            }
            Op::Copy(..) => self.ask(),
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
            Op::ExpireStep => drop(self.store.expire_step(100).unwrap()),
            Op::Reclaim => drop(self.store.reclaim_step(300).unwrap()),
            Op::Add(..) | Op::Remove(..) => self.change_members(op),
            _ => self.change(op),
        }
    }

    fn change_members(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Add(db, key, first, count) => {
                let mut set = set::open_mut(store, DbId(db), KEYS[key]).unwrap();
                let members = &mut model.entry((db, key)).or_default().0;
                for number in first..first + count {
                    set.add(&member(number)).unwrap();
                    members.push(number);
                }
                members.sort_unstable();
                members.dedup();
            }
            Op::Remove(db, key, first, count) => {
                let mut set = set::open_mut(store, DbId(db), KEYS[key]).unwrap();
                for number in first..first + count {
                    set.remove(&member(number)).unwrap();
                }
                if let Some((members, _)) = model.get_mut(&(db, key)) {
                    members.retain(|number| !(first..first + count).contains(number));
                }
                model.retain(|_, (members, _)| !members.is_empty());
            }
            _ => unreachable!(),
        }
    }

    fn change(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Delete(db, key) => {
                assert_eq!(store.remove(DbId(db), KEYS[key]).unwrap(), model.remove(&(db, key)).is_some());
            }
            Op::Expire(db, key, in_ms) => {
                let at_ms = Some(self.now_ms + in_ms);
                store.set_expiry(DbId(db), KEYS[key], at_ms).unwrap();
                model.entry((db, key)).and_modify(|item| item.1 = at_ms);
            }
            Op::Persist(db, key) => {
                store.set_expiry(DbId(db), KEYS[key], None).unwrap();
                model.entry((db, key)).and_modify(|item| item.1 = None);
            }
            Op::Rename(db, from, to) => {
                store.rename(DbId(db), KEYS[from], KEYS[to]).unwrap();
                if let Some(item) = model.remove(&(db, from)) {
                    model.insert((db, to), item);
                }
            }
            Op::Move(db, key) => {
                let free = !model.contains_key(&(1 - db, key));
                let moved = store.move_key(DbId(db), KEYS[key], DbId(1 - db)).unwrap();
                assert_eq!(moved, free && model.contains_key(&(db, key)));
                if moved && let Some(item) = model.remove(&(db, key)) {
                    model.insert((1 - db, key), item);
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
        let asked = self.store.copy_in_steps(OWNER, DbId(db), KEYS[from], DbId(to_db), KEYS[to], replace).unwrap();
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
                let expected = self.model.get(&(db, index)).cloned();
                let expiry = self.store.expiry(DbId(db), key).unwrap();
                assert_eq!(expiry, expected.as_ref().map(|item| item.1));
                let members = expected.map_or(Vec::new(), |item| item.0);
                let set = set::view(&mut self.store, DbId(db), key).unwrap();
                assert_eq!(set.len().unwrap(), members.len());
                for number in members {
                    assert!(set.contains(&quire_store::SetMember::Bytes(&member(number))).unwrap(), "{number}");
                }
            }
        }
    }
}

fn member(number: u32) -> Vec<u8> {
    format!("m{number}").into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn copies_between_other_commands_are_what_the_model_says(ops in prop::collection::vec(op(), 1..120)) {
        let empty = Store::create(config()).unwrap().arena().stats().objects;
        let mut store = Store::create(config()).unwrap();
        store.set_now_ms(1_000_000);
        let mut pair = Pair { store, model: Model::new(), now_ms: 1_000_000, asked: None };
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
