//! Sorted sets against a model from `std`, through both encodings, refused growth, images and copies.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate};
use quire_store::{Cut, DbId, Direction, ExpiryChange, Store, StoreConfig, StoreError, string};

use crate::common::zsets::{Members, ZERO, all, limits, part, set_scores, store_of};
use crate::common::{image_of, open};

const KEYS: [&[u8]; 2] = [b"a", b"b"];

fn numbered(count: u32) -> impl Iterator<Item = (f64, Vec<u8>)> {
    (0..count)
        .map(|number| (f64::from(number.wrapping_mul(2_654_435_761) % 5000), format!("member:{number}").into_bytes()))
}

#[derive(Clone, Debug)]
enum Op {
    Set(usize, Vec<(Vec<u8>, f64)>),
    Add(usize, Vec<u8>, f64),
    Remove(usize, Vec<Vec<u8>>),
    RemoveRanks(usize, u64, u64),
    Pop(usize, Direction, u64),
    Fill(usize, u32, u32, bool),
    Thin(usize, usize),
    EncodingLimit(usize),
    Copy(usize),
    Combine(SetOperation, Aggregate, usize),
    Flush,
    Reopen,
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => (0u32..200).prop_map(|number| format!("m{number}").into_bytes()),
        2 => prop::collection::vec(0u8..3, 0..6),
        1 => (60usize..70).prop_map(|len| vec![b'x'; len]),
        1 => (100usize..3000).prop_map(|len| vec![b'y'; len]),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-5i32..12).prop_map(f64::from),
        2 => -1e6..1e6,
        1 => prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.5, 1e300, f64::MIN_POSITIVE]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS.len();
    let how = prop_oneof![Just(SetOperation::Intersection), Just(SetOperation::Union), Just(SetOperation::Difference)];
    let aggregate = prop_oneof![Just(Aggregate::Sum), Just(Aggregate::Min), Just(Aggregate::Max)];
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    prop_oneof![
        6 => (key(), prop::collection::vec((member(), score()), 1..60)).prop_map(|(key, all)| Op::Set(key, all)),
        3 => (key(), member(), score()).prop_map(|(key, member, by)| Op::Add(key, member, by)),
        3 => (key(), prop::collection::vec(member(), 1..40)).prop_map(|(key, all)| Op::Remove(key, all)),
        1 => (key(), 0u64..80, 0u64..60).prop_map(|(key, start, part)| Op::RemoveRanks(key, start, part)),
        1 => (key(), direction, 0u64..30).prop_map(|(key, from, count)| Op::Pop(key, from, count)),
        2 => (key(), 0u32..3000, 100u32..1500, any::<bool>()).prop_map(|(key, from, count, up)| Op::Fill(key, from, count, up)),
        1 => (key(), 2usize..12).prop_map(|(key, one_in)| Op::Thin(key, one_in)),
        1 => prop_oneof![0usize..6, Just(128), Just(1000)].prop_map(Op::EncodingLimit),
        1 => key().prop_map(Op::Copy),
        1 => (how, aggregate, key()).prop_map(|(how, aggregate, to)| Op::Combine(how, aggregate, to)),
        1 => Just(Op::Flush),
        1 => Just(Op::Reopen),
    ]
}

type Model = [BTreeMap<Vec<u8>, f64>; 2];

fn compare(one: &(f64, Vec<u8>), other: &(f64, Vec<u8>)) -> Ordering {
    one.0.partial_cmp(&other.0).unwrap().then_with(|| one.1.cmp(&other.1))
}

fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Members {
    let mut members: Members = model.iter().map(|(member, score)| (*score, member.clone())).collect();
    members.sort_by(compare);
    members
}

