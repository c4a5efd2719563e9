//! Whether a read is to be remapped: the expected loss of copying against that of remapping (§4.3.4 of the dissertation).
//!
//! Relies on what [`super::calibration`] has measured; before that nothing is remapped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the reads that are measured; between them is interpolated, beyond them in proportion.
pub const SIZES: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Remapping has to be faster by that share at least, in percent.
const LEAST_GAIN_PERCENT: u64 = 10;

/// What a read of one size costs, in nanoseconds, touching all of it included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// By copying.
    pub read_ns: u64,
    /// By remapping.
    pub zread_ns: u64,
    /// What it costs more if every page is stored to after it was remapped than after it was copied.
    pub cow_ns: u64,
}

static COSTS: [[AtomicU64; 3]; SIZES.len()] = [const { [const { AtomicU64::new(0) }; 3] }; SIZES.len()];
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Takes what was measured for [`SIZES`].
pub fn set(costs: &[ReadCost; SIZES.len()]) {
    for (places, cost) in COSTS.iter().zip(costs) {
        for (place, value) in places.iter().zip([cost.read_ns, cost.zread_ns, cost.cow_ns]) {
            place.store(value, Ordering::Relaxed);
        }
    }
    // Release publishes the costs to `favours`.
    IS_KNOWN.store(true, Ordering::Release);
}

/// What was measured.
pub fn costs() -> [ReadCost; SIZES.len()] {
    std::array::from_fn(|at| {
        let [read_ns, zread_ns, cow_ns] = [0, 1, 2].map(|part| COSTS[at][part].load(Ordering::Relaxed));
        ReadCost { read_ns, zread_ns, cow_ns }
    })
}

/// What `len` bytes cost by `costs`.
fn cost_of(costs: &[ReadCost; SIZES.len()], len: usize) -> ReadCost {
    let last = SIZES.len() - 1;
    let above = SIZES.iter().position(|&size| len <= size).unwrap_or(last).max(1);
    let (low, high) = (SIZES[above - 1] as i128, SIZES[above] as i128);
    let value = |part: fn(&ReadCost) -> u64| {
        let (from, to) = (i128::from(part(&costs[above - 1])), i128::from(part(&costs[above])));
        let at = from + (to - from) * (len as i128 - low) / (high - low);
        u64::try_from(at).unwrap_or(0)
    };
    ReadCost {
        read_ns: value(|cost| cost.read_ns),
        zread_ns: value(|cost| cost.zread_ns),
        cow_ns: value(|cost| cost.cow_ns),
    }
}

/// Whether remapping is expected to lose less, if that share of the pages is written afterwards.
fn loses_less(cost: ReadCost, written_permille: u32) -> bool {
    let gain = cost.read_ns.saturating_sub(cost.zread_ns);
    let written = u64::from(written_permille.min(1000));
    gain * 100 > cost.read_ns * LEAST_GAIN_PERCENT && cost.cow_ns * written < gain * (1000 - written)
}

/// Whether a read of `len` bytes shall be remapped, of which that share of pages is expected to be written.
pub fn favours(len: usize, written_permille: u32) -> bool {
    // Acquire pairs with the release in `set`.
    IS_KNOWN.load(Ordering::Acquire) && loses_less(cost_of(&costs(), len), written_permille)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_written_is_copied_and_small_ones_too() {
        let cost = |read_ns, zread_ns, cow_ns| ReadCost { read_ns, zread_ns, cow_ns };
        // Table 4.2 of the dissertation, 8 KB: a third of the pages may be written for 16 % of the gain.
        let paper = cost(3255, 2387, 4366);
        assert!(loses_less(paper, 0) && loses_less(paper, 165) && !loses_less(paper, 166) && !loses_less(paper, 1000));
        assert!(!loses_less(cost(1000, 950, 10), 0), "too little to gain");
        assert!(!loses_less(cost(1000, 1500, 10), 0));
        assert!(loses_less(cost(1000, 500, 0), 999));
    }

    #[test]
    fn costs_between_and_beyond_what_was_measured_lie_on_lines() {
        let costs = SIZES.map(|size| ReadCost { read_ns: size as u64, zread_ns: 100, cow_ns: 2 * size as u64 });
        for len in [64 << 10, 100 << 10, 128 << 10, 1 << 20, 5 << 20, 8 << 10] {
            let cost = cost_of(&costs, len);
            assert_eq!((cost.read_ns, cost.zread_ns, cost.cow_ns), (len as u64, 100, 2 * len as u64));
        }
    }
}
