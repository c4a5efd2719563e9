//! A gate before a device or directory: what writes and flushes stalls while it is closed, for as long as a test likes, and
//! fails once it is broken. Reads pass, unless those of queues are told to wait, too: a restore in the background reads
//! through a queue.
//!
//! Relies on [`InlineQueue`]: transfers of a queue pass when they are submitted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quire_sys::file::errno;
use quire_sys::transfer::{Direction, Transfer};

use crate::device::{Device, Queue};
use crate::directory::Directory;
use crate::error::{DeviceError, DeviceOperation};
use crate::inline_queue::InlineQueue;
use crate::layer::{DirectoryLayer, Layer, LayeredDevice};

#[derive(Debug, Default)]
struct State {
    closed: bool,
    reads_closed: bool,
    broken: bool,
    /// Operations that wait at it, and operations that ever came to it.
    waiting: usize,
    arrived: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A gate, open at first. Clones are the same gate.
///
/// ```
/// use quire_device::{Directory, IoGate, MemoryDirectory};
///
/// let gate = IoGate::default();
/// let file = gate.before(MemoryDirectory::with_file("data", b"x").open_to_write("data")?);
/// gate.close();
/// let flush = std::thread::spawn(move || file.flush().is_ok());
/// gate.await_waiting();
/// gate.open();
/// assert!(flush.join().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct IoGate {
    shared: Arc<Shared>,
}

impl IoGate {
    /// A device behind this gate.
    pub fn before(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        LayeredDevice::new(inner, self.clone())
    }

    /// A directory whose files lie behind this gate.
    pub fn before_all(&self, inner: Arc<dyn Directory>) -> Arc<dyn Directory> {
        Arc::new(GatedDirectory { inner, gate: self.clone() })
    }

    /// Holds up every operation that comes from now on.
    pub fn close(&self) {
        self.set(|state| state.closed = true);
    }

    /// Holds up reads through queues, and them only, from now on.
    pub fn close_for_reads(&self) {
        self.set(|state| state.reads_closed = true);
    }

    /// Lets everything pass.
    pub fn open(&self) {
        self.set(|state| (state.closed, state.reads_closed) = (false, false));
    }

    /// Lets everything pass and fail (`EIO`).
    pub fn break_open(&self) {
        self.set(|state| (state.closed, state.reads_closed, state.broken) = (false, false, true));
    }

    /// Sleeps until an operation waits at the closed gate.
    pub fn await_waiting(&self) {
        self.await_that(|state| state.waiting > 0);
    }

    /// Sleeps until so many operations in all wait at the gate or have passed it.
    pub fn await_arrivals(&self, count: usize) {
        self.await_that(|state| state.arrived >= count);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.changed.notify_all();
    }

    fn await_that(&self, is_so: impl Fn(&State) -> bool) {
        drop(self.wait_while(self.state(), |state| !is_so(state)));
    }

    fn wait_while<'a>(&self, state: MutexGuard<'a, State>, is_so: impl Fn(&State) -> bool) -> MutexGuard<'a, State> {
        self.shared.changed.wait_while(state, |state| is_so(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, action: DeviceOperation, name: &str) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.arrived += 1;
        state.waiting += usize::from(state.closed);
        let waits = state.closed;
        self.shared.changed.notify_all();
        state = self.wait_while(state, |state| state.closed);
        state.waiting -= usize::from(waits);
        if state.broken { Err(DeviceError::from_errno(action, name, errno::EIO)) } else { Ok(()) }
    }
}

impl IoGate {
    /// A read through a queue. A broken gate breaks writes only.
    fn pass_read(&self) {
        let mut state = self.state();
        let waits = state.reads_closed;
        state.waiting += usize::from(waits);
        self.shared.changed.notify_all();
        state = self.wait_while(state, |state| state.reads_closed);
        state.waiting -= usize::from(waits);
    }
}

struct GatedDirectory {
    inner: Arc<dyn Directory>,
    gate: IoGate,
}

impl DirectoryLayer for GatedDirectory {
    fn inner(&self) -> &dyn Directory {
        &*self.inner
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        self.gate.before(device)
    }
}

impl Layer for IoGate {
    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        match transfer.direction {
            Direction::Write => self.pass(DeviceOperation::Write, inner.name())?,
            Direction::Read => self.pass_read(),
        }
        inner.run(transfer)
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.pass(DeviceOperation::DurableWrite, inner.name())?;
        inner.write_durable(transfer)
    }

    fn queue(&self, inner: &Arc<dyn Device>, _depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(InlineQueue::new(LayeredDevice { inner: Arc::clone(inner), layer: self.clone() })))
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.pass(DeviceOperation::Flush, inner.name())?;
        inner.flush()
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.pass(DeviceOperation::Flush, inner.name())?;
        inner.flush_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDirectory;

    #[test]
    fn a_closed_gate_holds_flushes_up_and_a_broken_one_fails_them() {
        let (gate, memory) = (IoGate::default(), MemoryDirectory::with_file("f", b"abc"));
        let device = gate.before_all(Arc::new(memory)).open_to_write("f").unwrap();
        device.flush().unwrap();
        gate.close();
        std::thread::scope(|threads| {
            let flush = threads.spawn(|| device.flush());
            gate.await_waiting();
            let mut bytes = [0; 3];
            assert_eq!(device.read_at(0, &mut bytes).unwrap(), 3);
            assert!(!flush.is_finished());
            gate.open();
            flush.join().unwrap().unwrap();
        });
        gate.await_arrivals(2);
        gate.break_open();
        assert_eq!(device.flush().unwrap_err().action, DeviceOperation::Flush);
    }
}
