//! Sets against a model: every encoding and every change from one to the next, through images and copies, with all that can
//! be calculated from them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use quire_store::set::SetOperation;
use quire_store::{
    DbId, EncodingLimits, ExpiryChange, SetMember, Store, StoreConfig, StoreError, ValueType, set, string,
};

use crate::common::{config, image_of, open};

const DB: DbId = DbId(0);
const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

type Model = BTreeSet<Vec<u8>>;

fn store() -> Store {
    let limits = EncodingLimits::default()
        .with(&set::MAX_INTS, 12)
        .with(&set::MAX_PACKED_MEMBERS, 8)
        .with(&set::MAX_PACKED_LEN, 10);
    Store::create(StoreConfig { limits, ..config() }).unwrap()
}

fn text(member: SetMember<'_>) -> Vec<u8> {
    member.text(&mut itoa::Buffer::new()).to_vec()
}

fn members(store: &mut Store, key: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    set::view(store, DB, key)
        .unwrap()
        .for_each(|member| {
            all.push(text(member));
            true
        })
        .unwrap();
    all
}

fn add(store: &mut Store, key: &[u8], member: &[u8]) -> bool {
    set::open_mut(store, DB, key).unwrap().add(member).unwrap()
}

fn remove(store: &mut Store, key: &[u8], member: &[u8]) -> bool {
    set::open_mut(store, DB, key).unwrap().remove(member).unwrap()
}

/// The key holds what the model does, by every way to look.
fn check(store: &mut Store, key: &[u8], model: &Model) {
    let listed = members(store, key);
    assert_eq!(listed.len(), model.len(), "nothing is listed twice");
    assert_eq!(&listed.into_iter().collect::<Model>(), model);
    let view = set::view(store, DB, key).unwrap();
    assert_eq!((view.len().unwrap(), view.exists()), (model.len(), !model.is_empty()));
    for member in model {
        assert!(view.contains(&SetMember::Bytes(member)).unwrap());
    }
    for other in [&b"none"[..], b"", b"77777", b"007"] {
        assert_eq!(view.contains(&SetMember::Bytes(other)).unwrap(), model.contains(other));
    }
    let (mut scanned, mut cursor) = (Model::new(), 0);
    loop {
        cursor = view.scan(cursor, 3, &mut |member| _ = scanned.insert(text(member))).unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(&scanned, model);
    assert_eq!(store.kind(DB, key).unwrap(), (!model.is_empty()).then_some(ValueType::Set));
    assert_eq!(store.memory_usage(DB, key).unwrap().is_some(), !model.is_empty());
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (-20i64..20).prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (-40_000i64..40_000).prop_map(|number| number.to_string().into_bytes()),
        2 => (0u8..20).prop_map(|letter| vec![b'a' + letter; 3]),
        1 => (0u8..20).prop_map(|letter| vec![letter; 40]),
        1 => Just(b"007".to_vec()),
        1 => Just(Vec::new()),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Add(usize, Vec<u8>),
    Remove(usize, Vec<u8>),
    Pop(usize, usize),
    Move(usize, usize, Vec<u8>),
    Copy(usize, usize),
    Inter(usize, Vec<usize>),
    Union(usize, Vec<usize>),
    Diff(usize, Vec<usize>),
    Delete(usize),
    Overwrite(usize),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS.len();
    let keys = prop::collection::vec(0..KEYS.len(), 1..4);
    prop_oneof![
        20 => (key.clone(), member()).prop_map(|(key, member)| Op::Add(key, member)),
        8 => (key.clone(), member()).prop_map(|(key, member)| Op::Remove(key, member)),
        2 => (key.clone(), 0usize..6).prop_map(|(key, count)| Op::Pop(key, count)),
        3 => (key.clone(), key.clone(), member()).prop_map(|(from, to, member)| Op::Move(from, to, member)),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Op::Copy(from, to)),
        1 => (key.clone(), keys.clone()).prop_map(|(to, keys)| Op::Inter(to, keys)),
        2 => (key.clone(), keys.clone()).prop_map(|(to, keys)| Op::Union(to, keys)),
        1 => (key.clone(), keys).prop_map(|(to, keys)| Op::Diff(to, keys)),
        1 => key.clone().prop_map(Op::Delete),
        1 => key.prop_map(Op::Overwrite),
        1 => Just(Op::Reopen),
    ]
}

