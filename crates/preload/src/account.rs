//! What a child's life taught: how many of the pages copied ahead were needed, and the coverage of every region.
//!
//! Relies on the last valid look before the child's end. What the program copied itself is counted; of what was copied
//! ahead it is estimated from the sample that was left out (see [`crate::sample`]).

use crate::regions::{Look, Region, Turn};

/// Pages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
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

impl Account {
    /// Settles a child's life and carries the coverage over to the next one.
    pub fn settle(regions: &mut [Region]) -> Self {
        let share = left_share(regions);
        let mut account = Self::default();
        for region in regions {
            let needed = needed(region, share);
            let written = match region.turn {
                Turn::Own | Turn::Left => written(region.present, region.end),
                Turn::Sampled => f64::from(region.own_before + region.end.sample_own) + needed,
                Turn::Whole => f64::from(region.own_before) + needed,
            };
            account.precopied += u64::from(region.precopied);
            account.needed += needed.round() as u64;
            account.own += match region.turn {
                Turn::Own | Turn::Left => written as u64,
                Turn::Sampled => u64::from(region.own_before + region.end.sample_own),
                Turn::Whole => u64::from(region.own_before),
            };
            account.present += u64::from(region.present);
            account.regions_precopied += u64::from(region.precopied > 0);
            account.regions += 1;
            // What anybody writes while memory is shared tears a huge page; what was copied whole is one.
            region.huge = region.turn == Turn::Whole || (region.huge && written == 0.0 && region.precopied == 0);
            carry(region, written);
        }
        account
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
fn left_share(regions: &[Region]) -> Option<f64> {
    let left = regions.iter().filter(|region| region.turn == Turn::Left);
    let (shared, then) = left.fold((0.0, 0.0), |(shared, then), region| {
        let later = (written(region.present, region.end) - f64::from(region.own_before)).max(0.0);
        (shared + f64::from(region.shared_before), then + later)
    });
    (shared > 0.0).then(|| (then / shared).min(1.0))
}

fn needed(region: &Region, left_share: Option<f64>) -> f64 {
    let sampled = region.sample.count_ones();
    let share = match region.turn {
        Turn::Own | Turn::Left => return 0.0,
        Turn::Sampled if sampled > 0 => f64::from(region.end.sample_own) / f64::from(sampled),
        // Without a sample of its own, what was learned of it and what the others show count half each.
        _ => {
            let known = f64::from(region.coverage_permille.unwrap_or(1000)) / 1000.0;
            left_share.map_or(known, |share| (share + known) / 2.0)
        }
    };
    f64::from(region.precopied) * share
}

/// Pages that were there and are shared no more; what was mapped or given back meanwhile does not count.
fn written(present: u16, end: Look) -> f64 {
    f64::from(present.saturating_sub(end.shared).min(end.own))
}

fn carry(region: &mut Region, written: f64) {
    if region.present == 0 {
        return;
    }
    let seen = (written / f64::from(region.present) * 1000.0).clamp(0.0, 1000.0) as u16;
    region.coverage_permille = Some(match (region.turn, region.coverage_permille) {
        // Half of it is an estimate from other regions, so it moves slowly.
        (Turn::Whole, Some(before)) => (before * 3 + seen) / 4,
        (Turn::Sampled, Some(before)) => (before + seen) / 2,
        _ => seen,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(turn: Turn) -> Region {
        Region { pages: 512, present: 512, huge: true, turn, ..Region::default() }
    }

    #[test]
    fn what_the_program_copies_itself_is_counted() {
        let mut regions =
            [Region { end: Look { own: 400, shared: 112, sample_own: 0 }, ..region(Turn::Own) }, Region::default()];
        let account = Account::settle(&mut regions);
        assert_eq!((account.own, account.precopied, account.needed), (400, 0, 0));
        assert_eq!((regions[0].coverage_permille, regions[0].huge), (Some(781), false));
        assert_eq!((regions[1].coverage_permille, account.unneeded_permille()), (None, None));
    }

    #[test]
    fn pages_that_came_or_went_meanwhile_are_not_taken_for_written() {
        let seen = |present, own, shared| written(present, Look { own, shared, sample_own: 0 });
        assert_eq!(seen(100, 300, 100), 0.0);
        assert_eq!(seen(100, 10, 0), 10.0);
    }

    #[test]
    fn a_sample_tells_how_much_was_needed() {
        let mut regions = [Region {
            own_before: 100,
            shared_before: 412,
            precopied: 400,
            sample: 0b1111_1111_1111,
            end: Look { own: 509, shared: 3, sample_own: 9 },
            coverage_permille: Some(900),
            ..region(Turn::Sampled)
        }];
        let account = Account::settle(&mut regions);
        assert_eq!((account.precopied, account.needed, account.unneeded(), account.own), (400, 300, 100, 109));
        assert_eq!(account.unneeded_permille(), Some(250));
        assert_eq!(regions[0].coverage_permille, Some((900 + 798) / 2));
    }

    #[test]
    fn regions_that_were_left_speak_for_those_that_were_copied_whole() {
        let left = Region {
            own_before: 12,
            shared_before: 500,
            end: Look { own: 262, shared: 250, sample_own: 0 },
            ..region(Turn::Left)
        };
        let whole = Region {
            own_before: 12,
            shared_before: 500,
            precopied: 500,
            coverage_permille: Some(900),
            end: Look { own: 512, shared: 0, sample_own: 0 },
            ..region(Turn::Whole)
        };
        let mut regions = [left, whole];
        let account = Account::settle(&mut regions);
        assert_eq!((account.precopied, account.needed), (500, 350));
        assert_eq!(regions[0].coverage_permille, Some(511));
        assert!(regions[1].huge && !regions[0].huge);
        assert!(regions[1].coverage_permille.is_some_and(|share| (800..900).contains(&share)));
    }
}
