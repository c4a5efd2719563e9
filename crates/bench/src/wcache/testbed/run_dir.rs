//! The directory of a run: every user may pass through it, and it is empty of earlier runs' leavings.
//!
//! Relies on its name, `quire-wcache-PID`, being used by no other program.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::leftovers::{self, PREFIX};
use crate::cleanup_list;

/// The directory; removed when dropped.
#[derive(Debug)]
pub struct RunDir {
    dir: PathBuf,
    /// Sockets lie elsewhere: their paths must be short.
    sockets: PathBuf,
    memory: PathBuf,
}

impl RunDir {
    /// A directory below `parent`, after clearing up what killed runs left anywhere.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn new(parent: &Path) -> anyhow::Result<Self> {
        let parent = parent.canonicalize().with_context(|| format!("finding {}", parent.display()))?;
        let memory = PathBuf::from("/dev/shm");
        let sockets = std::env::temp_dir();
        leftovers::clear(&[&parent, &memory, &sockets]);
        let name = format!("{PREFIX}{}", std::process::id());
        let run_dir =
            Self { dir: parent.join(&name), sockets: sockets.join(format!("{name}.s")), memory: memory.join(&name) };
        for dir in [&run_dir.dir, &run_dir.sockets, &run_dir.memory] {
            cleanup_list::note(dir);
            std::fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
                .with_context(|| format!("opening {} to every user", dir.display()))?;
        }
        Ok(run_dir)
    }

    /// On the disk.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// For sockets and logs of servers.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// In memory.
    pub fn memory(&self) -> &Path {
        &self.memory
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        for dir in [&self.dir, &self.sockets, &self.memory] {
            leftovers::remove(dir);
        }
    }
}
