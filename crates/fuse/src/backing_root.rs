//! What a mount keeps for itself: a hidden folder in the directory, and the log's file on the fast device.
//!
//! ```text
//! BACKING/.quire/lock      locked while mounted, so that there is one mount at a time
//! BACKING/.quire/witness   which log belongs to this directory (see `quire_writecache`)
//! BACKING/.quire/volumes   which volume of the log is which file (see `volume_table.rs`)
//! BACKING/.quire/failures  inode numbers of files with lost bytes of which no program was told before the last unmount
//! BACKING/.quire/lost/     bytes from the log whose file is gone
//! BACKING/.quire/end       how the last mount ended (see `unmount_result.rs`)
//! ```
//! Relies on locks of files ending with the process, however that ends. The folder is not seen through the mount.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quire_device::{BlockDevice, CacheMode, Device, Directory, DiskDirectory, IoEngine};
use quire_sys::locked_file::LockedFile;

use crate::error::MountError;

/// Name of the hidden folder.
pub const FOLDER: &str = ".quire";
const LOST: &str = "lost";
const FAILURES: &str = "failures";
/// Name of the file that says how the last mount ended.
pub const END: &str = "end";
/// Name of a file that is made and removed at once.
const LONGEST: &str = "longest";
/// No file of any file system has more bytes.
const MOST_FILE_BYTES: u64 = i64::MAX as u64;
/// All that may be in the folder.
const OWN: [&str; 6] = ["lock", "witness", "volumes", FAILURES, LOST, END];

/// The folder, open and locked.
pub struct BackingRoot {
    /// The directory itself.
    pub dir: File,
    /// Where that is.
    pub path: PathBuf,
    folder: DiskDirectory,
    _lock: LockedFile,
}

impl BackingRoot {
    /// Opens the directory and its folder, which is made if need be.
    ///
    /// # Errors
    /// It can't be used, or is in use.
    pub fn open(path: &Path) -> Result<Self, MountError> {
        let failed = |cause: io::Error| MountError::Backing { path: path.to_owned(), cause };
        let whole = path.canonicalize().map_err(failed)?;
        let dir = File::open(&whole).map_err(failed)?;
        if !dir.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let folder = whole.join(FOLDER);
        refuse_links(&folder)?;
        if !folder.is_dir() {
            fs::create_dir(&folder).map_err(failed)?;
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let lock = File::options().create(true).append(true).open(folder.join("lock")).map_err(failed)?;
        let lock =
            take(lock).map_err(|cause| cause.map_or_else(|| MountError::Busy { path: whole.clone() }, failed))?;
        let folder = DiskDirectory::new(folder).with(CacheMode::Buffered, IoEngine::Threads);
        Ok(Self { dir, path: whole, folder, _lock: lock })
    }

    /// Makes everything in the directory durable: names, and bytes that were written past a mount or before this one.
    ///
    /// # Errors
    /// The directory's device fails.
    pub fn sync(&self) -> Result<(), MountError> {
        quire_sys::file::sync_file_system(&self.dir)
            .map_err(|cause| MountError::Backing { path: self.path.clone(), cause })
    }

    /// A file of the folder, which is made if need be, durably.
    ///
    /// # Errors
    /// The directory's device fails.
    pub fn device(&self, name: &str) -> Result<Arc<dyn Device>, MountError> {
        match self.folder.open_to_write(name) {
            Err(error) if error.is_missing() => {
                let device = self.folder.create(name)?;
                device.flush()?;
                self.folder.sync()?;
                quire_sys::file::sync_directory(&self.path)
                    .map_err(|cause| MountError::Backing { path: self.path.clone(), cause })?;
                Ok(device)
            }
            result => Ok(result?),
        }
    }

    /// Inode numbers of the files of which bytes were lost before this mount, without a program having been told.
    ///
    /// # Errors
    /// The directory's device fails, or there is something else in that file.
    pub fn failures(&self) -> Result<Vec<u64>, MountError> {
        let path = self.path.join(FOLDER).join(FAILURES);
        let failed = |cause| MountError::Backing { path: path.clone(), cause };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(failed)?,
        };
        let numbers: Result<_, _> = text.lines().map(str::parse).collect();
        numbers.map_err(|_| failed(io::ErrorKind::InvalidData.into()))
    }

