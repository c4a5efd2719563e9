//! Active defragmentation: values are found wherever they move, nothing that a command could see changes, and memory goes back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use quire_store::{
    CopyProgress, DefragSummary, EvictionOrder, EvictionPolicy, ExpiryChange, ImageLocation, RestoreMode, Result,
    Store, StoreConfig, StoreError, evict_key, hash, set, string,
};

use crate::common::defrag::{DB, NOW_MS, defrag, key_of, thinned, value_of};
use crate::common::saves::{FILE, MODES};
use crate::common::{Image, config, image_of, open};

fn holds(store: &mut Store, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> bool {
    store.len(DB) == model.len() as u64
        && model.iter().all(|(key, value)| string::get(store, DB, key).unwrap() == Some(&value[..]))
}

/// Changes a byte of an image: of those in front of its table and footer the last one that is not 0.
fn damage_the_last_page(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len() - (64 << 10);
    let at = bytes[..end].iter().rposition(|&byte| byte != 0).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn memory_of_keys_that_were_deleted_by_chance_goes_back() {
    let (mut store, model) = thinned(StoreConfig { max_memory_bytes: 1 << 30, ..config() }, 40_000);
    while store.arena_mut().trim(64) > 0 {}
    let (digest, changes, before) = (store.digest().unwrap(), store.changes(), store.arena().stats());
    assert!(before.fragmentation() > 3.0, "{}", before.fragmentation());
    let done = defrag(&mut store);
    let after = store.arena().stats();
    assert!(done.moved > 5000 && done.released_pages > 0, "{done:?}");
    assert!(after.fragmentation() < 1.3, "{} of {}", after.fragmentation(), before.fragmentation());
    assert_eq!((after.objects, after.allocated_bytes), (before.objects, before.allocated_bytes));
    assert!(after.committed_bytes == before.committed_bytes, "no page is taken for it");
    assert_eq!((store.digest().unwrap(), store.changes()), (digest, changes));
    assert!(holds(&mut store, &model));
    assert_eq!(defrag(&mut store).moved, 0, "a second cycle finds nothing to move");
}

#[test]
fn steps_are_as_long_as_they_are_told() {
    for budget in [1, 7, 50] {
        let (mut store, _) = thinned(config(), 5000);
        let (mut steps, mut is_done) = (0, false);
        while !is_done {
            let step = store.defrag_step(budget).unwrap();
            // The last bucket may go beyond: ten entries, each with a part of 17 KiB.
            assert!(step.examined < budget + 400 && step.moved + step.stayed < budget + 64, "{step:?}");
            (steps, is_done) = (steps + 1, step.is_cycle_done);
        }
        assert!(steps > 100 / budget, "{steps}");
    }
}

#[test]
fn a_full_store_can_be_defragmented() {
    let mut store = Store::create(StoreConfig { max_memory_bytes: 16 << 20, ..config() }).unwrap();
    store.set_now_ms(NOW_MS);
    let set = |store: &mut Store, number: u32, salt| {
        string::set(store, DB, &key_of(number), &value_of(number, salt), ExpiryChange::Clear)
    };
    let count = (0..).find(|&number| set(&mut store, number, 0).is_err()).unwrap();
    // All pages are taken, by the slabs of few sizes.
    for number in (0..count).filter(|number| number % 4 != 0) {
        store.remove(DB, &key_of(number)).unwrap();
    }
    let digest = store.digest().unwrap();
    assert!(defrag(&mut store).moved > 100);
    assert_eq!(store.digest().unwrap(), digest);
    assert!((0..count / 4).all(|number| set(&mut store, number * 4 + 1, 1).is_ok()), "there is room again");
    assert!((0..count / 4).all(|number| {
        let (kept, new) = (number * 4, number * 4 + 1);
        string::get(&mut store, DB, &key_of(kept)).unwrap() == Some(&value_of(kept, 0)[..])
            && string::get(&mut store, DB, &key_of(new)).unwrap() == Some(&value_of(new, 1)[..])
    }));
}

#[test]
fn nothing_moves_under_a_snapshot_or_a_copy() {
    let (mut store, model) = thinned(config(), 5000);
    let snapshot = store.arena_mut().cut().unwrap();
    assert_eq!(store.defrag_step(1_000_000).unwrap(), DefragSummary::default());
    drop(snapshot);
    assert!(store.arena_mut().try_finish());
    string::set(&mut store, DB, b"source", &vec![7; 3 << 20], ExpiryChange::Clear).unwrap();
    let begun = store.copy_in_steps(7, DB, b"source", DB, b"target", false).unwrap();
    assert_eq!(begun, CopyProgress::UnderWay);
    assert_eq!(store.defrag_step(1_000_000).unwrap(), DefragSummary::default());
    store.cancel_copy(7).unwrap();
    while store.reclaim_step(1000).unwrap() > 0 {}
    store.remove(DB, b"source").unwrap();
    assert!(defrag(&mut store).moved > 100);
    assert!(holds(&mut store, &model));
}

#[test]
fn a_value_that_goes_while_its_items_move_is_left_alone() {
    let mut store = Store::create(config()).unwrap();
    let field = |number: u32| format!("field:{number}").into_bytes();
    for number in 0..20_000 {
        hash::set(&mut store, DB, b"hash", &field(number), b"value").unwrap();
    }
    for number in (0..20_000).filter(|number| number % 4 != 0) {
        hash::del(&mut store, DB, b"hash", &field(number)).unwrap();
    }
    let mut moved = 0;
    while moved < 500 {
        moved += store.defrag_step(1).unwrap().moved;
    }
    assert!(store.remove(DB, b"hash").unwrap());
    while store.reclaim_step(1000).unwrap() > 0 {}
    // The place of its entry stays free, with what was in it; that of its items is taken.
    for number in 0..10_000 {
        string::set(&mut store, DB, &field(number), &[number as u8; 1000], ExpiryChange::Clear).unwrap();
    }
    let (digest, objects) = (store.digest().unwrap(), store.arena().stats().objects);
    defrag(&mut store);
    assert_eq!((store.digest().unwrap(), store.arena().stats().objects), (digest, objects));
}

#[test]
fn nothing_moves_while_memory_is_that_of_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let (mut store, model) = thinned(config(), 5000);
    store.save_blocking(&place).unwrap();
    let (mut clone, _) = Store::open_clone(config(), &place).unwrap();
    assert_eq!(clone.defrag_step(1_000_000).unwrap(), DefragSummary::default());
    let (mut store, _) = Store::open(config(), &place, RestoreMode::Map, false).unwrap();
    assert_eq!(store.defrag_step(1_000_000).unwrap(), DefragSummary::default());
    store.finish_restore().unwrap();
    assert!(defrag(&mut store).moved > 100);
    assert!(holds(&mut store, &model));
}

#[test]
fn nothing_moves_of_an_image_that_is_used_although_it_is_damaged() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), FILE);
        let (mut store, _) = thinned(config(), 5000);
        store.save_blocking(&place).unwrap();
        damage_the_last_page(&dir.path().join(FILE));
        let (mut store, _) = Store::open(config(), &place, mode, true).unwrap();
        store.finish_restore().unwrap();
        assert!(store.is_damaged());
        let before = store.arena().stats();
        for _ in 0..100 {
            assert_eq!(store.defrag_step(10_000).unwrap(), DefragSummary::default(), "{mode:?}");
        }
        assert_eq!(store.arena().stats(), before);
    }
}

