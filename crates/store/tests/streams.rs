//! Streams beside a simple model: entries, groups and what is pending, in every encoding, through copies and images.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::stream::{self, StreamCut, StreamTrim};
use quire_store::{CopyProgress, CopyStep, Store, StreamId, StreamOrder};

use crate::common::streams::{GroupModel, Words, ZERO, add, all, groups, id, part, store_of};

const KEY: &[u8] = b"key";

/// What is done to a stream.
#[derive(Clone, Debug)]
enum Change {
    Add { ms: u64, seq: u64, words: Words },
    Delete(usize),
    TrimLen(u64, bool),
    TrimId(usize),
    Group(u8),
    Destroy(u8),
    Consumer(u8, u8),
    DropConsumer(u8, u8),
    Deliver(u8, u8, usize),
    Ack(u8, usize),
    Copy,
}

fn change() -> impl Strategy<Value = Change> {
    let word = prop_oneof![
        Just(b"field".to_vec()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (0..300i64).prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..90),
    ];
    let words = prop_oneof![
        prop::collection::vec(word.clone(), 1..3)
            .prop_map(|words| words.iter().flat_map(|w| [w.clone(), w.clone()]).collect()),
        word.prop_map(|value| vec![b"a".to_vec(), value.clone(), b"b".to_vec(), value]),
    ];
    prop_oneof![
        12 => (0..3u64, 0..5u64, words).prop_map(|(ms, seq, words)| Change::Add { ms, seq, words }),
        3 => any::<prop::sample::Index>().prop_map(|at| Change::Delete(at.index(1 << 20))),
        1 => (0..40u64, any::<bool>()).prop_map(|(most, whole)| Change::TrimLen(most, whole)),
        1 => (0..1000usize).prop_map(Change::TrimId),
        1 => (0..3u8).prop_map(Change::Group),
        1 => (0..20u8).prop_map(Change::Destroy),
        2 => (0..3u8, 0..4u8).prop_map(|(group, consumer)| Change::Consumer(group, consumer)),
        1 => (0..3u8, 0..8u8).prop_map(|(group, consumer)| Change::DropConsumer(group, consumer)),
        8 => (0..3u8, 0..4u8, 0..1000usize).prop_map(|(group, consumer, at)| Change::Deliver(group, consumer, at)),
        3 => (0..3u8, 0..1000usize).prop_map(|(group, at)| Change::Ack(group, at)),
        1 => Just(Change::Copy),
    ]
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<StreamId, Words>,
    groups: BTreeMap<Vec<u8>, GroupModel>,
    last: StreamId,
    added: u64,
    max_deleted: StreamId,
    time: i64,
}

impl Model {
    fn nth(&self, at: usize) -> StreamId {
        self.entries.keys().nth(at % self.entries.len().max(1)).copied().unwrap_or(id(7, 7))
    }
}

fn name(kind: char, number: u8) -> Vec<u8> {
    format!("{kind}{number}").into_bytes()
}

/// Trims the stream: what was certain to stay does.
fn trim_as_told(store: &mut Store, trim: &StreamTrim) -> u64 {
    let mut stream = stream::open_mut(store, ZERO, KEY).unwrap();
    let may_trim = stream.view().unwrap().may_trim(trim).unwrap();
    let removed = stream.trim(trim).unwrap();
    assert!(may_trim || removed == 0, "{trim:?}");
    removed
}

