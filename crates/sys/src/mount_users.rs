//! Which processes keep a mount busy: those that have a file of it open or mapped, run a program of it, or stand in it.
//!
//! Relies on procfs, and on numbers of file systems that the kernel knows by itself: the process that serves the mount is
//! never asked, so it may look itself. Of other users' processes only root learns; a process that comes or goes meanwhile
//! may be missing.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::at;
use crate::task;

/// What a process has of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountUse {
    /// Its working directory, or its root, is there.
    Directory,
    /// A file or a directory is open.
    OpenFile,
    /// A file is mapped; its program counts.
    Mapping,
}

impl MountUse {
    fn words(self) -> &'static str {
        match self {
            Self::Directory => "working directory",
            Self::OpenFile => "open file",
            Self::Mapping => "mapped file",
        }
    }
}

/// A process that keeps a mount busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountUser {
    /// Its number.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// The first thing found that it has.
    pub holds: MountUse,
}

impl fmt::Display for MountUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}, {})", self.process, self.name, self.holds.words())
    }
}

/// The processes that keep the mount at `path` busy, as far as the system tells this one.
///
/// # Errors
/// `path` can't be looked at, or there is no procfs.
pub fn of(path: &Path) -> io::Result<Vec<MountUser>> {
    let (device, _) = at::numbers_of(path)?;
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(holds) = held_by(&entry.path(), device) {
            let name = task::identity(process).map_or_else(|| "?".to_owned(), |identity| identity.name);
            users.push(MountUser { process, name, holds });
        }
    }
    users.sort_unstable_by_key(|user| user.process);
    Ok(users)
}

/// The users in words, for a message; at most `most` of them by name.
pub fn words(users: &[MountUser], most: usize) -> String {
    let named: Vec<String> = users.iter().take(most).map(ToString::to_string).collect();
    match users.len() {
        0 => "processes that this user may not look at".to_owned(),
        count if count <= most => named.join(", "),
        count => format!("{} and {} more", named.join(", "), count - most),
    }
}

fn held_by(proc: &Path, device: u64) -> Option<MountUse> {
    let lies_there = |link: PathBuf| at::numbers_of(&link).is_ok_and(|(found, _)| found == device);
    if ["cwd", "root"].into_iter().any(|name| lies_there(proc.join(name))) {
        return Some(MountUse::Directory);
    }
    let files = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    if files.map(|entry| entry.path()).any(lies_there) {
        return Some(MountUse::OpenFile);
    }
    let maps = fs::read(proc.join("maps")).unwrap_or_default();
    let mapped = maps.split(|&byte| byte == b'\n').any(|line| mapped_device(line) == Some(device));
    mapped.then_some(MountUse::Mapping)
}

/// The file system's number in a line `start-end rwxp offset major:minor inode name`.
fn mapped_device(line: &[u8]) -> Option<u64> {
    let word = line.split(|&byte| byte == b' ').nth(3)?;
    let (major, minor) = std::str::from_utf8(word).ok()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some(rustix::fs::makedev(number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_that_has_a_file_open_or_mapped_is_named() {
        // Every process uses procfs while it is looked at by this one: the test has a file of it open.
        let _open = fs::File::open("/proc/self/stat").unwrap();
        let users = of(Path::new("/proc")).unwrap();
        let own = users.iter().find(|user| user.process == std::process::id()).unwrap();
        assert_eq!(own.holds, MountUse::OpenFile);
        assert!(words(&users, usize::MAX).contains(&format!("{} ({}, open file)", own.process, own.name)));
        assert_eq!(words(&[own.clone(), own.clone()], 1), format!("{own} and 1 more"));
        assert!(of(Path::new("/no/such/place")).is_err());
    }

    #[test]
    fn a_line_of_maps_names_its_file_system() {
        let line = b"7f00-7f01 r--p 00000000 00:2a 131 /srv/a b";
        assert_eq!(mapped_device(line), Some(rustix::fs::makedev(0, 0x2a)));
        assert_eq!(mapped_device(b"7f00-7f01 rw-p 00000000 00:00 0"), Some(0));
        assert_eq!(mapped_device(b""), None);
        // This test's program is a file.
        let exe = at::numbers_of(Path::new("/proc/self/exe")).unwrap().0;
        let maps = fs::read("/proc/self/maps").unwrap();
        assert!(maps.split(|&byte| byte == b'\n').any(|line| mapped_device(line) == Some(exe)));
    }
}
