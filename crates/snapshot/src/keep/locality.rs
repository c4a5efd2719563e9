//! Which regions are worth copying whole: coverage, carried from epoch to epoch (CCoW, Ha & Kim 2022).
//!
//! Relies on being told, when an epoch closes, how many pages of each region were written in it. Beyond the paper:
//! [`Precopy::Adaptive`] moves the threshold by what earlier precopies were worth, and stops taking faults one by one in a
//! region that has had so many already that copying its rest costs no more (the ski-rental rule: never worse than twice the
//! best).

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};

use crate::mechanism::Precopy;

/// What [`Precopy::Adaptive`] weighs: the prices of a mechanism, in percent of a region's pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Where the threshold starts.
    pub(crate) start_percent: u8,
    /// It moves between this
    pub(crate) least_percent: u8,
    /// and this.
    pub(crate) most_percent: u8,
    /// Written pages from which copying a region's rest costs about what its faults have cost so far; over 100 for never.
    pub(crate) rest_percent: u8,
    /// More unneeded pages than this, in percent of those precopied, raise the threshold; less than half of it lower it.
    pub(crate) unneeded_percent: u8,
}

/// Coverage of every region.
pub(crate) struct Locality {
    policy: Precopy,
    costs: Costs,
    /// Regions of high coverage when the last epoch closed.
    high: AtomicUsize,
    /// Pages written in the last closed epoch.
    written: Box<[AtomicU16]>,
    pages_per_region: usize,
    threshold_percent: AtomicU8,
    /// Written pages in percent from which a region's rest is copied at once; over 100 for never.
    rest_percent: AtomicU8,
}

impl Locality {
    pub(crate) fn new(regions: usize, pages_per_region: usize, policy: Precopy, costs: &Costs) -> Self {
        let threshold_percent = match policy {
            Precopy::None => 101,
            Precopy::Threshold(percent) => percent,
            Precopy::All => 0,
            Precopy::Adaptive => costs.start_percent,
        };
        let rest_percent = if policy == Precopy::Adaptive { costs.rest_percent } else { 101 };
        Self {
            policy,
            costs: *costs,
            high: AtomicUsize::new(0),
            written: (0..regions).map(|_| AtomicU16::new(0)).collect(),
            pages_per_region,
            threshold_percent: AtomicU8::new(threshold_percent),
            rest_percent: AtomicU8::new(rest_percent),
        }
    }

    /// Whether the first write to `region` in an epoch should copy all of it.
    pub(crate) fn is_high(&self, region: usize) -> bool {
        let threshold = usize::from(self.threshold_percent.load(Ordering::Relaxed));
        usize::from(self.written[region].load(Ordering::Relaxed)) * 100 >= threshold * self.pages_per_region
    }

    /// Whether `region`, of which `written` pages were written in this epoch, should be copied whole now.
    pub(crate) fn copies_whole(&self, region: usize, written: usize) -> bool {
        let rest = usize::from(self.rest_percent.load(Ordering::Relaxed));
        self.is_high(region) || (rest <= 100 && written * 100 >= rest * self.pages_per_region)
    }

    /// The regions of high coverage that were written at all, the highest first.
    pub(crate) fn high_regions(&self) -> Vec<usize> {
        let written = |region: usize| self.written[region].load(Ordering::Relaxed);
        let mut high: Vec<_> =
            (0..self.regions()).filter(|&region| written(region) > 0 && self.is_high(region)).collect();
        high.sort_by_key(|&region| std::cmp::Reverse(written(region)));
        high
    }

    /// Whether there are regions worth copying before they are written at all.
    pub(crate) fn copies_ahead(&self) -> bool {
        self.high.load(Ordering::Relaxed) > 0
    }

    /// An epoch closed in which `written` pages of `region` were written.
    pub(crate) fn record(&self, region: usize, written: usize) {
        self.written[region].store(written.min(self.pages_per_region) as u16, Ordering::Relaxed);
    }

    /// An epoch closed, all its regions are recorded, and these many precopied pages turned out needed and unneeded.
    pub(crate) fn close(&self, needed: u64, unneeded: u64) {
        if self.policy == Precopy::Adaptive {
            self.adapt(needed, unneeded);
        }
        let ahead = matches!(self.policy, Precopy::Threshold(_) | Precopy::Adaptive);
        self.high.store(if ahead { self.high_regions().len() } else { 0 }, Ordering::Relaxed);
    }

    fn adapt(&self, needed: u64, unneeded: u64) {
        let costs = &self.costs;
        let threshold = self.threshold_percent.load(Ordering::Relaxed);
        let rest = self.rest_percent.load(Ordering::Relaxed);
        let limit = u64::from(costs.unneeded_percent);
        let Some(share) = (unneeded * 100).checked_div(needed + unneeded) else { return };
        let (threshold, rest) = if share > limit {
            (threshold.saturating_add(5), rest.saturating_add(rest / 2))
        } else if share < limit / 2 {
            (threshold.saturating_sub(5), rest - rest / 5)
        } else {
            return;
        };
        self.threshold_percent.store(threshold.clamp(costs.least_percent, costs.most_percent), Ordering::Relaxed);
        if costs.rest_percent <= 100 {
            self.rest_percent.store(rest.clamp(costs.rest_percent, costs.most_percent), Ordering::Relaxed);
        }
    }

    /// The threshold now, in percent; over 100 for none.
    pub(crate) fn threshold_percent(&self) -> u8 {
        self.threshold_percent.load(Ordering::Relaxed)
    }

    /// Regions.
    pub(crate) fn regions(&self) -> usize {
        self.written.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs =
        Costs { start_percent: 80, least_percent: 40, most_percent: 95, rest_percent: 10, unneeded_percent: 20 };

    #[test]
    fn a_region_is_copied_whole_from_the_threshold_on() {
        let locality = Locality::new(2, 512, Precopy::Threshold(80), &COSTS);
        assert!(!locality.copies_whole(0, 500), "only the last epoch counts");
        locality.record(0, 409);
        locality.record(1, 410);
        assert!(!locality.copies_whole(0, 1) && locality.copies_whole(1, 1));
        let none = Locality::new(1, 512, Precopy::None, &COSTS);
        none.record(0, 512);
        assert!(!none.copies_whole(0, 512));
        assert!(Locality::new(1, 512, Precopy::All, &COSTS).copies_whole(0, 1));
    }

    #[test]
    fn many_faults_in_a_region_make_the_adaptive_policy_copy_its_rest() {
        let locality = Locality::new(1, 512, Precopy::Adaptive, &COSTS);
        assert!(!locality.copies_whole(0, 51) && locality.copies_whole(0, 52));
    }

    #[test]
    fn unneeded_copies_raise_the_adaptive_threshold_and_needed_ones_lower_it() {
        let locality = Locality::new(1, 512, Precopy::Adaptive, &COSTS);
        locality.close(10, 90);
        assert_eq!(locality.threshold_percent(), 85);
        (0..20).for_each(|_| locality.close(10, 90));
        assert_eq!(locality.threshold_percent(), 95);
        (0..40).for_each(|_| locality.close(100, 0));
        assert_eq!(locality.threshold_percent(), 40);
    }
}
