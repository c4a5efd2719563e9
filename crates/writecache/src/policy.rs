//! Which writes enter the cache: the six policies, as one pure function of what is known about a write.
//!
//! Relies on nothing. A wrong answer costs time, never data.

use std::fmt;
use std::str::FromStr;

/// An admission policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdmissionPolicy {
    /// Every write.
    All,
    /// Writes that a task waits for.
    Sync,
    /// Writes to logs, as the opener said which volumes and the writer which writes those are.
    Wal,
    /// Writes that a critical task waits for itself.
    Critical,
    /// Those, and writes of tasks on which a critical one depends: they hold its lock or owe it a signal.
    CriticalProcess,
    /// Those, and writes under way to the slow device for which a critical task begins to wait.
    #[default]
    CriticalProcessIo,
}

impl AdmissionPolicy {
    /// All of them, as the paper lists them.
    pub const EVERY: [Self; 6] =
        [Self::All, Self::Sync, Self::Wal, Self::Critical, Self::CriticalProcess, Self::CriticalProcessIo];

    /// Whether criticality passes to tasks that a critical one depends on.
    pub fn inherits_process(self) -> bool {
        self >= Self::CriticalProcess
    }

    /// Whether writes under way are written again to the fast device when a critical task needs them.
    pub fn inherits_io(self) -> bool {
        self == Self::CriticalProcessIo
    }

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "ALL",
            Self::Sync => "SYNC",
            Self::Wal => "WAL",
            Self::Critical => "CP",
            Self::CriticalProcess => "CP+PI",
            Self::CriticalProcessIo => "CP+PI+IOI",
        }
    }
}

impl fmt::Display for AdmissionPolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no admission policy is called {0:?}: take ALL, SYNC, WAL, CP, CP+PI or CP+PI+IOI")]
pub struct UnknownAdmissionPolicy(pub String);

impl FromStr for AdmissionPolicy {
    type Err = UnknownAdmissionPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownAdmissionPolicy> {
        let known = Self::EVERY.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| UnknownAdmissionPolicy(name.to_owned()))
    }
}

/// What is known about a write when it must be decided where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionFacts {
    /// A task waits for it.
    pub is_sync: bool,
    /// It goes to a log.
    pub is_log: bool,
    /// The task that waits is critical itself.
    pub critical: bool,
    /// A critical task depends on the task that waits.
    pub inherited: bool,
    /// It is under way to the slow device and a critical task waits for it.
    pub reissue: bool,
    /// The cache holds an older version of a block that is not yet on the slow device.
    pub cached: bool,
    /// The slow device is dead.
    pub slow_dead: bool,
    /// The fast device is dead.
    pub fast_dead: bool,
    /// The volume's length was changed on the slow device and not flushed since.
    pub len_pending: bool,
    /// The log has no room for it now.
    pub log_full: bool,
    /// It was sent to the slow device already, for a flush of which a task waits anyway.
    pub is_direct: bool,
}

impl AdmissionFacts {
    /// Whether only the log can take it: the order of a block's versions or a dead slow device demands that.
    pub fn needs_log(&self) -> bool {
        self.cached || self.slow_dead
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// To the log on the fast device.
    Fast,
    /// Straight to the slow device.
    Slow,
}

/// Why it goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdmissionReason {
    /// Fast: the policy takes every write.
    Everything,
    /// Fast: a task waits, and that is enough for the policy.
    Synchronous,
    /// Fast: it goes to a log.
    Log,
    /// Fast: a critical task waits for it.
    CriticalTask,
    /// Fast: a critical task depends on the one that waits for it.
    InheritedTask,
    /// Fast: it was under way to the slow device when a critical task began to wait for it.
    InheritedIo,
    /// Fast: an older version is in the cache, and on the slow device it would be overwritten by that.
    OverCached,
    /// Fast: the slow device is dead.
    SlowDead,
    /// Slow: no task waits for it.
    Asynchronous,
    /// Slow: a task waits for it, but no critical task (or it isn't a log's).
    NotCritical,
    /// Slow although the policy wanted it: the cache is full.
    Full,
    /// Slow: the fast device is dead.
    FastDead,
    /// Slow: the volume's length was changed there, and only a flush makes that durable.
    LenPending,
    /// Slow: the task that waits for it needs a flush of the slow device in any case.
    SlowAnyway,
}

