//! One save under updates, with the memory of server and child meanwhile; one restart.
//!
//! Relies on proportional set sizes, as the part `program` does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::super::trial::INTERVAL;
use super::server::{SavingServer, StoreFormat};
use crate::process::{background_save, watched_save};
use crate::{disk, memory};

/// A save.
#[derive(Debug)]
pub(super) struct SaveResult {
    pub(super) format: StoreFormat,
    /// Peak of the extra memory, over the server's before the save.
    pub(super) growth: f64,
    /// From BGSAVE until the server says that the save is done, in seconds.
    pub(super) save_s: f64,
    /// Of that, until all objects were logged, where the server tells.
    pub(super) logged_s: f64,
    /// What the server says that the fork took, in milliseconds.
    pub(super) fork_ms: f64,
    pub(super) updates: u64,
    pub(super) file_bytes: u64,
}

/// A restart from a file that comes from the disk.
#[derive(Debug)]
pub(super) struct RestoreResult {
    pub(super) format: StoreFormat,
    /// From the start of the process until reads are answered, in seconds.
    pub(super) took_s: f64,
    /// A direct read of the same file by itself, in seconds.
    pub(super) raw_read_s: f64,
}

/// Has `server` save under `per_s` updates a second.
///
/// # Errors
/// When the save fails or memory can't be measured.
pub(super) fn save(server: &mut SavingServer, per_s: f64) -> anyhow::Result<SaveResult> {
    let (pid, format, load) = (server.server.pid(), server.format(), server.load(per_s));
    let before = memory::proportional_bytes(pid)?;
    let (stop, updates) = (AtomicBool::new(false), AtomicU64::new(0));
    let (saved, peak) = std::thread::scope(|scope| {
        let updating = scope.spawn(|| load.run(&stop, &updates));
        let saved = watched_save(&mut server.control, pid, Duration::from_millis(5), INTERVAL);
        stop.store(true, Ordering::Relaxed);
        updating.join().expect("the updating thread does not panic")?;
        saved
    })?;
    let logged_s = match format {
        StoreFormat::Rdb => f64::NAN,
        StoreFormat::Mdc => last_logged_s(&std::fs::read_to_string(server.server.dir().join("server.log"))?)
            .context("the server's log does not tell how long a save has logged")?,
    };
    Ok(SaveResult {
        format,
        growth: peak.saturating_sub(before) as f64 / before as f64,
        save_s: saved.took.as_secs_f64(),
        logged_s,
        fork_ms: server.server.save_stall_us(&mut server.control)? / 1000.0,
        updates: updates.load(Ordering::Relaxed),
        file_bytes: std::fs::metadata(server.file())?.len(),
    })
}

/// From the server's log: how long the last save took to log its objects.
fn last_logged_s(log: &str) -> Option<f64> {
    let line = log.lines().rev().find(|line| line.contains("logged in "))?;
    line.split_once("logged in ")?.1.split_once(" s")?.0.parse().ok()
}

/// Has `server` save what it holds now, kills it, starts it again, and compares what it holds then.
///
/// # Errors
/// When it holds something else, or doesn't start.
pub(super) fn restore(server: &mut SavingServer) -> anyhow::Result<RestoreResult> {
    background_save(&mut server.control, Duration::from_millis(5))?;
    let digest = server.digest()?;
    let mut raw_read_s = f64::NAN;
    let took = server.restart(|path| {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        quire_sys::file::drop_cache(&file);
        // A direct read leaves nothing of the file in the page cache.
        raw_read_s = disk::raw_read_s(path)?;
        Ok(())
    })?;
    let (format, restored) = (server.format(), server.digest()?);
    ensure!(restored == digest, "{} restored other data than it had saved", format.name());
    Ok(RestoreResult { format, took_s: took.as_secs_f64(), raw_read_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_time_of_logging_is_found_in_the_log() {
        let log = "1:C * Checkpoint saved on disk: logged in 0.500 s, dumped in 1.0 s\n\
                   2:C * Checkpoint saved on disk: logged in 0.250 s, dumped in 1.0 s\n1:M * other\n";
        assert_eq!(last_logged_s(log), Some(0.25));
        assert_eq!(last_logged_s("nothing"), None);
    }
}
