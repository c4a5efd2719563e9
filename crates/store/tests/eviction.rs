//! Which keys go when memory is short: by every policy, beside a simple model, and how good the choice is.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};
use quire_store::{
    AccessCounting, DbId, EvictionOrder, EvictionPolicy, ExpiredKey, ExpiryChange, KeyFate, Store, StoreConfig,
    evict_key, set, string,
};

const DB: DbId = DbId(0);
/// Hashes and draws go alike each time.
const SEED: u64 = 2026;
const SAMPLES: usize = 5;
/// So many that a sample has all of a few keys.
const ALL: usize = 64;
const START_MS: i64 = 1_767_225_600_000;
const COUNTING: AccessCounting = AccessCounting { log_factor: 10, decay_minutes: 1 };

use EvictionOrder::{FirstToExpire, LeastFrequentlyUsed, LeastRecentlyUsed, Random};

const ALL_LRU: EvictionPolicy = EvictionPolicy { order: LeastRecentlyUsed, only_expiring: false };

fn store() -> Store {
    let mut store = Store::create(StoreConfig { seed: Some(SEED), ..StoreConfig::default() }).unwrap();
    store.set_now_ms(START_MS);
    store
}

fn put(store: &mut Store, db: DbId, key: &str, expiry_ms: Option<i64>) {
    let expiry = expiry_ms.map_or(ExpiryChange::Clear, ExpiryChange::At);
    string::set(store, db, key.as_bytes(), b"value", expiry).unwrap();
}

/// Evicts so many keys; their names, in that order.
fn evicted(store: &mut Store, policy: EvictionPolicy, count: usize) -> Vec<String> {
    store.set_noting_key_events(true);
    for _ in 0..count {
        assert!(evict_key(store, policy, ALL).unwrap());
    }
    let events = store.take_key_events();
    assert!(events.iter().all(|event| event.fate == KeyFate::Evicted));
    events.iter().map(|event| String::from_utf8_lossy(&event.key).into_owned()).collect()
}

#[test]
fn among_few_keys_the_one_goes_that_was_not_used_for_the_longest_time() {
    let mut store = store();
    for second in 0..10 {
        store.set_now_ms(START_MS + second * 1000);
        put(&mut store, DB, &format!("key:{second}"), None);
    }
    store.set_now_ms(START_MS + 20_000);
    assert!(string::get(&mut store, DB, b"key:1").unwrap().is_some());
    string::append(&mut store, DB, b"key:2", b"more").unwrap();
    assert!(store.touch(DB, b"key:3").unwrap());
    store.set_now_ms(START_MS + 30_000);
    assert_eq!(evicted(&mut store, ALL_LRU, 7), ["key:0", "key:4", "key:5", "key:6", "key:7", "key:8", "key:9"]);
    assert_eq!(store.stats().evicted, 7);
}

#[test]
fn a_candidate_that_is_used_meanwhile_stays() {
    let mut store = store();
    for second in 0..10 {
        store.set_now_ms(START_MS + second * 1000);
        put(&mut store, DB, &format!("key:{second}"), None);
    }
    assert_eq!(evicted(&mut store, ALL_LRU, 1), ["key:0"]);
    store.set_now_ms(START_MS + 20_000);
    assert!(store.touch(DB, b"key:1").unwrap());
    assert_eq!(evicted(&mut store, ALL_LRU, 2), ["key:2", "key:3"]);
}

#[test]
fn the_key_goes_first_that_expires_first() {
    let mut store = store();
    for at in [5, 3, 9, 1, 7] {
        put(&mut store, DB, &format!("key:{at}"), Some(START_MS + at * 1000));
    }
    put(&mut store, DB, "stays", None);
    let policy = EvictionPolicy { order: FirstToExpire, only_expiring: true };
    assert_eq!(evicted(&mut store, policy, 5), ["key:1", "key:3", "key:5", "key:7", "key:9"]);
    assert!(!evict_key(&mut store, policy, SAMPLES).unwrap(), "a key without a time to live never goes");
    assert!(store.exists(DB, b"stays").unwrap());
}

#[test]
fn the_key_goes_first_that_is_used_least_often() {
    let mut store = store();
    store.set_access_counting(Some(COUNTING));
    for number in 0..8 {
        put(&mut store, DB, &format!("key:{number}"), None);
        // Six times more often each: far enough apart for counters that go by chance.
        for _ in 0..if number == 0 { 0 } else { 6_u32.pow(number) / 6 * 10 } {
            store.touch(DB, format!("key:{number}").as_bytes()).unwrap();
        }
    }
    let policy = EvictionPolicy { order: LeastFrequentlyUsed, only_expiring: false };
    let order = evicted(&mut store, policy, 8);
    assert_eq!(order, (0..8).map(|number| format!("key:{number}")).collect::<Vec<_>>());
}

