//! A directory that stands before another one and is no faster than told.
//!
//! Relies on sleeping: transfers end in the order in which they were submitted, each when a device of that pace would
//! have ended it.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quire_sys::transfer::Transfer;

use crate::device::{Device, Finished, Queue};
use crate::directory::Directory;
use crate::error::DeviceError;

/// How fast a device is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Time that every part of a transfer and every flush takes, whatever its size.
    pub operation_ns: u64,
}

/// A directory on a slow device.
#[derive(Clone)]
pub struct Throttled {
    inner: Arc<dyn Directory>,
    clock: Arc<Clock>,
}

struct Clock {
    pace: Pace,
    /// When the device will have done everything that it was given.
    free_at: Mutex<Instant>,
}

impl Clock {
    /// Books an operation; returns when it ends.
    fn book(&self, bytes: u64, operations: u64) -> Instant {
        let transfer_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.pace.bytes_per_s.max(1));
        let fixed_ns = u128::from(operations) * u128::from(self.pace.operation_ns);
        let busy = Duration::from_nanos(u64::try_from(transfer_ns + fixed_ns).unwrap_or(u64::MAX / 2));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now()) + busy;
        *free_at
    }
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

impl Throttled {
    /// Puts `pace` before `inner`. All files share the device.
    pub fn new(inner: Arc<dyn Directory>, pace: Pace) -> Self {
        Self { inner, clock: Arc::new(Clock { pace, free_at: Mutex::new(Instant::now()) }) }
    }

    fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(ThrottledFile { inner, clock: Arc::clone(&self.clock) })
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

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        sleep_until(self.clock.book(0, 1));
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

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        sleep_until(self.clock.book(into.len() as u64, 1));
        self.inner.read_at(offset, into)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = self.inner.queue(depth)?;
        Ok(Box::new(ThrottledQueue { inner, clock: Arc::clone(&self.clock), ends: VecDeque::new() }))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        sleep_until(self.clock.book(0, 1));
        self.inner.flush()
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
    /// When each transfer in flight may end, in order.
    ends: VecDeque<Instant>,
}

impl Queue for ThrottledQueue {
    fn submit(&mut self, transfer: Transfer) {
        self.ends.push_back(self.clock.book(transfer.bytes(), transfer.extents.len() as u64));
        self.inner.submit(transfer);
    }

    fn complete(&mut self) -> Option<Finished> {
        let finished = self.inner.complete()?;
        if let Some(end) = self.ends.pop_front() {
            sleep_until(end);
        }
        Some(finished)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
