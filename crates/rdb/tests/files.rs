//! Whole files and payloads: what was written comes back, and what is damaged is refused, whatever it claims.

use proptest::prelude::*;
use quire_rdb::{
    Cause, Item, KeyFacts, PayloadError, PayloadReader, PayloadWriter, PendingEntry, RdbError, Reader, StreamConsumer,
    StreamGroup, StreamId, StreamPacker, StreamState, Value, ValueKind, Writer,
};

/// A value as a test knows it.
#[derive(Clone, PartialEq, Debug)]
enum Plain {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    Zset(Vec<(Vec<u8>, f64)>),
}

/// A key with all that belongs to it.
type PlainKey = (u64, Vec<u8>, KeyFacts, Plain);

fn write(keys: &[PlainKey]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &[("redis-ver", "7.0.15")]);
    writer.function(b"#!lua name=l");
    for (db, key, facts, value) in keys {
        writer.database(*db, 1, 0);
        match value {
            Plain::String(bytes) => writer.key(key, *facts, ValueKind::String).string(bytes),
            Plain::List(elements) | Plain::Set(elements) => {
                let kind = if matches!(value, Plain::List(_)) { ValueKind::List } else { ValueKind::Set };
                let out = writer.key(key, *facts, kind);
                out.length(elements.len() as u64);
                elements.iter().for_each(|element| out.string(element));
            }
            Plain::Hash(pairs) => {
                let out = writer.key(key, *facts, ValueKind::Hash);
                out.length(pairs.len() as u64);
                pairs.iter().flat_map(|(field, value)| [field, value]).for_each(|word| out.string(word));
            }
            Plain::Zset(members) => {
                let out = writer.key(key, *facts, ValueKind::Zset);
                out.length(members.len() as u64);
                for (member, score) in members {
                    out.string(member);
                    out.score(*score);
                }
            }
        }
    }
    writer.finish().unwrap()
}

fn value_of(value: Value<'_, &[u8]>) -> Result<Plain, RdbError> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut elements = Vec::new();
    Ok(match value {
        Value::String(bytes) => Plain::String(bytes),
        Value::List(mut list) => {
            while list.next_into(&mut first)? {
                elements.push(first.clone());
            }
            Plain::List(elements)
        }
        Value::Set(mut set) => {
            while set.next_into(&mut first)? {
                elements.push(first.clone());
            }
            Plain::Set(elements)
        }
        Value::Hash(mut hash) => {
            let mut pairs = Vec::new();
            while hash.next_into(&mut first, &mut second)? {
                pairs.push((first.clone(), second.clone()));
            }
            Plain::Hash(pairs)
        }
        Value::Zset(mut zset) => {
            let mut members = Vec::new();
            while let Some(score) = zset.next_into(&mut first)? {
                members.push((first.clone(), score));
            }
            Plain::Zset(members)
        }
        other @ (Value::Stream(_) | Value::Module(_)) => panic!("{other:?} was not written"),
    })
}

fn read(bytes: &[u8]) -> Result<Vec<PlainKey>, RdbError> {
    let mut reader = Reader::new(bytes)?;
    let mut keys = Vec::new();
    while let Some(item) = reader.next_item()? {
        if let Item::Key(item) = item {
            keys.push((item.db, item.key, item.facts, value_of(item.value)?));
        }
    }
    assert_eq!(reader.offset(), bytes.len() as u64);
    Ok(keys)
}

fn skip_all(bytes: &[u8]) -> Result<(), RdbError> {
    let mut reader = Reader::new(bytes)?;
    while let Some(item) = reader.next_item()? {
        if let Item::Key(item) = item {
            item.value.skip()?;
        }
    }
    Ok(())
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (-40_000..40_000i64).prop_map(|number| number.to_string().into_bytes()),
        (any::<u8>(), 1..5000usize).prop_map(|(byte, count)| vec![byte; count]),
    ]
}

fn plain() -> impl Strategy<Value = Plain> {
    let words = || prop::collection::vec(word(), 0..20);
    prop_oneof![
        word().prop_map(Plain::String),
        words().prop_map(Plain::List),
        words().prop_map(Plain::Set),
        prop::collection::vec((word(), word()), 0..20).prop_map(Plain::Hash),
        prop::collection::vec((word(), -1e300..1e300f64), 0..20).prop_map(Plain::Zset),
    ]
}

fn key() -> impl Strategy<Value = PlainKey> {
    let facts = (any::<Option<i64>>(), any::<Option<u64>>(), any::<Option<u8>>());
    let facts = facts.prop_map(|(expire_ms, idle_s, frequency)| KeyFacts { expire_ms, idle_s, frequency });
    (any::<u64>(), word(), facts, plain())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_comes_back(keys in prop::collection::vec(key(), 0..12)) {
        prop_assert_eq!(read(&write(&keys)).unwrap(), keys);
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_refused(
        keys in prop::collection::vec(key(), 1..5),
        place in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let whole = write(&keys);
        let place = place.index(whole.len());
        prop_assert!(skip_all(&whole[..place]).is_err());
        let mut changed = whole;
        changed[place] ^= 1 << bit;
        // A version below 5 has no checksum; the rest of the file is what it was.
        prop_assert!(skip_all(&changed).is_err() || place < 9);
    }

    #[test]
    fn any_bytes_behind_a_head_are_read_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..400), number in 0..26u8) {
        let _ = skip_all(&[b"REDIS0012", &[number, 1, b'k'][..], &bytes].concat());
    }
}

