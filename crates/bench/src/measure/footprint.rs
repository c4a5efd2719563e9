//! The memory that this process and its children hold for data and copies.
//!
//! Relies on `/proc`. Private memory counts by share (a page that a child shares counts half on each side), and files in
//! memory count by what they hold, mapped or not: a mechanism that keeps copies in an unmapped file holds them too.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of private memory of this process and its children, and of the files in memory that this process has open.
/// Walks page tables: slow, and only for moments that are not timed.
pub fn footprint_bytes() -> u64 {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let private = std::iter::once("self").chain(children.split_ascii_whitespace()).map(private_bytes).sum::<u64>();
    private + files_bytes()
}

/// The share of process `pid` in private memory. A child that has ended holds nothing.
fn private_bytes(pid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    private_of(&text)
}

fn private_of(rollup: &str) -> u64 {
    let field = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let kib = field.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// What the files in memory hold that this process has open, each counted once.
fn files_bytes() -> u64 {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let mut files = BTreeMap::new();
    for path in folder.flatten().map(|entry| entry.path()) {
        if is_in_memory(&path)
            && let Ok(facts) = std::fs::metadata(&path)
        {
            files.insert(facts.ino(), facts.blocks() * 512);
        }
    }
    files.values().sum()
}

fn is_in_memory(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::candidate::{Candidate, PageKind};
    use quire_snapshot::{Mechanism, OriginOptions};

    #[test]
    fn private_memory_is_read_from_the_rollup() {
        assert_eq!(private_of("x\nPss:  9 kB\nPss_Anon:              12 kB\nPss_File: 3 kB\n"), 12 << 10);
        assert_eq!(private_of(""), 0);
    }

    #[test]
    fn memory_that_is_held_counts_whatever_holds_it() {
        let bytes = 64 << 20;
        for mechanism in [Mechanism::Memcpy, Mechanism::MmapCopy] {
            let Ok(candidate) = Candidate::new(mechanism, bytes, PageKind::Small, true, &OriginOptions::default())
            else {
                continue;
            };
            let view = candidate.origin().cut().unwrap();
            let with = footprint_bytes();
            assert!(with > bytes as u64, "{mechanism}: {with}");
            drop((view, candidate));
        }
    }
}
