//! Whatever is wrong with a compressed image or delta is found and told with its place, and no length or codec in it is believed.

use quire_checkpoint::delta_format::{DeltaEntry, DeltaFooter, DeltaHeader};
use quire_checkpoint::format::{
    DATA_OFFSET, ImageFooter, ImageHeader, ImageLayout, StoredRegion, VERSION_COMPRESSED, checksum,
};
use quire_checkpoint::{Codec, Image, ImageChain, ImageError, ImagePart, RestoreOptions, load};
use quire_device::MemoryDirectory;
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;
const PAGES: u32 = 2 * REGION + 20;
const DELTA: &str = "a.qimg.delta-1";
/// Where the first compressed region of the delta begins: behind the header.
const DELTA_DATA: usize = PAGE_SIZE;

struct Saved {
    memory: MemoryDirectory,
    /// What the image holds, and what the delta makes of it.
    models: [Pages; 2],
}

/// An image whose regions are all compressed, and a delta of two regions of which the first one is.
fn saved(codec: Codec) -> Saved {
    let memory = MemoryDirectory::new();
    let mut world = World::new(PAGES, 4096);
    world.compression = Some(codec);
    (3..PAGES - 2).for_each(|page| world.write(page, 5));
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    let image = world.model.clone();
    (10..90).chain([REGION + 4]).for_each(|page| world.write(page, 77));
    world.save_delta(&memory, &mut links, 2).unwrap();
    let info = ImageChain::open(&memory, NAME).unwrap();
    assert_eq!((info.info().compression.regions, info.deltas()[0].compression.regions), (3, 1));
    Saved { memory, models: [image, world.model] }
}

fn header_of(bytes: &[u8]) -> ImageHeader {
    ImageHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap()
}

fn opened(bytes: &[u8]) -> Result<Image, ImageError> {
    Image::open(&MemoryDirectory::with_file(NAME, bytes), NAME)
}

/// Where the image's table says how regions are stored, and what it says.
fn stored_of(bytes: &[u8]) -> (usize, Vec<StoredRegion>) {
    let layout = header_of(bytes).layout();
    let start = layout.table_offset() as usize + 8 * (layout.present_words() + layout.region_count() as usize);
    let len = layout.region_count() as usize * size_of::<StoredRegion>();
    (start, <[StoredRegion]>::ref_from_bytes(&bytes[start..start + len]).unwrap().to_vec())
}

/// The image with what its table says of `region` changed, under right checksums.
fn with_stored(bytes: &[u8], region: usize, change: impl FnOnce(&mut StoredRegion)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (start, mut stored) = stored_of(&bytes);
    change(&mut stored[region]);
    bytes[start..start + size_of_val(stored.as_slice())].copy_from_slice(stored.as_bytes());
    let header = header_of(&bytes);
    let (table, footer) = (header.layout().table_offset() as usize, header.layout().footer_offset() as usize);
    let present = ImageFooter::read_from_bytes(&bytes[footer..]).unwrap().present_pages.get();
    let sealed = ImageFooter::new(&header, &bytes[table..footer], present);
    bytes[footer..].copy_from_slice(sealed.as_bytes());
    bytes
}

