//! A small stream as one run of bytes: what it says of itself, then its entries as one block (see `block`) if it has any. One with groups is
//! never packed.
//!
//! ```text
//! 0  last ID, ms u64 · seq u64 · highest ID deleted, ms u64 · seq u64 · entries added u64      (little endian)
//! 40 block
//! ```

use crate::error::{Result, StoreError};

use super::block::{self, BlockHeader};
use super::id::StreamId;

/// Bytes of the fixed part.
pub(super) const HEADER_BYTES: usize = 40;

/// What a stream says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PackedHeader {
    pub(super) last_id: StreamId,
    pub(super) max_deleted_id: StreamId,
    /// Entries that were added, whatever became of them.
    pub(super) added: u64,
}

impl PackedHeader {
    /// The fixed part, and the block behind it, which is empty if there are no entries.
    pub(super) fn split(bytes: &[u8]) -> Result<(PackedHeader, &[u8])> {
        let Some((fixed, block)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(StoreError::damaged("a packed stream cut short"));
        };
        let word = |at: usize| fixed[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let id = |at| StreamId { ms: word(at), seq: word(at + 8) };
        Ok((PackedHeader { last_id: id(0), max_deleted_id: id(16), added: word(32) }, block))
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let words = [self.last_id.ms, self.last_id.seq, self.max_deleted_id.ms, self.max_deleted_id.seq, self.added];
        let mut bytes = [0; HEADER_BYTES];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }
}

/// Entries of the block of a packed stream.
pub(super) fn count(block: &[u8]) -> Result<u64> {
    if block.is_empty() { Ok(0) } else { Ok(BlockHeader::read(block)?.count.into()) }
}

/// Checks a packed stream.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let (header, block) = PackedHeader::split(bytes)?;
    if block.is_empty() {
        return Ok(());
    }
    let (count, last) = block::check(block, None)?;
    if count > 0 && last <= Some(header.last_id) {
        Ok(())
    } else {
        Err(StoreError::damaged("a packed stream whose entries are not those that it says"))
    }
}
