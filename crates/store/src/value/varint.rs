//! Lengths in packed values: seven bits a byte, lowest first, the top bit says that more follow.

use crate::error::{Result, StoreError};

/// A varint of 32 bits takes at most so many bytes.
const VARINT_MAX: usize = 5;

/// A packed value contradicts itself.
pub(crate) fn damaged() -> StoreError {
    StoreError::damaged("a packed value whose lengths don't add up")
}

/// Reads a varint; returns it and where it ends.
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize) -> Result<(usize, usize)> {
    let mut value = 0u64;
    for (place, &byte) in bytes.get(at..).unwrap_or_default().iter().take(VARINT_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((value as usize, at + place + 1));
        }
    }
    Err(damaged())
}

/// Bytes that a varint takes.
pub(crate) fn len(value: usize) -> usize {
    (1..VARINT_MAX).find(|bytes| value >> (7 * bytes) == 0).unwrap_or(VARINT_MAX)
}

/// Writes a varint to the front of `to`; returns how many bytes it takes.
pub(crate) fn write(to: &mut [u8], mut value: usize) -> usize {
    let bytes = len(value);
    for byte in &mut to[..bytes - 1] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    to[bytes - 1] = value as u8;
    bytes
}

/// Adds a varint.
pub(crate) fn push(to: &mut Vec<u8>, value: usize) {
    let mut bytes = [0; VARINT_MAX];
    let len = write(&mut bytes, value);
    to.extend_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_back_at_every_boundary() {
        for shift in 0..32 {
            for value in [(1usize << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let mut bytes = vec![7];
                push(&mut bytes, value);
                assert_eq!(read(&bytes, 1).unwrap(), (value, bytes.len()));
                assert_eq!(bytes.len() - 1, len(value));
            }
        }
        assert!(read(&[0x80; 9], 0).is_err());
    }
}
