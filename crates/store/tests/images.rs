//! Stores that come from an image: whole, in the middle of freeing, and damaged.

use proptest::prelude::*;
use quire_snapshot::PAGE_SIZE;
use quire_store::list::End;
use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate};
use quire_store::{
    Cut, DbId, Direction, ExpiryChange, SetMember, Store, StoreError, attachment, hash, list, set, string,
};

use crate::common::{Image, config, image_of, open};

const DB: DbId = DbId(0);
const NOW_MS: i64 = 1_000_000;

/// Some of everything: strings of all sizes, packed and large hashes, sets, lists and sorted sets of every encoding, keys that expire, long keys, tables being freed.
fn varied() -> Store {
    let mut store = Store::create(config()).unwrap();
    store.set_now_ms(NOW_MS);
    for number in 0..400 {
        let key = format!("key:{number}");
        let expiry = if number % 3 == 0 { ExpiryChange::At(NOW_MS + number) } else { ExpiryChange::Clear };
        string::set(&mut store, DB, key.as_bytes(), &vec![b'v'; number as usize * 3], expiry).unwrap();
        hash::set(&mut store, DB, format!("small:{}", number % 20).as_bytes(), key.as_bytes(), b"value").unwrap();
        hash::set(&mut store, DbId(1), b"large", key.as_bytes(), &vec![b'w'; number as usize]).unwrap();
        hash::set(&mut store, DbId(2), b"gone", key.as_bytes(), b"value").unwrap();
        add(&mut store, b"members", key.as_bytes());
        add(&mut store, b"ints", (number * 7).to_string().as_bytes());
        push(&mut store, b"chain", &vec![b'x'; number as usize]);
        give_score(&mut store, b"tree", key.as_bytes(), (number * 77 % 400) as f64);
        if number < 60 {
            add(&mut store, b"words", key.as_bytes());
            push(&mut store, b"row", key.as_bytes());
            give_score(&mut store, b"ranks", key.as_bytes(), number as f64 / 3.0);
        }
    }
    string::set(&mut store, DB, &[b'k'; 10_000], &[b'v'; 50_000], ExpiryChange::Clear).unwrap();
    store.flush(DbId(2)).unwrap();
    store
}

fn add(store: &mut Store, key: &[u8], member: &[u8]) {
    set::open_mut(store, DbId(1), key).unwrap().add(member).unwrap();
}

fn push(store: &mut Store, key: &[u8], element: &[u8]) {
    let mut list = list::open_mut(store, DbId(1), key).unwrap();
    list.make_room([element]).unwrap();
    list.push(End::Back, element).unwrap();
}

fn give_score(store: &mut Store, key: &[u8], member: &[u8], score: f64) {
    zset::open_mut(store, DbId(1), key).unwrap().set(member, score).unwrap();
}

#[test]
fn a_store_reopens_as_it_was() {
    let mut store = varied();
    let digest = store.digest().unwrap();
    let mut again = open(&image_of(&mut store)).unwrap();
    again.set_now_ms(NOW_MS);
    assert_eq!(again.digest().unwrap(), digest);
    assert_eq!(again.len(DB), store.len(DB));
    assert_eq!(again.expires_len(DB), store.expires_len(DB));
    assert_eq!(string::get(&mut again, DB, b"key:5").unwrap(), Some(&[b'v'; 15][..]));
    assert_eq!(hash::len(&mut again, DbId(1), b"large").unwrap(), 400);
    string::set(&mut again, DB, b"key:5", b"other", ExpiryChange::Clear).unwrap();
    assert_ne!(again.digest().unwrap(), digest);
    assert_eq!(store.digest().unwrap(), digest);
}

