//! Images that released versions have written can be read for ever.

use std::fs;
use std::path::Path;

use quire_checkpoint::ImageChain;
use quire_checkpoint::format::{self, DATA_OFFSET, ImageFooter, ImageHeader};
use quire_device::DiskDirectory;
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};
use quire_store::list::End;
use quire_store::numbers::hex;
use quire_store::{
    Codec, DbId, ExpiryChange, ImageLocation, RestoreMode, SetMember, Store, StoreConfig, StreamId, attachment, hash,
    list, set, stream, string, zset,
};
use zerocopy::FromBytes;

/// Writes the image that a fixture stands for.
fn unfold(fixture: &[u8], path: &Path) {
    fs::write(path, quire_sys::testing::unfold(fixture)).unwrap();
}

#[test]
fn an_image_of_format_1_is_read_written_to_and_saved() {
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        unfold(include_bytes!("fixtures/image-format-1.sparse"), &dir.path().join("dump.quire"));
        let (mut store, report) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        assert_eq!((report.keys, report.damage.len(), store.image_epoch()), (207, 0, 1));
        assert_eq!(hex(&store.digest().unwrap()), "ad0fa3a862cf67320cf7dccadac119f8d2f942f2");
        assert_eq!(string::get(&mut store, DbId(0), b"plain").unwrap(), Some(&b"value"[..]));
        assert_eq!(hash::len(&mut store, DbId(0), b"large").unwrap(), 300);
        assert_eq!(string::get(&mut store, DbId(9), b"elsewhere").unwrap(), Some(&b"9"[..]));
        string::set(&mut store, DbId(0), b"plain", b"changed", ExpiryChange::Clear).unwrap();
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        assert_eq!(again.digest().unwrap(), store.digest().unwrap());
        assert_eq!(again.image_epoch(), 2);
    }
}

/// Makes of the image of format 1 one as the first release wrote it: its keyspace has version 1, and behind the databases, where later
/// versions have the place in the log and what lies beside the keys, is anything. Its checksums are right.
fn make_first_release(path: &Path) {
    let mut image = fs::read(path).unwrap();
    let root = image.windows(8).position(|bytes| bytes == b"QUIREKV\0").unwrap();
    let (start, data_offset) = (root - root % PAGE_SIZE, DATA_OFFSET as usize);
    let page = ((start - data_offset) / PAGE_SIZE) as u32;
    let sum = |image: &[u8]| format::page_sum(page, &image[start..start + PAGE_SIZE]);
    let before = sum(&image);
    assert_eq!(image[root + 8..root + 12], 2_u32.to_le_bytes());
    image[root + 8..root + 12].copy_from_slice(&1_u32.to_le_bytes());
    image[root + 1320..root + 1336].fill(0xAB);
    let change = sum(&image).wrapping_sub(before);
    let layout = ImageHeader::ref_from_bytes(&image[..PAGE_SIZE]).unwrap().layout();
    let (table, footer) = (layout.table_offset() as usize, layout.footer_offset() as usize);
    let place = table + (layout.present_words() + page as usize / PAGES_PER_REGION) * 8;
    let region_sum = u64::from_le_bytes(image[place..place + 8].try_into().unwrap());
    image[place..place + 8].copy_from_slice(&region_sum.wrapping_add(change).to_le_bytes());
    let table_sum = format::checksum(&image[table..footer]);
    let last = ImageFooter::mut_from_bytes(&mut image[footer..]).unwrap();
    last.table_checksum = table_sum.into();
    last.checksum = last.own_checksum().into();
    fs::write(path, image).unwrap();
}

#[test]
fn an_image_of_the_first_release_has_no_place_in_a_log_and_nothing_beside_its_keys() {
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        unfold(include_bytes!("fixtures/image-format-1.sparse"), &dir.path().join("dump.quire"));
        make_first_release(&dir.path().join("dump.quire"));
        let (mut store, report) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        assert_eq!((report.keys, report.damage.len(), store.log_position()), (207, 0, 0));
        assert_eq!(attachment::get(&store).unwrap(), None);
        assert_eq!(hex(&store.digest().unwrap()), "ad0fa3a862cf67320cf7dccadac119f8d2f942f2");
        store.set_log_position(77);
        attachment::set(&mut store, b"beside").unwrap();
        string::set(&mut store, DbId(0), b"plain", b"changed", ExpiryChange::Clear).unwrap();
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        assert_eq!((again.digest().unwrap(), again.log_position()), (store.digest().unwrap(), 77));
        assert_eq!(attachment::get(&again).unwrap(), Some(&b"beside"[..]));
    }
}

