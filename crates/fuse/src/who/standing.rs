//! What a verdict makes of a task in the graph of tasks.
//!
//! Relies on the graph to look inheritance up: nothing is passed on here.

use std::sync::Arc;

use quire_writecache::{Blocked, BlockedOn, CriticalReason, Hold, ResourceId, Scope, TaskId, Tasks};

use crate::who::judge::{Caller, Ground};
use crate::who::rules::Verdict;

/// Stands for all critical tasks that depend on others in a way that can't be seen.
const SOMEBODY: TaskId = TaskId((1 << 62) + 1);

/// Gives tasks their standing.
pub struct Standings {
    /// The graph.
    pub tasks: Arc<Tasks>,
    /// `SOMEBODY` is critical, and blocked on this.
    promise: ResourceId,
    _somebody: (Scope, Blocked),
}

/// A task stands as its verdict says while this lives.
pub struct Raised {
    _scope: Option<Scope>,
    _hold: Option<Hold>,
}

impl Standings {
    /// In this graph.
    pub fn new(tasks: Arc<Tasks>) -> Self {
        let promise = ResourceId::next();
        let scope = tasks.enter(SOMEBODY, CriticalReason::Rule);
        let (blocked, _) = tasks.block(SOMEBODY, BlockedOn::Resource(promise));
        Self { tasks, promise, _somebody: (scope, blocked) }
    }

    /// The caller stands as its verdict says at a file, which is a log or is none.
    pub fn raise(&self, caller: &Caller, is_log: bool) -> Raised {
        let reason = match caller.ground {
            Ground::Hint => CriticalReason::Hint,
            Ground::Observed => CriticalReason::Observed,
            Ground::Rule | Ground::Nothing => CriticalReason::Rule,
        };
        let verdict = caller.verdict_at(is_log);
        Raised {
            _scope: (verdict == Verdict::Critical).then(|| self.tasks.enter(caller.task, reason)),
            _hold: (verdict == Verdict::Inherits).then(|| self.tasks.hold(caller.task, self.promise, false)),
        }
    }
}
