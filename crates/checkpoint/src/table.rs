//! The table of an image: which pages are present, and a checksum for every region.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use quire_snapshot::PAGES_PER_REGION;

use crate::format::Layout;

/// Present bits and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    layout: Layout,
    present: Vec<u64>,
    sums: Vec<u64>,
}

impl Table {
    /// A table of no present pages.
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, present: vec![0; layout.present_words()], sums: vec![0; layout.region_count() as usize] }
    }

    /// Notes that `page`, whose checksum is `sum`, is in the image.
    pub(crate) fn add(&mut self, page: u32, sum: u64) {
        self.present[page as usize / 64] |= 1 << (page % 64);
        let region = &mut self.sums[page as usize / PAGES_PER_REGION];
        *region = region.wrapping_add(sum);
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether `page` is in the image.
    pub(crate) fn is_present(&self, page: u32) -> bool {
        self.present[page as usize / 64] >> (page % 64) & 1 == 1
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

    /// Runs of neighbouring pages in the image.
    pub(crate) fn present_runs(&self) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        let mut page = 0;
        std::iter::from_fn(move || {
            let count = self.layout.page_count();
            while page < count && !self.is_present(page) {
                // Whole empty words are passed over at once.
                page = if self.present[page as usize / 64] == 0 { (page / 64 + 1) * 64 } else { page + 1 };
            }
            if page >= count {
                return None;
            }
            let start = page;
            while page < count && self.is_present(page) {
                page += 1;
            }
            Some(start..page)
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
    pub(crate) fn decode(layout: Layout, bytes: &[u8]) -> Result<Self, (u64, String)> {
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
        let table = Self { layout, present, sums };
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
        fn what_is_encoded_is_decoded(count in 0u32..3000, pages in prop::collection::btree_set(0u32..3000, 0..100)) {
            let mut table = Table::new(Layout::new(count));
            let pages: Vec<u32> = pages.into_iter().filter(|&page| page < count).collect();
            for &page in &pages {
                table.add(page, u64::from(page) << 40 | 1);
            }
            let back = Table::decode(table.layout(), &table.encode()).unwrap();
            prop_assert_eq!(&back, &table);
            prop_assert_eq!(back.present_pages(), pages.len() as u64);
            let from_runs: Vec<u32> = back.present_runs().flatten().collect();
            prop_assert_eq!(from_runs, pages);
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let layout = Layout::new(70);
        let bytes = Table::new(layout).encode();
        let mut beyond = bytes.clone();
        beyond[8] = 0x40;
        assert_eq!(Table::decode(layout, &beyond).unwrap_err().0, 8);
        let mut padding = bytes.clone();
        padding[100] = 1;
        assert_eq!(Table::decode(layout, &padding).unwrap_err().0, 24);
        let mut sum = bytes.clone();
        sum[16] = 1;
        assert_eq!(Table::decode(layout, &sum).unwrap_err().0, 16);
        assert!(Table::decode(layout, &bytes[..10]).is_err());
    }
}