#[test]
fn a_cycle_that_is_forgotten_begins_anew() {
    let (mut store, model) = thinned(config(), 5000);
    while store.defrag_step(1).unwrap().moved == 0 {}
    store.forget_defrag();
    let step = store.defrag_step(1).unwrap();
    assert!(step.examined > 0 && step.moved + step.stayed == 0, "a survey comes first: {step:?}");
    assert!(defrag(&mut store).moved > 100);
    assert!(holds(&mut store, &model));
}

#[test]
fn a_move_is_no_change_and_no_access() {
    let (mut store, model) = thinned(config(), 5000);
    store.set_noting_key_events(true);
    for key in model.keys() {
        store.watch(1, DB, key);
        store.set_idle_seconds(DB, key, 1000).unwrap();
    }
    let times: Vec<_> = model.keys().map(|key| store.expiry(DB, key).unwrap()).collect();
    assert!(defrag(&mut store).moved > 100);
    assert!(store.take_touched().is_empty() && !store.has_key_events());
    assert_eq!(times, model.keys().map(|key| store.expiry(DB, key).unwrap()).collect::<Vec<_>>());
    assert!(model.keys().all(|key| store.idle_seconds(DB, key).unwrap() == Some(1000)));
    // Both searches find what has moved: that for keys whose time has come, and that for keys to evict.
    let policy = EvictionPolicy { order: EvictionOrder::LeastRecentlyUsed, only_expiring: true };
    assert!(evict_key(&mut store, policy, 5).unwrap());
    let left = store.expires_len(DB);
    store.set_now_ms(NOW_MS * 3);
    while store.expire_step(1000).unwrap().examined > 0 {}
    assert_eq!((store.stats().expired, store.expires_len(DB)), (left, 0));
}

