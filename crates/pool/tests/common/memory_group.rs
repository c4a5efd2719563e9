//! A group of processes under a memory limit of the kernel's.
//!
//! Relies on root and on the memory controller of cgroup v1 or v2.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A group of processes with a limit.
pub struct MemoryGroup {
    /// Its folder.
    pub path: PathBuf,
    is_first_version: bool,
}

impl MemoryGroup {
    /// A group named after `name` and this process; `None` where no limit can be set.
    pub fn new(name: &str, limit_bytes: usize) -> Option<Self> {
        let name = format!("quire-{name}-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let is_first_version = first.join("memory.limit_in_bytes").is_file();
        let path = if is_first_version { first } else { Path::new("/sys/fs/cgroup") }.join(name);
        std::fs::create_dir(&path).ok()?;
        let group = Self { path, is_first_version };
        let limit = if is_first_version { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(group.path.join(limit), limit_bytes.to_string()).ok()?;
        Some(group)
    }

    /// A group inside this one without a limit of its own; `None` where the memory controller can't be handed down.
    pub fn below(&self, name: &str) -> Option<Self> {
        if !self.is_first_version {
            std::fs::write(self.path.join("cgroup.subtree_control"), "+memory").ok()?;
        }
        let path = self.path.join(name);
        std::fs::create_dir(&path).ok()?;
        Some(Self { path, is_first_version: self.is_first_version })
    }

    /// Runs the test `name` of this program inside the group, told by the environment variable `variable`.
    pub fn run(&self, name: &str, variable: &str, value: &OsStr) -> Output {
        // The shell goes in before the program takes any memory.
        Command::new("sh")
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$1\" --exact \"$2\" --nocapture"])
            .arg(&self.path)
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(variable, value)
            .output()
            .unwrap()
    }

    /// Processes of the group that were killed for memory; `None` where the kernel doesn't say.
    pub fn killed(&self) -> Option<u64> {
        let file = if self.is_first_version { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(self.path.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    }

    /// How often the limit was met.
    pub fn met(&self) -> u64 {
        let read = |name| std::fs::read_to_string(self.path.join(name)).unwrap();
        if self.is_first_version {
            return read("memory.failcnt").trim().parse().unwrap();
        }
        let events = read("memory.events");
        events.lines().find_map(|line| line.strip_prefix("max ")).unwrap().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last process may be on its way out.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
