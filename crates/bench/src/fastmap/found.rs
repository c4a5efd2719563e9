//! What all trials found, and how two candidates compare in it.
//!
//! Relies on a ratio being taken inside a round, where both sides met the machine in the same mood; the middle round counts.

use super::candidate::Candidate;
use super::runner::Outcome;
use super::tally::Tally;
use super::testbed::Kind;
use crate::stats::Spread;

/// What was done to a candidate, by the names that figures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The workload: `read`, `write_zipf`, `ycsb`, ….
    pub work: &'static str,
    /// On what.
    pub device: Kind,
    /// Threads.
    pub threads: usize,
}

/// One trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was done.
    pub task: Task,
    /// To whom.
    pub candidate: Candidate,
    /// In which round.
    pub round: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// All trials.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In the order in which they were made.
    pub trials: Vec<Trial>,
}

/// One candidate against the better of Linux's two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Over the rounds.
    pub spread: Spread,
    /// Which of the two was better, in most rounds.
    pub peer: Candidate,
}

impl Found {
    fn of(&self, task: Task, candidate: Candidate) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.task == task && trial.candidate == candidate)
    }

    /// The tallies called `phase` of all rounds.
    pub fn tallies(&self, task: Task, candidate: Candidate, phase: &str) -> Vec<&Tally> {
        let outcomes = self.of(task, candidate).filter_map(|trial| trial.outcome.as_ref().ok());
        outcomes.flatten().filter(|tally| tally.name == phase).collect()
    }

    /// The median over all rounds of what `pick` says of a phase.
    pub fn median(&self, task: Task, candidate: Candidate, phase: &str, pick: impl Fn(&Tally) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.tallies(task, candidate, phase).into_iter().map(pick).collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    fn per_s(&self, task: Task, candidate: Candidate, phase: &str, round: usize) -> Option<f64> {
        let trial = self.of(task, candidate).find(|trial| trial.round == round)?;
        trial.outcome.as_ref().ok()?.iter().find(|tally| tally.name == phase).map(Tally::per_s)
    }

    /// Rounds in which a candidate did `task`.
    fn rounds(&self, task: Task) -> usize {
        let rounds = self.trials.iter().filter(|trial| trial.task == task).map(|trial| trial.round + 1);
        rounds.max().unwrap_or(0)
    }

    /// How many times as fast as the better of Linux's two `ours` is. `None` if either was not measured.
    pub fn ratio(&self, task: Task, ours: Candidate, phase: &str) -> Option<Ratio> {
        let mut ratios = Vec::new();
        let mut wins = [0; 2];
        for round in 0..self.rounds(task) {
            let peers = Candidate::PEERS.map(|peer| self.per_s(task, peer, phase, round));
            let better = usize::from(peers[1] > peers[0]);
            if let (Some(ours), Some(peer)) = (self.per_s(task, ours, phase, round), peers[better]) {
                wins[better] += 1;
                ratios.push(ours / peer);
            }
        }
        let peer = Candidate::PEERS[usize::from(wins[1] > wins[0])];
        Some(Ratio { spread: Spread::of(&ratios)?, peer })
    }

    /// Why there is nothing to say of `candidate`: its first failure.
    pub fn reason(&self, task: Task, candidate: Candidate) -> String {
        let failed = self.of(task, candidate).find_map(|trial| trial.outcome.as_ref().err());
        failed.map_or_else(|| "it was not run".to_owned(), |reason| format!("{} failed: {reason}", candidate.name()))
    }

    /// All tasks, in the order in which they were first done.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        for trial in &self.trials {
            if !tasks.contains(&trial.task) {
                tasks.push(trial.task);
            }
        }
        tasks
    }

    /// Every candidate that did `task`.
    pub fn candidates(&self, task: Task) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> =
            self.trials.iter().filter(|trial| trial.task == task).map(|trial| trial.candidate).collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A trial with one phase of `per_s` operations in a second.
    pub fn trial(task: Task, candidate: Candidate, round: usize, phase: &str, per_s: u64) -> Trial {
        let tally = Tally { name: phase.to_owned(), ops: per_s, elapsed_s: 1.0, cpu_s: 0.5, ..Tally::default() };
        Trial { task, candidate, round, outcome: Ok(vec![tally]) }
    }

    pub const READ: Task = Task { work: "read", device: Kind::Disk, threads: 1 };

    #[test]
    fn a_ratio_is_taken_round_by_round_against_the_better_peer() {
        let mut found = Found::default();
        for (round, (ours, mmap, random)) in [(300, 100, 50), (600, 100, 150), (400, 80, 100)].into_iter().enumerate() {
            found.trials.push(trial(READ, Candidate::Guards, round, "read", ours));
            found.trials.push(trial(READ, Candidate::Mmap, round, "read", mmap));
            found.trials.push(trial(READ, Candidate::MmapRandom, round, "read", random));
        }
        let ratio = found.ratio(READ, Candidate::Guards, "read").unwrap();
        assert_eq!((ratio.spread.least, ratio.spread.median, ratio.spread.most), (3.0, 4.0, 4.0));
        assert_eq!(ratio.peer, Candidate::MmapRandom);
        assert_eq!(found.ratio(READ, Candidate::Vmcache, "read"), None);
        assert_eq!(found.median(READ, Candidate::Guards, "read", Tally::per_s), Some(400.0));
    }

    #[test]
    fn a_peer_that_failed_leaves_the_other_and_its_reason() {
        let mut found = Found::default();
        found.trials.push(trial(READ, Candidate::Guards, 0, "read", 300));
        found.trials.push(trial(READ, Candidate::MmapRandom, 0, "read", 100));
        found.trials.push(Trial { outcome: Err("killed".into()), ..trial(READ, Candidate::Mmap, 0, "read", 1) });
        assert_eq!(found.ratio(READ, Candidate::Guards, "read").unwrap().spread.median, 3.0);
        assert_eq!(found.reason(READ, Candidate::Mmap), "mmap failed: killed");
        assert_eq!(found.candidates(READ), [Candidate::Mmap, Candidate::MmapRandom, Candidate::Guards]);
    }
}
