//! How much of each region is written between two cuts.
//!
//! Relies on being told each page's first write after a cut. Counts of the current and the previous epoch are kept per
//! region without ever being swept: a count of an older epoch reads as zero. (Coverage decides about precopying in
//! CCoW, Ha & Kim 2022; here it is only counted.)

/// Counts of first writes, one entry a region.
#[derive(Debug)]
pub(crate) struct RegionWriteCounts {
    regions: Vec<Count>,
    epoch: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    epoch: u32,
    now: u16,
    before: u16,
}

impl Count {
    /// The counts as they stand in `epoch`.
    fn at(self, epoch: u32) -> Self {
        match epoch.wrapping_sub(self.epoch) {
            0 => self,
            1 => Self { epoch, now: 0, before: self.now },
            _ => Self { epoch, now: 0, before: 0 },
        }
    }
}

impl RegionWriteCounts {
    pub(crate) fn new(regions: usize) -> Self {
        Self { regions: vec![Count::default(); regions], epoch: 1 }
    }

    /// A cut was made: what was current is now previous.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// A page of `region` was written for the first time since the cut.
    pub(crate) fn count(&mut self, region: usize) {
        let count = &mut self.regions[region];
        *count = count.at(self.epoch);
        count.now += 1;
    }

    /// Pages of `region` written in the current epoch and in the one before.
    pub(crate) fn of(&self, region: usize) -> (u16, u16) {
        let count = self.regions[region].at(self.epoch);
        (count.now, count.before)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_move_from_now_to_before_and_are_then_forgotten() {
        let mut coverage = RegionWriteCounts::new(2);
        coverage.count(1);
        coverage.count(1);
        assert_eq!(coverage.of(1), (2, 0));
        coverage.next_epoch();
        assert_eq!(coverage.of(1), (0, 2));
        coverage.count(1);
        assert_eq!(coverage.of(1), (1, 2));
        coverage.next_epoch();
        coverage.next_epoch();
        assert_eq!(coverage.of(1), (0, 0));
        assert_eq!(coverage.of(0), (0, 0));
    }
}
