//! The six admission policies, by the paper's names and by those that `quire mount --policy` takes.
//!
//! Relies on nothing; what a policy does is the cache's business.

use serde::Serialize;

/// An admission policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CachePolicy {
    /// Every write is cached.
    All,
    /// Those that a task waits for.
    Sync,
    /// Those to the database's log.
    Wal,
    /// Those that a critical task waits for.
    Cp,
    /// Those, and of any task that holds up a critical one.
    CpPi,
    /// Those, and those under way for which a critical task begins to wait.
    CpPiIoi,
}

impl CachePolicy {
    /// All of them, as the paper lists them.
    pub const EVERY: [Self; 6] = [Self::All, Self::Sync, Self::Wal, Self::Cp, Self::CpPi, Self::CpPiIoi];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "ALL",
            Self::Sync => "SYNC",
            Self::Wal => "WAL",
            Self::Cp => "CP",
            Self::CpPi => "CP+PI",
            Self::CpPiIoi => "CP+PI+IOI",
        }
    }

    /// As `quire mount` takes it.
    pub fn flag(self) -> String {
        self.name().to_lowercase()
    }

    /// The policy called `name`, however it is spelled.
    pub fn called(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name_and_its_flag() {
        for policy in CachePolicy::EVERY {
            assert_eq!(CachePolicy::called(policy.name()), Some(policy));
            assert_eq!(CachePolicy::called(&policy.flag()), Some(policy));
        }
        assert_eq!(CachePolicy::called("none"), None);
    }
}
