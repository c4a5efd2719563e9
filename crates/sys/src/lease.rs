//! Read leases: the kernel makes a process that wants to write a file wait until the holder of the lease has given it back.
//!
//! Relies on `fcntl(F_SETLEASE)`: for regular files that the caller owns (or with `CAP_LEASE`), which no process has open for writing.
//! The holder is told by SIGIO, for which a process of its own ([`crate::helper`]) has a handler, and gives the lease back within
//! `/proc/sys/fs/lease-break-time`. Everything here is fit for a helper: nothing allocates.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// A file by its device and inode numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileKey {
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// File systems on which a file changes only through this kernel, which asks for leases: not those of networks, not FUSE, and not
/// overlayfs, where one file has two inodes.
const LOCAL: [u64; 5] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x0102_1994, // tmpfs
];

/// Whether a file, opened in any way, lies on a file system on which leases keep writers away.
pub fn is_local(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| LOCAL.contains(&(system.f_type as u64)))
}

/// A file that is leased: nothing writes to it until this is dropped.
#[derive(Debug)]
pub struct ReadLease {
    file: OwnedFd,
    len: u64,
}

impl ReadLease {
    /// Opens what process `pid` has open as `number`, if that is the regular file `key`, and takes a lease on it.
    ///
    /// # Errors
    /// As `open`; `EAGAIN` if it is open for writing; `Unsupported` on other file systems, for empty files and for what is not that file.
    pub fn take(pid: i32, number: i32, key: FileKey) -> io::Result<Self> {
        // As a place first: opening a device may have effects.
        let place = open(pid, number, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&place)?;
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !is_regular || (FileKey { device: stat.st_dev, inode: stat.st_ino }) != key {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // And only where opening a file asks no other machine and no other process, which may not answer: a writer of another file waits
        // for this process meanwhile.
        if !is_local(place.as_fd()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = open(-1, place.as_raw_fd(), OFlags::RDONLY | OFlags::NONBLOCK)?;
        // SAFETY: the call takes numbers.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // From here on it keeps its length.
        let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if len == 0 { Err(io::ErrorKind::Unsupported.into()) } else { Ok(Self { file, len }) }
    }

    /// Bytes of the file, while the lease is held.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none; it never is so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a writer waits.
    pub fn is_being_broken(&self) -> bool {
        // SAFETY: the call takes numbers.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) != libc::F_RDLCK }
    }

    /// Maps the whole file privately, for loads and stores. Returns its first address.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn map(&self) -> io::Result<usize> {
        use rustix::mm::{MapFlags, ProtFlags};
        let len = usize::try_from(self.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, rights, flags, &self.file, 0) }?;
        Ok(base as usize)
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        // Mappings keep the open file, and it the lease, beyond its descriptor.
        // SAFETY: the call takes numbers.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// Unmaps what [`ReadLease::map`] has mapped.
pub fn unmap(base: usize, len: u64) {
    // SAFETY: `map` has made the mapping for its caller, who gives it up; nothing refers into it.
    let _ = unsafe { rustix::mm::munmap(base as *mut _, len as usize) };
}

/// Opens anew what `pid` (the caller for -1) has open as `number`.
fn open(pid: i32, number: i32, flags: OFlags) -> io::Result<OwnedFd> {
    let mut path = [0_u8; 48];
    // The last byte stays the closing zero.
    let mut rest = &mut path[..47];
    match pid {
        -1 => write!(rest, "/proc/self/fd/{number}")?,
        _ => write!(rest, "/proc/{pid}/fd/{number}")?,
    }
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}

/// In a helper: has `told` run at SIGIO, which tells of writers, and at SIGUSR1, with the signal's number; and SIGIO at the end of the
/// thread that started the helper.
///
/// # Errors
/// As `sigaction`.
///
/// # Safety
/// The caller is a process with signal handlers of its own; `told` only changes atomics.
pub unsafe fn listen(told: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: the structs are valid when zero. The handler is a function of the type that a handler without SA_SIGINFO has, and does what
    // handlers may, as `listen` demands.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = told as *const () as usize;
        let mut wanted = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut wanted);
        for signal in [libc::SIGIO, libc::SIGUSR1] {
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::sigaddset(&raw mut wanted, signal);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGIO, 0, 0, 0);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const wanted, std::ptr::null_mut());
    }
    Ok(())
}

/// The signal by which [`listen`] is told of writers.
pub const WRITER_SIGNAL: i32 = libc::SIGIO;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    #[test]
    fn a_lease_is_had_without_writers_and_is_broken_by_one() {
        let path = std::env::temp_dir().join(format!("quire-sys-lease-{}", std::process::id()));
        std::fs::write(&path, [7; 5000]).unwrap();
        let file = File::open(&path).unwrap();
        let key = FileKey { device: file.metadata().unwrap().dev(), inode: file.metadata().unwrap().ino() };
        let take = || ReadLease::take(crate::guest::process_id(), file.as_raw_fd(), key);
        let writer = File::options().write(true).open(&path).unwrap();
        let refused = take().unwrap_err();
        assert!(!is_local(file.as_fd()) || refused.raw_os_error() == Some(libc::EAGAIN), "{refused}");
        drop(writer);
        let Ok(lease) = take() else { return crate::testing::skipped("no leases here") };
        assert!(lease.len() == 5000 && !lease.is_empty() && !lease.is_being_broken());
        let base = lease.map().unwrap();
        // SAFETY: mapped above, 5000 bytes of a file that is leased.
        assert_eq!(unsafe { (base as *const u8).add(4999).read() }, 7);
        unmap(base, lease.len());
        // The signal for that is the process's; it is ignored here as its default would end the test.
        // SAFETY: ignoring a signal touches no memory.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let busy = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap_err();
        assert_eq!((busy.raw_os_error(), lease.is_being_broken()), (Some(libc::EAGAIN), true));
        drop(lease);
        File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let other = ReadLease::take(crate::guest::process_id(), file.as_raw_fd(), FileKey::default());
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::Unsupported);
        std::fs::remove_file(&path).unwrap();
    }
}
