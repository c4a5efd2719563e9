//! Values that are made aside: no command finds them before they are published, and publishing is one change.

use quire_store::{DbId, End, ExpiryChange, KeyFate, Store, StoreConfig, StoreError, list, set, string};

const DB: DbId = DbId(0);

fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(1), ..StoreConfig::default() }
}

#[test]
fn a_value_gets_its_key_and_its_end_as_one_change() {
    let mut store = Store::create(config()).unwrap();
    store.set_now_ms(1_000_000);
    string::set(&mut store, DB, b"k", b"old", ExpiryChange::At(2_000_000)).unwrap();
    store.set_noting_key_events(true);
    let before = store.changes();
    let aside = store.aside_key();
    for number in 0..1000u32 {
        let mut list = list::open_mut(&mut store, DB, &aside).unwrap().made_aside();
        list.push(End::Back, &number.to_be_bytes()).unwrap();
    }
    assert_eq!((store.changes(), store.has_key_events()), (before, false));
    assert_eq!(string::get(&mut store, DB, b"k").unwrap(), Some(&b"old"[..]));
    store.publish_aside(DB, &aside, b"k", Some(3_000_000)).unwrap();
    assert_eq!(store.changes() - before, 1);
    let events = store.take_key_events();
    assert!(matches!(&events[..], [event] if *event.key == *b"k" && event.fate == KeyFate::Changed), "{events:?}");
    assert_eq!((store.len(DB), store.expires_len(DB)), (1, 1));
    assert_eq!(store.expiry(DB, b"k").unwrap(), Some(Some(3_000_000)));
    assert_eq!(list::view(&mut store, DB, b"k").unwrap().len().unwrap(), 1000);
    assert!(store.check_value(DB, b"k").unwrap());
}

#[test]
fn what_is_discarded_leaves_nothing() {
    let mut store = Store::create(config()).unwrap();
    string::set(&mut store, DB, b"k", b"old", ExpiryChange::Clear).unwrap();
    let digest = store.digest().unwrap();
    let aside = store.aside_key();
    let mut set = set::open_mut(&mut store, DB, &aside).unwrap().made_aside();
    (0..1000u32).for_each(|number| assert!(set.add(&number.to_be_bytes()).unwrap()));
    drop(set);
    store.discard_aside(DB, &aside).unwrap();
    store.discard_aside(DB, &aside).unwrap();
    assert!(matches!(store.publish_aside(DB, &aside, b"k", None), Err(StoreError::NoSuchKey)));
    assert_eq!((store.len(DB), store.digest().unwrap()), (1, digest));
}

#[test]
fn a_key_can_be_told_for_how_long_it_was_not_used() {
    let mut store = Store::create(config()).unwrap();
    store.set_now_ms(1_000_000_000);
    string::set(&mut store, DB, b"k", b"v", ExpiryChange::Clear).unwrap();
    let before = store.changes();
    assert!(store.set_idle_seconds(DB, b"k", 1234).unwrap());
    assert!(!store.set_idle_seconds(DB, b"none", 1).unwrap());
    assert_eq!((store.idle_seconds(DB, b"k").unwrap(), store.changes()), (Some(1234), before));
    assert!(store.set_access_count(DB, b"k", 77).unwrap() && !store.set_access_count(DB, b"none", 1).unwrap());
    let found = (store.access_count(DB, b"k").unwrap(), store.idle_seconds(DB, b"k").unwrap(), store.changes());
    assert_eq!(found, (Some(77), Some(0), before));
    assert!(store.set_idle_seconds(DB, b"k", u64::MAX).unwrap());
    // As long as the clock of accesses can tell.
    assert!(store.idle_seconds(DB, b"k").unwrap().is_some_and(|idle_s| idle_s >= 1_000_000));
}
