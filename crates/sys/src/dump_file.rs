//! A file that a forked child dumps memory to: written under a temporary name, published by a rename, mapped over the memory
//! that it holds.
//!
//! Relies on [`LockedFile`], `openat`, `pwrite`, `renameat`, `fsync` and `mmap`. Nothing here allocates, takes a lock of this process or
//! panics, since another thread of the parent may have held any lock at the fork.

use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::file::DIRECT_ALIGN;
use crate::locked_file::LockedFile;
use crate::write_queue::WriteSink;

/// What a temporary name ends with. It is the same for every process, so that what a killed one left is used again.
const SUFFIX: &[u8] = b".mdc-tmp";
/// Longest name of a file, as Linux has it.
const NAME_BYTES: usize = 255;
const PATH_BYTES: usize = 4096;
/// A file may be renamed between opening and locking it that often.
const ATTEMPTS: usize = 100;
/// The system keeps the lock of a process that was killed until it has ended the writes which that process began in the background. They
/// might reach the file, so the next process waits for that.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// A string that ends with NUL, without an allocation.
#[derive(Clone, Copy)]
struct Name<const MOST: usize> {
    bytes: [u8; MOST],
    len: usize,
}

impl<const MOST: usize> Name<MOST> {
    fn of(parts: [&[u8]; 2]) -> io::Result<Self> {
        let mut name = Self { bytes: [0; MOST], len: 0 };
        for part in parts {
            // One byte stays for the NUL.
            let room = name.bytes[..MOST - 1].get_mut(name.len..name.len + part.len()).ok_or(Errno::NAMETOOLONG)?;
            room.copy_from_slice(part);
            name.len += part.len();
        }
        Ok(name)
    }

    fn as_c(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or(c"")
    }
}

/// The file, which this process alone writes.
pub struct DumpFile {
    file: LockedFile,
    directory: OwnedFd,
    temporary: Name<{ NAME_BYTES + 1 }>,
    name: Name<{ NAME_BYTES + 1 }>,
    is_direct: bool,
}

impl std::fmt::Debug for DumpFile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DumpFile").field("name", &self.name.as_c()).field("is_direct", &self.is_direct).finish()
    }
}

impl DumpFile {
    /// Creates the file under a temporary name beside `path`, whose last part has to be a name. Direct I/O is used where the
    /// file system takes it.
    ///
    /// # Errors
    /// As `open`; [`io::ErrorKind::WouldBlock`] if another process is dumping to `path`, and has not ended within two seconds.
    pub fn create(path: &CStr) -> io::Result<Self> {
        Self::create_within(path, LOCK_PATIENCE)
    }

