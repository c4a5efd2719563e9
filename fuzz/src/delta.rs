//! Target `delta_reader`: any bytes as a link of a chain of deltas are refused with an error, or read; never a panic.
//!
//! Relies on a valid image with two deltas over it. The first byte of the input says which link the rest changes, whether the
//! rest is that whole file or patches as [`crate::image`] has them, whether checksums and counts are set right again
//! afterwards, whether the links above are made to fit the changed one, whether the chain is loaded or mapped, and whether its links are
//! compressed: the image by LZ4, the deltas by Zstandard and LZ4.

use std::sync::{Arc, OnceLock};

use quire_checkpoint::delta_format::{DeltaEntry, DeltaFooter, DeltaHeader, present_pages};
use quire_checkpoint::format::{StoredRegion, checksum};
use quire_checkpoint::{Codec, ImageChain};
use quire_device::{Directory, DiskDirectory, MemoryDirectory};
use quire_snapshot::PAGE_SIZE;
use quire_store::{DbId, ExpiryChange, ImageLocation, RestoreMode, Store, StoreConfig, hash, string};
use zerocopy::{FromBytes, IntoBytes};

use quire_rng::SplitMix64;

use crate::contents;
use crate::image;

/// The links in order, each over the one before.
const NAMES: [&str; 3] = ["image", "image.delta-1", "image.delta-2"];
const ZERO: DbId = DbId(0);
const WHOLE: u8 = 1;
const RESEAL: u8 = 2;
const REBASE: u8 = 4;
const MAP: u8 = 8;
/// From this bit on: which link is changed.
const LINK_SHIFT: u8 = 4;
const LINK_MASK: u8 = 3;
const COMPRESSED: u8 = 0x40;
/// Bytes of a delta's header that have a meaning, without its note.
const HEADER_FIELDS: usize = 140;
/// The same of its footer, from its first byte on.
const FOOTER_FIELDS: usize = 48;
/// Bytes of the image that can't be compressed.
const NOISE_BYTES: usize = 256 << 10;

struct Valid {
    files: Vec<Vec<u8>>,
    digest: [u8; 20],
}

/// The promise: opening, describing, verifying and restoring the chain end in a result, and so does using the store. A save
/// over the chain makes a sound one.
pub fn run(data: &[u8]) {
    let flags = data.first().copied().unwrap_or_default();
    let links = changed(flags, data.get(1..).unwrap_or_default());
    if flags & MAP == 0 {
        let memory = MemoryDirectory::new();
        NAMES.iter().zip(&links).for_each(|(name, bytes)| memory.put(name, bytes));
        let is_valid = data.is_empty() || *data == [COMPRESSED];
        return use_chain(Arc::new(memory), RestoreMode::Load, flags, is_valid);
    }
    // Only files can be mapped.
    let folder = tempfile::tempdir().expect("a folder for the chain");
    for (name, bytes) in NAMES.iter().zip(&links) {
        std::fs::write(folder.path().join(name), bytes).expect("the disk has room");
    }
    use_chain(
        Arc::new(DiskDirectory::new(folder.path())),
        RestoreMode::Map,
        flags,
        data.len() == 1 && flags & !COMPRESSED == MAP,
    );
}

/// The bytes of all links, one of which `rest` has changed as `flags` say.
fn changed(flags: u8, rest: &[u8]) -> Vec<Vec<u8>> {
    let mut links = valid(flags).files.clone();
    let link = usize::from(flags >> LINK_SHIFT & LINK_MASK) % links.len();
    links[link] = if flags & WHOLE != 0 { rest.to_vec() } else { image::patched(&links[link], rest) };
    if flags & RESEAL != 0 {
        if link == 0 { image::reseal(&mut links[link]) } else { reseal(&mut links[link]) }
    }
    if flags & REBASE != 0 {
        for above in link + 1..links.len() {
            let base = links[above - 1].clone();
            rebase(&mut links[above], &base);
        }
    }
    links
}

fn use_chain(directory: Arc<dyn Directory>, mode: RestoreMode, flags: u8, is_valid: bool) {
    describe(&*directory);
    let place = ImageLocation::within(Arc::clone(&directory), NAMES[0]);
    let Ok((mut store, report)) = Store::open(config(), &place, mode, true) else {
        assert!(!is_valid, "the valid chain was refused");
        return;
    };
    // A mapped image may prove damaged only now.
    let restored = store.finish_restore();
    if is_valid {
        assert_eq!((report.mode, report.deltas, restored.is_ok()), (Some(mode), 2, true));
        assert_eq!(store.digest().ok(), Some(valid(flags).digest), "the valid chain holds something else");
    }
    contents::use_all_of(&mut store);
    if store.save_blocking(&place).is_ok() {
        // Not what `verify` says of all bytes: a delta leaves the image as it is, and damage below pages of a delta is read by no restore.
        let again = Store::open(config(), &place, mode, false);
        let (mut again, report) = again.unwrap_or_else(|error| panic!("what was saved can't be opened: {error}"));
        let restored = again.finish_restore();
        assert!(
            restored.is_ok() && report.damage.is_empty(),
            "what was saved is damaged: {restored:?}, {:?}",
            report.damage
        );
    }
}