#[test]
fn freeing_goes_on_after_a_restart() {
    let mut store = Store::create(config()).unwrap();
    let empty_objects = store.arena().stats().objects;
    for number in 0..5000 {
        string::set(&mut store, DB, format!("key:{number}").as_bytes(), b"value", ExpiryChange::At(number)).unwrap();
        hash::set(&mut store, DB, b"hash", format!("field:{number}").as_bytes(), b"value").unwrap();
    }
    store.flush(DB).unwrap();
    assert!(store.reclaim_step(500).unwrap() >= 500);
    let mut again = open(&image_of(&mut store)).unwrap();
    assert!(again.stats().reclaim_pending > 0);
    let mut steps = 0;
    while again.reclaim_step(500).unwrap() > 0 {
        steps += 1;
    }
    assert!(steps > 10, "{steps}");
    assert_eq!(again.stats().reclaim_pending, 0);
    assert_eq!(again.arena().stats().objects, empty_objects);
}

#[test]
fn what_lies_beside_the_keys_is_in_the_image_and_stays_when_all_keys_go() {
    let mut store = varied();
    let objects = store.arena().stats().objects;
    assert_eq!(attachment::get(&store).unwrap(), None);
    for bytes in [vec![b'a'; 100], vec![b'b'; 200_000], b"c".to_vec()] {
        let changes = store.changes();
        attachment::set(&mut store, &bytes).unwrap();
        assert_eq!((attachment::get(&store).unwrap(), store.changes()), (Some(&bytes[..]), changes + 1));
        assert_eq!(store.arena().stats().objects, objects + 1);
        let mut again = open(&image_of(&mut store)).unwrap();
        for db in 0..again.databases() {
            again.flush(DbId(db)).unwrap();
        }
        assert_eq!(attachment::get(&again).unwrap(), Some(&bytes[..]));
    }
    attachment::set(&mut store, b"").unwrap();
    assert_eq!((attachment::get(&store).unwrap(), store.arena().stats().objects), (None, objects));
    assert_eq!(attachment::get(&open(&image_of(&mut store)).unwrap()).unwrap(), None);
}

#[test]
fn a_place_beside_the_keys_that_is_none_is_an_error() {
    let mut store = varied();
    attachment::set(&mut store, b"some bytes").unwrap();
    let root = store.arena().root();
    let image = image_of(&mut store);
    // The object and the length of the attachment.
    for offset in [1328, 1332] {
        let mut damaged = image.clone();
        let page = damaged.pages.iter_mut().find(|(page, _)| *page == root.low() / (PAGE_SIZE / 16) as u32).unwrap();
        let at = root.raw() as usize * 16 % PAGE_SIZE + offset;
        page.1[at + 2] ^= 0x7f;
        let mut store = open(&damaged).unwrap();
        assert!(matches!(attachment::get(&store), Err(StoreError::Damaged { .. })), "{offset}");
        assert!(offset == 1332 || attachment::set(&mut store, b"x").is_err());
    }
}

#[test]
fn foreign_content_is_refused() {
    let mut store = varied();
    let root = store.arena().root();
    let root_page = root.low() / (PAGE_SIZE / 16) as u32;
    let image = image_of(&mut store);
    for (offset, what) in [(0, "magic"), (8, "version"), (12, "databases"), (40 + 24, "level")] {
        let mut damaged = image.clone();
        let page = damaged.pages.iter_mut().find(|(page, _)| *page == root_page).unwrap();
        page.1[root.raw() as usize * 16 % PAGE_SIZE + offset] ^= 0x40;
        assert!(open(&damaged).is_err(), "{what}");
    }
}

