//! Segment files before their use and after it: made, renamed, kept, removed.
//!
//! Relies on [`Device::allocate`], which writes zeros, since a write into space that was never written makes the file system
//! keep a journal of it. A new file has another name until its header is durable, and a segment that is no longer needed waits
//! under its old name, as a spare, until it gets its next number: so a file with a segment's name always has a valid header.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quire_device::{
    Buffer, Device, DeviceError, DeviceOperation, Direction, Directory, Extent, Transfer, await_freed, free_later,
    is_freeing, remove_then_free,
};
use zerocopy::IntoBytes;

use super::format::{DATA_OFFSET, SegmentHeader, SegmentMeta, name_of, unfinished_name_of};

/// Longest wait for the space of removed files, on a disk that is full without it.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// Between two looks whether the log ends, while that space is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Attempts in a row for which the figure of free bytes is believed that says that they would fail. It is a hint: what a file system
/// keeps for root is not in it.
const MOST_BELIEVED: u32 = 60;

/// A file that can take a segment. Its name is durable.
pub(crate) struct PreparedSegment {
    pub(crate) index: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bytes: u64,
}

/// A segment that is no longer written to.
pub(crate) struct ClosedSegment {
    pub(crate) index: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bytes: u64,
    /// Its last record.
    pub(crate) last_sequence: u64,
}

/// The files of a log that hold nothing needed.
pub(crate) struct SegmentPool {
    directory: Arc<dyn Directory>,
    segment_bytes: u64,
    next_index: u64,
    spares: Vec<ClosedSegment>,
    most_spares: usize,
    /// Why the last attempt to make a file failed, if there was no room, and how often that was the answer to another one.
    shortage: Option<(DeviceError, u32)>,
    /// The log ends: the space of removed files is not waited for any more.
    ending: Arc<AtomicBool>,
    /// Whether removed files of this process are being freed, of whichever log.
    is_freeing: fn() -> bool,
}

impl SegmentPool {
    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        segment_bytes: u64,
        most_spares: usize,
        highest_index: u64,
    ) -> Self {
        let next_index = highest_index + 1;
        let (spares, ending) = (Vec::new(), Arc::<AtomicBool>::default());
        Self { directory, segment_bytes, next_index, spares, most_spares, shortage: None, ending, is_freeing }
    }

    /// To be set when the log ends, by a thread that waits for that and must not wait for space.
    pub(crate) fn ending(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ending)
    }

    /// Bytes of the files that wait to be used again.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|closed| closed.bytes).sum()
    }

    /// A file of at least so many bytes. On a full disk this may be tried as often as one likes: it leaves nothing behind.
    pub(crate) fn take(&mut self, least_bytes: u64) -> Result<PreparedSegment, DeviceError> {
        if least_bytes <= self.segment_bytes
            && let Some(closed) = self.spares.pop()
        {
            return self.use_again(closed);
        }
        let (index, bytes) = (self.next_index, least_bytes.max(self.segment_bytes));
        let bytes = bytes.next_multiple_of(quire_device::DIRECT_ALIGN as u64);
        if let Some(shortage) = self.lasting_shortage(bytes) {
            return Err(shortage);
        }
        let made = match self.make(index, bytes) {
            Err(error) if is_shortage(&error) => self.make_in_freed(index, bytes, error),
            made => made,
        };
        let leaves_nothing = match &made {
            Ok(_) => false,
            Err(error) => self.discard_unfinished(index) && is_shortage(error),
        };
        self.next_index += u64::from(!leaves_nothing);
        self.shortage = made.as_ref().err().filter(|error| is_shortage(error)).map(|error| (error.clone(), 0));
        made
    }

    /// The same when there was no room, for the reason `error`, with the space of files that hold nothing.
    fn make_in_freed(&mut self, index: u64, bytes: u64, error: DeviceError) -> Result<PreparedSegment, DeviceError> {
        // A record that no spare has room for needs their space more than the records to come.
        let gives_up = !self.spares.is_empty();
        for spare in std::mem::take(&mut self.spares) {
            match self.directory.remove(&name_of(spare.index)) {
                Ok(()) => free_later(spare.device),
                Err(error) => tracing::warn!(%error, "an unused file of the log can't be removed to make room"),
            }
        }
        if !gives_up && !(self.is_freeing)() {
            return Err(error);
        }
        self.discard_unfinished(index);
        // The space of removed files counts as taken until it is free: a start would fail for what it has removed itself.
        let since = Instant::now();
        while (self.is_freeing)() && since.elapsed() < LONGEST_WAIT && !self.ending.load(Ordering::Relaxed) {
            await_freed(LOOK_EVERY);
        }
        self.make(index, bytes)
    }

    /// The shortage that the last attempt met, if the directory still has less than so many bytes. An attempt takes what there is before
    /// it fails: each second, and perhaps from the save that would free files.
    fn lasting_shortage(&mut self, bytes: u64) -> Option<DeviceError> {
        let (error, believed) = self.shortage.as_mut()?;
        *believed += 1;
        let lasts = !(self.is_freeing)()
            && self.spares.is_empty()
            && self.directory.free_bytes().is_some_and(|free| free < bytes);
        (lasts && *believed <= MOST_BELIEVED).then(|| error.clone())
    }

    fn use_again(&mut self, closed: ClosedSegment) -> Result<PreparedSegment, DeviceError> {
        let index = self.next_index;
        match self.directory.rename(&name_of(closed.index), &name_of(index)) {
            Err(error) if is_shortage(&error) => {
                self.spares.push(closed);
                return Err(error);
            }
            renamed => {
                self.next_index += 1;
                // If this fails the file stays where it is, and the next start finds it.
                renamed?;
            }
        }
        self.directory.sync()?;
        Ok(PreparedSegment { index, device: closed.device, bytes: closed.bytes })
    }

    /// A full disk must not stay full because of a file that could not be made. If it can't be removed the next start does; then
    /// this is false.
    fn discard_unfinished(&self, index: u64) -> bool {
        remove_then_free(&*self.directory, &unfinished_name_of(index))
            .map_or_else(|error| error.is_missing(), |()| true)
    }

    fn make(&self, index: u64, bytes: u64) -> Result<PreparedSegment, DeviceError> {
        let unfinished = unfinished_name_of(index);
        let device = self.directory.create(&unfinished)?;
        device.allocate(bytes)?;
        device.run(&mut header_transfer(&*device, &SegmentHeader::spare(index, bytes))?)?;
        device.flush()?;
        self.directory.rename(&unfinished, &name_of(index))?;
        self.directory.sync()?;
        Ok(PreparedSegment { index, device, bytes })
    }

    /// Takes a file back that could not be begun.
    pub(crate) fn discard(&self, prepared: PreparedSegment) -> Result<(), DeviceError> {
        // Before another file is begun its name is gone durably: that file's own name is made durable first.
        self.directory.remove(&name_of(prepared.index))?;
        free_later(prepared.device);
        Ok(())
    }

    /// Takes a segment back that an image covers: to be used again, or to be removed if there are enough of them.
    pub(crate) fn give(&mut self, closed: ClosedSegment) -> Result<(), DeviceError> {
        if closed.bytes == self.segment_bytes
            && self.spares.len() < self.most_spares
            && make_spare(&*closed.device, closed.index, closed.bytes).is_ok()
        {
            self.spares.push(closed);
            return Ok(());
        }
        self.directory.remove(&name_of(closed.index))?;
        // The log thread may wait for the pool, and must not wait for this.
        free_later(closed.device);
        Ok(())
    }
}

