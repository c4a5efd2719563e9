//! How pages are stored in the second tier: compressed where that pays, as they are otherwise.
//!
//! Relies on a page's compressed bytes always being fewer than its own, so that the length alone says which it is. Decoding takes no
//! memory, since it happens in signal handlers, too: what zstd needs for it is allocated with the shard. Encoding takes memory once for
//! each thread that evicts at the same time as others: an encoder and its buffers are used again.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use zstd::zstd_safe::{CCtx, CParameter, DCtx, compress_bound};

use crate::config::TierCompression;

/// Pages in a row that didn't compress before most are no longer tried.
const POOR_PAGES: u32 = 32;
/// Then one page in so many is tried.
const TRIED_PART: u32 = 16;
/// The level of zstd: the fastest that still codes the bytes between repetitions, by their frequencies.
const ZSTD_LEVEL: i32 = 1;

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

/// What a codec needs to compress.
enum EncoderState {
    /// Pages stay as they are.
    None,
    Lz4(CompressTable),
    Zstd(CCtx<'static>),
}

impl EncoderState {
    fn new(compression: TierCompression) -> Self {
        match compression {
            TierCompression::None => Self::None,
            TierCompression::Lz4 => Self::Lz4(CompressTable::default()),
            // Without memory for it pages are stored as they are, which is always allowed.
            TierCompression::Zstd => zstd_encoder().map_or(Self::None, Self::Zstd),
        }
    }

    /// Room for the compressed bytes of a page, however they turn out.
    fn most_bytes(&self, page_bytes: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Lz4(_) => get_maximum_output_size(page_bytes),
            Self::Zstd(_) => compress_bound(page_bytes),
        }
    }

    /// Bytes of `output` that `page` was compressed to.
    fn compress(&mut self, page: &[u8], output: &mut [u8]) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Lz4(table) => compress_into_with_table(page, output, table).ok(),
            Self::Zstd(context) => context.compress2(output, page).ok(),
        }
    }
}

fn zstd_encoder() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    context.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)).ok()?;
    Some(context)
}

/// Memory for compressing pages one after the other.
pub(super) struct PageEncoder {
    state: EncoderState,
    output: Box<[u8]>,
}

impl PageEncoder {
    fn new(compression: TierCompression, page_bytes: usize) -> Self {
        let state = EncoderState::new(compression);
        let output = vec![0; state.most_bytes(page_bytes)].into();
        Self { state, output }
    }

    /// The bytes to be stored for `page`: compressed if that saves an eighth, else `page` itself.
    pub(super) fn encode<'b>(&'b mut self, history: &CompressionHistory, page: &'b [u8]) -> &'b [u8] {
        if matches!(self.state, EncoderState::None) || !history.is_worth_trying() {
            return page;
        }
        let packed = self.state.compress(page, &mut self.output);
        let saving = packed.filter(|len| (1..=page.len() / 8 * 7).contains(len));
        history.note(saving.is_some());
        saving.map_or(page, |len| &self.output[..len])
    }
}

/// The encoders of a tier: as many as there were threads that encoded at one time.
pub(super) struct EncoderPool {
    compression: TierCompression,
    page_bytes: usize,
    idle: Mutex<Vec<PageEncoder>>,
}

impl fmt::Debug for EncoderPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EncoderPool").field("compression", &self.compression).finish_non_exhaustive()
    }
}

impl EncoderPool {
    /// For pages of `page_bytes`.
    pub(super) fn new(compression: TierCompression, page_bytes: usize) -> Self {
        Self { compression, page_bytes, idle: Mutex::default() }
    }

    /// Lends an encoder to `work`.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut PageEncoder) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle().pop();
        let mut encoder = found.unwrap_or_else(|| PageEncoder::new(self.compression, self.page_bytes));
        let result = work(&mut encoder);
        idle().push(encoder);
        result
    }
}

