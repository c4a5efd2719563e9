//! What a signal does to a mount.
//!
//! The first one ends the mount as `quire unmount` does: not while it is in use, since what programs write afterwards would
//! land in the bare directory below the mount point, past the log. So a busy mount stays, says who keeps it, and goes when
//! the last of them has gone. The second signal, like SIGKILL, ends the process at once: the mount point then answers
//! `ENOTCONN` until the next mount or `quire unmount`, and nothing can be written below it either.
//!
//! They are watched from before the kernel knows of the mount, so that none that comes meanwhile leaves one without its process.
//!
//! Relies on `umount2` refusing a mount that is in use.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_fuse::Unmounter;
use quire_sys::mount_users;

use crate::mount::say;

/// Between two attempts to unmount.
const AGAIN: Duration = Duration::from_millis(200);
/// Between two lines about who keeps the mount.
const REMIND: Duration = Duration::from_secs(60);
/// Most processes that a line names.
pub const MOST_NAMED: usize = 10;

/// Signals that are watched before there is a mount for them to end.
pub struct WatchedSignals {
    ended: Sender<Unmounter>,
}

impl WatchedSignals {
    /// Has the first signal, which may have come already, end what `unmounter` unmounts.
    pub fn end(self, unmounter: Unmounter) {
        // It is not received only if no thread could be started, which was said.
        let _ = self.ended.send(unmounter);
    }
}

/// Waits for signals in a thread of its own.
pub fn watch_signals() -> anyhow::Result<WatchedSignals> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("waiting for signals")?;
    let (ended, mounted) = mpsc::channel();
    let watch = move || {
        let mut signals = signals.forever();
        if signals.next().is_none() {
            return;
        }
        let ending = std::thread::Builder::new().name("unmount".into()).spawn(move || {
            if let Ok(unmounter) = mounted.recv() {
                end(&unmounter);
            }
        });
        if let Err(error) = ending {
            tracing::error!(%error, "the thread that unmounts can't be started");
        }
        if signals.next().is_some() {
            say("leaving at once: what was not flushed is lost, the rest is in the log");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("waiting for signals")?;
    Ok(WatchedSignals { ended })
}

/// Unmounts as soon as no process uses the mount.
fn end(unmounter: &Unmounter) {
    let mut told: Option<Instant> = None;
    loop {
        match unmounter.remove(false) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                if told.is_none_or(|told| told.elapsed() >= REMIND) {
                    let path = unmounter.mount_point();
                    tracing::warn!(
                        "{} stays mounted while it is in use by {}; it ends with the last of them, another signal ends \
                         this process at once",
                        path.display(),
                        users_of(path),
                    );
                    told = Some(Instant::now());
                }
            }
            Err(error) => return tracing::error!(%error, "unmounting failed"),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Who keeps the mount at `path` busy, for a message.
pub fn users_of(path: &Path) -> String {
    match mount_users::of(path) {
        Ok(users) => mount_users::words(&users, MOST_NAMED),
        Err(error) => format!("processes that can't be found ({error})"),
    }
}
