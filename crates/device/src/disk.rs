//! Real files in a real directory.
//!
//! Relies on `quire-sys` to open them. Where the file system can't do direct I/O (some network and overlay file systems)
//! the same files are used through the system's cache.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quire_sys::file as sys;

use crate::device::Device;
use crate::directory::{Directory, check_name};
use crate::disk_file::{CacheMode, DiskFile, FileKind};
use crate::engine::IoEngine;
use crate::error::{DeviceError, DeviceOperation};

/// A directory of the system.
#[derive(Clone, Debug)]
pub struct DiskDirectory {
    path: PathBuf,
    caching: CacheMode,
    engine: IoEngine,
    /// Device and inode of the directory that must lie at the path.
    pinned: Option<(u64, u64)>,
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

    /// The directory that lies at the path now, and no other one: once another one lies there, nothing is made, renamed, linked or
    /// removed in it. Without a directory at the path this changes nothing.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.pinned = identity_of(&self.path);
        self
    }

    fn check_pinned(&self, action: DeviceOperation, name: &str) -> Result<(), DeviceError> {
        if self.pinned.is_some() && identity_of(&self.path) != self.pinned {
            return Err(self.error(action, name, &std::io::Error::from_raw_os_error(ESTALE)));
        }
        Ok(())
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

/// Device and inode of what lies at a path.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Directory for DiskDirectory {
    fn path_of(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Create, name)?;
        self.check_pinned(DeviceOperation::Create, name)?;
        let file = sys::create_new(&self.path.join(name))
            .map_err(|error| self.error(DeviceOperation::Create, name, &error))?;
        Ok(self.device(name, file, FileKind::New))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Open, name)?;
        let file = sys::open_regular(&self.path.join(name))
            .map_err(|error| self.error(DeviceOperation::Open, name, &error))?;
        Ok(self.device(name, file, FileKind::Existing))
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Open, name)?;
        let file = sys::open_regular_to_write(&self.path.join(name))
            .map_err(|error| self.error(DeviceOperation::Open, name, &error))?;
        Ok(self.device(name, file, FileKind::Existing))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Rename, from)?;
        check_name(DeviceOperation::Rename, to)?;
        self.check_pinned(DeviceOperation::Rename, from)?;
        fs::rename(self.path.join(from), self.path.join(to))
            .map_err(|error| self.error(DeviceOperation::Rename, from, &error))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Link, from)?;
        check_name(DeviceOperation::Link, to)?;
        self.check_pinned(DeviceOperation::Link, from)?;
        match fs::hard_link(self.path.join(from), self.path.join(to)) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
                Err(self.error(DeviceOperation::Link, from, &error))
            }
            // Not every file system has second names. `fs::copy` leaves holes to the file system.
            Err(_) => {
                let copied = fs::copy(self.path.join(from), self.path.join(to))
                    .and_then(|_| File::open(self.path.join(to))?.sync_all());
                copied.map_err(|error| self.error(DeviceOperation::Link, from, &error))
            }
        }
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Remove, name)?;
        self.check_pinned(DeviceOperation::Remove, name)?;
        fs::remove_file(self.path.join(name)).map_err(|error| self.error(DeviceOperation::Remove, name, &error))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.check_pinned(DeviceOperation::SyncDirectory, "")?;
        sys::sync_directory(&self.path).map_err(|error| self.error(DeviceOperation::SyncDirectory, "", &error))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let failed = |error| self.error(DeviceOperation::List, "", &error);
        let entries = fs::read_dir(&self.path).map_err(failed)?;
        // A name that isn't text can't be one of ours.
        entries
            .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    fn free_bytes(&self) -> Option<u64> {
        sys::free_bytes(&self.path).ok()
    }
}
