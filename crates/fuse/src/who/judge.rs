//! The verdict on a thread: hints first, then rules, then what was observed.
//!
//! Relies on [`Known`] for what is known of threads, and on [`Watch`] for what was observed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quire_writecache::TaskId;

use crate::who::hints::{Hint, Hints};
use crate::who::known::{Facts, Known};
use crate::who::rules::{Rules, Verdict};
use crate::who::unruled::Unruled;
use crate::who::watch::Watch;

/// On what a verdict rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Somebody said so.
    Hint,
    /// A rule.
    Rule,
    /// It was observed.
    Observed,
    /// Nothing is known: not critical.
    Nothing,
}

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The thread.
    pub task: TaskId,
    /// Whether a request waits for it.
    pub verdict: Verdict,
    /// On what that rests.
    pub ground: Ground,
}

impl Caller {
    /// What the verdict means while it works at a file, which is a log or is none.
    pub fn verdict_at(&self, is_log: bool) -> Verdict {
        match self.verdict {
            Verdict::Log if is_log => Verdict::Inherits,
            Verdict::Log => Verdict::Normal,
            other => other,
        }
    }
}

/// How often rules and observation agreed, by flushes: `[by rule critical][observed critical]`.
#[derive(Debug, Default)]
struct Agreement {
    cells: [[AtomicU64; 2]; 2],
}

impl Agreement {
    fn read(&self) -> [[u64; 2]; 2] {
        std::array::from_fn(|rule| std::array::from_fn(|seen| self.cells[rule][seen].load(Relaxed)))
    }
}

/// Judges threads.
pub struct Judge {
    rules: Rules,
    /// What somebody says.
    pub hints: Hints,
    known: Known,
    watch: Option<Watch>,
    agreement: Agreement,
    unruled: Unruled,
}

impl Judge {
    /// By these rules; `critical` are names of programs that are critical from the beginning.
    pub fn new(rules: Rules, critical: &[String], observe: bool) -> Self {
        let hints = Hints::default();
        for pattern in critical {
            hints.take(&Hint::Name(pattern.clone()));
        }
        let watch = if observe { Watch::start() } else { None };
        Self {
            rules,
            hints,
            known: Known::default(),
            watch,
            agreement: Agreement::default(),
            unruled: Unruled::default(),
        }
    }

    /// Who the thread with this number is; `flushes` if it waits for a file to be durable.
    pub fn of(&self, thread: u32, flushes: bool) -> Caller {
        let task = TaskId::external(thread);
        if thread == 0 {
            // The kernel in nobody's name: mapped pages on their way back.
            return Caller { task: TaskId::NOBODY, verdict: Verdict::Normal, ground: Ground::Nothing };
        }
        let Some(facts) = self.known.facts(thread, &self.rules) else {
            return Caller { task, verdict: Verdict::Normal, ground: Ground::Nothing };
        };
        if flushes && let Some(watch) = &self.watch {
            watch.flushes(facts.process, thread);
            let (rule, seen) = (facts.by_rule == Some(Verdict::Critical), self.observed(facts.process));
            if facts.by_rule.is_some() {
                self.agreement.cells[usize::from(rule)][usize::from(seen)].fetch_add(1, Relaxed);
            }
        }
        let (verdict, ground) = self.on(&facts);
        // What is observed needs no hint.
        if flushes && self.watch.is_none() {
            match ground {
                Ground::Nothing => self.unruled.note(&facts.comm),
                Ground::Hint | Ground::Rule | Ground::Observed => self.unruled.forget(&facts.comm),
            }
        }
        Caller { task, verdict, ground }
    }

    fn observed(&self, process: u32) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.answers_requests(process))
    }

    fn on(&self, facts: &Facts) -> (Verdict, Ground) {
        if self.hints.name(facts.process, facts.start_ticks, &facts.comm) {
            return (Verdict::Critical, Ground::Hint);
        }
        match facts.by_rule {
            Some(verdict) => (verdict, Ground::Rule),
            None if self.observed(facts.process) => (Verdict::Critical, Ground::Observed),
            None => (Verdict::Normal, Ground::Nothing),
        }
    }

    /// How often rules and observation agreed; `None` if nothing is observed.
    pub fn agreement(&self) -> Option<[[u64; 2]; 2]> {
        self.watch.as_ref().map(|_| self.agreement.read())
    }

    /// From now on those are counted of whom nothing is known.
    pub fn count_unruled(&self) {
        self.unruled.start();
    }

    /// The programs that flush often and of which neither a hint nor a rule says anything, and how often.
    pub fn unruled(&self) -> Vec<(String, u64)> {
        self.unruled.often()
    }

    /// What is known of a thread that was seen: its process, that one's name, and its verdict.
    pub fn described(&self, thread: u32) -> Option<(u32, String, Verdict)> {
        let facts = self.known.remembered(thread)?;
        let (verdict, _) = self.on(&facts);
        Some((facts.process, facts.comm, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_come_before_rules_and_rules_before_nothing() {
        let own = std::process::id();
        let judge = |rules: &str| Judge::new(Rules::parse(rules).unwrap(), &[], false);
        assert_eq!(judge("").of(own, true).ground, Ground::Nothing);
        let ruled = judge(&format!("normal uid={}", quire_sys::task::user_of(own).unwrap()));
        assert_eq!((ruled.of(own, true).verdict, ruled.of(own, true).ground), (Verdict::Normal, Ground::Rule));
        ruled.hints.take(&Hint::Process(own));
        assert_eq!((ruled.of(own, true).verdict, ruled.of(own, true).ground), (Verdict::Critical, Ground::Hint));
        ruled.hints.take(&Hint::ForgetProcess(own));
        assert_eq!(ruled.of(own, true).ground, Ground::Rule);
        assert_eq!(ruled.of(0, true).task, TaskId::NOBODY);
    }

    #[test]
    fn a_program_that_flushes_often_is_unruled_until_a_hint_names_it() {
        let own = std::process::id();
        let judge = Judge::new(Rules::default(), &[], false);
        judge.count_unruled();
        for _ in 0..120 {
            judge.of(own, false);
        }
        assert_eq!(judge.unruled(), [], "only flushes are waited for");
        for _ in 0..120 {
            judge.of(own, true);
        }
        let name = quire_sys::task::identity(own).unwrap().name;
        assert_eq!(judge.unruled(), [(name, 120)]);
        judge.hints.take(&Hint::Process(own));
        judge.of(own, true);
        assert_eq!(judge.unruled(), []);
    }

    #[test]
    fn a_verdict_about_logs_means_nothing_at_other_files() {
        let caller = |verdict| Caller { task: TaskId(1), verdict, ground: Ground::Rule };
        assert_eq!(caller(Verdict::Log).verdict_at(true), Verdict::Inherits);
        assert_eq!(caller(Verdict::Log).verdict_at(false), Verdict::Normal);
        for verdict in [Verdict::Critical, Verdict::Inherits, Verdict::Normal] {
            assert_eq!((caller(verdict).verdict_at(true), caller(verdict).verdict_at(false)), (verdict, verdict));
        }
    }
}
