//! What Redis 7.0.15 says, and what happens at the limits.

use quire_store::numbers::hex;
use quire_store::{DbId, EncodingLimits, ExpiryChange, Store, StoreConfig, StoreError, ValueType, hash, string};

use crate::common::config;

const DB: DbId = DbId(0);

fn store() -> Store {
    let mut store = Store::create(config()).unwrap();
    store.set_now_ms(1_000_000);
    store
}

#[test]
fn digests_are_those_of_redis() {
    let mut store = store();
    assert_eq!(hex(&store.digest().unwrap()), "0".repeat(40));
    string::set(&mut store, DB, b"a", b"1", ExpiryChange::Clear).unwrap();
    string::set(&mut store, DB, b"b", b"hello", ExpiryChange::Clear).unwrap();
    assert_eq!(hex(&store.digest().unwrap()), "2539797405e828ad7a3aa48c536b3eaf2803a421");
    hash::set(&mut store, DB, b"h", b"f1", b"v1").unwrap();
    hash::set(&mut store, DB, b"h", b"f2", b"v2").unwrap();
    string::set(&mut store, DbId(3), b"c", b"", ExpiryChange::Clear).unwrap();
    assert_eq!(hex(&store.digest().unwrap()), "752f579e79c3014d2960e73f9c5b599792984a2c");
    store.set_expiry(DB, b"b", Some(2_000_000)).unwrap();
    assert_eq!(hex(&store.digest().unwrap()), "78d929706a4d85b957b472318c8946e05930b581");
    let value = |db, key: &[u8]| store.digest_value(db, key).unwrap().map(|digest| hex(&digest));
    assert_eq!(value(DB, b"b").as_deref(), Some("d037c4eb8a8b36b602fbced4000daeab0714c1e3"));
    assert_eq!(value(DB, b"h").as_deref(), Some("047cc60ea73a34cde6d08a2721a4a26d19ee6570"));
    assert_eq!(value(DbId(3), b"c").as_deref(), Some("8b3447c33a834b810e3e181b6fd6a2ee1020921c"));
    assert_eq!(value(DB, b"missing"), None);
}

#[test]
fn a_digest_does_not_depend_on_order_or_history() {
    let (mut forth, mut back) = (store(), store());
    back.set_limits(EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, 4).with(&hash::MAX_PACKED_LEN, 4));
    for number in 0..2000u32 {
        let (key, value) = (format!("key:{number}"), number.to_string());
        string::set(&mut forth, DB, key.as_bytes(), value.as_bytes(), ExpiryChange::Clear).unwrap();
        hash::set(&mut forth, DB, format!("hash:{}", number % 50).as_bytes(), key.as_bytes(), value.as_bytes())
            .unwrap();
    }
    for number in (0..2000u32).rev() {
        let (key, value) = (format!("key:{number}"), number.to_string());
        string::set(&mut back, DB, key.as_bytes(), b"something else", ExpiryChange::At(9_000_000)).unwrap();
        string::set(&mut back, DB, key.as_bytes(), value.as_bytes(), ExpiryChange::Clear).unwrap();
        hash::set(&mut back, DB, format!("hash:{}", number % 50).as_bytes(), key.as_bytes(), value.as_bytes()).unwrap();
        string::set(&mut back, DB, b"gone", b"x", ExpiryChange::Clear).unwrap();
        back.remove(DB, b"gone").unwrap();
    }
    assert_eq!(back.encoding(DB, b"hash:1").unwrap(), Some("hashtable"));
    assert_eq!(forth.encoding(DB, b"hash:1").unwrap(), Some("listpack"));
    assert_eq!(forth.digest().unwrap(), back.digest().unwrap());
}

