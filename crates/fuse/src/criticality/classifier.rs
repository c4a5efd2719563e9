//! The verdict on a thread: hints first, then rules, then what was observed.
//!
//! Relies on [`TaskCache`] for what is known of threads, and on [`ServerDetector`] for what was observed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quire_writecache::TaskId;

use crate::criticality::hints::{CriticalityHint, CriticalityHints};
use crate::criticality::rules::{CriticalityDecision, CriticalityRules};
use crate::criticality::server_detector::ServerDetector;
use crate::criticality::task_cache::{TaskCache, TaskInfo};
use crate::criticality::unclassified::UnclassifiedPrograms;

/// On what a verdict rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictSource {
    /// An operator or a program said so.
    CriticalityHint,
    /// A rule.
    Rule,
    /// It was observed.
    Observed,
    /// Nothing is known: not critical.
    Nothing,
}

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestTask {
    /// The thread.
    pub task: TaskId,
    /// Whether a request waits for it.
    pub verdict: CriticalityDecision,
    /// On what that rests.
    pub source: VerdictSource,
}

impl RequestTask {
    /// What the verdict means while it works at a file, which is a log or is none.
    pub fn verdict_at(&self, is_log: bool) -> CriticalityDecision {
        match self.verdict {
            CriticalityDecision::Log if is_log => CriticalityDecision::Inherits,
            CriticalityDecision::Log => CriticalityDecision::Normal,
            other => other,
        }
    }
}

/// How often rules and observation agreed, by flushes: `[by rule critical][observed critical]`.
#[derive(Debug, Default)]
struct ConfusionMatrix {
    cells: [[AtomicU64; 2]; 2],
}

impl ConfusionMatrix {
    fn read(&self) -> [[u64; 2]; 2] {
        std::array::from_fn(|rule| std::array::from_fn(|seen| self.cells[rule][seen].load(Relaxed)))
    }
}

/// Classifies threads.
pub struct Classifier {
    rules: CriticalityRules,
    /// What operators and programs say.
    pub hints: CriticalityHints,
    task_cache: TaskCache,
    server_detector: Option<ServerDetector>,
    confusion_matrix: ConfusionMatrix,
    unclassified: UnclassifiedPrograms,
}

impl Classifier {
    /// By these rules; `critical` are names of programs that are critical from the beginning.
    pub fn new(rules: CriticalityRules, critical: &[String], observe: bool) -> Self {
        let hints = CriticalityHints::default();
        for pattern in critical {
            hints.take(&CriticalityHint::Name(pattern.clone()));
        }
        let server_detector = if observe { ServerDetector::start() } else { None };
        Self {
            rules,
            hints,
            task_cache: TaskCache::default(),
            server_detector,
            confusion_matrix: ConfusionMatrix::default(),
            unclassified: UnclassifiedPrograms::default(),
        }
    }

    /// Who the thread with this number is; `flushes` if it waits for a file to be durable.
    pub fn classify(&self, thread: u32, flushes: bool) -> RequestTask {
        let task = TaskId::external(thread);
        if thread == 0 {
            // The kernel in no task's name: mapped pages on their way back.
            return RequestTask { task, verdict: CriticalityDecision::Normal, source: VerdictSource::Nothing };
        }
        let Some(facts) = self.task_cache.facts(thread, &self.rules) else {
            return RequestTask { task, verdict: CriticalityDecision::Normal, source: VerdictSource::Nothing };
        };
        if flushes && let Some(server_detector) = &self.server_detector {
            server_detector.flushes(facts.process, thread);
            let (rule, seen) = (facts.by_rule == Some(CriticalityDecision::Critical), self.observed(facts.process));
            if facts.by_rule.is_some() {
                self.confusion_matrix.cells[usize::from(rule)][usize::from(seen)].fetch_add(1, Relaxed);
            }
        }
        let (verdict, source) = self.on(&facts);
        // What is observed needs no hint.
        if flushes && self.server_detector.is_none() {
            match source {
                VerdictSource::Nothing => self.unclassified.note(&facts.comm),
                VerdictSource::CriticalityHint | VerdictSource::Rule | VerdictSource::Observed => {
                    self.unclassified.forget(&facts.comm)
                }
            }
        }
        RequestTask { task, verdict, source }
    }

