//! Whether a read is copied or remapped: what remapping gains against what it loses if the buffer is written (§4.3.4 of the
//! dissertation), by how much of the buffer is touched.
//!
//! Relies on what [`super::calibration`] has measured; before that nothing is remapped.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::use_history::UseShares;

/// Bytes of the reads that are measured, each twice the one before; between them is interpolated, beyond them in proportion.
pub const SIZES: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Remapping has to be faster by that share at least, in percent.
const LEAST_GAIN_PERCENT: u64 = 10;
/// Parts of a [`ReadCost`].
const PARTS: usize = 5;
/// No cost is taken for greater, so that none of the sums overflows.
const MOST_COST_NS: u64 = 1 << 28;

/// What a read of one size costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Copying it.
    pub read_ns: u64,
    /// Touching all of it after it was copied.
    pub read_touch_ns: u64,
    /// Remapping it.
    pub zread_ns: u64,
    /// Touching all of it after it was remapped.
    pub zread_touch_ns: u64,
    /// What it costs more if every page is stored to after it was remapped than after it was copied.
    pub cow_ns: u64,
}

impl ReadCost {
    fn parts(self) -> [u64; PARTS] {
        [self.read_ns, self.read_touch_ns, self.zread_ns, self.zread_touch_ns, self.cow_ns]
    }

    fn of_parts([read_ns, read_touch_ns, zread_ns, zread_touch_ns, cow_ns]: [u64; PARTS]) -> Self {
        Self { read_ns, read_touch_ns, zread_ns, zread_touch_ns, cow_ns }
    }
}

static COSTS: [[AtomicU64; PARTS]; SIZES.len()] = [const { [const { AtomicU64::new(0) }; PARTS] }; SIZES.len()];
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// What a probe of a read costs; at first what is usual.
static PROBE_NS: AtomicU32 = AtomicU32::new(1000);

/// Takes what was measured for [`SIZES`], and for a probe of a read that is copied all the same.
pub fn set(costs: &[ReadCost; SIZES.len()], probe_ns: u64) {
    for (places, cost) in COSTS.iter().zip(costs) {
        for (place, value) in places.iter().zip(cost.parts()) {
            place.store(value.min(MOST_COST_NS), Ordering::Relaxed);
        }
    }
    PROBE_NS.store(probe_ns.clamp(1, MOST_COST_NS) as u32, Ordering::Relaxed);
    // Release publishes the costs to `favours`.
    IS_KNOWN.store(true, Ordering::Release);
}

/// Whether it was measured, by this lease process or one before it.
pub fn is_known() -> bool {
    // Acquire pairs with the release in `set`.
    IS_KNOWN.load(Ordering::Acquire)
}

/// What a probe of a read costs that is copied all the same.
pub fn probe_ns() -> u32 {
    PROBE_NS.load(Ordering::Relaxed)
}

/// What `len` bytes cost, which are at most 2 GiB.
fn cost_of(len: usize) -> ReadCost {
    let last = SIZES.len() - 1;
    let above = SIZES.iter().position(|&size| len <= size).unwrap_or(last).max(1);
    // One size is twice the one before, so that a shift divides by what lies between.
    let (low, shift) = (SIZES[above - 1] as i64, SIZES[above - 1].trailing_zeros());
    ReadCost::of_parts(std::array::from_fn(|part| {
        let [from, to] = [above - 1, above].map(|at| COSTS[at][part].load(Ordering::Relaxed) as i64);
        // The difference is below 2^28, and the length below 2^31.
        u64::try_from(from + (((to - from) * (len as i64 - low)) >> shift)).unwrap_or(0)
    }))
}

/// What copying costs, and how much less remapping, if these shares of the pages are touched afterwards and none is written.
fn read_and_gain(cost: ReadCost, shares: UseShares) -> (u64, u64) {
    let touched = u64::from(shares.touched.min(1000));
    let read_ns = cost.read_ns + cost.read_touch_ns * touched / 1000;
    (read_ns, read_ns.saturating_sub(cost.zread_ns + cost.zread_touch_ns * touched / 1000))
}

