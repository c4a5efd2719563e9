//! What is measured: every mechanism at every size on every kind of page, in rounds that go there and back.
//!
//! Relies on [`crate::measure`] for single trials. Mechanisms take turns within a size, and the order is turned round from
//! round to round, so that drift of the machine meets all of them.

use std::time::Duration;

use anyhow::Context;
use quire_snapshot::{Mechanism, OriginOptions, Precopy};

use super::first_write::{WritePass, WritePattern, cost_ns};
use crate::measure::candidate::{Candidate, PageKind};
use crate::measure::stall::{self, StallPlan, StallSamples};
use crate::measure::updates::{UpdatePace, UpdateStream};
use crate::memory;
use crate::progress::Progress;
use crate::stats::Spread;

const SEED: u64 = 11;
/// Those whose first writes are timed in a quick run.
const CENTRAL: [Mechanism; 4] = [Mechanism::Scoot, Mechanism::Uffd, Mechanism::Barrier, Mechanism::Fork];

/// One mechanism at one size on one kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Size of the range.
    pub mib: u64,
    /// What it is made of.
    pub kind: PageKind,
}

/// What was measured in a scenario.
#[derive(Debug, Default)]
pub struct ScenarioResult {
    /// In steady state.
    pub steady: StallSamples,
    /// With updates as fast as memory takes them, and no time for upkeep.
    pub flat_out: StallSamples,
    /// After upkeep was waited for.
    pub settled: StallSamples,
    /// Of first writes, in nanoseconds a page; empty where they were not timed.
    pub first_write_ns: Vec<(WritePattern, Spread)>,
}

/// How much is done.
#[derive(Clone, Debug)]
pub struct SnapshotScale {
    /// Whether this is the small run.
    pub quick: bool,
    /// Sizes in MiB.
    pub sizes: Vec<u64>,
    /// Mechanisms that were asked for by name; empty for all.
    pub parts: Vec<String>,
    /// Rounds.
    pub rounds: usize,
}

impl SnapshotScale {
    /// The scenarios of one round, in order.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        for &mib in &self.sizes {
            for kind in [PageKind::Huge, PageKind::Small] {
                for mechanism in Mechanism::ALL {
                    let is_central = CENTRAL.contains(&mechanism);
                    let (is_little, is_huge) = (mib <= 256, kind == PageKind::Huge);
                    if !self.parts.is_empty() {
                        if self.parts.iter().any(|part| part == mechanism.name()) {
                            scenarios.push(Scenario { mechanism, mib, kind });
                        }
                    } else if !self.quick || (is_little && is_huge) || (is_central && (is_little || is_huge)) {
                        scenarios.push(Scenario { mechanism, mib, kind });
                    }
                }
            }
        }
        scenarios
    }

    fn plan(&self, mib: u64) -> StallPlan {
        let (least, most) = if self.quick { (3, 6) } else { (10, 10) };
        let time = if !self.quick {
            Duration::MAX
        } else if mib <= 256 {
            Duration::from_millis(250)
        } else {
            Duration::from_millis(800)
        };
        // "Fifth and later cuts."
        StallPlan { warm: 4, most, least, time, pace: UpdatePace::Steady, settles: false, weighs: true }
    }

    fn times_first_writes(&self, scenario: Scenario) -> bool {
        !self.quick || (Some(&scenario.mib) == self.sizes.iter().max() && CENTRAL.contains(&scenario.mechanism))
    }
}

/// All results, and what was left out with the reason.
#[derive(Debug, Default)]
pub struct SnapshotResults {
    /// By scenario.
    pub found: Vec<(Scenario, ScenarioResult)>,
    /// Cells that could not be had.
    pub refused: Vec<(Scenario, String)>,
    /// First writes under fixed policies, in nanoseconds a page, beside which the adaptive one is to be seen.
    pub fixed_ns: Vec<(Scenario, Precopy, Spread)>,
    /// A copy of a page that is in no cache, by itself: what every mechanism does, or has the kernel do, before a first write. 0
    /// where it was not measured.
    pub page_copy_ns: f64,
}

impl SnapshotResults {
    /// What was measured in a scenario.
    pub fn get(&self, mechanism: Mechanism, mib: u64, kind: PageKind) -> Option<&ScenarioResult> {
        let wanted = Scenario { mechanism, mib, kind };
        self.found.iter().find(|(scenario, _)| *scenario == wanted).map(|(_, found)| found)
    }

    fn at(&mut self, scenario: Scenario) -> &mut ScenarioResult {
        let index = self.found.iter().position(|(other, _)| *other == scenario).unwrap_or_else(|| {
            self.found.push((scenario, ScenarioResult::default()));
            self.found.len() - 1
        });
        &mut self.found[index].1
    }
}

/// Runs all scenarios.
///
/// # Errors
/// When a view is none, or a system call fails in the middle.
pub fn measure_all(scale: &SnapshotScale, progress: Progress) -> anyhow::Result<SnapshotResults> {
    let mut results = SnapshotResults::default();
    for &mib in &scale.sizes {
        let bytes = (mib << 20) as usize;
        let mut updates = UpdateStream::new(bytes, SEED);
        let patterns: &[WritePattern] = if scale.quick { &[WritePattern::Zipf] } else { &WritePattern::ALL };
        let passes: Vec<_> = patterns.iter().map(|&pattern| (pattern, WritePass::new(pattern, bytes, SEED))).collect();
        for round in 0..scale.rounds {
            let mut scenarios: Vec<Scenario> =
                scale.scenarios().into_iter().filter(|scenario| scenario.mib == mib).collect();
            if round % 2 == 1 {
                scenarios.reverse();
            }
            for scenario in scenarios {
                let Scenario { mechanism, mib, kind } = scenario;
                progress.say(&format!(
                    "round {} of {}: {mechanism}, {mib} MiB, {} pages",
                    round + 1,
                    scale.rounds,
                    kind.name()
                ));
                trial(scale, scenario, &mut updates, &passes, &mut results)
                    .with_context(|| format!("{mechanism}, {mib} MiB, {} pages", kind.name()))?;
            }
        }
    }
    Ok(results)
}

