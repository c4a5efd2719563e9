//! One flipped bit, or a missing end, anywhere in an image, brought back by mapping and by loading: the data is what was
//! saved, or the damage is named. Data that was verified is never wrong, and no valid image ever replaces a damaged one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use quire_checkpoint::Image;
use quire_checkpoint::format::{DATA_OFFSET, ImageLayout};
use quire_device::DiskDirectory;
use quire_store::list::End;
use quire_store::{
    DbId, ExpiryChange, ImageLocation, RestoreMode, SaveError, Store, StoreConfig, StreamId, hash, list, set, stream,
    string, zset,
};

const DB: DbId = DbId(0);
const FILE: &str = "dump.quire";
const PAGE: u64 = 4096;
const REGION: u64 = 2 << 20;
const MODES: [RestoreMode; 2] = [RestoreMode::Map, RestoreMode::Load];

/// Hashes and draws go alike each time.
const SEED: u64 = 2026;

fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(SEED), ..StoreConfig::default() }
}

/// An image of some regions, with holes in them; returns its digest and layout.
fn make_image(place: &ImageLocation, dir: &Path) -> ([u8; 20], ImageLayout) {
    let mut store = Store::create(config()).unwrap();
    for number in 0..3000u32 {
        let value = vec![number as u8 | 1; (number * 37 % 1500) as usize];
        string::set(&mut store, DB, format!("key:{number}").as_bytes(), &value, ExpiryChange::Clear).unwrap();
        hash::set(&mut store, DB, b"hash", format!("field:{number}").as_bytes(), b"value").unwrap();
        for (key, most) in [(&b"ttl table"[..], 3000), (b"ttl packed", 60)] {
            if number < most {
                let (field, mut hash) = (format!("field:{number}"), hash::open_mut(&mut store, DB, key).unwrap());
                hash.load(field.as_bytes(), b"value", (number % 3 > 0).then_some(5000 + i64::from(number))).unwrap();
            }
        }
        set::open_mut(&mut store, DB, b"set").unwrap().add(format!("member:{number}").as_bytes()).unwrap();
        let mut list = list::open_mut(&mut store, DB, b"list").unwrap();
        list.make_room([value.as_slice()]).unwrap();
        list.push(End::Back, &value).unwrap();
        drop(list);
        for (key, most) in [(&b"tree"[..], 3000), (b"ranks", 100)] {
            if number < most {
                let member = format!("member:{number}");
                zset::open_mut(&mut store, DB, key).unwrap().set(member.as_bytes(), f64::from(number % 17)).unwrap();
            }
        }
        for (key, most) in [(&b"stream"[..], 3000), (b"short stream", 9)] {
            if number < most {
                let id = StreamId { ms: 7, seq: u64::from(number) + 1 };
                stream::open_mut(&mut store, DB, key).unwrap().add(id, &[b"field", value.as_slice()]).unwrap();
            }
        }
        for (key, most) in [(b"ints", 500), (b"ends", 5)] {
            if number < most {
                set::open_mut(&mut store, DB, key).unwrap().add(number.to_string().as_bytes()).unwrap();
            }
        }
        if number < 100 {
            set::open_mut(&mut store, DB, b"words").unwrap().add(format!("word:{number}").as_bytes()).unwrap();
            list::open_mut(&mut store, DB, b"row").unwrap().push(End::Front, format!("{number}").as_bytes()).unwrap();
        }
    }
    store.save_blocking(place).unwrap();
    let info = Image::open(&DiskDirectory::new(dir), FILE).unwrap().info();
    (store.digest().unwrap(), ImageLayout::new(info.page_count))
}

/// What came of starting on a damaged image.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// It was refused, at once or when the damage was found.
    Refused(String),
    /// The data is what was saved.
    Same,
}