/// Combines the sets of `keys` in the model and in the store, stores the result, and looks at both.
fn combine(store: &mut Store, models: &mut [Model], to: usize, keys: &[usize], how: &Op) {
    let (combination, expected) = match how {
        Op::Inter(..) => (SetOperation::Intersection, expected(models, keys, SetOperation::Intersection)),
        Op::Union(..) => (SetOperation::Union, expected(models, keys, SetOperation::Union)),
        _ => (SetOperation::Difference, expected(models, keys, SetOperation::Difference)),
    };
    let mut found = set::MemberBuffer::default();
    let sets = set::views(store, DB, keys.iter().map(|&key| KEYS[key])).unwrap();
    set::combine(combination, &sets, |member| {
        found.push(member);
        true
    })
    .unwrap();
    assert_eq!(found.len(), expected.len(), "nothing is found twice");
    assert_eq!(&found.iter().map(<[u8]>::to_vec).collect::<Model>(), &expected);
    let (changes, existed) = (store.changes(), store.kind(DB, KEYS[to]).unwrap().is_some());
    let sources = keys.iter().map(|&key| KEYS[key]);
    assert_eq!(set::store_combination(store, DB, KEYS[to], combination, sources).unwrap(), expected.len());
    assert_eq!(store.changes() - changes, u64::from(existed || !expected.is_empty()), "one key has changed");
    models[to] = expected;
}

fn expected(models: &[Model], keys: &[usize], how: SetOperation) -> Model {
    let all = keys.iter().map(|&key| &models[key]);
    match how {
        SetOperation::Intersection => {
            all.cloned().reduce(|one, other| one.intersection(&other).cloned().collect()).unwrap()
        }
        SetOperation::Union => all.flatten().cloned().collect(),
        SetOperation::Difference => {
            all.cloned().reduce(|one, other| one.difference(&other).cloned().collect()).unwrap()
        }
    }
}