/// Every operation there is; errors are welcome, panics and endless loops are not.
fn use_everything(store: &mut Store) {
    store.set_now_ms(NOW_MS + 100);
    for db in [DB, DbId(1)] {
        let _ = store.for_each_key(db, &mut |_, _| {});
        let mut cursor = 0;
        for _ in 0..2000 {
            cursor = store.scan(db, cursor, 10, &mut |_, _| {}).unwrap_or(0);
            if cursor == 0 {
                break;
            }
        }
        let _ = store.random_key(db);
    }
    let _ = store.digest();
    for number in (0..400).step_by(7) {
        let key = format!("key:{number}");
        let key = key.as_bytes();
        let _ = string::get(store, DB, key).map(|value| value.map(<[u8]>::len));
        let _ = store.memory_usage(DB, key);
        let _ = store.encoding(DB, key);
        let _ = string::append(store, DB, key, b"more");
        let _ = string::set_range(store, DB, key, 20_000, b"more");
        let _ = store.set_expiry(DB, key, Some(NOW_MS + 500));
        let _ = string::set(store, DB, key, b"short", ExpiryChange::Keep);
        let _ = store.rename(DB, key, b"other");
        let _ = store.copy(DB, b"other", DbId(3), key, true);
        let _ = store.move_key(DB, b"other", DbId(4));
        let _ = hash::get(store, DbId(1), b"large", key).map(|value| value.map(<[u8]>::len));
        let _ = hash::set(store, DbId(1), b"large", key, b"another value");
        let _ = hash::del(store, DbId(1), b"large", key);
        let small = format!("small:{}", number % 20);
        let _ = hash::set(store, DB, small.as_bytes(), key, b"new");
        let _ = hash::del(store, DB, small.as_bytes(), key);
        let _ = hash::random_fields(store, DB, small.as_bytes(), 3, number % 2 == 0, &mut |_, _| {});
    }
    use_sets(store);
    use_lists(store);
    use_sorted_sets(store);
    let _ = hash::random_fields(store, DbId(1), b"large", 50, true, &mut |_, _| {});
    let _ = hash::scan(store, DbId(1), b"large", 0, 1000, &mut |_, _| {});
    let _ = store.copy(DbId(1), b"large", DB, b"copy", true);
    for _ in 0..50 {
        let _ = store.expire_step(50);
        let _ = store.reclaim_step(100);
    }
    let _ = store.swap(DB, DbId(1));
    let _ = store.flush_all();
    for _ in 0..100 {
        let _ = store.reclaim_step(1000);
    }
    for number in 0..300 {
        let _ = string::set(store, DB, format!("new:{number}").as_bytes(), b"value", ExpiryChange::Clear);
    }
}

/// Every operation on sets.
fn use_sets(store: &mut Store) {
    let keys: [&[u8]; 4] = [b"ints", b"words", b"members", b"large"];
    for key in keys {
        for number in (0..400).step_by(11) {
            let member = format!("key:{number}");
            let _ = set::view(store, DbId(1), key).and_then(|set| set.contains(&SetMember::Int(number * 7)));
            if let Ok(mut set) = set::open_mut(store, DbId(1), key) {
                let _ = set.remove(member.as_bytes());
                let _ = set.remove((number * 7).to_string().as_bytes());
                let _ = set.add((number * 5).to_string().as_bytes());
            }
        }
        let _ = set::view(store, DbId(1), key).and_then(|set| set.scan(0, 50, &mut |_| {}));
        let _ = set::random_members(store, DbId(1), key, 30, true, &mut |_| {});
        let _ = set::pop(store, DbId(1), key, 3, &mut |_| true, &mut |_| {});
        let _ = set::move_member(store, DbId(1), key, b"words", b"key:2");
        let _ = store.copy(DbId(1), key, DbId(5), key, true);
        let _ = store.digest_value(DbId(1), key);
        let _ = store.memory_usage(DbId(1), key);
        if let Ok(mut set) = set::open_mut(store, DbId(1), key) {
            let _ = set.add(&[b'm'; 100]);
        }
    }
    for how in [SetOperation::Intersection, SetOperation::Union, SetOperation::Difference] {
        let sources = [&b"ints"[..], b"words", b"members"];
        let _ = set::store_combination(store, DbId(1), b"to", how, sources.into_iter());
    }
}