#[test]
fn a_counter_is_kept_when_the_value_is_replaced_and_falls_with_time() {
    let mut store = store();
    store.set_access_counting(Some(AccessCounting { log_factor: 0, decay_minutes: 1 }));
    put(&mut store, DB, "key", None);
    assert_eq!(store.access_count(DB, b"key").unwrap(), Some(5));
    put(&mut store, DB, "key", None);
    string::set(&mut store, DB, b"key", &[7; 5000], ExpiryChange::Clear).unwrap();
    string::append(&mut store, DB, b"key", b"more").unwrap();
    assert!(string::get(&mut store, DB, b"key").unwrap().is_some());
    assert!(store.set_expiry(DB, b"key", Some(START_MS + 3_600_000)).unwrap());
    assert_eq!(store.access_count(DB, b"key").unwrap(), Some(10), "every access counts once");
    store.set_now_ms(START_MS + 3 * 60_000);
    assert_eq!(store.access_count(DB, b"key").unwrap(), Some(7));
    assert_eq!(store.access_count(DB, b"none").unwrap(), None);
}

#[test]
fn what_goes_is_told_to_the_log_and_to_watchers() {
    let mut store = store();
    store.set_noting_expired(true);
    put(&mut store, DbId(3), "key", None);
    store.watch(7, DbId(3), b"key");
    assert!(evict_key(&mut store, ALL_LRU, SAMPLES).unwrap());
    assert_eq!(store.take_expired(), [ExpiredKey { db: DbId(3), key: b"key"[..].into(), fields: Vec::new() }]);
    assert_eq!(store.take_touched(), [7]);
}

#[test]
fn a_large_value_goes_at_once_and_its_memory_in_steps() {
    let mut store = store();
    let mut large = set::open_mut(&mut store, DB, b"large").unwrap();
    for number in 0..100_000 {
        large.add(format!("member:{number}").as_bytes()).unwrap();
    }
    drop(large);
    let full_bytes = store.arena().stats().allocated_bytes;
    assert!(evict_key(&mut store, ALL_LRU, SAMPLES).unwrap());
    assert!(store.arena().stats().allocated_bytes > full_bytes * 9 / 10, "nothing was freed by then");
    assert_eq!(store.stats().reclaim_pending, 1);
    while store.reclaim_step(512).unwrap() > 0 {}
    assert!(store.arena().stats().allocated_bytes < full_bytes / 10);
}

#[test]
fn a_read_while_a_snapshot_is_open_changes_no_page() {
    let mut store = store();
    put(&mut store, DB, "key", None);
    store.set_now_ms(START_MS + 60_000);
    let snapshot = store.arena_mut().cut().unwrap();
    assert!(string::get(&mut store, DB, b"key").unwrap().is_some());
    assert_eq!(
        store.idle_seconds(DB, b"key").unwrap(),
        Some(60),
        "not noted, since that would cost a copy of the page"
    );
    drop(snapshot);
    assert!(store.arena_mut().try_finish());
    assert!(string::get(&mut store, DB, b"key").unwrap().is_some());
    assert_eq!(store.idle_seconds(DB, b"key").unwrap(), Some(0));
}

