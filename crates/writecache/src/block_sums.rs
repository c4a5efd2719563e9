//! Checksums of the blocks in the log, kept in memory: a block is verified whenever it leaves the log.
//!
//! A record on the device has one checksum for all of its blocks, which a start verifies. For one block a reader would have to
//! read the whole record, up to a megabyte. So the thread that writes a record notes a checksum of each of its blocks, and the reader of the log
//! at the start does so for what it has verified. What a task reads, what write-back or relocation moves, and the rest of a block of which a
//! write changes a part all come through here: a bit that the device has lost is an error of that device, as an unreadable
//! sector is, and gets no new checksum and no place on a slow device.
//!
//! 4 bytes for each block of 4096, and a map's entry for each record. A block of which nothing is noted does not fit.

use std::collections::BTreeMap;

use quire_device::{Device, DeviceError, DeviceOperation};
use twox_hash::XxHash3_64;

use crate::format::AREA_OFFSET;
use crate::ids::BLOCK_BYTES;

/// The checksum of one block: the low half of its XXH3.
fn block_sum(block: &[u8]) -> u32 {
    XxHash3_64::oneshot(block) as u32
}

/// The checksums of blocks that follow each other.
pub fn sums_of(blocks: &[u8]) -> Box<[u32]> {
    blocks.chunks_exact(BLOCK_BYTES).map(block_sum).collect()
}

/// Of all records in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    /// By the position of a record's first block.
    records: BTreeMap<u64, Box<[u32]>>,
}

impl BlockSums {
    /// The record whose first block is at `position` is there.
    pub fn note(&mut self, position: u64, sums: Box<[u32]>) {
        if !sums.is_empty() {
            self.records.insert(position, sums);
        }
    }

    /// Of the blocks at these positions.
    pub fn expected(&self, positions: impl IntoIterator<Item = u64>) -> ExpectedSums {
        let of = |position: u64| Some((position, self.of(position)?));
        ExpectedSums { sums: positions.into_iter().filter_map(of).collect() }
    }

    fn of(&self, position: u64) -> Option<u32> {
        let (first, sums) = self.records.range(..=position).next_back()?;
        sums.get(((position - first) / BLOCK_BYTES as u64) as usize).copied()
    }

    /// The log begins at `lsn`.
    pub fn free_up_to(&mut self, lsn: u64) {
        while let Some(record) = self.records.first_entry().filter(|record| *record.key() < lsn) {
            record.remove();
        }
    }

    /// The log is given up.
    pub fn clear(&mut self) {
        self.records.clear();
    }
}

/// Of blocks that are about to be read, by their positions.
#[derive(Clone, Debug, Default)]
pub struct ExpectedSums {
    sums: BTreeMap<u64, u32>,
}

impl ExpectedSums {
    /// Whether the block at `position` is as it was written.
    pub fn fits(&self, position: u64, block: &[u8]) -> bool {
        self.sums.get(&position) == Some(&block_sum(block))
    }

    /// Whether all blocks at these positions, which were read from a log of `area` bytes in this order, are as they were written.
    ///
    /// # Errors
    /// The first one that isn't.
    pub fn check(
        &self,
        positions: impl Iterator<Item = u64>,
        blocks: &[u8],
        fast: &dyn Device,
        area: u64,
    ) -> Result<(), DeviceError> {
        let mut read = positions.zip(blocks.chunks_exact(BLOCK_BYTES));
        let damaged = read.find(|(position, block)| !self.fits(*position, block));
        damaged.map_or(Ok(()), |(position, _)| Err(damage(fast, position, area)))
    }
}

/// The device gives other bytes for this block than were written.
fn damage(fast: &dyn Device, position: u64, area: u64) -> DeviceError {
    let cause = std::io::Error::from(std::io::ErrorKind::InvalidData);
    DeviceError::new(DeviceOperation::Read, fast.name(), &cause).at(AREA_OFFSET + position % area, BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(value: u8) -> Vec<u8> {
        vec![value; BLOCK_BYTES]
    }

    #[test]
    fn a_block_fits_where_it_was_noted_and_nowhere_else_until_its_record_is_freed() {
        let mut known = BlockSums::default();
        known.note(512, sums_of(&[block(1), block(2)].concat()));
        known.note(20_480, sums_of(&block(3)));
        known.note(30_000, sums_of(&[]));
        let (second, third) = (512 + BLOCK_BYTES as u64, 20_480);
        let expected = known.expected([512, second, third, second + BLOCK_BYTES as u64, 30_000]);
        assert!(expected.fits(512, &block(1)) && expected.fits(second, &block(2)) && expected.fits(third, &block(3)));
        assert!(!expected.fits(512, &block(2)) && !expected.fits(second, &block(1)));
        assert!(!expected.fits(second + BLOCK_BYTES as u64, &block(2)), "behind the record");
        assert!(!expected.fits(30_000, &block(3)) && !expected.fits(7, &block(1)), "nothing was noted");
        let mut damaged = block(3);
        damaged[4095] ^= 1;
        assert!(!expected.fits(third, &damaged));
        known.free_up_to(third - 512);
        let expected = known.expected([512, second, third]);
        assert!(!expected.fits(512, &block(1)) && !expected.fits(second, &block(2)) && expected.fits(third, &block(3)));
        known.clear();
        assert_eq!(known, BlockSums::default());
    }
}
