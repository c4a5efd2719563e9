//! Compression of regions: a region's bytes are packed by one call of a codec, and unpacked into room for exactly as many.
//!
//! Only what takes an eighth less space than its pages do is stored compressed; everything else stays as it is, so that it can
//! be mapped. The format is in `docs/format.md`.
//!
//! Relies on codecs that never write beyond the room they are given, whatever bytes they are to unpack.

use std::ops::Range;

use lz4_flex::block;
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, ErrorCode};

use crate::format::{StoredRegion, checksum};

/// The level of zstd: the thread that saves compresses alone, and this one keeps up with ordinary disks.
const ZSTD_LEVEL: i32 = 1;
/// What a region must be smaller by, as a part of its pages.
const LEAST_SAVED_PART: usize = 8;

/// How regions are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// LZ4, a block without a frame.
    Lz4,
    /// Zstandard, one frame.
    Zstd,
}

impl Codec {
    /// All that this program knows.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Zstd];

    /// Its number in files. 0 is no codec.
    pub fn number(self) -> u32 {
        match self {
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// The codec with this number.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.number() == number)
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Gathers the pages of one region and packs them. Holds about 4.5 MiB, and what the codec needs: less than 2 MiB.
pub(crate) struct Compressor {
    codec: Codec,
    /// The region's place in the file, as it would be without compression.
    raw: Vec<u8>,
    packed: Vec<u8>,
    zstd: Option<CCtx<'static>>,
    /// Where in `raw` there are pages with content, in rising order.
    pages: Vec<usize>,
}

impl Compressor {
    /// `None` if there is no memory for it.
    pub(crate) fn new(codec: Codec) -> Option<Self> {
        let zstd = match codec {
            Codec::Lz4 => None,
            Codec::Zstd => {
                let mut zstd = CCtx::try_create()?;
                zstd.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)).ok()?;
                Some(zstd)
            }
        };
        let packed = zeros(block::get_maximum_output_size(REGION_SIZE))?;
        Some(Self { codec, raw: zeros(REGION_SIZE)?, packed, zstd, pages: Vec::with_capacity(PAGES_PER_REGION) })
    }

    /// Forgets the pages of the region before.
    pub(crate) fn begin(&mut self) {
        self.pages.clear();
    }

    /// Room for the page that lies `start` bytes behind the beginning of its region's place.
    pub(crate) fn slot(&mut self, start: usize) -> &mut [u8] {
        &mut self.raw[start..start + PAGE_SIZE]
    }

    /// The slot at `start` now holds a page, if it `is_present`. Pages come in rising order.
    pub(crate) fn keep(&mut self, start: usize, is_present: bool) {
        match is_present {
            true => self.pages.push(start),
            false => self.slot(start).fill(0),
        }
    }

    /// Where the pages with content begin that were kept, in rising order.
    pub(crate) fn pages(&self) -> &[usize] {
        &self.pages
    }

    /// Packs what lies from the first page with content to the last. Returns where that begins and what it has become; `None` if
    /// it isn't worth it.
    pub(crate) fn pack(&mut self) -> Option<(usize, StoredRegion)> {
        let span = *self.pages.first()?..*self.pages.last()? + PAGE_SIZE;
        let pages_bytes = self.pages.len() * PAGE_SIZE;
        let most = pages_bytes - (pages_bytes / LEAST_SAVED_PART).max(PAGE_SIZE);
        let packed_bytes = match &mut self.zstd {
            None => block::compress_into(&self.raw[span.clone()], &mut self.packed).ok()?,
            // An error says that the room is too small.
            Some(zstd) => zstd.compress2(&mut self.packed[..most], &self.raw[span.clone()]).ok()?,
        };
        let padded_bytes = packed_bytes.next_multiple_of(PAGE_SIZE);
        if padded_bytes > most {
            return None;
        }
        self.packed[packed_bytes..padded_bytes].fill(0);
        let stored = StoredRegion {
            codec: self.codec.number().into(),
            stored_bytes: (packed_bytes as u32).into(),
            checksum: checksum(&self.packed[..padded_bytes]).into(),
        };
        Some((span.start, stored))
    }

    /// What was packed last, page by page.
    pub(crate) fn packed(&self, stored: &StoredRegion) -> impl Iterator<Item = &[u8]> {
        self.packed[..stored.padded_bytes()].chunks(PAGE_SIZE)
    }

    /// The page at `start`, as it was kept.
    pub(crate) fn page(&self, start: usize) -> &[u8] {
        &self.raw[start..start + PAGE_SIZE]
    }
}

/// So many zeros; `None` if there is no memory for them.
fn zeros(len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

/// What is wrong with a compressed region.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnpackError {
    /// In words.
    pub(crate) what: String,
    /// It unpacks to nothing, so zeros are there. Else what it unpacks to is there, which is not what was written.
    pub(crate) is_lost: bool,
}

/// Unpacks regions, for one thread. Holds as much as the largest region took in the file.
#[derive(Default)]
pub(crate) struct Decompressor {
    packed: Vec<u8>,
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    /// Unpacks what lies as `stored` at the start of `bytes` into all of `bytes`, if it is compressed.
    ///
    /// # Errors
    /// What is wrong with it. The bytes are what it unpacks to all the same, or zeros.
    pub(crate) fn unpack(&mut self, stored: &StoredRegion, bytes: &mut [u8]) -> Result<(), UnpackError> {
        if stored.is_plain() {
            return Ok(());
        }
        let told = self.take(stored, bytes);
        let unpacked = self.decode(stored, bytes);
        if unpacked.is_err() {
            bytes.fill(0);
        }
        let is_lost = unpacked.is_err();
        told.and(unpacked).map_err(|what| UnpackError { what, is_lost })
    }