/// A file of version 12 with one key of this type, whose value is these bytes; without a checksum.
fn file_of(number: u8, value: &[u8]) -> Vec<u8> {
    [b"REDIS0012", &[number, 1, b'k'][..], value, &[255], &[0; 8]].concat()
}

#[test]
fn fields_with_a_time_to_live_are_read_with_it() {
    let hash = [&100u64.to_le_bytes()[..], b"\x02", b"\x05\x01a\x011", b"\x00\x01b\x012"].concat();
    let early = b"\x02\x80\0\0\0\x09\x01a\x011\x00\x01b\x012".to_vec();
    // A listpack of six words: field, value, time, twice.
    let words = b"\x81a\x02\x01\x01\x09\x01\x81b\x02\x02\x01\x00\x01";
    let packed = [&[21, 0, 0, 0, 6, 0][..], words, &[255]].concat();
    let packed = [&[packed.len() as u8][..], &packed].concat();
    let forms = [(24, hash, 104), (22, early, 9), (25, [&[0; 8][..], &packed].concat(), 9), (23, packed.clone(), 9)];
    for (number, value, expire_ms) in forms {
        let file = file_of(number, &value);
        let mut reader = Reader::new(&file[..]).unwrap();
        let Some(Item::Key(item)) = reader.next_item().unwrap() else { panic!("a key") };
        let Value::Hash(mut pairs) = item.value else { panic!("a hash") };
        let (mut field, mut value, mut found) = (Vec::new(), Vec::new(), Vec::new());
        while pairs.next_into(&mut field, &mut value).unwrap() {
            found.push(([&field[..], b"=", &value].concat(), pairs.expire_ms()));
        }
        assert_eq!(found, [(b"a=1".to_vec(), Some(expire_ms)), (b"b=2".to_vec(), None)], "type {number}");
        assert!(reader.next_item().unwrap().is_none());
    }
}

#[test]
fn fields_that_expire_at_no_instant_are_malformed() {
    let read = |value: &[u8]| {
        let file = file_of(24, value);
        let mut reader = Reader::new(&file[..]).unwrap();
        let Some(Item::Key(item)) = reader.next_item().unwrap() else { panic!("a key") };
        item.value.skip()
    };
    let one = |earliest_ms: u64| [&earliest_ms.to_le_bytes()[..], b"\x01\x02\x01a\x011"].concat();
    read(&one((1 << 48) - 2)).unwrap();
    assert!(read(&one((1 << 48) - 1)).is_err() && read(&one(u64::MAX)).is_err());
}

#[test]
fn hashes_whose_fields_have_times_to_live_are_read_as_they_were_written() {
    let mut writer = PayloadWriter::new(ValueKind::TtlHash);
    let encoder = writer.encoder();
    encoder.first_expiry(500);
    encoder.length(3);
    let fields = [(b"a", Some(500)), (b"b", None), (b"c", Some(1 << 40))];
    for (name, expire_ms) in fields {
        encoder.field_expiry(expire_ms, 500);
        encoder.string(name);
        encoder.string(b"value");
    }
    let payload = writer.finish();
    assert_eq!(payload[payload.len() - 10..][..2], 12u16.to_le_bytes(), "older servers refuse it by its version");
    let mut reader = PayloadReader::open(&payload).unwrap();
    let Value::Hash(mut pairs) = reader.value().unwrap() else { panic!("a hash") };
    let (mut field, mut value) = (Vec::new(), Vec::new());
    for (name, expire_ms) in fields {
        assert!(pairs.next_into(&mut field, &mut value).unwrap());
        assert_eq!((&field[..], &value[..], pairs.expire_ms()), (&name[..], &b"value"[..], expire_ms));
    }
    assert!(!pairs.next_into(&mut field, &mut value).unwrap());
}

#[test]
fn old_scores_and_values_of_modules_are_read() {
    let file = file_of(3, b"\x04\x01a\x031.5\x01b\xfe\x01c\xff\x01d\x02-3");
    let zset = [(b"a", 1.5), (b"b", f64::INFINITY), (b"c", f64::NEG_INFINITY), (b"d", -3.0)];
    let zset = Plain::Zset(zset.map(|(member, score)| (member.to_vec(), score)).to_vec());
    assert_eq!(read(&file).unwrap()[0].3, zset);
    assert!(read(&file_of(3, b"\x01\x01a\xfd")).is_err(), "not a number");
    // The number of a module, a count, some bytes, the end.
    let module =
        [&[0x81][..], &((0..9).fold(0u64, |id, _| id << 6 | 1) << 10).to_be_bytes(), b"\x02\x05\x05\x03abc\x00"]
            .concat();
    let file = file_of(7, &module);
    let mut reader = Reader::new(&file[..]).unwrap();
    let Some(Item::Key(item)) = reader.next_item().unwrap() else { panic!("a key") };
    assert!(matches!(item.value, Value::Module(name) if name == "BBBBBBBBB"));
    assert!(reader.next_item().unwrap().is_none());
}

