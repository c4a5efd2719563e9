//! The last blocks that were written to a file: what is appended next continues them, and in a log they come again.
//!
//! A task that appends a few bytes changes a block of which it has only that part; the rest need not be read from a device.
//! And programs append to their logs in pages and write a page anew whenever something was added to it; what stood in it
//! before, often whole blocks, comes along unchanged. Such a block need not be written: its newest version, wherever it is
//! on its way, says the same, and a task that waits for the later write waits for that.
//!
//! Relies on being told of every write to the volume, and on being forgotten when bytes change in another way.

use crate::ids::{BLOCK_BYTES, BlockData};

/// Blocks that are remembered.
pub const BLOCKS: usize = 4;

/// The last blocks written to a volume.
#[derive(Debug, Default)]
pub struct VolumeTail {
    blocks: [Option<(u64, BlockData)>; BLOCKS],
    next: usize,
}

impl VolumeTail {
    /// How many of `pieces`, which are written from block `first` on, are there already, from the first on.
    pub fn known(&self, first: u64, pieces: &[BlockData]) -> usize {
        let same = |(index, piece): &(usize, &BlockData)| {
            self.block(first + *index as u64).is_some_and(|known| known.bytes() == piece.bytes())
        };
        pieces.iter().enumerate().take_while(same).count()
    }

    /// The newest bytes of a block, if they are known.
    pub fn block(&self, block: u64) -> Option<&BlockData> {
        self.blocks.iter().flatten().find(|(known, _)| *known == block).map(|(_, piece)| piece)
    }

    /// These pieces are written from block `first` on; the last `most` are to be remembered.
    pub fn note(&mut self, first: u64, pieces: &[BlockData], most: usize) {
        let end = first + pieces.len() as u64;
        for slot in &mut self.blocks {
            if slot.as_ref().is_some_and(|(block, _)| (first..end).contains(block)) {
                *slot = None;
            }
        }
        let skipped = pieces.len().saturating_sub(most.min(BLOCKS));
        for (index, piece) in pieces.iter().enumerate().skip(skipped) {
            // Its own memory: the piece's neighbours are not to be kept for its sake.
            let own = BlockData::split_blocks(&piece.bytes()[..BLOCK_BYTES]).pop();
            self.blocks[self.next] = own.map(|own| (first + index as u64, own));
            self.next = (self.next + 1) % BLOCKS;
        }
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.blocks = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(values: &[u8]) -> Vec<BlockData> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| vec![*value; BLOCK_BYTES]).collect();
        BlockData::split_blocks(&bytes)
    }

    #[test]
    fn blocks_written_again_as_they_were_are_known_up_to_the_first_that_differs() {
        let mut tail = VolumeTail::default();
        tail.note(7, &pieces(&[1, 2]), BLOCKS);
        assert_eq!(tail.known(7, &pieces(&[1, 2])), 2);
        assert_eq!(tail.known(7, &pieces(&[1, 3])), 1);
        assert_eq!(tail.known(8, &pieces(&[2, 3])), 1);
        assert_eq!(tail.known(7, &pieces(&[3, 2])), 0);
        tail.note(8, &pieces(&[9]), 1);
        assert_eq!(tail.known(7, &pieces(&[1, 2])), 1, "the newest version counts");
        tail.note(20, &pieces(&[1, 2, 3, 4, 5, 6]), BLOCKS);
        assert_eq!(tail.known(22, &pieces(&[3, 4, 5, 6])), 4);
        assert_eq!(tail.known(7, &pieces(&[1])), 0, "only the last ones are remembered");
        tail.note(24, &pieces(&[7]), 0);
        assert!(tail.block(24).is_none(), "what is not to be remembered is not remembered wrongly");
        tail.forget();
        assert_eq!(tail.known(22, &pieces(&[3])), 0);
    }
}