#[test]
fn encodings_are_those_of_redis() {
    let mut store = store();
    let cases: [(&[u8], &str); 8] = [
        (b"12345678901234567890123456789012345678901234", "embstr"),
        (b"123456789012345678901234567890123456789012345", "raw"),
        (b"9223372036854775807", "int"),
        (b"-9223372036854775808", "int"),
        (b"9223372036854775808", "embstr"),
        (b"01", "embstr"),
        (b"", "embstr"),
        (b"-0", "embstr"),
    ];
    for (value, encoding) in cases {
        string::set(&mut store, DB, b"key", value, ExpiryChange::Clear).unwrap();
        assert_eq!(store.encoding(DB, b"key").unwrap(), Some(encoding), "{value:?}");
    }
    string::append(&mut store, DB, b"fresh", b"2").unwrap();
    assert_eq!(store.encoding(DB, b"fresh").unwrap(), Some("int"));
    string::append(&mut store, DB, b"fresh", b"2").unwrap();
    assert_eq!(store.encoding(DB, b"fresh").unwrap(), Some("raw"));
    string::set_raw(&mut store, DB, b"fresh", b"5", ExpiryChange::Clear).unwrap();
    assert_eq!(store.encoding(DB, b"fresh").unwrap(), Some("raw"));
    assert_eq!(string::incr_by_float(&mut store, DB, b"fresh", 1).unwrap(), "6");
    assert_eq!(store.encoding(DB, b"fresh").unwrap(), Some("embstr"));
    assert_eq!(string::incr_by(&mut store, DB, b"fresh", 1).unwrap(), 7);
    assert_eq!(store.encoding(DB, b"fresh").unwrap(), Some("int"));
    assert_eq!(string::append(&mut store, DB, b"fresh", b"2").unwrap(), 2);
    string::append(&mut store, DB, b"empty", b"").unwrap();
    assert_eq!(store.encoding(DB, b"empty").unwrap(), Some("embstr"));
    string::append(&mut store, DB, b"empty", b"").unwrap();
    assert_eq!(store.encoding(DB, b"empty").unwrap(), Some("raw"));
    store.set_expiry(DB, b"fresh", Some(2_000_000)).unwrap();
    store.rename(DB, b"fresh", b"renamed").unwrap();
    assert_eq!(store.encoding(DB, b"renamed").unwrap(), Some("raw"));
    assert!(store.copy(DB, b"renamed", DB, b"copied", false).unwrap());
    assert_eq!(store.encoding(DB, b"copied").unwrap(), Some("raw"));
    assert_eq!(string::incr_by(&mut store, DB, b"renamed", 1).unwrap(), 73);
    assert_eq!(store.encoding(DB, b"renamed").unwrap(), Some("int"));
}

#[test]
fn a_hash_becomes_a_table_past_either_limit_and_stays_one() {
    let mut store = store();
    for number in 0..128 {
        hash::set(&mut store, DB, b"many", format!("{number}").as_bytes(), b"v").unwrap();
    }
    assert_eq!(store.encoding(DB, b"many").unwrap(), Some("listpack"));
    hash::set(&mut store, DB, b"many", b"one more", b"v").unwrap();
    assert_eq!(store.encoding(DB, b"many").unwrap(), Some("hashtable"));
    hash::del(&mut store, DB, b"many", b"one more").unwrap();
    assert_eq!(store.encoding(DB, b"many").unwrap(), Some("hashtable"));
    hash::set(&mut store, DB, b"long", b"field", &[b'v'; 64]).unwrap();
    assert_eq!(store.encoding(DB, b"long").unwrap(), Some("listpack"));
    hash::set(&mut store, DB, b"long", b"field", &[b'v'; 65]).unwrap();
    assert_eq!(store.encoding(DB, b"long").unwrap(), Some("hashtable"));
    assert!(hash::del(&mut store, DB, b"long", b"field").unwrap());
    assert_eq!(store.kind(DB, b"long").unwrap(), None);
}

#[test]
fn expired_keys_are_gone_at_once_and_freed_by_the_search() {
    let mut store = store();
    for number in 0..3000i64 {
        let at_ms = 1_000_000 + 1 + number;
        string::set(&mut store, DB, format!("key:{number}").as_bytes(), b"value", ExpiryChange::At(at_ms)).unwrap();
    }
    string::set(&mut store, DB, b"forever", b"value", ExpiryChange::Clear).unwrap();
    store.set_now_ms(1_001_500);
    assert_eq!(string::get(&mut store, DB, b"key:100").unwrap(), None);
    assert_eq!(store.stats().expired, 1);
    assert_eq!(string::get(&mut store, DB, b"key:2000").unwrap(), Some(&b"value"[..]));
    while store.len(DB) > 1501 {
        assert!(store.expire_step(100).unwrap().examined > 0);
    }
    assert_eq!(store.expires_len(DB), 1500);
    assert!((500..1000).contains(&store.avg_ttl(DB)), "{}", store.avg_ttl(DB));
    store.set_now_ms(2_000_000);
    while store.expire_step(1000).unwrap().more {}
    while store.expire_step(1000).unwrap().expired > 0 {}
    assert_eq!((store.len(DB), store.expires_len(DB)), (1, 0));
}

