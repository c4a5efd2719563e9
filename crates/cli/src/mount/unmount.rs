//! `quire unmount`.
//!
//! Relies on the mount's figures for which process serves it, which ends when everything is durable, and on the note that it
//! leaves in the directory of how that went (`quire_fuse::unmount_result`).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ArgMatches;
use quire_fuse::backing_root;
use quire_fuse::unmount_result::{self, UnmountResult};
use quire_sys::{mounts, task, xattr};
use serde_json::Value;

use crate::mount::ending::users_of;
use crate::mount::stats;

/// A mount that is in use for longer is told as such.
const IN_USE_PATIENCE: Duration = Duration::from_secs(1);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// Unmounts, and waits for the process that served it.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let path: &PathBuf = matches.get_one("mountpoint").context("a mount point")?;
    let lazy = matches.get_flag("lazy");
    if mounts::is_orphaned(path) {
        mounts::unmount(path, true).with_context(|| format!("unmounting {}", path.display()))?;
        quire_sys::outln!("no daemon served it any more: what the log holds is kept for the next mount")?;
        return Ok(ExitCode::SUCCESS);
    }
    let Ok(figures) = stats::of(path) else { bail!("{} is no mount of quire", path.display()) };
    let server = figures["pid"].as_u64().and_then(|number| u32::try_from(number).ok());
    let server = server.and_then(|number| Some((number, task::identity(number)?)));
    let (drain, backing) = (matches.get_flag("drain"), PathBuf::from(figures["backing"].as_str().unwrap_or_default()));
    if !unmount_soon(path, lazy, drain, &figures["pid"])? {
        bail!(
            "{} is in use by {}: end these first; with --lazy it ends with its last user, but what others write at {} \
             from now on goes to the directory below, past the log",
            path.display(),
            users_of(path),
            path.display(),
        )
    }
    if !lazy {
        let ended = server.map(|server| wait_for(server, path, &backing)).transpose()?;
        let needs_log =
            || backing_root::needs_log(&backing).with_context(|| format!("looking at {}", backing.display()));
        if drain && needs_log()? {
            let why = match ended {
                Some(UnmountResult::Failed(why)) => format!(" ({why})"),
                _ => String::new(),
            };
            bail!("not everything could be brought to {}{why}: it still needs its log", backing.display());
        }
        match ended {
            Some(UnmountResult::Failed(why)) => bail!("unmounted {}, but: {why}", path.display()),
            Some(UnmountResult::Unknown) => bail!(
                "{} is not mounted any more, but its process ended before it had made everything durable: what programs \
                 flushed is in the directory and the log, which the next mount needs",
                path.display()
            ),
            Some(UnmountResult::Clean) | None => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmounts; false if the mount is in use for longer than a moment. A process that is being forked has its parent's files until it executes
/// its program, and one that looks at all mounts is soon done with this one.
fn unmount_soon(path: &Path, lazy: bool, drain: bool, server: &Value) -> anyhow::Result<bool> {
    let end = Instant::now() + IN_USE_PATIENCE;
    loop {
        if drain {
            tell_drain(path, true)?;
        }
        match mounts::unmount(path, lazy) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            Err(error) => return Err(error).with_context(|| format!("unmounting {}", path.display())),
        }
        // If a user ends this command while it waits, nothing is to be drained.
        if drain && is_served_by(path, server) {
            tell_drain(path, false)?;
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(IN_USE_PAUSE);
        // After a signal its process tries the same: what is at the path then is another mount, or none.
        if !is_served_by(path, server) {
            return Ok(true);
        }
    }
}

fn is_served_by(path: &Path, server: &Value) -> bool {
    stats::of(path).is_ok_and(|figures| figures["pid"] == *server)
}

fn tell_drain(path: &Path, drains: bool) -> anyhow::Result<()> {
    let value: &[u8] = if drains { b"1" } else { b"0" };
    xattr::set_at(path, "user.quire.drain", value)
        .with_context(|| format!("telling the mount at {} to bring everything to its directory", path.display()))
}

/// Waits for the end of the process that served the mount, and says how that went.
fn wait_for(
    (number, identity): (u32, task::TaskIdentity),
    path: &Path,
    backing: &Path,
) -> anyhow::Result<UnmountResult> {
    let mut waits = 0_u64;
    // A process that has ended and was not waited for has no program any more.
    let lives = || {
        task::identity(number).is_some_and(|now| now.start_ticks == identity.start_ticks)
            && task::program_of(number).is_some()
    };
    while lives() {
        if waits == 100 {
            quire_sys::errln!("{}: waiting until everything is durable (process {number})", path.display());
        }
        waits += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    unmount_result::of(backing, number, &identity).with_context(|| {
        format!("{} is unmounted; whether all of it is durable can't be read in {}", path.display(), backing.display())
    })
}
