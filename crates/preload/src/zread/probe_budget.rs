//! Whether probes of reads pay: what they have gained and cost lately, for one buffer or for all.
//!
//! Relies on atomics alone; two threads that use it at once may count as one. A probe asks the kernel which file is read, where and how, and costs
//! as much as a read of some KiB. While probes end in copies all the same, they are made for one read in many.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Most reads that are copied between two probes, a power of two.
pub const MOST_SKIPPED: u32 = 512;
/// A probe that is late comes after so many of them, a power of two: then time counts.
pub const LEAST_SKIPPED: u32 = 16;
/// A probe is late after this time.
const LATE_MS: u32 = 20;
/// Probes in vain that are paid for in advance by those that gained, and that are owed, at most.
const MOST_PAID: i32 = 64;
const MOST_OWED: i32 = 4;

/// What probes have brought. Zeros are the beginning.
#[derive(Debug, Default)]
pub struct ProbeBudget {
    /// Nanoseconds gained, less those that probes have cost.
    credit_ns: AtomicI32,
    /// Reads that are copied before the next probe.
    skips: AtomicU32,
    /// How many these were at first the last time.
    backoff: AtomicU32,
    /// When the last probe was in vain, in the low bits of milliseconds.
    probed_ms: AtomicU32,
}

impl ProbeBudget {
    /// Probes have brought nothing yet.
    pub const fn new() -> Self {
        Self {
            credit_ns: AtomicI32::new(0),
            skips: AtomicU32::new(0),
            backoff: AtomicU32::new(0),
            probed_ms: AtomicU32::new(0),
        }
    }

    /// Whether nothing is known.
    pub fn is_new(&self) -> bool {
        self.backoff.load(Ordering::Relaxed) == 0 && self.credit_ns.load(Ordering::Relaxed) == 0
    }

    /// Whether probes have cost more than they gained, so that few reads are probed.
    pub fn is_in_debt(&self) -> bool {
        self.backoff.load(Ordering::Relaxed) != 0
    }

    /// Whether a read is probed.
    #[inline]
    pub fn admits(&self, now_ms: impl Fn() -> u64) -> bool {
        let left = self.skips.load(Ordering::Relaxed);
        if left == 0 {
            return true;
        }
        // The clock is asked for one read in so many.
        let may_be_late = left.is_multiple_of(LEAST_SKIPPED) && left < self.backoff.load(Ordering::Relaxed);
        if may_be_late && (now_ms() as u32).wrapping_sub(self.probed_ms.load(Ordering::Relaxed)) >= LATE_MS {
            self.skips.store(0, Ordering::Relaxed);
            return true;
        }
        self.skips.store(left - 1, Ordering::Relaxed);
        false
    }

    /// A probe, which costs so much, was in vain.
    pub fn lost(&self, probe_ns: u32, now_ms: u64) {
        let probe_ns = i32::try_from(probe_ns).unwrap_or(i32::MAX);
        let credit_ns = self.credit_ns.load(Ordering::Relaxed).saturating_sub(probe_ns);
        self.credit_ns.store(credit_ns.max(probe_ns.saturating_mul(-MOST_OWED)), Ordering::Relaxed);
        if credit_ns < 0 {
            let backoff = self.backoff.load(Ordering::Relaxed).saturating_mul(2).clamp(1, MOST_SKIPPED);
            self.probed_ms.store(now_ms as u32, Ordering::Relaxed);
            self.backoff.store(backoff, Ordering::Relaxed);
            self.skips.store(backoff, Ordering::Relaxed);
        }
    }

    /// A probe, which costs so much, has gained so much more.
    pub fn gained(&self, gain_ns: u32, probe_ns: u32) {
        let most = i32::try_from(probe_ns).unwrap_or(i32::MAX).saturating_mul(MOST_PAID);
        let gain_ns = i32::try_from(gain_ns).unwrap_or(i32::MAX);
        let credit_ns = self.credit_ns.load(Ordering::Relaxed).saturating_add(gain_ns).min(most);
        self.credit_ns.store(credit_ns, Ordering::Relaxed);
        if credit_ns >= 0 {
            self.backoff.store(0, Ordering::Relaxed);
            self.skips.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_rng::SplitMix64;

    const PROBE_NS: u32 = 1000;

    /// Probes of so many reads, each in vain.
    fn probes_in_vain(budget: &ProbeBudget, reads: u32, now_ms: u64) -> u32 {
        let mut probes = 0;
        for _ in 0..reads {
            if budget.admits(|| now_ms) {
                budget.lost(PROBE_NS, now_ms);
                probes += 1;
            }
        }
        probes
    }

    #[test]
    fn probes_in_vain_become_rare_and_one_that_gains_makes_them_frequent() {
        let budget = ProbeBudget::new();
        assert!(budget.is_new() && probes_in_vain(&budget, 1033, 5) == 10, "after 1, 2, 4 … 512 reads");
        assert!(!budget.is_new() && budget.is_in_debt() && probes_in_vain(&budget, 513 * 20, 5) <= 21);
        budget.gained(PROBE_NS * 10, PROBE_NS);
        assert!(!budget.is_in_debt());
        assert_eq!(probes_in_vain(&budget, 7, 5), 7, "what was gained beyond what was owed is spent");
        assert!(probes_in_vain(&budget, 1024, 5) <= 11);
        budget.gained(u32::MAX, PROBE_NS);
        assert!(probes_in_vain(&budget, 4000, 5) < MOST_PAID as u32 + 20, "what is paid in advance is bounded");
    }

    #[test]
    fn a_late_probe_comes_after_some_reads_whatever_the_time() {
        let budget = ProbeBudget::new();
        probes_in_vain(&budget, 1034, 1000);
        let mut reads = 0;
        while !budget.admits(|| 1000 + u64::from(LATE_MS)) {
            reads += 1;
        }
        assert!((LEAST_SKIPPED - 1..=LEAST_SKIPPED + 1).contains(&reads), "{reads}");
        budget.lost(PROBE_NS, u64::from(u32::MAX) + 7);
        assert!((0..LEAST_SKIPPED - 1).all(|_| !budget.admits(|| u64::MAX)));
    }

    #[test]
    fn whatever_probes_find_they_cost_little_more_than_they_gain() {
        const READS: u32 = 200_000;
        let mut random = SplitMix64::new(3);
        for percent in [0, 1, 3, 6, 8, 10, 11, 12, 15, 30, 60] {
            for gain_ns in [PROBE_NS / 2, PROBE_NS * 2, PROBE_NS * 8, PROBE_NS * 100] {
                let budget = ProbeBudget::new();
                let mut cost_ns = 0;
                for read in 0..READS {
                    if budget.admits(|| u64::from(read) / 100) {
                        if random.below(100) < percent {
                            budget.gained(gain_ns, PROBE_NS);
                            cost_ns -= i64::from(gain_ns);
                        } else {
                            budget.lost(PROBE_NS, u64::from(read) / 100);
                            cost_ns += i64::from(PROBE_NS);
                        }
                    }
                }
                let most_ns = i64::from(READS * (PROBE_NS / 32));
                assert!(cost_ns <= most_ns, "{cost_ns} ns where {percent} % of the probes gain {gain_ns}");
            }
        }
    }
}