/// Every operation on lists.
fn use_lists(store: &mut Store) {
    for key in [b"chain".as_slice(), b"row", b"large"] {
        if let Ok(list) = list::view(store, DbId(1), key) {
            let len = list.len().unwrap_or(0);
            let _ = list.range(0..len.min(1 << 20), |_| {});
            let _ = list.positions(End::Back, b"key:5", 1000, |_| true);
            (0..400).step_by(37).for_each(|index| _ = list.get(index));
        }
        for number in 0..20u8 {
            let Ok(mut list) = list::open_mut(store, DbId(1), key) else { continue };
            let element = vec![number; usize::from(number) * 60];
            let _ = list.make_room([element.as_slice()]);
            let _ = list.push(if number % 2 == 0 { End::Front } else { End::Back }, &element);
            let _ = list.set(u64::from(number) * 15, &element);
            let _ = list.insert(&element, number % 2 == 0, b"other");
            let _ = list.remove(End::Back, b"other", 1);
            let _ = list.pop(End::Front, 2, &mut |_| true);
        }
        let _ = list::move_element(store, DbId(1), (key, End::Back), (b"row", End::Front));
        let _ = store.copy(DbId(1), key, DbId(5), key, true);
        let _ = store.digest_value(DbId(1), key);
        let _ = store.memory_usage(DbId(1), key);
        for part in [3, 1] {
            let Ok(mut list) = list::open_mut(store, DbId(1), key) else { continue };
            let len = list.len().unwrap_or(0);
            let _ = list.keep(len / 7..(len / 7).saturating_add(len / (2 * part)));
        }
    }
}

/// Every operation on sorted sets.
fn use_sorted_sets(store: &mut Store) {
    let keys = [b"tree".as_slice(), b"ranks", b"large"];
    for key in keys {
        if let Ok(zset) = zset::view(store, DbId(1), key) {
            let _ = zset.range(0..u64::MAX, Direction::Up, |_, _| true);
            let _ = zset.range(7..90, Direction::Down, |_, _| true);
            let _ = zset.ranks_between(&Cut::BelowScore(20.0), &Cut::UpToScore(50.0));
            let _ = zset.rank_of(&Cut::UpToMember(b"key:5"));
            let _ = zset.rank(b"key:5");
            let _ = zset.scan(0, 50, &mut |_, _| {});
        }
        for number in (0..400).step_by(11) {
            let member = format!("key:{number}");
            let Ok(mut zset) = zset::open_mut(store, DbId(1), key) else { continue };
            let _ = zset.set(member.as_bytes(), f64::from(number * 3));
            let _ = zset.set(format!("new:{number}").as_bytes(), f64::from(number));
            let _ = zset.remove(format!("key:{}", number + 1).as_bytes());
        }
        let _ = zset::random_members(store, DbId(1), key, 30, true, &mut |_, _| {});
        let _ = store.copy(DbId(1), key, DbId(5), key, true);
        let _ = store.digest_value(DbId(1), key);
        let _ = store.memory_usage(DbId(1), key);
        if let Ok(mut zset) = zset::open_mut(store, DbId(1), key) {
            let _ = zset.pop(Direction::Down, 5, &mut |_, _| true);
            let _ = zset.remove_ranks(5..20);
            let _ = zset.set(&[b'm'; 100], 7.0);
        }
    }
    for how in [SetOperation::Intersection, SetOperation::Union, SetOperation::Difference] {
        let sources = [&b"tree"[..], b"ranks", b"members"];
        if let Ok(operands) = zset::operands(store, DbId(1), sources.into_iter()) {
            let _ = zset::store_combination(store, DbId(1), b"to", how, Aggregate::Sum, &operands);
        }
    }
    let _ = zset::store_range(store, DbId(1), b"ranks", b"tree", 5..50);
}

/// Opens a store after `change` was made to the first place in it that holds `mark`.
fn with_bytes_changed(store: &mut Store, mark: &[u8], change: impl FnOnce(&mut [u8])) -> Store {
    let mut image = image_of(store);
    for (_, page) in &mut image.pages {
        if let Some(at) = page.windows(mark.len()).position(|bytes| bytes == mark) {
            change(&mut page[at..]);
            return open(&image).unwrap();
        }
    }
    panic!("the mark is nowhere");
}

