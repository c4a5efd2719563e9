//! Whatever is wrong with an image is found and told with its place, before anything of it is used.

use quire_checkpoint::format::{DATA_OFFSET, ImageFooter, ImageHeader, ImageLayout, MAX_PAGES, checksum};
use quire_checkpoint::{Image, ImageError, ImagePart, RestoreOptions, load};
use quire_device::{Directory, DiskDirectory, MemoryDirectory};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::*;

const PAGES: u32 = 3 * PAGES_PER_REGION as u32 + 20;
const SMALL: u32 = 40;

fn opened(bytes: &[u8]) -> Result<Image, ImageError> {
    Image::open(&MemoryDirectory::with_file(NAME, bytes), NAME)
}

fn refused(bytes: &[u8]) -> ImageError {
    let error = opened(bytes).expect_err("the image was accepted");
    assert!(error.to_string().contains(&MemoryDirectory::new().path_of(NAME)), "{error}");
    let is_other = matches!(error, ImageError::Foreign { .. } | ImageError::Version { .. });
    assert!(error.is_damage() != is_other, "{error}");
    error
}

/// Part and byte that a refusal names.
fn place(bytes: &[u8]) -> (ImagePart, u64) {
    match refused(bytes) {
        ImageError::Damaged { part, offset, .. } => (part, offset),
        ImageError::Foreign { .. } => (ImagePart::Header, 0),
        ImageError::Version { .. } => (ImagePart::Header, 8),
        other => panic!("{other}"),
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

/// Every byte of the fields, and some of the unused ones.
fn chosen(len: usize) -> impl Iterator<Item = usize> {
    (0..len).filter(move |&at| at < 136 || at % 97 == 0 || at + 24 > len)
}

#[test]
fn a_flipped_bit_anywhere_in_header_table_or_footer_is_noticed() {
    let (_, bytes, _) = saved(SMALL);
    let layout = ImageLayout::new(SMALL);
    let (table, footer) = (layout.table_offset() as usize, layout.footer_offset() as usize);
    for at in chosen(PAGE_SIZE) {
        assert_eq!(place(&flipped(&bytes, at)).0, ImagePart::Header, "byte {at}");
        assert_eq!(place(&flipped(&bytes, footer + at)).0, ImagePart::Footer, "byte {at} of the footer");
        assert_eq!(place(&flipped(&bytes, table + at)), (ImagePart::Table, table as u64), "byte {at} of the table");
    }
}

#[test]
fn a_flipped_bit_in_a_page_is_told_with_region_and_byte() {
    let (memory, bytes, model) = saved(PAGES);
    for page in [0, 1, 2, 511, 512, 1024, 1540, 1555] {
        assert!(model.contains_key(&page), "{page}");
        for at in [0, 1000, PAGE_SIZE - 1] {
            let damaged = flipped(&bytes, DATA_OFFSET as usize + page as usize * PAGE_SIZE + at);
            let image = opened(&damaged).unwrap();
            let damage = image.verify(|_, _| {}).unwrap().damage;
            let [error] = damage.as_slice() else { panic!("{damage:?}") };
            let region = page / PAGES_PER_REGION as u32;
            let offset = DATA_OFFSET + u64::from(region) * REGION_SIZE as u64;
            let text = error.to_string();
            assert!(text.starts_with(&memory.path_of(NAME)), "{text}");
            assert!(text.contains(&format!("in its region {region}, at byte {offset}:")), "{text}");
            let Err(from_load) = load(&image, &options(), |_, _| {}) else { panic!("it was loaded") };
            assert_eq!(&from_load, error);
        }
    }
}

#[test]
fn every_damaged_region_is_told_and_used_only_if_that_is_accepted() {
    let (_, mut bytes, mut model) = saved(PAGES);
    for page in [1, 513] {
        bytes[DATA_OFFSET as usize + page * PAGE_SIZE + 9] ^= 1;
        model.get_mut(&(page as u32)).unwrap()[9] ^= 1;
    }
    let image = opened(&bytes).unwrap();
    let mut damage = image.verify(|_, _| {}).unwrap().damage;
    assert_eq!(damage.len(), 2);
    let mut loaded = load(&image, &RestoreOptions { accept_damaged: true, ..options() }, |_, _| {}).unwrap();
    let by_text = |error: &ImageError| error.to_string();
    damage.sort_by_key(by_text);
    loaded.summary.damage.sort_by_key(by_text);
    assert_eq!(loaded.summary.damage, damage);
    assert_same(&held(&mut loaded.barrier, PAGES), &model);
}

#[test]
fn pages_that_changed_places_are_noticed() {
    let (_, mut bytes, _) = saved(PAGES);
    let start = DATA_OFFSET as usize;
    let (first, second) = bytes[start..start + 2 * PAGE_SIZE].split_at_mut(PAGE_SIZE);
    first.swap_with_slice(second);
    assert_eq!(opened(&bytes).unwrap().verify(|_, _| {}).unwrap().damage.len(), 1);
}

#[test]
fn the_gap_must_be_zero() {
    let (_, bytes, _) = saved(SMALL);
    for at in [PAGE_SIZE, 100_000, DATA_OFFSET as usize - 1] {
        let image = opened(&flipped(&bytes, at)).unwrap();
        let damage = image.verify(|_, _| {}).unwrap().damage;
        assert!(
            matches!(damage.as_slice(), [ImageError::Damaged { part: ImagePart::Gap, offset, .. }] if *offset == at as u64),
            "{damage:?}"
        );
    }
}

#[test]
fn bytes_of_absent_pages_belong_to_no_page() {
    let (_, bytes, model) = saved(SMALL);
    let absent = (0..SMALL).find(|page| !model.contains_key(page)).unwrap();
    let image = opened(&flipped(&bytes, DATA_OFFSET as usize + absent as usize * PAGE_SIZE)).unwrap();
    assert!(image.verify(|_, _| {}).unwrap().damage.is_empty());
    let mut loaded = load(&image, &options(), |_, _| {}).unwrap();
    assert_same(&held(&mut loaded.barrier, SMALL), &model);
}

#[test]
fn a_file_cut_short_anywhere_is_told_with_the_byte_where_it_ends() {
    let (_, bytes, _) = saved(PAGES);
    let layout = ImageLayout::new(PAGES);
    let ends = [
        (PAGE_SIZE, ImagePart::Gap),
        (DATA_OFFSET as usize - 1, ImagePart::Gap),
        (DATA_OFFSET as usize, ImagePart::Region(0)),
        (DATA_OFFSET as usize + REGION_SIZE + 5, ImagePart::Region(1)),
        (layout.table_offset() as usize, ImagePart::Table),
        (layout.footer_offset() as usize, ImagePart::Footer),
        (bytes.len() - 1, ImagePart::Footer),
    ];
    for (end, part) in ends {
        assert_eq!(place(&bytes[..end]), (part, end as u64));
        assert!(refused(&bytes[..end]).to_string().contains(&format!("the file has {end} bytes")));
    }
    for end in [8, 100, PAGE_SIZE - 1] {
        assert_eq!(place(&bytes[..end]), (ImagePart::Header, end as u64));
    }
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(place(&longer), (ImagePart::Footer, bytes.len() as u64));
}

#[test]
fn what_is_no_image_is_called_foreign() {
    for bytes in [&b"QUIRE"[..], b"REDIS0010 and more", b"*2\r\n$6\r\nSELECT\r\n"] {
        let error = refused(bytes);
        assert!(matches!(error, ImageError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("is not a Quire image"), "{error}");
    }
}

/// Changes the header of a small image and seals it again, in the footer too.
fn resealed(change: impl FnOnce(&mut ImageHeader)) -> Vec<u8> {
    let (_, mut bytes, _) = saved(SMALL);
    let mut header = ImageHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
    change(&mut header);
    header.checksum = header.own_checksum().into();
    bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
    sealed_footer(bytes, |footer| footer.header_checksum = header.checksum)
}

fn sealed_footer(mut bytes: Vec<u8>, change: impl FnOnce(&mut ImageFooter)) -> Vec<u8> {
    let start = bytes.len() - PAGE_SIZE;
    let mut footer = ImageFooter::read_from_bytes(&bytes[start..]).unwrap();
    change(&mut footer);
    footer.checksum = footer.own_checksum().into();
    bytes[start..].copy_from_slice(footer.as_bytes());
    bytes
}

#[test]
fn another_version_is_told_whatever_else_is_in_the_file() {
    let (_, bytes, _) = saved(SMALL);
    // Its checksum may be anything.
    for checksum in [0, 1] {
        let mut future = resealed(|header| header.version = 9.into());
        future[4090] ^= checksum;
        let error = refused(&future);
        assert!(matches!(error, ImageError::Version { found: 9, known: 3, .. }), "{error}");
        assert!(error.to_string().contains("format version 9"), "{error}");
    }
    let mut bytes = bytes;
    bytes[8] = 9;
    assert_eq!(place(&bytes), (ImagePart::Header, 4088), "only this field is wrong, so it is damage");
}

#[test]
fn an_image_whose_first_bytes_are_lost_is_a_damaged_one() {
    let (_, bytes, _) = saved(SMALL);
    for at in 0..8 {
        let error = refused(&flipped(&bytes, at));
        assert!(matches!(error, ImageError::Damaged { part: ImagePart::Header, offset: 0, .. }), "{error}");
    }
    let mut zeroed = bytes;
    zeroed[..PAGE_SIZE].fill(0);
    for bytes in [&b""[..], &[0; 10_000], &zeroed] {
        assert!(refused(bytes).is_damage());
    }
}

/// What is left of an image, and whether anything is wrong with it.
fn salvaged(bytes: &[u8]) -> Option<(Image, bool)> {
    let (image, damage) = Image::open_damaged(&MemoryDirectory::with_file(NAME, bytes), NAME).ok()?;
    Some((image, damage.is_some()))
}

fn held_by(image: &Image) -> Pages {
    let accepting = RestoreOptions { accept_damaged: true, ..options() };
    held(&mut load(image, &accepting, |_, _| {}).unwrap().barrier, PAGES)
}

#[test]
fn all_pages_are_there_whatever_single_part_beside_them_is_damaged() {
    let (_, bytes, model) = saved(PAGES);
    let layout = ImageLayout::new(PAGES);
    let (image, is_damaged) = salvaged(&bytes).unwrap();
    assert!(!is_damaged);
    assert_same(&held_by(&image), &model);
    for start in [0, layout.table_offset() as usize, layout.footer_offset() as usize] {
        for at in chosen(PAGE_SIZE).step_by(5) {
            let (image, is_damaged) = salvaged(&flipped(&bytes, start + at)).unwrap();
            assert!(is_damaged);
            assert_same(&held_by(&image), &model);
            assert_eq!(
                image.info().epoch,
                Image::open(&MemoryDirectory::with_file(NAME, &bytes), NAME).unwrap().info().epoch
            );
        }
    }
}

#[test]
fn a_truncated_image_gives_the_pages_that_it_has() {
    let (_, bytes, model) = saved(PAGES);
    for pages in [0, 1, 511, 512, 700, PAGES as usize] {
        for more in [0, 1, PAGE_SIZE - 1] {
            let end = DATA_OFFSET as usize + pages * PAGE_SIZE + more;
            let (image, _) = salvaged(&bytes[..end.min(bytes.len() - 1)]).unwrap();
            let left = model.iter().filter(|(page, _)| (**page as usize) < pages);
            assert_same(&held_by(&image), &left.map(|(page, bytes)| (*page, bytes.clone())).collect());
        }
    }
    for end in [0, 100, PAGE_SIZE - 1] {
        assert!(salvaged(&bytes[..end]).is_none(), "nothing tells how many pages there were");
    }
}

#[test]
fn hostile_headers_with_right_checksums_are_refused() {
    type Change = fn(&mut ImageHeader);
    let changes: [(Change, u64, &str); 12] = [
        (|header| header.page_bytes = 16384.into(), 12, "pages of 16384 bytes"),
        (|header| header.page_bytes = 0.into(), 12, "pages of 0 bytes"),
        (|header| header.region_bytes = 4096.into(), 16, "regions of 4096 bytes"),
        (|header| header.flags = 1.into(), 20, "unknown flags 0x1"),
        (|header| header.page_count = (MAX_PAGES + 1).into(), 44, "268435457 pages"),
        (|header| header.page_count = u32::MAX.into(), 44, "4294967295 pages"),
        (|header| header.data_offset = 0.into(), 48, "data at 0"),
        (|header| header.data_offset = u64::MAX.into(), 48, "data at 18446744073709551615"),
        (|header| header.unused[0] = 1, 1152, "an unused byte isn't zero"),
        (|header| header.unused[2935] = 0x80, 4087, "an unused byte isn't zero"),
        // Sound in themselves, but the file has another length.
        (|header| header.page_count = 0.into(), 2_101_248, "2269184 bytes instead of 2101248"),
        (|header| header.page_count = MAX_PAGES.into(), 2_269_184, "2269184 bytes instead of 1099"),
    ];
    for (change, offset, text) in changes {
        let bytes = resealed(change);
        let error = refused(&bytes);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(place(&bytes).1, offset, "{error}");
    }
}

#[test]
fn hostile_footers_with_right_checksums_are_refused() {
    type Change = fn(&mut ImageFooter);
    let changes: [(Change, u64); 12] = [
        (|footer| footer.table_offset = 0.into(), 0),
        (|footer| footer.table_offset = u64::MAX.into(), 0),
        (|footer| footer.table_bytes = u64::MAX.into(), 8),
        (|footer| footer.table_bytes = 0.into(), 8),
        (|footer| footer.epoch = 2.into(), 24),
        (|footer| footer.header_checksum = 0.into(), 24),
        (|footer| footer.present_pages = u64::MAX.into(), 40),
        (|footer| footer.page_count = 1.into(), 48),
        (|footer| footer.region_count = u32::MAX.into(), 48),
        (|footer| footer.version = 2.into(), 56),
        (|footer| footer.unused[0] = 1, 60),
        (|footer| footer.unused[4019] = 1, 4079),
    ];
    let (_, bytes, _) = saved(SMALL);
    let footer = ImageLayout::new(SMALL).footer_offset();
    for (change, offset) in changes {
        assert_eq!(place(&sealed_footer(bytes.clone(), change)), (ImagePart::Footer, footer + offset));
    }
}

#[test]
fn hostile_tables_with_right_checksums_are_refused_or_prove_wrong() {
    let (_, bytes, _) = saved(SMALL);
    let start = ImageLayout::new(SMALL).table_offset() as usize;
    let sealed = |at: usize, bits: u8, pages: i64| {
        let mut bytes = bytes.clone();
        bytes[start + at] ^= bits;
        let sum = checksum(&bytes[start..start + ImageLayout::new(SMALL).table_bytes()]);
        sealed_footer(bytes, |footer| {
            footer.table_checksum = sum.into();
            footer.present_pages = footer.present_pages.get().wrapping_add_signed(pages).into();
        })
    };
    assert_eq!(place(&sealed(7, 0x80, 1)), (ImagePart::Table, start as u64), "a page beyond the last");
    assert_eq!(place(&sealed(16, 1, 0)), (ImagePart::Table, start as u64 + 16), "bytes behind the checksums");
    // Page 3 isn't there, the table says that it is: its zeros have a checksum of their own.
    let image = opened(&sealed(0, 0x08, 1)).unwrap();
    assert_eq!(image.verify(|_, _| {}).unwrap().damage.len(), 1);
    let image = opened(&sealed(8, 1, 0)).unwrap();
    assert_eq!(image.verify(|_, _| {}).unwrap().damage.len(), 1);
}

#[test]
fn halves_of_two_images_make_none() {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(SMALL);
    world.save(&memory, 1).unwrap();
    let first = memory.bytes(NAME).unwrap();
    world.save(&memory, 2).unwrap();
    let second = memory.bytes(NAME).unwrap();
    let footer = ImageLayout::new(SMALL).footer_offset() as usize;
    let mixed = [&first[..footer], &second[footer..]].concat();
    assert!(refused(&mixed).to_string().contains("different images"));
}

#[test]
fn an_image_larger_than_allowed_is_refused_before_anything_is_read() {
    let (memory, ..) = saved(PAGES);
    let image = Image::open(&memory, NAME).unwrap();
    let needed = u64::from(PAGES) * PAGE_SIZE as u64;
    let too_little = RestoreOptions { max_bytes: needed - 1, ..options() };
    let Err(error) = load(&image, &too_little, |_, _| {}) else { panic!("it was loaded") };
    assert!(matches!(error, ImageError::TooLarge { needed_bytes, .. } if needed_bytes == needed), "{error}");
    for max_bytes in [needed, u64::MAX] {
        load(&image, &RestoreOptions { max_bytes, ..options() }, |_, _| {}).unwrap();
    }
}

#[test]
fn what_is_no_file_is_no_image() {
    assert!(matches!(Image::open(&MemoryDirectory::new(), NAME), Err(ImageError::Missing { .. })));
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskDirectory::new(folder.path());
    assert!(matches!(Image::open(&disk, NAME), Err(ImageError::Missing { .. })));
    std::fs::create_dir(folder.path().join(NAME)).unwrap();
    assert!(matches!(Image::open(&disk, NAME), Err(ImageError::Device(_))));
    assert!(matches!(Image::open(&disk, "../escape"), Err(ImageError::Device(_))));
}

#[test]
fn a_sparse_image_of_the_largest_size_is_opened_at_no_cost() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join(NAME)).unwrap();
    let layout = ImageLayout::new(MAX_PAGES);
    let header = ImageHeader::new(&meta(1), MAX_PAGES);
    let table = vec![0; layout.table_bytes()];
    let footer = ImageFooter::new(&header, &table, 0);
    use std::os::unix::fs::FileExt;
    file.write_all_at(header.as_bytes(), 0).unwrap();
    if let Err(error) = file.write_all_at(footer.as_bytes(), layout.footer_offset()) {
        return quire_sys::testing::skipped(format!("a file of 1 TiB cannot be had here: {error}"));
    }
    let disk = DiskDirectory::new(folder.path());
    let image = Image::open(&disk, NAME).unwrap();
    assert_eq!(image.info().file_bytes, file.metadata().unwrap().len());
    assert!(image.verify(|_, _| {}).unwrap().damage.is_empty());
    let Err(error) = load(&image, &options(), |_, _| {}) else { panic!("1 TiB was loaded") };
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}
