//! What files need beyond the standard library: direct I/O, its alignment, space, durable directories.
//!
//! Relies on `fcntl`, `statx`, `statvfs`, `fallocate` and `fsync`. Direct I/O is asked for and verified, never assumed: some file
//! systems refuse it at once, some only at the first transfer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use crate::buffer::Buffer;

/// Error numbers that back ends without a real device answer with.
pub mod errno {
    /// Input or output failed.
    pub const EIO: i32 = libc::EIO;
    /// No space left on the device.
    pub const ENOSPC: i32 = libc::ENOSPC;
    /// The quota is used up.
    pub const EDQUOT: i32 = libc::EDQUOT;
    /// No such file.
    pub const ENOENT: i32 = libc::ENOENT;
    /// The file exists.
    pub const EEXIST: i32 = libc::EEXIST;
    /// Permission denied.
    pub const EACCES: i32 = libc::EACCES;
    /// There is no such attribute.
    pub const ENODATA: i32 = libc::ENODATA;
    /// The file system can't do that.
    pub const ENOTSUP: i32 = libc::ENOTSUP;
    /// The process may open no more files.
    pub const EMFILE: i32 = libc::EMFILE;
    /// The system may open no more files.
    pub const ENFILE: i32 = libc::ENFILE;
    /// Invalid argument.
    pub const EINVAL: i32 = libc::EINVAL;
}

/// How large and how aligned direct transfers must be.
pub const DIRECT_ALIGN: usize = 4096;

/// Creates a file that must not exist yet, for reading and writing.
///
/// # Errors
/// What the system says.
pub fn create_new(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o644).open(path)
}

/// Opens a regular file for reading. Anything else (a pipe would block for ever) is refused.
///
/// # Errors
/// What the system says; [`io::ErrorKind::InvalidInput`] if the path names no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    regular(File::options().read(true), path)
}

/// Opens a regular file, which must exist, for reading and writing.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_to_write(path: &Path) -> io::Result<File> {
    regular(File::options().read(true).write(true), path)
}

fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // It was for opening only: a ring takes it as a wish to be told "not now", for ever.
    let flags = rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&file, flags)?;
    Ok(file)
}

/// File systems whose files are interfaces of the kernel: what they hold is made when it is read, and a write is a command.
const INTERFACES: [u32; 16] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x6165_676c, // pstore
    0xcafe_4a11, // bpf
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x1cd1,      // devpts
    0x6e73_6673, // nsfs
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
];

/// Whether `file` is an interface of the kernel (in `/proc`, `/sys`, ...), whatever kind it says it is.
///
/// # Errors
/// As `fstatfs`.
pub fn is_kernel_interface(file: &File) -> io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(INTERFACES.contains(&(kind as u32)))
}

/// The kind of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// How direct transfers must be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Address of the memory, in bytes.
    pub memory_bytes: usize,
    /// Offset in the file and length, in bytes.
    pub offset_bytes: usize,
}

impl DirectAlignment {
    /// Nothing need be aligned.
    pub const NONE: Self = Self { memory_bytes: 1, offset_bytes: 1 };
    /// What every file is satisfied with.
    pub const DIRECT: Self = Self { memory_bytes: DIRECT_ALIGN, offset_bytes: DIRECT_ALIGN };
}

/// What the system says about direct transfers of `file`: `None` if it says nothing (before Linux 6.1, or a file system
/// that doesn't tell), an alignment of zero bytes if there are none.
fn told_alignment(file: &File) -> Option<DirectAlignment> {
    let facts = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN);
    let (memory_bytes, offset_bytes) = (facts.stx_dio_mem_align as usize, facts.stx_dio_offset_align as usize);
    told.then_some(DirectAlignment { memory_bytes, offset_bytes })
}

/// How direct transfers of `file`, for which [`try_direct`] has said yes, must be aligned.
pub fn direct_alignment(file: &File) -> DirectAlignment {
    match (told_alignment(file), crate::block::sector_bytes(file)) {
        (Some(told), _) if told.memory_bytes > 0 && told.offset_bytes > 0 => told,
        (_, Ok(sector)) if sector > 0 => DirectAlignment { memory_bytes: sector, offset_bytes: sector },
        _ => DirectAlignment::DIRECT,
    }
}

