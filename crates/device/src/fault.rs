//! A directory that stands before another one and makes chosen operations fail.
//!
//! Relies on a [`FaultPlan`]. A device whose flush or durable write was made to fail is poisoned, as a real one would be.

use std::io;
use std::sync::Arc;

use quire_sys::buffer::Buffer;
use quire_sys::file::DIRECT_ALIGN;
use quire_sys::transfer::{Direction, Extent, Transfer};

use crate::device::{Completion, Device, Queue};
use crate::directory::Directory;
use crate::error::{DeviceError, DeviceOperation};
use crate::layer::{DirectoryLayer, Layer, LayeredDevice};
use crate::poison::Poison;
use quire_rng::SplitMix64;

mod plan;

use plan::FaultPlan;
pub use plan::{FaultTrigger, InjectedFault};

/// What a disk writes whole, in bytes.
const SECTOR: usize = 512;

/// A directory with faults before it.
///
/// ```
/// use quire_device::{DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno};
/// use std::sync::Arc;
///
/// let rule = (FaultTrigger::Nth(DeviceOperation::Flush, 0), InjectedFault::Error(errno::EIO));
/// let directory = FaultInjector::new(Arc::new(MemoryDirectory::new()), vec![rule]);
/// let file = directory.create("data")?;
/// assert!(file.flush().is_err());
/// assert!(file.flush().is_err()); // a failed flush is never tried again into success
/// assert_eq!(directory.struck(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FaultInjector {
    inner: Arc<dyn Directory>,
    plan: Arc<FaultPlan>,
}

impl FaultInjector {
    /// Puts `rules` before `inner`; the first that fits an operation holds.
    pub fn new(inner: Arc<dyn Directory>, rules: Vec<(FaultTrigger, InjectedFault)>) -> Self {
        Self { inner, plan: Arc::new(FaultPlan::new(rules)) }
    }

    /// Has other rules hold from here on, none for a disk that works again. Operations are counted on.
    pub fn set_rules(&self, rules: Vec<(FaultTrigger, InjectedFault)>) {
        self.plan.set_rules(rules);
    }

    /// How often a fault has struck.
    pub fn struck(&self) -> u64 {
        self.plan.struck()
    }
}

impl DirectoryLayer for FaultInjector {
    fn inner(&self) -> &dyn Directory {
        &*self.inner
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let faults = Faults { device: Arc::clone(&device), plan: Arc::clone(&self.plan), poison: Poison::default() };
        LayeredDevice::new(device, FaultyFile { faults: Arc::new(faults) })
    }

    fn before(&self, action: DeviceOperation, name: &str) -> Result<(), DeviceError> {
        self.plan.check(action, &self.inner.path_of(name), &[])
    }
}

/// A device and what is to befall it.
struct Faults {
    device: Arc<dyn Device>,
    plan: Arc<FaultPlan>,
    poison: Poison,
}

impl Faults {
    /// Lets what is to befall `transfer` befall it. If it is `Ok`, nothing has been moved and nothing stands in the way.
    fn strike(&self, action: DeviceOperation, transfer: &mut Transfer) -> Result<(), DeviceError> {
        let writes = transfer.direction == Direction::Write;
        if writes {
            self.poison.check()?;
        }
        let Some(fault) = self.plan.next(action, &transfer.extents) else { return Ok(()) };
        let errno = match fault {
            InjectedFault::Error(errno) => errno,
            InjectedFault::Torn(errno) => {
                if writes {
                    self.move_parts(transfer, |len| (len / 2).next_multiple_of(DIRECT_ALIGN).min(len));
                }
                errno
            }
            InjectedFault::Sectors { errno, seed } => {
                if writes {
                    self.write_sectors(transfer, seed);
                }
                errno
            }
            InjectedFault::Short => return Err(self.cut_short(action, transfer)),
        };
        let offset = transfer.extents.first().map_or(0, |extent| extent.offset);
        Err(DeviceError::from_errno(action, self.device.name(), errno).at(offset, transfer.bytes()))
    }

    /// Moves the first bytes of every part. The caller is told of the fault only, so how this ends is not looked at.
    fn move_parts(&self, transfer: &mut Transfer, bytes_of: impl Fn(usize) -> usize) {
        let whole = std::mem::take(&mut transfer.extents);
        let parts = whole.iter().map(|extent| Extent { len: bytes_of(extent.len), ..*extent });
        transfer.extents = parts.filter(|extent| extent.len > 0).collect();
        let _ = self.device.run(transfer);
        transfer.extents = whole;
    }

