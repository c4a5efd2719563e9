//! A memory limit for one process: a group of cgroup v1's memory controller, to which the page cache of what the process
//! maps is charged as well.
//!
//! Relies on root and on the controller being mounted where Debian has it. Nothing replaces it: a limit on address space
//! or on locked memory would bind the pool and leave the kernel's page cache free.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

const CONTROLLER: &str = "/sys/fs/cgroup/memory";

/// A limit that holds for its processes until it is dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// A group of its own called `name`, with `limit_bytes` for all memory and page cache of its processes.
    ///
    /// # Errors
    /// Where such groups can't be had.
    pub fn new(name: &str, limit_bytes: u64) -> anyhow::Result<Self> {
        Self::below(Path::new(CONTROLLER), name, limit_bytes)
    }

    fn below(controller: &Path, name: &str, limit_bytes: u64) -> anyhow::Result<Self> {
        ensure!(
            controller.join("memory.limit_in_bytes").is_file(),
            "this experiment limits memory by the memory controller of cgroup v1, which is not at {}; boot with \
             systemd.unified_cgroup_hierarchy=0, or mount it there (mount -t cgroup -o memory cgroup {0})",
            controller.display()
        );
        let group = controller.join(name);
        crate::cleanup_list::note(&group);
        std::fs::create_dir(&group)
            .with_context(|| format!("making {}, which takes root and a writable cgroup mount", group.display()))?;
        // From here on dropping it removes the group.
        let limit = Self { group };
        limit.set("memory.limit_in_bytes", limit_bytes)?;
        Ok(limit)
    }

    /// Puts process `pid` under the limit.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn admit(&self, pid: u32) -> anyhow::Result<()> {
        self.set("cgroup.procs", u64::from(pid))
    }

    fn set(&self, name: &str, value: u64) -> anyhow::Result<()> {
        let path = self.group.join(name);
        std::fs::write(&path, value.to_string()).with_context(|| format!("writing {value} to {}", path.display()))
    }

    /// The most memory that was charged at a time, in bytes.
    pub fn peak_bytes(&self) -> Option<u64> {
        std::fs::read_to_string(self.group.join("memory.max_usage_in_bytes")).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A process that has just ended may still be in the group; one that stays limits no other process.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_controller_the_cure_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let refused = MemoryLimit::below(dir.path(), "quire-test", 1 << 20).unwrap_err().to_string();
        assert!(refused.contains("cgroup v1") && refused.contains("mount"), "{refused}");
    }

    #[test]
    fn a_group_that_is_taken_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory.limit_in_bytes"), "0").unwrap();
        std::fs::create_dir(dir.path().join("quire-test")).unwrap();
        let refused = MemoryLimit::below(dir.path(), "quire-test", 1 << 20).unwrap_err().to_string();
        assert!(refused.contains("root"), "{refused}");
        assert!(dir.path().join("quire-test").is_dir());
    }
}