/// The keys of `image-every-encoding` and the names of their encodings. Small and large streams have one name.
const EVERY_ENCODING: [(&str, &str); 14] = [
    ("int", "int"),
    ("embstr", "embstr"),
    ("raw", "raw"),
    ("hash", "listpack"),
    ("table of fields", "hashtable"),
    ("ints", "intset"),
    ("set", "listpack"),
    ("table of members", "hashtable"),
    ("list", "listpack"),
    ("list of nodes", "quicklist"),
    ("zset", "listpack"),
    ("tree", "skiplist"),
    ("stream", "stream"),
    ("stream of blocks", "stream"),
];

/// Looks at what lies deep in the large values.
fn check_every_encoding(store: &mut Store) {
    let db = DbId(0);
    for (key, encoding) in EVERY_ENCODING {
        assert_eq!(store.encoding(db, key.as_bytes()).unwrap(), Some(encoding), "{key}");
        assert!(store.check_value(db, key.as_bytes()).unwrap(), "{key}");
    }
    let element = |store: &mut Store, key: &[u8], index| {
        let found = list::view(store, db, key).unwrap().get(index).unwrap().unwrap();
        found.text(&mut itoa::Buffer::new()).to_vec()
    };
    assert_eq!(element(store, b"list", 2), b"-3");
    assert_eq!(element(store, b"list of nodes", 700), b"element:700".repeat(3));
    for (key, member, rank) in [(&b"zset"[..], &b"b"[..], (1, -2.5)), (b"tree", b"member:400", (400, 200.0))] {
        assert_eq!(zset::view(store, db, key).unwrap().rank(member).unwrap(), Some(rank));
    }
    let view = stream::view(store, db, b"stream").unwrap();
    assert_eq!((view.len().unwrap(), view.last_id()), (2, StreamId { ms: 7, seq: 2 }));
    let view = stream::view(store, db, b"stream of blocks").unwrap();
    assert_eq!((view.len().unwrap(), view.last_id()), (799, StreamId { ms: 800, seq: 1 }));
    assert!(view.entry(StreamId { ms: 3, seq: 1 }).unwrap().is_none());
    let group = view.group(b"readers").unwrap().unwrap();
    assert_eq!((group.last_id, group.pending, group.consumers), (StreamId { ms: 6, seq: 1 }, 4, 2));
    assert_eq!(store.expiry(db, b"int").unwrap(), Some(Some(4_000_000_000_000)));
}

/// Adds something to each value but strings.
fn change_every_encoding(store: &mut Store) {
    let db = DbId(0);
    for key in [&b"list"[..], b"list of nodes"] {
        let mut list = list::open_mut(store, db, key).unwrap();
        list.make_room([&b"new"[..]]).unwrap();
        list.push(End::Front, b"new").unwrap();
    }
    for key in [&b"hash"[..], b"table of fields"] {
        hash::set(store, db, key, b"new", b"value").unwrap();
    }
    for key in [&b"ints"[..], b"set", b"table of members"] {
        assert!(set::open_mut(store, db, key).unwrap().add(b"17000").unwrap());
    }
    for key in [&b"zset"[..], b"tree"] {
        zset::open_mut(store, db, key).unwrap().set(b"new", 1.5).unwrap();
    }
    for key in [&b"stream"[..], b"stream of blocks"] {
        stream::open_mut(store, db, key).unwrap().add(StreamId { ms: 900, seq: 1 }, &[b"field", b"value"]).unwrap();
    }
}

/// As the program of 28 November 2026 wrote it, with a library of functions beside the keys.
#[test]
fn an_image_with_a_key_of_each_encoding_and_a_library_is_read_written_to_and_saved() {
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        unfold(include_bytes!("fixtures/image-every-encoding.sparse"), &dir.path().join("dump.quire"));
        let (mut store, report) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        store.set_now_ms(1_700_000_000_000);
        assert_eq!((report.keys, report.damage.len()), (EVERY_ENCODING.len() as u64, 0));
        assert_eq!(hex(&store.digest().unwrap()), "609e6b4fdd89734bf5d47fadd915840df1ae2f64");
        check_every_encoding(&mut store);
        let library = attachment::get(&store).unwrap().unwrap().to_vec();
        assert!(library.windows(14).any(|bytes| bytes == b"#!lua name=lib"), "{}", library.escape_ascii());
        change_every_encoding(&mut store);
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        again.set_now_ms(1_700_000_000_000);
        assert_eq!(again.digest().unwrap(), store.digest().unwrap());
        assert_eq!(attachment::get(&again).unwrap(), Some(&library[..]));
        for (key, _) in EVERY_ENCODING {
            assert!(again.check_value(DbId(0), key.as_bytes()).unwrap(), "{key}");
        }
    }
}