fn policy() -> impl Strategy<Value = EvictionPolicy> {
    prop::sample::select(vec![
        (LeastRecentlyUsed, false),
        (LeastFrequentlyUsed, false),
        (Random, false),
        (LeastRecentlyUsed, true),
        (LeastFrequentlyUsed, true),
        (FirstToExpire, true),
        (Random, true),
    ])
    .prop_map(|(order, only_expiring)| EvictionPolicy { order, only_expiring })
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u16, db: u8, expires: bool },
    Use { key: u16, db: u8 },
    Remove { key: u16, db: u8 },
    Persist { key: u16, db: u8 },
    Evict(EvictionPolicy),
    Flush { db: u8 },
    Swap,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || (0..200u16, 0..3u8);
    prop_oneof![
        8 => (name(), any::<bool>()).prop_map(|((key, db), expires)| Step::Put { key, db, expires }),
        3 => name().prop_map(|(key, db)| Step::Use { key, db }),
        2 => name().prop_map(|(key, db)| Step::Remove { key, db }),
        2 => name().prop_map(|(key, db)| Step::Persist { key, db }),
        6 => policy().prop_map(Step::Evict),
        1 => (0..3u8).prop_map(|db| Step::Flush { db }),
        1 => Just(Step::Swap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn exactly_one_key_that_may_go_goes_each_time(steps in prop::collection::vec(step(), 1..300)) {
        let mut store = store();
        store.set_access_counting(Some(COUNTING));
        store.set_noting_key_events(true);
        // Whether a key expires.
        let mut model: HashMap<(u8, String), bool> = HashMap::new();
        for (second, step) in steps.into_iter().enumerate() {
            store.set_now_ms(START_MS + second as i64 * 1000);
            match step {
                Step::Put { key, db, expires } => {
                    let at_ms = expires.then_some(START_MS + 1_000_000 + i64::from(key));
                    put(&mut store, DbId(db), &key.to_string(), at_ms);
                    model.insert((db, key.to_string()), expires);
                }
                Step::Use { key, db } => drop(store.touch(DbId(db), key.to_string().as_bytes()).unwrap()),
                Step::Remove { key, db } => {
                    let removed = store.remove(DbId(db), key.to_string().as_bytes()).unwrap();
                    prop_assert_eq!(removed, model.remove(&(db, key.to_string())).is_some());
                }
                Step::Persist { key, db } => {
                    store.set_expiry(DbId(db), key.to_string().as_bytes(), None).unwrap();
                    model.entry((db, key.to_string())).and_modify(|expires| *expires = false);
                }
                Step::Evict(policy) => {
                    store.take_key_events();
                    let may_go = model.values().any(|&expires| expires || !policy.only_expiring);
                    prop_assert_eq!(evict_key(&mut store, policy, SAMPLES).unwrap(), may_go, "{:?}", policy);
                    let events = store.take_key_events();
                    prop_assert_eq!(events.len(), usize::from(may_go));
                    for event in events {
                        let name = (event.db.0, String::from_utf8_lossy(&event.key).into_owned());
                        let expired = model.remove(&name);
                        prop_assert!(expired.is_some_and(|expires| expires || !policy.only_expiring), "{:?} {:?}", policy, name);
                    }
                }
                Step::Flush { db } => {
                    store.flush(DbId(db)).unwrap();
                    model.retain(|(other, _), _| *other != db);
                }
                Step::Swap => {
                    store.swap(DbId(0), DbId(1)).unwrap();
                    let swapped = |db| if db < 2 { 1 - db } else { db };
                    model = model.into_iter().map(|((db, key), expires)| ((swapped(db), key), expires)).collect();
                }
            }
        }
        let left: u64 = (0..3).map(|db| store.len(DbId(db))).sum();
        prop_assert_eq!(left, model.len() as u64);
    }
}

/// An exact LRU cache of so many keys.
struct ExactLru {
    capacity: usize,
    times: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
}

impl ExactLru {
    fn hits(&mut self, key: u64) -> bool {
        self.now += 1;
        let before = self.times.insert(key, self.now);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.now, key);
        if self.times.len() > self.capacity {
            let (_, oldest) = self.order.pop_first().unwrap();
            self.times.remove(&oldest);
        }
        before.is_some()
    }
}

const KEYS: u64 = 40_000;
const ROOM: u64 = 4_000;
const REQUESTS: u64 = 400_000;

/// Hit ratios of a cache of [`ROOM`] keys, and of an exact LRU cache of as many, on one load. One in ten requests of a polluted one
/// is of a scan, whose keys come once.
fn hit_ratios(policy: EvictionPolicy, scans: bool) -> (f64, f64) {
    let mut store = store();
    let counted = policy.order == LeastFrequentlyUsed;
    store.set_access_counting(counted.then_some(COUNTING));
    let (zipf, places) = (Zipf::new(KEYS, 0.99), RankPermutation::new(KEYS, SEED));
    let mut exact = ExactLru { capacity: ROOM as usize, times: HashMap::new(), order: BTreeMap::new(), now: 0 };
    let mut rng = SplitMix64::new(SEED);
    let (mut hits, mut exact_hits, mut counted_requests) = (0u64, 0u64, 0u64);
    for request in 0..REQUESTS {
        // 2000 requests a second.
        store.set_now_ms(START_MS + (request / 2) as i64);
        let of_scan = scans && request % 10 == 0;
        let key = if of_scan { KEYS + request } else { places.key(zipf.sample(&mut rng)) };
        let name = format!("key:{key}");
        let hit = string::get(&mut store, DB, name.as_bytes()).unwrap().is_some();
        if !hit {
            put(&mut store, DB, &name, None);
            while store.len(DB) > ROOM {
                assert!(evict_key(&mut store, policy, SAMPLES).unwrap());
            }
        }
        let exact_hit = exact.hits(key);
        if !of_scan && request > REQUESTS / 4 {
            counted_requests += 1;
            hits += u64::from(hit);
            exact_hits += u64::from(exact_hit);
        }
    }
    (hits as f64 / counted_requests as f64, exact_hits as f64 / counted_requests as f64)
}

#[test]
fn samples_find_what_to_evict_nearly_as_well_as_exact_lru() {
    for scans in [false, true] {
        let (ratio, exact) = hit_ratios(ALL_LRU, scans);
        assert!(ratio > exact - 0.015, "{ratio} beside {exact}, scans: {scans}");
    }
}

#[test]
fn what_is_used_most_often_is_found_better_by_counting_than_by_exact_lru() {
    let policy = EvictionPolicy { order: LeastFrequentlyUsed, only_expiring: false };
    for scans in [false, true] {
        let (ratio, exact) = hit_ratios(policy, scans);
        assert!(ratio > exact, "{ratio} beside {exact}, scans: {scans}");
    }
}