/// Whether remapping is expected to lose less, if these shares of the pages are touched and written afterwards.
fn loses_less(cost: ReadCost, shares: UseShares) -> bool {
    let written = u64::from(shares.written.min(1000));
    let (read_ns, gain) = read_and_gain(cost, shares);
    gain * 100 > read_ns * LEAST_GAIN_PERCENT && cost.cow_ns * written < gain * (1000 - written)
}

/// Whether a read of `len` bytes shall be remapped, of which these shares of the pages are expected to be touched and written.
pub fn favours(len: usize, shares: UseShares) -> bool {
    is_known() && loses_less(cost_of(len), shares)
}

/// What is gained if a read of `len` bytes is remapped, of which these shares are touched and written: nothing where that is a loss.
pub fn gain_ns(len: usize, shares: UseShares) -> u32 {
    let cost = cost_of(len);
    let (_, gain) = read_and_gain(cost, shares);
    let lost = cost.cow_ns * u64::from(shares.written.min(1000)) / 1000;
    u32::try_from(gain.saturating_sub(lost)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = 1000;

    fn written(written: u32) -> UseShares {
        UseShares { touched: ALL, written }
    }

    #[test]
    fn a_buffer_that_is_written_is_copied_and_small_ones_too() {
        let cost = |read_ns, zread_ns, cow_ns| ReadCost { read_ns, zread_ns, cow_ns, ..ReadCost::default() };
        // Table 4.2 of the dissertation, 8 KB: a third of the pages may be written for 16 % of the gain.
        let paper = cost(3255, 2387, 4366);
        assert!(loses_less(paper, written(0)) && loses_less(paper, written(165)));
        assert!(!loses_less(paper, written(166)) && !loses_less(paper, written(1000)));
        assert!(!loses_less(cost(1000, 950, 10), written(0)), "too little to gain");
        assert!(!loses_less(cost(1000, 1500, 10), written(0)));
        assert!(loses_less(cost(1000, 500, 0), written(999)));
    }

    #[test]
    fn what_is_left_untouched_is_worth_a_remap_that_loses_when_all_is_touched() {
        let cost = ReadCost { read_ns: 1000, read_touch_ns: 200, zread_ns: 100, zread_touch_ns: 1500, cow_ns: 0 };
        let touched = |touched| UseShares { touched, written: 0 };
        assert!(loses_less(cost, touched(0)) && loses_less(cost, touched(500)));
        assert!(!loses_less(cost, touched(700)) && !loses_less(cost, UseShares::UNKNOWN));
    }

    #[test]
    fn costs_between_and_beyond_what_was_measured_lie_on_lines() {
        let _alone = crate::state::alone();
        let costs = SIZES.map(|size| {
            let size = size as u64;
            ReadCost { read_ns: size, read_touch_ns: 3 * size, zread_ns: 100, zread_touch_ns: 0, cow_ns: 2 * size }
        });
        set(&costs, 0);
        for len in [64 << 10, 100 << 10, 128 << 10, 1 << 20, 5 << 20, 8 << 10] {
            assert_eq!(cost_of(len as usize).parts(), [len, 3 * len, 100, 0, 2 * len]);
        }
        assert_eq!((gain_ns(1 << 20, UseShares::UNTOUCHED), probe_ns()), ((1 << 20) - 100, 1));
        assert_eq!(gain_ns(1 << 20, written(1000)), (4 << 20) - 100 - (2 << 20));
        set(&costs.map(|cost| ReadCost { zread_ns: u64::MAX, ..cost }), u64::MAX);
        assert!(gain_ns(1 << 20, UseShares::UNTOUCHED) == 0 && cost_of(0x7fff_f000).zread_ns == MOST_COST_NS);
        IS_KNOWN.store(false, Ordering::Relaxed);
        PROBE_NS.store(1000, Ordering::Relaxed);
    }
}