fn apply(store: &mut Store, model: &mut Model, change: &Change) {
    model.time += 1;
    match change {
        Change::Add { ms, seq, words } => {
            let at = if *ms == 0 { id(model.last.ms, model.last.seq + 1 + seq) } else { id(model.last.ms + ms, *seq) };
            add(store, KEY, at, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            (model.last, model.added) = (at, model.added + 1);
            model.entries.insert(at, words.clone());
        }
        Change::Delete(at) => {
            let at = model.nth(*at);
            let deleted = stream::open_mut(store, ZERO, KEY).unwrap().delete(at).unwrap();
            assert_eq!(deleted, model.entries.remove(&at).is_some());
            model.max_deleted = model.max_deleted.max(if deleted { at } else { StreamId::MIN });
        }
        Change::TrimLen(most, whole_blocks) => {
            let trim = StreamTrim { cut: StreamCut::MaxLen(*most), whole_blocks: *whole_blocks, limit: 0 };
            let removed = trim_as_told(store, &trim);
            let excess = (model.entries.len() as u64).saturating_sub(*most);
            assert!(if *whole_blocks { removed <= excess } else { removed == excess });
            (0..removed).for_each(|_| drop(model.entries.pop_first()));
        }
        Change::TrimId(at) => {
            let least = model.nth(*at);
            let trim = StreamTrim { cut: StreamCut::MinId(least), whole_blocks: false, limit: 0 };
            let removed = trim_as_told(store, &trim);
            let kept = model.entries.split_off(&least);
            assert_eq!(std::mem::replace(&mut model.entries, kept).len() as u64, removed);
        }
        change => apply_to_group(store, model, change),
    }
}

/// The entry that a change of a group is about.
fn target_of(model: &Model, change: &Change) -> StreamId {
    match change {
        Change::Deliver(_, _, at) | Change::Ack(_, at) => model.nth(*at),
        _ => model.last,
    }
}

fn apply_to_group(store: &mut Store, model: &mut Model, change: &Change) {
    let (group, consumer) = match change {
        Change::Group(group) | Change::Destroy(group) | Change::Ack(group, _) => (name('g', *group), Vec::new()),
        Change::Consumer(group, consumer)
        | Change::DropConsumer(group, consumer)
        | Change::Deliver(group, consumer, _) => (name('g', *group), name('c', *consumer)),
        Change::Copy => {
            let copied = store.copy(ZERO, KEY, ZERO, b"copy", true).unwrap();
            return if copied {
                assert!(store.rename(ZERO, b"copy", KEY).unwrap())
            };
        }
        _ => return,
    };
    let target = target_of(model, change);
    let mut stream = stream::open_mut(store, ZERO, KEY).unwrap();
    let found = stream.view().unwrap().group(&group).unwrap();
    assert_eq!(found.is_some(), model.groups.contains_key(&group));
    if let Change::Group(number) = change {
        if found.is_none() {
            stream.create().unwrap();
            let read = (*number > 0).then_some(5);
            stream.create_group(&group, target, read).unwrap();
            model.groups.insert(group, GroupModel { last_id: target, read, ..GroupModel::default() });
        }
        return;
    }
    let (Some(found), Some(own)) = (found, model.groups.get_mut(&group)) else { return };
    let known = stream.view().unwrap().consumer(&found, &consumer).unwrap();
    assert_eq!(known.is_some(), own.consumers.contains_key(&consumer));
    match (change, known) {
        (Change::Destroy(_), _) => {
            stream.destroy_group(&found).unwrap();
            model.groups.remove(&group);
        }
        (Change::Consumer(..), Some(known)) => {
            stream.touch_consumer(&known, model.time).unwrap();
            own.consumers.insert(consumer, model.time);
        }
        (Change::Consumer(..), None) => {
            stream.create_consumer(&found, &consumer, model.time).unwrap();
            own.consumers.insert(consumer, model.time);
        }
        (Change::DropConsumer(..), Some(known)) => {
            stream.delete_consumer(&found, &known).unwrap();
            own.pending.retain(|_, (name, ..)| *name != consumer);
            own.consumers.remove(&consumer);
        }
        (Change::Deliver(..), Some(known)) => {
            stream.set_pending(&found, &known, (target, model.time, 3)).unwrap();
            stream.set_group(&found, target, None).unwrap();
            own.pending.insert(target, (consumer, model.time, 3));
            (own.last_id, own.read) = (target, None);
        }
        (Change::Ack(..), _) => {
            assert_eq!(stream.remove_pending(&found, target).unwrap(), own.pending.remove(&target).is_some());
        }
        _ => {}
    }
}

fn compare(store: &mut Store, model: &Model) {
    let entries: Vec<(StreamId, Words)> = model.entries.iter().map(|(id, words)| (*id, words.clone())).collect();
    assert_eq!(all(store, KEY), entries);
    assert_eq!(groups(store, KEY), model.groups);
    let summary = stream::view(store, ZERO, KEY).unwrap().summary().unwrap();
    assert_eq!(summary.entries, model.entries.len() as u64);
    assert_eq!((summary.last_id, summary.added, summary.max_deleted_id), (model.last, model.added, model.max_deleted));
    assert_eq!(summary.first_id, model.entries.keys().next().copied().unwrap_or_default());
    let (from, to) = (model.nth(3), model.nth(11));
    if from <= to {
        let mut expected: Vec<_> = model.entries.range(from..=to).map(|(id, words)| (*id, words.clone())).collect();
        assert_eq!(part(store, KEY, (from, to), StreamOrder::Up), expected);
        expected.reverse();
        assert_eq!(part(store, KEY, (from, to), StreamOrder::Down), expected);
    }
    store.check_value(ZERO, KEY).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_stream_is_what_a_simple_model_is(
        changes in prop::collection::vec(change(), 1..160),
        block_entries in prop_oneof![Just(1usize), Just(3), Just(100)],
    ) {
        let mut store = store_of(block_entries);
        let mut model = Model::default();
        for change in &changes {
            apply(&mut store, &mut model, change);
        }
        compare(&mut store, &model);
        let used = store.arena().stats().allocated_bytes;
        store.remove(ZERO, KEY).unwrap();
        while store.reclaim_step(1000).unwrap() > 0 {}
        prop_assert!(store.arena().stats().allocated_bytes <= used);
        prop_assert_eq!(store.memory_usage(ZERO, KEY).unwrap(), None);
    }
}

/// A stream of many entries, groups and pending entries.
fn large(store: &mut Store, entries: u64) {
    for number in 0..entries {
        add(store, KEY, id(1 + number / 3, number), &[b"field", number.to_string().as_bytes(), b"text", b"some text"]);
    }
    let mut stream = stream::open_mut(store, ZERO, KEY).unwrap();
    for group in [b"one", b"two"] {
        stream.create_group(group, id(3, 9), Some(9)).unwrap();
        let group = stream.view().unwrap().group(group).unwrap().unwrap();
        for consumer in [b"a", b"b"] {
            let consumer = stream.create_consumer(&group, consumer, 5).unwrap();
            for number in (0..entries / 2).filter(|number| number % 2 == u64::from(consumer.name[0] == b'a')) {
                stream.set_pending(&group, &consumer, (id(1 + number / 3, number), 77, 1)).unwrap();
            }
        }
    }
}

#[test]
fn a_large_stream_is_copied_and_freed_in_steps() {
    let mut store = store_of(100);
    large(&mut store, 20_000);
    let (digest, known) = (store.digest_value(ZERO, KEY).unwrap(), groups(&mut store, KEY));
    let mut steps = 0;
    while store.copy_in_steps(1, ZERO, KEY, ZERO, b"copy", false).unwrap() == CopyProgress::UnderWay {
        while store.copy_step(64).unwrap() == CopyStep::More {
            steps += 1;
        }
    }
    assert!(steps > 50, "{steps}");
    assert_eq!(store.digest_value(ZERO, b"copy").unwrap(), digest);
    assert_eq!(groups(&mut store, b"copy"), known);
    store.check_value(ZERO, b"copy").unwrap();
    let used = store.arena().stats().allocated_bytes;
    store.remove(ZERO, KEY).unwrap();
    let at_once = used - store.arena().stats().allocated_bytes;
    let mut steps = 0;
    while store.reclaim_step(64).unwrap() > 0 {
        steps += 1;
    }
    assert!(at_once < used / 20 && steps > 30, "{at_once} bytes at once, {steps} steps");
    store.check_value(ZERO, b"copy").unwrap();
}

#[test]
fn nothing_is_left_of_a_stream_that_is_gone() {
    let mut store = store_of(100);
    // The table of keys stays.
    add(&mut store, KEY, id(1, 1), &[b"a", b"b"]);
    store.remove(ZERO, KEY).unwrap();
    let before = store.arena().stats().objects;
    large(&mut store, 3000);
    let mut stream = stream::open_mut(&mut store, ZERO, KEY).unwrap();
    for group in stream.view().unwrap().groups().unwrap() {
        stream.destroy_group(&group).unwrap();
    }
    let trim = StreamTrim { cut: StreamCut::MaxLen(0), whole_blocks: false, limit: 0 };
    assert_eq!(stream.trim(&trim).unwrap(), 3000);
    assert_eq!(stream.view().unwrap().last_id(), id(1000, 2999));
    drop(stream);
    store.check_value(ZERO, KEY).unwrap();
    store.remove(ZERO, KEY).unwrap();
    while store.reclaim_step(1000).unwrap() > 0 {}
    assert_eq!(store.arena().stats().objects, before);
}

#[test]
fn a_large_stream_says_whether_a_trim_takes_a_whole_block() {
    let lengths = (0..1001).rev().map(StreamCut::MaxLen).collect::<Vec<_>>();
    let ids = (0..1001).map(|number| StreamCut::MinId(id(1 + number / 3, number))).collect::<Vec<_>>();
    for cuts in [lengths, ids] {
        let mut store = store_of(100);
        large(&mut store, 1000);
        let mut stream = stream::open_mut(&mut store, ZERO, KEY).unwrap();
        let (mut kept, mut taken) = (0, 0);
        // A limit of one entry lets no block go.
        for (cut, limit) in cuts.into_iter().zip([1, 0, 100].into_iter().cycle()) {
            let trim = StreamTrim { cut, whole_blocks: true, limit };
            let may_trim = stream.view().unwrap().may_trim(&trim).unwrap();
            let removed = stream.trim(&trim).unwrap();
            assert_eq!(may_trim, removed > 0, "{trim:?}");
            *if may_trim { &mut taken } else { &mut kept } += 1;
        }
        assert!(kept > 900 && taken >= 9, "{kept} and {taken}");
    }
}

#[test]
fn a_small_stream_takes_little_memory() {
    let mut store = store_of(100);
    add(&mut store, KEY, id(1_526_919_030_474, 0), &[b"temperature", b"20", b"humidity", b"51"]);
    let bytes = store.memory_usage(ZERO, KEY).unwrap().unwrap();
    assert!(bytes <= 160, "{bytes}");
}

#[test]
fn a_write_for_which_there_is_no_memory_changes_nothing() {
    let config = quire_store::StoreConfig { max_memory_bytes: 8 << 20, budget_bytes: 1 << 20, ..Default::default() };
    let mut store = Store::create(config).unwrap();
    let value = vec![b'x'; 3000];
    let mut added = 0;
    loop {
        let mut stream = stream::open_mut(&mut store, ZERO, KEY).unwrap();
        if stream.add(id(added + 1, 0), &[b"field", &value]).is_err() {
            break;
        }
        added += 1;
    }
    assert!(added > 500, "{added}");
    assert_eq!(stream::view(&mut store, ZERO, KEY).unwrap().len().unwrap(), added);
    store.check_value(ZERO, KEY).unwrap();
    let mut stream = stream::open_mut(&mut store, ZERO, KEY).unwrap();
    assert!(stream.delete(id(5, 0)).unwrap() && !stream.delete(id(5, 0)).unwrap());
    stream.add(id(added + 1, 0), &[b"field", b"small"]).unwrap();
    drop(stream);
    store.check_value(ZERO, KEY).unwrap();
}
