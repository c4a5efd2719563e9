//! What a run of the suite is of: the commit, the time, the machine.
//!
//! Relies on `git`, `date` and `/proc`. What they don't tell is absent.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::load::processors;

/// The sources and the machine of a run.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The commit's name; `None` outside a repository.
    pub commit: Option<String>,
    /// Files of the repository differ from the commit.
    pub has_changes: bool,
    /// When the run began, as `2026-11-28 09:45` in UTC.
    pub began: Option<String>,
    /// The same in seconds since 1970.
    pub unix_time_s: u64,
    /// Processors that the run may use.
    pub processors: usize,
    /// What they are.
    pub processor: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
}

impl Origin {
    /// What a run is of that begins now.
    pub fn now() -> Self {
        // A run adds its row to the files of runs, which changes nothing that the next one tests.
        let status = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!*suite.json", ":!*suite.md"];
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            commit: printed("git", &["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty()),
            has_changes: printed("git", &status).is_some_and(|files| !files.is_empty()),
            began: printed("date", &["-u", "+%Y-%m-%d %H:%M"]),
            unix_time_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            processors: processors(),
            processor: model.map(|(_, name)| name.to_owned()),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        }
    }
}

/// What a program prints that succeeds.
fn printed(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_knows_when_and_where_it_began() {
        let origin = Origin::now();
        assert!(origin.began.is_none_or(|began| began.len() == 16 && began.starts_with("20")));
        assert!(origin.unix_time_s > 1_700_000_000 && origin.processors > 0 && origin.kernel.is_some());
    }
}