impl AdmissionReason {
    /// All of them, in order of their index.
    pub const EVERY: [Self; 14] = [
        Self::Everything,
        Self::Synchronous,
        Self::Log,
        Self::CriticalTask,
        Self::InheritedTask,
        Self::InheritedIo,
        Self::OverCached,
        Self::SlowDead,
        Self::Asynchronous,
        Self::NotCritical,
        Self::Full,
        Self::FastDead,
        Self::LenPending,
        Self::SlowAnyway,
    ];

    /// Its place in [`AdmissionReason::EVERY`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Where it sends a write.
    pub fn admission(self) -> Admission {
        if self.is_fast() { Admission::Fast } else { Admission::Slow }
    }

    /// Whether it sends a write to the log.
    pub fn is_fast(self) -> bool {
        self < Self::Asynchronous
    }

    /// Whether order or a dead device demands it, not the policy.
    pub fn is_demand(self) -> bool {
        matches!(self, Self::OverCached | Self::SlowDead)
    }

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Synchronous => "synchronous",
            Self::Log => "log",
            Self::CriticalTask => "critical_task",
            Self::InheritedTask => "inherited_task",
            Self::InheritedIo => "inherited_io",
            Self::OverCached => "over_cached",
            Self::SlowDead => "slow_dead",
            Self::Asynchronous => "asynchronous",
            Self::NotCritical => "not_critical",
            Self::Full => "full",
            Self::FastDead => "fast_dead",
            Self::LenPending => "len_pending",
            Self::SlowAnyway => "slow_anyway",
        }
    }

    /// In words, for traces.
    pub fn words(self) -> &'static str {
        match self {
            Self::Everything => "the policy caches every write",
            Self::Synchronous => "a task waits for it",
            Self::Log => "it goes to a log",
            Self::CriticalTask => "a critical task waits for it",
            Self::InheritedTask => "a critical task depends on the task that waits for it",
            Self::InheritedIo => "a critical task began to wait for it on its way to the slow device",
            Self::OverCached => "an older version is in the cache",
            Self::SlowDead => "the slow device is dead",
            Self::Asynchronous => "no task waits for it",
            Self::NotCritical => "no critical task waits for it",
            Self::Full => "the cache is full",
            Self::FastDead => "the fast device is dead",
            Self::LenPending => "the volume's new length is not durable yet",
            Self::SlowAnyway => "the task that waits for it needs a flush of the slow device in any case",
        }
    }
}

/// Where a write goes under `policy`, and why.
pub fn admit(policy: AdmissionPolicy, facts: &AdmissionFacts) -> AdmissionReason {
    if facts.fast_dead {
        return AdmissionReason::FastDead;
    }
    if facts.is_direct && !facts.needs_log() {
        return AdmissionReason::SlowAnyway;
    }
    if facts.len_pending {
        return AdmissionReason::LenPending;
    }
    let wanted = match policy {
        AdmissionPolicy::All => Some(AdmissionReason::Everything),
        AdmissionPolicy::Sync => facts.is_sync.then_some(AdmissionReason::Synchronous),
        AdmissionPolicy::Wal => facts.is_log.then_some(AdmissionReason::Log),
        AdmissionPolicy::Critical | AdmissionPolicy::CriticalProcess | AdmissionPolicy::CriticalProcessIo => {
            critical(policy, facts)
        }
    };
    let reason = match wanted {
        Some(reason) => reason,
        None if facts.cached => AdmissionReason::OverCached,
        None if facts.slow_dead => AdmissionReason::SlowDead,
        None if facts.is_sync => AdmissionReason::NotCritical,
        None => AdmissionReason::Asynchronous,
    };
    if facts.log_full && reason.is_fast() && !facts.needs_log() { AdmissionReason::Full } else { reason }
}

