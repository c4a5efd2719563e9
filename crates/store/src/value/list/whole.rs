//! A short list as one run of bytes: a count, then its elements.
//!
//! ```text
//! 0  count u16, little endian
//! 2  elements, see `packed`
//! ```

use crate::error::Result;
use crate::value::varint::damaged;

/// Bytes of the count.
pub(super) const COUNT_BYTES: usize = 2;
/// Elements that the count can tell: more than fit into the largest packed list.
pub(super) const MAX_COUNT: usize = u16::MAX as usize;

/// How many elements a packed list says it has, and their bytes.
pub(super) fn parts(bytes: &[u8]) -> Result<(usize, &[u8])> {
    match bytes.split_first_chunk::<COUNT_BYTES>() {
        Some((count, elements)) => Ok((u16::from_le_bytes(*count) as usize, elements)),
        None => Err(damaged()),
    }
}

/// Says how many elements there are, at most [`MAX_COUNT`].
pub(super) fn set_count(bytes: &mut [u8], count: usize) {
    bytes[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
}