/// Opens a store in which the entry of a short key without a time to live says that its value has this encoding.
fn with_encoding(store: &mut Store, key: &[u8], encoding: u8) -> Store {
    let mut image = image_of(store);
    for (_, page) in &mut image.pages {
        // Also where the entry lay before it grew, which no table names any more.
        let places: Vec<usize> = (0..page.len()).filter(|&at| page[at..].starts_with(key)).collect();
        // The header of 16 bytes lies before the key, and has the encoding behind four bytes.
        places.into_iter().for_each(|at| page[at - 12] = encoding);
    }
    open(&image).unwrap()
}

#[test]
fn encodings_of_a_newer_version_are_refused_as_such() {
    let key = &b"a key of another version"[..];
    let makers: [fn(&mut Store, &[u8]); 4] = [
        |store, key| string::set(store, DB, key, b"value", ExpiryChange::Clear).unwrap(),
        |store, key| assert!(hash::set(store, DB, key, b"field", b"value").unwrap()),
        |store, key| assert!(set::open_mut(store, DB, key).unwrap().add(b"1").unwrap()),
        |store, key| (0..300).for_each(|n| _ = hash::set(store, DB, key, format!("{n}").as_bytes(), b"").unwrap()),
    ];
    for make in makers {
        for (encoding, is_newer) in [(15, true), (255, true), (0, false)] {
            let mut store = Store::create(config()).unwrap();
            make(&mut store, key);
            let mut store = with_encoding(&mut store, key, encoding);
            let refused = |result: Result<(), StoreError>, what: &str| match result {
                Err(StoreError::Newer { what: found }) => {
                    assert!(is_newer && found == format!("a value of encoding {encoding}"), "{what}: {found}");
                }
                Err(StoreError::Damaged { .. }) => assert!(!is_newer, "{what}: encoding {encoding}"),
                other => panic!("{what}: {other:?}"),
            };
            refused(string::get(&mut store, DB, key).map(drop), "GET");
            refused(hash::get(&mut store, DB, key, b"field").map(drop), "HGET");
            refused(set::view(&mut store, DB, key).map(drop), "SMEMBERS");
            refused(list::view(&mut store, DB, key).map(drop), "LRANGE");
            refused(store.kind(DB, key).map(drop), "TYPE");
            refused(store.encoding(DB, key).map(drop), "OBJECT ENCODING");
            refused(store.memory_usage(DB, key).map(drop), "MEMORY USAGE");
            refused(store.check_value(DB, key).map(drop), "a check");
            refused(store.digest().map(drop), "DEBUG DIGEST");
            refused(store.copy(DB, key, DB, b"copy", true).map(drop), "COPY");
            refused(store.rename(DB, key, b"other").map(drop), "RENAME");
            refused(string::set(&mut store, DB, key, b"new", ExpiryChange::Clear), "SET");
            refused(hash::set(&mut store, DB, key, b"field", b"new").map(drop), "HSET");
            refused(set::open_mut(&mut store, DB, key).map(drop), "SADD");
            refused(list::open_mut(&mut store, DB, key).map(drop), "LPUSH");
            refused(store.set_expiry(DB, key, Some(NOW_MS)).map(drop), "EXPIRE");
            refused(store.remove(DB, key).map(drop), "DEL");
            assert_eq!(
                store.len(DB),
                u64::from(is_newer),
                "what is refused has changed nothing, but the key of damage can go"
            );
        }
    }
}

