//! Which generation of each region the origin maps and how, and which ones views hold.
//!
//! Relies on [`crate::scoot::layout`] for the numbers of generations. Pure bookkeeping: nothing here touches memory.
//!
//! Invariants: a generation that a view holds, or that the origin maps privately, is never written. The origin's home
//! generation is always filled. A generation that is neither home nor held is *idle*: it is kept for reuse, or given back.

use std::ops::Range;

use super::layout::{GENERATIONS, Generation};

/// How the origin maps a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionMapping {
    /// Writes go to the file.
    Shared,
    /// Writes go to pages of the origin's own; the file is as it was at a cut.
    Private,
}

/// One region.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionState {
    pub(super) home: Generation,
    pub(super) sharing: RegionMapping,
    holders: [u32; GENERATIONS],
    filled: [bool; GENERATIONS],
    pub(super) huge: [bool; GENERATIONS],
}

impl RegionState {
    /// Whether a view holds what the origin maps.
    pub(super) fn is_held(&self) -> bool {
        self.holders[self.home.index()] > 0
    }

    /// Whether the origin's private pages may go back to where they came from.
    pub(super) fn is_mergeable(&self) -> bool {
        self.sharing == RegionMapping::Private && !self.is_held()
    }

    fn is_idle(&self, generation: Generation) -> bool {
        let index = generation.index();
        self.filled[index] && self.holders[index] == 0 && generation != self.home
    }
}

/// All regions.
#[derive(Debug)]
pub(super) struct RegionTable {
    regions: Vec<RegionState>,
    filled: usize,
    idle: usize,
}

impl RegionTable {
    /// Everything in generation 0, shared.
    pub(super) fn new(regions: usize) -> Self {
        let mut filled = [false; GENERATIONS];
        filled[0] = true;
        let fresh = RegionState {
            home: Generation(0),
            sharing: RegionMapping::Shared,
            holders: [0; GENERATIONS],
            filled,
            huge: [false; GENERATIONS],
        };
        Self { regions: vec![fresh; regions], filled: regions, idle: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.regions.len()
    }

    pub(super) fn region(&self, region: usize) -> &RegionState {
        &self.regions[region]
    }

    /// Regions' worth of memory in the file beyond the origin's own, and how many of them are idle.
    pub(super) fn spare(&self) -> (usize, usize) {
        (self.filled - self.regions.len(), self.idle)
    }

    pub(super) fn set_sharing(&mut self, run: Range<usize>, sharing: RegionMapping) {
        for region in &mut self.regions[run] {
            region.sharing = sharing;
        }
    }

    pub(super) fn set_huge(&mut self, region: usize, generation: Generation) {
        self.regions[region].huge[generation.index()] = true;
    }

    /// The longest run from `start` on of regions with the same home, as far as `wanted` says so of each.
    pub(super) fn run_from(&self, start: usize, mut wanted: impl FnMut(usize, &RegionState) -> bool) -> Range<usize> {
        let home = self.regions[start].home;
        let end = (start..self.len())
            .find(|&index| self.regions[index].home != home || !wanted(index, &self.regions[index]))
            .unwrap_or(self.len());
        start..end
    }

    /// Splits all regions into runs of one home that `wanted` holds for.
    pub(super) fn runs(&self, wanted: impl Fn(&RegionState) -> bool) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut at = 0;
        while at < self.len() {
            let run = self.run_from(at, |_, region| wanted(region));
            at = run.end.max(at + 1);
            if !run.is_empty() {
                runs.push(run);
            }
        }
        runs
    }

    /// What the origin maps now.
    pub(super) fn homes(&self) -> Box<[Generation]> {
        self.regions.iter().map(|region| region.home).collect()
    }

    /// A view takes hold of `homes`.
    pub(super) fn hold(&mut self, homes: &[Generation]) {
        for (region, home) in self.regions.iter_mut().zip(homes) {
            region.holders[home.index()] += 1;
        }
    }

    /// A view lets go.
    pub(super) fn release(&mut self, homes: &[Generation]) {
        for (region, &home) in self.regions.iter_mut().zip(homes) {
            region.holders[home.index()] -= 1;
            self.idle += usize::from(region.is_idle(home));
        }
    }

    /// A generation of `region` that is neither home nor held, the lowest one first: identity keeps runs long.
    pub(super) fn vacant(&self, region: usize) -> Option<Generation> {
        let region = &self.regions[region];
        (0..GENERATIONS as u8)
            .map(Generation)
            .find(|&generation| generation != region.home && region.holders[generation.index()] == 0)
    }

    /// The origin's pages of `region` have moved to `target`, shared.
    pub(super) fn move_home(&mut self, region: usize, target: Generation) {
        let entry = &mut self.regions[region];
        self.idle -= usize::from(entry.is_idle(target));
        self.filled += usize::from(!entry.filled[target.index()]);
        entry.filled[target.index()] = true;
        let old = std::mem::replace(&mut entry.home, target);
        entry.sharing = RegionMapping::Shared;
        self.idle += usize::from(entry.is_idle(old));
    }

    /// Takes an idle generation out of the table, for the caller to give its memory back.
    pub(super) fn take_idle(&mut self) -> Option<(usize, Generation)> {
        if self.idle == 0 {
            return None;
        }
        let every = (0..self.regions.len()).flat_map(|region| (0..GENERATIONS as u8).map(move |g| (region, g)));
        let mut every = every.map(|(region, generation)| (region, Generation(generation)));
        let (region, generation) = every.find(|&(region, generation)| self.regions[region].is_idle(generation))?;
        self.regions[region].filled[generation.index()] = false;
        self.regions[region].huge[generation.index()] = false;
        self.idle -= 1;
        self.filled -= 1;
        Some((region, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_the_home_changes_or_the_question_is_answered_no() {
        let mut regions = RegionTable::new(6);
        regions.set_sharing(1..5, RegionMapping::Private);
        assert_eq!(regions.runs(RegionState::is_mergeable), std::slice::from_ref(&(1..5)));
        regions.move_home(3, Generation(1));
        regions.set_sharing(3..4, RegionMapping::Private);
        assert_eq!(regions.runs(RegionState::is_mergeable), [1..3, 3..4, 4..5]);
        assert_eq!(regions.runs(|_| true), [0..3, 3..4, 4..6]);
    }

    #[test]
    fn a_held_generation_is_neither_folded_nor_reused() {
        let mut regions = RegionTable::new(2);
        let first = regions.homes();
        regions.hold(&first);
        regions.set_sharing(0..2, RegionMapping::Private);
        assert!(!regions.region(0).is_mergeable());
        assert_eq!(regions.vacant(0), Some(Generation(1)));
        regions.move_home(0, Generation(1));
        assert_eq!((regions.region(0).sharing, regions.spare()), (RegionMapping::Shared, (1, 0)));
        let second = regions.homes();
        regions.hold(&second);
        assert_eq!(regions.vacant(0), Some(Generation(2)));
        regions.move_home(0, Generation(2));
        assert_eq!(regions.vacant(0), None);
        regions.release(&first);
        assert_eq!((regions.vacant(0), regions.spare()), (Some(Generation(0)), (2, 1)));
        regions.release(&second);
        assert!(regions.region(1).is_mergeable());
        assert_eq!(regions.take_idle(), Some((0, Generation(0))));
        assert_eq!(regions.take_idle(), Some((0, Generation(1))));
        assert_eq!((regions.take_idle(), regions.spare()), (None, (0, 0)));
    }
}