fn critical(policy: AdmissionPolicy, facts: &AdmissionFacts) -> Option<AdmissionReason> {
    if facts.reissue && policy.inherits_io() {
        return Some(AdmissionReason::InheritedIo);
    }
    if !facts.is_sync {
        return None;
    }
    if facts.critical {
        return Some(AdmissionReason::CriticalTask);
    }
    (facts.inherited && policy.inherits_process()).then_some(AdmissionReason::InheritedTask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(policy: AdmissionPolicy, facts: AdmissionFacts) -> bool {
        admit(policy, &facts).admission() == Admission::Fast
    }

    #[test]
    fn a_full_log_and_a_direct_write_turn_away_what_the_log_need_not_take() {
        let full = AdmissionFacts { log_full: true, is_sync: true, ..AdmissionFacts::default() };
        assert_eq!(admit(AdmissionPolicy::All, &full), AdmissionReason::Full);
        assert_eq!(
            admit(AdmissionPolicy::Critical, &full),
            AdmissionReason::NotCritical,
            "it would not have taken it in any case"
        );
        assert!(admitted(AdmissionPolicy::All, AdmissionFacts { cached: true, ..full }));
        assert!(admitted(AdmissionPolicy::All, AdmissionFacts { slow_dead: true, ..full }));
        let direct = AdmissionFacts { is_direct: true, ..full };
        assert_eq!(admit(AdmissionPolicy::All, &direct), AdmissionReason::SlowAnyway);
        assert!(admitted(AdmissionPolicy::All, AdmissionFacts { cached: true, ..direct }));
        assert_eq!(
            admit(AdmissionPolicy::All, &AdmissionFacts { fast_dead: true, ..direct }),
            AdmissionReason::FastDead
        );
    }

    #[test]
    fn each_policy_admits_more_than_the_one_before_it_and_nothing_else() {
        use AdmissionPolicy::{All, Critical, CriticalProcess, CriticalProcessIo, Sync, Wal};
        let quiet = AdmissionFacts::default();
        let sync = AdmissionFacts { is_sync: true, ..quiet };
        let log = AdmissionFacts { is_log: true, ..quiet };
        let critical = AdmissionFacts { critical: true, ..sync };
        let inherited = AdmissionFacts { inherited: true, ..sync };
        let reissue = AdmissionFacts { reissue: true, ..quiet };
        let who = |facts: AdmissionFacts| {
            AdmissionPolicy::EVERY.into_iter().filter(|policy| admitted(*policy, facts)).collect::<Vec<_>>()
        };
        assert_eq!(who(quiet), [All]);
        assert_eq!(who(sync), [All, Sync]);
        assert_eq!(who(log), [All, Wal]);
        assert_eq!(who(critical), [All, Sync, Critical, CriticalProcess, CriticalProcessIo]);
        assert_eq!(who(inherited), [All, Sync, CriticalProcess, CriticalProcessIo]);
        assert_eq!(who(reissue), [All, CriticalProcessIo]);
        assert_eq!(
            who(AdmissionFacts { critical: true, ..quiet }),
            [All],
            "an asynchronous write of a critical task may wait"
        );
    }

    #[test]
    fn order_of_versions_and_dead_devices_come_before_policy() {
        for policy in AdmissionPolicy::EVERY {
            assert!(admitted(policy, AdmissionFacts { cached: true, ..AdmissionFacts::default() }));
            assert!(admitted(policy, AdmissionFacts { slow_dead: true, ..AdmissionFacts::default() }));
            assert!(!admitted(policy, AdmissionFacts { fast_dead: true, cached: true, ..AdmissionFacts::default() }));
            assert!(!admitted(
                policy,
                AdmissionFacts { len_pending: true, critical: true, is_sync: true, ..AdmissionFacts::default() }
            ));
        }
    }

    #[test]
    fn reasons_and_policies_have_names() {
        for (index, reason) in AdmissionReason::EVERY.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
        for policy in AdmissionPolicy::EVERY {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("LRU".parse::<AdmissionPolicy>().is_err());
    }
}
