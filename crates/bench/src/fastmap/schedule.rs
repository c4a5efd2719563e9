//! In which order everything is tried.
//!
//! Relies on candidates taking turns within a round, and the order being turned round from round to round, so that drift of
//! the machine meets all of them.

use std::path::Path;

use anyhow::Context;

use super::bfs::Bfs;
use super::bounds::DeviceBounds;
use super::candidate::Candidate;
use super::graph::Graph;
use super::hit::HitCost;
use super::kv::ycsb::Ycsb;
use super::micro::Microbenchmark;
use super::runner::{TrialOutcome, TrialRunner};
use super::scale::{FastmapScale, HIT_PAGES, THREADS};
use super::testbed::{DeviceKind, Testbed};
use super::trial::{TrialSpec, Workload};
use super::trial_results::{Scenario, TrialResult, TrialResults};
use crate::progress::Progress;

const SKEW: f64 = 0.99;
const SEED: u64 = 17;
/// Threads whose figures have goals.
const GOAL_THREADS: [usize; 2] = [1, 16];

const MICRO: [Candidate; 7] = [
    Candidate::Mmap,
    Candidate::MmapRandom,
    Candidate::Vmcache,
    Candidate::Direct,
    Candidate::Guards,
    Candidate::GuardsAhead,
    Candidate::Transparent,
];
/// Those who have something to contend for.
const CONTENDERS: [Candidate; 5] =
    [Candidate::Mmap, Candidate::MmapRandom, Candidate::Vmcache, Candidate::Guards, Candidate::Transparent];
const KV: [Candidate; 7] = [
    Candidate::Mmap,
    Candidate::MmapRandom,
    Candidate::MmapAhead,
    Candidate::Vmcache,
    Candidate::Guards,
    Candidate::GuardsAhead,
    Candidate::Lmdb,
];
const SEARCH: [Candidate; 6] = [
    Candidate::Mmap,
    Candidate::MmapRandom,
    Candidate::Vmcache,
    Candidate::Guards,
    Candidate::GuardsAhead,
    Candidate::Transparent,
];

/// A run of the experiment.
pub struct Schedule<'a> {
    /// How much is done.
    pub scale: &'a FastmapScale,
    /// Runs the trials.
    pub runner: &'a TrialRunner,
    /// Says what is going on.
    pub progress: Progress,
    /// The results so far.
    pub results: TrialResults,
}

/// One scenario of the microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MicroScenario {
    stores: bool,
    is_skewed: bool,
    threads: usize,
}

impl MicroScenario {
    fn work(self) -> &'static str {
        match (self.stores, self.is_skewed) {
            (false, false) => "read",
            (false, true) => "read_zipf",
            (true, false) => "write",
            (true, true) => "write_zipf",
        }
    }

    /// Whether a figure with a goal comes from it, so that it is repeated.
    fn has_goal(self) -> bool {
        !self.is_skewed && GOAL_THREADS.contains(&self.threads)
    }

    fn candidates(self, scale: &FastmapScale) -> Vec<Candidate> {
        if !scale.wants("micro") {
            return CONTENDERS.to_vec();
        }
        let mut candidates = MICRO.to_vec();
        if self.threads == 1 && !self.stores && !self.is_skewed {
            candidates.push(Candidate::MmapAhead);
        }
        candidates
    }
}

/// The scenarios of round `round`.
fn scenarios(scale: &FastmapScale, round: usize) -> Vec<MicroScenario> {
    let mut scenarios = Vec::new();
    for stores in [false, true] {
        for is_skewed in [false, true] {
            for &threads in &scale.threads {
                let scenario = MicroScenario { stores, is_skewed, threads };
                let is_wanted = !is_skewed || scale.wants("micro") && !scale.quick && GOAL_THREADS.contains(&threads);
                // A short run writes with many threads only: that is where the goal is.
                let is_worth_it = !(scale.quick && stores && threads == 1);
                let is_asked_for = scale.wants("micro") || scale.wants("contention");
                if is_asked_for && is_wanted && is_worth_it && (round == 0 || scenario.has_goal()) {
                    scenarios.push(scenario);
                }
            }
        }
    }
    scenarios
}

