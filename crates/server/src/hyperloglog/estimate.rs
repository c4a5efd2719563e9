//! The estimate from the values of the registers: Otmar Ertl's improved raw estimator ("New cardinality estimation algorithms for
//! HyperLogLog sketches", arXiv:1702.01284), which needs no table and no ranges. Only operations that IEEE 754 defines to the last bit
//! are used, so that every machine comes to the same estimate.

use super::{COUNTED_BITS, REGISTERS};

/// 1 / (2 ln 2)
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The estimate of registers of which so many have each value.
pub fn estimate(counts: &[u32; 64]) -> u64 {
    let registers = REGISTERS as f64;
    let highest = f64::from(counts[COUNTED_BITS as usize + 1]);
    let mut sum = registers * tau((registers - highest) / registers);
    for value in (1..=COUNTED_BITS as usize).rev() {
        sum = (sum + f64::from(counts[value])) * 0.5;
    }
    sum += registers * sigma(f64::from(counts[0]) / registers);
    let estimate = (ALPHA * registers * registers / sum).round();
    // Of registers that are all as high as can be, or higher, Redis says so.
    if estimate.is_finite() { estimate as u64 } else { 1 << 63 }
}

/// x + x^2 + 2 x^4 + 4 x^8 + …
fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// (1 - x - (1-x^(1/2))^2 / 2 - (1-x^(1/4))^2 / 4 - …) / 3
fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_range_have_estimates() {
        let mut counts = [0; 64];
        counts[0] = REGISTERS as u32;
        assert_eq!(estimate(&counts), 0);
        counts[0] -= 1;
        counts[1] = 1;
        assert_eq!(estimate(&counts), 1);
        let mut full = [0; 64];
        full[COUNTED_BITS as usize + 1] = REGISTERS as u32;
        assert_eq!(estimate(&full), 1 << 63);
        // No register can have such a value; hostile strings can.
        let mut hostile = [0; 64];
        hostile[63] = REGISTERS as u32;
        assert_eq!(estimate(&hostile), 1 << 63);
    }
}