/// Turns direct I/O on for `file` if its file system really does it in units of [`DIRECT_ALIGN`]; returns whether.
///
/// With `may_write` the first block of the (new) file is written with zeros to find out.
pub fn try_direct(file: &File, may_write: bool) -> bool {
    // Where the system doesn't tell, the probe below finds out.
    let aligned = told_alignment(file).is_none_or(|told| {
        let unit = told.offset_bytes.max(told.memory_bytes);
        unit > 0 && DIRECT_ALIGN.is_multiple_of(unit)
    });
    if !aligned || set_direct(file, true).is_err() {
        return false;
    }
    let works = Buffer::new(DIRECT_ALIGN).is_ok_and(|mut block| {
        let result = if may_write { file.write_at(&block, 0) } else { file.read_at(&mut block, 0) };
        // Other errors (a full or failing disk) are for the real transfers to meet and to report.
        !matches!(result, Err(error) if error.kind() == io::ErrorKind::InvalidInput)
    });
    if !works {
        let _ = set_direct(file, false);
    }
    works
}

fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Whether `offset .. offset + len` of a file is a hole as a whole. `false` where the file system can't tell.
pub fn is_hole(file: &File, offset: u64, len: u64) -> bool {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => data >= offset.saturating_add(len),
        // No data from there on, unless it is the end of the file.
        Err(errno) => errno == rustix::io::Errno::NXIO && file.metadata().is_ok_and(|meta| offset < meta.len()),
    }
}

/// Whether `offset .. offset + len` of a file has a hole in it. `false` where the file system can't tell.
pub fn has_hole(file: &File, offset: u64, len: u64) -> bool {
    // Behind its last byte every file has one.
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(offset)).is_ok_and(|hole| hole < offset.saturating_add(len))
}

/// Whether a hole of a mapped file takes space when it is read, so that it can't be read where there is none: the process gets SIGBUS. So it is
/// on tmpfs, whose pages are those of its files; elsewhere a hole is a page of zeros in the cache.
pub fn fills_mapped_holes(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|facts| facts.f_type as u64 == TMPFS)
}

/// Bytes that an ordinary user may still write to the file system of `path`.
///
/// # Errors
/// What the system says.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(path)?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Takes space for `len` bytes of `file` from `offset` on and makes it so long. Bytes that are there stay; new ones read as
/// zero.
///
/// # Errors
/// `EOPNOTSUPP` if the file system can't do this; what the system says (a full device), and some of the space may be
/// taken then.
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, len)?)
}

/// Makes the entries of a directory durable: files created, renamed and removed in it.
///
/// # Errors
/// What the system says.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes everything on the file system of `file` durable, whichever process wrote it.
///
/// # Errors
/// What the system says.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Has the system write the cached pages of a range of `file` to the device, and waits until they are there. That makes nothing
/// durable. It leaves less to do for the flush that does, and keeps a device's queue short. Where a file can't do that, nothing happens.
///
/// # Errors
/// Bytes could not be written; the system has told that now and tells it to this opening of the file once, whichever process wrote them.
/// Other openings are told, too.
pub fn write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return Ok(()) };
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: takes a descriptor that is open for the call, and numbers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    let error = io::Error::last_os_error();
    let unable = [libc::ESPIPE, libc::EINVAL, libc::ENOSYS, libc::EPERM];
    if result == 0 || error.raw_os_error().is_some_and(|number| unable.contains(&number)) { Ok(()) } else { Err(error) }
}

