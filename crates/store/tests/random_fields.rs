//! Fields of a hash that are drawn by chance, most of whose fields have expired and are not yet taken out: they are not all looked at.

use std::collections::BTreeSet;

use quire_store::{DbId, Store, hash};

use crate::common;

const DB: DbId = DbId(0);
const KEY: &[u8] = b"hash";
/// Fields whose time has come: of a table with many more buckets than a draw looks at.
const EXPIRED: usize = 120_000;

/// A hash of which `lasting` fields have no time to live, `mortal` ones have one, and all others are past it.
fn mostly_expired(lasting: usize, mortal: usize) -> Store {
    let mut store = Store::create(common::config()).unwrap();
    store.set_now_ms(1000);
    let mut hash = hash::open_mut(&mut store, DB, KEY).unwrap();
    for number in 0..EXPIRED {
        assert!(hash.load(format!("expired:{number}").as_bytes(), b"value", Some(2000)).unwrap());
    }
    for (name, many, expiry_ms) in [("lasting", lasting, None), ("mortal", mortal, Some(9000))] {
        for number in 0..many {
            assert!(hash.load(format!("{name}:{number}").as_bytes(), b"value", expiry_ms).unwrap());
        }
    }
    drop(hash);
    store.set_now_ms(5000);
    store
}

fn drawn(store: &mut Store, wanted: usize) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    hash::random_fields(store, DB, KEY, wanted, true, &mut |field, _| fields.push(field.to_vec())).unwrap();
    fields
}

#[test]
fn drawing_most_fields_does_not_walk_through_those_that_have_expired() {
    for (lasting, mortal) in [(2, 0), (2, 3)] {
        let mut store = mostly_expired(lasting, mortal);
        assert_eq!(hash::len(&mut store, DB, KEY).unwrap(), lasting + mortal);
        // A walk through all would find both of them each time.
        let found =
            (0..100).map(|_| drawn(&mut store, 100).iter().filter(|field| field.starts_with(b"lasting")).count());
        let found: Vec<usize> = found.collect();
        assert!(found.contains(&0) || found.contains(&1), "{lasting} and {mortal}: {found:?}");
    }
}

#[test]
fn each_field_that_is_left_is_drawn_and_all_with_times_to_live_if_all_are_wanted() {
    let mut store = mostly_expired(2, 3);
    let mut met = BTreeSet::new();
    for wanted in [1, 2, 3, 4, 5, 100].repeat(60) {
        let fields = drawn(&mut store, wanted);
        let different: BTreeSet<_> = fields.iter().cloned().collect();
        assert!(different.len() == fields.len() && fields.len() >= wanted.min(3) && fields.len() <= wanted);
        met.extend(different);
    }
    let names = ["lasting:0", "lasting:1", "mortal:0", "mortal:1", "mortal:2"];
    assert!(met.iter().map(Vec::as_slice).eq(names.map(str::as_bytes)), "{met:?}");
    // With a smaller table nothing is left out.
    let mut few = Store::create(common::config()).unwrap();
    few.set_now_ms(1000);
    let mut hash = hash::open_mut(&mut few, DB, KEY).unwrap();
    for number in 0..2000 {
        let expiry_ms = (number > 1).then_some(if number < 5 { 9000 } else { 2000 });
        hash.load(format!("{number}").as_bytes(), b"value", expiry_ms).unwrap();
    }
    drop(hash);
    few.set_now_ms(5000);
    for wanted in 0..9 {
        assert_eq!(drawn(&mut few, wanted).len(), wanted.min(5));
    }
}
