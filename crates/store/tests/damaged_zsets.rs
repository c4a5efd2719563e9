//! Sorted sets whose bytes are not what this program wrote: named as damage by a check, and never a panic, an endless walk or a member
//! of another value.

use proptest::prelude::*;
use quire_snapshot::PAGE_SIZE;
use quire_store::zset::{self, Aggregate};
use quire_store::{Cut, DbId, Direction, EncodingLimits, Store, StoreConfig, StoreError};

use crate::common::{Image, image_of, open};

const DB: DbId = DbId(0);
const KEY: &[u8] = b"hostile key";
/// Bytes of a node's header.
const HEADER: usize = 16;
const LEAF_SLOTS: usize = 84;
const INNER_SLOTS: usize = 50;
/// In the second word of a node; the level is in its other bits.
const NODE: u32 = 1 << 31;

/// A sorted set under the key; no freed entry has that, too.
fn made(members: u32) -> Store {
    let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
    let mut store = Store::create(config).unwrap();
    for number in 0..members {
        let mut zset = zset::open_mut(&mut store, DB, b"made").unwrap();
        zset.set(format!("member:{number}").as_bytes(), f64::from(number / 2)).unwrap();
    }
    assert!(store.rename(DB, b"made", KEY).unwrap());
    assert!(store.check_value(DB, KEY).unwrap());
    store
}

/// One of two leaves and more below a root.
fn tree() -> Store {
    let store = made(200);
    assert_eq!(store.encoding(DB, KEY).unwrap(), Some("skiplist"));
    store
}

fn word(page: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(page[at..at + 4].try_into().unwrap())
}

