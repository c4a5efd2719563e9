//! Target `image_reader`: any bytes as an image file are refused with an error, or read; never a panic.
//!
//! Relies on valid images of the store of [`crate::contents`]. The first byte of the input says whether the rest is the
//! whole file, or patches of a valid one (offset: three bytes, length: one, up to 16, bytes), whether that is as it is, by LZ4 or by
//! Zstandard, and whether the checksums of header, table, footer and compressed regions are set right again afterwards, so that
//! patches get past them.

use std::sync::OnceLock;

use quire_checkpoint::format::{DATA_OFFSET, ImageFooter, ImageHeader, ImageLayout, StoredRegion, checksum};
use quire_checkpoint::{Codec, Image, RestoreOptions, load};
use quire_device::{Directory, MemoryDirectory};
use quire_snapshot::{PAGE_SIZE, WriteBarrierConfig};
use quire_store::{ImageLocation, Store};
use zerocopy::{FromBytes, IntoBytes};

use crate::contents;
use quire_rng::SplitMix64;

/// Most bytes that a restored image may span here.
const MAX_BYTES: u64 = 64 << 20;
const NAME: &str = "image";
/// When valid images and deltas were made, as they say.
pub(crate) const CREATED_UNIX_MS: u64 = 1_000_000;
const WHOLE: u8 = 1;
const RESEAL: u8 = 2;
const LZ4: u8 = 4;
const ZSTD: u8 = 8;

/// The promise: opening, describing, verifying and restoring the file end in a result, and so does using the store.
pub fn run(data: &[u8]) {
    let mut bytes = match data.split_first() {
        Some((&flags, rest)) if flags & WHOLE != 0 => rest.to_vec(),
        Some((&flags, rest)) => patched(valid(flags), rest),
        None => valid(0).clone(),
    };
    if data.first().is_some_and(|flags| flags & RESEAL != 0) {
        reseal(&mut bytes);
    }
    let memory = MemoryDirectory::new();
    memory.put(NAME, &bytes);
    let whole = Image::open(&memory, NAME);
    let Ok((image, damage)) = Image::open_damaged(&memory, NAME) else {
        assert!(whole.is_err(), "a sound image can be used");
        return;
    };
    assert_eq!(whole.is_err(), damage.is_some());
    let _ = image.info();
    let _ = image.verify(|_, _| {});
    let barrier = WriteBarrierConfig { budget_bytes: 1 << 20 };
    let options = RestoreOptions { max_bytes: MAX_BYTES, barrier, accept_damaged: true };
    if let Ok(loaded) = load(&image, &options, |_, _| {})
        && let Ok(arena) = quire_arena::Arena::open(loaded.barrier, loaded.committed_bytes)
        && let Ok(mut store) = Store::from_arena(arena, contents::store_config())
    {
        contents::use_all_of(&mut store);
    } else if data.is_empty() || matches!(data, [LZ4] | [ZSTD]) {
        panic!("a valid image was refused");
    }
}

pub(crate) fn patched(base: &[u8], patches: &[u8]) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let mut rest = patches;
    while let [low, middle, high, len, tail @ ..] = rest {
        let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
        // A high top bit counts from the end, where table and footer are.
        let at = if high & 0x80 != 0 { bytes.len() - 1 - (at & 0xffff) % bytes.len() } else { at % bytes.len() };
        let len = (usize::from(*len) % 17).min(tail.len()).min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&tail[..len]);
        rest = &tail[len..];
    }
    bytes
}

/// Gives header, table and footer of an image the checksums that fit their bytes.
pub(crate) fn reseal(bytes: &mut [u8]) {
    if bytes.len() < 2 * PAGE_SIZE {
        return;
    }
    let end = bytes.len() - PAGE_SIZE;
    if let Ok(mut header) = ImageHeader::read_from_bytes(&bytes[..PAGE_SIZE]) {
        header.checksum = header.own_checksum().into();
        bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
        if let Ok(mut footer) = ImageFooter::read_from_bytes(&bytes[end..]) {
            footer.header_checksum = header.checksum;
            let layout = header.layout();
            reseal_regions(bytes, layout);
            let start = layout.table_offset() as usize;
            if let Some(table) = start.checked_add(layout.table_bytes()).and_then(|end| bytes.get(start..end)) {
                footer.table_checksum = checksum(table).into();
            }
            footer.checksum = footer.own_checksum().into();
            bytes[end..].copy_from_slice(footer.as_bytes());
        }
    }
}