fn apply(store: &mut Store, model: &mut Model, op: Op) {
    match op {
        Op::Set(key, members) => {
            let mut zset = zset::open_mut(store, ZERO, KEYS[key]).unwrap();
            for (member, score) in members {
                let change = zset.set(&member, score).unwrap();
                let before = model[key].get(&member).copied();
                assert_eq!((change.before, change.after), (before, Some(score)));
                if before != Some(score) {
                    model[key].insert(member, score);
                }
            }
        }
        Op::Add(key, member, by) => {
            let mut zset = zset::open_mut(store, ZERO, KEYS[key]).unwrap();
            let done = zset.update(&member, |before| Some(before.unwrap_or(0.0) + by));
            let sum = model[key].get(&member).copied().unwrap_or(0.0) + by;
            if sum.is_nan() {
                assert!(matches!(done, Err(StoreError::NotFloat)));
            } else if model[key].get(&member) != Some(&sum) {
                model[key].insert(member, sum);
            }
        }
        Op::Remove(key, members) => {
            let mut zset = zset::open_mut(store, ZERO, KEYS[key]).unwrap();
            for member in members {
                assert_eq!(zset.remove(&member).unwrap(), model[key].remove(&member).is_some());
            }
        }
        Op::RemoveRanks(key, start, part) => {
            let (members, len) = (sorted(&model[key]), model[key].len() as u64);
            let ranks = len * start / 100..len * start / 100 + len * part / 100;
            let removed = zset::open_mut(store, ZERO, KEYS[key]).unwrap().remove_ranks(ranks.clone()).unwrap();
            let gone = &members[ranks.start as usize..(ranks.end.min(len)) as usize];
            assert_eq!(removed, gone.len() as u64);
            gone.iter().for_each(|(_, member)| _ = model[key].remove(member));
        }
        Op::Pop(key, from, count) => {
            let (mut members, mut popped) = (sorted(&model[key]), Vec::new());
            let mut zset = zset::open_mut(store, ZERO, KEYS[key]).unwrap();
            zset.pop(from, count, &mut |score, member| {
                popped.push((score, member.to_vec()));
                true
            })
            .unwrap();
            if from == Direction::Down {
                members.reverse();
            }
            members.truncate(count as usize);
            assert_eq!(popped, members);
            members.iter().for_each(|(_, member)| _ = model[key].remove(member));
        }
        other => apply_to_store(store, model, &other),
    }
}

/// What lets many members come or go, or concerns more than one sorted set.
fn apply_to_store(store: &mut Store, model: &mut Model, op: &Op) {
    match *op {
        Op::Fill(key, from, count, up) => {
            let number = |at| if up { from + at } else { from + count - at };
            let members: Vec<_> = (0..count)
                .map(number)
                .map(|number| (f64::from(number / 3), format!("f{number}").into_bytes()))
                .collect();
            set_scores(store, KEYS[key], members.clone());
            model[key].extend(members.into_iter().map(|(score, member)| (member, score)));
        }
        Op::Thin(key, one_in) => {
            let gone: Vec<Vec<u8>> = sorted(&model[key])
                .into_iter()
                .enumerate()
                .filter(|(at, _)| at % one_in != 0)
                .map(|(_, one)| one.1)
                .collect();
            let mut zset = zset::open_mut(store, ZERO, KEYS[key]).unwrap();
            for member in gone {
                assert!(zset.remove(&member).unwrap() && model[key].remove(&member).is_some());
            }
        }
        Op::EncodingLimit(members) => store.set_limits(limits(members)),
        Op::Copy(key) => {
            store.copy(ZERO, KEYS[key], ZERO, KEYS[1 - key], true).unwrap();
            if !model[key].is_empty() {
                model[1 - key] = model[key].clone();
            }
        }
        Op::Combine(how, aggregate, to) => {
            let mut operands = zset::operands(store, ZERO, KEYS.into_iter()).unwrap();
            operands[1].weight = 2.0;
            zset::store_combination(store, ZERO, KEYS[to], how, aggregate, &operands).unwrap();
            model[to] = combined(model, how, aggregate);
        }
        Op::Reopen => {
            let (digest, limits) = (store.digest().unwrap(), store.limits());
            *store = open(&image_of(store)).unwrap();
            store.set_limits(limits);
            assert_eq!(store.digest().unwrap(), digest);
        }
        Op::Flush => {
            let _ = store.remove(ZERO, KEYS[0]).unwrap();
            model[0].clear();
            while store.reclaim_step(50).unwrap() > 0 {}
        }
        _ => unreachable!(),
    }
}