/// As the program of 28 November 2026 wrote it: a packed hash and a table of 600 fields with times to live, of which one and twenty were past.
#[test]
fn an_image_of_fields_with_times_to_live_is_read_searched_and_saved() {
    const NOW_MS: i64 = 1_900_000_000_000;
    let lens = |store: &mut Store| [&b"packed"[..], b"table"].map(|key| hash::len(store, DbId(0), key).unwrap());
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        unfold(include_bytes!("fixtures/image-field-expiry.sparse"), &dir.path().join("dump.quire"));
        let (mut store, report) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        store.set_now_ms(NOW_MS);
        assert_eq!((report.keys, report.damage.len()), (2, 0));
        assert_eq!(hex(&store.digest().unwrap()), "cd5a00094234f07937d04af30001ecb8c89abff2");
        assert_eq!(lens(&mut store), [2, 580]);
        for (key, field, expiry_ms) in [
            (&b"packed"[..], &b"later"[..], Some(Some(4_000_000_000_000))),
            (b"packed", b"lasting", Some(None)),
            (b"packed", b"past", None),
            (b"table", b"field:300", Some(Some(4_000_000_000_300))),
            (b"table", b"field:31", None),
        ] {
            assert!(store.check_value(DbId(0), key).unwrap());
            assert_eq!(hash::view(&mut store, DbId(0), key).unwrap().expiry(field).unwrap(), expiry_ms);
        }
        let mut expired = 0;
        while expired < 21 {
            expired += store.expire_step(10_000).unwrap().expired;
        }
        hash::set(&mut store, DbId(0), b"table", b"new", b"value").unwrap();
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        again.set_now_ms(NOW_MS);
        assert_eq!((again.digest().unwrap(), lens(&mut again)), (store.digest().unwrap(), [2, 581]));
    }
}

#[test]
fn an_image_with_sets_and_half_a_copy_is_read_written_to_and_saved() {
    for mode in [RestoreMode::Map, RestoreMode::Load] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        unfold(include_bytes!("fixtures/image-sets.sparse"), &dir.path().join("dump.quire"));
        let (mut store, report) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        store.set_now_ms(1_700_000_000_000);
        assert_eq!((report.keys, report.damage.len()), (4, 0));
        assert_eq!(hex(&store.digest().unwrap()), "00313a38502d5de793631106f170dc747d13ebb2");
        for (db, key, encoding, member) in [
            (0, &b"members"[..], "hashtable", &b"member:699"[..]),
            (0, b"ints", "intset", b"99000292"),
            (0, b"wide", "intset", b"-9223372036854775808"),
            (9, b"words", "listpack", b"word:99"),
        ] {
            assert_eq!(store.encoding(DbId(db), key).unwrap(), Some(encoding));
            assert!(store.check_value(DbId(db), key).unwrap());
            assert!(set::view(&mut store, DbId(db), key).unwrap().contains(&SetMember::Bytes(member)).unwrap());
            assert!(set::open_mut(&mut store, DbId(db), key).unwrap().remove(member).unwrap());
        }
        assert_eq!(store.expiry(DbId(0), b"wide").unwrap(), Some(Some(4_000_000_000_000)));
        // A set that was deleted, and the copy of one that was under way, are freed.
        assert_eq!(store.stats().reclaim_pending, 2);
        while store.reclaim_step(1000).unwrap() > 0 {}
        assert_eq!(store.arena().stats().objects, 731 - 1);
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(StoreConfig::default(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        assert_eq!(again.digest().unwrap(), store.digest().unwrap());
    }
}

/// An image, the deltas over it, and the epoch of the last one.
struct FixtureChain {
    image: &'static [u8],
    deltas: &'static [&'static [u8]],
    epoch: u64,
}

/// The second delta, of version 1, has pages that have lost their content.
const FORMAT_2: FixtureChain = FixtureChain {
    image: include_bytes!("fixtures/image-format-2.sparse"),
    deltas: &[
        include_bytes!("fixtures/image-format-2.delta-1.sparse"),
        include_bytes!("fixtures/image-format-2.delta-2.sparse"),
    ],
    epoch: 3,
};

/// The same data, compressed by LZ4, and in the delta, of version 2, by Zstandard.
const FORMAT_3: FixtureChain = FixtureChain {
    image: include_bytes!("fixtures/image-format-3.sparse"),
    deltas: &[include_bytes!("fixtures/image-format-3.delta-1.sparse")],
    epoch: 5,
};

impl FixtureChain {
    fn unfold(&self, dir: &Path) {
        unfold(self.image, &dir.join("dump.quire"));
        for (index, delta) in self.deltas.iter().enumerate() {
            unfold(delta, &dir.join(format!("dump.quire.delta-{}", index + 1)));
        }
    }
}

/// The number in the version field of a link.
fn version(link: &Path) -> u8 {
    fs::read(link).unwrap()[8]
}

