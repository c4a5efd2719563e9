//! A directory that stands before another one and is no faster than told.
//!
//! Relies on sleeping: transfers end in the order in which they were submitted, each when a device of that pace would
//! have ended it.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use quire_sys::file::Alignment;
use quire_sys::transfer::{Direction, Extent, Transfer};

use crate::device::{Device, Finished, Queue};
use crate::directory::Directory;
use crate::error::DeviceError;
use crate::pace::{Clock, Pace};

/// A directory on a slow device.
#[derive(Clone)]
pub struct Throttled {
    inner: Arc<dyn Directory>,
    clock: Arc<Clock>,
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

impl Throttled {
    /// Puts `pace` before `inner`. All files share the device.
    pub fn new(inner: Arc<dyn Directory>, pace: Pace) -> Self {
        Self { inner, clock: Arc::new(Clock::new(pace)) }
    }

    /// Puts a device from elsewhere on the same slow device.
    pub fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut hasher = DefaultHasher::new();
        inner.name().hash(&mut hasher);
        Arc::new(ThrottledFile { inner, clock: Arc::clone(&self.clock), number: hasher.finish() })
    }
}

impl Directory for Throttled {
    fn path_of(&self, name: &str) -> String {
        self.inner.path_of(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create(name).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(name).map(|file| self.wrap(file))
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_to_write(name).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        sleep_until(self.clock.book_flush());
        self.inner.sync()
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
}

struct ThrottledFile {
    inner: Arc<dyn Device>,
    clock: Arc<Clock>,
    /// What the clock knows the file by.
    number: u64,
}

impl ThrottledFile {
    fn book(&self, direction: Direction, parts: &[Extent]) -> Instant {
        self.clock.book(self.number, direction, parts)
    }
}

impl Device for ThrottledFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.allocate(len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        sleep_until(self.book(Direction::Read, &[Extent { offset, start: 0, len: into.len() }]));
        self.inner.read_at(offset, into)
    }

    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        // The device isn't asked, so it takes no time.
        self.inner.read_cached(offset, into)
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let end = self.book(transfer.direction, &transfer.extents);
        let result = self.inner.run(transfer);
        sleep_until(end);
        result
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.book(transfer.direction, &transfer.extents);
        let end = self.clock.book_flush();
        let result = self.inner.write_durable(transfer);
        sleep_until(end);
        result
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = self.inner.queue(depth)?;
        let (clock, number) = (Arc::clone(&self.clock), self.number);
        Ok(Box::new(ThrottledQueue { inner, clock, number, ends: VecDeque::new(), early: None }))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        sleep_until(self.clock.book_flush());
        self.inner.flush()
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        sleep_until(self.clock.book_flush());
        self.inner.flush_data()
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }
}

struct ThrottledQueue {
    inner: Box<dyn Queue>,
    clock: Arc<Clock>,
    number: u64,
    /// When each transfer in flight may end, in order.
    ends: VecDeque<Instant>,
    /// One that ended sooner than it may.
    early: Option<Finished>,
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

    fn complete(&mut self) -> Option<Finished> {
        let finished = self.early.take().or_else(|| self.inner.complete())?;
        if let Some(end) = self.ends.pop_front() {
            sleep_until(end);
        }
        Some(finished)
    }

    fn poll(&mut self) -> Option<Finished> {
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