/// The second one's scores count twice.
fn combined(model: &Model, how: SetOperation, aggregate: Aggregate) -> BTreeMap<Vec<u8>, f64> {
    let both = |first: f64, second: f64| match aggregate {
        Aggregate::Sum if (first + second).is_nan() => 0.0,
        Aggregate::Sum => first + second,
        Aggregate::Min => first.min(second),
        Aggregate::Max => first.max(second),
    };
    let mut result = BTreeMap::new();
    for (member, &score) in &model[0] {
        match (how, model[1].get(member)) {
            (SetOperation::Difference, Some(_)) | (SetOperation::Intersection, None) => continue,
            (SetOperation::Difference | SetOperation::Union, None) => result.insert(member.clone(), score),
            (_, Some(other)) => result.insert(member.clone(), both(score, other * 2.0)),
        };
    }
    if how == SetOperation::Union {
        for (member, &score) in model[1].iter().filter(|(member, _)| !model[0].contains_key(*member)) {
            result.insert(member.clone(), score * 2.0);
        }
    }
    result
}

fn check(store: &mut Store, model: &Model) {
    for (key, expected) in KEYS.into_iter().zip(model) {
        assert_eq!(store.check_value(ZERO, key).unwrap(), !expected.is_empty());
        let members = sorted(expected);
        assert_eq!(all(store, key), members);
        let len = members.len() as u64;
        let mut middle = members[members.len() / 3..members.len() * 2 / 3].to_vec();
        middle.reverse();
        assert_eq!(part(store, key, len / 3..len * 2 / 3, Direction::Down), middle);
        let zset = zset::view(store, ZERO, key).unwrap();
        assert_eq!(zset.len().unwrap(), len);
        for (rank, (score, member)) in members.iter().enumerate().step_by(7) {
            assert_eq!(zset.rank(member).unwrap(), Some((rank as u64, *score)));
            assert_eq!(zset.score(member).unwrap(), Some(*score));
        }
        for bound in [-3.0, 0.0, 0.5, 7.0, 1e5, f64::INFINITY, f64::NEG_INFINITY] {
            let below = members.iter().filter(|(score, _)| *score < bound).count() as u64;
            let up_to = members.iter().filter(|(score, _)| *score <= bound).count() as u64;
            assert_eq!(zset.ranks_between(&Cut::BelowScore(bound), &Cut::UpToScore(bound)).unwrap(), below..up_to);
        }
        assert_eq!(zset.score(b"never a member").unwrap(), None);
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = zset.scan(cursor, 10, &mut |score, member| scanned.push((score, member.to_vec()))).unwrap();
            if cursor == 0 {
                break;
            }
        }
        scanned.sort_by(compare);
        assert_eq!(scanned, members);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn sorted_sets_behave_as_sorted_maps(limit in prop_oneof![Just(128usize), Just(5), Just(0)], ops in prop::collection::vec(op(), 1..40)) {
        let mut store = store_of(limit);
        let mut model = Model::default();
        for op in ops {
            apply(&mut store, &mut model, op);
            check(&mut store, &model);
        }
        store.flush_all().unwrap();
        while store.reclaim_step(1000).unwrap() > 0 {}
        // The root, and the empty tables' own: nothing of a sorted set is left.
        let left = store.stats().arena.objects;
        let mut empty = store_of(limit);
        set_scores(&mut empty, b"a", [(1.0, b"1".to_vec())]);
        empty.flush_all().unwrap();
        while empty.reclaim_step(1000).unwrap() > 0 {}
        prop_assert_eq!(left, empty.stats().arena.objects);
    }

    #[test]
    fn members_of_equal_scores_are_in_the_order_of_their_bytes(
        members in prop::collection::btree_set(prop::collection::vec(0u8..4, 0..8), 1..400),
        bounds in prop::collection::vec(prop::collection::vec(0u8..4, 0..8), 4),
        packed: bool,
    ) {
        let mut store = store_of(if packed { 8000 } else { 0 });
        set_scores(&mut store, b"a", members.iter().rev().map(|member| (1.0, member.clone())));
        let zset = zset::view(&mut store, ZERO, b"a").unwrap();
        for bound in &bounds {
            let below = members.iter().filter(|member| *member < bound).count() as u64;
            let up_to = members.iter().filter(|member| *member <= bound).count() as u64;
            prop_assert_eq!(zset.ranks_between(&Cut::BelowMember(bound), &Cut::End).unwrap(), below..members.len() as u64);
            prop_assert_eq!(zset.ranks_between(&Cut::Start, &Cut::UpToMember(bound)).unwrap(), 0..up_to);
        }
    }
}

