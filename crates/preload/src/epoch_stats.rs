//! What a child's life taught: how many of the pages copied ahead were needed, and the coverage of every region.
//!
//! Relies on the last valid look before the child's end. What the program copied itself is counted; of what was copied
//! ahead it is estimated from the sample that was left out (see [`crate::sampler`]).

use crate::regions::{CopyMethod, MappedRegion, PageCounts};

/// Pages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochStats {
    /// Copied ahead.
    pub precopied: u64,
    /// Of these, written by the program before the child's end, by estimate.
    pub needed: u64,
    /// Copied by the program itself.
    pub own: u64,
    /// Pages in all regions.
    pub present: u64,
    /// Regions that were copied ahead.
    pub regions_precopied: u64,
    /// Regions in all.
    pub regions: u64,
}

impl EpochStats {
    /// Settles a child's life and carries the coverage over to the next one.
    pub fn settle(regions: &mut [MappedRegion]) -> Self {
        let share = left_share(regions);
        let mut epoch_stats = Self::default();
        for region in regions {
            let needed = needed(region, share);
            let written = match region.method {
                CopyMethod::Own | CopyMethod::Left => written(region.present, region.end),
                CopyMethod::Sampled => f64::from(region.own_before + region.end.sample_own) + needed,
                CopyMethod::Whole => f64::from(region.own_before) + needed,
            };
            epoch_stats.precopied += u64::from(region.precopied);
            epoch_stats.needed += needed.round() as u64;
            epoch_stats.own += match region.method {
                CopyMethod::Own | CopyMethod::Left => written as u64,
                CopyMethod::Sampled => u64::from(region.own_before + region.end.sample_own),
                CopyMethod::Whole => u64::from(region.own_before),
            };
            epoch_stats.present += u64::from(region.present);
            epoch_stats.regions_precopied += u64::from(region.precopied > 0);
            epoch_stats.regions += 1;
            // What parent or child writes while memory is shared tears a huge page; what was copied whole is one.
            region.huge =
                region.method == CopyMethod::Whole || (region.huge && written == 0.0 && region.precopied == 0);
            carry(region, written);
        }
        epoch_stats
    }

    /// Pages that were copied ahead for nothing.
    pub fn unneeded(&self) -> u64 {
        self.precopied.saturating_sub(self.needed)
    }

    /// The same as a share of what was copied ahead, in thousandths; `None` if nothing was.
    pub fn unneeded_permille(&self) -> Option<u16> {
        (self.unneeded() * 1000).checked_div(self.precopied).map(|share| share as u16)
    }
}

/// Of the pages that were still shared at the turn of the regions that were left, the share that the program then wrote.
fn left_share(regions: &[MappedRegion]) -> Option<f64> {
    let left = regions.iter().filter(|region| region.method == CopyMethod::Left);
    let (shared, then) = left.fold((0.0, 0.0), |(shared, then), region| {
        let later = (written(region.present, region.end) - f64::from(region.own_before)).max(0.0);
        (shared + f64::from(region.shared_before), then + later)
    });
    (shared > 0.0).then(|| (then / shared).min(1.0))
}

fn needed(region: &MappedRegion, left_share: Option<f64>) -> f64 {
    let sampled = region.sample.count_ones();
    let share = match region.method {
        CopyMethod::Own | CopyMethod::Left => return 0.0,
        CopyMethod::Sampled if sampled > 0 => f64::from(region.end.sample_own) / f64::from(sampled),
        // Without a sample of its own, what was learned of it and what the others show count half each.
        _ => {
            let known = f64::from(region.coverage_permille.unwrap_or(1000)) / 1000.0;
            left_share.map_or(known, |share| (share + known) / 2.0)
        }
    };
    f64::from(region.precopied) * share
}

/// Pages that were there and are shared no more; what was mapped or given back meanwhile does not count.
fn written(present: u16, end: PageCounts) -> f64 {
    f64::from(present.saturating_sub(end.shared).min(end.own))
}

fn carry(region: &mut MappedRegion, written: f64) {
    if region.present == 0 {
        return;
    }
    let seen = (written / f64::from(region.present) * 1000.0).clamp(0.0, 1000.0) as u16;
    region.coverage_permille = Some(match (region.method, region.coverage_permille) {
        // Half of it is an estimate from other regions, so it moves slowly.
        (CopyMethod::Whole, Some(before)) => (before * 3 + seen) / 4,
        (CopyMethod::Sampled, Some(before)) => (before + seen) / 2,
        _ => seen,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(method: CopyMethod) -> MappedRegion {
        MappedRegion { pages: 512, present: 512, huge: true, method, ..MappedRegion::default() }
    }

    #[test]
    fn what_the_program_copies_itself_is_counted() {
        let mut regions = [
            MappedRegion { end: PageCounts { own: 400, shared: 112, sample_own: 0 }, ..region(CopyMethod::Own) },
            MappedRegion::default(),
        ];
        let epoch_stats = EpochStats::settle(&mut regions);
        assert_eq!((epoch_stats.own, epoch_stats.precopied, epoch_stats.needed), (400, 0, 0));
        assert_eq!((regions[0].coverage_permille, regions[0].huge), (Some(781), false));
        assert_eq!((regions[1].coverage_permille, epoch_stats.unneeded_permille()), (None, None));
    }

    #[test]
    fn pages_that_came_or_went_meanwhile_are_not_taken_for_written() {
        let seen = |present, own, shared| written(present, PageCounts { own, shared, sample_own: 0 });
        assert_eq!(seen(100, 300, 100), 0.0);
        assert_eq!(seen(100, 10, 0), 10.0);
    }

    #[test]
    fn a_sample_tells_how_much_was_needed() {
        let mut regions = [MappedRegion {
            own_before: 100,
            shared_before: 412,
            precopied: 400,
            sample: 0b1111_1111_1111,
            end: PageCounts { own: 509, shared: 3, sample_own: 9 },
            coverage_permille: Some(900),
            ..region(CopyMethod::Sampled)
        }];
        let epoch_stats = EpochStats::settle(&mut regions);
        assert_eq!(
            (epoch_stats.precopied, epoch_stats.needed, epoch_stats.unneeded(), epoch_stats.own),
            (400, 300, 100, 109)
        );
        assert_eq!(epoch_stats.unneeded_permille(), Some(250));
        assert_eq!(regions[0].coverage_permille, Some((900 + 798) / 2));
    }

    #[test]
    fn regions_that_were_left_speak_for_those_that_were_copied_whole() {
        let left = MappedRegion {
            own_before: 12,
            shared_before: 500,
            end: PageCounts { own: 262, shared: 250, sample_own: 0 },
            ..region(CopyMethod::Left)
        };
        let whole = MappedRegion {
            own_before: 12,
            shared_before: 500,
            precopied: 500,
            coverage_permille: Some(900),
            end: PageCounts { own: 512, shared: 0, sample_own: 0 },
            ..region(CopyMethod::Whole)
        };
        let mut regions = [left, whole];
        let epoch_stats = EpochStats::settle(&mut regions);
        assert_eq!((epoch_stats.precopied, epoch_stats.needed), (500, 350));
        assert_eq!(regions[0].coverage_permille, Some(511));
        assert!(regions[1].huge && !regions[0].huge);
        assert!(regions[1].coverage_permille.is_some_and(|share| (800..900).contains(&share)));
    }
}