/// Opens the chain in both ways and asks for all that it says of itself.
fn describe(directory: &dyn Directory) {
    let whole = ImageChain::open(directory, NAMES[0]);
    let Ok((chain, damage)) = ImageChain::open_damaged(directory, NAMES[0]) else {
        assert!(whole.is_err(), "a sound chain can be used");
        return;
    };
    assert_eq!(whole.is_err(), !damage.is_empty());
    let _ = (chain.info(), chain.links());
    for delta in chain.deltas() {
        assert!(delta.present_pages <= delta.changed_pages);
        assert!(delta.changed_pages * PAGE_SIZE as u64 <= delta.file_bytes, "more pages than the file has room for");
    }
    let _ = chain.verify(|_, _| {});
}

/// Gives header, table and footer of a delta the counts and checksums that fit their bytes.
fn reseal(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(PAGE_SIZE).filter(|end| *end >= PAGE_SIZE) else { return };
    let Ok(mut header) = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]) else { return };
    header.checksum = header.own_checksum().into();
    bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
    let Ok(mut footer) = DeltaFooter::read_from_bytes(&bytes[end..]) else { return };
    footer.epoch = header.epoch;
    footer.header_checksum = header.checksum;
    let layout = header.layout();
    let start = layout.table_offset() as usize;
    let split = start + header.changed_pages.get() as usize * size_of::<DeltaEntry>();
    if let Some(table) = bytes.get(start..start + layout.table_used_bytes()) {
        let entries = &table[..split - start];
        footer.present_pages = present_pages(<[DeltaEntry]>::ref_from_bytes(entries).expect("they are whole")).into();
        let first = layout.page_offset(0) as usize;
        let mut stored = <[StoredRegion]>::ref_from_bytes(&table[split - start..]).expect("they are whole").to_vec();
        // The first compressed region begins with the first page, if that has content.
        if let Some(region) = stored.first_mut().filter(|region| !region.is_plain())
            && let Some(packed) = bytes.get(first..first.saturating_add(region.padded_bytes()))
        {
            region.checksum = checksum(packed).into();
        }
        bytes[split..split + size_of_val(stored.as_slice())].copy_from_slice(stored.as_bytes());
        footer.table_checksum = checksum(&bytes[start..start + layout.table_used_bytes()]).into();
    }
    footer.checksum = footer.own_checksum().into();
    bytes[end..].copy_from_slice(footer.as_bytes());
}

/// Makes the delta say that it is over the link whose bytes are `base`.
fn rebase(delta: &mut [u8], base: &[u8]) {
    // Epoch and checksum of the footer lie at the same places in images and deltas.
    let Some(footer) = base.last_chunk::<PAGE_SIZE>().and_then(|page| DeltaFooter::read_from_bytes(page).ok()) else {
        return;
    };
    if let Some(Ok(mut header)) = delta.get(..PAGE_SIZE).map(DeltaHeader::read_from_bytes) {
        header.base.epoch = footer.epoch;
        header.base.checksum = footer.checksum;
        delta[..PAGE_SIZE].copy_from_slice(header.as_bytes());
        reseal(delta);
    }
}

fn config() -> StoreConfig {
    StoreConfig { max_deltas: 3, ..contents::store_config() }
}

/// The valid chain of the kind that `flags` ask for.
fn valid(flags: u8) -> &'static Valid {
    static PLAIN: OnceLock<Valid> = OnceLock::new();
    static PACKED: OnceLock<Valid> = OnceLock::new();
    match flags & COMPRESSED {
        0 => PLAIN.get_or_init(|| saved([None; 3])),
        _ => PACKED.get_or_init(|| saved([Some(Codec::Lz4), Some(Codec::Zstd), Some(Codec::Lz4)])),
    }
}