#[test]
fn encodings_change_at_redis_limits() {
    let mut store = store_of(128);
    let encoding = |store: &Store, key: &[u8]| store.encoding(ZERO, key).unwrap().unwrap();
    for (number, (score, member)) in numbered(130).enumerate() {
        set_scores(&mut store, b"a", [(score, member)]);
        assert_eq!(encoding(&store, b"a"), if number < 128 { "listpack" } else { "skiplist" }, "{number}");
    }
    set_scores(&mut store, b"b", [(1.0, vec![b'x'; 64])]);
    assert_eq!(encoding(&store, b"b"), "listpack");
    set_scores(&mut store, b"b", [(1.0, vec![b'x'; 65])]);
    assert_eq!(encoding(&store, b"b"), "skiplist");
    set_scores(&mut store, b"c", [(1.0, vec![b'x'; 65])]);
    assert_eq!(encoding(&store, b"c"), "skiplist");
    zset::open_mut(&mut store, ZERO, b"a").unwrap().remove_ranks(1..500).unwrap();
    assert_eq!((encoding(&store, b"a"), all(&mut store, b"a").len()), ("skiplist", 1));
}

#[test]
fn a_member_costs_less_than_three_quarters_of_what_redis_takes() {
    let mut store = store_of(128);
    let members = 200_000;
    set_scores(
        &mut store,
        b"a",
        (0..members).map(|number: u32| {
            (f64::from(number.wrapping_mul(2_654_435_761) >> 8), format!("member:{number:07}").into_bytes())
        }),
    );
    // A node of 1.33 levels on average (24 + 16 × 1.33, in 48 or 64 bytes), a string of 16, an entry of 24 and its place of 8 to 16.
    let bytes = store.memory_usage(ZERO, b"a").unwrap().unwrap() / u64::from(members);
    assert!(bytes <= 100 * 3 / 4, "{bytes} bytes a member");
    // In order, as times come, the nodes are full.
    set_scores(
        &mut store,
        b"b",
        (0..members).map(|number| (f64::from(number), format!("member:{number:07}").into_bytes())),
    );
    let in_order = store.memory_usage(ZERO, b"b").unwrap().unwrap() / u64::from(members);
    assert!(in_order <= 56 && in_order < bytes, "{in_order} bytes of {bytes}");
    assert!(store.check_value(ZERO, b"b").unwrap());
}

