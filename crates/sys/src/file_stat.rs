//! What the system knows of a file: its kind, its owner, its size, its times.
//!
//! Relies on `statat` and `statx`, which take a place (`O_PATH`) too.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Stat};

/// What kind of thing a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    Character,
    /// A block device.
    Block,
}

impl InodeType {
    pub(crate) fn of(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::Character,
            FileType::BlockDevice => Self::Block,
            FileType::RegularFile | FileType::Unknown => Self::File,
        }
    }
}

/// What the system knows of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileStat {
    /// Number of the file system.
    pub dev: u64,
    /// Number of the inode.
    pub ino: u64,
    /// What it is.
    pub kind: InodeType,
    /// Permissions, with the set-id and sticky bits.
    pub permissions: u32,
    /// Names that it has.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For devices: which, as FUSE and `mknod` write it.
    pub rdev: u32,
    /// Bytes.
    pub len: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred unit of transfers, in bytes.
    pub unit_bytes: u32,
    /// Last read.
    pub accessed: SystemTime,
    /// Last written.
    pub modified: SystemTime,
    /// Last changed in any way.
    pub changed: SystemTime,
}

fn time(s: i64, ns: u64) -> SystemTime {
    let ns = Duration::from_nanos(ns);
    match u64::try_from(s) {
        Ok(s) => UNIX_EPOCH + Duration::from_secs(s) + ns,
        Err(_) => UNIX_EPOCH - Duration::from_secs(s.unsigned_abs()) + ns,
    }
}

#[allow(clippy::unnecessary_cast)] // other machines count links in 32 bits, and the C library nanoseconds with a sign
fn facts_of(stat: &Stat) -> FileStat {
    FileStat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        kind: InodeType::of(FileType::from_raw_mode(stat.st_mode)),
        permissions: stat.st_mode & 0o7777,
        links: stat.st_nlink as u64,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: encode_device(stat.st_rdev),
        len: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        unit_bytes: u32::try_from(stat.st_blksize).unwrap_or(4096),
        accessed: time(stat.st_atime, stat.st_atime_nsec as u64),
        modified: time(stat.st_mtime, stat.st_mtime_nsec as u64),
        changed: time(stat.st_ctime, stat.st_ctime_nsec as u64),
    }
}

fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub(crate) fn decode_device(device: u32) -> u64 {
    let (major, minor) = ((device & 0xf_ff00) >> 8, (device & 0xff) | ((device >> 12) & 0xf_ff00));
    rustix::fs::makedev(major, minor)
}

/// A file's facts.
///
/// # Errors
/// What the system says.
pub fn facts(file: impl AsFd) -> io::Result<FileStat> {
    Ok(facts_of(&rustix::fs::statat(file, "", AtFlags::EMPTY_PATH)?))
}

/// The facts of what `name` stands for in `dir`; a symbolic link's own.
///
/// # Errors
/// What the system says.
pub fn facts_at(dir: impl AsFd, name: &OsStr) -> io::Result<FileStat> {
    Ok(facts_of(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Numbers of the file system and of the inode behind a path, as the kernel knows them without asking the process that serves it.
///
/// # Errors
/// What the system says.
pub fn numbers_of(path: &Path) -> io::Result<(u64, u64)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let facts = rustix::fs::statx(CWD, path, flags, rustix::fs::StatxFlags::INO)?;
    Ok((rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor), facts.stx_ino))
}

/// When a file was made, in nanoseconds since 1970. `None` if the file system doesn't say.
pub fn born_ns(file: impl AsFd) -> Option<u64> {
    let wanted = rustix::fs::StatxFlags::BTIME;
    let facts = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let told = rustix::fs::StatxFlags::from_bits_retain(facts.stx_mask).contains(wanted);
    let s = u64::try_from(facts.stx_btime.tv_sec).ok().filter(|_| told)?;
    s.checked_mul(1_000_000_000)?.checked_add(u64::from(facts.stx_btime.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_ways() {
        for device in [0x0801, 0x1_0305, 0xfff0_0fff] {
            assert_eq!(encode_device(decode_device(device)), device);
        }
    }
}