#[test]
fn items_of_large_values_move_too() {
    let mut store = Store::create(StoreConfig { max_memory_bytes: 1 << 30, ..config() }).unwrap();
    let stays = |number: u32| number.wrapping_mul(2_654_435_761) >> 30 == 0;
    let field = |number: u32| format!("field:{number}:{}", "x".repeat(number as usize % 5 * 40)).into_bytes();
    for number in 0..40_000 {
        hash::set(&mut store, DB, b"hash", &field(number), &value_of(number % 3, number)).unwrap();
        set::open_mut(&mut store, DB, b"set").unwrap().add(&field(number)).unwrap();
    }
    for number in (0..40_000).filter(|&number| !stays(number)) {
        hash::del(&mut store, DB, b"hash", &field(number)).unwrap();
        set::open_mut(&mut store, DB, b"set").unwrap().remove(&field(number)).unwrap();
    }
    while store.arena_mut().trim(64) > 0 {}
    let (digest, before) = (store.digest().unwrap(), store.arena().stats());
    assert!(defrag(&mut store).moved > 10_000);
    let after = store.arena().stats();
    assert!(before.fragmentation() > 2.5 && after.fragmentation() < 1.4, "{before:?} {after:?}");
    assert_eq!(store.digest().unwrap(), digest);
    assert!(store.check_value(DB, b"hash").unwrap() && store.check_value(DB, b"set").unwrap());
    for number in (0..40_000).filter(|&number| stays(number)) {
        let value = value_of(number % 3, number);
        assert_eq!(hash::get(&mut store, DB, b"hash", &field(number)).unwrap(), Some(&value[..]));
    }
}

/// Changes the hash in the first bytes of the objects that have a name so many bytes behind them.
fn misplace(image: &mut Image, name: &[u8], before: &[usize]) {
    for (_, page) in &mut image.pages {
        for at in (0..page.len() - name.len()).step_by(4) {
            if page[at..].starts_with(name) {
                let start = before.iter().filter_map(|&before| at.checked_sub(before)).find(|start| start % 16 == 0);
                start.into_iter().for_each(|start| page[start] ^= 0x55);
            }
        }
    }
}

#[test]
fn what_is_not_where_its_hash_leads_stays_and_holds_nothing_up() {
    let (mut store, model) = thinned(config(), 3000);
    let field = |number: u32| format!("field-{number:04}").into_bytes();
    for number in 0..4000 {
        hash::set(&mut store, DB, b"hash", &field(number), &value_of(0, number)).unwrap();
    }
    for number in (0..4000).filter(|number| number % 4 != 0) {
        hash::del(&mut store, DB, b"hash", &field(number)).unwrap();
    }
    let mut image = image_of(&mut store);
    // Of some lengths, so that none begins with another one.
    let is_short = |key: &&Vec<u8>| key.len() == b"key:1000".len();
    model.keys().filter(is_short).step_by(20).for_each(|key| misplace(&mut image, key, &[16, 24]));
    (0..4000).step_by(80).for_each(|number| misplace(&mut image, &field(number), &[12]));
    let mut store = open(&image).unwrap();
    store.set_now_ms(NOW_MS);
    let before = store.arena().stats();
    let (mut moved, mut errors) = (0, 0);
    loop {
        match store.defrag_step(1) {
            Ok(step) if step.is_cycle_done => break,
            Ok(step) => moved += step.moved,
            Err(StoreError::Damaged { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(errors > 40 && moved > 500, "{errors} errors, {moved} objects moved");
    let after = store.arena().stats();
    assert_eq!((after.objects, after.allocated_bytes), (before.objects, before.allocated_bytes));
    let is_misplaced = |key: &Vec<u8>| model.keys().filter(is_short).step_by(20).any(|other| other == key);
    for (key, value) in model.iter().filter(|(key, _)| !is_misplaced(key)) {
        assert_eq!(string::get(&mut store, DB, key).unwrap(), Some(&value[..]));
    }
    for number in (0..4000).step_by(4).filter(|number| number % 80 != 0) {
        let found = hash::get(&mut store, DB, b"hash", &field(number)).unwrap();
        assert_eq!(found, Some(&value_of(0, number)[..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn damage_is_named_and_never_moves_beyond_the_arena(
        // In any page, or among the arena's own figures.
        damage in prop::collection::vec(
            (any::<bool>(), any::<prop::sample::Index>(), 0usize..quire_snapshot::PAGE_SIZE, any::<u8>()),
            1..60,
        ),
    ) {
        let (mut store, _) = thinned(config(), 2000);
        let mut image = image_of(&mut store);
        for (anywhere, page, at, value) in damage {
            let page = page.index(if anywhere { image.pages.len() } else { 16 });
            image.pages[page].1[at] = value;
        }
        let Ok(mut store) = open(&image) else { return Ok(()) };
        for _ in 0..2000 {
            let step: Result<DefragSummary> = store.defrag_step(1000);
            match step {
                Ok(summary) if summary.is_cycle_done => break,
                Ok(_) | Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