#[test]
fn growth_without_memory_is_refused_and_leaves_the_sorted_set_as_it_was() {
    let config = StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    let (mut refused, mut moved) = (0, 0);
    for number in 0..1_000_000u32 {
        let before = zset::view(&mut store, ZERO, b"a").unwrap().len().unwrap();
        let len = [900, 30, 8, 8][number as usize % 4];
        // A few of those that are there get other scores.
        let name = if number % 5 == 0 { number / 2 } else { number };
        let member = [name.to_string().into_bytes(), vec![b'm'; [900, 30, 8, 8][name as usize % 4]]].concat();
        let score = f64::from(number.wrapping_mul(2_654_435_761) % 100_000);
        let old = zset::view(&mut store, ZERO, b"a").unwrap().score(&member).unwrap();
        let done = zset::open_mut(&mut store, ZERO, b"a").unwrap().set(&member, score);
        match done {
            Ok(_) => moved += u32::from(old.is_some()),
            Err(error) => {
                assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error} at {len}");
                let zset = zset::view(&mut store, ZERO, b"a").unwrap();
                assert_eq!((zset.len().unwrap(), zset.score(&member).unwrap()), (before, old));
                refused += 1;
                if refused % 50 == 0 {
                    assert!(store.check_value(ZERO, b"a").unwrap());
                }
                if refused > 1000 {
                    break;
                }
            }
        }
    }
    assert!(refused > 1000 && moved > 100, "{refused} refused, {moved} moved");
    // What makes a sorted set shorter needs no memory.
    assert!(store.check_value(ZERO, b"a").unwrap());
    while zset::open_mut(&mut store, ZERO, b"a").unwrap().pop(Direction::Up, 3, &mut |_, _| true).unwrap() > 0 {}
    assert!(!store.exists(ZERO, b"a").unwrap());
}

