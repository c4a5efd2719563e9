//! Skewed choice: rank 1 most often, rank k with a probability in proportion to 1 / k^skew.
//!
//! Relies on rejection-inversion (W. Hörmann, G. Derflinger, 1996), which needs no tables whatever the number of ranks.
//! [`RankPermutation`] lays the ranks over the keys, so that popular ones don't lie together in memory. A seed's sequence of
//! ranks never changes: loads that are compared with former results are made of it.

use crate::SplitMix64;

/// A Zipf distribution over ranks 0 … n − 1.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    ranks: f64,
    skew: f64,
    low: f64,
    high: f64,
    sure: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks (at least one) with exponent `skew`, which is not negative.
    pub fn new(ranks: u64, skew: f64) -> Self {
        let mut zipf = Self { ranks: ranks.max(1) as f64, skew: skew.max(0.0), low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.place(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The next rank.
    pub fn sample(&self, rng: &mut SplitMix64) -> u64 {
        loop {
            let area = self.high + rng.next_f64() * (self.low - self.high);
            let place = self.place(area);
            let rank = place.round().clamp(1.0, self.ranks);
            if rank - place <= self.sure || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, at: f64) -> f64 {
        (-self.skew * at.ln()).exp()
    }

    /// The integral of the weight from 1 to `to`.
    fn area(&self, to: f64) -> f64 {
        let log = to.ln();
        let exponent = (1.0 - self.skew) * log;
        if exponent.abs() < 1e-8 { log * (1.0 + exponent / 2.0) } else { exponent.exp_m1() / exponent * log }
    }

    /// The inverse of the integral.
    fn place(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.skew)).max(-1.0);
        let log = if scaled.abs() < 1e-8 { area * (1.0 - scaled / 2.0) } else { scaled.ln_1p() / scaled * area };
        log.exp()
    }
}

/// A fixed permutation of the keys.
#[derive(Debug, Clone, Copy)]
pub struct RankPermutation {
    keys: u64,
    stride: u64,
    shift: u64,
}

impl RankPermutation {
    /// The permutation of `keys` keys that belongs to `seed`.
    pub fn new(keys: u64, seed: u64) -> Self {
        let keys = keys.max(1);
        // Primes far apart; one of them does not divide the number of keys, and then each rank has a key of its own.
        let primes = [2_654_435_761, 2_246_822_519, 3_266_489_917];
        let stride = (0..3).map(|turn| primes[((seed + turn) % 3) as usize]).find(|prime| !keys.is_multiple_of(*prime));
        Self { keys, stride: stride.unwrap_or(1), shift: SplitMix64::new(seed).below(keys) }
    }

    /// The key of `rank`.
    pub fn key(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.stride) + u128::from(self.shift)) % u128::from(self.keys)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_the_law() {
        for skew in [0.0, 0.5, 0.9, 1.0, 1.1, 2.0] {
            let (zipf, mut rng, rolls) = (Zipf::new(1000, skew), SplitMix64::new(5), 200_000);
            let mut counts = vec![0_u32; 1000];
            (0..rolls).for_each(|_| counts[zipf.sample(&mut rng) as usize] += 1);
            let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-skew)).sum();
            for rank in [1, 2, 3, 10, 100] {
                let expected = f64::from(rolls) * f64::from(rank).powf(-skew) / total;
                let seen = f64::from(counts[rank as usize - 1]);
                assert!(
                    (seen - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                    "skew {skew} rank {rank}: {seen} {expected}"
                );
            }
        }
    }

    #[test]
    fn the_sequence_of_a_seed_stays_as_it_is() {
        let (zipf, mut rng) = (Zipf::new(1_000_000, 0.99), SplitMix64::new(1));
        assert_eq!([(); 6].map(|()| zipf.sample(&mut rng)), [367, 25, 0, 2_135, 2_138, 19]);
        let permutation = RankPermutation::new(1_000_000, 1);
        assert_eq!([0, 1, 2].map(|rank| permutation.key(rank)), [566_561, 389_080, 211_599]);
    }

    #[test]
    fn one_rank_is_always_drawn() {
        let mut rng = SplitMix64::new(1);
        assert!((0..100).all(|_| Zipf::new(1, 1.0).sample(&mut rng) == 0));
    }

    #[test]
    fn every_rank_has_a_key_of_its_own() {
        for seed in 0..4 {
            let scatter = RankPermutation::new(10_000, seed);
            let mut seen = vec![false; 10_000];
            (0..10_000).for_each(|rank| seen[scatter.key(rank) as usize] = true);
            assert!(seen.iter().all(|&taken| taken));
        }
    }
}
