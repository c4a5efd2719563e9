//! The table of an image: which pages are present, and a checksum for every region.

use std::ops::Range;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};

use crate::compression::{Codec, CompressionInfo};
use crate::format::{ImageLayout, StoredRegion};

/// Present bits, checksums, and how regions are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumTable {
    layout: ImageLayout,
    present: Vec<u64>,
    sums: Vec<u64>,
    /// One a region if regions may be compressed, else empty.
    stored: Vec<StoredRegion>,
    /// The checksums are lost.
    sumless: bool,
}

impl ChecksumTable {
    /// A table of no present pages.
    pub(crate) fn new(layout: ImageLayout) -> Self {
        let (present, sums) = (vec![0; layout.present_words()], vec![0; layout.region_count() as usize]);
        let stored = vec![StoredRegion::default(); stored_count(layout)];
        Self { layout, present, sums, stored, sumless: false }
    }

    /// A table of no present pages, whose regions can't be checked.
    pub(crate) fn without_sums(layout: ImageLayout) -> Self {
        Self { sumless: true, ..Self::new(layout) }
    }

    /// Whether regions can be checked.
    pub(crate) fn has_sums(&self) -> bool {
        !self.sumless
    }

    /// Notes that `page`, whose checksum is `sum`, is in the image.
    pub(crate) fn add(&mut self, page: u32, sum: u64) {
        self.present[page as usize / 64] |= 1 << (page % 64);
        let region = &mut self.sums[page as usize / PAGES_PER_REGION];
        *region = region.wrapping_add(sum);
    }

    /// Takes `page` for absent, whose region can't be checked any more.
    pub(crate) fn forget_page(&mut self, page: u32) {
        if let Some(word) = self.present.get_mut(page as usize / 64) {
            *word &= !(1 << (page % 64));
        }
    }

    /// Takes the pages of `region` for absent.
    pub(crate) fn forget_region(&mut self, region: u32) {
        let words = PAGES_PER_REGION / 64;
        let start = (region as usize * words).min(self.present.len());
        let end = (start + words).min(self.present.len());
        self.present[start..end].fill(0);
        self.sums[region as usize] = 0;
        self.note_stored(region, StoredRegion::default());
    }

    /// How `region` is stored.
    pub(crate) fn stored(&self, region: u32) -> StoredRegion {
        self.stored.get(region as usize).copied().unwrap_or_default()
    }

    /// Notes how `region` is stored, if regions may be compressed.
    pub(crate) fn note_stored(&mut self, region: u32, stored: StoredRegion) {
        if let Some(place) = self.stored.get_mut(region as usize) {
            *place = stored;
        }
    }

    /// The pages of `region` from the first to the last one in the image.
    pub(crate) fn span(&self, region: u32) -> Option<Range<u32>> {
        self.present_runs(self.layout.pages_of(region)).reduce(|all, run| all.start..run.end)
    }

    /// A region whose codec is not known, that codec, and where the table says so.
    pub(crate) fn unknown_codec(&self) -> Option<(u32, u32, u64)> {
        let (region, stored) = (0..)
            .zip(&self.stored)
            .find(|(_, stored)| !stored.is_plain() && Codec::of_number(stored.codec.get()).is_none())?;
        Some((region, stored.codec.get(), self.stored_offset(region)))
    }

    /// What compression has made of the pages.
    pub(crate) fn compression(&self) -> CompressionInfo {
        let raw_bytes = |region| u64::from(self.present_in(region)) * PAGE_SIZE as u64;
        let compressed = (0..).zip(&self.stored).map(|(region, stored)| (*stored, raw_bytes(region)));
        CompressionInfo::new(self.present_pages() * PAGE_SIZE as u64, compressed)
    }

    /// Where the table says how `region` is stored.
    fn stored_offset(&self, region: u32) -> u64 {
        (8 * (self.present.len() + self.sums.len()) + size_of::<StoredRegion>() * region as usize) as u64
    }

    pub(crate) fn layout(&self) -> ImageLayout {
        self.layout
    }