/// What turns stored bytes into pages again; knows one codec, besides pages that are stored as they are.
pub(super) enum PageDecoder {
    /// LZ4, which needs no memory.
    Lz4,
    /// zstd, with all the memory that it needs.
    Zstd(DCtx<'static>),
}

impl fmt::Debug for PageDecoder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if matches!(self, Self::Lz4) { "Lz4" } else { "Zstd" })
    }
}

impl PageDecoder {
    /// The decoder of what a [`PageEncoder`] of the same compression stores.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn new(compression: TierCompression) -> io::Result<Self> {
        match compression {
            // What has the page's own length is never decoded by a codec, so any of them will do.
            TierCompression::None | TierCompression::Lz4 => Ok(Self::Lz4),
            TierCompression::Zstd => {
                DCtx::try_create().map(Self::Zstd).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
            }
        }
    }

    /// Decodes `stored` into `page`; whether it was a page.
    pub(super) fn decode(&mut self, stored: &[u8], page: &mut [u8]) -> bool {
        if stored.len() == page.len() {
            page.copy_from_slice(stored);
            return true;
        }
        let decoded = match self {
            Self::Lz4 => decompress_into(stored, page).ok(),
            Self::Zstd(context) => context.decompress(page, stored).ok(),
        };
        decoded == Some(page.len())
    }
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
            for compression in [TierCompression::Lz4, TierCompression::Zstd, TierCompression::None] {
                let mut encoder = PageEncoder::new(compression, len);
                let mut decoder = PageDecoder::new(compression).unwrap();
                for _ in 0..2 {
                    let stored = encoder.encode(&history, &page);
                    prop_assert!(stored.len() <= page.len());
                    let mut found = vec![1; len];
                    prop_assert!(decoder.decode(stored, &mut found));
                    prop_assert_eq!(&found, &page);
                }
            }
        }

        #[test]
        fn what_is_no_page_is_refused(bytes in prop::collection::vec(any::<u8>(), 1..600)) {
            let mut page = vec![0; 4096];
            for compression in [TierCompression::Lz4, TierCompression::Zstd] {
                // It may happen to decode to a page, never to anything else; and it never panics.
                let _ = PageDecoder::new(compression).unwrap().decode(&bytes, &mut page);
            }
        }
    }

    #[test]
    fn zstd_shrinks_printable_characters_which_lz4_does_not() {
        let printable: Vec<u8> = noise(5, 4096).into_iter().map(|byte| b' ' + (byte & 63)).collect();
        let stored = |compression| {
            let history = CompressionHistory::default();
            PageEncoder::new(compression, 4096).encode(&history, &printable).len()
        };
        assert_eq!(stored(TierCompression::Lz4), 4096);
        // Six bits of eight, and the table of the code.
        assert!((3072..3300).contains(&stored(TierCompression::Zstd)), "{}", stored(TierCompression::Zstd));
    }

    #[test]
    fn pages_that_do_not_compress_are_tried_seldom_until_one_does() {
        let history = CompressionHistory::default();
        let mut encoder = PageEncoder::new(TierCompression::Lz4, 4096);
        let (poor, good) = (noise(1, 4096), vec![3; 4096]);
        for _ in 0..POOR_PAGES {
            assert_eq!(encoder.encode(&history, &poor).len(), 4096);
        }
        let stored: Vec<usize> = (0..2 * TRIED_PART).map(|_| encoder.encode(&history, &good).len()).collect();
        let first = stored.iter().position(|&len| len < 4096).unwrap();
        assert_eq!(first, TRIED_PART as usize - 1);
        assert!(stored[first..].iter().all(|&len| len < 4096), "from the first one on all are tried");
    }

    #[test]
    fn an_encoder_is_used_again_and_there_are_as_many_as_threads_encode_at_a_time() {
        let pool = EncoderPool::new(TierCompression::Zstd, 4096);
        let place = |encoder: &mut PageEncoder| encoder.output.as_ptr();
        let first = pool.with(place);
        assert_eq!(pool.with(place), first);
        pool.with(|one| {
            assert_eq!(place(one), first);
            assert_ne!(pool.with(place), first);
        });
        assert_eq!(pool.idle.lock().unwrap().len(), 2);
    }
}
