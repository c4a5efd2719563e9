//! Which regions are worth copying whole: coverage, carried from epoch to epoch (CCoW, Ha & Kim 2022).
//!
//! Relies on being told, when an epoch closes, how many pages of each region were written in it. Beyond the paper:
//! [`Precopy::Adaptive`] moves the threshold to where it would have cost least in the last epochs, and stops taking faults one
//! by one in a region that has had so many already that copying its rest costs no more (the ski-rental rule: never worse than
//! twice the best).

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::mechanism::Precopy;

/// What [`Precopy::Adaptive`] weighs: the prices of a mechanism, and bounds in percent of a region's pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyCosts {
    /// What a page copied alone costs, in percent of what one costs that is copied with its region.
    pub(crate) alone_percent: u32,
    /// Where the threshold starts.
    pub(crate) start_percent: u8,
    /// It moves between this
    pub(crate) least_percent: u8,
    /// and this.
    pub(crate) most_percent: u8,
    /// Written pages from which copying a region's rest costs about what its faults have cost so far; over 100 for never.
    pub(crate) rest_percent: u8,
}

/// Steps in which the threshold moves, in percent.
const STEP_PERCENT: usize = 5;
/// Steps from 0 to 100 %, both included.
const STEPS: usize = 100 / STEP_PERCENT + 1;

/// The cost model: what an epoch would have cost, by how much of a region was written in the epoch before; in copies of pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostModel {
    /// If regions like these were copied page by page.
    alone: [f64; STEPS],
    /// If they were copied whole.
    whole: [f64; STEPS],
}

impl CostModel {
    /// The threshold in percent for which the sum is smallest; the highest of several.
    fn best_percent(&self) -> Option<usize> {
        let cost = |first: usize| -> f64 { self.alone[..first].iter().chain(&self.whole[first..]).sum() };
        let is_worth_it = self.alone.iter().sum::<f64>() > 0.0;
        // Regions that were hardly written are no candidates, whatever they cost.
        let best = (1..=STEPS).rev().min_by(|&one, &two| cost(one).total_cmp(&cost(two)))?;
        is_worth_it.then_some(best * STEP_PERCENT)
    }
}

/// Coverage of every region.
pub(crate) struct RegionCoverage {
    policy: Precopy,
    costs: CopyCosts,
    /// Regions of high coverage when the last epoch closed.
    high: AtomicUsize,
    /// Pages written in the last closed epoch.
    written: Box<[AtomicU16]>,
    pages_per_region: usize,
    threshold_percent: AtomicU8,
    /// Written pages in percent from which a region's rest is copied at once; over 100 for never.
    rest_percent: u8,
    /// Of all epochs so far, older ones weighing less.
    cost_model: Mutex<CostModel>,
}

