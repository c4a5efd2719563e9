//! Random numbers that follow from a seed, so that what failed can be run again.
//!
//! Relies on nothing. The sequence of a seed never changes: loads that are compared with former results are made of it.

#![forbid(unsafe_code)]

pub mod zipf;

/// What the state grows by with each number: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A small, fast generator (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Any seed will do.
///
/// ```
/// use quire_rng::SplitMix64;
///
/// let (mut one, mut other) = (SplitMix64::new(7), SplitMix64::new(7));
/// assert_eq!(one.next_u64(), other.next_u64());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(GAMMA);
        number
    }

    /// A number below `bound`; 0 if there is none.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into something of `len` items; 0 if it has none.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from 0 to less than 1.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True once in two times.
    #[inline]
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// Spreads the bits of a number: numbers that are close come to lie far apart. It is what `number` as a seed gives first.
#[inline]
pub const fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(GAMMA);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_one_that_the_paper_gives() {
        let mut rng = SplitMix64::new(1_234_567);
        let numbers = [(); 3].map(|()| rng.next_u64());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut rng = SplitMix64::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.below(3)).collect();
        assert!(drawn.iter().all(|&number| number < 3) && drawn.contains(&0) && drawn.contains(&2));
        assert_eq!((rng.below(0), rng.index(0)), (0, 0));
    }

    #[test]
    fn a_coin_shows_both_sides_and_fractions_stay_below_one() {
        let mut rng = SplitMix64::new(0);
        let heads = (0..1000).filter(|_| rng.coin()).count();
        assert!((400..600).contains(&heads));
        assert!((0..1000).map(|_| rng.next_f64()).all(|number| (0.0..1.0).contains(&number)));
    }

    #[test]
    fn every_byte_of_an_odd_length_is_filled() {
        let bytes = SplitMix64::new(7).bytes(1003);
        assert_eq!(bytes.len(), 1003);
        assert!(bytes.chunks(16).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
    }
}