    fn create_within(path: &CStr, patience: Duration) -> io::Result<Self> {
        let bytes = path.to_bytes();
        let cut = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, last) = bytes.split_at(cut);
        if last.is_empty() || last == b"." || last == b".." {
            return Err(Errno::INVAL.into());
        }
        let folder = Name::<PATH_BYTES>::of([if folder.is_empty() { b"." } else { folder }, b""])?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(folder.as_c(), flags, Mode::empty())?;
        let (name, temporary) = (Name::of([last, b""])?, Name::of([last, SUFFIX])?);
        let file = open_alone(&directory, &temporary, patience)?;
        rustix::fs::ftruncate(&file, 0)?;
        let mut made = Self { file, directory, temporary, name, is_direct: false };
        made.is_direct = made.set_direct(true).is_ok();
        Ok(made)
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, is_direct);
        Ok(rustix::fs::fcntl_setfl(&self.file, flags)?)
    }

    /// Whether writes go past the system's cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Writes all of `bytes` at `offset`. Address, offset and length have to be multiples of [`DIRECT_ALIGN`].
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::NOSPC.into()),
                Ok(count) => {
                    done += count;
                    // The rest of a short write can't go past the cache.
                    if self.is_direct && !done.is_multiple_of(DIRECT_ALIGN) {
                        self.set_direct(false)?;
                        self.is_direct = false;
                    }
                }
                Err(Errno::INTR) => {}
                // Some file systems take the flag and refuse the transfer.
                Err(Errno::INVAL) if self.is_direct => {
                    self.set_direct(false)?;
                    self.is_direct = false;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the system says; the file has to be given up then.
    pub fn flush(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.file)?)
    }

    /// Whether the temporary name still leads to this file. After a fork both processes have it, and one of them may have given it its
    /// name, or up, and another process may have begun anew since.
    fn has_temporary_name(&self) -> io::Result<bool> {
        is_called(&self.directory, &self.temporary, &rustix::fs::fstat(&self.file)?)
    }

    /// Gives the file its name, in place of what had it.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if the temporary name does not lead to this file any more.
    pub fn rename(&self) -> io::Result<()> {
        if !self.has_temporary_name()? {
            return Err(Errno::NOENT.into());
        }
        let (from, to) = (self.temporary.as_c(), self.name.as_c());
        Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Makes the name durable.
    ///
    /// # Errors
    /// What the system says.
    pub fn flush_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    /// Removes the temporary name, if it leads to this file. What is mapped of the file stays as it is.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self) -> io::Result<()> {
        if !self.has_temporary_name()? {
            return Ok(());
        }
        Ok(rustix::fs::unlinkat(&self.directory, self.temporary.as_c(), AtFlags::empty())?)
    }

    /// Puts `len` bytes of the file from `offset` on in place of the memory at `at`, which is given back to the system. What the
    /// process writes there afterwards is its own.
    ///
    /// # Safety
    /// - `at .. at + len` is page-aligned private anonymous memory that may be read and written, and not executed.
    /// - The file has at `offset` the bytes that the memory has now, or no code uses the memory any more.
    /// - No other thread of this process runs, nor a handler of a signal that writes there.
    ///
    /// # Errors
    /// As `mmap`, mostly too many mappings; the memory is as it was then.
    pub unsafe fn map_over(&self, at: *mut u8, len: usize, offset: u64) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `map_over` demands of its caller that `at .. at + len` is whole pages of private anonymous memory, so MAP_FIXED
        // replaces no other mapping; that the file has the same bytes, or no code uses them, so references to them keep their
        // values; and that no other thread or handler runs, so no write falls between the copy and the exchange. The new mapping is
        // private, readable and writable as the old one was.
        unsafe { mm::mmap(at.cast(), len, access, flags, self.file.as_fd(), offset) }?;
        Ok(())
    }
}

impl WriteSink for DumpFile {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Self::write(self, bytes, offset)
    }
}

/// Opens (or creates) the file and locks it against other processes. The lock is held until [`DumpFile`] is dropped, or no
/// process has the file open and the system has ended all writes to it.
fn open_alone(directory: &OwnedFd, name: &Name<{ NAME_BYTES + 1 }>, patience: Duration) -> io::Result<LockedFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let (began, mut attempts) = (Instant::now(), 0);
    while attempts < ATTEMPTS {
        let file = rustix::fs::openat(directory, name.as_c(), flags, Mode::from_raw_mode(0o644))?;
        let file = match LockedFile::new(File::from(file)) {
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => {
                std::thread::sleep(LOCK_INTERVAL);
                continue;
            }
            locked => locked?,
        };
        // Another process may have published the file since it was opened: then it is not ours to write.
        if is_called(directory, name, &rustix::fs::fstat(&file)?)? {
            return Ok(file);
        }
        attempts += 1;
    }
    Err(Errno::AGAIN.into())
}