    fn observed(&self, process: u32) -> bool {
        self.server_detector.as_ref().is_some_and(|server_detector| server_detector.answers_requests(process))
    }

    fn on(&self, facts: &TaskInfo) -> (CriticalityDecision, VerdictSource) {
        if self.hints.name(facts.process, facts.start_ticks, &facts.comm) {
            return (CriticalityDecision::Critical, VerdictSource::CriticalityHint);
        }
        match facts.by_rule {
            Some(verdict) => (verdict, VerdictSource::Rule),
            None if self.observed(facts.process) => (CriticalityDecision::Critical, VerdictSource::Observed),
            None => (CriticalityDecision::Normal, VerdictSource::Nothing),
        }
    }

    /// How often rules and observation agreed; `None` if nothing is observed.
    pub fn confusion_matrix(&self) -> Option<[[u64; 2]; 2]> {
        self.server_detector.as_ref().map(|_| self.confusion_matrix.read())
    }

    /// From now on those are counted of whom nothing is known.
    pub fn count_unclassified(&self) {
        self.unclassified.start();
    }

    /// The programs that flush often and of which neither a hint nor a rule says anything, and how often.
    pub fn unclassified(&self) -> Vec<(String, u64)> {
        self.unclassified.often()
    }

    /// What is known of a thread that was seen: its process, that one's name, and its verdict.
    pub fn described(&self, thread: u32) -> Option<(u32, String, CriticalityDecision)> {
        let facts = self.task_cache.remembered(thread)?;
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
        let classifier = |rules: &str| Classifier::new(CriticalityRules::parse(rules).unwrap(), &[], false);
        assert_eq!(classifier("").classify(own, true).source, VerdictSource::Nothing);
        let ruled = classifier(&format!("normal uid={}", quire_sys::task::user_of(own).unwrap()));
        assert_eq!(
            (ruled.classify(own, true).verdict, ruled.classify(own, true).source),
            (CriticalityDecision::Normal, VerdictSource::Rule)
        );
        ruled.hints.take(&CriticalityHint::Process(own));
        assert_eq!(
            (ruled.classify(own, true).verdict, ruled.classify(own, true).source),
            (CriticalityDecision::Critical, VerdictSource::CriticalityHint)
        );
        ruled.hints.take(&CriticalityHint::ForgetProcess(own));
        assert_eq!(ruled.classify(own, true).source, VerdictSource::Rule);
        assert_eq!(ruled.classify(0, true).task, TaskId::external(0));
    }

    #[test]
    fn a_program_that_flushes_often_is_unruled_until_a_hint_names_it() {
        let own = std::process::id();
        let classifier = Classifier::new(CriticalityRules::default(), &[], false);
        classifier.count_unclassified();
        for _ in 0..120 {
            classifier.classify(own, false);
        }
        assert_eq!(classifier.unclassified(), [], "only flushes are waited for");
        for _ in 0..120 {
            classifier.classify(own, true);
        }
        let name = quire_sys::task::identity(own).unwrap().name;
        assert_eq!(classifier.unclassified(), [(name, 120)]);
        classifier.hints.take(&CriticalityHint::Process(own));
        classifier.classify(own, true);
        assert_eq!(classifier.unclassified(), []);
    }

    #[test]
    fn a_verdict_about_logs_means_nothing_at_other_files() {
        let caller = |verdict| RequestTask { task: TaskId(1), verdict, source: VerdictSource::Rule };
        assert_eq!(caller(CriticalityDecision::Log).verdict_at(true), CriticalityDecision::Inherits);
        assert_eq!(caller(CriticalityDecision::Log).verdict_at(false), CriticalityDecision::Normal);
        for verdict in [CriticalityDecision::Critical, CriticalityDecision::Inherits, CriticalityDecision::Normal] {
            assert_eq!((caller(verdict).verdict_at(true), caller(verdict).verdict_at(false)), (verdict, verdict));
        }
    }
}
