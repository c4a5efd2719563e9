//! Data beyond 64 GiB, whose handles have more than 32 bits, beside data that was there before: of every type, through changes, copies,
//! images and restarts. No memory is taken for the 64 GiB: they are objects that are never touched.

use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use quire_arena::{Arena, Handle};
use quire_store::list::End;
use quire_store::{
    CopyProgress, CopyStep, DbId, Direction, ExpiryChange, ImageLocation, OpenError, RestoreMode, Store, StoreConfig,
    StreamId, attachment, hash, list, set, stream, string, zset,
};

const DB: DbId = DbId(0);
const OWNER: u64 = 3;
const FILE: &str = "dump.quire";
const LARGE: [&[u8]; 6] = [b"fields", b"members", b"scores", b"elements", b"entries", b"string"];

fn config(max_memory_bytes: u64) -> StoreConfig {
    StoreConfig { max_memory_bytes, budget_bytes: 1 << 20, seed: Some(2026), ..StoreConfig::default() }
}

fn small() -> StoreConfig {
    config(256 << 20)
}

fn large() -> StoreConfig {
    config(128 << 30)
}

/// Takes all that is free up to 64 GiB, so that what comes then lies beyond.
fn fill_up(store: &mut Store) -> Vec<Handle> {
    let arena = store.arena_mut();
    let mut taken = Vec::new();
    let runs = (15..30).rev().map(|exponent| 1 << exponent);
    let slots = (16..=32 << 10).step_by(16).filter(|&bytes| Arena::class_size(bytes) == bytes);
    for bytes in std::iter::once((1 << 30) - (4 << 20)).chain(runs).chain(slots) {
        loop {
            let handle = arena.alloc(bytes).unwrap();
            if !handle.is_narrow() {
                arena.free(handle).unwrap();
                break;
            }
            taken.push(handle);
        }
    }
    let next = arena.alloc(5000).unwrap();
    assert!(!next.is_narrow());
    arena.free(next).unwrap();
    taken
}

fn give_back(store: &mut Store, taken: Vec<Handle>) {
    taken.into_iter().for_each(|handle| store.arena_mut().free(handle).unwrap());
    while store.arena_mut().trim(1024) > 0 {}
}

/// Some of everything, of these numbers.
fn add(store: &mut Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let name = format!("key:{number}");
        let (text, expiry) = (name.as_bytes(), number.is_multiple_of(3).then_some(1000 + number as i64));
        let value = vec![b'v'; number as usize * 3];
        string::set(store, DB, text, &value, expiry.map_or(ExpiryChange::Clear, ExpiryChange::At)).unwrap();
        hash::set(store, DB, format!("packed:{}", number % 20).as_bytes(), text, b"value").unwrap();
        hash::set(store, DB, b"fields", text, &vec![b'w'; number as usize % 300]).unwrap();
        set::open_mut(store, DB, b"members").unwrap().add(text).unwrap();
        zset::open_mut(store, DB, b"scores").unwrap().set(text, (number * 7919 % 50) as f64).unwrap();
        let mut elements = list::open_mut(store, DB, b"elements").unwrap();
        elements.make_room([&value[..]]).unwrap();
        elements.push(End::Back, &value).unwrap();
        drop(elements);
        let id = StreamId { ms: number + 1, seq: 0 };
        stream::open_mut(store, DB, b"entries").unwrap().add(id, &[b"field", text]).unwrap();
        if number.is_multiple_of(50) {
            string::set(store, DB, &[text, &[b'k'; 10_000]].concat(), &[b'x'; 40_000], ExpiryChange::Clear).unwrap();
            string::set(store, DB, b"string", &vec![b'y'; 20_000 + number as usize * 100], ExpiryChange::Clear)
                .unwrap();
            attachment::set(store, &vec![b'a'; number as usize + 7]).unwrap();
        }
    }
}

fn remove(store: &mut Store, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let name = format!("key:{number}");
        let text = name.as_bytes();
        store.remove(DB, text).unwrap();
        hash::open_mut(store, DB, b"fields").unwrap().remove(text).unwrap();
        set::open_mut(store, DB, b"members").unwrap().remove(text).unwrap();
        zset::open_mut(store, DB, b"scores").unwrap().remove(text).unwrap();
        stream::open_mut(store, DB, b"entries").unwrap().delete(StreamId { ms: number + 1, seq: 0 }).unwrap();
    }
}