/// Whether a file couldn't be made because the disk is full, or a quota: then nothing is torn, and a later attempt may work. A
/// directory that couldn't be synced is another matter, whatever the reason: it is not known which names are durable.
pub(crate) fn is_shortage(error: &DeviceError) -> bool {
    error.is_full() && error.action != DeviceOperation::SyncDirectory
}

/// Writes a header and returns the salt in it, when it is durable.
pub(crate) fn write_header(device: &dyn Device, meta: &SegmentMeta) -> Result<u64, DeviceError> {
    let header = SegmentHeader::new(meta);
    device.write_durable(&mut header_transfer(device, &header)?)?;
    Ok(header.salt.get())
}

/// Says in the header of a segment in use that the image it builds on is durable.
pub(crate) fn mark_in_force(device: &dyn Device, meta: &SegmentMeta) -> Result<(), DeviceError> {
    write_header(device, &SegmentMeta { in_force: true, ..*meta }).map(drop)
}

/// Makes a segment a file that holds nothing, durably: an old header must not come back with the power under another name.
pub(crate) fn make_spare(device: &dyn Device, index: u64, file_bytes: u64) -> Result<(), DeviceError> {
    device.write_durable(&mut header_transfer(device, &SegmentHeader::spare(index, file_bytes))?)
}

/// A write of a header. Only its first sector is ever anything but zeros, so no power cut leaves half of a header.
fn header_transfer(device: &dyn Device, header: &SegmentHeader) -> Result<Transfer, DeviceError> {
    let mut block = buffer(device.name(), DATA_OFFSET as usize)?;
    block[..size_of::<SegmentHeader>()].copy_from_slice(header.as_bytes());
    let extents = vec![Extent { offset: 0, start: 0, len: DATA_OFFSET as usize }];
    Ok(Transfer { direction: Direction::Write, buffer: block, extents, tag: 0 })
}

