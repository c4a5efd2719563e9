//! One configuration under the load: a cut every interval, throughput over all of it, memory near the end.
//!
//! Relies on views being dropped by a thread of their own, as a child that ends does not keep its parent; the parent's
//! thread waits for no other. A view lives for one interval or two, less a tenth: a save is over some time before the next one
//! begins. In the last interval no view is dropped: memory is looked at when it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_snapshot::{OriginStats, PAGE_SIZE, View};

use super::configuration::Configuration;
use super::workload::WriteWorkload;
use crate::measure::candidate::Candidate;
use crate::measure::footprint::footprint_bytes;

/// Writes between looks at the clock.
const PIECE: usize = 256;
/// Slots of an interval in the record of throughput.
const SLOTS: u32 = 100;
/// When in an interval the oldest view is dropped.
const LIFE: f64 = 0.9;

/// What every trial has in common.
#[derive(Debug, Clone, Copy)]
pub struct TrialPlan {
    /// Bytes of the range.
    pub bytes: usize,
    /// Time between cuts.
    pub interval: Duration,
    /// Epochs that are not counted: coverage is learned in them.
    pub warm: usize,
    /// Epochs that are counted.
    pub epochs: usize,
    /// Views alive at once.
    pub alive: usize,
}

/// What a configuration did in the epochs that count.
#[derive(Debug, Clone, Default)]
pub struct TrialResult {
    /// Writes.
    pub writes: u64,
    /// Time they took, cuts included, in seconds.
    pub elapsed_s: f64,
    /// What each cut kept the writer, in nanoseconds.
    pub stall_ns: Vec<f64>,
    /// Private memory and files in memory, with all views that live at once, less what was there before.
    pub footprint_bytes: u64,
    /// What had to be held at that moment: the range, and for each view the pages that were written until the next cut.
    pub needed_bytes: u64,
    /// Pages copied, copied ahead, and found needed or not.
    pub pages: PageCounts,
    /// Throughput over time: seconds since the first cut that counts, writes a second.
    pub slots: Vec<(f64, f64)>,
}

/// Counts of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Copied.
    pub copied: u64,
    /// Copied with their region or ahead of it.
    pub precopied: u64,
    /// Of these, written later.
    pub needed: u64,
    /// And not.
    pub unneeded: u64,
}

impl PageCounts {
    /// What has come between two looks.
    pub fn between(before: &OriginStats, after: &OriginStats) -> Self {
        Self {
            copied: after.copied_pages - before.copied_pages,
            precopied: after.precopied_pages - before.precopied_pages,
            needed: after.needed_pages - before.needed_pages,
            unneeded: after.unneeded_pages - before.unneeded_pages,
        }
    }

    /// Sums.
    pub fn add(&mut self, other: Self) {
        self.copied += other.copied;
        self.precopied += other.precopied;
        self.needed += other.needed;
        self.unneeded += other.unneeded;
    }

    /// Share of copied pages that were copied ahead.
    pub fn precopy_ratio(self) -> f64 {
        share(self.precopied, self.copied)
    }

