//! The table of an image: which pages are present, and a checksum for every region.

use std::ops::Range;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use quire_snapshot::PAGES_PER_REGION;

use crate::format::ImageLayout;

/// Present bits and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumTable {
    layout: ImageLayout,
    present: Vec<u64>,
    sums: Vec<u64>,
    /// The checksums are lost.
    sumless: bool,
}

impl ChecksumTable {
    /// A table of no present pages.
    pub(crate) fn new(layout: ImageLayout) -> Self {
        let (present, sums) = (vec![0; layout.present_words()], vec![0; layout.region_count() as usize]);
        Self { layout, present, sums, sumless: false }
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

    /// Whether `page` was in the image; takes it for absent from now on, whose region can't be checked any more.
    pub(crate) fn take(&mut self, page: u32) -> bool {
        let bit = 1 << (page % 64);
        let Some(word) = self.present.get_mut(page as usize / 64) else { return false };
        let was_present = *word & bit != 0;
        *word &= !bit;
        was_present
    }

    /// Takes the pages of `region` for absent.
    pub(crate) fn forget_region(&mut self, region: u32) {
        let words = PAGES_PER_REGION / 64;
        let start = (region as usize * words).min(self.present.len());
        let end = (start + words).min(self.present.len());
        self.present[start..end].fill(0);
        self.sums[region as usize] = 0;
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

    /// Runs of neighbouring regions that have pages in the image.
    pub(crate) fn region_runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut regions = self.regions().peekable();
        std::iter::from_fn(move || {
            let start = regions.next()?;
            let mut end = start + 1;
            while regions.next_if_eq(&end).is_some() {
                end += 1;
            }
            Some(start..end)
        })
    }

    /// The bytes in the file, filled up with zeros.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.layout.table_bytes());
        for &word in self.present.iter().chain(&self.sums) {
            bytes.extend_from_slice(U64::new(word).as_bytes());
        }
        bytes.resize(self.layout.table_bytes(), 0);
        bytes
    }

    /// Reads the bytes back.
    ///
    /// # Errors
    /// Offset into the table and what is wrong there.
    pub(crate) fn decode(layout: ImageLayout, bytes: &[u8]) -> Result<Self, (u64, String)> {
        let words = layout.present_words();
        let regions = layout.region_count() as usize;
        let numbers = <[U64]>::ref_from_prefix_with_elems(bytes, words + regions);
        let Ok((numbers, padding)) = numbers else {
            return Err((bytes.len() as u64, format!("it has {} bytes", bytes.len())));
        };
        let present: Vec<u64> = numbers[..words].iter().map(|word| word.get()).collect();
        let sums: Vec<u64> = numbers[words..].iter().map(|word| word.get()).collect();
        let used_bits = layout.page_count() % 64;
        if used_bits != 0 && present.last().is_some_and(|last| last >> used_bits != 0) {
            return Err((8 * (words as u64 - 1), "bits are set beyond the last page".into()));
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err((8 * (words + regions) as u64, "bytes behind the checksums are not zero".into()));
        }
        let table = Self { layout, present, sums, sumless: false };
        for region in 0..layout.region_count() {
            if table.present_in(region) == 0 && table.sum(region) != 0 {
                let offset = 8 * (words as u64 + u64::from(region));
                return Err((offset, format!("region {region} has no pages but a checksum")));
            }
        }
        Ok(table)
    }
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
            prop_assert_eq!(back.region_runs().flatten().collect::<Vec<_>>(), regions);
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
        assert_eq!(ChecksumTable::decode(layout, &sum).unwrap_err().0, 16);
        assert!(ChecksumTable::decode(layout, &bytes[..10]).is_err());
    }
}