/// Memory for transfers to or from the file `name`.
pub(crate) fn buffer(name: &str, len: usize) -> Result<Buffer, DeviceError> {
    let refused = |_| DeviceError::new(DeviceOperation::Buffers, name, &std::io::ErrorKind::OutOfMemory.into());
    Buffer::new(len).map_err(refused)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicU64;

    use quire_device::{FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno};

    use super::super::format::index_of;
    use super::*;

    pub(crate) const SEGMENT_BYTES: u64 = 32 << 10;

    /// A directory that says how much is free, and has room when so many segments were removed.
    pub(crate) struct Measured {
        pub(crate) inner: FaultInjector,
        pub(crate) free_bytes: AtomicU64,
        pub(crate) lacks_segments: AtomicU64,
    }

    impl Measured {
        /// On a disk that is full until so many segments were removed.
        pub(crate) fn lacking(segments: u64) -> Arc<Self> {
            let inner = FaultInjector::new(Arc::new(MemoryDirectory::new()), Vec::new());
            Arc::new(Self { inner, free_bytes: AtomicU64::new(u64::MAX), lacks_segments: AtomicU64::new(segments) })
        }

        pub(crate) fn fill_up(&self) {
            let full = (FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC));
            self.inner.set_rules(vec![full]);
        }
    }

    impl Directory for Measured {
        fn path_of(&self, name: &str) -> String {
            self.inner.path_of(name)
        }

        fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
            self.inner.create(name)
        }

        fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
            self.inner.open(name)
        }

        fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
            self.inner.open_to_write(name)
        }

        fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
            self.inner.rename(from, to)
        }

        fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
            self.inner.link(from, to)
        }

        fn remove(&self, name: &str) -> Result<(), DeviceError> {
            self.inner.remove(name)?;
            if index_of(name).is_some() && self.lacks_segments.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.inner.set_rules(Vec::new());
            }
            Ok(())
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.inner.sync()
        }

        fn list(&self) -> Result<Vec<String>, DeviceError> {
            self.inner.list()
        }

        fn free_bytes(&self) -> Option<u64> {
            Some(self.free_bytes.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_disk_that_is_known_to_be_full_is_not_touched_before_it_has_room() {
        let full = (FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC));
        let injector = FaultInjector::new(Arc::new(MemoryDirectory::new()), vec![full]);
        let free_bytes = AtomicU64::new(SEGMENT_BYTES - 1);
        let lacks_segments = AtomicU64::new(u64::MAX);
        let directory = Arc::new(Measured { inner: injector.clone(), free_bytes, lacks_segments });
        let mut pool = SegmentPool::new(Arc::clone(&directory) as Arc<dyn Directory>, SEGMENT_BYTES, 2, 0);
        // Other tests of this process may be freeing files, and this one frees what its attempts leave.
        pool.is_freeing = || false;
        let mut take = |bytes| pool.take(bytes).map(|prepared| prepared.index);
        // The figure is a hint: the first attempt does not rely on it.
        let error = take(0).unwrap_err();
        assert!(error.is_full());
        for _ in 0..10 {
            assert_eq!(take(0), Err(error.clone()));
        }
        assert_eq!(injector.struck(), 1);
        directory.free_bytes.store(SEGMENT_BYTES, Ordering::Relaxed);
        assert_eq!((take(0), injector.struck()), (Err(error.clone()), 2));
        assert_eq!((take(SEGMENT_BYTES + 1), injector.struck()), (Err(error.clone()), 2), "a larger one");
        assert_eq!((take(0), injector.struck()), (Err(error.clone()), 3));
        // What is kept for root may be room all the same.
        directory.free_bytes.store(0, Ordering::Relaxed);
        for _ in 0..=MOST_BELIEVED {
            assert_eq!(take(0), Err(error.clone()));
        }
        assert_eq!(injector.struck(), 4);
        injector.set_rules(Vec::new());
        directory.free_bytes.store(SEGMENT_BYTES, Ordering::Relaxed);
        assert_eq!(take(0), Ok(1));
        directory.free_bytes.store(0, Ordering::Relaxed);
        assert_eq!(take(0), Ok(2), "no shortage is known");
    }

    /// Takes two ordinary files and has them serve as spares.
    fn make_spares(pool: &mut SegmentPool) {
        let taken = [pool.take(0).unwrap(), pool.take(0).unwrap()];
        for PreparedSegment { index, device, bytes } in taken {
            pool.give(ClosedSegment { index, device, bytes, last_sequence: 0 }).unwrap();
        }
        assert_eq!(pool.spare_bytes(), 2 * SEGMENT_BYTES);
    }

    #[test]
    fn a_file_that_is_larger_than_a_spare_gets_the_space_of_the_spares() {
        let directory = Measured::lacking(2);
        let mut pool = SegmentPool::new(Arc::clone(&directory) as Arc<dyn Directory>, SEGMENT_BYTES, 2, 0);
        make_spares(&mut pool);
        directory.fill_up();
        let large = pool.take(2 * SEGMENT_BYTES).unwrap();
        assert_eq!((large.bytes, pool.spare_bytes()), (2 * SEGMENT_BYTES, 0));
        assert_eq!(directory.list().unwrap(), [name_of(large.index)]);
    }

    #[test]
    fn an_ordinary_file_takes_no_more_than_a_spare() {
        let directory = Measured::lacking(1);
        let mut pool = SegmentPool::new(Arc::clone(&directory) as Arc<dyn Directory>, SEGMENT_BYTES, 2, 0);
        make_spares(&mut pool);
        directory.fill_up();
        pool.take(SEGMENT_BYTES).unwrap();
        assert_eq!((pool.spare_bytes(), directory.list().unwrap().len()), (SEGMENT_BYTES, 2));
    }
}