#[test]
fn watchers_hear_of_every_change() {
    let mut store = store();
    let reset = |store: &mut Store| {
        store.take_touched();
        store.unwatch_all(1);
        store.watch(1, DB, b"key");
        store.watch(2, DB, b"other");
    };
    let changes: [fn(&mut Store); 8] = [
        |store| string::set(store, DB, b"key", b"1", ExpiryChange::At(1_000_500)).unwrap(),
        |store| assert_eq!(string::incr_by(store, DB, b"key", 1).unwrap(), 2),
        |store| assert!(store.set_expiry(DB, b"key", Some(1_000_400)).unwrap()),
        |store| assert!(store.rename(DB, b"key", b"third").unwrap()),
        |store| assert!(store.rename(DB, b"third", b"key").unwrap()),
        |store| store.swap(DB, DbId(1)).unwrap(),
        |store| store.swap(DB, DbId(1)).unwrap(),
        |store| assert_eq!(store.flush(DB).unwrap(), 1),
    ];
    for (at, change) in changes.iter().enumerate() {
        reset(&mut store);
        change(&mut store);
        assert_eq!(store.take_touched(), [1], "change {at}");
        assert_eq!(store.take_touched(), [], "change {at}");
    }
    reset(&mut store);
    string::set(&mut store, DbId(1), b"key", b"1", ExpiryChange::Clear).unwrap();
    assert_eq!(string::get(&mut store, DB, b"key").unwrap(), None);
    assert_eq!(store.take_touched(), []);
}

#[test]
fn removing_no_time_to_live_is_no_change() {
    let mut store = store();
    string::set(&mut store, DB, b"key", b"v", ExpiryChange::Clear).unwrap();
    assert!(store.set_expiry(DB, b"key", None).unwrap());
    assert_eq!(store.changes(), 1);
}

#[test]
fn a_bit_that_stays_as_it_is_is_no_change() {
    let mut store = store();
    assert!(!string::set_bit(&mut store, DB, b"key", 9, false).unwrap());
    assert_eq!((store.changes(), string::get(&mut store, DB, b"key").unwrap()), (1, Some(&b"\0\0"[..])));
    assert!(!string::set_bit(&mut store, DB, b"key", 3, false).unwrap());
    assert_eq!(store.changes(), 1);
    assert!(!string::set_bit(&mut store, DB, b"key", 3, true).unwrap());
    assert!(string::set_bit(&mut store, DB, b"key", 3, true).unwrap());
    assert_eq!((store.changes(), string::get(&mut store, DB, b"key").unwrap()), (2, Some(&b"\x10\0"[..])));
}

#[test]
fn another_type_is_reported_before_a_length_that_is_too_large() {
    let mut store = store();
    hash::set(&mut store, DB, b"hash", b"f", b"v").unwrap();
    assert!(matches!(string::set_range(&mut store, DB, b"hash", 1 << 40, b"x"), Err(StoreError::WrongType)));
    assert!(matches!(string::set_range(&mut store, DB, b"none", 1 << 40, b"x"), Err(StoreError::TooLarge { .. })));
}

#[test]
fn expiry_fails_a_watch_only_if_it_comes_after_it() {
    let mut store = store();
    string::set(&mut store, DB, b"key", b"1", ExpiryChange::At(1_000_500)).unwrap();
    store.watch(1, DB, b"key");
    assert!(!store.watched_expired(1).unwrap());
    store.set_now_ms(1_000_500);
    assert!(store.watched_expired(1).unwrap());
    store.watch(2, DB, b"key");
    assert!(!store.watched_expired(2).unwrap());
    assert_eq!(string::get(&mut store, DB, b"key").unwrap(), None);
    assert_eq!(store.take_touched(), [1]);
}

