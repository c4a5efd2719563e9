//! How pages are stored in the second tier: compressed where that pays, as they are otherwise.
//!
//! Relies on a page's compressed bytes always being fewer than its own, so that the length alone says which it is. Decoding takes no
//! memory, since it happens in signal handlers, too.

use std::sync::atomic::{AtomicU32, Ordering};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::config::TierCompression;

/// Pages in a row that didn't compress before most are no longer tried.
const POOR_PAGES: u32 = 32;
/// Then one page in so many is tried.
const TRIED_PART: u32 = 16;

/// Whether compressing has been worth it lately.
#[derive(Debug, Default)]
pub(super) struct CompressionHistory {
    /// Pages in a row that didn't compress.
    poor: AtomicU32,
    /// Pages that weren't tried.
    skipped: AtomicU32,
}

impl CompressionHistory {
    fn is_worth_trying(&self) -> bool {
        self.poor.load(Ordering::Relaxed) < POOR_PAGES
            || self.skipped.fetch_add(1, Ordering::Relaxed) % TRIED_PART == TRIED_PART - 1
    }

    fn note(&self, went_well: bool) {
        if went_well {
            if self.poor.load(Ordering::Relaxed) != 0 {
                self.poor.store(0, Ordering::Relaxed);
            }
        } else {
            self.poor.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Memory for compressing pages one after the other.
pub(super) struct PageEncoder<'a> {
    compression: TierCompression,
    history: &'a CompressionHistory,
    table: CompressTable,
    output: Vec<u8>,
}

impl<'a> PageEncoder<'a> {
    pub(super) fn new(compression: TierCompression, history: &'a CompressionHistory) -> Self {
        Self { compression, history, table: CompressTable::default(), output: Vec::new() }
    }

    /// The bytes to be stored for `page`: compressed if that saves an eighth, else `page` itself.
    pub(super) fn encode<'b>(&'b mut self, page: &'b [u8]) -> &'b [u8] {
        if self.compression == TierCompression::None || !self.history.is_worth_trying() {
            return page;
        }
        self.output.resize(get_maximum_output_size(page.len()), 0);
        let packed = compress_into_with_table(page, &mut self.output, &mut self.table);
        let saving = packed.ok().filter(|&len| (1..=page.len() / 8 * 7).contains(&len));
        self.history.note(saving.is_some());
        saving.map_or(page, |len| &self.output[..len])
    }
}

/// Decodes `stored` into `page`; whether it was a page.
pub(super) fn decode(stored: &[u8], page: &mut [u8]) -> bool {
    if stored.len() == page.len() {
        page.copy_from_slice(stored);
        return true;
    }
    decompress_into(stored, page).is_ok_and(|len| len == page.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quire_rng::SplitMix64;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut rng = SplitMix64::new(seed);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same(seed: u64, noisy in 0..=4096usize, large: bool) {
            let len = if large { 65_536 } else { 4096 };
            let mut page = vec![seed as u8; len];
            page[..noisy].copy_from_slice(&noise(seed, noisy));
            let history = CompressionHistory::default();
            for compression in [TierCompression::Lz4, TierCompression::None] {
                let mut encoder = PageEncoder::new(compression, &history);
                for _ in 0..2 {
                    let stored = encoder.encode(&page);
                    prop_assert!(stored.len() <= page.len());
                    let mut found = vec![1; len];
                    prop_assert!(decode(stored, &mut found));
                    prop_assert_eq!(&found, &page);
                }
            }
        }

        #[test]
        fn what_is_no_page_is_refused(bytes in prop::collection::vec(any::<u8>(), 1..600)) {
            let mut page = vec![0; 4096];
            // It may happen to decode to a page, never to anything else; and it never panics.
            let _ = decode(&bytes, &mut page);
        }
    }

    #[test]
    fn pages_that_do_not_compress_are_tried_seldom_until_one_does() {
        let history = CompressionHistory::default();
        let mut encoder = PageEncoder::new(TierCompression::Lz4, &history);
        let (poor, good) = (noise(1, 4096), vec![3; 4096]);
        for _ in 0..POOR_PAGES {
            assert_eq!(encoder.encode(&poor).len(), 4096);
        }
        let stored: Vec<usize> = (0..2 * TRIED_PART).map(|_| encoder.encode(&good).len()).collect();
        let first = stored.iter().position(|&len| len < 4096).unwrap();
        assert_eq!(first, TRIED_PART as usize - 1);
        assert!(stored[first..].iter().all(|&len| len < 4096), "from the first one on all are tried");
    }
}