    /// Checksum of a region.
    pub(crate) fn sum(&self, region: u32) -> u64 {
        self.sums[region as usize]
    }

    /// Pages in the image.
    pub(crate) fn present_pages(&self) -> u64 {
        self.present.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Pages of `region` in the image.
    pub(crate) fn present_in(&self, region: u32) -> u32 {
        let words = PAGES_PER_REGION / 64;
        let start = (region as usize * words).min(self.present.len());
        let end = (start + words).min(self.present.len());
        self.present[start..end].iter().map(|word| word.count_ones()).sum()
    }

    /// Runs of neighbouring pages among `pages` that are in the image.
    ///
    /// Words at a time: a restart does this for all pages before it serves the first command.
    pub(crate) fn present_runs(&self, pages: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let end = pages.end.min(self.layout.page_count());
        let mut page = pages.start;
        std::iter::from_fn(move || {
            let start = self.find(page, end, true);
            page = self.find(start, end, false);
            (start < end).then_some(start..page)
        })
    }

    /// The first page from `from` on that is in the image (or isn't); `end` if none before it is.
    fn find(&self, from: u32, end: u32, present: bool) -> u32 {
        let flip = if present { 0 } else { u64::MAX };
        let mut page = from;
        while page < end {
            let bits = (self.present[page as usize / 64] ^ flip) >> (page % 64);
            if bits != 0 {
                return (page + bits.trailing_zeros()).min(end);
            }
            page = (page / 64 + 1) * 64;
        }
        end
    }

    /// Regions that have pages in the image, in address order.
    pub(crate) fn regions(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.layout.region_count()).filter(|&region| self.present_in(region) > 0)
    }

    /// The bytes in the file, filled up with zeros.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.layout.table_bytes());
        for &word in self.present.iter().chain(&self.sums) {
            bytes.extend_from_slice(U64::new(word).as_bytes());
        }
        bytes.extend_from_slice(self.stored.as_bytes());
        bytes.resize(self.layout.table_bytes(), 0);
        bytes
    }

    /// Reads the bytes back; [`ChecksumTable::check_regions`] is still to be called.
    ///
    /// # Errors
    /// Offset into the table and what is wrong there.
    pub(crate) fn decode(layout: ImageLayout, bytes: &[u8]) -> Result<Self, (u64, String)> {
        let words = layout.present_words();
        let regions = layout.region_count() as usize;
        let numbers = <[U64]>::ref_from_prefix_with_elems(bytes, words + regions);
        let too_short = || (bytes.len() as u64, format!("it has {} bytes", bytes.len()));
        let Ok((numbers, rest)) = numbers else { return Err(too_short()) };
        let Ok((stored, padding)) = <[StoredRegion]>::ref_from_prefix_with_elems(rest, stored_count(layout)) else {
            return Err(too_short());
        };
        let present: Vec<u64> = numbers[..words].iter().map(|word| word.get()).collect();
        let sums: Vec<u64> = numbers[words..].iter().map(|word| word.get()).collect();
        let used_bits = layout.page_count() % 64;
        if used_bits != 0 && present.last().is_some_and(|last| last >> used_bits != 0) {
            return Err((8 * (words as u64 - 1), "bits are set beyond the last page".into()));
        }
        if padding.iter().any(|&byte| byte != 0) {
            let offset = 8 * (words + regions) + size_of_val(stored);
            return Err((offset as u64, "bytes behind the checksums are not zero".into()));
        }
        Ok(Self { layout, present, sums, stored: stored.to_vec(), sumless: false })
    }

    /// Sees to it that what the table says of each region can be true.
    ///
    /// # Errors
    /// Offset into the table and what is wrong there.
    pub(crate) fn check_regions(&self) -> Result<(), (u64, String)> {
        for region in 0..self.layout.region_count() {
            if self.present_in(region) == 0 && self.sum(region) != 0 {
                let offset = 8 * (self.present.len() as u64 + u64::from(region));
                return Err((offset, format!("region {region} has no pages but a checksum")));
            }
            let stored = self.stored(region);
            let span_pages = if stored.is_plain() { 0 } else { self.span(region).map_or(0, |span| span.len()) };
            if let Some(what) = stored.nonsense(span_pages) {
                return Err((self.stored_offset(region), format!("region {region} {what}")));
            }
        }
        Ok(())
    }
}