fn put(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

/// Where the first node of a level lies: its page in the image, and the place in that.
fn node_of(image: &Image, level: u32) -> (usize, usize) {
    node_with(image, level, if level == 0 { LEAF_SLOTS } else { INNER_SLOTS } as u32)
}

/// The same for a node of so many slots.
fn node_with(image: &Image, level: u32, slots: u32) -> (usize, usize) {
    for (index, (_, page)) in image.pages.iter().enumerate() {
        let is_node = |at: &usize| word(page, at + 4) == NODE | level && word(page, at + 12) == slots;
        if let Some(at) = (0..PAGE_SIZE - HEADER).step_by(16).find(is_node) {
            return (index, at);
        }
    }
    panic!("no node of level {level}");
}

/// Opens a store after `change` was made to its first node of a level; it is given the node's page, place and handle.
fn changed(store: &mut Store, level: u32, change: impl FnOnce(&mut [u8], usize, u32)) -> Store {
    let mut image = image_of(store);
    let (index, at) = node_of(&image, level);
    let (number, page) = &mut image.pages[index];
    let handle = (*number as usize * PAGE_SIZE + at) / 16;
    change(page, at, handle as u32);
    open(&image).unwrap()
}

fn is_damage<T: std::fmt::Debug>(found: &Result<T, StoreError>) -> bool {
    matches!(found, Err(StoreError::Damaged { .. }))
}

/// Everything that a sorted set can be asked for.
fn use_all(store: &mut Store) {
    if let Ok(zset) = zset::view(store, DB, KEY) {
        let len = zset.len().unwrap_or(0);
        for direction in [Direction::Up, Direction::Down] {
            let _ = zset.range(0..u64::MAX, direction, |_, _| true);
            let _ = zset.range(len / 3..len / 2, direction, |_, _| true);
        }
        let _ = zset.ranks_between(&Cut::BelowScore(10.0), &Cut::UpToScore(70.0));
        let _ = zset.ranks_between(&Cut::BelowMember(b"member:1"), &Cut::UpToMember(b"member:2"));
        let _ = zset.rank(b"member:77");
        let _ = zset.scan(0, 100, &mut |_, _| {});
    }
    let _ = zset::random_members(store, DB, KEY, 20, true, &mut |_, _| {});
    let _ = store.digest();
    let _ = store.memory_usage(DB, KEY);
    let _ = store.copy(DB, KEY, DB, b"copy", true);
    let _ = zset::store_range(store, DB, b"range", KEY, 3..60);
    if let Ok(operands) = zset::operands(store, DB, [KEY, b"copy"].into_iter()) {
        let how = quire_store::set::SetOperation::Union;
        let _ = zset::store_combination(store, DB, b"union", how, Aggregate::Sum, &operands);
    }
    if let Ok(mut zset) = zset::open_mut(store, DB, KEY) {
        for number in 0..200u32 {
            let _ = zset.set(format!("member:{}", number * 2).as_bytes(), f64::from(number * 7 % 90));
            let _ = zset.remove(format!("member:{}", number / 2).as_bytes());
        }
        let _ = zset.remove_ranks(5..60);
        let _ = zset.pop(Direction::Down, 5, &mut |_, _| true);
    }
    let _ = store.remove(DB, KEY);
    while store.reclaim_step(1000).is_ok_and(|freed| freed > 0) {}
}

#[test]
fn a_packed_sorted_set_that_is_not_well_formed_is_named() {
    // A count of two bytes, then each member behind its length of a byte and a score of a byte.
    for (at, byte, what) in [
        (0, 9, "more members than there are"),
        (0, 4, "fewer members than there are"),
        (0, 0, "no members"),
        (1, 1, "hundreds of members"),
        (2, 60, "a member longer than the sorted set"),
        (3, 3, "a score that is not in order"),
        (3, 0xca, "a score of a kind that there is not"),
        (3, 0xc0, "an integer of no bytes"),
        (2 + 10 + 9, b'0', "a member that is there twice"),
    ] {
        let mut image = image_of(&mut made(5));
        let mark = |page: &[u8]| page.windows(KEY.len()).position(|bytes| bytes == KEY);
        let (index, place) =
            image.pages.iter().enumerate().find_map(|(index, (_, page))| mark(page).map(|at| (index, at))).unwrap();
        image.pages[index].1[place + KEY.len() + at] = byte;
        let mut store = open(&image).unwrap();
        assert!(is_damage(&store.check_value(DB, KEY)), "{what}: {:?}", store.check_value(DB, KEY));
        use_all(&mut store);
    }
}

#[test]
fn a_leaf_that_is_not_well_formed_is_named() {
    let members = HEADER + 8 * LEAF_SLOTS;
    let cases: [(usize, u32, &str); 10] = [
        (0, 77, "a number by which the table does not find it"),
        (4, NODE | 1, "a leaf that says it has children"),
        (4, 5, "a member in the place of a node"),
        (8, 0, "no slots in use"),
        (8, 85, "more slots in use than there are"),
        (8, 20, "fewer slots in use than its parent counts"),
        (12, 50_000, "slots beyond what any leaf has"),
        (HEADER + 8 * 3 + 4, 0x7ff8_0000, "a score that is no number"),
        (members + 4, 0, "no member"),
        (members + 4, u32::MAX / 2, "a member outside"),
    ];
    for (at, value, what) in cases {
        let mut store = changed(&mut tree(), 0, |page, node, _| put(page, node + at, value));
        assert!(is_damage(&store.check_value(DB, KEY)), "{what}: {:?}", store.check_value(DB, KEY));
        use_all(&mut store);
    }
    // A member twice, instead of its neighbour.
    let mut store = changed(&mut tree(), 0, |page, node, _| {
        let first = word(page, node + members);
        put(page, node + members + 4, first);
    });
    assert!(is_damage(&store.check_value(DB, KEY)));
    use_all(&mut store);
}

#[test]
fn a_node_that_does_not_fit_its_children_is_named() {
    let (members, children) = (HEADER + 8 * INNER_SLOTS, HEADER + 12 * INNER_SLOTS);
    let counts = children + 4 * INNER_SLOTS;
    let cases: [(usize, Option<u32>, &str); 9] = [
        (4, Some(NODE | 12), "a level far above its children's"),
        (4, Some(NODE | 13), "a level that there is not"),
        (8, Some(1), "fewer children than there are"),
        (HEADER + 4, Some(0x7ff8_0000), "a score that is no number"),
        (members, None, "itself for a member"),
        (children, None, "itself for a child"),
        (children + 4, None, "itself for another child"),
        (counts, Some(1), "fewer members than the child has"),
        (counts + 4, Some(u32::MAX), "more members than fit"),
    ];
    for (at, value, what) in cases {
        let mut store = changed(&mut tree(), 1, |page, node, handle| put(page, node + at, value.unwrap_or(handle)));
        assert!(is_damage(&store.check_value(DB, KEY)), "{what}: {:?}", store.check_value(DB, KEY));
        use_all(&mut store);
    }
    // The same child twice.
    let mut store = changed(&mut tree(), 1, |page, node, _| {
        let first = word(page, node + children);
        put(page, node + children + 4, first);
    });
    assert!(is_damage(&store.check_value(DB, KEY)));
    use_all(&mut store);
}

#[test]
fn a_sorted_set_that_says_more_members_than_it_has_gives_no_short_answer() {
    let counts = HEADER + 16 * INNER_SLOTS;
    let mut store = changed(&mut tree(), 1, |page, node, _| {
        let last = node + counts + 4 * (word(page, node + 8) as usize - 1);
        let more = word(page, last) + 3;
        put(page, last, more);
    });
    let zset = zset::view(&mut store, DB, KEY).unwrap();
    assert_eq!(zset.len().unwrap(), 203);
    let shown = zset.range(0..203, Direction::Up, |_, _| true);
    assert!(is_damage(&shown), "{shown:?}");
    assert!(zset.range(0..100, Direction::Up, |_, _| true).is_ok(), "what is there is still read");
}

#[test]
fn a_range_beyond_what_a_sorted_set_says_is_damage() {
    let counts = HEADER + 16 * INNER_SLOTS;
    let mut store = changed(&mut tree(), 1, |page, node, _| {
        let last = node + counts + 4 * (word(page, node + 8) as usize - 1);
        put(page, last, 1);
    });
    let zset = zset::view(&mut store, DB, KEY).unwrap();
    let len = zset.len().unwrap();
    assert!(len < 200);
    // All members lie before this place, which are more than it says.
    let ranks = zset.ranks_between(&Cut::Start, &Cut::UpToScore(f64::INFINITY));
    assert!(is_damage(&ranks), "{ranks:?}");
    let shown = zset.range(0..len + 1, Direction::Up, |_, _| true);
    assert!(is_damage(&shown), "{shown:?}");
    for end in [len, u64::MAX] {
        let mut seen = 0;
        zset.range(0..end, Direction::Down, |_, _| {
            seen += 1;
            true
        })
        .unwrap();
        assert_eq!(seen, len);
    }
    // So is that of a packed one.
    let mut store = made(5);
    let zset = zset::view(&mut store, DB, KEY).unwrap();
    assert!(is_damage(&zset.range(2..6, Direction::Up, |_, _| true)));
}

#[test]
fn a_node_that_is_longer_than_its_object_is_not_written_to() {
    let config = StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        limits: EncodingLimits::default().with(&zset::MAX_PACKED_MEMBERS, 0),
        ..StoreConfig::default()
    };
    let mut store = Store::create(config).unwrap();
    for number in 0..5u32 {
        let mut zset = zset::open_mut(&mut store, DB, KEY).unwrap();
        zset.set(format!("member:{number}").as_bytes(), f64::from(number)).unwrap();
    }
    let mut image = image_of(&mut store);
    // The only leaf is a small one, of eight slots. It says that it has those of a large one.
    let (index, at) = node_with(&image, 0, 8);
    put(&mut image.pages[index].1, at + 12, LEAF_SLOTS as u32);
    let mut store = open(&image).unwrap();
    assert!(is_damage(&store.check_value(DB, KEY)));
    let before = image_of(&mut store);
    let added = zset::open_mut(&mut store, DB, KEY).unwrap().set(b"new", 77.0);
    assert!(is_damage(&added), "{added:?}");
    let number = image.pages[index].0;
    let node = |image: &Image| {
        let (_, page) = image.pages.iter().find(|(own, _)| *own == number).unwrap();
        page[at..at + HEADER + 8 * 12].to_vec()
    };
    assert_eq!(node(&image_of(&mut store)), node(&before), "nothing of it has changed");
    use_all(&mut store);
}

