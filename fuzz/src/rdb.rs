//! Target `rdb_reader`: any bytes, read as an RDB file and as a payload of DUMP, are refused or give sound data.
//!
//! Relies on the server's way to put values into a store, whose own check then goes through every value. The first byte says which of
//! the two the input is; a payload gets the checksum that it should have, so that more than checksums is tried.

use quire_rdb::{
    KeyFacts, PayloadReader, StreamEntry, StreamId, StreamPacker, StreamState, Value, ValueKind, Writer, checksum,
    read_libraries, write_libraries,
};
use quire_server::rdb::export::export;
use quire_server::rdb::import::import;
use quire_store::{DbId, Store, StoreConfig};

/// Memory of the store that the data goes to.
const STORE_BYTES: u64 = 64 << 20;

/// The promise: what is taken is sound and can be written again; reading takes time in proportion to the input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0, file)) => read_file(file),
        Some((_, value)) => read_value(value),
        None => {}
    }
}

fn read_file(file: &[u8]) {
    let config =
        StoreConfig { max_memory_bytes: STORE_BYTES, budget_bytes: 1 << 20, seed: Some(1), ..StoreConfig::default() };
    let mut store = Store::create(config).expect("memory for a small store");
    let taken = import(&mut store, file, |_| {});
    let keys: u64 = (0..store.databases()).map(|db| store.len(DbId(db))).sum();
    store.digest().expect("what is in the store is sound, even where the rest is refused");
    if let Ok(summary) = taken {
        assert_eq!(summary.keys, keys, "as many keys as were counted");
        let (exported, _) = export(&mut store, Vec::new(), |_, _| {}).expect("what was read can be written");
        assert_eq!(exported.keys + exported.expired, keys);
    }
}

fn read_value(value: &[u8]) {
    // Version and checksum: whole files have them checked as they are.
    let mut payload = [value, &10u16.to_le_bytes()].concat();
    payload.extend_from_slice(&checksum(&payload).to_le_bytes());
    if let Ok(libraries) = read_libraries(&payload) {
        let again = write_libraries(libraries.iter().map(Vec::as_slice));
        assert_eq!(read_libraries(&again).expect("what was read can be written"), libraries);
    }
    let mut reader = PayloadReader::open(&payload).expect("the checksum is right");
    match reader.value() {
        Ok(Value::Stream(mut stream)) => {
            let mut words = 0;
            while let Ok(Some(entry)) = stream.next_entry() {
                words += length_of(&entry);
            }
            assert!(words <= value.len().saturating_mul(value.len().max(1024)), "more words than there can be");
        }
        Ok(value) => drop(value.skip()),
        Err(_) => {}
    }
}

fn length_of(entry: &StreamEntry<'_>) -> usize {
    let mut words = 0;
    entry.for_each(|_, _| words += 2);
    assert_eq!(words, 2 * entry.field_count());
    words
}

fn file_of_all_types() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &[("redis-ver", "7.0.15")]);
    writer.function(b"#!lua name=l");
    writer.database(1, 5, 1);
    let facts = KeyFacts { expire_ms: Some(i64::MAX / 2), idle_s: Some(7), frequency: Some(3) };
    writer.key(b"string", facts, ValueKind::String).string(&b"abc".repeat(20));
    for (key, kind) in [(&b"list"[..], ValueKind::List), (b"a set", ValueKind::Set)] {
        let out = writer.key(key, KeyFacts::default(), kind);
        out.length(3);
        [&b"1"[..], b"two", b"-70000"].iter().for_each(|word| out.string(word));
    }
    let out = writer.key(b"hash", KeyFacts::default(), ValueKind::Hash);
    out.length(1);
    out.string(b"field");
    out.string(b"value");
    let out = writer.key(b"zset", KeyFacts::default(), ValueKind::Zset);
    out.length(1);
    out.string(b"member");
    out.score(1.5);
    let mut packer = StreamPacker::default();
    packer.push(StreamId { ms: 1, seq: 0 }, &[(b"f", b"v")]);
    let state = StreamState { length: 1, last_id: StreamId { ms: 1, seq: 0 }, ..StreamState::default() };
    packer.write(&state, writer.key(b"stream", KeyFacts::default(), ValueKind::Stream));
    writer.finish().expect("memory does not fail")
}

/// A file of all types, and values of the packed forms that are only read.
pub fn seeds() -> Vec<Vec<u8>> {
    let listpack: &[u8] = b"\x15\x15\0\0\0\x06\0\x81a\x02\x01\x01\x09\x01\x81b\x02\x02\x01\x00\x01\xff";
    let ziplist: &[u8] = b"\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xf3\xff";
    let zipmap: &[u8] = b"\x0e\x02\x03foo\x02\x00ab\x01k\x00\x00\xff";
    let intset: &[u8] = b"\x0c\x02\0\0\0\x02\0\0\0\x01\0\x05\0";
    let value = |number: u8, head: &[u8], body: &[u8]| [&[1, number], head, body].concat();
    let mut seeds = vec![[&[0], &file_of_all_types()[..]].concat()];
    seeds.extend([16, 17, 20, 23].map(|number| value(number, b"", listpack)));
    seeds.extend([10, 12, 13].map(|number| value(number, b"", ziplist)));
    seeds.extend([value(14, b"\x01", ziplist), value(18, b"\x01\x02", listpack), value(18, b"\x01\x01", b"\x03abc")]);
    seeds.extend([value(25, &[0; 8], listpack), value(9, b"", zipmap), value(11, b"", intset)]);
    seeds.push(value(0, b"", b"\xc3\x05\x0a\x00a\xe0\x00\x00"));
    seeds.push(value(15, b"\x00\x00\x01\x00", b"\x01\x01g\x01\x00\x00\x01\x01c\0\0\0\0\0\0\0\0\x00"));
    seeds
}
