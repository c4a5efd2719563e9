//! A directory whose devices write and flush only while a gate is open: a disk that stalls for as long as a test likes.

use std::sync::{Arc, Condvar, Mutex};

use quire_device::{Device, DeviceError, Directory, Queue, Transfer};

/// Lets writes through, or not.
#[derive(Clone, Default)]
pub struct Gate {
    closed: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.0.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.closed.0.lock().unwrap() = false;
        self.closed.1.notify_all();
    }

    fn pass(&self) {
        drop(self.closed.1.wait_while(self.closed.0.lock().unwrap(), |closed| *closed).unwrap());
    }
}

/// Opens its gate at the end, so that a test which fails can end its server.
pub struct Keeper(pub Gate);

impl std::ops::Deref for Keeper {
    type Target = Gate;
    fn deref(&self) -> &Gate {
        &self.0
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Files behind a gate.
pub struct Gated {
    pub inner: Arc<dyn Directory>,
    pub gate: Gate,
}

impl Gated {
    fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(GatedFile { inner, gate: self.gate.clone() })
    }
}

impl Directory for Gated {
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
    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }
    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

struct GatedFile {
    inner: Arc<dyn Device>,
    gate: Gate,
}

impl Device for GatedFile {
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
        self.gate.pass();
        self.inner.run(transfer)
    }
    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.write_durable(transfer)
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        self.inner.queue(depth)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.flush()
    }
    fn mode(&self) -> &'static str {
        "gated"
    }
}