#[test]
fn hostile_sets_are_named_as_damage() {
    let members = |store: &mut Store| {
        let mut count = 0;
        set::view(store, DB, b"hostile key")?.for_each(|_| {
            count += 1;
            true
        })?;
        Ok::<usize, StoreError>(count)
    };
    let made = |members: &[&[u8]]| {
        let mut store = Store::create(config()).unwrap();
        let mut set = set::open_mut(&mut store, DB, b"made").unwrap();
        members.iter().for_each(|member| assert!(set.add(member).unwrap()));
        drop(set);
        // So that no freed entry has the key, too.
        assert!(store.rename(DB, b"made", b"hostile key").unwrap());
        store
    };
    let damaged = |result: Result<usize, StoreError>, what: &str| {
        assert!(matches!(result, Err(StoreError::Damaged { .. })), "{what}: {result:?}");
    };
    let check = |store: &Store, what: &str| {
        let found = store.check_value(DB, b"hostile key");
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{what}: {found:?}");
    };
    let (key, after) = (&b"hostile key"[..], b"hostile key".len());

    let ints: [&[u8]; 3] = [b"1", b"2", b"3"];
    assert!(made(&ints).check_value(DB, key).unwrap());
    let mut store = with_bytes_changed(&mut made(&ints), key, |bytes| bytes[after] = 3);
    damaged(members(&mut store), "integers of a width that there is not");
    let mut store = with_bytes_changed(&mut made(&ints), key, |bytes| bytes[after + 1] = 9);
    assert_eq!(members(&mut store).unwrap(), 3, "integers out of order can be read");
    check(&store, "integers out of order");
    let store = with_bytes_changed(&mut made(&ints), key, |bytes| bytes[after + 3] = 1);
    check(&store, "the same integer twice");

    let words: [&[u8]; 3] = [b"one", b"two", b"three"];
    assert!(made(&words).check_value(DB, key).unwrap());
    for (count, what) in [(4, "more members than there are"), (200, "many more")] {
        let mut store = with_bytes_changed(&mut made(&words), key, |bytes| bytes[after] = count);
        damaged(members(&mut store), what);
        check(&store, what);
    }
    for (count, what) in [(2, "fewer members than there are"), (0, "no members")] {
        check(&with_bytes_changed(&mut made(&words), key, |bytes| bytes[after] = count), what);
    }
    let mut store = with_bytes_changed(&mut made(&words), key, |bytes| bytes[after + 2] = 100);
    damaged(members(&mut store), "a member longer than its set");
    let second = after + 2 + 4 + 1;
    let store = with_bytes_changed(&mut made(&words), key, |bytes| bytes[second..][..3].copy_from_slice(b"one"));
    check(&store, "the same member twice");
}

#[test]
fn hostile_tables_of_sets_are_named_as_damage() {
    let made = || {
        let mut store = Store::create(config()).unwrap();
        let mut set = set::open_mut(&mut store, DB, b"made").unwrap();
        (0..600).for_each(|number| assert!(set.add(format!("member number {number:03}").as_bytes()).unwrap()));
        drop(set);
        assert!(store.rename(DB, b"made", b"hostile key").unwrap());
        store
    };
    let key = &b"hostile key"[..];
    assert!(made().check_value(DB, key).unwrap());
    // The head follows the key: count, bytes of items, directory, slots, level, split, overflow.
    let head = key.len();
    let other = |at: usize, value: u32, what: &str| {
        let mut store = with_bytes_changed(&mut made(), key, |bytes| {
            bytes[head + at..head + at + 4].copy_from_slice(&value.to_ne_bytes());
        });
        let found = store.check_value(DB, key);
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{what}: {found:?}");
        let _ = store.copy(DB, key, DB, b"copy", true);
        let _ = set::pop(&mut store, DB, key, 700, &mut |_| true, &mut |_| {});
        let _ = store.remove(DB, key);
        while store.reclaim_step(1000).is_ok_and(|freed| freed > 0) {}
    };
    other(0, 599, "fewer members than there are");
    other(0, 601, "more members than there are");
    other(16, 0, "no directory");
    other(16, u32::MAX, "a directory outside the memory");
    other(24, 31, "a level that no table has");
    other(28, u32::MAX, "a split beyond the level");
    let mut store = with_bytes_changed(&mut made(), b"member number 300", |bytes| bytes[0] = b'M');
    let found = store.check_value(DB, key);
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "a member that its hash does not lead to: {found:?}");
    assert!(store.remove(DB, key).unwrap());
}

/// The four bytes at this place of an image's memory.
fn bytes_at(image: &mut Image, place: usize) -> &mut [u8] {
    let page = image.pages.iter_mut().find(|(page, _)| *page as usize == place / PAGE_SIZE).unwrap();
    &mut page.1[place % PAGE_SIZE..][..4]
}

