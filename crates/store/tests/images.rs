//! Stores that come from an image: whole, in the middle of freeing, and damaged.

mod common;

use common::{Image, config, image_of, open};
use proptest::prelude::*;
use quire_snapshot::PAGE_SIZE;
use quire_store::{DbId, Expiry, Store, hash, string};

const DB: DbId = DbId(0);
const NOW_MS: i64 = 1_000_000;

/// Some of everything: strings of all sizes, packed and large hashes, keys that expire, long keys, tables being freed.
fn varied() -> Store {
    let mut store = Store::create(config()).unwrap();
    store.set_now_ms(NOW_MS);
    for number in 0..400 {
        let key = format!("key:{number}");
        let expiry = if number % 3 == 0 { Expiry::At(NOW_MS + number) } else { Expiry::Clear };
        string::set(&mut store, DB, key.as_bytes(), &vec![b'v'; number as usize * 3], expiry).unwrap();
        hash::set(&mut store, DB, format!("small:{}", number % 20).as_bytes(), key.as_bytes(), b"value").unwrap();
        hash::set(&mut store, DbId(1), b"large", key.as_bytes(), &vec![b'w'; number as usize]).unwrap();
        hash::set(&mut store, DbId(2), b"gone", key.as_bytes(), b"value").unwrap();
    }
    string::set(&mut store, DB, &[b'k'; 10_000], &[b'v'; 50_000], Expiry::Clear).unwrap();
    store.flush(DbId(2)).unwrap();
    store
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
    string::set(&mut again, DB, b"key:5", b"other", Expiry::Clear).unwrap();
    assert_ne!(again.digest().unwrap(), digest);
    assert_eq!(store.digest().unwrap(), digest);
}

#[test]
fn freeing_goes_on_after_a_restart() {
    let mut store = Store::create(config()).unwrap();
    let empty_objects = store.arena().stats().objects;
    for number in 0..5000 {
        string::set(&mut store, DB, format!("key:{number}").as_bytes(), b"value", Expiry::At(number)).unwrap();
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
fn foreign_content_is_refused() {
    let mut store = varied();
    let root = store.arena().root();
    let root_page = root.raw() / (PAGE_SIZE / 16) as u32;
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
        let _ = string::set(store, DB, key, b"short", Expiry::Keep);
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
        let _ = string::set(store, DB, format!("new:{number}").as_bytes(), b"value", Expiry::Clear);
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
            let handle = quire_arena::Handle::from_raw((1024 * PAGE_SIZE / 16) as u32 + place / 4);
            if let Ok(bytes) = store.arena_mut().bytes_mut(handle, (place % 16) as usize, 1) {
                bytes[0] = byte;
            }
        }
        use_everything(&mut store);
    }
}