#[test]
fn without_memory_writes_fail_and_nothing_else_does() {
    let config = StoreConfig {
        max_memory_bytes: 8 << 20,
        limits: EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, 4),
        ..config()
    };
    let mut store = Store::create(config).unwrap();
    store.set_now_ms(1_000_000);
    for number in 0..100 {
        hash::set(&mut store, DB, b"hash", format!("field:{number}").as_bytes(), b"value").unwrap();
        hash::set(&mut store, DB, b"small", format!("{}", number % 4).as_bytes(), b"value").unwrap();
    }
    string::set(&mut store, DB, b"expiring", b"value", ExpiryChange::At(2_000_000)).unwrap();
    let mut written = 0;
    for len in [100_000, 1000, 8, 0] {
        loop {
            match string::set(
                &mut store,
                DB,
                format!("key:{written}").as_bytes(),
                &vec![b'v'; len],
                ExpiryChange::Clear,
            ) {
                Ok(()) => written += 1,
                Err(StoreError::OutOfMemory { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
    let digest = store.digest().unwrap();
    assert!(matches!(string::append(&mut store, DB, b"key:0", &[b'v'; 500_000]), Err(StoreError::OutOfMemory { .. })));
    assert!(matches!(hash::set(&mut store, DB, b"small", b"5", &[b'v'; 900]), Err(StoreError::OutOfMemory { .. })));
    assert!(matches!(hash::set(&mut store, DB, b"none", b"5", &[b'v'; 900]), Err(StoreError::OutOfMemory { .. })));
    assert!(matches!(store.copy(DB, b"hash", DB, b"copy", false), Err(StoreError::OutOfMemory { .. })));
    assert_eq!(store.digest().unwrap(), digest);
    // What takes no memory works: persisting, shortening, deleting, flushing.
    assert!(store.set_expiry(DB, b"expiring", None).unwrap());
    string::set(&mut store, DB, b"key:0", b"short", ExpiryChange::Clear).unwrap();
    for number in 0..3 {
        assert!(hash::del(&mut store, DB, b"small", format!("{number}").as_bytes()).unwrap());
    }
    assert_eq!(hash::len(&mut store, DB, b"small").unwrap(), 1);
    assert!(store.remove(DB, b"hash").unwrap());
    assert_eq!(store.flush(DB).unwrap(), written + 2);
    // What was flushed is freed as soon as it is needed.
    string::set(&mut store, DB, b"big", &vec![b'v'; 2 << 20], ExpiryChange::Clear).unwrap();
    assert_eq!(string::strlen(&mut store, DB, b"big").unwrap(), 2 << 20);
}

#[test]
fn limits_are_refused_without_harm() {
    let mut store = store();
    let max = quire_store::STRING_MAX_BYTES as u64;
    assert!(matches!(string::set_range(&mut store, DB, b"key", max, b"x"), Err(StoreError::TooLarge { .. })));
    assert!(matches!(string::set_range(&mut store, DB, b"key", u64::MAX, b"x"), Err(StoreError::TooLarge { .. })));
    assert!(matches!(string::set_bit(&mut store, DB, b"key", max * 8, true), Err(StoreError::OutOfRange { .. })));
    assert_eq!(string::set_range(&mut store, DB, b"key", 5, b"").unwrap(), 0);
    assert_eq!(store.kind(DB, b"key").unwrap(), None);
    assert!(matches!(string::get(&mut store, DbId(16), b"key"), Err(StoreError::NoSuchDb { db: 16 })));
    string::set(&mut store, DB, b"key", b"9223372036854775807", ExpiryChange::Clear).unwrap();
    assert!(matches!(string::incr_by(&mut store, DB, b"key", 1), Err(StoreError::Overflow)));
    assert!(matches!(string::incr_by_float(&mut store, DB, b"key", f64::INFINITY), Err(StoreError::NanOrInfinity)));
    assert_eq!(string::incr_by_float(&mut store, DB, b"key", 1.0).unwrap(), "9223372036854775808");
    assert!(matches!(string::incr_by(&mut store, DB, b"key", 1), Err(StoreError::NotInteger)));
    assert!(matches!(hash::get(&mut store, DB, b"key", b"f"), Err(StoreError::WrongType)));
    hash::set(&mut store, DB, b"hash", b"f", b"x").unwrap();
    let mut hash = hash::open_mut(&mut store, DB, b"hash").unwrap();
    assert!(matches!(hash.incr_by(b"f", 1), Err(StoreError::HashValueNotInteger)));
    assert!(matches!(hash.incr_by_float(b"f", 1.0), Err(StoreError::HashValueNotFloat)));
    drop(hash);
    assert!(matches!(string::append(&mut store, DB, b"hash", b"x"), Err(StoreError::WrongType)));
    string::set(&mut store, DB, b"hash", b"a string again", ExpiryChange::Clear).unwrap();
    assert_eq!(store.kind(DB, b"hash").unwrap(), Some(ValueType::String));
}

#[test]
fn a_small_key_costs_one_line_and_eleven_bytes() {
    let mut store = store();
    let before = store.arena().stats().allocated_bytes;
    let keys = 100_000u64;
    for number in 0..keys {
        string::set(&mut store, DB, format!("key:{number:012}").as_bytes(), &[b'v'; 32], ExpiryChange::Clear).unwrap();
    }
    let each = (store.arena().stats().allocated_bytes - before) as f64 / keys as f64;
    assert!(each <= 75.0, "{each}");
}

#[test]
fn only_accesses_set_the_clock() {
    let mut store = store();
    string::set(&mut store, DB, b"key", b"value", ExpiryChange::Clear).unwrap();
    store.set_now_ms(1_010_000);
    assert!(store.exists(DB, b"key").unwrap());
    assert_eq!(store.kind(DB, b"key").unwrap(), Some(ValueType::String));
    assert_eq!(store.expiry(DB, b"key").unwrap(), Some(None));
    store.set_touching(false);
    assert!(string::get(&mut store, DB, b"key").unwrap().is_some());
    assert_eq!(store.idle_seconds(DB, b"key").unwrap(), Some(10));
    assert!(store.touch(DB, b"key").unwrap());
    assert_eq!(store.idle_seconds(DB, b"key").unwrap(), Some(0));
    store.set_now_ms(1_030_000);
    store.set_touching(true);
    assert_eq!(store.idle_seconds(DB, b"key").unwrap(), Some(20));
    assert!(string::get(&mut store, DB, b"key").unwrap().is_some());
    assert_eq!(store.idle_seconds(DB, b"key").unwrap(), Some(0));
    assert!(!store.exists(DB, b"missing").unwrap());
    assert_eq!((store.stats().hits, store.stats().misses), (4, 1));
}

#[test]
fn a_renamed_key_is_one_change() {
    let mut store = store();
    string::set(&mut store, DB, b"from", b"v", ExpiryChange::Clear).unwrap();
    string::set(&mut store, DB, b"to", b"v", ExpiryChange::Clear).unwrap();
    store.watch(1, DB, b"from");
    store.watch(2, DB, b"to");
    assert!(store.rename(DB, b"from", b"to").unwrap());
    assert_eq!(store.changes(), 3);
    let mut touched = store.take_touched();
    touched.sort_unstable();
    assert_eq!(touched, [1, 2]);
}

#[test]
fn a_view_reads_a_hash_in_one_access() {
    let mut store = store();
    for number in 0..200u32 {
        hash::set(&mut store, DB, b"large", &number.to_be_bytes(), b"v").unwrap();
    }
    hash::set(&mut store, DB, b"small", b"f", b"v").unwrap();
    string::set(&mut store, DB, b"string", b"v", ExpiryChange::Clear).unwrap();
    for (key, len) in [(&b"large"[..], 200), (b"small", 1), (b"missing", 0)] {
        let view = hash::view(&mut store, DB, key).unwrap();
        assert_eq!((view.exists(), view.field_count().unwrap()), (len > 0, len));
        let (mut walked, mut scanned, mut cursor) = (0, 0, 0);
        view.for_each(&mut |_, _| walked += 1).unwrap();
        loop {
            cursor = view.scan(cursor, 10, &mut |_, _| scanned += 1).unwrap();
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((walked, scanned), (len, len));
        assert_eq!(view.get(b"nothing").unwrap(), None);
    }
    assert_eq!(hash::view(&mut store, DB, b"small").unwrap().get(b"f").unwrap(), Some(&b"v"[..]));
    assert!(matches!(hash::view(&mut store, DB, b"string"), Err(StoreError::WrongType)));
    assert_eq!((store.stats().hits, store.stats().misses), (4, 1));
}

#[test]
fn a_packed_hash_stays_short_enough_for_one_step_whatever_the_limits_are() {
    let limits =
        EncodingLimits::default().with(&hash::MAX_PACKED_FIELDS, usize::MAX).with(&hash::MAX_PACKED_LEN, usize::MAX);
    let mut store = Store::create(StoreConfig { limits, ..config() }).unwrap();
    let value = vec![b'v'; 100_000];
    for (count, expected) in [(5, "listpack"), (6, "hashtable")] {
        hash::set(&mut store, DB, b"long", format!("{count}").as_bytes(), b"").unwrap();
        for number in 0..count {
            hash::set(&mut store, DB, b"long", format!("{number}").as_bytes(), &value).unwrap();
        }
        assert_eq!(store.encoding(DB, b"long").unwrap(), Some(expected));
    }
    hash::set(&mut store, DB, b"huge", b"field", &[b'v'; 600_000]).unwrap();
    assert_eq!(store.encoding(DB, b"huge").unwrap(), Some("hashtable"));
    for number in 0..8193 {
        hash::set(&mut store, DB, b"many", format!("{number}").as_bytes(), b"").unwrap();
        let expected = if number < 8192 { "listpack" } else { "hashtable" };
        assert_eq!(store.encoding(DB, b"many").unwrap(), Some(expected), "{number}");
    }
    assert_eq!(hash::len(&mut store, DB, b"many").unwrap(), 8193);
    assert!(store.check_value(DB, b"many").unwrap());
}
