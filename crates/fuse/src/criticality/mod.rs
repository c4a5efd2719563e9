//! Which task makes a request of the mount, and whether a request of a client waits for that task.
//!
//! The kernel says which thread makes a request. Whether that thread is critical is decided, in this order, by hints given
//! while mounted, by rules, and (if switched on) by observation: a process that waits, between its flushes, for input from
//! a connection answers requests ([`classifier`]). While the mount serves a thread, the verdict stands in the graph of
//! tasks ([`graph`]). Critical threads that sleep in the kernel, on the lock of a file that another thread flushes, are
//! found by looking ([`lock_waits`]).
//!
//! What was found out about a thread is kept for a while ([`task_cache`]). The time when a thread was started tells it from
//! another one that has got its number meanwhile.
//!
//! Relies on `/proc`. A wrong answer costs time, never data.

mod classifier;
mod graph;
mod hints;
mod lock_waits;
mod rules;
mod server_detector;
mod task_cache;
mod unclassified;

use std::path::Path;
use std::sync::Arc;

use quire_writecache::TaskGraph;
use quire_writecache::critical::{self, ActingTaskGuard};

use classifier::Classifier;
pub use classifier::RequestTask;
use graph::{CriticalityGraph, VerdictScope};
pub use hints::CriticalityHint;
pub use lock_waits::{FileOperation, LockWaitStats};
use lock_waits::{LockWaitDetector, ProcProbe, ServedRequest};
pub use rules::{
    CriticalityDecision, CriticalityRules, DEFAULT_RULES, POSTGRESQL_RULES, REDIS_RULES, RuleError, SQLITE_RULES,
};

/// Knows who is critical.
pub struct CriticalityTracker {
    classifier: Arc<Classifier>,
    graph: Arc<CriticalityGraph>,
    lock_waits: Option<LockWaitDetector>,
}

/// The calling thread works for a task, which is critical or not, while this lives.
pub struct CallerScope {
    _served: Option<ServedRequest>,
    _acting: ActingTaskGuard,
    _boost: VerdictScope,
}

impl CriticalityTracker {
    /// With these rules; `critical` are names of programs that are critical from the beginning.
    pub fn new(tasks: Arc<TaskGraph>, rules: CriticalityRules, critical: &[String], observe: bool) -> Self {
        Self {
            classifier: Arc::new(Classifier::new(rules, critical, observe)),
            graph: Arc::new(CriticalityGraph::new(tasks)),
            lock_waits: None,
        }
    }

    /// Finds out, too, who sleeps on the lock of a file at this mount point while another is served.
    #[must_use]
    pub fn detecting_lock_waits(mut self, mount_point: &Path) -> Self {
        match ProcProbe::new(Arc::clone(&self.classifier), mount_point) {
            Ok(probe) => self.lock_waits = Some(LockWaitDetector::new(Arc::clone(&self.graph), Arc::new(probe))),
            Err(error) => tracing::warn!(%error, "the system doesn't tell who waits for the lock of a file"),
        }
        self
    }

    /// From now on programs are counted, and told of, that flush often and of which nothing is known.
    pub fn count_unclassified(&self) {
        self.classifier.count_unclassified();
    }

    /// Who the thread with this number is; `flushes` if it waits for a file to be durable.
    pub fn classify(&self, thread: u32, flushes: bool) -> RequestTask {
        self.classifier.classify(thread, flushes)
    }

    /// The thread with this number opens a file: it may be critical, and its first write may find the file locked.
    pub fn opens(&self, thread: u32) {
        if let Some(lock_waits) = &self.lock_waits {
            lock_waits.opens(thread);
        }
    }

    /// The calling thread does `operation` for `caller` until the result is dropped.
    pub fn enter(&self, caller: RequestTask, operation: FileOperation) -> CallerScope {
        CallerScope {
            _served: self.lock_waits.as_ref().map(|lock_waits| lock_waits.serve(&caller, operation)),
            _acting: critical::act_as(caller.task),
            _boost: self.graph.boost(&caller, operation.is_log),
        }
    }

    /// Takes a hint.
    pub fn take(&self, hint: &CriticalityHint) {
        self.classifier.hints.take(hint);
    }

    /// The hints in force, in words.
    pub fn hints(&self) -> Vec<String> {
        self.classifier.hints.words()
    }

    /// How often rules and observation agreed; `None` if nothing is observed.
    pub fn confusion_matrix(&self) -> Option<[[u64; 2]; 2]> {
        self.classifier.confusion_matrix()
    }

    /// The programs that flush often and of which neither a hint nor a rule says anything, and how often.
    pub fn unclassified(&self) -> Vec<(String, u64)> {
        self.classifier.unclassified()
    }

    /// What came of looking for threads that wait for the lock of a file; `None` if the mount does not look.
    pub fn lock_wait_stats(&self) -> Option<LockWaitStats> {
        self.lock_waits.as_ref().map(LockWaitDetector::figures)
    }

    /// What is known of a thread that was seen: its process, that one's name, and its verdict.
    pub fn described(&self, thread: u32) -> Option<(u32, String, CriticalityDecision)> {
        self.classifier.described(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use classifier::VerdictSource;
    use quire_writecache::TaskId;

    #[test]
    fn a_verdict_becomes_the_tasks_standing_for_as_long_as_it_is_served() {
        let tasks = TaskGraph::new();
        let criticality = CriticalityTracker::new(Arc::clone(&tasks), CriticalityRules::default(), &[], false);
        let task = TaskId::external(77);
        let served = |verdict, is_log| {
            let operation = FileOperation { file: 1, is_log, holds_lock: true };
            let _entered = criticality.enter(RequestTask { task, verdict, source: VerdictSource::Rule }, operation);
            assert_eq!(critical::current(), task);
            let criticality = tasks.criticality(task);
            (criticality.critical, criticality.inherited)
        };
        assert_eq!(served(CriticalityDecision::Critical, false), (true, false));
        assert_eq!(served(CriticalityDecision::Inherits, false), (false, true));
        assert_eq!(served(CriticalityDecision::Log, true), (false, true));
        for (verdict, is_log) in [(CriticalityDecision::Log, false), (CriticalityDecision::Normal, true)] {
            assert_eq!(served(verdict, is_log), (false, false));
        }
        assert!(!tasks.criticality(task).any());
    }
}
