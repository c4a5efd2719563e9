//! One trial's storage stack: a fresh slow disk with the same data as at every other trial, a fresh cache, and the mount.
//!
//! Relies on the template being copied while nothing is throttled yet. The stack gets slow when [`StorageStack::slow_down`] is
//! called, after the page cache is warm, and fast again before it is taken down, so that no process waits for what is not
//! measured any more.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::command::run;
use super::counters::CacheCounters;
use super::daemon::{DaemonOptions, MountDaemon};
use super::device_throttle::{DeviceSpeed, DeviceThrottle};
use super::interrupt::Interrupt;
use super::loop_disk::LoopDisk;
use super::run_dir::RunDir;
use super::unprivileged_user::UnprivilegedUser;
use crate::wcache::cache_policy::CachePolicy;

/// On what the cache lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum FastDevice {
    /// A file in memory: the paper's ramdisk.
    Ram,
    /// A file on a throttled disk that is faster than the slow ones: the paper's SSD.
    Ssd,
}

impl FastDevice {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::Ssd => "ssd",
        }
    }
}

/// How a stack is to be built.
#[derive(Clone, Debug)]
pub struct StackSpec<'a> {
    /// The Quire binary.
    pub quire: &'a Path,
    /// Which writes are cached.
    pub policy: CachePolicy,
    /// How many of them fit.
    pub capacity_mib: u64,
    /// On what.
    pub fast: FastDevice,
    /// What lies on the slow disk.
    pub template: &'a Path,
    /// How large that is.
    pub disk_bytes: u64,
    /// How fast it is.
    pub slow_speed: DeviceSpeed,
    /// The speed of [`FastDevice::Ssd`].
    pub fast_speed: DeviceSpeed,
    /// Whose the directories are.
    pub owner: Option<UnprivilegedUser>,
}

/// A storage stack. Dropping it takes it down, from the limits to the disks.
#[derive(Debug)]
pub struct StorageStack {
    throttles: Vec<DeviceThrottle>,
    daemon: MountDaemon,
    disk: LoopDisk,
    fast_disk: Option<LoopDisk>,
    point: PathBuf,
    log: PathBuf,
    speeds: [DeviceSpeed; 2],
}

impl StorageStack {
    /// Builds the stack.
    ///
    /// # Errors
    /// When a part of it can't be had, or there was an interrupt.
    pub fn set(plan: &StackSpec<'_>, run_dir: &RunDir, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let base = run_dir.dir().join("stack");
        let (slow, point) = (base.join("slow"), base.join("mnt"));
        std::fs::create_dir_all(&slow).with_context(|| format!("creating {}", slow.display()))?;
        let disk = slow_disk(plan, &base.join("slow.img"), &slow)?;
        interrupt.check()?;
        let (fast_disk, log) = fast_file(plan, &base, run_dir)?;
        let complaints = run_dir.sockets().join("mount.log");
        let options = DaemonOptions {
            quire: plan.quire,
            backing: &slow,
            point: &point,
            log: &log,
            capacity_mib: plan.capacity_mib,
            policy: plan.policy,
            rules: None,
            complaints: &complaints,
        };
        let daemon = MountDaemon::start(&options, interrupt)?;
        let speeds = [plan.slow_speed, plan.fast_speed];
        Ok(Self { throttles: Vec::new(), daemon, disk, fast_disk, point, log, speeds })
    }

    /// Where the slow directory appears to programs.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Reads every file once, as the paper warms the page cache so that only writes are measured.
    ///
    /// # Errors
    /// When a file can't be read, or there was an interrupt.
    pub fn warm(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        read_all(&self.point, &mut vec![0; 1 << 20], interrupt)
    }

    /// From now on the disks are as slow as they are to be.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn slow_down(&mut self) -> anyhow::Result<()> {
        self.throttles.push(self.disk.throttle(self.speeds[0])?);
        if let Some(disk) = &self.fast_disk {
            self.throttles.push(disk.throttle(self.speeds[1])?);
        }
        Ok(())
    }

    /// From now on nothing is slow.
    pub fn speed_up(&mut self) {
        self.throttles.clear();
    }

    /// What was counted so far, by the cache and by the devices.
    ///
    /// # Errors
    /// When the daemon has ended or doesn't tell.
    pub fn counters(&mut self) -> anyhow::Result<CacheCounters> {
        self.daemon.check_alive()?;
        let mut counters = CacheCounters::ask(&self.point)?;
        for (name, disk) in [("slow", Some(&self.disk)), ("fast", self.fast_disk.as_ref())] {
            if let Some((reads, writes)) = disk.and_then(LoopDisk::requests) {
                counters.set(&format!("bench.{name}_reads"), reads as f64);
                counters.set(&format!("bench.{name}_writes"), writes as f64);
            }
        }
        if let Some(cpu_s) = self.daemon.cpu_s() {
            counters.set("bench.daemon_cpu_s", cpu_s);
        }
        Ok(counters)
    }

    /// Takes everything down in order.
    ///
    /// # Errors
    /// When the daemon complains.
    pub fn take_down(self) -> anyhow::Result<()> {
        let Self { throttles, daemon, disk, fast_disk, log, .. } = self;
        drop(throttles);
        let stopped = daemon.stop();
        drop((disk, fast_disk));
        // With a disk of its own it is gone already.
        let _ = std::fs::remove_file(log);
        stopped
    }
}

/// The slow disk, mounted at `point`, with the template's files on it.
fn slow_disk(plan: &StackSpec<'_>, image: &Path, point: &Path) -> anyhow::Result<LoopDisk> {
    let disk = LoopDisk::new(image, plan.disk_bytes, point)?;
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(plan.template.join(".")).arg(point))?;
    if let Some(owner) = plan.owner {
        owner.own(point)?;
    }
    run(Command::new("sync").arg("-f").arg(point))?;
    Ok(disk)
}

/// A file for the cache, written once: memory that was never touched is slow to get, and so are blocks of a file
/// system.
fn fast_file(plan: &StackSpec<'_>, base: &Path, run_dir: &RunDir) -> anyhow::Result<(Option<LoopDisk>, PathBuf)> {
    let bytes = plan.capacity_mib << 20;
    let (disk, path) = match plan.fast {
        FastDevice::Ram => (None, run_dir.memory().join("log")),
        FastDevice::Ssd => {
            let point = base.join("fast");
            let disk = LoopDisk::new(&base.join("fast.img"), bytes + bytes / 10 + (256 << 20), &point)?;
            (Some(disk), point.join("log"))
        }
    };
    // Left by a trial that failed.
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let zeros = vec![0_u8; 1 << 20];
    for _ in 0..plan.capacity_mib {
        file.write_all(&zeros).with_context(|| format!("writing {}", path.display()))?;
    }
    file.sync_all().with_context(|| format!("syncing {}", path.display()))?;
    Ok((disk, path))
}

fn read_all(dir: &Path, buffer: &mut [u8], interrupt: &Interrupt) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        interrupt.check()?;
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        let kind = entry.file_type().with_context(|| format!("looking at {}", entry.path().display()))?;
        if kind.is_dir() {
            read_all(&entry.path(), buffer, interrupt)?;
        } else if kind.is_file() {
            let read = std::fs::File::open(entry.path()).and_then(|mut file| {
                while file.read(buffer)? > 0 {}
                Ok(())
            });
            read.with_context(|| format!("reading {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// How long a trial lasts: it runs in, and then it counts.
#[derive(Clone, Copy, Debug)]
pub struct TrialDuration {
    /// Before anything counts.
    pub warm_up: Duration,
    /// While it counts.
    pub count: Duration,
}
