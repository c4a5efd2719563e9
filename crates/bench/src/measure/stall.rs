//! Cuts in steady state: cut, update with the view open, drop the view, update without, cut again.
//!
//! Relies on no other thread writing the range. Nothing waits for a mechanism's upkeep between cuts, unless that is what is
//! asked for. Each view is checked against what some pages held at its cut.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use quire_snapshot::{PAGE_SIZE, View};

use super::candidate::Candidate;
use super::footprint::footprint_bytes;
use super::updates::{UpdatePace, UpdateStream, word_of};
use quire_rng::SplitMix64;

/// Pages of each view that are checked.
const CHECKED: usize = 16;

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct StallPlan {
    /// Cuts that are not counted.
    pub warm: usize,
    /// Cuts that are counted at most,
    pub most: usize,
    /// and at least, whatever the time.
    pub least: usize,
    /// When it has taken longer than this, no cut is added beyond `least`.
    pub time: Duration,
    /// How fast updates come.
    pub pace: UpdatePace,
    /// Whether the mechanism's upkeep is waited for before each cut.
    pub settles: bool,
    /// Whether memory is looked at, which takes a while.
    pub weighs: bool,
}

/// What the counted cuts took.
#[derive(Clone, Debug, Default)]
pub struct StallSamples {
    /// Until the writer could go on, in nanoseconds.
    pub stall_ns: Vec<f64>,
    /// Until the first byte of the first, the middle and the last page was read, in nanoseconds.
    pub ready_ns: Vec<f64>,
    /// To drop the view, in nanoseconds.
    pub release_ns: Vec<f64>,
    /// Bytes that the last view held by its own account before it was dropped.
    pub held_bytes: u64,
    /// Growth of the footprint from before the first cut to the end of the last update with its view open.
    pub extra_bytes: u64,
}

impl StallSamples {
    /// Adds the results of another trial; memory is that of the larger.
    pub fn merge(&mut self, other: Self) {
        self.stall_ns.extend(other.stall_ns);
        self.ready_ns.extend(other.ready_ns);
        self.release_ns.extend(other.release_ns);
        self.held_bytes = self.held_bytes.max(other.held_bytes);
        self.extra_bytes = self.extra_bytes.max(other.extra_bytes);
    }
}

/// Cuts `candidate` as `plan` says.
///
/// # Errors
/// When a cut is refused, or a view does not show what the range held.
pub fn run(candidate: &Candidate, updates: &mut UpdateStream, plan: StallPlan) -> anyhow::Result<StallSamples> {
    let mut found = StallSamples::default();
    let before_bytes = if plan.weighs { footprint_bytes() } else { 0 };
    let began = Instant::now();
    for number in 0..plan.warm + plan.most {
        let counted = number >= plan.warm;
        if number >= plan.warm + plan.least && began.elapsed() > plan.time {
            break;
        }
        cut_once(candidate, updates, plan, counted, &mut found)?;
    }
    if plan.weighs {
        weigh(candidate, updates, plan, before_bytes, &mut found)?;
    }
    Ok(found)
}

fn cut_once(
    candidate: &Candidate,
    updates: &mut UpdateStream,
    plan: StallPlan,
    counted: bool,
    found: &mut StallSamples,
) -> anyhow::Result<()> {
    let expected = Expected::of(candidate, plan.warm as u64 + found.stall_ns.len() as u64);
    if plan.settles {
        candidate.origin().settle();
    }
    let start = Instant::now();
    let view = candidate.origin().cut().context("cutting")?;
    let stall = start.elapsed();
    touch(&*view)?;
    let ready = start.elapsed();
    updates.half(candidate.access(), plan.pace);
    expected.check(&*view)?;
    let start = Instant::now();
    drop(view);
    let release = start.elapsed();
    updates.half(candidate.access(), plan.pace);
    if counted {
        found.stall_ns.push(stall.as_nanos() as f64);
        found.ready_ns.push(ready.as_nanos() as f64);
        found.release_ns.push(release.as_nanos() as f64);
    }
    Ok(())
}

fn weigh(
    candidate: &Candidate,
    updates: &mut UpdateStream,
    plan: StallPlan,
    before_bytes: u64,
    found: &mut StallSamples,
) -> anyhow::Result<()> {
    let view = candidate.origin().cut().context("cutting")?;
    updates.half(candidate.access(), plan.pace);
    found.held_bytes = view.held_bytes() as u64;
    found.extra_bytes = footprint_bytes().saturating_sub(before_bytes);
    drop(view);
    updates.half(candidate.access(), plan.pace);
    Ok(())
}

/// Reads the first byte of the first, the middle and the last page.
///
/// # Errors
/// When they can't be read.
pub fn touch(view: &dyn View) -> anyhow::Result<()> {
    let last = view.len() - PAGE_SIZE;
    for offset in [0, view.len() / 2 / PAGE_SIZE * PAGE_SIZE, last] {
        view.read(offset, &mut [0]).context("reading a view")?;
    }
    Ok(())
}

/// What some pages held at a cut.
struct Expected(Vec<(usize, u64)>);

impl Expected {
    fn of(candidate: &Candidate, seed: u64) -> Self {
        let (access, mut rng) = (candidate.access(), SplitMix64::new(seed));
        let pages = (access.len() / PAGE_SIZE) as u64;
        let places = (0..CHECKED).map(|_| word_of(rng.below(pages) as u32));
        Self(places.map(|offset| (offset, access.load_u64(offset))).collect())
    }

    fn check(&self, view: &dyn View) -> anyhow::Result<()> {
        for &(offset, value) in &self.0 {
            let mut word = [0; 8];
            view.read(offset, &mut word).context("reading a view")?;
            let seen = u64::from_ne_bytes(word);
            ensure!(seen == value, "the view shows {seen} at {offset}, where {value} was at the cut");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::candidate::PageKind;
    use quire_snapshot::{Mechanism, OriginOptions};

    #[test]
    fn cuts_are_counted_after_the_warm_ones_and_until_time_is_up() {
        let plan = |most, time| StallPlan {
            warm: 2,
            most,
            least: 3,
            time,
            pace: UpdatePace::FlatOut,
            settles: false,
            weighs: true,
        };
        let bytes = 4 << 20;
        let candidate =
            Candidate::new(Mechanism::Barrier, bytes, PageKind::Huge, true, &OriginOptions::default()).unwrap();
        let mut updates = UpdateStream::new(bytes, 1);
        let found = run(&candidate, &mut updates, plan(5, Duration::from_secs(60))).unwrap();
        assert_eq!((found.stall_ns.len(), found.ready_ns.len(), found.release_ns.len()), (5, 5, 5));
        assert!(found.held_bytes > 0);
        let found = run(&candidate, &mut updates, plan(500, Duration::ZERO)).unwrap();
        assert_eq!(found.stall_ns.len(), 3);
    }
}