fn saved(codecs: [Option<Codec>; 3]) -> Valid {
    let memory = MemoryDirectory::new();
    let place = ImageLocation::within(Arc::new(memory.clone()), NAMES[0]);
    let mut store = contents::filled_store();
    store.set_max_deltas(config().max_deltas);
    // Larger than its deltas by far, so that these may follow, however it is compressed.
    let mut rng = SplitMix64::new(77);
    let noise: Vec<u8> = (0..NOISE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    string::set(&mut store, ZERO, b"noise", &noise, ExpiryChange::Clear).expect("a small store fits");
    store.set_compression(codecs[0]);
    store.save_blocking(&place).expect("saving to memory");
    store.set_compression(codecs[1]);
    change(&mut store).expect("a small store fits");
    assert!(store.save_blocking(&place).expect("saving to memory").image.is_delta);
    store.set_compression(codecs[2]);
    string::set(&mut store, ZERO, b"string:7", b"again", ExpiryChange::Clear).expect("a short value fits");
    store.remove(ZERO, b"grown").expect("the key can be removed");
    while store.reclaim_step(1000).expect("nothing is damaged") > 0 {}
    store.arena_mut().trim(8);
    assert!(store.save_blocking(&place).expect("saving to memory").image.is_delta);
    let mut files: Vec<_> = NAMES.iter().map(|name| memory.bytes(name).expect("the link is there")).collect();
    fix_times(&mut files);
    let compressed = ImageChain::open(&memory, NAMES[0]).expect("it was just saved").deltas()[0].compression.regions;
    assert_eq!(compressed > 0, codecs[1].is_some());
    Valid { files, digest: store.digest().expect("a valid store has a digest") }
}

/// Has the links say when they were made as [`image::fix_time`] does, and fit each other.
fn fix_times(links: &mut [Vec<u8>]) {
    image::fix_time(&mut links[0]);
    for above in 1..links.len() {
        let base = links[above - 1].clone();
        let header = &mut links[above][..PAGE_SIZE];
        let mut changed = DeltaHeader::read_from_bytes(header).expect("a header is a page");
        changed.created_unix_ms = image::CREATED_UNIX_MS.into();
        header.copy_from_slice(changed.as_bytes());
        rebase(&mut links[above], &base);
    }
}

/// Changes old pages, and needs new ones.
fn change(store: &mut Store) -> quire_store::Result<()> {
    string::set(store, ZERO, b"grown", &[5; 60_000], ExpiryChange::Clear)?;
    string::set(store, ZERO, b"string:3", b"changed", ExpiryChange::Clear)?;
    hash::set(store, ZERO, b"large", b"field-3", b"changed")?;
    store.remove(ZERO, b"number").map(drop)
}

/// The valid chain loaded and mapped, patches of headers, tables and footers with and without right checksums, truncations.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(1234);
    let on = |link: u8| link << LINK_SHIFT;
    let mut seeds = vec![
        vec![],
        vec![MAP],
        vec![COMPRESSED],
        vec![COMPRESSED | MAP],
        vec![on(1) | RESEAL | REBASE],
        vec![on(1) | WHOLE],
        vec![WHOLE],
        // A byte of the image's gap.
        vec![0, 15, 16, 0, 1, 1],
        vec![COMPRESSED, 15, 16, 0, 1, 1],
    ];
    seeds.push([&[on(2) | WHOLE], &valid(0).files[2][..PAGE_SIZE]].concat());
    for number in 0..500_u32 {
        let link = 1 + number as u8 % 2;
        let packed = if number >= 300 { COMPRESSED } else { 0 };
        let file = &valid(packed).files[usize::from(link)];
        let table = (file.len() - PAGE_SIZE) as u64 - table_start(file);
        // Counted from the end if it has a mark, as tables and footers are.
        let (at, mark) = match number / 2 % 3 {
            // What a codec made of the first region.
            0 if packed != 0 && number % 3 > 0 => (PAGE_SIZE + rng.index(64), 0),
            0 => (8 + rng.index(HEADER_FIELDS - 8), 0),
            1 => (PAGE_SIZE - 1 - rng.index(FOOTER_FIELDS), 0x80),
            _ => (PAGE_SIZE + table as usize - 1 - rng.index(table as usize / 4), 0x80),
        };
        let at = (at as u32).to_le_bytes();
        let len = 1 << rng.index(4);
        let sealed = if number % 5 > 0 { RESEAL | REBASE } else { 0 };
        let mapped = if number % 7 == 0 { MAP } else { 0 };
        let mut seed = vec![on(link) | sealed | mapped | packed, at[0], at[1], mark, len];
        seed.extend((rng.next_u64() >> (8 * rng.index(8))).to_le_bytes().iter().cycle().take(usize::from(len)));
        seeds.push(seed);
    }
    seeds
}

fn table_start(delta: &[u8]) -> u64 {
    let header = DeltaHeader::read_from_bytes(&delta[..PAGE_SIZE]).expect("a header is a page");
    header.layout().table_offset()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_chains_are_the_same_each_time() {
        for codecs in [[None; 3], [Some(Codec::Lz4), Some(Codec::Zstd), Some(Codec::Lz4)]] {
            let valid = saved(codecs);
            assert!(valid.files == saved(codecs).files, "{codecs:?}");
            let header = DeltaHeader::read_from_bytes(&valid.files[2][..PAGE_SIZE]).unwrap();
            assert_eq!(header.created_unix_ms.get(), image::CREATED_UNIX_MS);
        }
    }
}
