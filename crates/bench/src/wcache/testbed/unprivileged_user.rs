//! The user as whom databases run that refuse to run as root.
//!
//! Relies on `/etc/passwd`. Debian's package makes a user `postgres`; `nobody` does as well.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// A user without privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprivilegedUser {
    /// Its number.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
}

impl UnprivilegedUser {
    /// `postgres`, or else `nobody`.
    ///
    /// # Errors
    /// When there is neither.
    pub fn unprivileged() -> anyhow::Result<Self> {
        let passwd = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        Self::of(&passwd, &["postgres", "nobody"]).context("there is neither a user postgres nor a user nobody")
    }

    fn of(passwd: &str, names: &[&str]) -> Option<Self> {
        let entry = |name: &str| {
            let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            Some(Self { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        };
        names.iter().find_map(|name| entry(name))
    }

    /// A command that runs as this user, in a process group of its own: a Ctrl-C is for us, and we end it in order.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(self.uid).gid(self.gid).process_group(0).current_dir("/").env("LC_ALL", "C");
        command
    }

    /// Gives `path` to this user.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn own(self, path: &Path) -> anyhow::Result<()> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .with_context(|| format!("giving {} to user {}", path.display(), self.uid))
    }

    /// Whether every user may pass through all directories above `path`.
    ///
    /// # Errors
    /// When not; names the directory.
    pub fn reaches(self, path: &Path) -> anyhow::Result<()> {
        let path = path.canonicalize().with_context(|| format!("finding {}", path.display()))?;
        for dir in path.ancestors().skip(1) {
            let mode = dir.metadata().with_context(|| format!("looking at {}", dir.display()))?.mode();
            if mode & 0o001 == 0 {
                bail!("user {} may not pass through {}; choose another directory with --dir", self.uid, dir.display());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_name_counts() {
        let passwd = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65533:n:/:/no\npostgres:x:101:104:P:/v:/b\n";
        assert_eq!(
            UnprivilegedUser::of(passwd, &["postgres", "nobody"]),
            Some(UnprivilegedUser { uid: 101, gid: 104 })
        );
        assert_eq!(UnprivilegedUser::of(passwd, &["pg", "nobody"]), Some(UnprivilegedUser { uid: 65534, gid: 65533 }));
        assert_eq!(UnprivilegedUser::of(passwd, &["pg"]), None);
    }
}