#[test]
fn a_flipped_bit_anywhere_in_the_structures_of_a_compressed_image_is_noticed() {
    let bytes = saved(Codec::Lz4).memory.bytes(NAME).unwrap();
    let layout = header_of(&bytes).layout();
    assert_eq!(header_of(&bytes).version.get(), VERSION_COMPRESSED);
    let parts = [
        (0, ImagePart::Header),
        (layout.table_offset() as usize, ImagePart::Table),
        (layout.footer_offset() as usize, ImagePart::Footer),
    ];
    for (start, part) in parts {
        for at in (0..PAGE_SIZE).filter(|&at| at < 300 || at % 97 == 0 || at + 24 > PAGE_SIZE) {
            let mut bytes = bytes.clone();
            bytes[start + at] ^= 1 << (at % 8);
            match opened(&bytes).expect_err("the image was accepted") {
                ImageError::Damaged { part: found, .. } => assert_eq!(found, part, "byte {at}"),
                ImageError::Foreign { .. } => assert!(part == ImagePart::Header && at < 8),
                other => panic!("byte {at} of {part}: {other}"),
            }
            // Only the header can be done without: footer and table tell how regions are stored.
            let left = Image::open_damaged(&MemoryDirectory::with_file(NAME, &bytes), NAME);
            assert_eq!(left.is_ok(), part == ImagePart::Header, "byte {at} of {part}");
            if let Ok((left, damage)) = left {
                assert!(damage.is_some());
                assert_eq!(left.info().compression.regions, 3, "byte {at}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_what_is_stored_is_told_with_region_and_byte_and_used_only_if_that_is_accepted() {
    for codec in Codec::ALL {
        let Saved { memory, models } = saved(codec);
        let bytes = memory.bytes(NAME).unwrap();
        for (region, stored) in stored_of(&bytes).1.iter().enumerate() {
            let first = if region == 0 { 3 } else { region * REGION as usize };
            let start = DATA_OFFSET as usize + first * PAGE_SIZE;
            let used = stored.stored_bytes.get() as usize;
            // The zeros behind it count, too.
            for at in [0, 1, used / 2, used - 1, stored.padded_bytes() - 1] {
                let mut damaged = bytes.clone();
                damaged[start + at] ^= 0x20;
                let image = opened(&damaged).unwrap();
                let damage = image.verify(|_, _| {}).unwrap().damage;
                let [ImageError::Damaged { part, offset, .. }] = damage.as_slice() else { panic!("{damage:?}") };
                assert_eq!((*part, *offset as usize), (ImagePart::Region(region as u32), start));
                let refused = load(&image, &options(), |_, _| {}).err();
                assert_eq!(refused.as_ref(), damage.first());
                let accepting = RestoreOptions { accept_damaged: true, ..options() };
                let mut loaded = load(&image, &accepting, |_, _| {}).unwrap();
                assert_eq!(loaded.summary.damage, damage);
                let others = |pages: &Pages| -> Pages {
                    let is_other = |page: &u32| (*page / REGION) as usize != region;
                    pages
                        .iter()
                        .filter(|(page, _)| is_other(page))
                        .map(|(page, bytes)| (*page, bytes.clone()))
                        .collect()
                };
                assert_same(&others(&held(&mut loaded.barrier, PAGES)), &others(&models[0]));
            }
            // Nothing lies there that counts.
            let mut behind = bytes.clone();
            behind[start + stored.padded_bytes()] ^= 1;
            assert!(opened(&behind).unwrap().verify(|_, _| {}).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn a_compressed_region_with_another_checksum_of_its_pages_is_told_with_the_first_byte_stored_of_it() {
    let bytes = saved(Codec::Lz4).memory.bytes(NAME).unwrap();
    let layout = header_of(&bytes).layout();
    let mut changed = bytes.clone();
    changed[layout.table_offset() as usize + 8 * layout.present_words()] ^= 1;
    let damage = opened(&with_stored(&changed, 0, |_| {})).unwrap().verify(|_, _| {}).unwrap().damage;
    let [ImageError::Damaged { part: ImagePart::Region(0), offset, what, .. }] = damage.as_slice() else {
        panic!("{damage:?}")
    };
    assert!(*offset == DATA_OFFSET + 3 * PAGE_SIZE as u64 && what.contains("of its pages"), "{offset} {what}");
}

#[test]
fn lengths_that_can_not_be_are_refused_under_right_checksums() {
    let bytes = saved(Codec::Zstd).memory.bytes(NAME).unwrap();
    let (place, stored) = stored_of(&bytes);
    let span = (REGION - 3) * PAGE_SIZE as u32;
    let lens = [0, span - PAGE_SIZE as u32 + 1, span, u32::MAX];
    for len in lens {
        let error = opened(&with_stored(&bytes, 0, |stored| stored.stored_bytes = len.into())).unwrap_err();
        let ImageError::Damaged { part: ImagePart::Table, offset, .. } = &error else { panic!("{error}") };
        assert_eq!(*offset as usize, place, "{error}");
    }
    let plain_with_rest = opened(&with_stored(&bytes, 1, |stored| stored.codec = 0.into())).unwrap_err();
    assert!(matches!(plain_with_rest, ImageError::Damaged { part: ImagePart::Table, .. }), "{plain_with_rest}");
    // A length that could be, a checksum that fits it, and another codec than that of the bytes.
    for (len, codec) in
        [(stored[0].stored_bytes.get() / 2, 2), (REGION_SIZE as u32 / 2, 2), (stored[0].stored_bytes.get(), 1)]
    {
        let start = DATA_OFFSET as usize + 3 * PAGE_SIZE;
        let changed = with_stored(&bytes, 0, |stored| {
            stored.stored_bytes = len.into();
            stored.codec = codec.into();
            stored.checksum = checksum(&bytes[start..start + stored.padded_bytes()]).into();
        });
        let damage = opened(&changed).unwrap().verify(|_, _| {}).unwrap().damage;
        assert!(
            matches!(damage.as_slice(), [ImageError::Damaged { part: ImagePart::Region(0), .. }]),
            "{len} {damage:?}"
        );
    }
}

#[test]
fn an_unknown_codec_is_refused_by_its_number_and_is_no_damage() {
    let Saved { memory, .. } = saved(Codec::Lz4);
    let bytes = memory.bytes(NAME).unwrap();
    let (start, _) = stored_of(&bytes);
    let changed = with_stored(&bytes, 1, |stored| stored.codec = 77.into());
    let error = opened(&changed).unwrap_err();
    let wanted = (start + size_of::<StoredRegion>()) as u64;
    assert!(
        matches!(error, ImageError::UnknownCodec { region: 1, codec: 77, offset, .. } if offset == wanted),
        "{error}"
    );
    assert!(!error.is_damage() && error.to_string().contains("codec 77"));
    // Another codec may need lengths that make no sense with this program's: it is told first, whatever the table says else.
    let newer = with_stored(&with_stored(&bytes, 0, |stored| stored.stored_bytes = 0.into()), 1, |stored| {
        (stored.codec, stored.stored_bytes) = (77.into(), u32::MAX.into());
    });
    let error_of_newer = opened(&newer).unwrap_err();
    assert!(matches!(error_of_newer, ImageError::UnknownCodec { region: 1, codec: 77, .. }), "{error_of_newer}");
    let found = Image::open_damaged(&MemoryDirectory::with_file(NAME, &changed), NAME).unwrap_err();
    assert_eq!(found.to_string(), error.to_string());
    with_delta(&memory, |_, _, stored| stored[0].codec = 77.into());
    let error = ImageChain::open(&memory, NAME).unwrap_err();
    assert!(matches!(error, ImageError::UnknownCodec { region: 0, codec: 77, .. }), "{error}");
    assert!(error.to_string().contains(DELTA), "{error}");
    with_delta(&memory, |_, _, stored| {
        (stored[0].codec, stored[0].stored_bytes) = (1.into(), 0.into());
        stored[1] = StoredRegion { codec: 77.into(), stored_bytes: u32::MAX.into(), checksum: 0.into() };
    });
    let error = ImageChain::open(&memory, NAME).unwrap_err();
    assert!(matches!(error, ImageError::UnknownCodec { region: 1, codec: 77, .. }), "{error}");
}

/// Changes header and table of the delta, and gives it right checksums.
fn with_delta(memory: &MemoryDirectory, change: impl FnOnce(&mut DeltaHeader, &mut [DeltaEntry], &mut [StoredRegion])) {
    let mut bytes = memory.bytes(DELTA).unwrap();
    let mut header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
    let layout = header.layout();
    let (start, used) = (layout.table_offset() as usize, layout.table_used_bytes());
    let split = header.changed_pages.get() as usize * size_of::<DeltaEntry>();
    let mut entries = <[DeltaEntry]>::ref_from_bytes(&bytes[start..start + split]).unwrap().to_vec();
    let mut stored = <[StoredRegion]>::ref_from_bytes(&bytes[start + split..start + used]).unwrap().to_vec();
    change(&mut header, &mut entries, &mut stored);
    header.checksum = header.own_checksum().into();
    bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
    bytes[start..start + split].copy_from_slice(entries.as_bytes());
    bytes[start + split..start + used].copy_from_slice(stored.as_bytes());
    // As many regions as the header says, if that can be.
    stored.resize(header.changed_regions.get().min(3) as usize, StoredRegion::default());
    let footer = DeltaFooter::new(&header, &entries, &stored);
    let end = bytes.len() - PAGE_SIZE;
    bytes[end..].copy_from_slice(footer.as_bytes());
    memory.put(DELTA, &bytes);
}

#[test]
fn a_table_of_a_compressed_delta_that_makes_no_sense_is_refused_under_right_checksums() {
    type Change = fn(&mut DeltaHeader, &mut [DeltaEntry], &mut [StoredRegion]);
    let changes: [(Change, ImagePart); 7] = [
        (|header, _, _| header.changed_regions = 1.into(), ImagePart::Header),
        (|header, _, _| header.changed_regions = 3.into(), ImagePart::Header),
        (|header, _, _| header.changed_regions = u32::MAX.into(), ImagePart::Header),
        (|_, _, stored| stored[0].stored_bytes = 0.into(), ImagePart::Table),
        (|_, _, stored| stored[0].stored_bytes = (80 * 4096).into(), ImagePart::Table),
        (|_, _, stored| stored[0].codec = 0.into(), ImagePart::Table),
        (
            |_, _, stored| stored[1] = StoredRegion { codec: 1.into(), stored_bytes: 5.into(), checksum: 0.into() },
            ImagePart::Table,
        ),
    ];
    for (number, (change, part)) in changes.into_iter().enumerate() {
        let Saved { memory, .. } = saved(Codec::Lz4);
        with_delta(&memory, change);
        let error = ImageChain::open(&memory, NAME).unwrap_err();
        assert!(matches!(&error, ImageError::Damaged { part: found, .. } if *found == part), "{number}: {error}");
        assert!(error.to_string().contains(DELTA), "{error}");
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_compressed_delta_is_noticed_and_told_with_its_part() {
    for codec in Codec::ALL {
        let Saved { memory, models } = saved(codec);
        let bytes = memory.bytes(DELTA).unwrap();
        let header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
        let layout = header.layout();
        let parts = [
            (0, ImagePart::Header),
            (layout.table_offset() as usize, ImagePart::Table),
            (layout.footer_offset() as usize, ImagePart::Footer),
        ];
        for (start, part) in parts {
            for at in (0..PAGE_SIZE).filter(|at| *at < 160 || at % 97 == 0 || at + 24 > PAGE_SIZE) {
                let mut bytes = bytes.clone();
                bytes[start + at] ^= 3;
                memory.put(DELTA, &bytes);
                let error = ImageChain::open(&memory, NAME).expect_err("the delta was accepted");
                assert!(
                    matches!(error, ImageError::Damaged { part: found, .. } if found == part),
                    "{part} {at}: {error}"
                );
            }
            // What came before it is used if that is accepted.
            let (left, damage) = ImageChain::open_damaged(&memory, NAME).unwrap();
            assert_eq!(damage.len(), 1);
            assert_same(&held(&mut left.load(&options(), |_, _| {}).unwrap().barrier, PAGES), &models[0]);
        }
        for at in [0, 9, PAGE_SIZE - 1] {
            let mut bytes = bytes.clone();
            bytes[DELTA_DATA + at] ^= 1;
            memory.put(DELTA, &bytes);
            let opened = || ImageChain::open(&memory, NAME).unwrap();
            let damage = opened().verify(|_, _| {}).unwrap().damage;
            let [ImageError::Damaged { part: ImagePart::Data, offset, what, .. }] = damage.as_slice() else {
                panic!("{damage:?}")
            };
            assert!(*offset as usize == DELTA_DATA && what.contains("region 0"), "{what}");
            assert_eq!(opened().load(&options(), |_, _| {}).err().as_ref(), damage.first());
            let accepting = RestoreOptions { accept_damaged: true, ..options() };
            let mut loaded = opened().load(&accepting, |_, _| {}).unwrap();
            assert_eq!(loaded.summary.damage, damage);
            let found = held(&mut loaded.barrier, PAGES);
            assert_eq!(found.get(&(REGION + 4)), models[1].get(&(REGION + 4)));
            assert_eq!(found.get(&5), models[1].get(&5));
        }
        memory.put(DELTA, &bytes);
        assert_same(&chain(&memory).1, &models[1]);
    }
}

/// Makes what lies at the place of the page of this rank something that no codec unpacks.
fn spoil(memory: &MemoryDirectory, delta: &str, rank: usize) {
    let mut bytes = memory.bytes(delta).unwrap();
    bytes[PAGE_SIZE * (1 + rank)..][..64].fill(0xff);
    memory.put(delta, &bytes);
}

#[test]
fn pages_that_a_delta_has_lost_are_those_of_the_links_below_it() {
    let second = "a.qimg.delta-2";
    for codec in Codec::ALL {
        let memory = MemoryDirectory::new();
        let mut world = World::new(PAGES, 4096);
        world.compression = Some(codec);
        (3..PAGES - 2).for_each(|page| world.write(page, 5));
        world.track();
        let mut links = world.begin_chain(&memory, 1).unwrap();
        let mut models = vec![world.model.clone()];
        // The second region has no page of the image any more, nor of the first delta.
        for (epoch, value, first) in [(2, 77, 10), (3, 99, 50)] {
            (first..first + 80).chain(REGION..2 * REGION).for_each(|page| world.write(page, value));
            if epoch == 3 {
                world.empty(20);
            }
            world.save_delta(&memory, &mut links, epoch).unwrap();
            models.push(world.model.clone());
        }
        let told = ImageChain::open(&memory, NAME).unwrap().deltas();
        assert!(told.iter().all(|delta| delta.compression.regions == 2), "{told:?}");
        let upper = |pages: &Pages| pages.clone().split_off(&REGION);
        let lower = |pages: &Pages| -> Pages { pages.range(..REGION).map(|(page, at)| (*page, at.clone())).collect() };
        let accepting = RestoreOptions { accept_damaged: true, ..options() };
        let found = |losses: usize| {
            let mut loaded = ImageChain::open(&memory, NAME).unwrap().load(&accepting, |_, _| {}).unwrap();
            let told = &loaded.summary.damage;
            assert_eq!(told.len(), losses, "{told:?}");
            assert!(told.iter().all(|damage| damage.to_string().contains("its changes are lost")), "{told:?}");
            held(&mut loaded.barrier, PAGES)
        };
        assert_same(&found(0), &models[2]);
        // Page 20 comes first and has no place of its own to be damaged; its end is told by the table.
        spoil(&memory, second, 1);
        let mut older = lower(&models[1]);
        older.remove(&20);
        let pages = found(1);
        assert_same(&lower(&pages), &older);
        assert_same(&upper(&pages), &upper(&models[2]));
        spoil(&memory, second, 81);
        assert_same(&upper(&found(2)), &upper(&models[1]));
        spoil(&memory, DELTA, 80);
        assert_same(&upper(&found(3)), &upper(&models[0]));
        // No page of an older delta comes back over a newer one.
        spoil(&memory, DELTA, 0);
        older = lower(&models[0]);
        older.remove(&20);
        assert_same(&lower(&found(4)), &older);
        assert!(ImageChain::open(&memory, NAME).unwrap().load(&options(), |_, _| {}).is_err());
    }
}

#[test]
fn an_image_whose_header_is_lost_is_used_by_its_footer_and_one_whose_table_is_lost_is_refused() {
    let Saved { memory, models } = saved(Codec::Lz4);
    let mut bytes = memory.bytes(NAME).unwrap();
    bytes[30] ^= 1;
    let (image, damage) = Image::open_damaged(&MemoryDirectory::with_file(NAME, &bytes), NAME).unwrap();
    assert!(damage.is_some_and(|damage| damage.is_damage()));
    assert_same(&held(&mut load(&image, &options(), |_, _| {}).unwrap().barrier, PAGES), &models[0]);
    let mut bytes = memory.bytes(NAME).unwrap();
    bytes[ImageLayout::new(PAGES).table_offset() as usize] ^= 1;
    let refused = Image::open_damaged(&MemoryDirectory::with_file(NAME, &bytes), NAME).unwrap_err();
    assert!(refused.is_damage(), "{refused}");
}

#[test]
fn a_compressed_delta_of_another_link_is_refused() {
    let Saved { memory, .. } = saved(Codec::Lz4);
    with_delta(&memory, |header, _, _| header.base.checksum = 1.into());
    let error = ImageChain::open(&memory, NAME).unwrap_err();
    assert!(matches!(error, ImageError::WrongBase { .. }), "{error}");
}
