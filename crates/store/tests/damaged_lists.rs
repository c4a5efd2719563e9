//! Lists whose bytes are not what this program wrote: named as damage by a check, and by whatever meets it; never a panic, an endless
//! walk or an element of another value.

use proptest::prelude::*;
use quire_snapshot::PAGE_SIZE;
use quire_store::list::{self, End};
use quire_store::{CopyStep, DbId, EncodingLimits, Store, StoreConfig, StoreError};

use crate::common::{Image, image_of, open};

const DB: DbId = DbId(0);
const KEY: &[u8] = b"hostile key";
/// An element that marks its node.
const MARK: &[u8] = b"the element that marks";

/// A list under the key; no freed entry has that, too.
fn made(elements: &[&[u8]], node: i64) -> Store {
    let mut limits = EncodingLimits::default();
    limits.set(&list::MAX_NODE, node);
    let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, limits, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    let mut list = list::open_mut(&mut store, DB, b"made").unwrap();
    list.make_room(elements.iter().copied()).unwrap();
    for element in elements {
        list.push(End::Back, element).unwrap();
    }
    drop(list);
    assert!(store.rename(DB, b"made", KEY).unwrap());
    store
}

/// A list of nodes of two elements, of which the middle one is marked.
fn chain() -> Store {
    let store = made(&[b"1", b"2", b"3", b"4", MARK, b"5", b"6", b"7", b"8", b"9"], 2);
    assert!(store.check_value(DB, KEY).unwrap());
    assert_eq!(store.encoding(DB, KEY).unwrap(), Some("quicklist"));
    store
}

/// Opens a store after `change` was made to the first place in it that holds `mark`.
fn changed(store: &mut Store, mark: &[u8], change: impl FnOnce(&mut [u8], usize)) -> Store {
    let mut image = image_of(store);
    for (_, page) in &mut image.pages {
        if let Some(at) = page.windows(mark.len()).position(|bytes| bytes == mark) {
            change(page, at);
            return open(&image).unwrap();
        }
    }
    panic!("the mark is nowhere");
}

fn is_damage<T: std::fmt::Debug>(found: &Result<T, StoreError>) -> bool {
    matches!(found, Err(StoreError::Damaged { .. }))
}

/// Everything that a list can be asked for; returns whether a walk over it all met damage.
fn use_all(store: &mut Store) -> bool {
    let met = list::view(store, DB, KEY).and_then(|list| list.range(0..list.len()?, |_| {}));
    if let Ok(list) = list::view(store, DB, KEY) {
        let len = list.len().unwrap_or(0);
        for index in [0, 1, len / 2, len.saturating_sub(1), len, u64::MAX] {
            let _ = list.get(index);
            let _ = list.walk(End::Back, index, |_| true);
        }
        let _ = list.positions(End::Back, MARK, 100, |_| true);
    }
    let _ = store.digest();
    let _ = store.memory_usage(DB, KEY);
    let _ = store.copy(DB, KEY, DB, b"copy", true);
    let _ = list::move_element(store, DB, (KEY, End::Back), (KEY, End::Front));
    let _ = list::move_element(store, DB, (b"copy", End::Back), (KEY, End::Front));
    if let Ok(mut list) = list::open_mut(store, DB, KEY) {
        let _ = list.make_room([[7; 300].as_slice()]);
        let _ = list.push(End::Front, &[7; 300]);
        let _ = list.push(End::Back, b"8");
        let _ = list.insert(MARK, true, b"behind");
        let _ = list.set(4, &[9; 5000]);
        let _ = list.remove(End::Back, b"3", 5);
        let _ = list.pop(End::Back, 2, &mut |_| true);
        let len = list.len().unwrap_or(0);
        let _ = list.keep(len / 3..len / 3 + len / 6);
    }
    let _ = store.remove(DB, KEY);
    while store.reclaim_step(1000).is_ok_and(|freed| freed > 0) {}
    is_damage(&met)
}

#[test]
fn a_packed_list_that_is_not_well_formed_is_named() {
    let elements: [&[u8]; 4] = [b"one", b"-300", b"three", b"70000"];
    let value = KEY.len();
    assert!(made(&elements, -2).check_value(DB, KEY).unwrap());
    let cases: [(usize, u8, &str, bool); 7] = [
        (0, 5, "more elements than there are", true),
        (0, 3, "fewer elements than there are", false),
        (0, 0, "no elements", false),
        (1, 1, "hundreds of elements", true),
        (2, 0x80 | 60, "an element longer than the list", true),
        (2, 0xf5, "a code that there is not", true),
        (6, 9, "a length behind an element that is not its own", false),
    ];
    for (at, byte, what, met) in cases {
        let mut store = changed(&mut made(&elements, -2), KEY, |page, mark| page[mark + value + at] = byte);
        assert!(is_damage(&store.check_value(DB, KEY)), "{what}");
        assert_eq!(use_all(&mut store), met, "{what}");
    }
}

#[test]
fn a_node_that_does_not_fit_its_neighbours_is_named() {
    // The node's header of 20 bytes lies before its first element: number, previous, next, elements, bytes. Before the element's own
    // bytes stands their length.
    let header = |mark: usize| mark - 1 - 20;
    let cases: [(usize, u32, &str); 8] = [
        (4, 0, "a node that no other one leads back from"),
        (8, 0, "an end before the end"),
        (8, 0xdead_beef, "a next node that there is not"),
        (12, 3, "more elements than its bytes have"),
        (12, 0, "a node without elements"),
        (16, 5, "a node that is cut short"),
        (16, 60_000, "a node longer than its object"),
        (0, 12345, "a number by which the table does not find it"),
    ];
    for (at, value, what) in cases {
        let mut store = changed(&mut chain(), MARK, |page, mark| {
            page[header(mark) + at..][..4].copy_from_slice(&value.to_ne_bytes());
        });
        assert!(is_damage(&store.check_value(DB, KEY)), "{what}: {:?}", store.check_value(DB, KEY));
        use_all(&mut store);
    }
}

