//! The checksum of RDB files and payloads: CRC-64 by Jones' polynomial, begun with 0.

use crc::{CRC_64_REDIS, Crc, Digest, Table};

static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of the bytes so far.
#[derive(Clone)]
pub(crate) struct Checksum(Digest<'static, u64, Table<16>>);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Checksum({:016x})", self.value())
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self(CRC64.digest())
    }
}

impl Checksum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.clone().finalize()
    }
}

/// The checksum of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    CRC64.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_redis_polynomial_in_pieces_and_at_once() {
        // The check value of the polynomial.
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let mut pieces = Checksum::default();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!(pieces.value(), 0xe9c6_d914_c4b8_d9ca);
    }
}
