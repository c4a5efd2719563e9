//! The random numbers of every load: one small generator, so that a run can be repeated from its seed.
//!
//! Relies on nothing. Skewed choices are made of it in [`crate::zipf`].

/// A small, fast generator of numbers that are random enough for loads (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut dice = Dice::new(1);
        let rolls: Vec<u64> = (0..1000).map(|_| dice.below(3)).collect();
        assert!(rolls.iter().all(|&roll| roll < 3) && rolls.contains(&0) && rolls.contains(&2));
    }
}
