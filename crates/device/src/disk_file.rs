//! An open file or block device of the system, as a device.
//!
//! Relies on `quire-sys` for reads and writes with wishes, and on [`engine`] for several at once.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use quire_sys::buffer::Buffer;
use quire_sys::file::{self as sys, DIRECT_ALIGN, DirectAlignment};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::page_cache;
use quire_sys::rw::{self, RwFlags};
use quire_sys::transfer::{Direction, Extent, Transfer};

use crate::device::{Device, Queue, TakenBytes};
use crate::engine::{self, IoEngine};
use crate::errno;
use crate::error::{DeviceError, DeviceOperation};
use crate::open_file::OpenFile;

/// Zeros written at once, in bytes.
const ZERO_STEP_BYTES: u64 = 1 << 20;

/// Whether bytes pass through the system's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// Around it if the file system allows.
    #[default]
    Direct,
    /// Through it.
    Buffered,
    /// Through it, but nothing stays there (Linux 6.14, some file systems), otherwise as [`CacheMode::Buffered`]. What was
    /// in it before is used.
    DontCache,
}

/// How the bytes of an open file travel, after the system was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct(DirectAlignment),
    Buffered,
    DontCache,
}

/// What is special about a file that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A file without content, which may be written to find out what the file system does.
    New,
    /// A file with content.
    Existing,
    /// A block device of so many bytes.
    Block(u64),
}

/// A file of the system.
pub(crate) struct DiskFile {
    target: Arc<OpenFile>,
    engine: IoEngine,
    way: Way,
    /// A block device's size, which doesn't change.
    fixed_len: Option<u64>,
    /// The system's cache never holds older bytes than the device does. For what is not a regular file the kernel drops nothing after an
    /// asynchronous direct write, so a page that another program read in the middle of the write stays there as it was before.
    is_cache_current: bool,
    /// The file opened through the system's cache, once it was asked for; `None` if it can't be.
    cached: OnceLock<Option<File>>,
}

impl DiskFile {
    pub(crate) fn new(name: String, file: File, kind: FileKind, caching: CacheMode, engine: IoEngine) -> Self {
        let way = match caching {
            CacheMode::Direct if sys::try_direct(&file, kind == FileKind::New) => {
                Way::Direct(sys::direct_alignment(&file))
            }
            CacheMode::DontCache if rw::allows(&file, RwFlags::DONT_CACHE) => Way::DontCache,
            _ => Way::Buffered,
        };
        if kind == FileKind::New {
            // The question may have been put by writing a block.
            let _ = file.set_len(0);
        }
        let flags = if way == Way::DontCache { RwFlags::DONT_CACHE } else { RwFlags::NONE };
        let fixed_len = if let FileKind::Block(len) = kind { Some(len) } else { None };
        // Asked of the file itself: a block device may have been opened as any file is.
        let is_regular = file.metadata().is_ok_and(|facts| facts.is_file());
        let is_cache_current = is_regular || !matches!(way, Way::Direct(_));
        let target = Arc::new(OpenFile::new(name, file, flags));
        Self { target, engine, way, fixed_len, is_cache_current, cached: OnceLock::new() }
    }

    fn error(&self, action: DeviceOperation, source: &io::Error) -> DeviceError {
        DeviceError::new(action, &self.target.name, source)
    }

    fn is_direct(&self) -> bool {
        matches!(self.way, Way::Direct(_))
    }

