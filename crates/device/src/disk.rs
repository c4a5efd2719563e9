//! Real files in a real directory.
//!
//! Relies on `quire-sys` to open them. Where the file system can't do direct I/O (some network and overlay file systems)
//! the same files are used through the system's cache.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quire_sys::at::{self, OnExisting};
use quire_sys::file as sys;

use crate::device::Device;
use crate::directory::{Directory, check_name};
use crate::disk_file::{CacheMode, DiskFile, FileKind};
use crate::engine::IoEngine;
use crate::error::{DeviceError, DeviceOperation};

/// A directory of the system.
///
/// ```
/// use quire_device::{Buffer, Directory, Direction, DiskDirectory, Extent, Transfer};
///
/// let folder = tempfile::tempdir()?;
/// let directory = DiskDirectory::new(folder.path());
/// let file = directory.create("data")?;
/// let mut buffer = Buffer::new(4096)?;
/// buffer[..5].copy_from_slice(b"hello");
/// let extents = vec![Extent { offset: 0, start: 0, len: 4096 }];
/// file.write_durable(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 })?;
/// directory.sync()?; // the name, too
/// let mut read = [0; 5];
/// file.read_at(0, &mut read)?;
/// assert_eq!(&read, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DiskDirectory {
    path: PathBuf,
    caching: CacheMode,
    engine: IoEngine,
    pinned: Option<PinnedDirectory>,
}

/// The directory that must lie at the path, held open.
#[derive(Clone, Debug)]
struct PinnedDirectory {
    file: Arc<File>,
    /// Its device and inode.
    identity: (u64, u64),
}

/// The file handle is stale (`<errno.h>`): another directory lies there now.
const ESTALE: i32 = 116;

impl DiskDirectory {
    /// The directory at `path`, with direct I/O through the best engine.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), caching: CacheMode::default(), engine: IoEngine::default(), pinned: None }
    }

    /// The same with a choice of caching and engine.
    #[must_use]
    pub fn with(mut self, caching: CacheMode, engine: IoEngine) -> Self {
        self.caching = caching;
        self.engine = engine;
        self
    }

    /// The directory that lies at the path now, and no other one: wherever it is moved, files are found, made, renamed and removed in it alone.
    /// Once another directory lies at the path, or none, nothing is made, renamed or linked any more. Without a directory at the path this
    /// changes nothing.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        let opened = File::open(&self.path).and_then(|file| Ok((file.metadata()?, file)));
        self.pinned = opened
            .ok()
            .filter(|(meta, _)| meta.is_dir())
            .map(|(meta, file)| PinnedDirectory { file: Arc::new(file), identity: (meta.dev(), meta.ino()) });
        self
    }

    /// The open directory in which something is to be changed: what the path leads to, which must be the pinned one if there is one.
    fn to_change(&self) -> io::Result<Arc<File>> {
        if let Some(pinned) = &self.pinned {
            let found = match fs::metadata(&self.path) {
                Ok(meta) => Some((meta.dev(), meta.ino())),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            if found != Some(pinned.identity) {
                return Err(io::Error::from_raw_os_error(ESTALE));
            }
        }
        self.opened()
    }

    /// The open directory: the pinned one, wherever it is by now, or what the path leads to.
    fn opened(&self) -> io::Result<Arc<File>> {
        match &self.pinned {
            Some(pinned) => Ok(Arc::clone(&pinned.file)),
            None => Ok(Arc::new(File::open(&self.path)?)),
        }
    }

    fn open_file(&self, name: &str, writes: bool) -> io::Result<File> {
        match &self.pinned {
            Some(pinned) => at::open_regular(&pinned.file, OsStr::new(name), writes),
            // Also where the directory may not be listed.
            None if writes => sys::open_regular_to_write(&self.path.join(name)),
            None => sys::open_regular(&self.path.join(name)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn device(&self, name: &str, file: File, kind: FileKind) -> Arc<dyn Device> {
        Arc::new(DiskFile::new(self.path_of(name), file, kind, self.caching, self.engine))
    }

    fn error(&self, action: DeviceOperation, name: &str, source: &std::io::Error) -> DeviceError {
        DeviceError::new(action, self.path_of(name), source)
    }
}

impl Directory for DiskDirectory {
    fn path_of(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Create, name)?;
        let created = self.to_change().and_then(|dir| at::create(&dir, OsStr::new(name), 0o644));
        let file = created.map_err(|error| self.error(DeviceOperation::Create, name, &error))?;
        Ok(self.device(name, file, FileKind::New))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Open, name)?;
        let file = self.open_file(name, false).map_err(|error| self.error(DeviceOperation::Open, name, &error))?;
        Ok(self.device(name, file, FileKind::Existing))
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Open, name)?;
        let file = self.open_file(name, true).map_err(|error| self.error(DeviceOperation::Open, name, &error))?;
        Ok(self.device(name, file, FileKind::Existing))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Rename, from)?;
        check_name(DeviceOperation::Rename, to)?;
        let (old, new) = (OsStr::new(from), OsStr::new(to));
        let renamed = self.to_change().and_then(|dir| at::rename(&dir, old, &dir, new, OnExisting::Replace));
        renamed.map_err(|error| self.error(DeviceOperation::Rename, from, &error))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Link, from)?;
        check_name(DeviceOperation::Link, to)?;
        let linked = self.to_change().and_then(|dir| link_or_copy(&dir, OsStr::new(from), OsStr::new(to)));
        linked.map_err(|error| self.error(DeviceOperation::Link, from, &error))
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Remove, name)?;
        let removed = self.opened().and_then(|dir| at::remove(&dir, OsStr::new(name), false));
        removed.map_err(|error| self.error(DeviceOperation::Remove, name, &error))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let synced = self.to_change().and_then(|dir| dir.sync_all());
        synced.map_err(|error| self.error(DeviceOperation::SyncDirectory, "", &error))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let listed = self.opened().and_then(|dir| at::list(&dir));
        let entries = listed.map_err(|error| self.error(DeviceOperation::List, "", &error))?;
        // A name that isn't text can't be one of ours.
        let names = entries.into_iter().filter_map(|entry| entry.name.into_string().ok());
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    fn free_bytes(&self) -> Option<u64> {
        match &self.pinned {
            Some(pinned) => at::space(&pinned.file).ok().map(|space| space.available_blocks * space.block_bytes),
            None => sys::free_bytes(&self.path).ok(),
        }
    }
}