/// How many regions a table tells of how they are stored.
fn stored_count(layout: ImageLayout) -> usize {
    if layout.is_compressed() { layout.region_count() as usize } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            count in 0u32..3000,
            pages in prop::collection::btree_set(0u32..3000, 0..100),
            part in (0u32..3000, 0u32..3000),
        ) {
            let mut table = ChecksumTable::new(ImageLayout::new(count));
            let pages: Vec<u32> = pages.into_iter().filter(|&page| page < count).collect();
            for &page in &pages {
                table.add(page, u64::from(page) << 40 | 1);
            }
            let back = ChecksumTable::decode(table.layout(), &table.encode()).unwrap();
            prop_assert_eq!(&back, &table);
            prop_assert_eq!(back.present_pages(), pages.len() as u64);
            let from_runs: Vec<u32> = back.present_runs(0..count).flatten().collect();
            prop_assert_eq!(&from_runs, &pages);
            let in_part: Vec<u32> = back.present_runs(part.0..part.1).flatten().collect();
            let expected: Vec<u32> = pages.iter().copied().filter(|page| (part.0..part.1).contains(page)).collect();
            prop_assert_eq!(in_part, expected);
            let mut regions: Vec<u32> = pages.iter().map(|page| page / 512).collect();
            regions.dedup();
            prop_assert_eq!(back.regions().collect::<Vec<_>>(), regions);
        }

        #[test]
        fn runs_are_as_long_as_they_can_be(bits in prop::collection::vec(any::<bool>(), 0..700)) {
            let mut table = ChecksumTable::new(ImageLayout::new(bits.len() as u32));
            for (page, _) in bits.iter().enumerate().filter(|(_, present)| **present) {
                table.add(page as u32, 0);
            }
            let runs: Vec<Range<u32>> = table.present_runs(0..u32::MAX).collect();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "{:?} could be one", pair);
            }
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let layout = ImageLayout::new(70);
        let bytes = ChecksumTable::new(layout).encode();
        let mut beyond = bytes.clone();
        beyond[8] = 0x40;
        assert_eq!(ChecksumTable::decode(layout, &beyond).unwrap_err().0, 8);
        let mut padding = bytes.clone();
        padding[100] = 1;
        assert_eq!(ChecksumTable::decode(layout, &padding).unwrap_err().0, 24);
        let mut sum = bytes.clone();
        sum[16] = 1;
        assert_eq!(ChecksumTable::decode(layout, &sum).unwrap().check_regions().unwrap_err().0, 16);
        let layout = layout.compressed();
        let mut table = ChecksumTable::new(layout);
        (3..7).for_each(|page| table.add(page, 0));
        let stored = |codec: u32, bytes: u32| StoredRegion {
            codec: codec.into(),
            stored_bytes: bytes.into(),
            checksum: 1.into(),
        };
        for (stored, is_sense) in [
            (stored(1, 3 * 4096), true),
            (stored(9, 1), true),
            (stored(1, 3 * 4096 + 1), false),
            (stored(2, 0), false),
            (stored(0, 0), false),
            (stored(1, u32::MAX), false),
        ] {
            table.note_stored(0, stored);
            let decoded = ChecksumTable::decode(layout, &table.encode()).unwrap();
            assert_eq!(decoded, table);
            let told = decoded.check_regions();
            assert_eq!(told.is_ok(), is_sense, "{stored:?}");
            assert!(is_sense || told.is_err_and(|(offset, _)| offset == 24));
        }
        assert_eq!(
            {
                table.note_stored(0, stored(9, 1));
                table.unknown_codec()
            },
            Some((0, 9, 24))
        );
        table.forget_region(0);
        assert_eq!(table, ChecksumTable::new(layout));
        assert!(ChecksumTable::decode(layout, &bytes[..10]).is_err());
    }
}