/// Those of `candidates` that take part in round `round` of something long. Where pages come in random order the kernel's read-around
/// is so far behind that one round of it is enough, and a short run has no time for it, nor for all others.
fn worth_it(candidates: &[Candidate], round: usize, quick: bool) -> Vec<Candidate> {
    let is_worth_it = |candidate: &&Candidate| match candidate {
        Candidate::Mmap => round == 0 && !quick,
        Candidate::MmapAhead | Candidate::Vmcache => !quick,
        _ => true,
    };
    candidates.iter().filter(is_worth_it).copied().collect()
}

/// `candidates` in the order of round `round`.
fn in_turn(candidates: &[Candidate], round: usize) -> Vec<Candidate> {
    let mut order = candidates.to_vec();
    if !round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

impl Schedule<'_> {
    fn try_out(&mut self, scenario: Scenario, round: usize, spec: &TrialSpec) -> anyhow::Result<()> {
        let Scenario { work, device, threads } = scenario;
        let candidate = spec.candidate;
        self.progress.say(&format!(
            "round {}: {work} on {}, {threads} threads, {}",
            round + 1,
            device.name(),
            candidate.name()
        ));
        let outcome = self.runner.run(spec)?;
        let outcome = match &spec.work {
            Workload::Microbenchmark(micro) if micro.stores => audited(spec, micro, outcome)?,
            _ => outcome,
        };
        if let Err(reason) = &outcome {
            self.progress.say(&format!("{work}, {}: {reason}", candidate.name()));
        }
        self.results.trials.push(TrialResult { scenario, candidate, round, outcome });
        Ok(())
    }

    /// What the machine and `place` can do.
    fn bounds(&mut self, testbed: &Testbed, round: usize) -> anyhow::Result<()> {
        let scenario = Scenario { work: "bounds", device: testbed.kind, threads: 1 };
        let work =
            Workload::DeviceBounds(DeviceBounds { measure_ms: self.scale.measure_ms / 2, seed: SEED + round as u64 });
        let budget_bytes = self.scale.budget_bytes();
        self.try_out(
            scenario,
            round,
            &TrialSpec { candidate: Candidate::Direct, testbed: testbed.clone(), budget_bytes, work },
        )
    }

    /// The microbenchmark on `place`.
    ///
    /// # Errors
    /// A trial could not be started, or there was an interrupt.
    pub fn micro(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let scale = self.scale;
        for round in 0..scale.rounds {
            if scale.wants("bounds") {
                self.bounds(testbed, round)?;
            }
            for access in scenarios(scale, round) {
                let scenario = Scenario { work: access.work(), device: testbed.kind, threads: access.threads };
                for candidate in in_turn(&access.candidates(scale), round) {
                    let micro = Microbenchmark {
                        threads: access.threads,
                        stores: access.stores,
                        skew: if access.is_skewed { SKEW } else { 0.0 },
                        ahead: candidate.is_ahead(),
                        warm_ops: scale.budget_bytes() / 4096 * 5 / 4,
                        warm_ms: scale.warm_ms,
                        measure_ms: scale.measure_ms,
                        seed: SEED + round as u64,
                        trial: u16::try_from(self.results.trials.len() + 1).context("too many trials")?,
                    };
                    let budget_bytes = scale.budget_bytes();
                    let spec = TrialSpec {
                        candidate,
                        testbed: testbed.clone(),
                        budget_bytes,
                        work: Workload::Microbenchmark(micro),
                    };
                    self.try_out(scenario, round, &spec)?;
                }
            }
        }
        Ok(())
    }

    /// The cost of hits, of pages in a file below `dir`.
    ///
    /// # Errors
    /// As [`Schedule::micro`], or the file can't be written.
    pub fn hit(&mut self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join("hit");
        let testbed = Testbed::stamped_file(&path, HIT_PAGES)?;
        let passes = if self.scale.quick { 15 } else { 101 };
        let scenario = Scenario { work: "hit", device: DeviceKind::Disk, threads: 1 };
        for round in 0..self.scale.rounds {
            let spec = TrialSpec {
                candidate: Candidate::Guards,
                testbed: testbed.clone(),
                budget_bytes: HIT_PAGES * 4096 * 3 / 2,
                work: Workload::HitCost(HitCost { passes, seed: SEED + round as u64 }),
            };
            self.try_out(scenario, round, &spec)?;
        }
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// Key-value loads, in files below `dir`.
    ///
    /// # Errors
    /// As [`Schedule::micro`], or a file can't be made.
    pub fn key_values(&mut self, dir: &Path, in_memory: bool) -> anyhow::Result<()> {
        let records = self.scale.records(in_memory);
        let work = if in_memory { "ycsb_in_memory" } else { "ycsb" };
        let scenario = Scenario { work, device: DeviceKind::Disk, threads: THREADS };
        // What is in memory is for information.
        let rounds = if in_memory { 1 } else { self.scale.long_rounds };
        for round in 0..rounds {
            for candidate in in_turn(&worth_it(&KV, round, self.scale.quick), round) {
                let path = dir.join(format!("{work}-{}", candidate.name()));
                let pages = self.scale.store_pages(records);
                let testbed = if candidate == Candidate::Lmdb {
                    std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
                    Testbed { kind: DeviceKind::Disk, path: path.clone(), pages }
                } else {
                    Testbed::empty_file(&path, pages)?
                };
                let ycsb = Ycsb { records, threads: THREADS, run_ms: self.scale.run_ms, seed: SEED + round as u64 };
                let budget_bytes = self.scale.kv_budget_bytes();
                self.try_out(
                    scenario,
                    round,
                    &TrialSpec { candidate, testbed, budget_bytes, work: Workload::Ycsb(ycsb) },
                )?;
                let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                removed.with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Searches of a graph in a file below `dir`.
    ///
    /// # Errors
    /// As [`Schedule::micro`], or the file can't be written.
    pub fn search(&mut self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join("graph");
        self.progress.say("making a graph");
        let (graph, testbed) = Graph::write(&path, self.scale.graph_scale, SEED)?;
        let scenario = Scenario { work: "bfs", device: DeviceKind::Disk, threads: THREADS };
        let bfs = Bfs { graph, threads: THREADS };
        for round in 0..self.scale.long_rounds {
            for candidate in in_turn(&worth_it(&SEARCH, round, self.scale.quick), round) {
                let budget_bytes = self.scale.graph_budget_bytes();
                let spec =
                    TrialSpec { candidate, testbed: testbed.clone(), budget_bytes, work: Workload::Bfs(bfs.clone()) };
                self.try_out(scenario, round, &spec)?;
            }
        }
        doubt(&mut self.results, scenario);
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }
}

/// The outcome of a trial that stored, after a look at what has come to the device: a trial whose stores got lost has failed.
fn audited(spec: &TrialSpec, micro: &Microbenchmark, outcome: TrialOutcome) -> anyhow::Result<TrialOutcome> {
    let Ok(mut phases) = outcome else { return Ok(outcome) };
    spec.testbed.drop_cache()?;
    let part = match spec.testbed.audit(micro.trial) {
        Ok(part) => part,
        Err(error) => return Ok(Err(format!("{error:#}"))),
    };
    let Some(stats) = phases.last_mut() else { return Ok(Ok(phases)) };
    // Which pages are stored to is drawn evenly; a few pages looked at may happen to be others.
    let expected = 1.0 - (-(stats.ops as f64) / spec.testbed.pages as f64).exp();
    if spec.testbed.kind == DeviceKind::Disk && micro.skew == 0.0 && part < 0.9 * expected - 0.05 {
        return Ok(Err(format!("{part:.2} of all pages show its stores on the device, {expected:.2} should")));
    }
    stats.counters.insert("changed_part".into(), part);
    Ok(Ok(phases))
}

/// What a search has reached, and at which levels.
fn reached(outcome: &TrialOutcome) -> Option<(u64, u64)> {
    let counters = &outcome.as_ref().ok()?.first()?.counters;
    Some((*counters.get("reached")? as u64, *counters.get("level_sum")? as u64))
}

/// Searches that reached something else than the first of Linux's own did are failures.
fn doubt(results: &mut TrialResults, scenario: Scenario) {
    let is_peer = |trial: &&TrialResult| trial.scenario == scenario && Candidate::PEERS.contains(&trial.candidate);
    let Some(expected) = results.trials.iter().filter(is_peer).find_map(|trial| reached(&trial.outcome)) else {
        return;
    };
    for trial in results.trials.iter_mut().filter(|trial| trial.scenario == scenario) {
        if let Some(other) = reached(&trial.outcome).filter(|other| *other != expected) {
            trial.outcome = Err(format!("it reaches {} vertices where mmap reaches {}", other.0, expected.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase_stats::PhaseStats;
    use super::*;

    fn scale(words: &str) -> FastmapScale {
        FastmapScale::new(&crate::experiment::tests::parse::<crate::fastmap::FastmapArgs>(words))
    }

    #[test]
    fn cells_with_goals_are_repeated_and_the_others_done_once() {
        let scale = scale("");
        let first = scenarios(&scale, 0);
        assert_eq!(first.len(), 2 * 6 + 2 * 2);
        let second = scenarios(&scale, 1);
        assert_eq!(second.len(), 4);
        assert!(second.iter().all(|scenario| scenario.has_goal() && first.contains(scenario)));
        assert!(first[0].candidates(&scale).contains(&Candidate::MmapAhead));
    }

    #[test]
    fn a_short_run_has_few_cells_and_contention_alone_few_candidates() {
        assert_eq!(scenarios(&scale("--quick"), 0).len(), 3);
        let scale = scale("--parts contention --sizes 16");
        assert!(
            scenarios(&scale, 0)
                .iter()
                .all(|scenario| !scenario.is_skewed && scenario.candidates(&scale) == CONTENDERS)
        );
        assert_eq!(scale.micro_pages(), 16 * 8 * 256);
    }

    #[test]
    fn the_order_is_turned_round() {
        assert_eq!(in_turn(&KV, 0), KV);
        assert_eq!(in_turn(&KV, 1)[0], Candidate::Lmdb);
        assert_eq!(worth_it(&KV, 0, false), KV);
        assert!(!worth_it(&KV, 1, false).contains(&Candidate::Mmap));
        assert_eq!(worth_it(&SEARCH, 0, true)[0], Candidate::MmapRandom);
    }

    #[test]
    fn a_search_that_reaches_something_else_has_failed() {
        let scenario = Scenario { work: "bfs", device: DeviceKind::Disk, threads: 4 };
        let trial = |candidate, reached: f64| {
            let counters = [("reached".to_owned(), reached), ("level_sum".to_owned(), 5.0)].into();
            let stats = PhaseStats { name: "bfs".into(), counters, ..PhaseStats::default() };
            TrialResult { scenario, candidate, round: 0, outcome: Ok(vec![stats]) }
        };
        let trials = vec![trial(Candidate::Guards, 9.0), trial(Candidate::Mmap, 10.0), trial(Candidate::Vmcache, 10.0)];
        let mut results = TrialResults { trials };
        doubt(&mut results, scenario);
        assert!(results.trials[0].outcome.is_err() && results.trials[1..].iter().all(|trial| trial.outcome.is_ok()));
    }
}