    /// Takes what is stored out of the way, and looks whether it is what was written. Takes nothing if it can't be.
    fn take(&mut self, stored: &StoredRegion, bytes: &[u8]) -> Result<(), String> {
        self.packed.clear();
        // Before there is memory for it: a length of a file may be any number.
        let padded = bytes.get(..stored.padded_bytes()).ok_or("it is larger than its pages are")?;
        self.packed.try_reserve_exact(padded.len()).map_err(|error| error.to_string())?;
        self.packed.extend_from_slice(padded);
        let (sum, wanted) = (checksum(&self.packed), stored.checksum.get());
        match sum == wanted {
            true => Ok(()),
            false => Err(format!("the checksum of what is stored is {sum:016x}, but {wanted:016x} was written")),
        }
    }

    fn decode(&mut self, stored: &StoredRegion, bytes: &mut [u8]) -> Result<(), String> {
        let codec = Codec::of_number(stored.codec.get()).ok_or("its codec is not known")?;
        let packed = self.packed.get(..stored.stored_bytes.get() as usize).ok_or("nothing of it was taken")?;
        let unpacked_bytes = match codec {
            Codec::Lz4 => block::decompress_into(packed, bytes).map_err(|error| error.to_string())?,
            Codec::Zstd => {
                let frame_bytes = zstd_safe::find_frame_compressed_size(packed).map_err(in_words)?;
                if frame_bytes != packed.len() {
                    return Err(format!("its frame ends after {frame_bytes} of {} bytes", packed.len()));
                }
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(DCtx::try_create().ok_or("no memory for the codec")?),
                };
                zstd.decompress(bytes, packed).map_err(in_words)?
            }
        };
        match unpacked_bytes == bytes.len() {
            true => Ok(()),
            false => Err(format!("{} gives {unpacked_bytes} bytes instead of {}", codec.name(), bytes.len())),
        }
    }
}

/// An error of zstd.
fn in_words(code: ErrorCode) -> String {
    zstd_safe::get_error_name(code).to_owned()
}