/// Starts on the image, asks for saves before and after it was verified, and looks what became of data and image.
fn start_on(place: &ImageLocation, path: &Path, mode: RestoreMode, digest: [u8; 20]) -> Outcome {
    let before = fs::read(path).unwrap();
    let (mut store, _) = match Store::open(config(), place, mode, false) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(fs::read(path).unwrap() == before, "a refused image stays as it is");
            return Outcome::Refused(error.to_string());
        }
    };
    if store.restore_progress().is_some() {
        assert!(matches!(store.begin_save(place), Err(SaveError::Unverified)));
    }
    match store.finish_restore() {
        Ok(()) => {
            assert_eq!(store.digest().unwrap(), digest, "verified data is what was saved");
            Outcome::Same
        }
        Err(error) => {
            let refused = store.save_blocking(place).unwrap_err();
            assert!(matches!(refused, SaveError::NotVerifiable(_)), "{refused}");
            drop(store);
            assert!(fs::read(path).unwrap() == before, "nothing replaces a damaged image");
            Outcome::Refused(error.to_string())
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_named_or_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let (place, path) = (ImageLocation::new(dir.path(), FILE), dir.path().join(FILE));
    let (digest, layout) = make_image(&place, dir.path());
    let mut places: Vec<(u64, &str)> = Vec::new();
    for at in [0, 7, 8, 12, 16, 20, 24, 32, 40, 44, 48, 56, 64, 128, 2000, 4088, 4095] {
        places.push((at, "header"));
        places.push((layout.footer_offset() + at, "footer"));
    }
    for at in [0, 8, layout.present_words() as u64 * 8, layout.table_bytes() as u64 - 1] {
        places.push((layout.table_offset() + at, "table"));
    }
    for region in 0..u64::from(layout.region_count()) {
        let start = DATA_OFFSET + region * REGION;
        let end = (start + REGION).min(layout.table_offset());
        // The first page, some that have content or have not, and the last one.
        for page in [start, start + 100 * PAGE + 1000, start + 255 * PAGE, end - 1] {
            places.push((page.min(end - 1), "region"));
        }
    }
    places.push((100_000, "gap"));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut refused_regions = 0;
    for (at, part) in places {
        let (mut byte, mut page) = ([0], [0; PAGE as usize]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.read_exact_at(&mut page, at / PAGE * PAGE).unwrap();
        let empty = page == [0; PAGE as usize];
        refused_regions += usize::from(part == "region" && !empty);
        file.write_all_at(&[byte[0] ^ 0x04], at).unwrap();
        for mode in MODES {
            match start_on(&place, &path, mode, digest) {
                // What lies in the place of a page that isn't present is read by no program.
                Outcome::Same => {
                    assert!(part == "gap" || part == "region" && empty, "byte {at} of the {part}, {mode:?}")
                }
                Outcome::Refused(reason) => {
                    // A mapped superblock and root are looked at before they are verified.
                    let named = reason.contains(part) || part == "region" && reason.contains("the data is damaged");
                    assert!(named && reason.contains(FILE), "byte {at} of the {part}, {mode:?}: {reason}");
                }
            }
        }
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(refused_regions > 5, "{refused_regions} of the places had data");
    for mode in MODES {
        assert_eq!(start_on(&place, &path, mode, digest), Outcome::Same);
    }
}

#[test]
fn an_image_that_ends_at_any_boundary_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (place, path) = (ImageLocation::new(dir.path(), FILE), dir.path().join(FILE));
    let (digest, layout) = make_image(&place, dir.path());
    let whole = fs::read(&path).unwrap();
    let regions = (0..=u64::from(layout.region_count())).map(|region| DATA_OFFSET + region * REGION);
    let parts = [0, PAGE, DATA_OFFSET, layout.table_offset(), layout.footer_offset(), layout.file_bytes()];
    for boundary in regions.chain(parts) {
        for end in [boundary.saturating_sub(1), boundary, boundary + 1] {
            let mut bytes = whole.clone();
            bytes.resize(end as usize, 0);
            fs::write(&path, &bytes).unwrap();
            for mode in MODES {
                match start_on(&place, &path, mode, digest) {
                    Outcome::Same => assert!(bytes == whole, "{end} bytes, {mode:?}"),
                    Outcome::Refused(reason) => assert!(bytes != whole && reason.contains(FILE), "{end}: {reason}"),
                }
            }
        }
    }
}