    /// Reads until `into` is full or the file ends.
    fn read_some(&self, offset: u64, into: &mut [u8], flags: RwFlags) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match rw::read_at(&self.target.file, &mut into[done..], offset + done as u64, flags) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Around the cache a read can't go on at an odd place; it only ends at one with the file.
            if self.is_direct() && !done.is_multiple_of(DIRECT_ALIGN) {
                break;
            }
        }
        Ok(done)
    }

    /// The file, opened through the system's cache.
    fn cached(&self) -> Option<&File> {
        if !self.is_direct() {
            return Some(&self.target.file);
        }
        self.cached.get_or_init(|| page_cache::open_cached(&self.target.file).ok()).as_ref()
    }

    /// Reads what the system's cache holds, and has it give that up. `None` if it doesn't hold all of it.
    fn take(&self, file: &File, offset: u64, into: &mut [u8]) -> io::Result<Option<TakenBytes>> {
        let len = into.len() as u64;
        if !page_cache::holds(file, offset, len)? {
            return Ok(None);
        }
        let mut done = 0;
        while done < into.len() {
            match rw::read_at(file, &mut into[done..], offset + done as u64, RwFlags::NO_WAIT) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Dropped since the look.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        page_cache::drop_range(file, offset, len);
        Ok(Some(TakenBytes { len: done, is_given_up: page_cache::cached_pages(file, offset, len)?.cached == 0 }))
    }

    fn read_failed(&self, error: &io::Error, offset: u64, len: usize) -> DeviceError {
        self.error(DeviceOperation::Read, error).at(offset, len as u64)
    }

    /// Writes durably without poisoning. One part by one call; several would wait for the device each, so they are written
    /// first and made durable together.
    fn write_through(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.extents.len() == 1 {
            match transfer.run(&self.target.file, self.target.flags.and(RwFlags::DURABLE)) {
                Err(error) if rw::is_refusal(&error.source) => {}
                result => return result.map_err(|error| self.target.error(Direction::Write, &error)),
            }
        }
        self.target.run(transfer)?;
        self.target.file.sync_data().map_err(|error| self.error(DeviceOperation::Write, &error))
    }

    /// Takes the space for a file of `len` bytes.
    fn reserve(&self, len: u64) -> Result<(), DeviceError> {
        loop {
            match sys::reserve(&self.target.file, 0, len) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The zeros to come take space as well, where the file system doesn't share or squeeze them.
                Err(error) if rw::is_refusal(&error) => return Ok(()),
                result => return result.map_err(|error| self.error(DeviceOperation::Allocate, &error)),
            }
        }
    }
}

/// A regular file that the caller has opened already, for reading and (if the device is to be written) writing. `name` is for
/// messages.
///
/// ```
/// use quire_device::{CacheMode, IoEngine, of_file};
///
/// let file = tempfile::tempfile()?;
/// file.set_len(4096)?;
/// let device = of_file("a file of mine", file, CacheMode::Buffered, IoEngine::Auto);
/// assert_eq!(device.len()?, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn of_file(name: impl Into<String>, file: File, caching: CacheMode, engine: IoEngine) -> Arc<dyn Device> {
    Arc::new(DiskFile::new(name.into(), file, FileKind::Existing, caching, engine))
}

/// Whether `error` says that the system doesn't tell what is in its cache.
fn is_unknown(error: &io::Error) -> bool {
    rw::is_refusal(error) || error.kind() == io::ErrorKind::InvalidInput
}

impl Device for DiskFile {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn len(&self) -> Result<u64, DeviceError> {
        if let Some(len) = self.fixed_len {
            return Ok(len);
        }
        self.target
            .file
            .metadata()
            .map(|facts| facts.len())
            .map_err(|error| self.error(DeviceOperation::Length, &error))
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        if self.fixed_len.is_some() {
            return Err(DeviceError::from_errno(DeviceOperation::Length, self.name(), errno::EINVAL));
        }
        self.target.file.set_len(len).map_err(|error| self.error(DeviceOperation::Length, &error))
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.target.poison.check()?;
        let old_len = self.len()?;
        if self.fixed_len.is_some() {
            let full = || DeviceError::from_errno(DeviceOperation::Allocate, self.name(), errno::ENOSPC);
            return if len <= old_len { Ok(()) } else { Err(full()) };
        }
        if len == 0 {
            return self.set_len(0);
        }
        let grown = self.reserve(len).and_then(|()| write_zeros(self, old_len, len));
        grown.and_then(|()| self.set_len(len)).map_err(|error| {
            // Whether this works or not, the error that counts is the first one.
            let _ = self.target.file.set_len(old_len);
            // How far it came is another place each time, and an error that is met again should be the same one.
            DeviceError { action: DeviceOperation::Allocate, place: None, ..error }
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        let len = into.len();
        let failed = |error| self.read_failed(&error, offset, len);
        if !self.is_direct() {
            return self.read_some(offset, into, self.target.flags).map_err(failed);
        }
        let unit = DIRECT_ALIGN as u64;
        let start = offset / unit * unit;
        let skip = (offset - start) as usize;
        let mut block = Buffer::new((skip + len).next_multiple_of(DIRECT_ALIGN))
            .map_err(|_| DeviceError::no_memory(&self.target.name))?;
        let got = self.read_some(start, &mut block, self.target.flags).map_err(failed)?;
        let got = got.saturating_sub(skip).min(len);
        into[..got].copy_from_slice(&block[skip..skip + got]);
        Ok(got)
    }

    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        if self.is_direct() {
            return Ok(None);
        }
        match self.read_some(offset, into, self.target.flags.and(RwFlags::NO_WAIT)) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || rw::is_refusal(&error) => Ok(None),
            Err(error) => Err(self.read_failed(&error, offset, into.len())),
        }
    }

