//! The elevator: in which order versions are looked at for a job, and which of them it takes.
//!
//! Relies on the lock of the cache state being held: the set does not change meanwhile.

use std::collections::BTreeSet;

use crate::format::MOST_BLOCKS;
use crate::ids::{BlockAddr, VolumeId};
use crate::policy::AdmissionReason;

/// Versions looked at that can't be issued now before the rest of their volume is passed by: some may belong to the log.
const MOST_OF_HELD: usize = 256;

/// Places of a set in rising order from `origin` on and round to it; the set doesn't change meanwhile.
pub(super) struct Round<'a> {
    set: &'a BTreeSet<BlockAddr>,
    origin: BlockAddr,
    at: BlockAddr,
    wrapped: bool,
    /// Blocks that could not be taken since a volume was last passed by.
    held: usize,
}

impl<'a> Round<'a> {
    pub(super) fn new(set: &'a BTreeSet<BlockAddr>, origin: BlockAddr) -> Self {
        Self { set, origin, at: origin, wrapped: false, held: 0 }
    }

    /// The block can't be taken now. After so many, what is left of this volume is passed by.
    pub(super) fn note_held(&mut self) {
        self.held += 1;
        if self.held == MOST_OF_HELD {
            self.held = 0;
            self.at = BlockAddr { volume: VolumeId(self.at.volume.0.saturating_add(1)), block: 0 };
        }
    }
}

impl Iterator for Round<'_> {
    type Item = BlockAddr;

    fn next(&mut self) -> Option<BlockAddr> {
        let mut next = self.set.range(self.at..).next();
        if next.is_none() && !self.wrapped {
            self.wrapped = true;
            next = self.set.first();
        }
        let next = *next.filter(|addr| !self.wrapped || **addr < self.origin)?;
        self.at = next.plus(1);
        Some(next)
    }
}

/// A version for a job.
pub(super) struct Chosen {
    pub(super) addr: BlockAddr,
    pub(super) reason: AdmissionReason,
    pub(super) task: u64,
    /// Order or a dead device demands the log, whatever the policy says.
    pub(super) demanded: bool,
}

/// Blocks of one volume, passed in rising order, for one job.
pub(super) struct Sweep {
    pub(super) chosen: Vec<Chosen>,
    runs: usize,
    most_runs: usize,
    /// It takes no more.
    pub(super) ended: bool,
}

impl Sweep {
    pub(super) fn new(most_runs: usize) -> Self {
        Self { chosen: Vec::new(), runs: 0, most_runs: most_runs.max(1), ended: false }
    }

    pub(super) fn take(&mut self, next: Chosen) {
        if let Some(last) = self.chosen.last() {
            let apart = last.addr.plus(1) != next.addr;
            let elsewhere = last.addr.volume != next.addr.volume || next.addr < last.addr;
            let many = self.chosen.len() == MOST_BLOCKS as usize || (apart && self.runs + 1 >= self.most_runs);
            self.ended |= elsewhere || many;
            self.runs += usize::from(apart);
        }
        if !self.ended {
            self.chosen.push(next);
        }
    }
}
