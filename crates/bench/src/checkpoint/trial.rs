//! One save under updates, with the memory that program and child hold meanwhile; one restore.
//!
//! Relies on proportional set sizes: a page that program and child share counts half for each, one that was duplicated counts for
//! both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::UpdateLoad;
use super::program::{SaveMethod, SaverProcess};
use crate::{disk, memory};

/// Between two looks at memory: walking the page tables of some GiB takes the better part of 50 ms, of a processor that the program
/// and its child need, too.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

/// A save.
#[derive(Debug)]
pub struct SaveResult {
    /// How the program saves.
    pub method: SaveMethod,
    /// The load's name.
    pub load: &'static str,
    /// The round.
    pub round: usize,
    /// Peak of the extra memory, over the data.
    pub growth: f64,
    /// Seconds since the save began, and the extra memory in bytes.
    pub curve: Vec<(f64, f64)>,
    /// From the fork until the child has ended, in seconds.
    pub save_s: f64,
    /// What the fork took, in milliseconds.
    pub fork_ms: f64,
    /// The longest that one update took, in milliseconds.
    pub longest_update_ms: f64,
    /// Operations during the save: updates and reads.
    pub ops: u64,
    /// Updates during the save.
    pub updates: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Checksum of the entries at the fork.
    pub sum: u64,
}

/// A restore.
#[derive(Debug)]
pub struct RestoreResult {
    /// How the program saves.
    pub method: SaveMethod,
    /// Until the first entry was there, in milliseconds.
    pub first_ms: f64,
    /// Until all were, in seconds.
    pub all_s: f64,
    /// A direct read of the same file by itself, in seconds.
    pub raw_read_s: f64,
}

/// Has `saver` save under `load`, at `ops_per_s`.
///
/// # Errors
/// When the save fails or memory can't be measured.
pub fn save(
    saver: &mut SaverProcess,
    load: UpdateLoad,
    round: usize,
    ops_per_s: f64,
    data_bytes: u64,
) -> anyhow::Result<SaveResult> {
    let (pid, before) = (saver.pid(), memory::proportional_bytes(saver.pid())?);
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let (answer, curve) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(pid, before, began, &stop));
        let answer = saver.save(ops_per_s, load.skew, load.share);
        stop.store(true, Ordering::Relaxed);
        (answer, watcher.join().expect("the watching thread does not panic"))
    });
    let [fork_ns, save_ns, ops, updates, longest_ns, sum] = answer?;
    let peak = curve.iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
    Ok(SaveResult {
        method: saver.method(),
        load: load.name,
        round,
        growth: peak / data_bytes as f64,
        curve,
        save_s: save_ns as f64 / 1e9,
        fork_ms: fork_ns as f64 / 1e6,
        longest_update_ms: longest_ns as f64 / 1e6,
        ops,
        updates,
        file_bytes: std::fs::metadata(saver.file())?.len(),
        sum,
    })
}

fn watch(pid: u32, before: u64, began: Instant, stop: &AtomicBool) -> Vec<(f64, f64)> {
    let mut curve = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let at = began.elapsed().as_secs_f64();
        if let Ok(bytes) = memory::proportional_bytes(pid) {
            curve.push((at, bytes.saturating_sub(before) as f64));
        }
        std::thread::sleep(INTERVAL);
    }
    curve
}

/// Seconds that another process takes to restore what `saver` saved last. The file comes from the disk.
///
/// # Errors
/// When the restore fails.
pub fn restored_s(saver: &SaverProcess) -> anyhow::Result<f64> {
    quire_sys::file::drop_cache(&std::fs::File::open(saver.file())?);
    let [_, all_ns, _] = saver.restore()?;
    Ok(all_ns as f64 / 1e9)
}

/// Has another process restore what `saver` saved, and compares the entries with those at the fork. The file comes from the disk.
///
/// # Errors
/// When the restore fails or has other entries.
pub fn restore(saver: &SaverProcess, round: usize, sum: u64) -> anyhow::Result<RestoreResult> {
    quire_sys::file::drop_cache(&std::fs::File::open(saver.file())?);
    // A direct read leaves nothing of the file in the page cache.
    let raw_read_s = disk::raw_read_s(saver.file())?;
    let [first_ns, all_ns, restored] = saver.restore()?;
    let name = saver.method().name();
    ensure!(restored == sum, "round {round}: {name} restored other entries than there were at the fork");
    let (first_ms, all_s) = (first_ns as f64 / 1e6, all_ns as f64 / 1e9);
    Ok(RestoreResult { method: saver.method(), first_ms, all_s, raw_read_s })
}