#[test]
fn a_ring_of_nodes_without_the_anchor_is_no_endless_walk() {
    // The marked node names itself as the next one, and as the one before.
    for offsets in [vec![8], vec![4], vec![4, 8]] {
        let mut store = changed(&mut chain(), MARK, |page, mark| {
            let header = mark - 1 - 20;
            let number: [u8; 4] = page[header..header + 4].try_into().unwrap();
            offsets.iter().for_each(|offset| page[header + offset..][..4].copy_from_slice(&number));
        });
        assert!(is_damage(&store.check_value(DB, KEY)), "{offsets:?}");
        let walked = list::view(&mut store, DB, KEY).and_then(|list| list.range(0..1 << 40, |_| {}));
        assert_eq!(is_damage(&walked), offsets.contains(&8), "{offsets:?}: {walked:?}");
        use_all(&mut store);
    }
}

#[test]
fn a_table_that_says_it_has_many_more_nodes_does_not_lengthen_the_walk_round_a_ring() {
    for offsets in [vec![8], vec![4, 8]] {
        let mut ring = changed(&mut chain(), MARK, |page, mark| {
            let header = mark - 1 - 20;
            let number: [u8; 4] = page[header..header + 4].try_into().unwrap();
            offsets.iter().for_each(|offset| page[header + offset..][..4].copy_from_slice(&number));
        });
        // The head of the table lies behind the key: items at 0, buckets in overflow chains, which make room for so many, at 32.
        let mut store = changed(&mut ring, KEY, |page, mark| {
            let head = mark + KEY.len();
            page[head..][..8].copy_from_slice(&40_000_000_000u64.to_ne_bytes());
            page[head + 32..][..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        });
        let walked = list::view(&mut store, DB, KEY).and_then(|list| list.range(0..1 << 40, |_| {}));
        assert!(is_damage(&walked), "{offsets:?}: {walked:?}");
        use_all(&mut store);
    }
}

#[test]
fn a_list_that_says_it_has_no_elements_gives_none() {
    let elements: [&[u8]; 2] = [b"one", b"two"];
    let mut store = changed(&mut made(&elements, -2), KEY, |page, mark| page[mark + KEY.len()] = 0);
    let mut list = list::open_mut(&mut store, DB, KEY).unwrap();
    assert!(list.exists());
    for end in [End::Front, End::Back] {
        let popped = list.pop(end, 1, &mut |_| true);
        assert!(is_damage(&popped), "{popped:?}");
    }
}

#[test]
fn a_list_that_says_more_elements_than_its_nodes_have_gives_no_short_answer() {
    // How many elements the marked node says it has; it has 2.
    for count in [0u32, 1] {
        let mut store = changed(&mut chain(), MARK, |page, mark| {
            page[mark - 1 - 20 + 12..][..4].copy_from_slice(&count.to_ne_bytes());
        });
        let list = list::view(&mut store, DB, KEY).unwrap();
        assert_eq!(list.len().unwrap(), 10);
        assert!(is_damage(&list.range(0..10, |_| {})), "{count}");
        for (from, index) in [(End::Front, 0), (End::Back, 9)] {
            assert!(is_damage(&list.walk(from, index, |_| true)), "{count} {from:?}");
        }
        assert!(list.range(0..4, |_| {}).is_ok(), "what is there is still read");
        let mut list = list::open_mut(&mut store, DB, KEY).unwrap();
        assert!(is_damage(&list.pop(End::Front, 10, &mut |_| true)), "{count}");
    }
}

thread_local! {
    static IMAGE: Image = image_of(&mut chain());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn bytes_of_nodes_that_are_anything_give_errors(hits in prop::collection::vec((-40isize..40, any::<u8>()), 1..8)) {
        let mut image = IMAGE.with(Clone::clone);
        let (page, at) = image.pages.iter().enumerate().find_map(|(index, (_, page))| {
            page.windows(MARK.len()).position(|bytes| bytes == MARK).map(|at| (index, at))
        }).unwrap();
        for (offset, byte) in hits {
            image.pages[page].1[at.saturating_add_signed(offset).min(PAGE_SIZE - 1)] = byte;
        }
        if let Ok(mut store) = open(&image) {
            use_all(&mut store);
        }
    }
}

#[test]
fn a_long_pop_that_meets_damage_leaves_nothing_of_its_steps_behind() {
    let numbers: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let mut elements: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    elements[100] = MARK;
    let mut store = changed(&mut made(&elements, 1), MARK, |page, at| page[at - 1] = 0xff);
    let mut pop = || {
        let popped = loop {
            let popped = list::open_mut(&mut store, DB, KEY).unwrap().pop_in_steps(7, End::Front, 1300, &mut |_| true);
            if !matches!(popped, Ok(None)) {
                break popped;
            }
            while store.copy_step(100).unwrap() == CopyStep::More {}
        };
        while store.reclaim_step(1000).unwrap() > 0 {}
        (is_damage(&popped), store.arena().stats().objects)
    };
    let (first, second) = (pop(), pop());
    assert!(first.0, "the list is sound");
    assert_eq!(first, second, "objects are left");
}
