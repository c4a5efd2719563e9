//! Stores of which most was deleted by chance, and whole cycles of defragmentation, for tests.

use std::collections::BTreeMap;

use quire_store::{DbId, DefragSummary, ExpiryChange, Store, StoreConfig, string};

pub const DB: DbId = DbId(0);
pub const NOW_MS: i64 = 1_000_000;
const BUDGET: usize = 100;

/// Steps until a cycle is done, and then a trim as the server's tick has it; all that they did.
pub fn defrag(store: &mut Store) -> DefragSummary {
    let mut all = DefragSummary::default();
    while !all.is_cycle_done {
        let step = store.defrag_step(BUDGET).unwrap();
        assert!(step.examined > 0, "a step that looks at nothing");
        all.moved += step.moved;
        all.stayed += step.stayed;
        all.released_pages += step.released_pages;
        all.is_cycle_done = step.is_cycle_done;
    }
    while store.arena_mut().trim(64) > 0 {}
    all
}

pub fn key_of(number: u32) -> Vec<u8> {
    let mut key = format!("key:{number}").into_bytes();
    // One in a hundred has an object of its own.
    if number % 100 == 99 {
        key.resize(8200 + number as usize % 1000, b'k');
    }
    key
}

/// Of few sizes, so that many lie in slabs of the same class: in entries, and in objects beside them.
pub fn value_of(number: u32, salt: u32) -> Vec<u8> {
    let len = [40, 100, 40, 900, 3000, 40, 100, 17_000][number as usize % 8];
    (0..len).map(|at: u32| (at ^ number ^ salt) as u8).collect()
}

/// A store of which three quarters were deleted by chance, and what it holds.
pub fn thinned(config: StoreConfig, count: u32) -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut store = Store::create(config).unwrap();
    store.set_now_ms(NOW_MS);
    let mut model = BTreeMap::new();
    for number in 0..count {
        let expiry = if number % 3 == 0 { ExpiryChange::At(NOW_MS * 2) } else { ExpiryChange::Clear };
        let (key, value) = (key_of(number), value_of(number, 0));
        string::set(&mut store, DB, &key, &value, expiry).unwrap();
        if number.wrapping_mul(2_654_435_761) >> 30 == 0 {
            model.insert(key, value);
        }
    }
    for number in 0..count {
        if number.wrapping_mul(2_654_435_761) >> 30 != 0 {
            assert!(store.remove(DB, &key_of(number)).unwrap());
        }
    }
    (store, model)
}