#[test]
fn refusals_name_place_and_cause() {
    let cause = |bytes: &[u8]| read(bytes).unwrap_err();
    assert!(matches!(cause(b"REDIS0013").cause, Cause::Version { version: 13, .. }));
    assert!(matches!(cause(b"RADIS0010").cause, Cause::Foreign));
    assert!(matches!(cause(b"RED").cause, Cause::Foreign));
    assert!(matches!(cause(b"REDIS0010\xf0").cause, Cause::Unsupported { number: 0xf0, .. }));
    let mut file = write(&[(0, b"k".to_vec(), KeyFacts::default(), Plain::String(b"v".to_vec()))]);
    *file.last_mut().unwrap() ^= 1;
    let error = cause(&file);
    assert!(matches!(error.cause, Cause::Checksum { .. }), "{error}");
    assert_eq!(error.offset, file.len() as u64);
    // Lists whose claims no bytes follow.
    for claim in [&[0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..], &[0x80, 0xff, 0xff, 0xff, 0xff]] {
        for number in [1, 2, 3, 4, 5, 14, 15, 18, 19, 21, 22] {
            assert!(skip_all(&[b"REDIS0012", &[number, 1, b'k'][..], claim].concat()).is_err(), "type {number}");
        }
    }
}

#[test]
fn a_value_has_to_be_read_to_its_end_before_the_next_item() {
    let list = Plain::List(vec![b"a".to_vec(), b"b".to_vec()]);
    let file = write(&[(0, b"k".to_vec(), KeyFacts::default(), list)]);
    let mut reader = Reader::new(&file[..]).unwrap();
    while !matches!(reader.next_item().unwrap(), Some(Item::Key(_))) {}
    assert!(reader.next_item().unwrap_err().to_string().contains("not read to its end"));
}

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

fn stream_state() -> StreamState {
    let pending = PendingEntry { id: id(5, 1), delivered_ms: 77, deliveries: 3, consumer: 1 };
    let consumer = |name: &[u8]| StreamConsumer { name: name.to_vec(), seen_ms: 9, active_ms: None };
    let consumers = vec![consumer(b"c1"), consumer(b"c2")];
    let group = |entries_read| StreamGroup {
        name: b"g".to_vec(),
        last_id: id(5, 2),
        entries_read,
        consumers: consumers.clone(),
        pending: vec![pending.clone()],
    };
    StreamState {
        length: 300,
        last_id: id(304, 4),
        first_id: Some(id(5, 0)),
        max_deleted_id: id(2, 2),
        entries_added: 400,
        groups: vec![group(Some(3)), StreamGroup { name: b"h".to_vec(), ..group(None) }],
    }
}

#[test]
fn streams_come_back_with_their_groups() {
    let mut packer = StreamPacker::default();
    let entry = |number: u64| {
        let mut pairs = vec![(b"field".to_vec(), number.to_string().into_bytes())];
        if number.is_multiple_of(7) {
            pairs.push((vec![b'x'; 200], vec![0; number as usize]));
        }
        (id(5 + number, number % 5), pairs)
    };
    for number in 0..300 {
        let (id, pairs) = entry(number);
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(field, value)| (&field[..], &value[..])).collect();
        packer.push(id, &pairs);
    }
    let mut writer = PayloadWriter::new(ValueKind::Stream);
    packer.write(&stream_state(), writer.encoder());
    let payload = writer.finish();
    let mut reader = PayloadReader::open(&payload).unwrap();
    let Value::Stream(mut stream) = reader.value().unwrap() else { panic!("a stream") };
    let mut count = 0;
    while let Some(found) = stream.next_entry().unwrap() {
        let mut pairs = Vec::new();
        found.for_each(|field, value| pairs.push((field.to_vec(), value.to_vec())));
        assert_eq!((found.id, pairs), entry(count));
        count += 1;
    }
    assert_eq!(count, 300);
    assert_eq!(stream.finish().unwrap(), stream_state());
}

#[test]
fn payloads_are_checked_before_they_are_read() {
    let mut writer = PayloadWriter::new(ValueKind::String);
    writer.encoder().string(b"abc");
    let payload = writer.finish();
    // As redis-server 7.0 gives it.
    assert_eq!(payload[..7], *b"\x00\x03abc\x0a\x00");
    assert!(matches!(PayloadReader::open(&payload).unwrap().value().unwrap(), Value::String(bytes) if bytes == b"abc"));
    for place in 0..payload.len() {
        let mut changed = payload.clone();
        changed[place] ^= 0x10;
        assert!(matches!(PayloadReader::open(&changed), Err(PayloadError::Footer)), "byte {place}");
        assert!(PayloadReader::open(&payload[..place]).is_err());
    }
}
