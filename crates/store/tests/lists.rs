//! Lists against a model from `std`, through both encodings, refused growth, images and copies.

use std::collections::VecDeque;

use proptest::prelude::*;
use quire_store::list::{self, End};
use quire_store::{DbId, Element, EncodingLimits, Keyspace, Store, StoreConfig, StoreError};

use crate::common::{image_of, open};

const ZERO: DbId = DbId(0);
const KEYS: [&[u8]; 2] = [b"a", b"b"];

fn limits(node: i64) -> EncodingLimits {
    let mut limits = EncodingLimits::default();
    limits.set(&list::MAX_NODE, node);
    limits
}

fn store_of(node: i64) -> Store {
    let config = StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        limits: limits(node),
        ..StoreConfig::default()
    };
    Store::create(config).unwrap()
}

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut itoa::Buffer::new()).to_vec()
}

fn all(store: &mut Keyspace, key: &[u8]) -> Vec<Vec<u8>> {
    let list = list::view(store, ZERO, key).unwrap();
    let (len, mut elements) = (list.len().unwrap(), Vec::new());
    list.range(0..len, |element| elements.push(text(element))).unwrap();
    elements
}

fn push(store: &mut Keyspace, key: &[u8], end: End, elements: &[Vec<u8>]) {
    let mut list = list::open_mut(store, ZERO, key).unwrap();
    list.make_room(elements.iter().map(Vec::as_slice)).unwrap();
    for element in elements {
        list.push(end, element).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize, End, Vec<Vec<u8>>),
    Pop(usize, End, u64),
    Set(usize, u64, Vec<u8>),
    Insert(usize, Vec<u8>, bool, Vec<u8>),
    Remove(usize, End, Vec<u8>, u64),
    Keep(usize, u64, u64),
    KeepPart(usize, u64, u64),
    Fill(usize, u64),
    Move(usize, End, usize, End),
    EncodingLimit(i64),
    Copy(usize),
    Flush,
    Reopen,
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-3i64..12).prop_map(|number| number.to_string().into_bytes()),
        2 => (0u32..64, any::<i64>()).prop_map(|(shift, number)| (number >> shift).to_string().into_bytes()),
        3 => prop::collection::vec(0u8..3, 0..200),
        2 => (0usize..3000).prop_map(|len| vec![b'x'; len]),
        1 => (0usize..20_000).prop_map(|len| vec![b'y'; len]),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS.len();
    prop_oneof![
        6 => (key(), end(), prop::collection::vec(element(), 1..60)).prop_map(|(key, end, all)| Op::Push(key, end, all)),
        2 => (key(), end(), 0u64..40).prop_map(|(key, end, count)| Op::Pop(key, end, count)),
        3 => (key(), 0u64..120, element()).prop_map(|(key, index, element)| Op::Set(key, index, element)),
        4 => (key(), element(), any::<bool>(), element()).prop_map(|(key, pivot, behind, element)| Op::Insert(key, pivot, behind, element)),
        2 => (key(), end(), element(), 0u64..5).prop_map(|(key, end, element, most)| Op::Remove(key, end, element, most)),
        1 => (key(), 0u64..20, 0u64..60).prop_map(|(key, front, back)| Op::Keep(key, front, back)),
        1 => (key(), 0u64..100, 0u64..60).prop_map(|(key, start, part)| Op::KeepPart(key, start, part)),
        1 => (key(), 100u64..1000).prop_map(|(key, count)| Op::Fill(key, count)),
        2 => (key(), end(), key(), end()).prop_map(|(from, from_end, to, to_end)| Op::Move(from, from_end, to, to_end)),
        1 => prop_oneof![-5i64..0, 0i64..6, Just(100)].prop_map(Op::EncodingLimit),
        1 => key().prop_map(Op::Copy),
        1 => Just(Op::Flush),
        1 => Just(Op::Reopen),
    ]
}

type Model = [VecDeque<Vec<u8>>; 2];

fn take(list: &mut VecDeque<Vec<u8>>, end: End) -> Option<Vec<u8>> {
    if end == End::Front { list.pop_front() } else { list.pop_back() }
}

fn put(list: &mut VecDeque<Vec<u8>>, end: End, element: Vec<u8>) {
    if end == End::Front { list.push_front(element) } else { list.push_back(element) }
}

