//! Who asks, and whether a request waits for them.
//!
//! The kernel says which thread makes a request. Whether that is critical is said, in this order, by hints given while
//! mounted, by rules, and (if switched on) by what was observed: a process that waits for input from somebody it is
//! connected to between its flushes answers requests.
//!
//! What was found out about a thread is kept for a while ([`known`]); a number that was given to another thread meanwhile
//! is noticed by the time when it was started.
//!
//! Relies on `/proc`. A wrong answer costs time, never data.

mod hints;
mod known;
mod rules;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quire_durable::cache::critical::{self, Acting};
use quire_durable::cache::{Blocked, BlockedOn, CriticalReason, Hold, ResourceId, Scope, TaskId, Tasks};

pub use hints::Hint;
use hints::Hints;
use known::{Facts, Known};
pub use rules::{BadRule, DEFAULT_RULES, POSTGRESQL_RULES, REDIS_RULES, Rules, Verdict};
use watch::Watch;

/// Stands for all critical tasks that depend on others in a way that can't be seen.
const SOMEBODY: TaskId = TaskId((1 << 62) + 1);

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

/// How often rules and observation agreed, by flushes: `[by rule critical][observed critical]`.
#[derive(Debug, Default)]
pub struct Agreement {
    cells: [[AtomicU64; 2]; 2],
}

impl Agreement {
    /// The counts.
    pub fn read(&self) -> [[u64; 2]; 2] {
        std::array::from_fn(|rule| std::array::from_fn(|seen| self.cells[rule][seen].load(Relaxed)))
    }
}

/// Knows who is critical.
pub struct Who {
    tasks: Arc<Tasks>,
    rules: Rules,
    hints: Hints,
    known: Known,
    watch: Option<Watch>,
    agreement: Agreement,
    /// `SOMEBODY` is critical, and blocked on this.
    promise: ResourceId,
    _somebody: (Scope, Blocked),
}

/// The calling thread works for a task, which is critical or not, while this lives.
pub struct Entered {
    _acting: Acting,
    _scope: Option<Scope>,
    _hold: Option<Hold>,
}

impl Who {
    /// With these rules; `critical` are names of programs that are critical from the beginning.
    pub fn new(tasks: Arc<Tasks>, rules: Rules, critical: &[String], observe: bool) -> Self {
        let promise = ResourceId::next();
        let scope = tasks.enter(SOMEBODY, CriticalReason::Rule);
        let (blocked, _) = tasks.block(SOMEBODY, BlockedOn::Resource(promise));
        let hints = Hints::default();
        for pattern in critical {
            hints.take(&Hint::Name(pattern.clone()));
        }
        let watch = if observe { Watch::start() } else { None };
        Self {
            tasks,
            rules,
            hints,
            known: Known::default(),
            watch,
            agreement: Agreement::default(),
            promise,
            _somebody: (scope, blocked),
        }
    }

    /// Who the thread with this number is; `flushes` if it waits for a file to be durable.
    pub fn of(&self, thread: u32, flushes: bool) -> Caller {
        let task = TaskId::external(thread);
        if thread == 0 {
            // The kernel in nobody's name: mapped pages on their way back.
            return Caller { task: TaskId::NOBODY, verdict: Verdict::Normal, ground: Ground::Nothing };
        }
        let observed = |process: u32| self.watch.as_ref().is_some_and(|watch| watch.answers_requests(process));
        let Some(facts) = self.known.facts(thread, &self.rules) else {
            return Caller { task, verdict: Verdict::Normal, ground: Ground::Nothing };
        };
        if flushes && let Some(watch) = &self.watch {
            watch.flushes(facts.process, thread);
            let (rule, seen) = (facts.by_rule == Some(Verdict::Critical), observed(facts.process));
            if facts.by_rule.is_some() {
                self.agreement.cells[usize::from(rule)][usize::from(seen)].fetch_add(1, Relaxed);
            }
        }
        let (verdict, ground) = self.judge(&facts, observed);
        Caller { task, verdict, ground }
    }

