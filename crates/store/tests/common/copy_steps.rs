//! COPY in steps, for tests: a copy of `source` to `target`, and what may happen to it between two steps.

use quire_store::{CopyProgress, CopyStep, DbId, Store, StoreConfig};

pub const DB: DbId = DbId(0);
/// The client that asks for the copy.
pub const OWNER: u64 = 7;
/// Of a step.
pub const BUDGET: usize = 100;

/// Hashes and draws are the same each time.
pub const SEED: u64 = 2026;

pub fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(SEED), ..StoreConfig::default() }
}

/// Asks for the copy, or for what has become of it.
pub fn begin(store: &mut Store) -> CopyProgress {
    store.copy_in_steps(OWNER, DB, b"source", DB, b"target", false).unwrap()
}

/// Makes the copy that is under way whole.
pub fn make_whole(store: &mut Store) {
    while store.copy_step(BUDGET).unwrap() == CopyStep::More {}
}

pub fn free_all(store: &mut Store) {
    while store.reclaim_step(1000).unwrap() > 0 {}
}

pub fn objects_of_an_empty_store() -> u64 {
    Store::create(config()).unwrap().arena().stats().objects
}

/// Something that happens to the store.
pub type Event = fn(&mut Store);

/// Has every event happen in the middle of a copy, and when it is whole but its owner hasn't asked again: after those of `gone` there
/// is neither source nor copy, after those of `changed` the copy is what the source is now. No memory is lost.
pub fn assert_one_value(filled: impl Fn() -> Store, gone: &[Event], changed: &[Event]) {
    for whole in [false, true] {
        for (event, goes) in gone.iter().map(|event| (event, true)).chain(changed.iter().map(|event| (event, false))) {
            let mut store = filled();
            store.set_expiry(DB, b"source", Some(5000)).unwrap();
            assert_eq!(begin(&mut store), CopyProgress::UnderWay);
            store.copy_step(BUDGET).unwrap();
            if whole {
                make_whole(&mut store);
            }
            event(&mut store);
            if !whole {
                assert_eq!(store.copy_step(BUDGET).unwrap(), CopyStep::Ended);
            }
            let mut progress = begin(&mut store);
            if progress == CopyProgress::UnderWay {
                make_whole(&mut store);
                progress = begin(&mut store);
            }
            assert_eq!(progress, CopyProgress::Done(!goes));
            assert_eq!(store.kind(DB, b"target").unwrap().is_some(), !goes);
            let copy = store.digest_value(DB, b"target").unwrap();
            assert_eq!(copy, store.digest_value(DB, b"source").unwrap());
            free_all(&mut store);
            store.flush_all().unwrap();
            free_all(&mut store);
            assert_eq!(store.arena().stats().objects, objects_of_an_empty_store());
        }
    }
}

/// Saves after so many steps of a copy: an image has neither the key nor its memory, and the copy goes on.
pub fn assert_image_without_copy(filled: impl Fn() -> Store, steps: usize) {
    let dir = tempfile::tempdir().unwrap();
    let place = quire_store::ImageLocation::new(dir.path(), "dump.quire");
    let mut store = filled();
    let (digest, objects) = (store.digest().unwrap(), store.arena().stats().objects);
    assert_eq!(begin(&mut store), CopyProgress::UnderWay);
    for _ in 0..steps {
        store.copy_step(BUDGET).unwrap();
    }
    store.save_blocking(&place).unwrap();
    assert_eq!(store.stats().reclaim_pending, 0, "the copy goes on here");
    let (mut again, _) = Store::open(config(), &place, quire_store::RestoreMode::Load, false).unwrap();
    assert_eq!((again.digest().unwrap(), again.len(DB)), (digest, 1));
    free_all(&mut again);
    assert_eq!(again.arena().stats().objects, objects, "after {steps} steps");
    make_whole(&mut store);
    assert_eq!(begin(&mut store), CopyProgress::Done(true));
    assert_eq!(store.digest_value(DB, b"target").unwrap(), store.digest_value(DB, b"source").unwrap());
}
