//! A directory that stands before another one and is no faster than told.
//!
//! Relies on sleeping: transfers end in the order in which they were submitted, each when a device of that pace would
//! have ended it.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use quire_sys::transfer::{Direction, Extent, Transfer};

use crate::device::{Completion, Device, Queue};
use crate::directory::Directory;
use crate::disk_model::{DiskClock, DiskModel};
use crate::error::{DeviceError, DeviceOperation};
use crate::layer::{DirectoryLayer, Layer, LayeredDevice};

/// A directory on a slow device.
///
/// ```
/// use quire_device::{Directory, DiskModel, MemoryDirectory, ThrottledDirectory};
/// use std::sync::Arc;
///
/// let disk = ThrottledDirectory::new(Arc::new(MemoryDirectory::with_file("data", &[1; 4096])), DiskModel::hard_disk());
/// let mut byte = [0];
/// disk.open("data")?.read_at(100, &mut byte)?; // after the way of a head
/// assert_eq!(byte, [1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ThrottledDirectory {
    inner: Arc<dyn Directory>,
    clock: Arc<DiskClock>,
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

impl ThrottledDirectory {
    /// Puts `pace` before `inner`. All files share the device.
    pub fn new(inner: Arc<dyn Directory>, pace: DiskModel) -> Self {
        Self { inner, clock: Arc::new(DiskClock::new(pace)) }
    }
}

impl DirectoryLayer for ThrottledDirectory {
    fn inner(&self) -> &dyn Directory {
        &*self.inner
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut hasher = DefaultHasher::new();
        device.name().hash(&mut hasher);
        LayeredDevice::new(device, Throttle { clock: Arc::clone(&self.clock), number: hasher.finish() })
    }

    fn before(&self, action: DeviceOperation, _name: &str) -> Result<(), DeviceError> {
        if action == DeviceOperation::SyncDirectory {
            sleep_until(self.clock.book_flush());
        }
        Ok(())
    }
}

/// What makes one file slow.
struct Throttle {
    clock: Arc<DiskClock>,
    /// What the clock knows the file by.
    number: u64,
}

impl Throttle {
    fn book(&self, direction: Direction, parts: &[Extent]) -> Instant {
        self.clock.book(self.number, direction, parts)
    }
}

// Reads from the system's cache don't ask the device, so they take no time here.
impl Layer for Throttle {
    fn read_at(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        sleep_until(self.book(Direction::Read, &[Extent { offset, start: 0, len: into.len() }]));
        inner.read_at(offset, into)
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let end = self.book(transfer.direction, &transfer.extents);
        let result = inner.run(transfer);
        sleep_until(end);
        result
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.book(transfer.direction, &transfer.extents);
        let end = self.clock.book_flush();
        let result = inner.write_durable(transfer);
        sleep_until(end);
        result
    }

    fn queue(&self, inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = inner.queue(depth)?;
        let (clock, number) = (Arc::clone(&self.clock), self.number);
        Ok(Box::new(ThrottledQueue { inner, clock, number, ends: VecDeque::new(), early: None }))
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        sleep_until(self.clock.book_flush());
        inner.flush()
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        sleep_until(self.clock.book_flush());
        inner.flush_data()
    }
}

struct ThrottledQueue {
    inner: Box<dyn Queue>,
    clock: Arc<DiskClock>,
    number: u64,
    /// When each transfer in flight may end, in order.
    ends: VecDeque<Instant>,
    /// One that ended sooner than it may.
    early: Option<Completion>,
}

impl ThrottledQueue {
    fn book(&mut self, transfer: &Transfer) {
        self.ends.push_back(self.clock.book(self.number, transfer.direction, &transfer.extents));
    }
}

impl Queue for ThrottledQueue {
    fn submit(&mut self, transfer: Transfer) {
        self.book(&transfer);
        self.inner.submit(transfer);
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        transfers.iter().for_each(|transfer| self.book(transfer));
        self.inner.submit_all(transfers);
    }

    fn complete(&mut self) -> Option<Completion> {
        let finished = self.early.take().or_else(|| self.inner.complete())?;
        if let Some(end) = self.ends.pop_front() {
            sleep_until(end);
        }
        Some(finished)
    }

    fn poll(&mut self) -> Option<Completion> {
        let finished = self.early.take().or_else(|| self.inner.poll())?;
        if self.ends.front().is_some_and(|&end| end > Instant::now()) {
            self.early = Some(finished);
            return None;
        }
        self.ends.pop_front();
        Some(finished)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + usize::from(self.early.is_some())
    }
}
