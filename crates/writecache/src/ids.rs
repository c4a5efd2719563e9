//! Names and units of the cache: volumes, places of blocks, bytes of a block, order of writes.
//!
//! Relies on nothing.

use std::fmt;
use std::sync::Arc;

/// Bytes of a block: what is cached, ordered and written back as one.
pub const BLOCK_BYTES: usize = 4096;

/// A slow device behind the cache. The number is chosen by the caller that opens it and must be the same after a restart, since
/// the log names volumes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct VolumeId(pub u64);

impl fmt::Display for VolumeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "volume {}", self.0)
    }
}

/// A block of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddr {
    /// The volume.
    pub volume: VolumeId,
    /// Which of its blocks, from 0.
    pub block: u64,
}

impl BlockAddr {
    /// Offset in the volume, in bytes.
    pub fn offset(self) -> u64 {
        self.block * BLOCK_BYTES as u64
    }

    /// The block `count` further on.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self { volume: self.volume, block: self.block + count }
    }
}

/// Order of writes as they came in, over all volumes. Lives in memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

/// Blocks that share memory: one that is kept for long keeps so many.
const SHARED_BLOCKS: usize = 8;

/// The bytes of one block. A few neighbours of one write share their memory.
#[derive(Clone)]
pub struct BlockData {
    whole: Arc<[u8]>,
    start: usize,
}

impl BlockData {
    /// The blocks of `bytes`, whose length is a multiple of [`BLOCK_BYTES`].
    pub fn split_blocks(bytes: &[u8]) -> Vec<Self> {
        let mut pieces = Vec::with_capacity(bytes.len() / BLOCK_BYTES);
        for shared in bytes.chunks(SHARED_BLOCKS * BLOCK_BYTES) {
            let whole: Arc<[u8]> = shared.into();
            let starts = (0..shared.len() / BLOCK_BYTES).map(|index| index * BLOCK_BYTES);
            pieces.extend(starts.map(|start| Self { whole: Arc::clone(&whole), start }));
        }
        pieces
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.whole[self.start..self.start + BLOCK_BYTES]
    }
}

impl fmt::Debug for BlockData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BlockData({:02x?}…)", &self.bytes()[..8])
    }
}