/// Gives compressed regions the checksums that fit their bytes, as far as the table tells where they are.
fn reseal_regions(bytes: &mut [u8], layout: ImageLayout) {
    let words = layout.present_words();
    let table = layout.table_offset() as usize;
    let is_present = |bytes: &[u8], page: u32| bytes[table + page as usize / 8] & (1 << (page % 8)) != 0;
    if !layout.is_compressed() || bytes.len() as u64 != layout.file_bytes() {
        return;
    }
    for region in 0..layout.region_count() {
        let place = table + 8 * (words + layout.region_count() as usize) + size_of::<StoredRegion>() * region as usize;
        let end = place + size_of::<StoredRegion>();
        let Ok(mut stored) = StoredRegion::read_from_bytes(&bytes[place..end]) else { return };
        let Some(first) = layout.pages_of(region).find(|&page| is_present(bytes, page)) else { continue };
        let start = DATA_OFFSET as usize + first as usize * PAGE_SIZE;
        if let Some(packed) =
            bytes.get(start..start.saturating_add(stored.padded_bytes())).filter(|_| !stored.is_plain())
        {
            stored.checksum = checksum(packed).into();
            bytes[place..end].copy_from_slice(stored.as_bytes());
        }
    }
}

/// The valid image of the kind that `flags` ask for.
fn valid(flags: u8) -> &'static Vec<u8> {
    static PLAIN: OnceLock<Vec<u8>> = OnceLock::new();
    static BY_LZ4: OnceLock<Vec<u8>> = OnceLock::new();
    static BY_ZSTD: OnceLock<Vec<u8>> = OnceLock::new();
    match flags & (LZ4 | ZSTD) {
        0 => PLAIN.get_or_init(|| saved(None)),
        LZ4 => BY_LZ4.get_or_init(|| saved(Some(Codec::Lz4))),
        _ => BY_ZSTD.get_or_init(|| saved(Some(Codec::Zstd))),
    }
}

fn saved(compression: Option<Codec>) -> Vec<u8> {
    let memory = MemoryDirectory::new();
    let place = ImageLocation::within(std::sync::Arc::new(memory.clone()), NAME);
    let mut store = contents::filled_store();
    store.set_compression(compression);
    let image = store.save_blocking(&place).expect("saving to memory").image;
    assert_eq!(image.regions_compressed > 0, compression.is_some());
    let device = memory.open(NAME).expect("the image is there");
    let mut bytes = vec![0; device.len().expect("it has a length") as usize];
    device.read_at(0, &mut bytes).expect("reading memory");
    fix_time(&mut bytes);
    bytes
}

/// Has the image say that it was made at [`CREATED_UNIX_MS`]: an input must change the same bytes each time.
pub(crate) fn fix_time(image: &mut [u8]) {
    let mut header = ImageHeader::read_from_bytes(&image[..PAGE_SIZE]).expect("a header is a page");
    header.created_unix_ms = CREATED_UNIX_MS.into();
    image[..PAGE_SIZE].copy_from_slice(header.as_bytes());
    reseal(image);
}

/// The valid image, patches of its header and its end with and without right checksums, truncations.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(99);
    let mut seeds =
        vec![vec![], vec![WHOLE], [&[WHOLE], &valid(0)[..4096]].concat(), vec![RESEAL], vec![LZ4], vec![ZSTD]];
    for number in 0..200_u32 {
        let at = (rng.index(512) as u32).to_le_bytes();
        let from_end = if number % 2 == 0 { 0x80 } else { 0 };
        let len = 1 << rng.index(4);
        let mut seed = vec![if number % 4 < 2 { RESEAL } else { 0 }, at[0], at[1], from_end, len];
        seed.extend((rng.next_u64() >> (8 * rng.index(8))).to_le_bytes().iter().cycle().take(usize::from(len)));
        seeds.push(seed);
    }
    seeds.extend((0..300).map(|number| compressed_seed(&mut rng, number)));
    seeds
}

/// A patch of a compressed image: of what is stored of a region, or of what its table says of regions.
fn compressed_seed(rng: &mut SplitMix64, number: u32) -> Vec<u8> {
    let codec = if number.is_multiple_of(2) { LZ4 } else { ZSTD };
    let image = valid(codec);
    let layout = ImageHeader::read_from_bytes(&image[..PAGE_SIZE]).expect("a header is a page").layout();
    let (at, mark) = match number / 2 % 2 {
        // The first bytes of a codec's output say most of it.
        0 => (DATA_OFFSET as usize + rng.index(if number.is_multiple_of(3) { 32 } else { PAGE_SIZE }), 0),
        _ => {
            let stored = 8 * (layout.present_words() + layout.region_count() as usize);
            let place = layout.table_offset() as usize + stored + rng.index(16 * layout.region_count() as usize);
            (image.len() - 1 - place, 0x80)
        }
    };
    let at = (at as u32).to_le_bytes();
    let len = 1 + rng.index(8) as u8;
    let mut seed = vec![codec | if number.is_multiple_of(5) { 0 } else { RESEAL }, at[0], at[1], at[2] | mark, len];
    seed.extend((rng.next_u64() >> (8 * rng.index(8))).to_le_bytes().iter().take(usize::from(len)));
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_images_are_the_same_each_time() {
        for compression in [None, Some(Codec::Lz4), Some(Codec::Zstd)] {
            assert!(saved(compression) == saved(compression), "{compression:?}");
            let header = ImageHeader::read_from_bytes(&saved(compression)[..PAGE_SIZE]).unwrap();
            assert_eq!(header.created_unix_ms.get(), CREATED_UNIX_MS);
        }
    }
}