    /// Writes some sectors, by writing whole blocks with the old bytes of the others.
    fn write_sectors(&self, transfer: &Transfer, seed: u64) {
        let Ok(buffer) = Buffer::new(transfer.buffer.len()) else { return };
        let extents = transfer.extents.clone();
        let mut mixed = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
        let mut rng = SplitMix64::new(seed);
        for &Extent { offset, start, len } in &mixed.extents {
            let bytes = &mut mixed.buffer[start..start + len];
            // Zeros remain where the file ends.
            let _ = self.device.read_at(offset, bytes);
            for (old, new) in bytes.chunks_mut(SECTOR).zip(transfer.buffer[start..start + len].chunks(SECTOR)) {
                if rng.coin() {
                    old.copy_from_slice(new);
                }
            }
        }
        let _ = self.device.run(&mut mixed);
    }

    fn cut_short(&self, action: DeviceOperation, transfer: &mut Transfer) -> DeviceError {
        let half = |len: usize| len / 2 / DIRECT_ALIGN * DIRECT_ALIGN;
        self.move_parts(transfer, half);
        let kind = match transfer.direction {
            Direction::Read => io::ErrorKind::UnexpectedEof,
            Direction::Write => io::ErrorKind::WriteZero,
        };
        let error = DeviceError::new(action, self.device.name(), &kind.into());
        let Some(first) = transfer.extents.first() else { return error };
        error.at(first.offset + half(first.len) as u64, (first.len - half(first.len)) as u64)
    }
}

/// The faults of one file.
struct FaultyFile {
    faults: Arc<Faults>,
}

impl FaultyFile {
    fn check(&self, action: DeviceOperation, parts: &[Extent]) -> Result<(), DeviceError> {
        self.faults.plan.check(action, self.faults.device.name(), parts)
    }
}

fn action_of(transfer: &Transfer) -> DeviceOperation {
    match transfer.direction {
        Direction::Read => DeviceOperation::Read,
        Direction::Write => DeviceOperation::Write,
    }
}

// Reads from the system's cache don't ask the device, so no fault strikes them.
impl Layer for FaultyFile {
    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        self.check(DeviceOperation::Length, &[])?;
        inner.set_len(len)
    }

    fn allocate(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        self.faults.poison.check()?;
        let offset = inner.len()?;
        let growth = Extent { offset, start: 0, len: len.saturating_sub(offset) as usize };
        self.check(DeviceOperation::Allocate, &[growth])?;
        inner.allocate(len)
    }

    fn read_at(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        let part = Extent { offset, start: 0, len: into.len() };
        let Some(fault) = self.faults.plan.next(DeviceOperation::Read, &[part]) else {
            return inner.read_at(offset, into);
        };
        match fault {
            InjectedFault::Short => inner.read_at(offset, into).map(|read| read / 2),
            InjectedFault::Error(errno) | InjectedFault::Torn(errno) | InjectedFault::Sectors { errno, .. } => {
                Err(DeviceError::from_errno(DeviceOperation::Read, inner.name(), errno).at(offset, into.len() as u64))
            }
        }
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        transfer.check();
        self.faults.strike(action_of(transfer), transfer)?;
        inner.run(transfer)
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        transfer.check();
        assert_eq!(transfer.direction, Direction::Write, "only a write can be durable");
        let written = self.faults.strike(DeviceOperation::DurableWrite, transfer);
        let written = written.and_then(|()| inner.write_durable(transfer));
        written.map_err(|error| self.faults.poison.set(error))
    }

    fn queue(&self, inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = inner.queue(depth)?;
        Ok(Box::new(FaultyQueue { inner, faults: Arc::clone(&self.faults), failed: Vec::new() }))
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.faults.poison.check()?;
        let flushed = self.check(DeviceOperation::Flush, &[]).and_then(|()| inner.flush());
        flushed.map_err(|error| self.faults.poison.set(error))
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.faults.poison.check()?;
        let flushed = self.check(DeviceOperation::Flush, &[]).and_then(|()| inner.flush_data());
        flushed.map_err(|error| self.faults.poison.set(error))
    }
}

struct FaultyQueue {
    inner: Box<dyn Queue>,
    faults: Arc<Faults>,
    failed: Vec<Completion>,
}

impl FaultyQueue {
    /// `transfer`, unless a fault has ended it.
    fn admit(&mut self, mut transfer: Transfer) -> Option<Transfer> {
        transfer.check();
        match self.faults.strike(action_of(&transfer), &mut transfer) {
            Ok(()) => Some(transfer),
            Err(error) => {
                self.failed.push(Completion { transfer, result: Err(error) });
                None
            }
        }
    }
}

impl Queue for FaultyQueue {
    fn submit(&mut self, transfer: Transfer) {
        if let Some(transfer) = self.admit(transfer) {
            self.inner.submit(transfer);
        }
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        let admitted = transfers.into_iter().filter_map(|transfer| self.admit(transfer)).collect();
        self.inner.submit_all(admitted);
    }

    fn complete(&mut self) -> Option<Completion> {
        self.failed.pop().or_else(|| self.inner.complete())
    }

    fn poll(&mut self) -> Option<Completion> {
        self.failed.pop().or_else(|| self.inner.poll())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len()
    }
}
