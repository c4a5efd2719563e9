//! The freeing of large files holds up neither a start, nor a save, nor the end of a store.

use std::sync::Arc;

use quire_device::{Directory, FreeingGate, MemoryDirectory};
use quire_store::{DbId, ExpiryChange, ImageLocation, RestoreMode, Store, StoreConfig, string};

const DB: DbId = DbId(0);
const FILE: &str = "dump.quire";

/// Hashes and draws go alike each time.
const SEED: u64 = 2026;

fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(SEED), ..StoreConfig::default() }
}

fn place(gate: &FreeingGate) -> ImageLocation {
    ImageLocation::within(Arc::new(gate.clone()), FILE)
}

fn with_leftovers(names: &[&str]) -> FreeingGate {
    let memory = MemoryDirectory::new();
    names.iter().for_each(|name| memory.put(name, b"a save that was killed"));
    FreeingGate::new(Arc::new(memory))
}

fn opened(gate: &FreeingGate) -> Store {
    Store::open(config(), &place(gate), RestoreMode::Load, false).unwrap().0
}

fn names(gate: &FreeingGate) -> Vec<String> {
    let mut names = gate.list().unwrap();
    names.sort();
    names
}

#[test]
fn a_store_opens_while_what_killed_saves_left_is_being_freed() {
    let gate = with_leftovers(&["dump.quire.tmp-1", "dump.quire.tmp-2", "other"]);
    gate.close();
    let store = opened(&gate);
    assert_eq!((names(&gate), gate.freed()), (vec!["other".to_owned()], 0));
    drop(store);
    assert_eq!(gate.freed(), 0);
    gate.open_gate();
    gate.await_freed(2);
}

#[test]
fn saves_end_and_the_store_goes_while_images_that_were_replaced_are_being_freed() {
    let gate = with_leftovers(&[]);
    let mut store = opened(&gate);
    gate.close();
    for version in 0..3u8 {
        string::set(&mut store, DB, b"key", &[version], ExpiryChange::Clear).unwrap();
        store.save_blocking(&place(&gate)).unwrap();
        store.begin_save(&place(&gate)).unwrap();
        while store.poll_save().map(|result| result.unwrap()).is_none() {
            std::thread::yield_now();
        }
    }
    let digest = store.digest().unwrap();
    drop(store);
    assert_eq!((names(&gate), gate.freed()), (vec![FILE.to_owned()], 0));
    assert_eq!(opened(&gate).digest().unwrap(), digest);
    gate.open_gate();
    gate.await_freed(5);
}

#[test]
fn a_save_that_is_cancelled_is_over_while_what_it_wrote_is_being_freed() {
    let gate = with_leftovers(&[]);
    let mut store = opened(&gate);
    string::set(&mut store, DB, b"key", b"value", ExpiryChange::Clear).unwrap();
    gate.close();
    store.begin_save(&place(&gate)).unwrap();
    store.cancel_save();
    // Whichever comes first, the end or the cancelling: no file is freed before the call returns.
    let ended = loop {
        match store.poll_save() {
            Some(ended) => break ended,
            None => std::thread::yield_now(),
        }
    };
    let left = if ended.is_ok() { vec![FILE.to_owned()] } else { Vec::new() };
    assert_eq!((names(&gate), gate.freed()), (left, 0));
    drop(store);
    gate.open_gate();
}