fn apply(store: &mut Store, models: &mut [Model], op: &Op) {
    match op {
        Op::Add(key, member) => assert_eq!(add(store, KEYS[*key], member), models[*key].insert(member.clone())),
        Op::Remove(key, member) => assert_eq!(remove(store, KEYS[*key], member), models[*key].remove(member)),
        Op::Pop(key, count) => {
            let mut popped = Vec::new();
            let left = set::pop(store, DB, KEYS[*key], *count, &mut |_| true, &mut |member| popped.push(text(member)))
                .unwrap();
            assert_eq!(popped.len(), models[*key].len().min(*count));
            popped.iter().for_each(|member| assert!(models[*key].remove(member)));
            assert_eq!(left, if models[*key].is_empty() { set::Popped::All } else { set::Popped::Some });
        }
        Op::Move(from, to, member) => {
            let moved = models[*from].contains(member);
            assert_eq!(set::move_member(store, DB, KEYS[*from], KEYS[*to], member).unwrap(), moved);
            if moved {
                models[*from].remove(member);
                models[*to].insert(member.clone());
            }
        }
        Op::Copy(from, to) => {
            let copied = from != to && !models[*from].is_empty();
            assert_eq!(store.copy(DB, KEYS[*from], DB, KEYS[*to], true).unwrap(), copied);
            if copied {
                models[*to] = models[*from].clone();
            }
        }
        Op::Inter(to, keys) | Op::Union(to, keys) | Op::Diff(to, keys) => combine(store, models, *to, keys, op),
        Op::Delete(key) => {
            assert_eq!(store.remove(DB, KEYS[*key]).unwrap(), !models[*key].is_empty());
            models[*key].clear();
        }
        Op::Overwrite(key) => {
            string::set(store, DB, KEYS[*key], b"string", ExpiryChange::Clear).unwrap();
            assert!(matches!(set::open_mut(store, DB, KEYS[*key]), Err(StoreError::WrongType)));
            store.remove(DB, KEYS[*key]).unwrap();
            models[*key].clear();
        }
        Op::Reopen => {
            let (digest, limits) = (store.digest().unwrap(), store.limits());
            *store = open(&image_of(store)).unwrap();
            store.set_limits(limits);
            assert_eq!(store.digest().unwrap(), digest);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sets_behave_as_a_model_does(ops in prop::collection::vec(op(), 1..120)) {
        let (mut store, mut models) = (store(), vec![Model::new(); KEYS.len()]);
        for op in &ops {
            apply(&mut store, &mut models, op);
        }
        for (key, model) in KEYS.iter().zip(&models) {
            check(&mut store, key, model);
        }
        for key in KEYS {
            store.remove(DB, key).unwrap();
        }
        while store.reclaim_step(1000).unwrap() > 0 {}
        let left = store.stats().arena.objects;
        let mut empty = Store::create(config()).unwrap();
        string::set(&mut empty, DB, b"x", b"", ExpiryChange::Clear).unwrap();
        empty.remove(DB, b"x").unwrap();
        // The table of the database stays, once there was one.
        prop_assert!(left <= empty.stats().arena.objects, "{} objects are left", left);
    }
}

#[test]
fn encodings_follow_the_limits_as_in_redis() {
    let mut store = store();
    for number in 0..12 {
        add(&mut store, b"ints", number.to_string().as_bytes());
    }
    assert_eq!(store.encoding(DB, b"ints").unwrap(), Some("intset"));
    add(&mut store, b"ints", b"100");
    assert_eq!(store.encoding(DB, b"ints").unwrap(), Some("hashtable"));

    for number in 0..7 {
        add(&mut store, b"mixed", number.to_string().as_bytes());
    }
    add(&mut store, b"mixed", b"word");
    assert_eq!(store.encoding(DB, b"mixed").unwrap(), Some("listpack"));
    add(&mut store, b"mixed", b"ninth");
    assert_eq!(store.encoding(DB, b"mixed").unwrap(), Some("hashtable"));

    add(&mut store, b"long", b"eleven byte");
    assert_eq!(store.encoding(DB, b"long").unwrap(), Some("hashtable"));
    add(&mut store, b"wide", b"1234567890123");
    add(&mut store, b"wide", b"word");
    assert_eq!(store.encoding(DB, b"wide").unwrap(), Some("hashtable"), "a number is too long to be packed");
    // Text that looks like a number but is not its spelling.
    add(&mut store, b"text", b"007");
    assert_eq!(store.encoding(DB, b"text").unwrap(), Some("listpack"));
}

#[test]
fn numbers_of_all_widths_stay_in_order() {
    let mut store = Store::create(config()).unwrap();
    let numbers = [5, -5, 70_000, i64::MAX, i64::MIN, 0, -70_000, 32_767, 32_768, -32_769];
    for number in numbers {
        assert!(add(&mut store, b"key", number.to_string().as_bytes()));
        assert!(!add(&mut store, b"key", number.to_string().as_bytes()));
    }
    let mut sorted = numbers;
    sorted.sort_unstable();
    let listed: Vec<i64> =
        members(&mut store, b"key").iter().map(|text| std::str::from_utf8(text).unwrap().parse().unwrap()).collect();
    assert_eq!(listed, sorted);
}

#[test]
fn watchers_are_told_of_changes_and_of_nothing_else() {
    let mut store = store();
    add(&mut store, b"key", b"1");
    let touched = |store: &mut Store, act: &mut dyn FnMut(&mut Store)| {
        store.watch(7, DB, b"key");
        let before = store.changes();
        act(store);
        let told = !store.take_touched().is_empty();
        assert_eq!(told, store.changes() > before, "what is told is counted");
        store.unwatch_all(7);
        told
    };
    assert!(!touched(&mut store, &mut |store| _ = add(store, b"key", b"1")));
    assert!(touched(&mut store, &mut |store| _ = add(store, b"key", b"2")));
    assert!(!touched(&mut store, &mut |store| _ = remove(store, b"key", b"3")));
    assert!(touched(&mut store, &mut |store| _ = remove(store, b"key", b"2")));
    for number in 0..20 {
        add(&mut store, b"key", format!("member {number}").as_bytes());
    }
    assert!(!touched(&mut store, &mut |store| _ = add(store, b"key", b"member 3")));
    assert!(touched(&mut store, &mut |store| _ = add(store, b"key", b"member 21")));
    assert!(touched(&mut store, &mut |store| _ = set::pop(store, DB, b"key", 1, &mut |_| true, &mut |_| {}).unwrap()));
    assert!(touched(&mut store, &mut |store| _ = set::pop(store, DB, b"key", 100, &mut |_| true, &mut |_| {}).unwrap()));
    assert!(!store.exists(DB, b"key").unwrap());
}

#[test]
fn random_members_are_members_and_distinct_where_asked() {
    for (prefix, count) in [("", 10), ("w", 6), ("member ", 300)] {
        let mut store = store();
        let model: Model = (0..count).map(|number| format!("{prefix}{number}").into_bytes()).collect();
        model.iter().for_each(|member| _ = add(&mut store, b"key", member));
        for (wanted, distinct) in [(1, true), (3, true), (count / 2, true), (1000, true), (50, false)] {
            let mut drawn = Vec::new();
            set::random_members(&mut store, DB, b"key", wanted, distinct, &mut |member| drawn.push(text(member)))
                .unwrap();
            let different: Model = drawn.iter().cloned().collect();
            assert!(different.is_subset(&model));
            let expected = if distinct { wanted.min(count) } else { wanted };
            assert_eq!(drawn.len(), expected, "{prefix}{wanted}");
            assert!(!distinct || different.len() == drawn.len());
        }
    }
}

#[test]
fn what_has_no_room_changes_nothing() {
    let limits = EncodingLimits::default().with(&set::MAX_PACKED_MEMBERS, 4);
    let mut store = Store::create(StoreConfig { max_memory_bytes: 8 << 20, limits, ..config() }).unwrap();
    for number in 0..6 {
        add(&mut store, b"key", format!("member {number}").as_bytes());
        add(&mut store, b"ints", format!("{number}").as_bytes());
    }
    for number in 0..20_000 {
        add(&mut store, if number % 2 == 0 { b"many" } else { b"more" }, format!("number {number}").as_bytes());
    }
    let mut filled = 0;
    for bytes in [1 << 20, 4096, 512, 64, 16, 1] {
        while string::set(&mut store, DB, format!("fill {filled}").as_bytes(), &vec![1; bytes], ExpiryChange::Clear)
            .is_ok()
        {
            filled += 1;
        }
    }
    let mut model: Model = members(&mut store, b"key").into_iter().collect();
    let mut refused = 0;
    for number in 0..500 {
        let member = format!("another member {number} that is longer").into_bytes();
        match set::open_mut(&mut store, DB, b"key").unwrap().add(&member) {
            Ok(new) => assert!(new && model.insert(member)),
            Err(StoreError::OutOfMemory { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        let _ = set::open_mut(&mut store, DB, b"ints").unwrap().add(format!("{}", 1_000_000 + number).as_bytes());
        let _ = set::open_mut(&mut store, DB, format!("new {number}").as_bytes()).unwrap().add(&[7; 300]);
    }
    assert!(refused > 0);
    check(&mut store, b"key", &model);
    let (changes, objects) = (store.changes(), store.arena().stats().objects);
    let sources = [&b"many"[..], b"more"].into_iter();
    let stored = set::store_combination(&mut store, DB, b"key", SetOperation::Union, sources);
    assert!(matches!(stored, Err(StoreError::OutOfMemory { .. })));
    check(&mut store, b"key", &model);
    while store.reclaim_step(1000).unwrap() > 0 {}
    assert_eq!((store.changes(), store.arena().stats().objects), (changes, objects));
    let ints = members(&mut store, b"ints");
    (0..6).for_each(|number: i32| assert!(ints.contains(&number.to_string().into_bytes())));
}

#[test]
fn large_sets_of_every_encoding_are_combined_and_kept_piece_by_piece() {
    let limits = EncodingLimits::default().with(&set::MAX_INTS, 4000).with(&set::MAX_PACKED_MEMBERS, 4000);
    let mut store = Store::create(StoreConfig { limits, ..config() }).unwrap();
    let texts =
        |numbers: std::ops::Range<u32>| numbers.map(|number| number.to_string().into_bytes()).collect::<Model>();
    let mut models = vec![texts(0..4000), texts(1000..3000), texts(2000..9000)];
    models[1].insert(b"a word".to_vec());
    for (key, model) in KEYS.iter().zip(&models) {
        model.iter().for_each(|member| assert!(add(&mut store, key, member)));
    }
    let encodings: Vec<_> = KEYS[..3].iter().map(|key| store.encoding(DB, key).unwrap().unwrap()).collect();
    assert_eq!(encodings, ["intset", "listpack", "hashtable"]);
    for how in [SetOperation::Intersection, SetOperation::Union, SetOperation::Difference] {
        for keys in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 1, 1]] {
            let expected = expected(&models, &keys, how);
            let sources = keys.iter().map(|&key| KEYS[key]);
            assert_eq!(set::store_combination(&mut store, DB, b"to", how, sources).unwrap(), expected.len());
            check(&mut store, b"to", &expected);
        }
    }
}

#[test]
fn each_member_that_comes_or_goes_counts_as_a_change_and_the_key_is_touched_once() {
    let mut store = Store::create(config()).unwrap();
    let mut counted = |f: &mut dyn FnMut(&mut Store)| {
        let before = store.changes();
        f(&mut store);
        store.changes() - before
    };
    let adds = |store: &mut Store, members: &[&[u8]]| {
        let mut set = set::open_mut(store, DB, b"key").unwrap();
        members.iter().for_each(|member| _ = set.add(member).unwrap());
    };
    assert_eq!(counted(&mut |store| adds(store, &[b"1", b"2", b"2", b"3"])), 3);
    assert_eq!(counted(&mut |store| adds(store, &[b"1", b"2"])), 0);
    assert_eq!(counted(&mut |store| adds(store, &[b"word", b"4"])), 2, "the encoding changes, too");
    assert_eq!(counted(&mut |store| adds(store, &[&[7; 200], b"5"])), 2);
    assert_eq!(counted(&mut |store| assert!(set::move_member(store, DB, b"key", b"other", b"5").unwrap())), 2);
    assert_eq!(counted(&mut |store| adds(store, &[b"5"])), 1);
    assert_eq!(counted(&mut |store| assert!(set::move_member(store, DB, b"key", b"other", b"5").unwrap())), 1);
    assert_eq!(counted(&mut |store| _ = set::pop(store, DB, b"key", 2, &mut |_| true, &mut |_| {}).unwrap()), 2);
    let removes = |store: &mut Store, members: &[Vec<u8>]| {
        let mut set = set::open_mut(store, DB, b"key").unwrap();
        members.iter().for_each(|member| _ = set.remove(member).unwrap());
    };
    let all = members(&mut store, b"key");
    let before = store.changes();
    removes(&mut store, &all);
    removes(&mut store, &all);
    assert_eq!((store.changes() - before, store.kind(DB, b"key").unwrap()), (all.len() as u64, None));
}

#[test]
fn a_packed_set_stays_short_enough_for_one_step_whatever_the_limits_are() {
    let most = |limits: EncodingLimits, limit| limits.with(limit, usize::MAX);
    let limits = [&set::MAX_INTS, &set::MAX_PACKED_MEMBERS, &set::MAX_PACKED_LEN]
        .into_iter()
        .fold(EncodingLimits::default(), most);
    let mut store = Store::create(StoreConfig { limits, ..config() }).unwrap();
    for number in 0..9000 {
        if number < 100 {
            add(&mut store, b"long", format!("{number:8000}").as_bytes());
            let packed = store.encoding(DB, b"long").unwrap() == Some("listpack");
            assert_eq!(packed, (number + 1) * 8002 + 2 <= 512 << 10, "{number}");
        }
        add(&mut store, b"many", format!("word:{number}").as_bytes());
        add(&mut store, b"ints", number.to_string().as_bytes());
    }
    for key in [&b"many"[..], b"ints"] {
        assert_eq!(store.encoding(DB, key).unwrap(), Some("hashtable"));
        assert!(store.check_value(DB, key).unwrap());
    }
}

#[test]
fn values_that_are_freed_in_steps_are_counted_when_they_are_gone() {
    let mut store = store();
    let fill = |store: &mut Store| {
        for member in 0..200 {
            add(store, b"a", format!("member:{member}").as_bytes());
        }
        add(store, b"b", b"x");
    };
    let freed = |store: &mut Store| {
        while store.reclaim_step(100).unwrap() > 0 {}
        store.stats().freed_in_steps
    };
    fill(&mut store);
    store.remove(DB, b"b").unwrap();
    assert_eq!(freed(&mut store), 0, "a small value is freed at once");
    store.remove(DB, b"a").unwrap();
    assert_eq!((store.stats().freed_in_steps, freed(&mut store)), (0, 1));
    store.reset_stats();
    fill(&mut store);
    store.flush(DB).unwrap();
    assert_eq!(freed(&mut store), 2, "of a database that is emptied each value counts once");
}