/// Whether `name` leads to the file of these facts.
fn is_called(directory: &OwnedFd, name: &Name<{ NAME_BYTES + 1 }>, facts: &Stat) -> io::Result<bool> {
    match rustix::fs::statat(directory, name.as_c(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (facts.st_dev, facts.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::mem::{PAGE_SIZE, Reservation};
    use std::ffi::CString;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("quire-sys-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> CString {
            CString::new(self.0.join(name).to_str().unwrap()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn page(byte: u8) -> Buffer {
        let mut buffer = Buffer::new(PAGE_SIZE).unwrap();
        buffer.fill(byte);
        buffer
    }

    #[test]
    fn what_another_process_has_begun_is_neither_published_nor_removed() {
        let folder = Folder::new("dump-others");
        let path = folder.path("a");
        let first = DumpFile::create(&path).unwrap();
        // As a child that was forked meanwhile gives it up, or a parent whose child has published it.
        first.remove().unwrap();
        let second = DumpFile::create(&path).unwrap();
        assert_eq!(first.rename().unwrap_err().kind(), io::ErrorKind::NotFound);
        first.remove().unwrap();
        second.rename().unwrap();
        let third = DumpFile::create(&path).unwrap();
        second.remove().unwrap();
        third.rename().unwrap();
    }

    #[test]
    fn a_file_appears_under_its_name_when_it_is_renamed_and_memory_may_be_exchanged_for_it() {
        let folder = Folder::new("dump");
        let mut file = DumpFile::create(&folder.path("a")).unwrap();
        file.write(&page(7), 0).unwrap();
        file.write(&page(8), 3 * PAGE_SIZE as u64).unwrap();
        file.flush().unwrap();
        assert!(!folder.0.join("a").exists());
        file.rename().unwrap();
        file.flush_directory().unwrap();
        let bytes = std::fs::read(folder.0.join("a")).unwrap();
        assert_eq!((bytes.len(), bytes[0], bytes[PAGE_SIZE], bytes[3 * PAGE_SIZE]), (4 * PAGE_SIZE, 7, 0, 8));
        let memory = Reservation::new(1 << 21).unwrap();
        // SAFETY: memory of this test, without references into it.
        unsafe {
            file.map_over(memory.base(), PAGE_SIZE, 3 * PAGE_SIZE as u64).unwrap();
            assert_eq!(memory.base().read(), 8);
            memory.base().write(9);
        }
        assert_eq!(std::fs::read(folder.0.join("a")).unwrap()[3 * PAGE_SIZE], 8);
    }

    #[test]
    fn one_process_at_a_time_writes_a_file_and_the_next_begins_afresh() {
        let folder = Folder::new("alone");
        let path = folder.path("a");
        let mut first = DumpFile::create(&path).unwrap();
        first.write(&page(7), 0).unwrap();
        assert_eq!(DumpFile::create_within(&path, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // As if its process had been killed: the name stays.
        drop(first);
        let second = DumpFile::create(&path).unwrap();
        assert_eq!(std::fs::metadata(folder.0.join("a.mdc-tmp")).unwrap().len(), 0);
        second.rename().unwrap();
        // The published file is another one than what the next writer gets.
        let third = DumpFile::create(&path).unwrap();
        third.remove().unwrap();
        assert!(folder.0.join("a").exists() && !folder.0.join("a.mdc-tmp").exists());
    }

    #[test]
    fn a_lock_that_is_about_to_end_is_waited_for() {
        let folder = Folder::new("waited");
        let path = folder.path("a");
        let first = DumpFile::create(&path).unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| DumpFile::create_within(&path, Duration::from_secs(600)).map(drop));
            // Longer than an attempt takes: most likely the first one is refused.
            std::thread::sleep(5 * LOCK_INTERVAL);
            drop(first);
            next.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_child_that_inherits_the_file_does_not_keep_the_lock() {
        let folder = Folder::new("inherited");
        let path = folder.path("a");
        let first = DumpFile::create(&path).unwrap();
        // What a fork gives a child: another descriptor of the same opening.
        let inherited = first.file.as_fd().try_clone_to_owned().unwrap();
        drop(first);
        DumpFile::create(&path).unwrap();
        drop(inherited);
    }

    #[test]
    fn paths_that_name_no_file_are_refused() {
        let folder = Folder::new("names");
        for path in ["", "/", "x/", "..", "no/such/folder/x"] {
            assert!(DumpFile::create(&CString::new(path).unwrap()).is_err(), "{path:?}");
        }
        let long = "x".repeat(250);
        let error = DumpFile::create(&folder.path(&long)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NAMETOOLONG));
    }
}
