//! Images that released versions have written can be read for ever. The fixtures hold the parts of an image that are not
//! zero: its length, then place, length and bytes of each part, numbers in 8, 8 and 4 bytes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quire_checkpoint::ImageChain;
use quire_device::DiskDirectory;
use quire_store::numbers::hex;
use quire_store::{
    Codec, DbId, ExpiryChange, ImageLocation, RestoreMode, SetMember, Store, StoreConfig, hash, set, string,
};

/// Writes the image that a fixture stands for.
fn unfold(fixture: &[u8], path: &Path) {
    let (len, mut rest) = fixture.split_first_chunk::<8>().unwrap();
    let file = fs::File::create(path).unwrap();
    file.set_len(u64::from_le_bytes(*len)).unwrap();
    while let Some((place, tail)) = rest.split_first_chunk::<8>() {
        let (count, tail) = tail.split_first_chunk::<4>().unwrap();
        let (bytes, tail) = tail.split_at(u32::from_le_bytes(*count) as usize);
        file.write_all_at(bytes, u64::from_le_bytes(*place)).unwrap();
        rest = tail;
    }
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