#[test]
fn a_node_with_a_number_of_slots_that_none_is_made_with_is_named() {
    let fewer = INNER_SLOTS - 1;
    let mut store = changed(&mut tree(), 1, |page, node, _| {
        let used = word(page, node + 8) as usize;
        // Its columns lie where those of such a node are.
        for column in 0..3 {
            let from = node + HEADER + (8 + 4 * column) * INNER_SLOTS;
            page.copy_within(from..from + 4 * used, node + HEADER + (8 + 4 * column) * fewer);
        }
        put(page, node + 12, fewer as u32);
    });
    let zset = zset::view(&mut store, DB, KEY).unwrap();
    assert_eq!(zset.rank(b"member:150").unwrap(), Some((150, 75.0)));
    assert!(is_damage(&store.check_value(DB, KEY)));
    use_all(&mut store);
}

#[test]
fn a_removal_that_fails_midway_tells_what_is_gone() {
    let mut image = image_of(&mut tree());
    // The table finds this member by another hash than the one that its object says.
    let text = b"member:3";
    let is_item = |page: &[u8], at: usize| {
        at.is_multiple_of(16) && word(page, at + 4) == text.len() as u32 && page[at + 16..].starts_with(text)
    };
    let found = image
        .pages
        .iter()
        .enumerate()
        .find_map(|(index, (_, page))| (0..PAGE_SIZE - 32).find(|&at| is_item(page, at)).map(|at| (index, at)));
    let (index, at) = found.unwrap();
    let page = &mut image.pages[index].1;
    let hash = word(page, at) ^ 1;
    put(page, at, hash);
    for down in [false, true] {
        let mut store = open(&image).unwrap();
        let mut zset = zset::open_mut(&mut store, DB, KEY).unwrap();
        let (from, count) = if down { (Direction::Down, 198) } else { (Direction::Up, 10) };
        let done = zset.pop(from, count, &mut |_, _| true);
        assert!(is_damage(&done), "{done:?}");
        // The member itself has left the order when its object is not found.
        assert_eq!(zset.removed(), if down { 2 } else { 4 });
        assert_eq!(zset.len().unwrap(), 200 - zset.removed());
        drop(zset);
        use_all(&mut store);
    }
}

thread_local! {
    static IMAGE: Image = image_of(&mut tree());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn bytes_of_nodes_that_are_anything_give_errors(level in 0u32..2, hits in prop::collection::vec((0usize..1024, any::<u8>()), 1..8)) {
        let mut image = IMAGE.with(Clone::clone);
        let (index, at) = node_of(&image, level);
        for (offset, byte) in hits {
            image.pages[index].1[(at + offset).min(PAGE_SIZE - 1)] = byte;
        }
        if let Ok(mut store) = open(&image) {
            use_all(&mut store);
        }
    }
}
