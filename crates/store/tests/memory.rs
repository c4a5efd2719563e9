//! What a write needs and what waits to be freed: a deleted structure is freed in steps, and its memory is there for the
//! next write all the same.

use quire_store::list::End;
use quire_store::{DbId, Store, StoreConfig, StoreError, hash, list, set, zset};

const DB: DbId = DbId(0);

fn small() -> Store {
    Store::create(StoreConfig { max_memory_bytes: 16 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() }).unwrap()
}

fn set_field(store: &mut Store, key: &[u8], number: u32, value: &[u8]) -> Result<bool, StoreError> {
    hash::set(store, DB, key, format!("field:{number}").as_bytes(), value)
}

/// Sets fields until there is no more memory, and returns how many.
fn fill(store: &mut Store, key: &[u8], value: &[u8]) -> u32 {
    (0..).find(|&number| set_field(store, key, number, value).is_err()).unwrap()
}

#[test]
fn fields_take_the_memory_of_a_hash_that_was_deleted_and_is_not_freed_yet() {
    let mut store = small();
    let count = fill(&mut store, b"old", &[1; 500]);
    assert!(count > 10_000, "{count}");
    store.remove(DB, b"old").unwrap();
    for number in 0..count * 9 / 10 {
        set_field(&mut store, b"new", number, &[2; 500]).unwrap();
    }
    assert_eq!(hash::len(&mut store, DB, b"new").unwrap(), count as usize * 9 / 10);
}

#[test]
fn values_grow_into_the_memory_of_a_hash_that_was_deleted_and_is_not_freed_yet() {
    let mut store = small();
    (0..1000).for_each(|number| assert!(set_field(&mut store, b"kept", number, &[1; 500]).unwrap()));
    fill(&mut store, b"old", &[1; 500]);
    store.remove(DB, b"old").unwrap();
    (0..1000).for_each(|number| assert!(!set_field(&mut store, b"kept", number, &[1; 2000]).unwrap()));
    assert_eq!(hash::field_len(&mut store, DB, b"kept", b"field:999").unwrap(), 2000);
}

#[test]
fn members_take_the_memory_of_a_hash_that_was_deleted_and_is_not_freed_yet() {
    let mut store = small();
    let count = fill(&mut store, b"old", &[1; 500]);
    store.remove(DB, b"old").unwrap();
    for number in 0..count * 9 / 10 {
        let member = format!("{number:0500}");
        assert!(set::open_mut(&mut store, DB, b"new").unwrap().add(member.as_bytes()).unwrap());
    }
}

#[test]
fn members_with_scores_take_the_memory_of_a_hash_that_was_deleted_and_is_not_freed_yet() {
    let mut store = small();
    let count = fill(&mut store, b"old", &[1; 500]);
    store.remove(DB, b"old").unwrap();
    for number in 0..count * 9 / 10 {
        let (member, score) = (format!("{number:0480}"), f64::from(number.wrapping_mul(2_654_435_761)));
        assert!(zset::open_mut(&mut store, DB, b"new").unwrap().set(member.as_bytes(), score).unwrap().is_added());
    }
}

#[test]
fn elements_take_the_memory_of_a_hash_that_was_deleted_and_is_not_freed_yet() {
    let mut store = small();
    let count = fill(&mut store, b"old", &[1; 500]);
    store.remove(DB, b"old").unwrap();
    // Nodes that grow leave a slab of every size behind, which is much of so small a memory.
    for number in 0..count / 3 {
        let mut list = list::open_mut(&mut store, DB, b"new").unwrap();
        list.make_room([[2; 500].as_slice()]).unwrap();
        list.push(if number % 3 == 0 { End::Front } else { End::Back }, &[2; 500]).unwrap();
    }
}

#[test]
fn elements_take_the_memory_of_those_that_were_trimmed_and_are_not_freed_yet() {
    let mut store = small();
    let push = |store: &mut Store, key: &[u8]| {
        let mut list = list::open_mut(store, DB, key).unwrap();
        list.make_room([[3; 500].as_slice()]).and_then(|()| list.push(End::Back, &[3; 500]))
    };
    let count = (0u64..).find(|_| push(&mut store, b"old").is_err()).unwrap();
    assert!(count > 10_000, "{count}");
    list::open_mut(&mut store, DB, b"old").unwrap().keep(count / 2..count / 2 + 10).unwrap();
    assert!(store.stats().reclaim_pending > 0);
    for _ in 0..count / 2 {
        push(&mut store, b"new").unwrap();
    }
    assert_eq!(list::view(&mut store, DB, b"old").unwrap().len().unwrap(), 10);
}
