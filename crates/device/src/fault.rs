//! A directory that stands before another one and makes chosen operations fail.
//!
//! Relies on the order in which operations are submitted, not on the order in which they end.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use quire_sys::transfer::{Direction, Transfer};

use crate::device::{Device, Finished, Queue};
use crate::directory::Directory;
use crate::error::{Action, DeviceError};

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At operation number `n` (from 0) of this kind, once.
    Nth(Action, u64),
    /// At every operation of this kind from number `n` on.
    From(Action, u64),
    /// At every write that goes beyond this many bytes written in all: the disk is full.
    Beyond(u64),
}

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done and the operation fails with this error number.
    Error(i32),
    /// The first half of every part of a write is done, then it fails with this error number.
    Torn(i32),
}

/// A directory with faults before it.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Directory>,
    plan: Arc<Plan>,
}

struct Plan {
    rules: Vec<(Trigger, Fault)>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Operations so far, by kind.
    counts: Vec<(Action, u64)>,
    written_bytes: u64,
    struck: u64,
}

impl Plan {
    /// Counts an operation and says what is to become of it.
    fn next(&self, action: Action, bytes: u64) -> Option<Fault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let index = seen.counts.iter().position(|(known, _)| *known == action).unwrap_or_else(|| {
            seen.counts.push((action, 0));
            seen.counts.len() - 1
        });
        let number = seen.counts[index].1;
        seen.counts[index].1 += 1;
        let reach = seen.written_bytes + bytes;
        let strikes = |trigger: &Trigger| match *trigger {
            Trigger::Nth(kind, n) => kind == action && n == number,
            Trigger::From(kind, n) => kind == action && number >= n,
            Trigger::Beyond(limit) => action == Action::Write && reach > limit,
        };
        let fault = self.rules.iter().find(|(trigger, _)| strikes(trigger)).map(|(_, fault)| *fault);
        if fault.is_some() {
            seen.struck += 1;
        } else if action == Action::Write {
            seen.written_bytes = reach;
        }
        fault
    }

    /// For operations that can't be torn.
    fn check(&self, action: Action, file: &str) -> Result<(), DeviceError> {
        match self.next(action, 0) {
            Some(Fault::Error(errno) | Fault::Torn(errno)) => Err(DeviceError::from_errno(action, file, errno)),
            None => Ok(()),
        }
    }
}

impl Faulty {
    /// Puts `rules` before `inner`; the first that fits an operation holds.
    pub fn new(inner: Arc<dyn Directory>, rules: Vec<(Trigger, Fault)>) -> Self {
        Self { inner, plan: Arc::new(Plan { rules, seen: Mutex::default() }) }
    }

    /// How often a fault has struck.
    pub fn struck(&self) -> u64 {
        self.plan.seen.lock().unwrap_or_else(PoisonError::into_inner).struck
    }

    fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(FaultyFile { inner, plan: Arc::clone(&self.plan) })
    }
}

impl Directory for Faulty {
    fn path_of(&self, name: &str) -> String {
        self.inner.path_of(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.plan.check(Action::Create, &self.path_of(name))?;
        self.inner.create(name).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.plan.check(Action::Open, &self.path_of(name))?;
        self.inner.open(name).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.plan.check(Action::Rename, &self.path_of(from))?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.plan.check(Action::Remove, &self.path_of(name))?;
        self.inner.remove(name)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.plan.check(Action::SyncDirectory, &self.path_of(""))?;
        self.inner.sync()
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.plan.check(Action::List, &self.path_of(""))?;
        self.inner.list()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
}

struct FaultyFile {
    inner: Arc<dyn Device>,
    plan: Arc<Plan>,
}

impl Device for FaultyFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64, DeviceError> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.plan.check(Action::Length, self.name())?;
        self.inner.set_len(len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        self.plan.check(Action::Read, self.name()).map_err(|error| error.at(offset, into.len() as u64))?;
        self.inner.read_at(offset, into)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = self.inner.queue(depth)?;
        let (device, plan) = (Arc::clone(&self.inner), Arc::clone(&self.plan));
        Ok(Box::new(FaultyQueue { inner, device, plan, failed: Vec::new() }))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.plan.check(Action::Flush, self.name())?;
        self.inner.flush()
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }
}

struct FaultyQueue {
    inner: Box<dyn Queue>,
    device: Arc<dyn Device>,
    plan: Arc<Plan>,
    failed: Vec<Finished>,
}

impl FaultyQueue {
    /// Writes the first half of every part, in whole sectors, and brings the transfer back.
    fn tear(&self, mut transfer: Transfer) -> Transfer {
        let whole = transfer.extents.clone();
        for extent in &mut transfer.extents {
            extent.len = (extent.len / 2).next_multiple_of(crate::DIRECT_ALIGN).min(extent.len);
        }
        if let Ok(mut queue) = self.device.queue(1) {
            queue.submit(transfer);
            transfer = queue.complete().expect("what was submitted comes back").transfer;
        }
        transfer.extents = whole;
        transfer
    }
}

impl Queue for FaultyQueue {
    fn submit(&mut self, transfer: Transfer) {
        let action = match transfer.direction {
            Direction::Read => Action::Read,
            Direction::Write => Action::Write,
        };
        let Some(fault) = self.plan.next(action, transfer.bytes()) else {
            self.inner.submit(transfer);
            return;
        };
        let (transfer, errno) = match fault {
            Fault::Error(errno) => (transfer, errno),
            Fault::Torn(errno) if action == Action::Write => (self.tear(transfer), errno),
            Fault::Torn(errno) => (transfer, errno),
        };
        let offset = transfer.extents.first().map_or(0, |extent| extent.offset);
        let error = DeviceError::from_errno(action, self.device.name(), errno).at(offset, transfer.bytes());
        self.failed.push(Finished { transfer, result: Err(error) });
    }

    fn complete(&mut self) -> Option<Finished> {
        self.failed.pop().or_else(|| self.inner.complete())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len()
    }
}
