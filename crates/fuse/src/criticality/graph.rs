//! What a verdict makes of a task in the graph of tasks.
//!
//! Relies on the graph to look inheritance up: nothing is passed on here.

use std::sync::Arc;

use quire_writecache::{
    BlockedOn, BlockedTask, CriticalReason, CriticalScope, HeldResource, ResourceId, TaskGraph, TaskId,
};

use crate::criticality::classifier::{RequestTask, VerdictSource};
use crate::criticality::rules::CriticalityDecision;

/// Stands for all critical tasks that depend on others in a way that can't be seen.
const UNSEEN_TASK: TaskId = TaskId((1 << 62) + 1);

/// Enters verdicts in the graph of tasks.
pub struct CriticalityGraph {
    /// The graph.
    pub tasks: Arc<TaskGraph>,
    /// `UNSEEN_TASK` is critical, and blocked on this.
    unseen_resource: ResourceId,
    _unseen: (CriticalScope, BlockedTask),
}

/// A task stands as its verdict says while this lives.
pub struct VerdictScope {
    _scope: Option<CriticalScope>,
    _hold: Option<HeldResource>,
}

impl CriticalityGraph {
    /// In this graph.
    pub fn new(tasks: Arc<TaskGraph>) -> Self {
        let unseen_resource = ResourceId::next();
        let scope = tasks.enter(UNSEEN_TASK, CriticalReason::Rule);
        let (blocked, _) = tasks.block(UNSEEN_TASK, BlockedOn::Resource(unseen_resource));
        Self { tasks, unseen_resource, _unseen: (scope, blocked) }
    }

    /// The caller stands as its verdict says at a file, which is a log or is none.
    pub fn boost(&self, caller: &RequestTask, is_log: bool) -> VerdictScope {
        let reason = match caller.source {
            VerdictSource::CriticalityHint => CriticalReason::Hint,
            VerdictSource::Observed => CriticalReason::Observed,
            VerdictSource::Rule | VerdictSource::Nothing => CriticalReason::Rule,
        };
        let verdict = caller.verdict_at(is_log);
        VerdictScope {
            _scope: (verdict == CriticalityDecision::Critical).then(|| self.tasks.enter(caller.task, reason)),
            _hold: (verdict == CriticalityDecision::Inherits)
                .then(|| self.tasks.hold(caller.task, self.unseen_resource, false)),
        }
    }
}
