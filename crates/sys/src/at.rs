//! Files and directories below an open directory, one name at a time, so that no path leads out of it.
//!
//! Relies on the `…at` family of calls and on `/proc/self/fd` for turning a mere place (`O_PATH`) into an open file. A name
//! is one component: neither empty, nor `.` or `..`, nor with a slash in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};

use crate::file_stat::decode_device;
pub use crate::file_stat::{FileStat, InodeType, born_ns, facts, facts_at, numbers_of};

/// A place: what `name` stands for in `dir`, without opening it. A symbolic link stands for itself.
///
/// # Errors
/// What the system says.
pub fn place(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// How a place is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// For reading.
    Read,
    /// For reading and writing.
    ReadWrite,
    /// A directory, for listing.
    List,
}

/// Opens a place.
///
/// # Errors
/// What the system says.
pub fn open(place: impl AsFd, access: AccessMode) -> io::Result<File> {
    let flags = match access {
        AccessMode::Read => OFlags::RDONLY | OFlags::NONBLOCK,
        AccessMode::ReadWrite => OFlags::RDWR | OFlags::NONBLOCK,
        AccessMode::List => OFlags::RDONLY | OFlags::DIRECTORY,
    };
    let opened = rustix::fs::openat(CWD, proc_path(&place), flags | OFlags::CLOEXEC, Mode::empty())?;
    if access != AccessMode::List {
        // It was for opening only, in case the place is a pipe.
        let flags = rustix::fs::fcntl_getfl(&opened)? - OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&opened, flags)?;
    }
    Ok(File::from(opened))
}

/// A path that leads to an open file or place, as long as that is open.
pub fn proc_path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Makes a regular file with these permissions, less the process's mask, and opens it for reading and writing.
///
/// # Errors
/// There is something with that name, or what the system says.
pub fn create(dir: impl AsFd, name: &OsStr, permissions: u32) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(permissions & 0o777))?))
}

/// Makes a directory that only its owner may use, until [`set_permissions`] says otherwise.
///
/// # Errors
/// What the system says.
pub fn make_directory(dir: impl AsFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700))?)
}

/// Makes a file of any kind but a directory or link; `mode` has kind and permissions as `mknod` takes them.
///
/// # Errors
/// What the system says.
pub fn make_node(dir: impl AsFd, name: &OsStr, mode: u32, rdev: u32) -> io::Result<()> {
    let kind = FileType::from_raw_mode(mode);
    let permissions = Mode::from_raw_mode(mode & 0o7777);
    Ok(rustix::fs::mknodat(dir, name, kind, permissions, decode_device(rdev))?)
}

/// Makes a symbolic link.
///
/// # Errors
/// What the system says.
pub fn make_link(target: &OsStr, dir: impl AsFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, dir, name)?)
}

/// Where a symbolic link leads.
///
/// # Errors
/// What the system says.
pub fn read_link(place: impl AsFd) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(place, "", Vec::new())?.into_bytes())
}

/// Where an open file or place is now, by its path; ends in ` (deleted)` if it has none any more.
pub fn path_of(file: impl AsFd) -> Option<OsString> {
    let path = rustix::fs::readlinkat(CWD, proc_path(file), Vec::new()).ok()?;
    Some(OsString::from_vec(path.into_bytes()))
}

/// Opens a regular file for reading, and for writing if `writes`. Anything else is refused.
///
/// # Errors
/// What the system says; [`io::ErrorKind::InvalidInput`] if the name is of no regular file.
pub fn open_regular(dir: impl AsFd, name: &OsStr, writes: bool) -> io::Result<File> {
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    // A pipe would block for ever.
    let file = File::from(rustix::fs::openat(dir, name, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // It was for opening only: a ring takes it as a wish to be told "not now", for ever.
    let flags = rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&file, flags)?;
    Ok(file)
}

/// Gives a file of a directory another name there.
///
/// # Errors
/// What the system says.
pub fn link(dir: impl AsFd + Copy, from: &OsStr, to: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::linkat(dir, from, dir, to, AtFlags::empty())?)
}

/// Gives a file another name.
///
/// # Errors
/// What the system says.
pub fn add_name(place: impl AsFd, dir: impl AsFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, proc_path(place), dir, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Takes a name away.
///
/// # Errors
/// What the system says.
pub fn remove(dir: impl AsFd, name: &OsStr, is_directory: bool) -> io::Result<()> {
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    Ok(rustix::fs::unlinkat(dir, name, flags)?)
}

/// What a rename does with a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    /// It stands for the renamed file from then on.
    Replace,
    /// The rename is refused.
    Refuse,
    /// The two change places.
    Exchange,
}

/// Renames.
///
/// # Errors
/// What the system says.
pub fn rename(
    from_dir: impl AsFd,
    from: &OsStr,
    to_dir: impl AsFd,
    to: &OsStr,
    existing: OnExisting,
) -> io::Result<()> {
    let flags = match existing {
        OnExisting::Replace => RenameFlags::empty(),
        OnExisting::Refuse => RenameFlags::NOREPLACE,
        OnExisting::Exchange => RenameFlags::EXCHANGE,
    };
    Ok(rustix::fs::renameat_with(from_dir, from, to_dir, to, flags)?)
}

/// Sets permissions, set-id and sticky bits.
///
/// # Errors
/// What the system says.
pub fn set_permissions(place: impl AsFd, permissions: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(permissions & 0o7777);
    Ok(rustix::fs::chmodat(CWD, proc_path(place), mode, AtFlags::empty())?)
}