fn number_at(image: &mut Image, place: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(image, place).try_into().unwrap())
}

#[test]
fn buckets_of_a_set_that_lead_back_to_themselves_are_named_as_damage() {
    let mut store = Store::create(config()).unwrap();
    let mut set = set::open_mut(&mut store, DB, b"made").unwrap();
    (0..600).for_each(|number| assert!(set.add(format!("member number {number:03}").as_bytes()).unwrap()));
    drop(set);
    assert!(store.rename(DB, b"made", b"hostile key").unwrap());
    let key = &b"hostile key"[..];
    let mut image = image_of(&mut store);
    let mark = image.pages.iter().find_map(|(page, bytes)| {
        let at = bytes.windows(key.len()).position(|bytes| bytes == key)?;
        Some(*page as usize * PAGE_SIZE + at)
    });
    // A handle counts 16 bytes. The directory has the first segment's, which begins with the first bucket: ten items, then
    // the bucket that continues it.
    let directory = number_at(&mut image, mark.unwrap() + key.len() + 16) as usize * 16;
    let segment = number_at(&mut image, directory);
    bytes_at(&mut image, segment as usize * 16 + 40).copy_from_slice(&segment.to_ne_bytes());
    let mut store = open(&image).unwrap();
    let found = store.check_value(DB, key);
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
    let walked = set::view(&mut store, DB, key).unwrap().for_each(|_| true);
    assert!(matches!(walked, Err(StoreError::Damaged { .. })), "{walked:?}");
    assert!(matches!(store.copy(DB, key, DB, b"copy", true), Err(StoreError::Damaged { .. })));
    assert_eq!(store.kind(DB, b"copy").unwrap(), None);
    let _ = set::pop(&mut store, DB, key, 700, &mut |_| true, &mut |_| {});
    let _ = store.remove(DB, key);
    for _ in 0..1000 {
        let _ = store.reclaim_step(1000);
    }
}

/// Overwrites bytes at random places of random pages.
fn damage(image: &Image, hits: &[(u32, u16, u8)], first_page: u32) -> Image {
    let mut image = image.clone();
    let start = image.pages.iter().position(|(page, _)| *page >= first_page).unwrap();
    let pages = (image.pages.len() - start) as u32;
    for &(page, offset, byte) in hits {
        image.pages[start + (page % pages) as usize].1[offset as usize % PAGE_SIZE] = byte;
    }
    image
}

fn hits() -> impl Strategy<Value = Vec<(u32, u16, u8)>> {
    // Small and extreme bytes make plausible lengths and handles more often than any byte would.
    let byte = prop_oneof![any::<u8>(), 0u8..4, Just(0xff)];
    prop::collection::vec((any::<u32>(), any::<u16>(), byte), 1..200)
}

thread_local! {
    static IMAGE: Image = image_of(&mut varied());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn damaged_objects_give_errors(hits in hits()) {
        // The first pages are the arena's own.
        let image = IMAGE.with(|image| damage(image, &hits, 1024));
        if let Ok(mut store) = open(&image) {
            use_everything(&mut store);
        }
    }

    #[test]
    fn a_damaged_allocator_gives_errors(hits in hits()) {
        let image = IMAGE.with(|image| damage(image, &hits, 0));
        if let Ok(mut store) = open(&image) {
            use_everything(&mut store);
        }
    }

    #[test]
    fn damage_while_running_gives_errors(hits in prop::collection::vec((0u32..150_000, any::<u8>()), 1..300)) {
        let mut store = IMAGE.with(|image| open(image).unwrap());
        for (place, byte) in hits {
            let handle = quire_arena::Handle::from_raw((1024 * PAGE_SIZE / 16) as u64 + u64::from(place / 4));
            if let Ok(bytes) = store.arena_mut().bytes_mut(handle, (place % 16) as usize, 1) {
                bytes[0] = byte;
            }
        }
        use_everything(&mut store);
    }
}