#[test]
fn a_split_for_which_there_is_memory_for_some_nodes_only_is_refused_whole() {
    let config =
        StoreConfig { max_memory_bytes: 4 << 20, budget_bytes: 1 << 20, limits: limits(0), ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    // A leaf that is the whole tree, and full: the next member takes another one and a root.
    set_scores(&mut store, b"a", numbered(84));
    let objects: Vec<(usize, u64)> = [1000, 8]
        .into_iter()
        .flat_map(|len| {
            (0u64..)
                .map(move |number| (len, number))
                .take_while(|&(len, number)| {
                    let key = [&[len as u8; 2][..], &number.to_le_bytes()[..6]].concat();
                    string::set(&mut store, DbId(1), &key, &vec![b'f'; len], ExpiryChange::Clear).is_ok()
                })
                .collect::<Vec<_>>()
        })
        .collect();
    let mut refused = 0;
    for &(len, number) in objects.iter().filter(|(len, _)| *len == 8).take(20).chain(&objects) {
        store.remove(DbId(1), &[&[len as u8; 2][..], &number.to_le_bytes()[..6]].concat()).unwrap();
        let added = zset::open_mut(&mut store, ZERO, b"a").unwrap().set(b"another", 2500.5);
        assert!(store.check_value(ZERO, b"a").unwrap());
        if added.is_ok() {
            break;
        }
        assert_eq!(zset::view(&mut store, ZERO, b"a").unwrap().len().unwrap(), 84);
        refused += 1;
    }
    assert!(refused > 20 && zset::view(&mut store, ZERO, b"a").unwrap().len().unwrap() == 85, "{refused}");
}

#[test]
fn a_conversion_for_a_member_that_is_then_refused_is_no_change() {
    let config = StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    set_scores(&mut store, b"a", [(1.0, b"first".to_vec())]);
    let (changes, large) = (store.changes(), vec![b'x'; 8 << 20]);
    store.watch(1, ZERO, b"a");
    let refused = zset::open_mut(&mut store, ZERO, b"a").unwrap().set(&large, 2.0);
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
    assert_eq!((store.changes(), store.take_touched()), (changes, vec![]));
    assert_eq!(store.encoding(ZERO, b"a").unwrap(), Some("skiplist"));
    assert_eq!(all(&mut store, b"a"), [(1.0, b"first".to_vec())]);
    set_scores(&mut store, b"a", [(0.5, b"second".to_vec())]);
    assert_eq!((store.changes(), store.take_touched()), (changes + 1, vec![1]));
}

#[test]
fn a_large_sorted_set_is_freed_and_copied_in_steps() {
    let mut store = store_of(128);
    set_scores(&mut store, b"a", numbered(4000));
    let members = all(&mut store, b"a");
    let mut progress = store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
    let mut steps = 0;
    while progress != quire_store::CopyProgress::Done(true) {
        assert!(!store.exists(ZERO, b"b").unwrap());
        store.copy_step(100).unwrap();
        progress = store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
        steps += 1;
    }
    // Each member is copied once, and linked once.
    assert!(steps > 75 && store.longest_copy_step() <= 102, "{steps} steps, {}", store.longest_copy_step());
    assert_eq!(all(&mut store, b"b"), members);
    assert!(store.check_value(ZERO, b"b").unwrap());
    store.remove(ZERO, b"a").unwrap();
    assert!(store.stats().reclaim_pending > 0);
    let mut turns = 0;
    while store.reclaim_step(100).unwrap() > 0 {
        turns += 1;
    }
    assert!(turns > 30);
    assert_eq!(all(&mut store, b"b"), members);
    assert!(store.check_value(ZERO, b"b").unwrap());
}

#[test]
fn the_steps_that_link_a_copy_count_the_bytes_that_they_compare() {
    let mut store = store_of(128);
    set_scores(&mut store, b"a", (0..200u32).map(|number| (f64::from(number), vec![number as u8; 8 << 10])));
    let mut steps = 0;
    while store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap() != quire_store::CopyProgress::Done(true) {
        store.copy_step(100).unwrap();
        steps += 1;
    }
    // Each member weighs nine or more when it is copied, and nine when it is linked.
    assert!(steps >= 30, "{steps} steps");
    assert!(store.longest_copy_step() <= 100 + 16, "{}", store.longest_copy_step());
    assert!(store.check_value(ZERO, b"b").unwrap());
}

#[test]
fn a_copy_of_a_large_sorted_set_whose_source_changes_begins_anew() {
    let changes: [fn(&mut Store); 5] = [
        |store| set_scores(store, b"a", [(3.0, b"new".to_vec())]),
        |store| set_scores(store, b"a", [(-7.0, b"member:99".to_vec())]),
        |store| assert!(zset::open_mut(store, ZERO, b"a").unwrap().remove(b"member:77").unwrap()),
        |store| assert_eq!(zset::open_mut(store, ZERO, b"a").unwrap().remove_ranks(5..50).unwrap(), 45),
        |store| {
            assert_eq!(zset::open_mut(store, ZERO, b"a").unwrap().pop(Direction::Down, 1, &mut |_, _| true).unwrap(), 1)
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for steps in [1, 45] {
            let mut store = store_of(128);
            set_scores(&mut store, b"a", numbered(2500));
            let members = all(&mut store, b"a");
            let ask = |store: &mut Store| store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
            assert_eq!(ask(&mut store), quire_store::CopyProgress::UnderWay);
            (0..steps).for_each(|_| _ = store.copy_step(100).unwrap());
            change(&mut store);
            let mut asked = 0;
            while ask(&mut store) != quire_store::CopyProgress::Done(true) {
                store.copy_step(100).unwrap();
                asked += 1;
            }
            assert!(asked > 15, "{number}");
            let source = all(&mut store, b"a");
            assert_eq!(all(&mut store, b"b"), source, "{number}");
            assert!(source != members && store.check_value(ZERO, b"b").unwrap(), "{number}");
        }
    }
}

#[test]
fn random_members_are_members_and_distinct_ones_are_different() {
    for limit in [128, 0] {
        let mut store = store_of(limit);
        set_scores(&mut store, b"a", numbered(100));
        let members = all(&mut store, b"a");
        for (n, distinct, expected) in
            [(5, true, 5), (99, true, 99), (500, true, 100), (300, false, 300), (0, false, 0)]
        {
            let mut drawn = Vec::new();
            zset::random_members(&mut store, ZERO, b"a", n, distinct, &mut |score, member| {
                drawn.push((score, member.to_vec()))
            })
            .unwrap();
            assert_eq!(drawn.len(), expected);
            assert!(drawn.iter().all(|one| members.contains(one)));
            drawn.sort_by(compare);
            drawn.dedup();
            assert!(!distinct || drawn.len() == expected);
        }
    }
}
