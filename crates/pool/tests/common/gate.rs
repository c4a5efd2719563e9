//! A device whose writes a test can hold up, and let fail when they go on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use quire_device::{Action, AtOnce, Device, DeviceError, Direction, Queue, Transfer, errno};

/// Where writes wait while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    broken: bool,
    waiting: usize,
}

impl Gate {
    /// Holds up writes from now on.
    pub fn close(&self) {
        self.set(|state| state.closed = true);
    }

    /// Lets writes pass.
    pub fn open(&self) {
        self.set(|state| state.closed = false);
    }

    /// Lets writes pass, all of which fail.
    pub fn break_open(&self) {
        self.set(|state| (state.closed, state.broken) = (false, true));
    }

    /// Returns when some write waits.
    pub fn await_write(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn pass(&self, name: &str) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.closed).unwrap();
        state.waiting -= 1;
        if state.broken { Err(DeviceError::from_errno(Action::Write, name, errno::EIO)) } else { Ok(()) }
    }
}

/// A device behind a gate. Its queues carry transfers out when they are submitted.
#[derive(Clone)]
pub struct Gated {
    pub inner: Arc<dyn Device>,
    pub gate: Arc<Gate>,
}

impl Gated {
    pub fn before(inner: Arc<dyn Device>) -> (Arc<dyn Device>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Arc::new(Self { inner, gate: Arc::clone(&gate) }), gate)
    }
}

impl Device for Gated {
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
        self.inner.read_at(offset, into)
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.direction == Direction::Write {
            self.gate.pass(self.name())?;
        }
        self.inner.run(transfer)
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.inner.write_durable(transfer)
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(AtOnce::new(self.clone())))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn mode(&self) -> &'static str {
        "gated"
    }
}
