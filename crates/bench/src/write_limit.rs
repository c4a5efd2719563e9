//! A slower disk for one process: the write limit of cgroup v1's blkio controller.
//!
//! Relies on root and on the controller being mounted where Debian has it; where either is missing, the experiments that
//! want a slow disk say so and go without.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";

/// A limit that holds until it is dropped.
#[derive(Debug)]
pub struct WriteLimit {
    group: PathBuf,
    pid: u32,
}

impl WriteLimit {
    /// Limits what process `pid` writes to the disk under `path`; `None` where that can't be done.
    pub fn set(pid: u32, path: &Path, bytes_per_s: u64) -> Option<Self> {
        let device = path.metadata().ok()?.dev();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        let group = Path::new(CONTROLLER).join(format!("quire-bench-{pid}"));
        crate::cleanup_list::note(&group);
        std::fs::create_dir(&group).ok()?;
        let limit = Self { group, pid };
        let rule = format!("{major}:{minor} {bytes_per_s}");
        std::fs::write(limit.group.join("blkio.throttle.write_bps_device"), rule).ok()?;
        std::fs::write(limit.group.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(limit)
    }
}

impl Drop for WriteLimit {
    fn drop(&mut self) {
        // If the process has ended it is in no group any more; an empty group that stays limits no process.
        let _ = std::fs::write(Path::new(CONTROLLER).join("cgroup.procs"), self.pid.to_string());
        let _ = std::fs::remove_dir(&self.group);
    }
}
