//! `quire mount` as a child process: a slow directory served through the write cache.
//!
//! Relies on it saying a line with `mounted` when it is ready, and on SIGTERM making it write everything back, unmount
//! and end. Dropping a [`MountDaemon`] ends it, by force if it must be, and takes its mount away.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use quire_sys::ask::{TerminationSignal, to_end};

use super::interrupt::Interrupt;
use super::loop_disk::unmount;
use crate::process;
use crate::wcache::cache_policy::CachePolicy;

/// How a directory is to be served.
#[derive(Clone, Debug)]
pub struct DaemonOptions<'a> {
    /// The Quire binary.
    pub quire: &'a Path,
    /// The directory on the slow device.
    pub backing: &'a Path,
    /// Where it is to appear.
    pub point: &'a Path,
    /// The file on the fast device.
    pub log: &'a Path,
    /// How much of that to use.
    pub capacity_mib: u64,
    /// Which writes are cached.
    pub policy: CachePolicy,
    /// A file with rules on who is critical, instead of those that are built in for PostgreSQL and Redis.
    pub rules: Option<&'a Path>,
    /// Where its complaints go.
    pub complaints: &'a Path,
}

/// A directory that is served.
#[derive(Debug)]
pub struct MountDaemon {
    child: Child,
    point: PathBuf,
    complaints: PathBuf,
}

/// How long a mount may take, recovery included.
const READY: Duration = Duration::from_secs(60);
/// How long writing back may take once nothing is throttled any more.
const DONE: Duration = Duration::from_secs(120);

impl MountDaemon {
    /// Starts the daemon and waits until it serves.
    ///
    /// # Errors
    /// When it ends instead or takes too long.
    pub fn start(options: &DaemonOptions<'_>, interrupt: &Interrupt) -> anyhow::Result<Self> {
        std::fs::create_dir_all(options.point).with_context(|| format!("creating {}", options.point.display()))?;
        let complaints = File::create(options.complaints).context("a file for the daemon's complaints")?;
        let mut command = Command::new(options.quire);
        command.arg("mount").arg(options.backing).arg(options.point).arg("--log").arg(options.log);
        command.args(["--capacity", &format!("{}mb", options.capacity_mib), "--policy", &options.policy.flag()]);
        if let Some(rules) = options.rules {
            command.arg("--rules").arg(rules);
        }
        command.arg("--allow-other");
        // A Ctrl-C is for us: programs that use the mount must end before it does.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints);
        let mut child = command.spawn().with_context(|| format!("starting {}", options.quire.display()))?;
        let out = child.stdout.take();
        let (point, complaints) = (options.point.to_owned(), options.complaints.to_owned());
        let mut daemon = Self { child, point, complaints };
        let ready = listen(out.context("the daemon's output")?);
        daemon.wait_ready(&ready, interrupt)?;
        Ok(daemon)
    }

    fn wait_ready(&mut self, ready: &Receiver<()>, interrupt: &Interrupt) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            interrupt.check()?;
            match ready.recv_timeout(Duration::from_millis(50)) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(20)),
            }
            self.check_alive()?;
            if began.elapsed() > READY {
                bail!("quire mount does not serve after {} s: {}", READY.as_secs(), self.complaint());
            }
        }
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended; with its last words.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("looking after the daemon")? {
            Some(status) => bail!("quire mount ended ({status}): {}", self.complaint()),
            None => Ok(()),
        }
    }

    fn complaint(&self) -> String {
        let text = std::fs::read_to_string(&self.complaints).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// CPU time that it took so far, in seconds.
    pub fn cpu_s(&self) -> Option<f64> {
        process::cpu_s(self.child.id()).ok()
    }

    /// Writes everything back, unmounts and ends.
    ///
    /// # Errors
    /// When it complains or takes too long.
    pub fn stop(mut self) -> anyhow::Result<()> {
        to_end(self.child.id(), TerminationSignal::Terminate).context("asking quire mount to end")?;
        match self.wait(DONE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("quire mount ended badly ({status}): {}", self.complaint()),
            None => bail!("quire mount has not ended after {} s: {}", DONE.as_secs(), self.complaint()),
        }
    }

    fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("waiting for the daemon")? {
                return Ok(Some(status));
            }
            if began.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for MountDaemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let asked = to_end(self.child.id(), TerminationSignal::Terminate);
            if asked.is_err() || !matches!(self.wait(Duration::from_secs(10)), Ok(Some(_))) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        if mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|point| Path::new(point) == self.point)) {
            unmount(&self.point);
        }
    }
}

/// Reads what the daemon says to its end, and tells when it is ready.
fn listen(out: std::process::ChildStdout) -> Receiver<()> {
    let (told, ready) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if line.contains("mounted") {
                // The receiver is gone once it was heard.
                let _ = told.send(());
            }
        }
    });
    ready
}
