//! Memory as the system counts it: proportional set sizes of a server and its children, and warming before a run.
//!
//! Relies on `/proc`. Warming matters because the first touch of memory that a virtual machine never used costs about
//! 10 µs a page, and would be charged to the server that runs first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use quire_sys::mem::{HUGE_PAGE_SIZE, Reservation};

/// Touches `bytes` of fresh memory once and gives it back.
pub fn warm(bytes: u64) {
    let free = quire_sys::proc::meminfo_bytes("MemAvailable").unwrap_or(bytes);
    let mut left = bytes.min(free / 10 * 8) as usize;
    let mut held = Vec::new();
    while left > 0 {
        let part = left.min(256 << 20);
        // Ones, not zeros: a zeroed vector would be untouched pages.
        held.push(vec![1_u8; part]);
        left -= part;
    }
    std::hint::black_box(&held);
}

/// As [`warm`], in huge pages and twice, so that memory which the first pass found elsewhere is warm too.
pub fn warm_huge(bytes: u64) {
    let free = quire_sys::proc::meminfo_bytes("MemAvailable").unwrap_or(bytes);
    let bytes = bytes.min(free / 10 * 8) as usize / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
    for _ in 0..2 {
        // Memory that can't be warmed stays cold; the figures then say so themselves.
        let Ok(memory) = Reservation::new(bytes) else { return };
        if memory.commit(0..bytes).is_ok() {
            let _ = memory.populate(0..bytes);
        }
    }
}

/// How often the memory of a process and its children is looked at anew because a child came or went meanwhile.
const ATTEMPTS: usize = 8;

/// Proportional set size of process `pid` and its children (a fork that is saving), in bytes.
///
/// # Errors
/// When the process is gone, `/proc` does not tell, or children come and go all the time.
pub fn proportional_bytes(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = || -> Vec<u32> {
        let listed = std::fs::read_to_string(&path).unwrap_or_default();
        listed.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
    };
    with_same_children(children, |children| {
        let own = quire_sys::proc::proportional_bytes(Some(pid)).with_context(|| format!("the size of process {pid}"));
        // A child that ended since it was listed holds nothing.
        let of_child = |&child: &u32| quire_sys::proc::proportional_bytes(Some(child)).unwrap_or(0);
        own.map(|own| own + children.iter().map(of_child).sum::<u64>())
    })
}

/// What `measure` finds while `list` tells the same children before and after it. The kernel looks at the memory of one process after the
/// other, and lets a fork pass while it looks: then pages count as the parent's alone, and the half of them once more as the child's.
fn with_same_children<T>(
    mut list: impl FnMut() -> Vec<u32>,
    mut measure: impl FnMut(&[u32]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut before = list();
    for _ in 0..ATTEMPTS {
        let found = measure(&before)?;
        let after = list();
        if after == before {
            return Ok(found);
        }
        before = after;
    }
    anyhow::bail!("children came and went at each of {ATTEMPTS} looks at their memory")
}

/// The largest proportional set size seen every `interval` until `stop`, and how often it was looked at.
pub fn watch_peak(pid: u32, interval: Duration, stop: &AtomicBool) -> (u64, u64) {
    let (mut peak, mut looks) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(bytes) = proportional_bytes(pid) {
            peak = peak.max(bytes);
            looks += 1;
        }
        std::thread::sleep(interval);
    }
    (peak, looks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_looked_at_while_a_child_was_forked_does_not_count() {
        let mut lists = [vec![], vec![7], vec![7]].into_iter();
        let mut looks = Vec::new();
        let found = with_same_children(
            || lists.next().unwrap(),
            |children| {
                looks.push(children.to_vec());
                Ok(looks.len())
            },
        );
        assert_eq!((found.unwrap(), looks), (2, vec![vec![], vec![7]]));
        let mut number = 0;
        let restless = || {
            number += 1;
            vec![number]
        };
        assert!(with_same_children(restless, |_| Ok(())).is_err());
        assert!(with_same_children(Vec::new, |_| -> anyhow::Result<()> { anyhow::bail!("gone") }).is_err());
    }

    #[test]
    fn our_own_size_is_known_and_covers_what_we_hold() {
        let held = vec![1_u8; 32 << 20];
        let size = proportional_bytes(std::process::id()).unwrap();
        assert!(size > held.len() as u64);
        assert!(std::hint::black_box(&held).len() == 32 << 20);
    }
}
