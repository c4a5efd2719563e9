//! Why writes went where they went: the last decisions, and counts of all of them.
//!
//! Relies on being told under the cache state's lock.

use std::collections::VecDeque;

use crate::ids::BlockAddr;
use crate::policy::AdmissionReason;

/// One decision, about blocks that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionDecision {
    /// First block.
    pub first: BlockAddr,
    /// How many.
    pub block_count: u32,
    /// Where they went and why.
    pub reason: AdmissionReason,
    /// The task that waits for them or wrote them.
    pub task: u64,
    /// When, since the cache was opened.
    pub at_ns: u64,
}

/// Counts of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReasonCount {
    /// Decisions.
    pub decisions: u64,
    /// Blocks.
    pub blocks: u64,
}

/// The ring of decisions.
#[derive(Clone, Debug)]
pub struct DecisionTrace {
    last: VecDeque<AdmissionDecision>,
    most: usize,
    counts: [ReasonCount; AdmissionReason::EVERY.len()],
}

impl DecisionTrace {
    /// Remembers the last `most` decisions.
    pub fn new(most: usize) -> Self {
        Self { last: VecDeque::with_capacity(most.min(4096)), most, counts: Default::default() }
    }

    /// A decision about one block. Joins the last one if it goes on where that ended.
    pub fn note(&mut self, addr: BlockAddr, reason: AdmissionReason, task: u64, at_ns: u64) {
        let count = &mut self.counts[reason.index()];
        count.blocks += 1;
        if let Some(last) = self.last.back_mut()
            && last.first.plus(u64::from(last.block_count)) == addr
            && (last.reason, last.task, last.at_ns) == (reason, task, at_ns)
        {
            last.block_count += 1;
            return;
        }
        count.decisions += 1;
        if self.most == 0 {
            return;
        }
        if self.last.len() == self.most {
            self.last.pop_front();
        }
        self.last.push_back(AdmissionDecision { first: addr, block_count: 1, reason, task, at_ns });
    }

    /// The last decisions, oldest first.
    pub fn last(&self) -> Vec<AdmissionDecision> {
        self.last.iter().copied().collect()
    }

    /// Counts by [`AdmissionReason::index`].
    pub fn counts(&self) -> [ReasonCount; AdmissionReason::EVERY.len()] {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::VolumeId;

    #[test]
    fn neighbours_join_and_old_decisions_are_forgotten_but_counted() {
        let addr = |block| BlockAddr { volume: VolumeId(1), block };
        let mut trace = DecisionTrace::new(2);
        for block in [1, 2, 3, 9] {
            trace.note(addr(block), AdmissionReason::CriticalTask, 7, 0);
        }
        trace.note(addr(10), AdmissionReason::Asynchronous, 7, 0);
        let last: Vec<_> = trace.last().iter().map(|decision| (decision.first.block, decision.block_count)).collect();
        assert_eq!(last, [(9, 1), (10, 1)]);
        let counts = trace.counts()[AdmissionReason::CriticalTask.index()];
        assert_eq!((counts.decisions, counts.blocks), (2, 4));
    }
}
