//! What all visits found, and how two subjects compare in it.
//!
//! Relies on a ratio being taken inside a round, where both sides met the machine in the same mood; the middle round counts.

use super::place::Kind;
use super::runner::Outcome;
use super::subject::Subject;
use super::tally::Tally;
use crate::stats::Spread;

/// What was done to a subject, by the names that figures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The workload: `read`, `write_zipf`, `ycsb`, ….
    pub work: &'static str,
    /// On what.
    pub device: Kind,
    /// Threads.
    pub threads: usize,
}

/// One visit.
#[derive(Clone, Debug)]
pub struct Visit {
    /// What was done.
    pub task: Task,
    /// To whom.
    pub subject: Subject,
    /// In which round.
    pub round: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// All visits.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In the order in which they were made.
    pub visits: Vec<Visit>,
}

/// One subject against the better of Linux's two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Over the rounds.
    pub spread: Spread,
    /// Which of the two was better, in most rounds.
    pub peer: Subject,
}

impl Found {
    fn of(&self, task: Task, subject: Subject) -> impl Iterator<Item = &Visit> {
        self.visits.iter().filter(move |visit| visit.task == task && visit.subject == subject)
    }

    /// The tallies called `phase` of all rounds.
    pub fn tallies(&self, task: Task, subject: Subject, phase: &str) -> Vec<&Tally> {
        let outcomes = self.of(task, subject).filter_map(|visit| visit.outcome.as_ref().ok());
        outcomes.flatten().filter(|tally| tally.name == phase).collect()
    }

    /// The median over all rounds of what `pick` says of a phase.
    pub fn median(&self, task: Task, subject: Subject, phase: &str, pick: impl Fn(&Tally) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.tallies(task, subject, phase).into_iter().map(pick).collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    fn per_s(&self, task: Task, subject: Subject, phase: &str, round: usize) -> Option<f64> {
        let visit = self.of(task, subject).find(|visit| visit.round == round)?;
        visit.outcome.as_ref().ok()?.iter().find(|tally| tally.name == phase).map(Tally::per_s)
    }

    /// Rounds in which `task` was done to somebody.
    fn rounds(&self, task: Task) -> usize {
        let rounds = self.visits.iter().filter(|visit| visit.task == task).map(|visit| visit.round + 1);
        rounds.max().unwrap_or(0)
    }

    /// How many times as fast as the better of Linux's two `ours` is. `None` if either was not measured.
    pub fn ratio(&self, task: Task, ours: Subject, phase: &str) -> Option<Ratio> {
        let mut ratios = Vec::new();
        let mut wins = [0; 2];
        for round in 0..self.rounds(task) {
            let peers = Subject::PEERS.map(|peer| self.per_s(task, peer, phase, round));
            let better = usize::from(peers[1] > peers[0]);
            if let (Some(ours), Some(peer)) = (self.per_s(task, ours, phase, round), peers[better]) {
                wins[better] += 1;
                ratios.push(ours / peer);
            }
        }
        let peer = Subject::PEERS[usize::from(wins[1] > wins[0])];
        Some(Ratio { spread: Spread::of(&ratios)?, peer })
    }

    /// Why there is nothing to say of `subject`: its first failure.
    pub fn reason(&self, task: Task, subject: Subject) -> String {
        let failed = self.of(task, subject).find_map(|visit| visit.outcome.as_ref().err());
        failed.map_or_else(|| "it was not run".to_owned(), |reason| format!("{} failed: {reason}", subject.name()))
    }

    /// All tasks, in the order in which they were first done.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        for visit in &self.visits {
            if !tasks.contains(&visit.task) {
                tasks.push(visit.task);
            }
        }
        tasks
    }

    /// Everybody to whom `task` was done.
    pub fn subjects(&self, task: Task) -> Vec<Subject> {
        let mut subjects: Vec<Subject> =
            self.visits.iter().filter(|visit| visit.task == task).map(|visit| visit.subject).collect();
        subjects.sort_unstable();
        subjects.dedup();
        subjects
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A visit with one phase of `per_s` operations in a second.
    pub fn visit(task: Task, subject: Subject, round: usize, phase: &str, per_s: u64) -> Visit {
        let tally = Tally { name: phase.to_owned(), ops: per_s, elapsed_s: 1.0, cpu_s: 0.5, ..Tally::default() };
        Visit { task, subject, round, outcome: Ok(vec![tally]) }
    }

    pub const READ: Task = Task { work: "read", device: Kind::Disk, threads: 1 };

    #[test]
    fn a_ratio_is_taken_round_by_round_against_the_better_peer() {
        let mut found = Found::default();
        for (round, (ours, mmap, random)) in [(300, 100, 50), (600, 100, 150), (400, 80, 100)].into_iter().enumerate() {
            found.visits.push(visit(READ, Subject::Guards, round, "read", ours));
            found.visits.push(visit(READ, Subject::Mmap, round, "read", mmap));
            found.visits.push(visit(READ, Subject::MmapRandom, round, "read", random));
        }
        let ratio = found.ratio(READ, Subject::Guards, "read").unwrap();
        assert_eq!((ratio.spread.least, ratio.spread.median, ratio.spread.most), (3.0, 4.0, 4.0));
        assert_eq!(ratio.peer, Subject::MmapRandom);
        assert_eq!(found.ratio(READ, Subject::Vmcache, "read"), None);
        assert_eq!(found.median(READ, Subject::Guards, "read", Tally::per_s), Some(400.0));
    }

    #[test]
    fn a_peer_that_failed_leaves_the_other_and_its_reason() {
        let mut found = Found::default();
        found.visits.push(visit(READ, Subject::Guards, 0, "read", 300));
        found.visits.push(visit(READ, Subject::MmapRandom, 0, "read", 100));
        found.visits.push(Visit { outcome: Err("killed".into()), ..visit(READ, Subject::Mmap, 0, "read", 1) });
        assert_eq!(found.ratio(READ, Subject::Guards, "read").unwrap().spread.median, 3.0);
        assert_eq!(found.reason(READ, Subject::Mmap), "mmap failed: killed");
        assert_eq!(found.subjects(READ), [Subject::Mmap, Subject::MmapRandom, Subject::Guards]);
    }
}