    /// Has the next mount know these; see [`BackingRoot::failures`].
    ///
    /// # Errors
    /// The directory's device fails.
    pub fn keep_failures(&self, inodes: &[u64]) -> io::Result<()> {
        let path = self.path.join(FOLDER).join(FAILURES);
        if inodes.is_empty() {
            let removed = fs::remove_file(&path);
            return removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
        }
        let text: String = inodes.iter().map(|ino| format!("{ino}\n")).collect();
        self.replace(FAILURES, &text)
    }

    /// Puts a file of the folder in the place of the one that is there, durably.
    ///
    /// # Errors
    /// The directory's device fails.
    pub fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path.join(FOLDER).join(name);
        let next = path.with_extension("next");
        if let Err(error) = fs::remove_file(&next)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        // Anew, so that no link is followed.
        let mut file = File::create_new(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, &path)?;
        quire_sys::file::sync_directory(&self.path.join(FOLDER))
    }

    /// Bytes that the longest file can have here, by the file system's limit or the process's. A file without a name is made
    /// as long as can be; where none can be made, nothing is known to be refused.
    pub fn longest_file_bytes(&self) -> u64 {
        longest_in(&self.path.join(FOLDER)).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "how long files may be is not known");
            MOST_FILE_BYTES
        })
    }

    /// A new file for bytes whose own file is gone.
    ///
    /// # Errors
    /// The directory's device fails.
    pub fn lost(&self, name: &str) -> Result<(Arc<dyn Device>, PathBuf), MountError> {
        let path = self.path.join(FOLDER).join(LOST);
        fs::create_dir_all(&path).map_err(|cause| MountError::Backing { path: path.clone(), cause })?;
        let disk = DiskDirectory::new(&path).with(CacheMode::Buffered, IoEngine::Threads);
        let device = match disk.open_to_write(name) {
            Err(error) if error.is_missing() => disk.create(name)?,
            result => result?,
        };
        Ok((device, path.join(name)))
    }
}

/// See [`BackingRoot::longest_file_bytes`].
fn longest_in(folder: &Path) -> io::Result<u64> {
    let path = folder.join(LONGEST);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let file = File::create_new(&path)?;
    fs::remove_file(&path)?;
    let fits = |len| match file.set_len(len) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput) => Ok(false),
        Err(error) => Err(error),
    };
    let (mut longest, mut refused) = (0, MOST_FILE_BYTES);
    if fits(refused)? {
        return Ok(refused);
    }
    while refused - longest > 1 {
        let middle = longest + (refused - longest) / 2;
        if fits(middle)? {
            longest = middle;
        } else {
            refused = middle;
        }
    }
    Ok(longest)
}

/// Whether the directory lacks what its log holds, while it is not mounted.
///
/// # Errors
/// It can't be told.
pub fn needs_log(backing: &Path) -> Result<bool, MountError> {
    let folder = DiskDirectory::new(backing.join(FOLDER)).with(CacheMode::Buffered, IoEngine::Threads);
    Ok(quire_writecache::needs_log(&*folder.open("witness")?)?)
}