fn assert_same(store: &mut Store, expected: &mut Store) {
    assert_eq!(store.digest().unwrap(), expected.digest().unwrap());
    assert_eq!(attachment::get(store).unwrap(), attachment::get(expected).unwrap());
    assert_eq!(store.expires_len(DB), expected.expires_len(DB));
    for key in LARGE {
        assert!(store.check_value(DB, key).unwrap(), "{}", key.escape_ascii());
    }
}

fn copy_in_steps(store: &mut Store, key: &[u8]) {
    let target = [b"copy of ", key].concat();
    while store.copy_in_steps(OWNER, DB, key, DB, &target, false).unwrap() != CopyProgress::Done(true) {
        while store.copy_step(50).unwrap() == CopyStep::More {}
    }
    assert!(store.check_value(DB, &target).unwrap());
    assert_eq!(store.digest_value(DB, &target).unwrap(), store.digest_value(DB, key).unwrap());
}

fn free_all(store: &mut Store) {
    store.flush_all().unwrap();
    attachment::set(store, b"").unwrap();
    while store.reclaim_step(1000).unwrap() > 0 {}
}

#[test]
fn values_of_every_type_go_on_beyond_64_gib() {
    let (mut store, mut expected) = (Store::create(large()).unwrap(), Store::create(small()).unwrap());
    let objects = store.arena().stats().objects;
    add(&mut expected, 0..900);
    add(&mut store, 0..450);
    let taken = fill_up(&mut store);
    add(&mut store, 450..900);
    assert_same(&mut store, &mut expected);
    for store in [&mut store, &mut expected] {
        remove(store, (0..900).step_by(3));
        add(store, 900..1000);
        LARGE.into_iter().for_each(|key| copy_in_steps(store, key));
        remove(store, (1..900).step_by(3));
    }
    assert_same(&mut store, &mut expected);
    free_all(&mut store);
    give_back(&mut store, taken);
    assert_eq!(store.arena().stats().objects, objects);
}

#[test]
fn what_lies_beyond_64_gib_is_defragmented() {
    let (mut store, mut expected) = (Store::create(large()).unwrap(), Store::create(small()).unwrap());
    let objects = store.arena().stats().objects;
    add(&mut expected, 0..1500);
    add(&mut store, 0..300);
    let taken = fill_up(&mut store);
    add(&mut store, 300..1500);
    for store in [&mut store, &mut expected] {
        remove(store, (0..1500).filter(|number| number % 4 != 0));
    }
    let (mut moved, mut is_done) = (0, false);
    while !is_done {
        let step = store.defrag_step(100).unwrap();
        (moved, is_done) = (moved + step.moved, step.is_cycle_done);
    }
    assert!(moved > 200, "{moved}");
    assert_same(&mut store, &mut expected);
    for store in [&mut store, &mut expected] {
        add(store, 1500..1600);
        remove(store, (0..1600).step_by(8));
    }
    assert_same(&mut store, &mut expected);
    free_all(&mut store);
    give_back(&mut store, taken);
    assert_eq!(store.arena().stats().objects, objects);
}

#[test]
fn an_image_of_data_beyond_64_gib_is_sparse_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let (mut store, mut expected) = (Store::create(large()).unwrap(), Store::create(small()).unwrap());
    add(&mut store, 0..300);
    let taken = fill_up(&mut store);
    add(&mut store, 300..600);
    add(&mut expected, 0..600);
    give_back(&mut store, taken);
    store.save_blocking(&place).unwrap();
    let file = std::fs::metadata(dir.path().join(FILE)).unwrap();
    assert!(file.len() > 64 << 30 && file.blocks() * 512 < 320 << 20, "{} blocks of {}", file.blocks(), file.len());
    let refused = Store::open(config(64 << 30), &place, RestoreMode::Map, false).map(drop);
    assert!(matches!(refused, Err(OpenError::Image(_))), "{refused:?}");
    // A smaller machine, or other settings, ask for less than was used.
    for (config, mode) in [large(), config(64 << 30)].into_iter().zip([RestoreMode::Map, RestoreMode::Load]) {
        let config = StoreConfig { raise_limit_for_image: true, ..config };
        let (mut again, _) = Store::open(config, &place, mode, false).unwrap();
        assert!(again.arena().stats().max_bytes > 65 << 30, "there are addresses to grow");
        again.finish_restore().unwrap();
        assert_same(&mut again, &mut expected);
        add(&mut again, 600..700);
        remove(&mut again, (0..700).step_by(2));
        LARGE.into_iter().for_each(|key| assert!(again.check_value(DB, key).unwrap()));
    }
}