fn apply(store: &mut Store, model: &mut Model, op: Op) {
    match op {
        Op::Push(key, end, elements) => {
            push(store, KEYS[key], end, &elements);
            elements.into_iter().for_each(|element| put(&mut model[key], end, element));
        }
        Op::Pop(key, end, count) => {
            let mut popped = Vec::new();
            let mut list = list::open_mut(store, ZERO, KEYS[key]).unwrap();
            list.pop(end, count, &mut |element| {
                popped.push(text(element));
                true
            })
            .unwrap();
            let expected: Vec<_> = (0..count).map_while(|_| take(&mut model[key], end)).collect();
            assert_eq!(popped, expected);
        }
        Op::Set(key, index, element) => {
            let mut list = list::open_mut(store, ZERO, KEYS[key]).unwrap();
            list.make_room([element.as_slice()]).unwrap();
            let found = list.set(index, &element).unwrap();
            let slot = model[key].get_mut(index as usize);
            assert_eq!(found, slot.is_some());
            slot.into_iter().for_each(|slot| slot.clone_from(&element));
        }
        Op::Insert(key, pivot, behind, element) => {
            let found = list::open_mut(store, ZERO, KEYS[key]).unwrap().insert(&pivot, behind, &element).unwrap();
            let at = model[key].iter().position(|other| *other == pivot);
            assert_eq!(found, at.is_some());
            at.into_iter().for_each(|at| model[key].insert(at + usize::from(behind), element.clone()));
        }
        Op::Remove(key, end, element, most) => {
            let removed = list::open_mut(store, ZERO, KEYS[key]).unwrap().remove(end, &element, most).unwrap();
            let mut expected = 0;
            while expected < most {
                let mut at = model[key].iter();
                let found =
                    if end == End::Front { at.position(|e| *e == element) } else { at.rposition(|e| *e == element) };
                let Some(at) = found else { break };
                model[key].remove(at);
                expected += 1;
            }
            assert_eq!(removed, expected);
        }
        Op::Move(from, from_end, to, to_end) => {
            let moved = list::move_element(store, ZERO, (KEYS[from], from_end), (KEYS[to], to_end)).unwrap();
            let expected = take(&mut model[from], from_end);
            assert_eq!(moved, expected);
            expected.into_iter().for_each(|element| put(&mut model[to], to_end, element));
        }
        other => apply_to_store(store, model, &other),
    }
}

