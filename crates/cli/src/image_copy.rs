//! `quire image copy FILE DIR`: a copy of an image with its deltas, made in the background of whatever else the disk does.
//!
//! It keeps to a rate and takes the idle I/O priority, as a save in the background does. A signal cancels it, and nothing of it is left.
//!
//! Relies on [`copy_chain`] for a copy that is whole or not there, and on [`CopyLock`] against servers and other copies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_checkpoint::{CopyOptions, CopySummary, copy_chain, remove_stale, temporary_files};
use quire_device::{Directory, DiskDirectory};
use quire_server::lock_file::CopyLock;
use quire_sys::io_priority::IoPriority;
use quire_sys::thread;
use quire_units::{Bytes, UtcTime};
use quire_wal::has_log;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::image_path::place;

/// The words of `--io-priority`, as `checkpoint-io-priority` has them.
pub const IO_PRIORITIES: [&str; 2] = [IDLE, "normal"];
const IDLE: &str = "idle";
/// How a process ends that is asked twice to.
const INSISTED_STATUS: i32 = 1;

/// Runs `quire image copy`; the first signal that asks for its end cancels the copy.
pub fn run(path: &Path, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let target: &PathBuf = matches.get_one("dir").context("a directory")?;
    let (dir, name) = place(path)?;
    if !target.is_dir() {
        bail!("{} is not a directory: make it first", target.display());
    }
    if matches.get_one::<String>("io-priority").is_none_or(|priority| priority == IDLE) {
        // Where the system refuses, the copy is as good and may slow down others.
        IoPriority::IDLE.set(thread::current());
    }
    let cancelled = cancelled_by_signals()?;
    let max_bytes_per_s = matches.get_one::<u64>("max-bytes-per-second").copied().unwrap_or(0);
    let is_cancelled = || cancelled.load(Ordering::Relaxed);
    let options = CopyOptions { max_bytes_per_s, is_cancelled: &is_cancelled };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %, {binary_bytes_per_sec}, {eta} left");
    let style = style.context("progress")?;
    let bar = ProgressBar::new(0).with_style(style);
    let copied = copy_alone(dir, name, target, options, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let summary = copied?;
    let deltas = match summary.files - 1 {
        0 => String::new(),
        1 => " and a delta over it".into(),
        many => format!(" and {many} deltas over it"),
    };
    let (size, created) = (Bytes(summary.bytes), UtcTime(summary.created_unix_ms));
    quire_sys::outln!(
        "copied {name}{deltas} to {}: {size}, data of {created}, read back and verified",
        target.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes true by SIGINT or SIGTERM; when it is true, a second one ends the process at once.
pub fn cancelled_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancelled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds `cancelled` still false.
        flag::register_conditional_shutdown(signal, INSISTED_STATUS, Arc::clone(&cancelled))
            .and_then(|_| flag::register(signal, Arc::clone(&cancelled)))
            .context("waiting for signals")?;
    }
    Ok(cancelled)
}

/// Copies while no server and no other copy writes to the target.
fn copy_alone(
    dir: &Path,
    name: &str,
    target: &Path,
    options: CopyOptions<'_>,
    on_progress: impl FnMut(u64, u64),
) -> anyhow::Result<CopySummary> {
    // Before the locks, which are then of this very directory or of another one, in which nothing is published.
    let into = DiskDirectory::new(target).pinned();
    let lock = CopyLock::take(target, name).map_err(anyhow::Error::msg)?;
    clear_leftovers(&lock, target, name)?;
    if has_log(&DiskDirectory::new(target))? {
        bail!(
            "{} holds a log of writes: a server there would replay it over the copy. Choose another directory",
            target.display()
        );
    }
    Ok(copy_chain(&DiskDirectory::new(dir), name, &into, options, on_progress)?)
}

/// Removes what copies to `target` that were ended have left, if no other one can be at it now; else names it.
fn clear_leftovers(lock: &CopyLock, target: &Path, name: &str) -> anyhow::Result<()> {
    if let Some(error) = lock.unsupported() {
        quire_sys::errln!(
            "{}: its file system has no locks ({error}), so nothing keeps a server or another copy away: see to it that none uses it until \
             this copy is done",
            target.display()
        );
    }
    let directory = DiskDirectory::new(target);
    if lock.is_alone() {
        let removed = remove_stale(&directory, name)?;
        if removed > 0 {
            quire_sys::errln!("removed {removed} files that an interrupted copy had left in {}", target.display());
        }
        return Ok(());
    }
    for file in temporary_files(&directory, name)? {
        quire_sys::errln!(
            "{}: an interrupted copy or save has left this, or one is writing it now",
            directory.path_of(&file)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_server::config::Config;
    use quire_server::{lock_file, saving};

    fn settings(dir: &Path) -> Config {
        Config { dir: dir.to_owned(), ..Config::default() }
    }

    #[test]
    fn a_copy_keeps_servers_and_other_copies_away_as_long_as_it_takes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, target) = (settings(from.path()), settings(to.path()));
        let (mut store, _) = saving::open(&source).unwrap();
        store.save_blocking(&saving::place(&source)).unwrap();
        let name = &source.dbfilename;
        let mut looks = 0;
        copy_alone(from.path(), name, to.path(), CopyOptions::default(), |_, _| {
            let refused = lock_file::of_image(&target).unwrap_err();
            assert!(refused.contains("a copy is being written there"), "{refused}");
            assert!(lock_file::of_log(&target).is_err());
            let refused =
                copy_alone(from.path(), name, to.path(), CopyOptions::default(), |_, _| {}).unwrap_err().to_string();
            assert!(refused.contains("another copy is being written there"), "{refused}");
            looks += 1;
        })
        .unwrap();
        assert!(looks > 1);
        assert!(lock_file::of_image(&target).is_ok(), "no longer than that");
    }

    #[test]
    fn a_copy_publishes_nothing_in_a_directory_that_has_come_to_lie_at_its_target() {
        let (from, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (target, moved) = (home.path().join("target"), home.path().join("moved"));
        std::fs::create_dir(&target).unwrap();
        let source = settings(from.path());
        let (mut store, _) = saving::open(&source).unwrap();
        store.save_blocking(&saving::place(&source)).unwrap();
        let exchange = |_, _| {
            if !moved.exists() {
                std::fs::rename(&target, &moved).unwrap();
                std::fs::create_dir(&target).unwrap();
            }
        };
        let copied = copy_alone(from.path(), &source.dbfilename, &target, CopyOptions::default(), exchange);
        assert!(copied.is_err());
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
        let left = std::fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| name.ends_with(".lock")), "nor is anything left where it was");
    }

    #[test]
    fn a_copy_removes_what_another_one_has_left_that_was_killed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = settings(from.path());
        let (mut store, _) = saving::open(&source).unwrap();
        store.save_blocking(&saving::place(&source)).unwrap();
        let name = &source.dbfilename;
        // As `TemporaryFile::numbered` calls them; and others' files.
        let left = ["dump.quire.tmp-4194999000", "dump.quire.tmp-4194999001"].map(|file| to.path().join(file));
        let others = ["dump.quire.tmp-x", "other.tmp-12"].map(|file| to.path().join(file));
        left.iter().chain(&others).for_each(|path| std::fs::write(path, "half").unwrap());
        copy_alone(from.path(), name, to.path(), CopyOptions::default(), |_, _| {}).unwrap();
        assert!(left.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
        std::fs::rename(to.path().join(name), to.path().join(format!("{name}.delta-1"))).unwrap();
        let refused =
            copy_alone(from.path(), name, to.path(), CopyOptions::default(), |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("delta-1 is there without its image"), "{refused}");
    }
}