    fn take_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        let Some(file) = self.cached().filter(|_| self.is_cache_current) else { return Ok(None) };
        match self.take(file, offset, into) {
            // No such call, or no such cache.
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(self.read_failed(&error, offset, into.len())),
            Ok(taken) => Ok(taken),
        }
    }

    fn cached_bytes(&self, offset: u64, len: u64) -> Option<u64> {
        let pages = page_cache::cached_pages(self.cached()?, offset, len).ok()?;
        Some(pages.cached * PAGE_SIZE as u64)
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.target.run(transfer)
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        assert_eq!(transfer.direction, Direction::Write, "only a write can be durable");
        let is_single = transfer.extents.len() == 1;
        let mut write = || {
            self.write_through(transfer).map_err(|error| DeviceError { action: DeviceOperation::DurableWrite, ..error })
        };
        if self.is_direct() && is_single {
            // The device itself answers, for these bytes alone; several of these may wait for it at a time.
            self.target.poison.check()?;
            return write().map_err(|error| self.target.poison.set(error));
        }
        self.target.make_durable(write)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(engine::open_queue(&self.target, self.engine, depth))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.target
            .make_durable(|| self.target.file.sync_all().map_err(|error| self.error(DeviceOperation::Flush, &error)))
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        self.target
            .make_durable(|| self.target.file.sync_data().map_err(|error| self.error(DeviceOperation::Flush, &error)))
    }

    fn alignment(&self) -> DirectAlignment {
        match self.way {
            Way::Direct(alignment) => alignment,
            Way::Buffered | Way::DontCache => DirectAlignment::NONE,
        }
    }

    fn mode(&self) -> &'static str {
        let ring = self.engine == IoEngine::Auto && engine::ring_works();
        match (self.way, ring) {
            (Way::Direct(_), true) => "direct, io_uring",
            (Way::Direct(_), false) => "direct, threads",
            (Way::Buffered, true) => "buffered, io_uring",
            (Way::Buffered, false) => "buffered, threads",
            (Way::DontCache, true) => "dontcache, io_uring",
            (Way::DontCache, false) => "dontcache, threads",
        }
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.target.file)
    }
}

