//! In which order everything is tried.
//!
//! Relies on candidates taking turns within a round, and the order being turned round from round to round, so that drift of
//! the machine meets all of them.

use std::path::Path;

use anyhow::Context;

use super::bfs::Bfs;
use super::bounds::Bounds;
use super::candidate::Candidate;
use super::found::{Found, Task, Trial};
use super::graph::Graph;
use super::hit::Hit;
use super::kv::ycsb::Ycsb;
use super::micro::Micro;
use super::runner::{Outcome, Runner};
use super::scale::{HIT_PAGES, Scale, THREADS};
use super::testbed::{Kind, Testbed};
use super::trial::{Spec, Work};
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
    pub scale: &'a Scale,
    /// Runs the trials.
    pub runner: &'a Runner,
    /// Says what is going on.
    pub progress: Progress,
    /// What was found so far.
    pub found: Found,
}

/// One task of the microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    stores: bool,
    is_skewed: bool,
    threads: usize,
}

impl Cell {
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

    fn candidates(self, scale: &Scale) -> Vec<Candidate> {
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

/// The cells of round `round`.
fn cells(scale: &Scale, round: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for stores in [false, true] {
        for is_skewed in [false, true] {
            for &threads in &scale.threads {
                let cell = Cell { stores, is_skewed, threads };
                let is_wanted = !is_skewed || scale.wants("micro") && !scale.quick && GOAL_THREADS.contains(&threads);
                // A short run writes with many threads only: that is where the goal is.
                let is_worth_it = !(scale.quick && stores && threads == 1);
                let is_asked_for = scale.wants("micro") || scale.wants("contention");
                if is_asked_for && is_wanted && is_worth_it && (round == 0 || cell.has_goal()) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
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
    fn try_out(&mut self, task: Task, round: usize, spec: &Spec) -> anyhow::Result<()> {
        let Task { work, device, threads } = task;
        let candidate = spec.candidate;
        self.progress.say(&format!(
            "round {}: {work} on {}, {threads} threads, {}",
            round + 1,
            device.name(),
            candidate.name()
        ));
        let outcome = self.runner.run(spec)?;
        let outcome = match &spec.work {
            Work::Micro(micro) if micro.stores => audited(spec, micro, outcome)?,
            _ => outcome,
        };
        if let Err(reason) = &outcome {
            self.progress.say(&format!("{work}, {}: {reason}", candidate.name()));
        }
        self.found.trials.push(Trial { task, candidate, round, outcome });
        Ok(())
    }

    /// What the machine and `place` can do.
    fn bounds(&mut self, testbed: &Testbed, round: usize) -> anyhow::Result<()> {
        let task = Task { work: "bounds", device: testbed.kind, threads: 1 };
        let work = Work::Bounds(Bounds { measure_ms: self.scale.measure_ms / 2, seed: SEED + round as u64 });
        let budget_bytes = self.scale.budget_bytes();
        self.try_out(task, round, &Spec { candidate: Candidate::Direct, testbed: testbed.clone(), budget_bytes, work })
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
            for cell in cells(scale, round) {
                let task = Task { work: cell.work(), device: testbed.kind, threads: cell.threads };
                for candidate in in_turn(&cell.candidates(scale), round) {
                    let micro = Micro {
                        threads: cell.threads,
                        stores: cell.stores,
                        skew: if cell.is_skewed { SKEW } else { 0.0 },
                        ahead: candidate.is_ahead(),
                        warm_ops: scale.budget_bytes() / 4096 * 5 / 4,
                        warm_ms: scale.warm_ms,
                        measure_ms: scale.measure_ms,
                        seed: SEED + round as u64,
                        trial: u16::try_from(self.found.trials.len() + 1).context("too many trials")?,
                    };
                    let budget_bytes = scale.budget_bytes();
                    let spec = Spec { candidate, testbed: testbed.clone(), budget_bytes, work: Work::Micro(micro) };
                    self.try_out(task, round, &spec)?;
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
        let task = Task { work: "hit", device: Kind::Disk, threads: 1 };
        for round in 0..self.scale.rounds {
            let spec = Spec {
                candidate: Candidate::Guards,
                testbed: testbed.clone(),
                budget_bytes: HIT_PAGES * 4096 * 3 / 2,
                work: Work::Hit(Hit { passes, seed: SEED + round as u64 }),
            };
            self.try_out(task, round, &spec)?;
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
        let task = Task { work, device: Kind::Disk, threads: THREADS };
        // What is in memory is for information.
        let rounds = if in_memory { 1 } else { self.scale.long_rounds };
        for round in 0..rounds {
            for candidate in in_turn(&worth_it(&KV, round, self.scale.quick), round) {
                let path = dir.join(format!("{work}-{}", candidate.name()));
                let pages = self.scale.store_pages(records);
                let testbed = if candidate == Candidate::Lmdb {
                    std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
                    Testbed { kind: Kind::Disk, path: path.clone(), pages }
                } else {
                    Testbed::empty_file(&path, pages)?
                };
                let ycsb = Ycsb { records, threads: THREADS, run_ms: self.scale.run_ms, seed: SEED + round as u64 };
                let budget_bytes = self.scale.kv_budget_bytes();
                self.try_out(task, round, &Spec { candidate, testbed, budget_bytes, work: Work::Ycsb(ycsb) })?;
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
        let task = Task { work: "bfs", device: Kind::Disk, threads: THREADS };
        let bfs = Bfs { graph, threads: THREADS };
        for round in 0..self.scale.long_rounds {
            for candidate in in_turn(&worth_it(&SEARCH, round, self.scale.quick), round) {
                let budget_bytes = self.scale.graph_budget_bytes();
                let spec = Spec { candidate, testbed: testbed.clone(), budget_bytes, work: Work::Bfs(bfs.clone()) };
                self.try_out(task, round, &spec)?;
            }
        }
        doubt(&mut self.found, task);
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }
}

/// The outcome of a trial that stored, after a look at what has come to the device: a trial whose stores got lost has failed.
fn audited(spec: &Spec, micro: &Micro, outcome: Outcome) -> anyhow::Result<Outcome> {
    let Ok(mut tallies) = outcome else { return Ok(outcome) };
    spec.testbed.drop_cache()?;
    let part = match spec.testbed.audit(micro.trial) {
        Ok(part) => part,
        Err(error) => return Ok(Err(format!("{error:#}"))),
    };
    let Some(tally) = tallies.last_mut() else { return Ok(Ok(tallies)) };
    // Which pages are stored to is drawn evenly; a few pages looked at may happen to be others.
    let expected = 1.0 - (-(tally.ops as f64) / spec.testbed.pages as f64).exp();
    if spec.testbed.kind == Kind::Disk && micro.skew == 0.0 && part < 0.9 * expected - 0.05 {
        return Ok(Err(format!("{part:.2} of all pages show its stores on the device, {expected:.2} should")));
    }
    tally.counters.insert("changed_part".into(), part);
    Ok(Ok(tallies))
}

/// What a search has reached, and at which levels.
fn reached(outcome: &Outcome) -> Option<(u64, u64)> {
    let counters = &outcome.as_ref().ok()?.first()?.counters;
    Some((*counters.get("reached")? as u64, *counters.get("level_sum")? as u64))
}

/// Searches that reached something else than the first of Linux's own did are failures.
fn doubt(found: &mut Found, task: Task) {
    let is_peer = |trial: &&Trial| trial.task == task && Candidate::PEERS.contains(&trial.candidate);
    let Some(expected) = found.trials.iter().filter(is_peer).find_map(|trial| reached(&trial.outcome)) else { return };
    for trial in found.trials.iter_mut().filter(|trial| trial.task == task) {
        if let Some(other) = reached(&trial.outcome).filter(|other| *other != expected) {
            trial.outcome = Err(format!("it reaches {} vertices where mmap reaches {}", other.0, expected.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::Tally;
    use super::*;

    fn scale(words: &str) -> Scale {
        Scale::new(&crate::experiment::tests::parse::<crate::fastmap::Args>(words))
    }

    #[test]
    fn cells_with_goals_are_repeated_and_the_others_done_once() {
        let scale = scale("");
        let first = cells(&scale, 0);
        assert_eq!(first.len(), 2 * 6 + 2 * 2);
        let second = cells(&scale, 1);
        assert_eq!(second.len(), 4);
        assert!(second.iter().all(|cell| cell.has_goal() && first.contains(cell)));
        assert!(first[0].candidates(&scale).contains(&Candidate::MmapAhead));
    }

    #[test]
    fn a_short_run_has_few_cells_and_contention_alone_few_candidates() {
        assert_eq!(cells(&scale("--quick"), 0).len(), 3);
        let scale = scale("--parts contention --sizes 16");
        assert!(cells(&scale, 0).iter().all(|cell| !cell.is_skewed && cell.candidates(&scale) == CONTENDERS));
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
        let task = Task { work: "bfs", device: Kind::Disk, threads: 4 };
        let trial = |candidate, reached: f64| {
            let counters = [("reached".to_owned(), reached), ("level_sum".to_owned(), 5.0)].into();
            let tally = Tally { name: "bfs".into(), counters, ..Tally::default() };
            Trial { task, candidate, round: 0, outcome: Ok(vec![tally]) }
        };
        let trials = vec![trial(Candidate::Guards, 9.0), trial(Candidate::Mmap, 10.0), trial(Candidate::Vmcache, 10.0)];
        let mut found = Found { trials };
        doubt(&mut found, task);
        assert!(found.trials[0].outcome.is_err() && found.trials[1..].iter().all(|trial| trial.outcome.is_ok()));
    }
}