impl RegionCoverage {
    pub(crate) fn new(regions: usize, pages_per_region: usize, policy: Precopy, costs: &CopyCosts) -> Self {
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
            rest_percent,
            cost_model: Mutex::default(),
        }
    }

    /// Whether the first write to `region` in an epoch should copy all of it.
    pub(crate) fn is_high(&self, region: usize) -> bool {
        let threshold = usize::from(self.threshold_percent.load(Ordering::Relaxed));
        usize::from(self.written[region].load(Ordering::Relaxed)) * 100 >= threshold * self.pages_per_region
    }

    /// Whether `region`, of which `written` pages were written in this epoch, should be copied whole now.
    pub(crate) fn copies_whole(&self, region: usize, written: usize) -> bool {
        let rest = usize::from(self.rest_percent);
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
    pub(crate) fn record(&self, region: usize, written: usize, epoch: &mut CostModel) {
        let before =
            usize::from(self.written[region].swap(written.min(self.pages_per_region) as u16, Ordering::Relaxed));
        // Those that weren't written lately are never copied ahead.
        if written == 0 && before == 0 {
            return;
        }
        let step = before * 100 / self.pages_per_region / STEP_PERCENT;
        let all = self.pages_per_region as f64;
        let price = f64::from(self.costs.alone_percent) / 100.0;
        let rest = f64::from(self.rest_percent) / 100.0 * all;
        let alone = written as f64;
        epoch.alone[step] += if alone > rest { rest * price + all } else { alone * price };
        epoch.whole[step] += all;
    }

    /// An epoch closed, and all its regions are recorded.
    pub(crate) fn close(&self, epoch: &CostModel) {
        if self.policy == Precopy::Adaptive {
            self.adapt(epoch);
        }
        let ahead = matches!(self.policy, Precopy::Threshold(_) | Precopy::Adaptive);
        self.high.store(if ahead { self.high_regions().len() } else { 0 }, Ordering::Relaxed);
    }

    /// Follows the threshold that would have cost least. What regions that were not copied whole would have cost is known as well, so
    /// nothing needs to be tried out.
    fn adapt(&self, epoch: &CostModel) {
        let mut all = self.cost_model.lock().unwrap_or_else(PoisonError::into_inner);
        for step in 0..STEPS {
            all.alone[step] = all.alone[step] / 2.0 + epoch.alone[step];
            all.whole[step] = all.whole[step] / 2.0 + epoch.whole[step];
        }
        let Some(best) = all.best_percent() else { return };
        let (least, most) = (usize::from(self.costs.least_percent), usize::from(self.costs.most_percent));
        self.threshold_percent.store(best.clamp(least, most) as u8, Ordering::Relaxed);
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

    const COSTS: CopyCosts =
        CopyCosts { alone_percent: 500, start_percent: 80, least_percent: 5, most_percent: 95, rest_percent: 10 };

    fn record(coverage: &RegionCoverage, region: usize, written: usize) {
        coverage.record(region, written, &mut CostModel::default());
    }

    /// An epoch in which these pages of each region were written.
    fn pass(coverage: &RegionCoverage, written: &[usize]) {
        let mut epoch = CostModel::default();
        written.iter().enumerate().for_each(|(region, &written)| coverage.record(region, written, &mut epoch));
        coverage.close(&epoch);
    }

    #[test]
    fn a_region_is_copied_whole_from_the_threshold_on() {
        let coverage = RegionCoverage::new(2, 512, Precopy::Threshold(80), &COSTS);
        assert!(!coverage.copies_whole(0, 500), "only the last epoch counts");
        record(&coverage, 0, 409);
        record(&coverage, 1, 410);
        assert!(!coverage.copies_whole(0, 1) && coverage.copies_whole(1, 1));
        let none = RegionCoverage::new(1, 512, Precopy::None, &COSTS);
        record(&none, 0, 512);
        assert!(!none.copies_whole(0, 512));
        assert!(RegionCoverage::new(1, 512, Precopy::All, &COSTS).copies_whole(0, 1));
    }

    #[test]
    fn many_faults_in_a_region_make_the_adaptive_policy_copy_its_rest() {
        let coverage = RegionCoverage::new(1, 512, Precopy::Adaptive, &COSTS);
        assert!(!coverage.copies_whole(0, 51) && coverage.copies_whole(0, 52));
    }

    #[test]
    fn the_adaptive_threshold_goes_where_it_would_have_cost_least() {
        let costs = CopyCosts { rest_percent: 101, ..COSTS };
        let coverage = RegionCoverage::new(4, 512, Precopy::Adaptive, &costs);
        // Alone a page costs five: regions of a quarter are worth copying whole, those of a tenth are not.
        (0..3).for_each(|_| pass(&coverage, &[500, 128, 51, 0]));
        assert!(coverage.is_high(1) && !coverage.is_high(2), "{}", coverage.threshold_percent());
        // What was written last time is not written this time: nothing is worth copying.
        (0..8).for_each(|round| pass(&coverage, &if round % 2 == 0 { [0, 0, 500, 500] } else { [500, 500, 0, 0] }));
        assert_eq!(coverage.threshold_percent(), 95);
        (0..8).for_each(|_| pass(&coverage, &[500, 128, 128, 0]));
        assert!(coverage.is_high(1) && coverage.high_regions() == [0, 1, 2]);
    }

    #[test]
    fn epochs_without_writes_teach_nothing() {
        let coverage = RegionCoverage::new(4, 512, Precopy::Adaptive, &COSTS);
        (0..4).for_each(|_| pass(&coverage, &[0; 4]));
        assert_eq!(coverage.threshold_percent(), 80);
    }
}
