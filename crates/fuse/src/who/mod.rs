//! Who asks, and whether a request waits for them.
//!
//! The kernel says which thread makes a request. Whether that is critical is said, in this order, by hints given while
//! mounted, by rules, and (if switched on) by what was observed: a process that waits for input from somebody it is
//! connected to between its flushes answers requests ([`judge`]). While a thread is served it stands so in the graph of
//! tasks ([`standing`]). Critical threads that sleep in the kernel, on the lock of a file that somebody else flushes, are
//! found by looking ([`locks`]).
//!
//! What was found out about a thread is kept for a while ([`known`]); a number that was given to another thread meanwhile
//! is noticed by the time when it was started.
//!
//! Relies on `/proc`. A wrong answer costs time, never data.

mod hints;
mod judge;
mod known;
mod locks;
mod rules;
mod standing;
mod unruled;
mod watch;

use std::path::Path;
use std::sync::Arc;

use quire_writecache::Tasks;
use quire_writecache::critical::{self, Acting};

pub use hints::Hint;
pub use judge::Caller;
use judge::Judge;
pub use locks::{LockFigures, Work};
use locks::{Locks, Proc, Served};
pub use rules::{BadRule, DEFAULT_RULES, POSTGRESQL_RULES, REDIS_RULES, Rules, SQLITE_RULES, Verdict};
use standing::{Raised, Standings};

/// Knows who is critical.
pub struct Who {
    judge: Arc<Judge>,
    standings: Arc<Standings>,
    locks: Option<Locks>,
}

/// The calling thread works for a task, which is critical or not, while this lives.
pub struct Entered {
    _served: Option<Served>,
    _acting: Acting,
    _raised: Raised,
}

impl Who {
    /// With these rules; `critical` are names of programs that are critical from the beginning.
    pub fn new(tasks: Arc<Tasks>, rules: Rules, critical: &[String], observe: bool) -> Self {
        Self {
            judge: Arc::new(Judge::new(rules, critical, observe)),
            standings: Arc::new(Standings::new(tasks)),
            locks: None,
        }
    }

    /// Finds out, too, who sleeps on the lock of a file at this mount point while another is served.
    #[must_use]
    pub fn watching_locks(mut self, mount_point: &Path) -> Self {
        match Proc::new(Arc::clone(&self.judge), mount_point) {
            Ok(sight) => self.locks = Some(Locks::new(Arc::clone(&self.standings), Arc::new(sight))),
            Err(error) => tracing::warn!(%error, "the system doesn't tell who waits for the lock of a file"),
        }
        self
    }

    /// From now on programs are counted, and told of, that flush often and of which nothing is known.
    pub fn count_unruled(&self) {
        self.judge.count_unruled();
    }

    /// Who the thread with this number is; `flushes` if it waits for a file to be durable.
    pub fn of(&self, thread: u32, flushes: bool) -> Caller {
        self.judge.of(thread, flushes)
    }

    /// The thread with this number opens a file: it may be critical, and its first write may find the file locked.
    pub fn opens(&self, thread: u32) {
        if let Some(locks) = &self.locks {
            locks.opens(thread);
        }
    }

    /// The calling thread does `work` for `caller` until the result is dropped.
    pub fn enter(&self, caller: Caller, work: Work) -> Entered {
        Entered {
            _served: self.locks.as_ref().map(|locks| locks.serve(&caller, work)),
            _acting: critical::act_as(caller.task),
            _raised: self.standings.raise(&caller, work.is_log),
        }
    }

    /// Takes a hint.
    pub fn take(&self, hint: &Hint) {
        self.judge.hints.take(hint);
    }

    /// The hints in force, in words.
    pub fn hints(&self) -> Vec<String> {
        self.judge.hints.words()
    }

    /// How often rules and observation agreed; `None` if nothing is observed.
    pub fn agreement(&self) -> Option<[[u64; 2]; 2]> {
        self.judge.agreement()
    }

    /// The programs that flush often and of which neither a hint nor a rule says anything, and how often.
    pub fn unruled(&self) -> Vec<(String, u64)> {
        self.judge.unruled()
    }

    /// What came of looking for threads that wait for the lock of a file; `None` if nobody looks.
    pub fn lock_figures(&self) -> Option<LockFigures> {
        self.locks.as_ref().map(Locks::figures)
    }

    /// What is known of a thread that was seen: its process, that one's name, and its verdict.
    pub fn described(&self, thread: u32) -> Option<(u32, String, Verdict)> {
        self.judge.described(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::Ground;
    use quire_writecache::TaskId;

    #[test]
    fn a_verdict_becomes_the_tasks_standing_for_as_long_as_it_is_served() {
        let tasks = Tasks::new();
        let who = Who::new(Arc::clone(&tasks), Rules::default(), &[], false);
        let task = TaskId::external(77);
        let served = |verdict, is_log| {
            let work = Work { file: 1, is_log, locks: true };
            let _entered = who.enter(Caller { task, verdict, ground: Ground::Rule }, work);
            assert_eq!(critical::current(), task);
            let standing = tasks.standing(task);
            (standing.critical, standing.inherited)
        };
        assert_eq!(served(Verdict::Critical, false), (true, false));
        assert_eq!(served(Verdict::Inherits, false), (false, true));
        assert_eq!(served(Verdict::Log, true), (false, true));
        for (verdict, is_log) in [(Verdict::Log, false), (Verdict::Normal, true)] {
            assert_eq!(served(verdict, is_log), (false, false));
        }
        assert!(!tasks.standing(task).any());
    }
}
