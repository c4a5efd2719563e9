//! Streams whose bytes are not what this program wrote: named as damage by a check, and never a panic, an endless walk or an entry of
//! another value.

use proptest::prelude::*;
use quire_store::stream::{self, StreamCut, StreamTrim};
use quire_store::{EncodingLimits, Store, StoreError, StreamId, StreamOrder};

use crate::common::streams::{ZERO, add, id, limits};
use crate::common::{config, image_of, open};

const KEY: &[u8] = b"hostile key";
/// Before every other word of a field, so that it is found in an image.
const MARK: &[u8] = b"mark of the field";

/// A stream of some entries, with groups if there are to be any, under the key; no freed entry has that, too.
fn made(entries: u64, block_entries: usize, groups: &[&[u8]]) -> Store {
    let mut store = Store::create(quire_store::StoreConfig { limits: limits(block_entries), ..config() }).unwrap();
    for number in 0..entries {
        add(&mut store, b"made", id(5, number + 1), &[MARK, b"value", b"n", number.to_string().as_bytes()]);
    }
    let mut stream = stream::open_mut(&mut store, ZERO, b"made").unwrap();
    for name in groups {
        stream.create_group(name, id(5, 7), Some(7)).unwrap();
        let group = stream.view().unwrap().group(name).unwrap().unwrap();
        for name in [b"reader", b"writer"] {
            let consumer = stream.create_consumer(&group, name, 3).unwrap();
            for number in 0..entries / 2 {
                stream.set_pending(&group, &consumer, (id(5, number + 1), 9, 1)).unwrap();
            }
        }
    }
    drop(stream);
    assert!(store.rename(ZERO, b"made", KEY).unwrap());
    assert!(store.check_value(ZERO, KEY).unwrap());
    store
}

/// Everything that a stream can be asked for.
fn use_all(store: &mut Store) {
    let every = (StreamId::MIN, StreamId::MAX);
    if let Ok(view) = stream::view(store, ZERO, KEY) {
        for order in [StreamOrder::Up, StreamOrder::Down] {
            let _ = view.range(every, order, |_, fields| fields.count() < usize::MAX);
            let _ = view.range((id(5, 3), id(5, 40)), order, |_, _| true);
        }
        let _ = view.summary();
        for group in view.groups().unwrap_or_default() {
            let _ = view.pending(&group, every, StreamOrder::Down, |_| true);
            for consumer in view.consumers(&group).unwrap_or_default() {
                let _ = view.pending_of(&group, &consumer, every, |_| true);
            }
        }
    }
    let _ = store.digest();
    let _ = store.memory_usage(ZERO, KEY);
    let _ = store.copy(ZERO, KEY, ZERO, b"copy", true);
    if let Ok(mut stream) = stream::open_mut(store, ZERO, KEY) {
        for number in 0..60u64 {
            let _ = stream.add(id(6, number), &[MARK, b"v"]);
            let _ = stream.delete(id(5, number * 3));
        }
        for name in [&b"group"[..], b"other"] {
            let Ok(Some(group)) = stream.view().and_then(|view| view.group(name)) else { continue };
            if let Ok(consumer) = stream.create_consumer(&group, b"new", 1) {
                (0..30).for_each(|number| _ = stream.set_pending(&group, &consumer, (id(5, number * 2), 1, 1)));
            }
            (0..30).for_each(|number| _ = stream.remove_pending(&group, id(5, number)));
            if let Ok(Some(consumer)) = stream.view().and_then(|view| view.consumer(&group, b"writer")) {
                let _ = stream.note_activity(consumer, 7);
            }
            if let Ok(Some(consumer)) = stream.view().and_then(|view| view.consumer(&group, b"reader")) {
                let _ = stream.delete_consumer(&group, &consumer);
            }
            let _ = stream.destroy_group(&group);
        }
        let trim = StreamTrim { cut: StreamCut::MaxLen(3), whole_blocks: false, limit: 0 };
        let _ = stream.trim(&trim);
    }
    let _ = store.remove(ZERO, KEY);
    while store.reclaim_step(1000).is_ok_and(|freed| freed > 0) {}
}