/// Sets owner and group, as far as given.
///
/// # Errors
/// What the system says.
pub fn set_owner(place: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    Ok(rustix::fs::chownat(place, "", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// As it is.
    Keep,
    /// The present.
    Now,
    /// This.
    At(SystemTime),
}

impl NewTime {
    fn spec(self) -> Timespec {
        match self {
            Self::Keep => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            Self::Now => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
            Self::At(time) => match time.duration_since(UNIX_EPOCH) {
                Ok(after) => Timespec { tv_sec: after.as_secs().cast_signed(), tv_nsec: after.subsec_nanos().into() },
                Err(before) => {
                    let ns = before.duration().as_nanos().cast_signed();
                    let s = -ns.div_euclid(1_000_000_000) - i128::from(ns.rem_euclid(1_000_000_000) != 0);
                    Timespec { tv_sec: s as i64, tv_nsec: (-ns - s * 1_000_000_000) as i64 }
                }
            },
        }
    }
}

/// Sets the times of reading and writing.
///
/// # Errors
/// What the system says.
pub fn set_times(place: impl AsFd, accessed: NewTime, modified: NewTime) -> io::Result<()> {
    let times = Timestamps { last_access: accessed.spec(), last_modification: modified.spec() };
    Ok(rustix::fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH)?)
}

/// Takes space for `len` bytes from `offset` on without making the file longer.
///
/// # Errors
/// What the system says.
pub fn reserve_within(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, len)?)
}

/// Where the next data (or, with `hole`, the next hole) begins at or after `offset`.
///
/// # Errors
/// `ENXIO` if there is none; what the system says.
pub fn seek(file: &File, offset: u64, hole: bool) -> io::Result<u64> {
    let to = if hole { rustix::fs::SeekFrom::Hole(offset) } else { rustix::fs::SeekFrom::Data(offset) };
    Ok(rustix::fs::seek(file, to)?)
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: OsString,
    /// Number of its inode.
    pub ino: u64,
    /// What it is, if the file system says so here.
    pub kind: InodeType,
}

/// All entries of an open directory, `.` and `..` included, from the beginning.
///
/// # Errors
/// What the system says.
pub fn list(dir: &File) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        let kind = match entry.file_type() {
            FileType::Unknown => match facts_at(dir, &name) {
                Ok(facts) => facts.kind,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            },
            known => InodeType::of(known),
        };
        entries.push(DirectoryEntry { name, ino: entry.ino(), kind });
    }
    Ok(entries)
}

/// Space on a file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystemSpace {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u64,
    /// Preferred unit of transfers, in bytes.
    pub unit_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks that an ordinary user may still take.
    pub available_blocks: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Longest name, in bytes.
    pub name_bytes: u64,
}

/// Space on the file system of `file`.
///
/// # Errors
/// What the system says.
pub fn space(file: impl AsFd) -> io::Result<FileSystemSpace> {
    let facts = rustix::fs::fstatvfs(file)?;
    Ok(FileSystemSpace {
        block_bytes: facts.f_frsize,
        unit_bytes: facts.f_bsize,
        blocks: facts.f_blocks,
        free_blocks: facts.f_bfree,
        available_blocks: facts.f_bavail,
        files: facts.f_files,
        free_files: facts.f_ffree,
        name_bytes: facts.f_namemax,
    })
}

/// Flags of an `open` call, as a program gave them.
#[derive(Clone, Copy, Debug)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// Writing is allowed.
    pub fn writes(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Every write is to be durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub fn durable(self) -> bool {
        self.0 & libc::O_DSYNC != 0
    }

    /// The file must be a new one.
    pub fn exclusive(self) -> bool {
        self.0 & libc::O_EXCL != 0
    }

    /// The file is to be emptied.
    pub fn truncates(self) -> bool {
        self.0 & libc::O_TRUNC != 0
    }
}

/// What a `fallocate` call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// The bytes are to read as zero afterwards.
    pub zeros: bool,
    /// The file's length stays.
    pub keep_len: bool,
}

impl Fallocate {
    /// Reads the mode of `fallocate`; `None` for what moves bytes about.
    pub fn of_mode(mode: i32) -> Option<Self> {
        let known = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let zeros = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        (mode & !known == 0).then_some(Self { zeros, keep_len: mode & libc::FALLOC_FL_KEEP_SIZE != 0 })
    }
}

/// What a seek asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next data.
    Data,
    /// The next hole.
    Hole,
}

impl Whence {
    /// Reads the number of `lseek`; `None` for what needs no file system.
    pub fn of_number(whence: i32) -> Option<Self> {
        match whence {
            libc::SEEK_DATA => Some(Self::Data),
            libc::SEEK_HOLE => Some(Self::Hole),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_is_made_found_renamed_and_removed_by_single_names() {
        let path = std::env::temp_dir().join(format!("quire-sys-at-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let dir = File::open(&path).unwrap();
        let (one, two) = (OsStr::new("one"), OsStr::new("two"));
        let made = create(&dir, one, 0o600).unwrap();
        assert_eq!(create(&dir, one, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let there = place(&dir, one).unwrap();
        assert_eq!(facts(&there).unwrap().ino, facts(&made).unwrap().ino);
        set_permissions(&there, 0o640).unwrap();
        assert_eq!(facts_at(&dir, one).unwrap().permissions, 0o640);
        add_name(&there, &dir, two).unwrap();
        assert_eq!(facts(&there).unwrap().links, 2);
        let refused = rename(&dir, one, &dir, two, OnExisting::Refuse).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(list(&dir).unwrap().len(), 4);
        for early in [SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH - Duration::from_millis(1500)] {
            set_times(&there, NewTime::Keep, NewTime::At(early)).unwrap();
            assert_eq!(facts(&there).unwrap().modified, early);
        }
        remove(&dir, one, false).unwrap();
        remove(&dir, two, false).unwrap();
        assert!(path_of(&there).unwrap().to_string_lossy().ends_with("(deleted)"));
        std::fs::remove_dir(&path).unwrap();
    }
}
