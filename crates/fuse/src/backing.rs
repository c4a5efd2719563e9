//! A file of the directory as a slow device that keeps the file's time of writing, and whose flushes pay the file's debt.
//!
//! Bytes reach the file long after a program wrote them, and each time the system sets the file's time to the present. So
//! the time that programs are to see is kept here ([`Times`]) and put back after every such write; a program that sets a
//! time (`tar`, `rsync`) keeps it although bytes it wrote before arrive later.
//!
//! What is written goes on to the device at once ([`write_out`]): else a flush, of any file, would find the file system's journal
//! behind all the pages that lie about, and everybody who waits for a flush would wait for those.
//!
//! Relies on a device of `quire-device` for the bytes.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use quire_device::{Action, Alignment, Device, DeviceError, Direction, Queue, Transfer};
use quire_sys::at::{self, Access, NewTime};
use quire_sys::file::write_out;

use crate::debt::Debt;

/// How much later than a write the file may learn its time.
const LAG: Duration = Duration::from_secs(1);

/// When the file was last written, as programs are to see it.
#[derive(Debug, Default)]
pub struct Times {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    modified: Option<SystemTime>,
    /// When a program last changed anything about it.
    changed: Option<SystemTime>,
    /// The file itself has another time.
    is_ahead: bool,
    told: Option<Instant>,
}

impl Times {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, if it isn't simply the file's.
    pub fn modified(&self) -> Option<SystemTime> {
        self.state().modified
    }

    /// When a program last changed anything about the file, if that isn't simply the file's own time.
    pub fn changed(&self) -> Option<SystemTime> {
        self.state().changed
    }

    /// A program writes.
    pub fn touch(&self) {
        let mut state = self.state();
        let now = SystemTime::now();
        (state.modified, state.changed) = (Some(now), Some(now));
        state.is_ahead = true;
    }

    /// A program has changed something besides the bytes.
    pub fn change(&self) {
        let mut state = self.state();
        if state.changed.is_some() {
            state.changed = Some(SystemTime::now());
        }
    }

    /// A program has set the time, on the file too.
    pub fn set(&self, modified: SystemTime) {
        let mut state = self.state();
        (state.modified, state.changed) = (Some(modified), Some(SystemTime::now()));
        state.is_ahead = false;
    }

    /// From now on these are kept, unless there are others.
    pub fn adopt(&self, modified: SystemTime, changed: SystemTime) {
        let mut state = self.state();
        state.modified.get_or_insert(modified);
        state.changed.get_or_insert(changed);
    }

    /// Tells the file, if it lags; with `at_once` even if only by little.
    pub fn tell(&self, file: &File, at_once: bool) {
        let mut state = self.state();
        let recently = state.told.is_some_and(|told| told.elapsed() < LAG);
        if state.is_ahead && (at_once || !recently) {
            put(&mut state, file);
        }
    }

    fn restore(&self, file: &File) {
        put(&mut self.state(), file);
    }
}

fn put(state: &mut State, file: &File) {
    if let Some(modified) = state.modified {
        // A wrong time is no reason to fail a write.
        let _ = at::set_times(file, NewTime::Keep, NewTime::At(modified));
        state.is_ahead = false;
        state.told = Some(Instant::now());
    }
}

/// The device.
pub struct Backing {
    inner: Arc<dyn Device>,
    file: Arc<File>,
    times: Arc<Times>,
    debt: Arc<Debt>,
}

impl Backing {
    /// A device on `inner`, which is `file`.
    pub fn new(inner: Arc<dyn Device>, file: Arc<File>, times: Arc<Times>, debt: Arc<Debt>) -> Self {
        Self { inner, file, times, debt }
    }

    /// Has the system write a transfer's bytes out. The system tells each opening of a file once of bytes that it lost, whoever wrote them;
    /// `hearer` was opened before these were written and is nobody else's. So no other job takes their failure away, nor does this
    /// from a flush.
    fn write_out(&self, transfer: &Transfer, hearer: &File) -> Result<(), DeviceError> {
        let Some(first) = transfer.extents.iter().map(|extent| extent.offset).min() else { return Ok(()) };
        let end = transfer.extents.iter().map(|extent| extent.offset + extent.len as u64).max().unwrap_or(first);
        let told = |error| DeviceError::new(Action::Write, self.inner.name(), &error).at(first, end - first);
        write_out(hearer, first, end - first).map_err(told)
    }
}

impl Device for Backing {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        let result = self.inner.set_len(len);
        self.times.restore(&self.file);
        result
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        let result = self.inner.allocate(len);
        self.times.restore(&self.file);
        result
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        self.inner.read_at(offset, into)
    }

    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        self.inner.read_cached(offset, into)
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.direction != Direction::Write {
            return self.inner.run(transfer);
        }
        // Where it can't be opened again, the next flush tells of failures.
        let hearer = at::open(&self.file, Access::Read);
        let result = self.inner.run(transfer);
        self.times.restore(&self.file);
        result.and_then(|()| hearer.map_or(Ok(()), |hearer| self.write_out(transfer, &hearer)))
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let result = self.inner.write_durable(transfer);
        self.times.restore(&self.file);
        result
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        self.inner.queue(depth)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let paid = self.debt.pay(false, || self.inner.flush());
        paid.unwrap_or_else(|| self.inner.flush())
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        let paid = self.debt.pay(true, || {
            self.times.tell(&self.file, true);
            self.inner.flush()
        });
        paid.unwrap_or_else(|| self.inner.flush_data())
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{Buffer, Caching, Engine, Extent, of_file};

    #[test]
    fn bytes_that_arrive_late_leave_the_time_that_a_program_set() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let times = Arc::new(Times::default());
        let inner = of_file("file", file.try_clone().unwrap(), Caching::Buffered, Engine::Threads);
        let device = Backing::new(inner, Arc::clone(&file), Arc::clone(&times), Arc::default());
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        times.set(old);
        let extents = vec![Extent { offset: 0, start: 0, len: 4096 }];
        let buffer = Buffer::new(4096).unwrap();
        device.run(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 }).unwrap();
        assert_eq!(at::facts(&*file).unwrap().modified, old);
        times.touch();
        times.tell(&file, true);
        assert!(at::facts(&*file).unwrap().modified > old);
    }
}