/// Asks the system to forget cached pages of `file`, so that the next read comes from the device. A wish.
pub fn drop_cache(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A new file under a directory of its own that goes away with the struct.
    pub(crate) struct ScratchFile {
        path: std::path::PathBuf,
    }

    impl ScratchFile {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("quire-sys-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self { path }
        }

        pub(crate) fn file(&self, name: &str) -> File {
            create_new(&self.path.join(name)).unwrap()
        }
    }

    impl Drop for ScratchFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }

    #[test]
    fn direct_or_not_whole_blocks_come_back_as_written() {
        let scratch = ScratchFile::new("direct");
        let file = scratch.file("a");
        let direct = try_direct(&file, true);
        let mut block = Buffer::new(DIRECT_ALIGN).unwrap();
        block.fill(3);
        file.write_all_at(&block, DIRECT_ALIGN as u64).unwrap();
        let mut back = Buffer::new(2 * DIRECT_ALIGN).unwrap();
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back[DIRECT_ALIGN..], block[..], "direct: {direct}");
    }

    #[test]
    fn memory_file_systems_are_used_directly_or_refused_but_never_fail_later() {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            return;
        }
        let path = shm.join(format!("quire-sys-file-{}", std::process::id()));
        let file = create_new(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        try_direct(&file, true);
        let block = Buffer::new(DIRECT_ALIGN).unwrap();
        file.write_all_at(&block, 0).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened() {
        assert!(open_regular(Path::new("/dev/null")).is_err());
        assert!(open_regular(Path::new("/")).is_err());
        assert!(open_regular(Path::new("/proc/self/stat")).is_ok());
        assert!(open_regular(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn an_alignment_is_told_and_whole_blocks_satisfy_it() {
        let scratch = ScratchFile::new("alignment");
        let file = scratch.file("a");
        let aligned = if try_direct(&file, true) { direct_alignment(&file) } else { DirectAlignment::DIRECT };
        assert!(DIRECT_ALIGN.is_multiple_of(aligned.memory_bytes));
        assert!(DIRECT_ALIGN.is_multiple_of(aligned.offset_bytes));
    }

    #[test]
    fn files_are_opened_to_wait_and_not_to_be_asked_again() {
        let scratch = ScratchFile::new("nonblock");
        drop(scratch.file("a"));
        for file in [open_regular(&scratch.path.join("a")), open_regular_to_write(&scratch.path.join("a"))] {
            assert!(!rustix::fs::fcntl_getfl(file.unwrap()).unwrap().contains(OFlags::NONBLOCK));
        }
        assert!(open_regular_to_write(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn reserved_space_reads_as_zero_and_leaves_what_is_there() {
        let scratch = ScratchFile::new("reserve");
        let file = scratch.file("a");
        file.write_all_at(&[7; 100], 0).unwrap();
        match reserve(&file, 0, 1 << 20) {
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}"),
            Ok(()) => {
                let bytes = std::fs::read(scratch.path.join("a")).unwrap();
                assert_eq!(bytes.len(), 1 << 20);
                assert!(bytes[..100].iter().all(|&byte| byte == 7) && bytes[100..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn free_space_is_told_and_directories_are_synced() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
        sync_directory(&std::env::temp_dir()).unwrap();
        assert!(sync_directory(Path::new("/no/such/directory")).is_err());
    }

    #[test]
    fn bytes_that_could_not_be_written_out_are_told_to_every_opening_of_the_file() {
        use rustix::fs::{MemfdFlags, SealFlags};
        let run = |words: &[&str]| {
            let output = std::process::Command::new("losetup").args(words).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let store = File::from(rustix::fs::memfd_create("store", MemfdFlags::ALLOW_SEALING).unwrap());
        store.set_len(1 << 20).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), store.as_raw_fd());
        let Some(disk) = run(&["--find", "--show", &path]) else {
            return crate::testing::skipped("block devices take root");
        };
        let told = OpenOptions::new().read(true).write(true).open(&disk).map(|file| {
            let hearer = crate::at::open(&file, crate::at::AccessMode::Read).unwrap();
            // The disk takes nothing from now on.
            rustix::fs::fcntl_add_seals(&store, SealFlags::FUTURE_WRITE).unwrap();
            file.write_all_at(&[7; 4096], 0).unwrap();
            (write_out(&hearer, 0, 4096).is_err(), write_out(&hearer, 0, 4096).is_err(), file.sync_data().is_err())
        });
        run(&["-d", &disk]);
        assert_eq!(told.unwrap(), (true, false, true));
    }
}