/// Looks at a value of each encoding: those that the image has, those that a delta has changed.
fn check_values_of_chain(store: &mut Store) {
    for (db, key, encoding) in [
        (0, "number", "int"),
        (0, "string:4", "embstr"),
        (0, "string:3", "raw"),
        (3, "later", "raw"),
        (9, "small", "listpack"),
        (0, "large", "hashtable"),
        (0, "ints", "intset"),
        (9, "words", "listpack"),
        (0, "members", "hashtable"),
    ] {
        assert_eq!(store.encoding(DbId(db), key.as_bytes()).unwrap(), Some(encoding), "{key}");
        assert!(store.check_value(DbId(db), key.as_bytes()).unwrap(), "{key}");
    }
    for (db, key, value) in [
        (0, &b"number"[..], Some(&b"42"[..])),
        (0, b"string:4", Some(b"changed")),
        (0, b"string:3", Some(&[8; 2000])),
        (0, b"string:59", Some(&[59; 3000])),
        (3, b"later", Some(&[3; 5000])),
        (0, &[b'k'; 500], Some(b"long key")),
        (0, b"zeros", None),
        (0, b"long", None),
    ] {
        assert_eq!(string::get(store, DbId(db), key).unwrap(), value);
    }
    for (db, key, field, value) in [
        (0, "large", &b"field:3"[..], &b"changed"[..]),
        (0, "large", b"field:299", b"value"),
        (9, "small", b"field:3", b"changed"),
        (9, "small", b"field:19", b"value"),
    ] {
        assert_eq!(hash::get(store, DbId(db), key.as_bytes(), field).unwrap(), Some(value), "{key}");
    }
    for (db, key, member, is_there) in [
        (0, "ints", "-9223372036854775808", true),
        (9, "words", "word:99", true),
        (0, "members", "member:7", false),
        (0, "members", "member:8", true),
        (0, "members", "member:999", true),
    ] {
        let found = set::view(store, DbId(db), key.as_bytes()).unwrap().contains(&SetMember::Bytes(member.as_bytes()));
        assert_eq!(found.unwrap(), is_there, "{key}: {member}");
    }
    assert_eq!(store.expiry(DbId(3), b"later").unwrap(), Some(Some(4_000_000_000_000)));
    assert_eq!(store.expiry(DbId(0), b"string:56").unwrap(), Some(Some(4_000_000_000_056)));
}

#[test]
fn an_image_of_format_2_with_two_deltas_is_read_written_to_and_saved_over() {
    is_read_written_to_and_saved_over(&FORMAT_2);
}

#[test]
fn a_compressed_image_of_format_3_with_a_delta_is_read_written_to_and_saved_over() {
    let dir = tempfile::tempdir().unwrap();
    FORMAT_3.unfold(dir.path());
    let image = ImageChain::open(&DiskDirectory::new(dir.path()), "dump.quire").unwrap();
    let codecs = (image.info().compression.codec, image.deltas()[0].compression.codec);
    assert_eq!(codecs, (Some(Codec::Lz4), Some(Codec::Zstd)));
    assert_eq!((version(&dir.path().join("dump.quire")), version(&dir.path().join("dump.quire.delta-1"))), (3, 2));
    is_read_written_to_and_saved_over(&FORMAT_3);
}

fn is_read_written_to_and_saved_over(chain: &FixtureChain) {
    let deltas = chain.deltas.len();
    let ways = [RestoreMode::Map, RestoreMode::Load].map(|mode| [(mode, 0), (mode, deltas + 1)]).concat();
    for (mode, max_deltas) in ways {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), "dump.quire");
        chain.unfold(dir.path());
        let config = StoreConfig { max_deltas: max_deltas as u32, ..StoreConfig::default() };
        let (mut store, report) = Store::open(config.clone(), &place, mode, false).unwrap();
        store.finish_restore().unwrap();
        store.set_now_ms(1_700_000_000_000);
        assert_eq!((report.mode, report.keys, report.deltas, report.damage.len()), (Some(mode), 69, deltas, 0));
        assert_eq!(store.image_epoch(), chain.epoch);
        assert_eq!(hex(&store.digest().unwrap()), "07d31dd3f103d6aaf0392262239e61a2337c21a6");
        check_values_of_chain(&mut store);
        string::set(&mut store, DbId(0), b"number", b"43", ExpiryChange::Clear).unwrap();
        assert_eq!(store.save_blocking(&place).unwrap().image.is_delta, max_deltas > 0);
        let (mut again, report) = Store::open(config, &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        assert_eq!((report.deltas, again.image_epoch()), (max_deltas, chain.epoch + 1));
        assert_eq!(again.digest().unwrap(), store.digest().unwrap());
    }
}