#[test]
fn a_packed_stream_that_is_not_well_formed_is_named() {
    // Behind 40 bytes of the stream's own come 28 of the block: first ID, listpack bytes, entries, deleted.
    for (at, byte, what) in [
        (0, 4, "a last ID before the last entry"),
        (40 + 8, 90, "a first ID behind the stream's last one"),
        (40 + 20, 9, "more entries than there are"),
        (40 + 20, 2, "fewer entries than there are"),
        (40 + 20, 0, "no entries"),
        (40 + 28, 200, "more fields than bytes"),
        (40 + 29, 2, "a field that ends too early"),
    ] {
        let mut image = image_of(&mut made(5, 100, &[]));
        let mark = |page: &[u8]| page.windows(KEY.len()).position(|bytes| bytes == KEY);
        let (index, place) =
            image.pages.iter().enumerate().find_map(|(index, (_, page))| mark(page).map(|at| (index, at))).unwrap();
        image.pages[index].1[place + KEY.len() + at] = byte;
        let mut store = open(&image).unwrap();
        let found = store.check_value(ZERO, KEY);
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{what}: {found:?}");
        use_all(&mut store);
    }
}

#[test]
fn a_consumer_that_says_that_it_is_longer_than_its_object_is_named() {
    let mut image = image_of(&mut made(5, 100, &[b"group"]));
    let name = |page: &[u8]| page.windows(6).position(|bytes| bytes == b"reader");
    let (index, place) =
        image.pages.iter().enumerate().find_map(|(index, (_, page))| name(page).map(|at| (index, at))).unwrap();
    // Before the name come the length of it and 24 bytes of the consumer's own.
    let length = &mut image.pages[index].1[place - 28..][..4];
    assert_eq!(*length, 6u32.to_le_bytes());
    length.copy_from_slice(&70u32.to_le_bytes());
    let mut store = open(&image).unwrap();
    let found = store.check_value(ZERO, KEY);
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
    use_all(&mut store);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn bytes_that_are_wrong_anywhere_end_in_an_error_or_in_other_data(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4096, any::<u8>()), 1..8),
        block_entries in prop_oneof![Just(2usize), Just(100)],
        with_groups in any::<bool>(),
    ) {
        let groups: &[&[u8]] = if with_groups { &[b"group", b"other"] } else { &[] };
        let mut image = image_of(&mut made(60, block_entries, groups));
        for (page, at, byte) in &changes {
            // The first page is the arena's own.
            let count = image.pages.len();
            let page = 1 + page.index(count - 1);
            image.pages[page].1[*at] = *byte;
        }
        if let Ok(mut store) = open(&image) {
            let _ = store.check_value(ZERO, KEY);
            use_all(&mut store);
        }
    }

    #[test]
    fn words_of_a_node_or_a_group_that_are_wrong_are_survived(
        words in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![0u32..40, any::<u32>()]), 1..6),
    ) {
        let mut image = image_of(&mut made(60, 2, &[b"group", b"other"]));
        // Pages with parts of the stream: those in which a consumer's name or its mark lies.
        let has = |page: &[u8], text: &[u8]| page.windows(text.len()).any(|bytes| bytes == text);
        let parts: Vec<usize> = (1..image.pages.len())
            .filter(|&at| has(&image.pages[at].1, MARK) || has(&image.pages[at].1, b"reader"))
            .collect();
        for (at, word) in &words {
            let place = at.index(parts.len() * 1024);
            image.pages[parts[place / 1024]].1[place % 1024 * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        if let Ok(mut store) = open(&image) {
            let _ = store.check_value(ZERO, KEY);
            use_all(&mut store);
        }
    }
}

#[test]
fn limits_of_zero_and_of_more_than_a_block_may_have_are_bounded() {
    let unlimited =
        EncodingLimits::default().with(&stream::MAX_BLOCK_BYTES, 0).with(&stream::MAX_BLOCK_ENTRIES, usize::MAX);
    let mut store = Store::create(quire_store::StoreConfig { limits: unlimited, ..config() }).unwrap();
    for number in 0..9000 {
        add(&mut store, KEY, id(1, number + 1), &[b"a", b"1"]);
    }
    assert_eq!(stream::view(&mut store, ZERO, KEY).unwrap().summary().unwrap().blocks, 2);
    store.check_value(ZERO, KEY).unwrap();
}