#[test]
fn an_image_of_less_than_64_gib_goes_on_beyond() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let (mut before, mut expected) = (Store::create(small()).unwrap(), Store::create(small()).unwrap());
    add(&mut before, 0..600);
    before.save_blocking(&place).unwrap();
    add(&mut expected, 0..900);
    remove(&mut expected, (0..900).step_by(3));
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let (mut store, _) = Store::open(large(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        fill_up(&mut store);
        add(&mut store, 600..900);
        remove(&mut store, (0..900).step_by(3));
        assert_same(&mut store, &mut expected);
        LARGE.into_iter().for_each(|key| copy_in_steps(&mut store, key));
        free_all(&mut store);
    }
}

#[test]
fn small_keys_take_no_more_beyond_64_gib() {
    let used = |store: &mut Store, first: u64| {
        let before = store.arena().stats().allocated_bytes;
        for number in first..first + 50_000 {
            let key = format!("key:{number:012}");
            string::set(store, DB, key.as_bytes(), &[b'v'; 32], ExpiryChange::Clear).unwrap();
        }
        (store.arena().stats().allocated_bytes - before) as f64 / 50_000.0
    };
    let (mut narrow, mut wide) = (Store::create(small()).unwrap(), Store::create(large()).unwrap());
    fill_up(&mut wide);
    let (narrow, wide) = (used(&mut narrow, 0), used(&mut wide, 0));
    assert!((70.0..75.0).contains(&narrow) && (wide - narrow).abs() < 0.01, "{narrow} and {wide} bytes");
}

#[derive(Clone, Debug)]
enum Op {
    Set(Vec<(u16, i8)>),
    Remove(Vec<u16>),
    Pop(bool, u64),
    Copy,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop::collection::vec((0u16..600, any::<i8>()), 1..300).prop_map(Op::Set),
        2 => prop::collection::vec(0u16..600, 1..200).prop_map(Op::Remove),
        1 => (any::<bool>(), 1u64..100).prop_map(|(up, count)| Op::Pop(up, count)),
        1 => Just(Op::Copy),
    ]
}

/// Changes a sorted set, and says what it is then.
fn change(store: &mut Store, op: &Op) -> String {
    let name = |number: &u16| format!("member:{number}").into_bytes();
    match op {
        Op::Set(all) => {
            let mut zset = zset::open_mut(store, DB, b"scores").unwrap();
            for (number, score) in all {
                zset.set(&name(number), f64::from(score / 8)).unwrap();
            }
        }
        Op::Remove(all) => {
            let mut zset = zset::open_mut(store, DB, b"scores").unwrap();
            for number in all {
                zset.remove(&name(number)).unwrap();
            }
        }
        Op::Pop(up, count) => {
            let end = if *up { Direction::Up } else { Direction::Down };
            zset::open_mut(store, DB, b"scores").unwrap().pop(end, *count, &mut |_, _| true).unwrap();
        }
        Op::Copy => {
            if store.copy(DB, b"scores", DB, b"copy", true).unwrap() {
                store.rename(DB, b"copy", b"scores").unwrap();
            }
        }
    }
    store.check_value(DB, b"scores").unwrap();
    format!("{:?}", store.digest().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_sorted_set_on_both_sides_of_64_gib_is_the_same_as_on_one(
        before in prop::collection::vec(op(), 0..6),
        after in prop::collection::vec(op(), 1..25),
        holes in prop::collection::vec(prop_oneof![3 => 20usize..60, 1 => 100usize..1200], 0..300),
    ) {
        let (mut store, mut expected) = (Store::create(large()).unwrap(), Store::create(small()).unwrap());
        for op in &before {
            prop_assert_eq!(change(&mut store, op), change(&mut expected, op));
        }
        let holes: Vec<Handle> = holes.into_iter().map(|bytes| store.arena_mut().alloc(bytes).unwrap()).collect();
        fill_up(&mut store);
        // Some of what comes lies below then.
        holes.into_iter().for_each(|hole| store.arena_mut().free(hole).unwrap());
        for op in &after {
            prop_assert_eq!(change(&mut store, op), change(&mut expected, op));
        }
    }
}