    /// Share of pages copied ahead that were not needed.
    pub fn unneeded_ratio(self) -> f64 {
        share(self.unneeded, self.needed + self.unneeded)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl TrialResult {
    /// Writes a second.
    pub fn per_s(&self) -> f64 {
        self.writes as f64 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }

    /// Adds a second trial of the same configuration; the chart stays that of the first.
    pub fn merge(&mut self, other: Self) {
        self.writes += other.writes;
        self.elapsed_s += other.elapsed_s;
        self.stall_ns.extend(other.stall_ns);
        if other.footprint_bytes > self.footprint_bytes {
            (self.footprint_bytes, self.needed_bytes) = (other.footprint_bytes, other.needed_bytes);
        }
        self.pages.add(other.pages);
    }
}

/// Trials `configuration`.
///
/// # Errors
/// When it can't be had, or a cut is refused.
pub fn run(configuration: Configuration, plan: TrialPlan, workload: &mut WriteWorkload) -> anyhow::Result<TrialResult> {
    let before_bytes = footprint_bytes();
    let Configuration { mechanism, kind, .. } = configuration;
    let candidate = Candidate::new(mechanism, plan.bytes, kind, true, &configuration.options(plan.bytes))?;
    let (dropper, views) = channel::<Arc<dyn View>>();
    let thread = std::thread::Builder::new().name("dropper".into()).spawn(move || views.into_iter().for_each(drop))?;
    let mut run = Run {
        candidate: &candidate,
        plan,
        workload,
        dropper,
        views: VecDeque::new(),
        began: Instant::now(),
        written: VecDeque::new(),
        trial: TrialResult::default(),
    };
    let mut before = OriginStats::default();
    for epoch in 0..plan.warm + plan.epochs {
        if epoch == plan.warm {
            (run.trial, run.began) = (TrialResult::default(), Instant::now());
            before = counted(configuration, &candidate);
        }
        run.epoch(epoch + 1 == plan.warm + plan.epochs)?;
    }
    let Run { views, dropper, mut trial, .. } = run;
    drop((views, dropper));
    // A thread that only drops can't panic on its own account; should it, the settling below shows it.
    let _ = thread.join();
    candidate.origin().settle();
    trial.pages = PageCounts::between(&before, &counted(configuration, &candidate));
    trial.footprint_bytes = trial.footprint_bytes.saturating_sub(before_bytes);
    Ok(trial)
}

/// The mechanism's figures; fork counts no copies, and would walk page tables to answer.
fn counted(configuration: Configuration, candidate: &Candidate) -> OriginStats {
    if configuration.is_fork() { OriginStats::default() } else { candidate.origin().stats() }
}

struct Run<'a> {
    candidate: &'a Candidate,
    plan: TrialPlan,
    workload: &'a mut WriteWorkload,
    dropper: Sender<Arc<dyn View>>,
    views: VecDeque<Arc<dyn View>>,
    /// When the first epoch that counts began.
    began: Instant,
    /// Pages written between the cuts of the views that are alive, the oldest first; the newest is not among them yet.
    written: VecDeque<u64>,
    trial: TrialResult,
}

impl Run<'_> {
    fn epoch(&mut self, is_last: bool) -> anyhow::Result<()> {
        let written = self.workload.take_written();
        if !self.views.is_empty() {
            self.written.push_back(written);
        }
        let start = Instant::now();
        let view = self.candidate.origin().cut().context("cutting")?;
        self.trial.stall_ns.push(start.elapsed().as_nanos() as f64);
        self.views.push_back(view);
        if is_last {
            self.write_until(start, self.plan.interval);
            self.trial.elapsed_s += start.elapsed().as_secs_f64();
            self.weigh();
            return Ok(());
        }
        let spent = self.write_until(start, self.plan.interval.mul_f64(LIFE));
        if self.views.len() >= self.plan.alive
            && let Some(oldest) = self.views.pop_front()
        {
            // The thread lives until its sender is dropped.
            let _ = self.dropper.send(oldest);
            self.written.pop_front();
        }
        self.write_until(Instant::now(), self.plan.interval.saturating_sub(spent));
        self.trial.elapsed_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Looks at memory, at the end of an interval, when views hold most.
    fn weigh(&mut self) {
        self.trial.footprint_bytes = footprint_bytes();
        let pages = self.written.iter().sum::<u64>() + self.workload.take_written();
        self.trial.needed_bytes = (self.plan.bytes + pages as usize * PAGE_SIZE) as u64;
    }

    /// Writes until `time` after `start`; returns how long it was in the end.
    fn write_until(&mut self, start: Instant, time: Duration) -> Duration {
        let slot = self.plan.interval / SLOTS;
        let (mut slot_start, mut slot_writes) = (start, 0);
        loop {
            self.workload.write(self.candidate.access(), PIECE);
            slot_writes += PIECE as u64;
            let now = Instant::now();
            let in_slot = now - slot_start;
            let is_over = now - start >= time;
            if in_slot >= slot || is_over {
                let at_s = (now - self.began).as_secs_f64();
                self.trial.slots.push((at_s, slot_writes as f64 / in_slot.as_secs_f64()));
                self.trial.writes += slot_writes;
                (slot_start, slot_writes) = (now, 0);
            }
            if is_over {
                return now - start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccow::configuration::FORK;
    use crate::ccow::workload::BlockLayout;
    use crate::measure::candidate::PageKind;
    use quire_snapshot::{Mechanism, Precopy};

    #[test]
    fn only_the_counted_epochs_count() {
        let plan = TrialPlan { bytes: 8 << 20, interval: Duration::from_millis(20), warm: 2, epochs: 3, alive: 2 };
        let mut workload = WriteWorkload::new(plan.bytes, 1.0, BlockLayout::Ordered, 1);
        let barrier = Configuration { mechanism: Mechanism::Barrier, precopy: Precopy::All, kind: PageKind::Huge };
        let trial = run(barrier, plan, &mut workload).unwrap();
        assert_eq!(trial.stall_ns.len(), 3);
        // On a busy machine a single piece may fill a stretch: two in an epoch, one in the last.
        assert!(trial.elapsed_s >= 0.06 && trial.writes >= 5 * PIECE as u64);
        let total: f64 = trial.slots.len() as f64;
        assert!(total >= 5.0, "{total}");
        assert!(trial.slots.is_sorted_by(|one, two| one.0 <= two.0), "{:?}", trial.slots);
        assert!(trial.pages.precopied > 0 && trial.pages.precopy_ratio() > 0.9, "{:?}", trial.pages);
        let needed_bytes = trial.needed_bytes;
        assert!(needed_bytes > 8 << 20 && needed_bytes <= 3 * (8 << 20), "{needed_bytes}");
        assert!(!barrier.is_fork() && FORK.is_fork());
    }

    #[test]
    fn ratios_of_nothing_are_zero() {
        assert_eq!((PageCounts::default().precopy_ratio(), PageCounts::default().unneeded_ratio()), (0.0, 0.0));
        let pages = PageCounts { copied: 10, precopied: 5, needed: 3, unneeded: 1 };
        assert_eq!((pages.precopy_ratio(), pages.unneeded_ratio()), (0.5, 0.25));
    }
}
