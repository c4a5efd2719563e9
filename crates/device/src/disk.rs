//! Real files in a real directory.
//!
//! Relies on `quire-sys` for direct I/O. Where the file system can't do it (some network and overlay file systems) the
//! same files are used through the system's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use quire_sys::buffer::Buffer;
use quire_sys::file::{self as sys, DIRECT_ALIGN};

use crate::device::{Device, Queue};
use crate::directory::{Directory, check_name};
use crate::engine::{self, Engine};
use crate::error::{Action, DeviceError};
use crate::target::Target;

/// Whether bytes pass through the system's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Around it if the file system allows.
    #[default]
    Direct,
    /// Through it.
    Buffered,
}

/// A directory of the system.
#[derive(Clone, Debug)]
pub struct Disk {
    path: PathBuf,
    caching: Caching,
    engine: Engine,
}

impl Disk {
    /// The directory at `path`, with direct I/O through the best engine.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), caching: Caching::default(), engine: Engine::default() }
    }

    /// The same with a choice of caching and engine.
    #[must_use]
    pub fn with(mut self, caching: Caching, engine: Engine) -> Self {
        self.caching = caching;
        self.engine = engine;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn device(&self, name: &str, file: File, may_write: bool) -> Arc<dyn Device> {
        let direct = self.caching == Caching::Direct && sys::try_direct(&file, may_write);
        let target = Target { name: self.path_of(name), file: Arc::new(file), poison: OnceLock::new() };
        Arc::new(DiskFile { target: Arc::new(target), engine: self.engine, direct })
    }

    fn error(&self, action: Action, name: &str, source: &std::io::Error) -> DeviceError {
        DeviceError::new(action, self.path_of(name), source)
    }
}

impl Directory for Disk {
    fn path_of(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(Action::Create, name)?;
        let file = sys::create_new(&self.path.join(name)).map_err(|error| self.error(Action::Create, name, &error))?;
        Ok(self.device(name, file, true))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(Action::Open, name)?;
        let file = sys::open_regular(&self.path.join(name)).map_err(|error| self.error(Action::Open, name, &error))?;
        Ok(self.device(name, file, false))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(Action::Rename, from)?;
        check_name(Action::Rename, to)?;
        fs::rename(self.path.join(from), self.path.join(to)).map_err(|error| self.error(Action::Rename, from, &error))
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        check_name(Action::Remove, name)?;
        fs::remove_file(self.path.join(name)).map_err(|error| self.error(Action::Remove, name, &error))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        sys::sync_directory(&self.path).map_err(|error| self.error(Action::SyncDirectory, "", &error))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let failed = |error| self.error(Action::List, "", &error);
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

struct DiskFile {
    target: Arc<Target>,
    engine: Engine,
    direct: bool,
}

impl DiskFile {
    fn error(&self, action: Action, source: &std::io::Error) -> DeviceError {
        DeviceError::new(action, &self.target.name, source)
    }

    fn read_some(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        use std::os::unix::fs::FileExt;
        let mut done = 0;
        while done < into.len() {
            match self.target.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(Action::Read, &error).at(offset, into.len() as u64)),
            }
            // Around the cache a read can't go on at an odd place; it only ends at one with the file.
            if self.direct && !done.is_multiple_of(DIRECT_ALIGN) {
                break;
            }
        }
        Ok(done)
    }
}

impl Device for DiskFile {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.target.file.metadata().map(|facts| facts.len()).map_err(|error| self.error(Action::Length, &error))
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.target.file.set_len(len).map_err(|error| self.error(Action::Length, &error))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        if !self.direct {
            return self.read_some(offset, into);
        }
        let unit = DIRECT_ALIGN as u64;
        let start = offset / unit * unit;
        let skip = (offset - start) as usize;
        let mut block = Buffer::new((skip + into.len()).next_multiple_of(DIRECT_ALIGN)).map_err(|error| {
            self.error(Action::Buffers, &std::io::Error::new(std::io::ErrorKind::OutOfMemory, error.to_string()))
        })?;
        let got = self.read_some(start, &mut block)?.saturating_sub(skip).min(into.len());
        into[..got].copy_from_slice(&block[skip..skip + got]);
        Ok(got)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        engine::open_queue(&self.target, self.engine, depth)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.target.check()?;
        self.target.file.sync_all().map_err(|error| {
            // The system may have dropped what it could not write, and would report success next time.
            self.target.poison.get_or_init(|| self.error(Action::Flush, &error)).clone()
        })
    }

    fn mode(&self) -> &'static str {
        let ring = self.engine == Engine::Auto && engine::ring_works();
        match (self.direct, ring) {
            (true, true) => "direct, io_uring",
            (true, false) => "direct, threads",
            (false, true) => "buffered, io_uring",
            (false, false) => "buffered, threads",
        }
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.target.file)
    }
}