/// What lets many elements come or go, or concerns more than one list.
fn apply_to_store(store: &mut Store, model: &mut Model, op: &Op) {
    match *op {
        Op::Keep(key, front, back) => {
            let len = model[key].len() as u64;
            let range = front.min(len)..len.saturating_sub(back).max(front.min(len));
            list::open_mut(store, ZERO, KEYS[key]).unwrap().keep(range.clone()).unwrap();
            model[key].truncate(range.end as usize);
            model[key].drain(..range.start as usize);
        }
        Op::KeepPart(key, start, part) => {
            // Percents, so that long lists lose most of their nodes, too.
            let len = model[key].len() as u64;
            let range = len * start / 100..(len * start / 100 + (len * part / 100)).min(len);
            list::open_mut(store, ZERO, KEYS[key]).unwrap().keep(range.clone()).unwrap();
            model[key].truncate(range.end as usize);
            model[key].drain(..range.start as usize);
        }
        Op::Fill(key, count) => {
            let elements: Vec<_> = (0..count).map(|number| number.to_string().repeat(20).into_bytes()).collect();
            push(store, KEYS[key], End::Back, &elements);
            model[key].extend(elements);
        }
        Op::EncodingLimit(node) => store.set_limits(limits(node)),
        Op::Copy(key) => {
            store.copy(ZERO, KEYS[key], ZERO, KEYS[1 - key], true).unwrap();
            if !model[key].is_empty() {
                model[1 - key] = model[key].clone();
            }
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

fn check(store: &mut Store, model: &Model) {
    for (key, expected) in KEYS.into_iter().zip(model) {
        assert_eq!(store.check_value(ZERO, key).unwrap(), !expected.is_empty());
        assert!(all(store, key).iter().eq(expected.iter()));
        let list = list::view(store, ZERO, key).unwrap();
        for index in (0..expected.len()).step_by(7) {
            assert_eq!(list.get(index as u64).unwrap().map(text).as_ref(), expected.get(index));
        }
        let mut backward = Vec::new();
        if let Some(last) = expected.len().checked_sub(1) {
            list.walk(End::Back, last as u64, |element| {
                backward.push(text(element));
                true
            })
            .unwrap();
        }
        assert!(backward.iter().eq(expected.iter().rev()));
        let mut found = Vec::new();
        list.positions(End::Back, b"3", u64::MAX, |index| {
            found.push(index as usize);
            true
        })
        .unwrap();
        let positions = (0..expected.len()).rev().filter(|&index| expected[index] == b"3");
        assert!(positions.eq(found));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn lists_behave_as_queues_of_bytes(node in prop_oneof![Just(-2i64), Just(-1), Just(3), Just(-3)], ops in prop::collection::vec(op(), 1..60)) {
        let mut store = store_of(node);
        let mut model = Model::default();
        for op in ops {
            apply(&mut store, &mut model, op);
            check(&mut store, &model);
        }
        store.flush_all().unwrap();
        while store.reclaim_step(1000).unwrap() > 0 {}
        // The root, and the empty tables' own: nothing of a list is left.
        let left = store.stats().arena.objects;
        let mut empty = store_of(node);
        push(&mut empty, b"a", End::Back, &[b"1".to_vec()]);
        empty.flush_all().unwrap();
        while empty.reclaim_step(1000).unwrap() > 0 {}
        prop_assert_eq!(left, empty.stats().arena.objects);
    }
}

#[test]
fn encodings_change_at_redis_limits_and_back_at_half() {
    let mut store = store_of(-2);
    let encoding = |store: &Store| store.encoding(ZERO, b"a").unwrap().unwrap();
    for number in 0..80 {
        push(&mut store, b"a", End::Back, &[vec![b'a' + number % 3; 100]]);
        assert_eq!(encoding(&store), if number < 79 { "listpack" } else { "quicklist" }, "{number}");
    }
    list::open_mut(&mut store, ZERO, b"a").unwrap().pop(End::Back, 40, &mut |_| true).unwrap();
    assert_eq!(encoding(&store), "quicklist");
    list::open_mut(&mut store, ZERO, b"a").unwrap().pop(End::Back, 1, &mut |_| true).unwrap();
    assert_eq!(encoding(&store), "listpack");
    store.check_value(ZERO, b"a").unwrap();
    push(&mut store, b"big", End::Back, &[vec![7; 10_000]]);
    assert_eq!(store.encoding(ZERO, b"big").unwrap(), Some("quicklist"));
}

#[test]
fn an_element_costs_no_more_than_in_redis() {
    let mut store = store_of(-2);
    for number in 0..200_000 {
        push(&mut store, b"a", End::Back, &[format!("element:{number:08}").into_bytes()]);
    }
    // A listpack entry of 16 bytes takes 18; Redis has 32 bytes of node and 8192 of listpack for 454 of them.
    let bytes = store.memory_usage(ZERO, b"a").unwrap().unwrap();
    let redis = 200_000 * (8192 + 32) / ((8192 - 7) / 18);
    assert!(bytes <= redis + 4096, "{bytes} bytes, Redis {redis}");
}

#[test]
fn growth_without_memory_is_refused_and_leaves_the_list_as_it_was() {
    let config = StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    let mut refused = 0;
    for number in 0..100_000u32 {
        let before = list::view(&mut store, ZERO, b"a").unwrap().len().unwrap();
        let element = vec![number as u8; 50 + number as usize % 900];
        let middle = list::view(&mut store, ZERO, b"a").unwrap().get(before / 2).unwrap().map(text);
        let done = {
            let mut list = list::open_mut(&mut store, ZERO, b"a").unwrap();
            match number % 3 {
                0 => list.make_room([element.as_slice()]).and_then(|()| list.push(End::Front, &element)),
                1 => list.make_room([element.as_slice()]).and_then(|()| list.push(End::Back, &element)),
                _ => list.insert(&middle.unwrap_or_default(), number % 2 == 0, &element).map(|_| 0),
            }
        };
        if let Err(error) = done {
            assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error}");
            assert_eq!(list::view(&mut store, ZERO, b"a").unwrap().len().unwrap(), before);
            assert!(store.check_value(ZERO, b"a").unwrap());
            refused += 1;
            if refused > 40 {
                break;
            }
        }
    }
    assert!(refused > 40);
    // What makes a list shorter needs no memory.
    while list::open_mut(&mut store, ZERO, b"a").unwrap().pop(End::Front, 3, &mut |_| true).unwrap() > 0 {}
    assert!(!store.exists(ZERO, b"a").unwrap());
}

#[test]
fn a_conversion_for_an_element_that_is_then_refused_is_no_change() {
    let config = StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    push(&mut store, b"a", End::Back, &[b"first".to_vec()]);
    let (changes, large) = (store.changes(), vec![b'x'; 8 << 20]);
    store.watch(1, ZERO, b"a");
    let mut list = list::open_mut(&mut store, ZERO, b"a").unwrap();
    list.make_room([large.as_slice()]).unwrap();
    let refused = list.push(End::Back, &large);
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
    drop(list);
    assert_eq!((store.changes(), store.take_touched()), (changes, vec![]));
    assert_eq!(store.encoding(ZERO, b"a").unwrap(), Some("quicklist"));
    assert_eq!(all(&mut store, b"a"), [b"first".to_vec()]);
    push(&mut store, b"a", End::Back, &[b"second".to_vec()]);
    assert_eq!((store.changes(), store.take_touched()), (changes + 1, vec![1]));
}

#[test]
fn a_long_list_is_freed_and_copied_in_steps() {
    let mut store = store_of(1);
    let elements: Vec<Vec<u8>> = (0..3000).map(|number: u32| number.to_string().into_bytes()).collect();
    push(&mut store, b"a", End::Back, &elements);
    let mut progress = store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
    let mut steps = 0;
    while progress != quire_store::CopyProgress::Done(true) {
        assert!(!store.exists(ZERO, b"b").unwrap());
        store.copy_step(100).unwrap();
        progress = store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
        steps += 1;
    }
    assert!(steps > 20 && store.longest_copy_step() <= 101);
    assert_eq!(all(&mut store, b"b"), elements);
    assert!(store.check_value(ZERO, b"b").unwrap());
    store.remove(ZERO, b"a").unwrap();
    assert!(store.stats().reclaim_pending > 0);
    let mut turns = 0;
    while store.reclaim_step(100).unwrap() > 0 {
        turns += 1;
    }
    assert!(turns > 20);
    assert_eq!(all(&mut store, b"b"), elements);
}

#[test]
fn a_long_list_that_is_trimmed_gives_its_nodes_to_be_freed_in_steps() {
    for (keep, is_short) in
        [(1000..1020, true), (0..30, true), (2950..3000, true), (100..2950, false), (1..3000, false)]
    {
        let mut store = store_of(1);
        let elements: Vec<Vec<u8>> = (0..3000).map(|number: u32| number.to_string().into_bytes()).collect();
        push(&mut store, b"a", End::Back, &elements);
        store.set_expiry(ZERO, b"a", Some(99_000)).unwrap();
        let (objects, changes) = (store.stats().arena.objects, store.changes());
        list::open_mut(&mut store, ZERO, b"a").unwrap().keep(keep.clone()).unwrap();
        let gone = 3000 - (keep.end - keep.start);
        assert_eq!(store.changes() - changes, gone);
        // What stays is moved, what goes is left for later; or what goes is little, and goes at once.
        let freed = objects.saturating_sub(store.stats().arena.objects);
        let pending = store.stats().reclaim_pending;
        assert!(if is_short { freed < 30 && pending == 1 } else { freed >= gone && pending == 0 }, "{keep:?}: {freed}");
        assert!(store.check_value(ZERO, b"a").unwrap());
        assert_eq!(all(&mut store, b"a"), elements[keep.start as usize..keep.end as usize], "{keep:?}");
        assert_eq!(store.expiry(ZERO, b"a").unwrap(), Some(Some(99_000)));
        let mut turns = 0;
        while store.reclaim_step(100).unwrap() > 0 {
            turns += 1;
        }
        assert_eq!(turns > 20, is_short, "{keep:?}: {turns}");
        assert!(objects - store.stats().arena.objects >= gone);
        // It goes on as a list that never was longer.
        push(&mut store, b"a", End::Front, &elements[..100]);
        assert!(store.check_value(ZERO, b"a").unwrap());
        let end = keep.end - keep.start + 100;
        assert_eq!(list::view(&mut store, ZERO, b"a").unwrap().len().unwrap(), end);
    }
}

#[test]
fn a_trimmed_list_is_whole_in_an_image_that_is_cut_before_its_nodes_are_freed() {
    let mut store = store_of(1);
    let elements: Vec<Vec<u8>> = (0..3000).map(|number: u32| number.to_string().into_bytes()).collect();
    push(&mut store, b"a", End::Back, &elements);
    list::open_mut(&mut store, ZERO, b"a").unwrap().pop(End::Front, 2900, &mut |_| true).unwrap();
    let mut again = open(&image_of(&mut store)).unwrap();
    assert_eq!(all(&mut again, b"a"), elements[2900..]);
    assert_eq!(again.stats().reclaim_pending, 1);
    for store in [&mut store, &mut again] {
        while store.reclaim_step(100).unwrap() > 0 {}
        assert!(store.check_value(ZERO, b"a").unwrap());
    }
    assert_eq!(again.stats().arena.objects, store.stats().arena.objects);
}

#[test]
fn a_trim_without_memory_for_another_table_frees_node_by_node() {
    let config =
        StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, limits: limits(1), ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    let push_one = |store: &mut Store, len: usize| {
        let mut list = list::open_mut(store, ZERO, b"a").unwrap();
        list.make_room([vec![b'x'; len].as_slice()]).and_then(|()| list.push(End::Back, &vec![b'x'; len]))
    };
    // Until not even the smallest object has room.
    for len in [500, 100, 20, 1] {
        while push_one(&mut store, len).is_ok() {}
    }
    let len = list::view(&mut store, ZERO, b"a").unwrap().len().unwrap();
    assert!(len > 3000, "{len}");
    let expected = all(&mut store, b"a")[(len / 3) as usize..(len / 3 + len / 5) as usize].to_vec();
    list::open_mut(&mut store, ZERO, b"a").unwrap().keep(len / 3..len / 3 + len / 5).unwrap();
    assert!(store.check_value(ZERO, b"a").unwrap());
    assert_eq!(all(&mut store, b"a"), expected);
    store.flush_all().unwrap();
    while store.reclaim_step(1000).unwrap() > 0 {}
    assert!(store.stats().arena.objects < 10, "{}", store.stats().arena.objects);
}

#[test]
fn an_element_moved_within_its_list_does_not_change_the_encoding() {
    let mut store = store_of(3);
    let elements: Vec<Vec<u8>> = [b"a", b"b", b"c"].iter().map(|element| element.to_vec()).collect();
    push(&mut store, b"a", End::Back, &elements);
    for (from, to, expected) in
        [(End::Front, End::Back, "bca"), (End::Back, End::Back, "bca"), (End::Back, End::Front, "abc")]
    {
        list::move_element(&mut store, ZERO, (b"a", from), (b"a", to)).unwrap();
        assert_eq!(all(&mut store, b"a").concat(), expected.as_bytes());
        assert_eq!(store.encoding(ZERO, b"a").unwrap(), Some("listpack"));
    }
    // Pushed by another one it is too many.
    push(&mut store, b"b", End::Back, &elements[..1]);
    list::move_element(&mut store, ZERO, (b"b", End::Front), (b"a", End::Back)).unwrap();
    assert_eq!(store.encoding(ZERO, b"a").unwrap(), Some("quicklist"));
    assert!(!store.exists(ZERO, b"b").unwrap());
}

#[test]
fn a_copy_of_a_long_list_whose_source_changes_begins_anew() {
    let changes: [fn(&mut Store); 6] = [
        |store| push(store, b"a", End::Back, &[b"new".to_vec()]),
        |store| assert!(list::open_mut(store, ZERO, b"a").unwrap().set(7, b"new").unwrap()),
        |store| assert!(list::open_mut(store, ZERO, b"a").unwrap().insert(b"77", true, b"new").unwrap()),
        |store| assert_eq!(list::open_mut(store, ZERO, b"a").unwrap().remove(End::Front, b"99", 1).unwrap(), 1),
        |store| list::open_mut(store, ZERO, b"a").unwrap().keep(900..2900).unwrap(),
        |store| drop(list::move_element(store, ZERO, (b"a", End::Front), (b"a", End::Back)).unwrap()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut store = store_of(1);
        let elements: Vec<Vec<u8>> = (0..3000).map(|number: u32| number.to_string().into_bytes()).collect();
        push(&mut store, b"a", End::Back, &elements);
        let ask = |store: &mut Store| store.copy_in_steps(1, ZERO, b"a", ZERO, b"b", false).unwrap();
        assert_eq!(ask(&mut store), quire_store::CopyProgress::UnderWay);
        store.copy_step(100).unwrap();
        change(&mut store);
        let mut asked = 0;
        while ask(&mut store) != quire_store::CopyProgress::Done(true) {
            store.copy_step(100).unwrap();
            asked += 1;
        }
        assert!(asked > 15, "{number}");
        let source = all(&mut store, b"a");
        assert_eq!(all(&mut store, b"b"), source, "{number}");
        assert!(source != elements && store.check_value(ZERO, b"b").unwrap(), "{number}");
    }
}