/// What compression has made of the pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionInfo {
    /// The codec; `None` if no region is compressed. If there are several, that of the first compressed region.
    pub codec: Option<Codec>,
    /// Regions that are compressed.
    pub regions: u64,
    /// Bytes that the pages take in the file.
    pub stored_bytes: u64,
}

impl CompressionInfo {
    /// Of pages of so many bytes; `compressed` are regions, each with the bytes of its pages.
    pub(crate) fn new(pages_bytes: u64, compressed: impl Iterator<Item = (StoredRegion, u64)>) -> Self {
        let mut info = Self { codec: None, regions: 0, stored_bytes: pages_bytes };
        for (stored, raw_bytes) in compressed.filter(|(stored, _)| !stored.is_plain()) {
            info.codec = info.codec.or(Codec::of_number(stored.codec.get()));
            info.regions += 1;
            // Files of others may claim anything.
            info.stored_bytes =
                info.stored_bytes.saturating_sub(raw_bytes).saturating_add(stored.padded_bytes() as u64);
        }
        info
    }
}

/// The part of a region's `bytes` that a span of it takes, both counted in pages from the region's first one.
pub(crate) fn span_bytes(first: u32, span: &Range<u32>) -> Range<usize> {
    (span.start - first) as usize * PAGE_SIZE..(span.end - first) as usize * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(codec: Codec, pages: &[(usize, Vec<u8>)]) -> Compressor {
        let mut compressor = Compressor::new(codec).unwrap();
        compressor.begin();
        let count = pages.last().map_or(0, |(page, _)| page + 1);
        for page in 0..count {
            let found = pages.iter().find(|(number, _)| *number == page);
            if let Some((_, bytes)) = found {
                compressor.slot(page * PAGE_SIZE).copy_from_slice(bytes);
            }
            compressor.keep(page * PAGE_SIZE, found.is_some());
        }
        compressor
    }

    /// What the reader finds of what was packed.
    fn read(compressor: &Compressor, stored: &StoredRegion, pages: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = compressor.packed(stored).flatten().copied().collect();
        bytes.resize(pages * PAGE_SIZE, 0xee);
        bytes
    }

    fn page() -> impl Strategy<Value = Vec<u8>> {
        let noise = prop::collection::vec(any::<u8>(), PAGE_SIZE);
        prop_oneof![3 => any::<u8>().prop_map(|value| vec![value; PAGE_SIZE]), 1 => noise]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_packed_is_smaller_by_an_eighth_and_unpacks_to_the_same(
            pages in prop::collection::btree_map(0usize..24, page(), 1..24),
            codec in prop::sample::select(&Codec::ALL[..]),
            flip in any::<prop::sample::Index>(),
        ) {
            let pages: Vec<(usize, Vec<u8>)> = pages.into_iter().collect();
            let mut compressor = filled(codec, &pages);
            let Some((start, stored)) = compressor.pack() else { return Ok(()) };
            prop_assert_eq!(start, pages[0].0 * PAGE_SIZE);
            prop_assert!(stored.padded_bytes() * 8 <= pages.len() * PAGE_SIZE * 7);
            let span = pages.last().unwrap().0 + 1 - pages[0].0;
            let mut bytes = read(&compressor, &stored, span);
            let mut damaged = bytes.clone();
            prop_assert_eq!(Decompressor::default().unpack(&stored, &mut bytes), Ok(()));
            let mut expected = vec![0; span * PAGE_SIZE];
            for (page, content) in &pages {
                expected[page * PAGE_SIZE - start..][..PAGE_SIZE].copy_from_slice(content);
            }
            prop_assert!(bytes == expected);
            // The zeros behind it count, too.
            damaged[flip.index(stored.padded_bytes())] ^= 4;
            prop_assert!(Decompressor::default().unpack(&stored, &mut damaged).is_err());
        }

        #[test]
        fn any_bytes_unpack_into_exactly_their_room_or_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 1..5000),
            codec in prop::sample::select(&Codec::ALL[..]),
            room in 2usize..5,
        ) {
            let mut place = bytes.clone();
            place.resize(place.len().next_multiple_of(PAGE_SIZE), 0);
            let stored = StoredRegion {
                codec: codec.number().into(),
                stored_bytes: (bytes.len() as u32).into(),
                checksum: checksum(&place).into(),
            };
            let room_bytes = room.max(place.len() / PAGE_SIZE) * PAGE_SIZE;
            place.resize(room_bytes + PAGE_SIZE, 7);
            let unpacked = Decompressor::default().unpack(&stored, &mut place[..room_bytes]);
            prop_assert!(unpacked.is_ok() || place[..room_bytes].iter().all(|&byte| byte == 0));
            prop_assert!(place[room_bytes..].iter().all(|&byte| byte == 7), "bytes behind its room");
        }
    }

    #[test]
    fn what_unpacks_to_more_or_less_than_its_pages_is_refused_and_leaves_zeros() {
        for codec in Codec::ALL {
            let pages: Vec<(usize, Vec<u8>)> = (0..16).map(|page| (page, vec![9; PAGE_SIZE])).collect();
            let mut compressor = filled(codec, &pages);
            let (_, stored) = compressor.pack().unwrap();
            for wrong in [15, 17] {
                let mut bytes = read(&compressor, &stored, wrong);
                let told = Decompressor::default().unpack(&stored, &mut bytes);
                assert!(told.is_err(), "{codec:?}");
                assert!(bytes.iter().all(|&byte| byte == 0), "{codec:?}");
            }
            let mut bytes = read(&compressor, &stored, 16);
            let other = StoredRegion { codec: 9.into(), ..stored };
            assert!(Decompressor::default().unpack(&other, &mut bytes).is_err());
        }
    }

    /// `packed` as a region of `pages` pages, with a checksum that fits it.
    fn as_region(packed: &[u8], pages: usize) -> (StoredRegion, Vec<u8>) {
        let mut bytes = packed.to_vec();
        bytes.resize(packed.len().next_multiple_of(PAGE_SIZE), 0);
        let stored = StoredRegion {
            codec: Codec::Zstd.number().into(),
            stored_bytes: (packed.len() as u32).into(),
            checksum: checksum(&bytes).into(),
        };
        bytes.resize(pages * PAGE_SIZE, 0);
        (stored, bytes)
    }

    #[test]
    fn only_one_frame_that_takes_all_that_is_stored_is_unpacked() {
        let frame = |len: usize| zstd::bulk::compress(&vec![5; len], ZSTD_LEVEL).unwrap();
        let (half, whole) = (frame(2 * PAGE_SIZE), frame(4 * PAGE_SIZE));
        // A frame of nothing that readers pass over.
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
        let (stored, mut bytes) = as_region(&whole, 4);
        assert_eq!(Decompressor::default().unpack(&stored, &mut bytes), Ok(()));
        assert!(bytes.iter().all(|&byte| byte == 5));
        for packed in [
            [half.as_slice(), &half].concat(),
            [skipped.as_slice(), &whole].concat(),
            [whole.as_slice(), &skipped].concat(),
            [whole.as_slice(), &[0]].concat(),
            whole[..whole.len() - 1].to_vec(),
        ] {
            let (stored, mut bytes) = as_region(&packed, 4);
            let error = Decompressor::default().unpack(&stored, &mut bytes).unwrap_err();
            assert!(error.is_lost && bytes.iter().all(|&byte| byte == 0), "{}", error.what);
        }
    }

    #[test]
    fn a_length_beyond_the_pages_takes_no_memory() {
        let (stored, mut bytes) = as_region(&[1; 100], 2);
        let mut decompressor = Decompressor::default();
        let hostile = StoredRegion { stored_bytes: u32::MAX.into(), ..stored };
        assert!(decompressor.unpack(&hostile, &mut bytes).is_err_and(|error| error.is_lost));
        assert_eq!(decompressor.packed.capacity(), 0);
    }
}