/// Writes zeros at the end of a file that grows: they take space wherever nothing better is known, and make later writes to that space
/// change no metadata. Over whole blocks from `from` (rounded up: the rest of its block is zero and has its space) to `to`
/// (rounded up).
fn write_zeros(device: &dyn Device, from: u64, to: u64) -> Result<(), DeviceError> {
    let unit = DIRECT_ALIGN as u64;
    let (mut offset, end) = (from.next_multiple_of(unit), to.next_multiple_of(unit));
    if offset >= end {
        return Ok(());
    }
    let len = ZERO_STEP_BYTES.min(end - offset) as usize;
    let buffer = Buffer::new(len).map_err(|_| DeviceError::no_memory(device.name()))?;
    let extents = vec![Extent { offset, start: 0, len }];
    let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
    while offset < end {
        let len = ZERO_STEP_BYTES.min(end - offset) as usize;
        transfer.extents[0] = Extent { offset, start: 0, len };
        device.run(&mut transfer)?;
        offset += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::transfer::Extent;

    /// A file that takes no byte and can't be flushed.
    fn full(engine: IoEngine) -> DiskFile {
        let file = File::options().read(true).write(true).open("/dev/full").unwrap();
        DiskFile::new("full".into(), file, FileKind::Existing, CacheMode::Buffered, engine)
    }

    fn transfer(direction: Direction) -> Transfer {
        let buffer = Buffer::new(4096).unwrap();
        Transfer { direction, buffer, extents: vec![Extent { offset: 0, start: 0, len: 4096 }], tag: 3 }
    }

    /// Every later write and flush fails with `cause`; reads don't.
    fn is_poisoned(device: &DiskFile, cause: &DeviceError) {
        assert_eq!(device.run(&mut transfer(Direction::Write)).as_ref(), Err(cause));
        assert_eq!(device.write_durable(&mut transfer(Direction::Write)).as_ref(), Err(cause));
        assert_eq!(device.allocate(9).as_ref(), Err(cause));
        assert_eq!(device.flush().as_ref(), Err(cause));
        let mut queue = device.queue(4).unwrap();
        queue.submit(transfer(Direction::Write));
        queue.submit_all(vec![transfer(Direction::Write), transfer(Direction::Read)]);
        while let Some(finished) = queue.complete() {
            match finished.transfer.direction {
                Direction::Write => assert_eq!(finished.result.as_ref(), Err(cause)),
                Direction::Read => finished.result.unwrap(),
            }
            assert_eq!((finished.transfer.tag, finished.transfer.buffer.len()), (3, 4096));
        }
    }

    #[test]
    fn what_another_opening_left_in_the_cache_is_taken_out_of_it() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 8 * PAGE_SIZE]).unwrap();
        let other = File::open(&path).unwrap();
        other.sync_all().unwrap();
        for caching in [CacheMode::Direct, CacheMode::Buffered] {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let device = of_file("file", file, caching, IoEngine::Threads);
            let len = 8 * PAGE_SIZE as u64;
            other.read_exact_at(&mut vec![0; 8 * PAGE_SIZE], 0).unwrap();
            let Some(cached) = device.cached_bytes(0, len) else {
                return quire_sys::testing::skipped_even_in_ci("the kernel doesn't tell what is in its cache");
            };
            assert_eq!(cached, len);
            let mut bytes = vec![0; 8 * PAGE_SIZE];
            let taken = device.take_cached(0, &mut bytes).unwrap().unwrap();
            assert_eq!((taken.len, bytes.iter().all(|&byte| byte == 7)), (8 * PAGE_SIZE, true));
            assert_eq!(taken.is_given_up, device.cached_bytes(0, len) == Some(0));
            if taken.is_given_up {
                assert_eq!(device.take_cached(0, &mut bytes).unwrap(), None);
                assert_eq!(device.cached_bytes(0, len), Some(0), "a look leaves nothing there");
            }
        }
    }

    #[test]
    fn space_that_is_lacking_is_the_same_error_each_time_and_names_no_place() {
        for engine in [IoEngine::Auto, IoEngine::Threads] {
            let file = quire_sys::testing::file_without_writes().unwrap();
            let device = DiskFile::new("unwritable".into(), file, FileKind::Existing, CacheMode::Buffered, engine);
            let lacking = device.allocate(64 << 10).unwrap_err();
            assert_eq!((lacking.action, lacking.kind), (DeviceOperation::Allocate, io::ErrorKind::PermissionDenied));
            // Where it came to its end is another place each time, and who asks again is to know the error.
            assert_eq!((lacking.place, device.allocate(2 << 20)), (None, Err(lacking.clone())));
            assert_eq!((device.len(), device.target.poison.check()), (Ok(0), Ok(())), "it is as it was");
        }
    }

    #[test]
    fn a_failed_flush_is_the_last_word() {
        for engine in [IoEngine::Auto, IoEngine::Threads] {
            let device = full(engine);
            assert!(device.run(&mut transfer(Direction::Write)).unwrap_err().is_full());
            let cause = device.flush().unwrap_err();
            assert_eq!(cause.action, DeviceOperation::Flush);
            is_poisoned(&device, &cause);
        }
    }

    #[test]
    fn a_failed_durable_write_is_the_last_word() {
        for engine in [IoEngine::Auto, IoEngine::Threads] {
            let device = full(engine);
            let cause = device.write_durable(&mut transfer(Direction::Write)).unwrap_err();
            assert_eq!((cause.action, cause.place), (DeviceOperation::DurableWrite, Some((0, 4096))));
            assert!(cause.is_full());
            is_poisoned(&device, &cause);
        }
    }
}