/// Gives a file a second name; a copy where the file system has none.
fn link_or_copy(dir: &File, from: &OsStr, to: &OsStr) -> io::Result<()> {
    match at::link(dir, from, to) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => Err(error),
        Err(_) => {
            let mut copy = at::create(dir, to, 0o644)?;
            // The system copies from file to file, and leaves holes to the file system.
            let copied = at::open_regular(dir, from, false).and_then(|mut original| io::copy(&mut original, &mut copy));
            copied.and_then(|_| copy.sync_all())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_directory_is_the_only_one_that_is_changed_wherever_it_is_moved() {
        let home = tempfile::tempdir().unwrap();
        let (path, moved) = (home.path().join("data"), home.path().join("moved"));
        fs::create_dir(&path).unwrap();
        let pinned = DiskDirectory::new(&path).pinned();
        for name in ["a", "b"] {
            pinned.create(name).unwrap();
        }
        pinned.rename("a", "c").unwrap();
        pinned.link("c", "d").unwrap();
        pinned.sync().unwrap();
        fs::rename(&path, &moved).unwrap();
        let refused = |pinned: &DiskDirectory| {
            let failures = [
                pinned.create("e").err().unwrap(),
                pinned.rename("b", "e").unwrap_err(),
                pinned.link("b", "e").unwrap_err(),
                pinned.sync().unwrap_err(),
            ];
            failures.iter().all(|error| error.errno == Some(ESTALE))
        };
        assert!(refused(&pinned), "nothing lies there");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("b"), "of another server").unwrap();
        assert!(refused(&pinned), "another directory lies there");
        assert!(pinned.open("c").is_ok() && pinned.open_to_write("d").is_ok());
        pinned.remove("b").unwrap();
        let mut names = pinned.list().unwrap();
        names.sort();
        assert_eq!(names, ["c", "d"]);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "what lies there is as it was");
        fs::remove_dir_all(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        assert!(pinned.create("e").is_ok() && pinned.sync().is_ok());
    }
}
