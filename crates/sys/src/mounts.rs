//! Putting FUSE file systems into the tree of directories, and taking any off.
//!
//! Relies on `mount` and `umount2`, for which one must be root; other users take the way over `fusermount3`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// How a FUSE file system is mounted.
#[derive(Clone, Debug)]
pub struct FuseMount<'a> {
    /// What the table of mounts says it is.
    pub source: &'a str,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Other users may use it; permissions are the kernel's affair.
    pub allow_other: bool,
}

/// Mounts a FUSE file system at `path`, without devices and set-id programs; returns the kernel's side, from which requests are read.
/// The caller alone unmounts it.
///
/// # Errors
/// `EPERM` unless the process may mount; what the system says.
pub fn mount_fuse(path: &Path, mount: &FuseMount<'_>) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mode = std::fs::metadata(path)?.mode();
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other = if mount.allow_other { ",allow_other" } else { "" };
    let number = device.as_raw_fd();
    let words = format!("fd={number},rootmode={mode:o},user_id={user},group_id={group},default_permissions{other}");
    let words = CString::new(words)?;
    let writes = if mount.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let flags = MountFlags::NODEV | MountFlags::NOSUID | writes;
    rustix::mount::mount(mount.source, path, "fuse", flags, &*words)?;
    Ok(device.into())
}

/// Unmounts. With `lazy` it vanishes from the tree at once, and ends when its last user does.
///
/// # Errors
/// `EBUSY` if it is in use; what the system or `fusermount3` says.
pub fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => unmount_by_helper(path, lazy),
        result => Ok(result?),
    }
}

fn unmount_by_helper(path: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if words.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, words))
}

/// Whether a mount at `path` has lost the process that served it.
pub fn is_orphaned(path: &Path) -> bool {
    // Attributes may still be in the kernel's cache; how full it is, is asked every time.
    matches!(rustix::fs::statfs(path), Err(Errno::NOTCONN))
}

/// Whether a file system is mounted exactly at `path`.
pub fn is_mount_point(path: &Path) -> bool {
    let Ok(own) = rustix::fs::stat(path) else { return is_orphaned(path) };
    let parent = path.join("..");
    rustix::fs::stat(&parent).is_ok_and(|parent| parent.st_dev != own.st_dev || parent.st_ino == own.st_ino)
}

/// Opens the kernel's side of FUSE, as a mount would, and closes it.
///
/// # Errors
/// What the system says.
pub fn try_fuse() -> io::Result<()> {
    File::options().read(true).write(true).open("/dev/fuse").map(drop)
}

/// The helper by which users other than root mount.
pub fn fuse_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join("fusermount3")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_told_from_directories_and_only_they_are_unmounted() {
        assert!(is_mount_point(Path::new("/proc")));
        let plain = std::env::temp_dir().join(format!("quire-sys-mounts-{}", std::process::id()));
        std::fs::create_dir_all(&plain).unwrap();
        assert!(!is_mount_point(&plain) && !is_orphaned(&plain));
        assert!(unmount(&plain, false).is_err());
        std::fs::remove_dir(&plain).unwrap();
    }
}
