//! The keys and values that every load uses: 16-byte keys as `redis-benchmark -r` spells them, and random values.
//!
//! Relies on [`SplitMix64`] for the values, so that a run can be repeated from its seed.

use quire_rng::SplitMix64;

/// Bytes in every key.
pub const KEY_BYTES: usize = 16;
/// Digits of a number in a key.
pub const DIGITS: usize = 12;

/// Writes key number `index` (`key:` and twelve digits) to `to`.
pub fn write_key(index: u64, to: &mut [u8; KEY_BYTES]) {
    let (name, digits) = to.split_at_mut(4);
    name.copy_from_slice(b"key:");
    if let Some(digits) = digits.first_chunk_mut() {
        write_digits(index, digits);
    }
}

/// Writes the last twelve digits of `number` to `to`.
pub fn write_digits(number: u64, to: &mut [u8; DIGITS]) {
    let mut rest = number;
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Appends a command of these words to `to`.
pub fn push_command(to: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// Random bytes from which values are cut, so that making a value costs one copy.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    /// Values of `value_bytes` each.
    pub fn new(value_bytes: usize, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let mut pool = Vec::with_capacity((1 << 20) + value_bytes);
        while pool.len() < (1 << 20) + value_bytes {
            pool.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        Self { pool, value_bytes }
    }

    /// Values of `value_bytes` each, cut from `pool`, which is larger than a value.
    pub fn cut_from(pool: Vec<u8>, value_bytes: usize) -> Self {
        assert!(pool.len() > value_bytes, "{} bytes are too few for values of {value_bytes}", pool.len());
        Self { pool, value_bytes }
    }

    /// One value, chosen by `rng`.
    pub fn pick(&self, rng: &mut SplitMix64) -> &[u8] {
        let start = rng.below((self.pool.len() - self.value_bytes) as u64) as usize;
        &self.pool[start..start + self.value_bytes]
    }
}

/// Appends `SET key value` to `to`.
pub fn push_set(to: &mut Vec<u8>, key: u64, value: &[u8]) {
    let mut name = [0; KEY_BYTES];
    write_key(key, &mut name);
    to.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    to.extend_from_slice(&name);
    to.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Appends `GET key` to `to`.
pub fn push_get(to: &mut Vec<u8>, key: u64) {
    let mut name = [0; KEY_BYTES];
    write_key(key, &mut name);
    to.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    to.extend_from_slice(&name);
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelled_as_redis_benchmark_spells_them() {
        let mut key = [0; KEY_BYTES];
        write_key(2_999_999, &mut key);
        assert_eq!(&key, b"key:000002999999");
    }

    #[test]
    fn a_set_request_is_a_resp_array_of_three_bulks() {
        let mut request = Vec::new();
        push_set(&mut request, 7, b"ab");
        assert_eq!(request, b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$2\r\nab\r\n");
    }
}