/// The directory may belong to another user than the daemon, which must not write or change for that user what only itself may.
fn refuse_links(folder: &Path) -> Result<(), MountError> {
    let own = OWN.map(|name| folder.join(name));
    let is_link = |path: &&Path| path.symlink_metadata().is_ok_and(|facts| facts.file_type().is_symlink());
    match std::iter::once(folder).chain(own.iter().map(PathBuf::as_path)).find(is_link) {
        Some(path) => Err(MountError::Link { path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Locks a file; `None` as error means that another process has it.
fn take(file: File) -> Result<LockedFile, Option<io::Error>> {
    LockedFile::new(file).map_err(|refused| match refused {
        TryLockError::WouldBlock => None,
        TryLockError::Error(error) => Some(error),
    })
}

/// The fast device, and the lock on it.
pub struct LogDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Bytes that it has and no more, if it is a block device.
    pub fixed_bytes: Option<u64>,
    /// The file, if it was made here.
    made: Option<PathBuf>,
    _lock: Option<LockedFile>,
}

impl LogDevice {
    /// Opens the log's file or block device; a file is made if need be.
    ///
    /// # Errors
    /// It can't be used, or is in use.
    pub fn open(path: &Path) -> Result<Self, MountError> {
        let failed = |cause: io::Error| MountError::Log { path: path.to_owned(), cause };
        let facts = fs::metadata(path);
        if facts.as_ref().is_ok_and(|facts| facts.file_type().is_block_device()) {
            // The kernel gives it to one user at a time.
            let device = BlockDevice::open(path)?;
            let fixed_bytes = Some(device.len()?);
            return Ok(Self { device, fixed_bytes, made: None, _lock: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let disk = DiskDirectory::new(parent);
        let mut made = None;
        let device = match disk.open_to_write(name) {
            Err(error) if error.is_missing() => {
                let device = disk.create(name)?;
                made = Some(path.to_owned());
                disk.sync()?;
                device
            }
            result => result?,
        };
        let lock = File::options().append(true).open(path).map_err(failed)?;
        let lock =
            take(lock).map_err(|cause| cause.map_or_else(|| MountError::Busy { path: path.to_owned() }, failed))?;
        Ok(Self { device, fixed_bytes: None, made, _lock: Some(lock) })
    }

    /// There is no mount: a file that was made for it goes again. Nothing may have been acknowledged in it.
    pub fn take_back(self) {
        if let Some(path) = &self.made
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "the new log's file can't be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_kept_until_there_are_none_and_damage_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let backing_root = BackingRoot::open(dir.path()).unwrap();
        assert!(backing_root.failures().unwrap().is_empty());
        backing_root.keep_failures(&[]).unwrap();
        backing_root.keep_failures(&[3, 77]).unwrap();
        assert_eq!(backing_root.failures().unwrap(), [3, 77]);
        fs::write(dir.path().join(FOLDER).join(FAILURES), "3\nx").unwrap();
        assert!(matches!(backing_root.failures(), Err(MountError::Backing { .. })));
        backing_root.keep_failures(&[]).unwrap();
        assert!(backing_root.failures().unwrap().is_empty());
    }

    #[test]
    fn no_link_in_the_place_of_what_the_mount_keeps_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (backing, other) = (dir.path().join("backing"), dir.path().join("other"));
        let folder = backing.join(FOLDER);
        for path in [&backing, &other] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let is_refused = || matches!(BackingRoot::open(&backing), Err(MountError::Link { .. }));
        std::os::unix::fs::symlink(&other, &folder).unwrap();
        assert!(is_refused());
        assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o755);
        fs::remove_file(&folder).unwrap();
        let backing_root = BackingRoot::open(&backing).unwrap();
        let target = other.join("target");
        std::os::unix::fs::symlink(&target, folder.join("failures.next")).unwrap();
        backing_root.keep_failures(&[7]).unwrap();
        assert!(backing_root.failures().unwrap() == [7] && !target.exists());
        drop(backing_root);
        for name in OWN {
            let path = folder.join(name);
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink(&target, &path).unwrap();
            assert!(is_refused(), "{name}");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn the_longest_file_is_found_to_the_byte_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let backing_root = BackingRoot::open(dir.path()).unwrap();
        let longest = backing_root.longest_file_bytes();
        let file = File::create(dir.path().join("f")).unwrap();
        file.set_len(longest).unwrap();
        assert!(longest == MOST_FILE_BYTES || file.set_len(longest + 1).is_err());
        assert!(!dir.path().join(FOLDER).join(LONGEST).exists());
    }

    #[test]
    fn a_directory_and_a_log_are_used_by_one_mount_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let backing_root = BackingRoot::open(dir.path()).unwrap();
        assert!(matches!(BackingRoot::open(dir.path()), Err(MountError::Busy { .. })));
        backing_root.device("volumes").unwrap();
        backing_root.device("volumes").unwrap();
        drop(backing_root);
        BackingRoot::open(dir.path()).unwrap();
        let log = dir.path().join("log");
        let log_device = LogDevice::open(&log).unwrap();
        assert!(matches!(LogDevice::open(&log), Err(MountError::Busy { .. })));
        drop(log_device);
        LogDevice::open(&log).unwrap();
    }
}