/// Bytes that a scenario needs at most: the range, and as much again for copies; `mmapcopy` has an old file beside a new one.
fn need_bytes(scenario: Scenario) -> u64 {
    let range = scenario.mib << 20;
    match scenario.mechanism {
        Mechanism::MmapCopy | Mechanism::Scoot => 3 * range,
        _ => 2 * range,
    }
}

fn trial(
    scale: &SnapshotScale,
    scenario: Scenario,
    updates: &mut UpdateStream,
    passes: &[(WritePattern, WritePass)],
    results: &mut SnapshotResults,
) -> anyhow::Result<()> {
    let free = quire_sys::proc::meminfo_bytes("MemAvailable").unwrap_or(u64::MAX);
    if need_bytes(scenario) > free / 10 * 9 {
        let reason = format!("needs {} MiB, {} MiB are free", need_bytes(scenario) >> 20, free >> 20);
        note_refusal(results, scenario, reason);
        return Ok(());
    }
    let bytes = (scenario.mib << 20) as usize;
    let candidate = match Candidate::new(scenario.mechanism, bytes, scenario.kind, true, &OriginOptions::default()) {
        Ok(candidate) => candidate,
        Err(refused) => {
            note_refusal(results, scenario, refused.to_string());
            return Ok(());
        }
    };
    // The range itself is backed by now; what copies will take is warmed.
    memory::warm_huge((need_bytes(scenario) - bytes as u64) / 2);
    let plan = scale.plan(scenario.mib);
    let steady = stall::run(&candidate, updates, plan)?;
    let few = if scale.quick { 2 } else { 4 };
    let few = StallPlan { warm: few / 2, most: few / 2, least: few / 2, weighs: false, ..plan };
    let flat_out = stall::run(&candidate, updates, StallPlan { pace: UpdatePace::FlatOut, ..few })?;
    let settled = stall::run(&candidate, updates, StallPlan { pace: UpdatePace::FlatOut, settles: true, ..few })?;
    let mut first_write_ns = Vec::new();
    if scale.times_first_writes(scenario) {
        let (warm, rounds) = if scale.quick { (1, 1) } else { (2, 3) };
        for (pattern, pass) in passes {
            first_write_ns.push((*pattern, cost_ns(&candidate, pass, warm, rounds)?));
        }
    }
    let found = results.at(scenario);
    found.steady.merge(steady);
    found.flat_out.merge(flat_out);
    found.settled.merge(settled);
    merge_costs(&mut found.first_write_ns, first_write_ns);
    Ok(())
}

/// First writes of a Zipf pass under policies that don't adapt.
///
/// # Errors
/// When a cut is refused.
pub fn measure_fixed(mib: u64, results: &mut SnapshotResults, progress: Progress) -> anyhow::Result<()> {
    let bytes = (mib << 20) as usize;
    let pass = WritePass::new(WritePattern::Zipf, bytes, SEED);
    for mechanism in [Mechanism::Uffd, Mechanism::Barrier] {
        for precopy in [Precopy::None, Precopy::Threshold(80), Precopy::All] {
            progress.say(&format!("first writes: {mechanism}, {mib} MiB, {precopy:?}"));
            let options = OriginOptions { precopy, ..OriginOptions::default() };
            let Ok(candidate) = Candidate::new(mechanism, bytes, PageKind::Huge, true, &options) else { continue };
            memory::warm_huge(bytes as u64);
            let cost = cost_ns(&candidate, &pass, 2, 3)?;
            results.fixed_ns.push((Scenario { mechanism, mib, kind: PageKind::Huge }, precopy, cost));
        }
    }
    Ok(())
}

/// Of two rounds the one with the smaller median counts, for all alike: what disturbs makes writes dearer only.
fn merge_costs(all: &mut Vec<(WritePattern, Spread)>, new: Vec<(WritePattern, Spread)>) {
    for (pattern, spread) in new {
        match all.iter_mut().find(|(other, _)| *other == pattern) {
            Some((_, old)) => {
                let median = old.median.min(spread.median);
                *old = Spread { median, least: old.least.min(spread.least), most: old.most.max(spread.most) };
            }
            None => all.push((pattern, spread)),
        }
    }
}

fn note_refusal(results: &mut SnapshotResults, scenario: Scenario, reason: String) {
    if !results.refused.iter().any(|(other, _)| *other == scenario) {
        results.refused.push((scenario, reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_round_has_every_cell_and_a_quick_one_the_central_ones() {
        let full = SnapshotScale { quick: false, sizes: vec![256, 1024], parts: vec![], rounds: 1 };
        assert_eq!(full.scenarios().len(), 2 * 2 * 6);
        let quick = SnapshotScale { quick: true, ..full };
        assert_eq!(quick.scenarios().len(), 6 + 4 + 4);
    }

    #[test]
    fn the_quieter_round_counts() {
        let spread = |median| Spread { median, least: median - 1.0, most: median + 1.0 };
        let mut all = vec![(WritePattern::Zipf, spread(7.0))];
        merge_costs(&mut all, vec![(WritePattern::Zipf, spread(5.0)), (WritePattern::Random, spread(3.0))]);
        assert_eq!(all[0].1, Spread { median: 5.0, least: 4.0, most: 8.0 });
        assert_eq!(all.len(), 2);
    }
}
