//! The writes of CCoW's microbenchmark (section 4.1): blocks of 1 KiB, chosen by a Zipf distribution, overwritten whole with
//! data that was made beforehand.
//!
//! Relies on the draw being made between the writes, as in the paper, so it is part of the throughput of every
//! configuration. The paper does not say which block is the most popular one. Here block *k* has rank *k* ([`BlockLayout::Ordered`]):
//! popular blocks are neighbours, which gives regions different coverages, as the paper's thresholds presuppose. With
//! [`BlockLayout::Scattered`] all regions have the same coverage.

use quire_snapshot::{OriginAccess, PAGE_SIZE};
use serde::Serialize;

use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 1024;

/// Where popular blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockLayout {
    /// In the order of their popularity.
    Ordered,
    /// Anywhere.
    Scattered,
}

/// A stream of writes.
#[derive(Debug, Clone)]
pub struct WriteWorkload {
    zipf: Zipf,
    scatter: Option<RankPermutation>,
    rng: SplitMix64,
    data: Vec<u8>,
    /// A bit for each page that was written since the last call of `take_written`.
    written: Vec<u64>,
}

impl WriteWorkload {
    /// Over a range of `bytes`.
    pub fn new(bytes: usize, skew: f64, layout: BlockLayout, seed: u64) -> Self {
        let blocks = (bytes / BLOCK_BYTES) as u64;
        let mut rng = SplitMix64::new(seed);
        let data = (0..2 * BLOCK_BYTES).map(|_| rng.next_u64() as u8).collect();
        let scatter = (layout == BlockLayout::Scattered).then(|| RankPermutation::new(blocks, seed));
        let written = vec![0; (bytes / PAGE_SIZE).div_ceil(64)];
        Self { zipf: Zipf::new(blocks, skew), scatter, rng, data, written }
    }

    fn offset(&mut self) -> usize {
        let rank = self.zipf.sample(&mut self.rng);
        let block = self.scatter.map_or(rank, |scatter| scatter.key(rank));
        block as usize * BLOCK_BYTES
    }

    /// How many different pages were written since this was last asked.
    pub fn take_written(&mut self) -> u64 {
        let count = self.written.iter().map(|word| u64::from(word.count_ones())).sum();
        self.written.fill(0);
        count
    }

    /// The next `count` writes.
    pub fn write(&mut self, access: &OriginAccess, count: usize) {
        for number in 0..count {
            let offset = self.offset();
            // Another part of the data each time: a page that is written with what it holds would count as not needed.
            let from = number * 8 % BLOCK_BYTES;
            let page = offset / PAGE_SIZE;
            self.written[page / 64] |= 1 << (page % 64);
            access.write(offset, &self.data[from..from + BLOCK_BYTES]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_blocks_come_first_or_anywhere() {
        let bytes = 4 << 20;
        let in_first_tenth = |layout| {
            let mut workload = WriteWorkload::new(bytes, 1.0, layout, 3);
            (0..10_000).filter(|_| workload.offset() < bytes / 10).count()
        };
        assert!(in_first_tenth(BlockLayout::Ordered) > 6000);
        assert!(in_first_tenth(BlockLayout::Scattered) < 3000);
    }

    #[test]
    fn blocks_are_aligned_and_inside() {
        let mut workload = WriteWorkload::new(1 << 20, 0.9, BlockLayout::Scattered, 3);
        for _ in 0..10_000 {
            let offset = workload.offset();
            assert!(offset.is_multiple_of(BLOCK_BYTES) && offset < 1 << 20);
        }
    }
}