    fn judge(&self, facts: &Facts, observed: impl Fn(u32) -> bool) -> (Verdict, Ground) {
        if self.hints.name(facts.process, facts.start_ticks, &facts.comm) {
            return (Verdict::Critical, Ground::Hint);
        }
        if let Some(verdict) = facts.by_rule {
            return (verdict, Ground::Rule);
        }
        if observed(facts.process) { (Verdict::Critical, Ground::Observed) } else { (Verdict::Normal, Ground::Nothing) }
    }

    /// The calling thread works for `caller` until the result is dropped.
    pub fn enter(&self, caller: Caller) -> Entered {
        let reason = match caller.ground {
            Ground::Hint => CriticalReason::Hint,
            Ground::Observed => CriticalReason::Observed,
            Ground::Rule | Ground::Nothing => CriticalReason::Rule,
        };
        let is = |verdict| caller.verdict == verdict;
        Entered {
            _acting: critical::act_as(caller.task),
            _scope: is(Verdict::Critical).then(|| self.tasks.enter(caller.task, reason)),
            _hold: is(Verdict::Inherits).then(|| self.tasks.hold(caller.task, self.promise, false)),
        }
    }

    /// Takes a hint.
    pub fn take(&self, hint: &Hint) {
        self.hints.take(hint);
    }

    /// The hints in force, in words.
    pub fn hints(&self) -> Vec<String> {
        self.hints.words()
    }

    /// How often rules and observation agreed; `None` if nothing is observed.
    pub fn agreement(&self) -> Option<[[u64; 2]; 2]> {
        self.watch.as_ref().map(|_| self.agreement.read())
    }

    /// What is known of a thread that was seen: its process, that one's name, and its verdict.
    pub fn described(&self, thread: u32) -> Option<(u32, String, Verdict)> {
        let facts = self.known.remembered(thread)?;
        let (verdict, _) =
            self.judge(&facts, |process| self.watch.as_ref().is_some_and(|watch| watch.answers_requests(process)));
        Some((facts.process, facts.comm, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(rules: &str) -> (Arc<Tasks>, Who) {
        let tasks = Tasks::new();
        (Arc::clone(&tasks), Who::new(tasks, Rules::parse(rules).unwrap(), &[], false))
    }

    #[test]
    fn hints_come_before_rules_and_rules_before_nothing() {
        let own = std::process::id();
        let (_, quiet) = who("");
        assert_eq!(quiet.of(own, true).ground, Ground::Nothing);
        let (_, ruled) = who(&format!("normal uid={}", quire_sys::task::user_of(own).unwrap()));
        assert_eq!((ruled.of(own, true).verdict, ruled.of(own, true).ground), (Verdict::Normal, Ground::Rule));
        ruled.take(&Hint::Process(own));
        assert_eq!((ruled.of(own, true).verdict, ruled.of(own, true).ground), (Verdict::Critical, Ground::Hint));
        ruled.take(&Hint::ForgetProcess(own));
        assert_eq!(ruled.of(own, true).ground, Ground::Rule);
        assert_eq!(ruled.of(0, true).task, TaskId::NOBODY);
    }

    #[test]
    fn a_verdict_becomes_the_tasks_standing_for_as_long_as_it_is_served() {
        let (tasks, who) = who("");
        let task = TaskId::external(77);
        let caller = |verdict| Caller { task, verdict, ground: Ground::Rule };
        {
            let _entered = who.enter(caller(Verdict::Critical));
            assert!(tasks.standing(task).critical && critical::current() == task);
        }
        {
            let _entered = who.enter(caller(Verdict::Inherits));
            let standing = tasks.standing(task);
            assert!(standing.inherited && !standing.critical);
        }
        assert!(!tasks.standing(task).any());
        let _entered = who.enter(caller(Verdict::Normal));
        assert!(!tasks.standing(task).any());
    }
}
