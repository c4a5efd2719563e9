//! A connection's batch of requests, encoded once: for each batch only the digits of its random numbers are written anew.
//!
//! Relies on [`RANDOM`] being as long as the digits that replace it, so that no length in the requests changes.

use quire_rng::SplitMix64;

use crate::redis_benchmark::RANDOM;
use crate::requests;

/// Requests of the same words, behind each other.
#[derive(Debug, Clone)]
pub struct RequestBatch {
    bytes: Vec<u8>,
    /// Where digits stand.
    digits_at: Vec<usize>,
}

impl RequestBatch {
    /// `count` requests of `words`, each with the words `__rand_int__` in it as they are.
    pub fn new(words: &[&str], count: usize) -> Self {
        let mut bytes = Vec::new();
        (0..count).for_each(|_| requests::push_command(&mut bytes, words));
        let places = bytes.windows(RANDOM.len()).enumerate();
        let digits_at = places.filter(|(_, part)| *part == RANDOM.as_bytes()).map(|(at, _)| at).collect();
        Self { bytes, digits_at }
    }

    /// Draws all numbers, below `keys`.
    pub fn draw(&mut self, rng: &mut SplitMix64, keys: u64) {
        for &at in &self.digits_at {
            if let Some(digits) = self.bytes[at..].first_chunk_mut() {
                requests::write_digits(rng.below(keys), digits);
            }
        }
    }

    /// The requests.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_gets_twelve_digits_of_a_number_of_its_own_and_all_else_stays() {
        let mut batch = RequestBatch::new(&["SET", "a:__rand_int__:__rand_int__", "b"], 2);
        let mut rng = SplitMix64::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            batch.draw(&mut rng, 1000);
            let text = String::from_utf8(batch.bytes().to_vec()).unwrap();
            let requests: Vec<&str> = text.split_inclusive("b\r\n").collect();
            assert_eq!(requests.len(), 2);
            for request in requests {
                let digits = request.strip_prefix("*3\r\n$3\r\nSET\r\n$27\r\na:").unwrap();
                let (one, other) = digits.strip_suffix("\r\n$1\r\nb\r\n").unwrap().split_once(':').unwrap();
                for digits in [one, other] {
                    assert_eq!(digits.len(), 12);
                    assert!(digits.parse::<u64>().unwrap() < 1000, "{digits}");
                    seen.insert(digits.to_owned());
                }
            }
        }
        assert!(seen.len() > 40, "{} of 80 numbers below 1000 differ", seen.len());
    }
}
