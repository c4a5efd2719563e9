//! A gate before a directory at which the freeing of files stalls, for as long as a test likes.
//!
//! As on a real file system a file is freed by the call that ends its last name or its last descriptor, so that call is
//! the one that waits. Links are not followed: a file is taken to have one name.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::device::Device;
use crate::directory::Directory;
use crate::error::DeviceError;
use crate::layer::{Layer, LayeredDevice};

/// A directory whose files are freed only while the gate is open, as it is at first. Clones are the same.
#[derive(Clone)]
pub struct FreeingGate {
    inner: Arc<dyn Directory>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// Calls that wait at the gate, and files that were ever freed.
    waiting: usize,
    freed: usize,
    opened: BTreeMap<String, Weak<OpenFile>>,
}

impl FreeingGate {
    /// Puts a gate before `inner`.
    pub fn new(inner: Arc<dyn Directory>) -> Self {
        Self { inner, shared: Arc::default() }
    }

    /// Holds up every call that frees a file from now on.
    pub fn close(&self) {
        self.shared.set(|state| state.is_closed = true);
    }

    /// Lets files be freed.
    pub fn open_gate(&self) {
        self.shared.set(|state| state.is_closed = false);
    }

    /// Sleeps until a call waits at the closed gate.
    pub fn await_waiting(&self) {
        drop(self.shared.wait_while(|state| state.waiting == 0));
    }

    /// Sleeps until so many files have been freed in all.
    pub fn await_freed(&self, count: usize) {
        drop(self.shared.wait_while(|state| state.freed < count));
    }

    /// Files that have been freed.
    pub fn freed(&self) -> usize {
        self.shared.state().freed
    }

    fn wrap(&self, name: &str, device: Arc<dyn Device>) -> Arc<dyn Device> {
        LayeredDevice::new(device, HeldFile { _file: self.file(name) })
    }

    /// What is known of the file `name`, which exists.
    fn file(&self, name: &str) -> Arc<OpenFile> {
        let mut state = self.shared.state();
        if let Some(file) = state.opened.get(name).and_then(Weak::upgrade) {
            return file;
        }
        let file = Arc::new(OpenFile { has_name: Mutex::new(true), shared: Arc::clone(&self.shared) });
        state.opened.insert(name.to_owned(), Arc::downgrade(&file));
        file
    }

    fn exists(&self, name: &str) -> bool {
        self.inner.open(name).is_ok()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait_while(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.state(), |state| is_so(state)).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is open, or is about to lose its name.
struct OpenFile {
    has_name: Mutex<bool>,
    shared: Arc<Shared>,
}

impl OpenFile {
    /// To be called when the name is gone. If no descriptor is left, dropping `self` frees the file.
    fn lose_name(&self) {
        *self.has_name.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if *self.has_name.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        self.shared.set(|state| state.waiting += 1);
        let mut state = self.shared.wait_while(|state| state.is_closed);
        state.waiting -= 1;
        state.freed += 1;
        self.shared.changed.notify_all();
    }
}

struct HeldFile {
    _file: Arc<OpenFile>,
}

impl Layer for HeldFile {}

impl Directory for FreeingGate {
    fn path_of(&self, name: &str) -> String {
        self.inner.path_of(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create(name).map(|device| self.wrap(name, device))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(name).map(|device| self.wrap(name, device))
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_to_write(name).map(|device| self.wrap(name, device))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        let replaced = self.exists(to).then(|| self.file(to));
        let moved = self.exists(from).then(|| self.file(from));
        self.inner.rename(from, to)?;
        if let Some(moved) = &moved {
            let mut state = self.shared.state();
            state.opened.remove(from);
            state.opened.insert(to.to_owned(), Arc::downgrade(moved));
        }
        if let Some(replaced) = replaced {
            replaced.lose_name();
        }
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        let file = self.exists(name).then(|| self.file(name));
        self.inner.remove(name)?;
        if let Some(file) = file {
            self.shared.state().opened.remove(name);
            file.lose_name();
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
        self.inner.free_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDirectory;

    fn gate() -> FreeingGate {
        let memory = MemoryDirectory::new();
        ["a", "b", "c"].iter().for_each(|name| memory.put(name, b"x"));
        FreeingGate::new(Arc::new(memory))
    }

    #[test]
    fn the_call_that_ends_the_last_name_or_descriptor_frees() {
        let gate = gate();
        gate.remove("a").unwrap();
        assert_eq!(gate.freed(), 1);
        let (one, two) = (gate.open("b").unwrap(), gate.open("b").unwrap());
        gate.rename("c", "b").unwrap();
        drop(one);
        assert_eq!(gate.freed(), 1);
        drop(two);
        assert_eq!(gate.freed(), 2);
        // What has its name yet is not freed.
        drop(gate.open("b").unwrap());
        assert_eq!(gate.freed(), 2);
    }

    #[test]
    fn a_closed_gate_holds_the_call_that_frees() {
        let gate = gate();
        gate.close();
        std::thread::scope(|threads| {
            let removal = threads.spawn(|| gate.remove("a"));
            gate.await_waiting();
            assert!(!removal.is_finished());
            gate.open_gate();
            removal.join().unwrap().unwrap();
        });
        assert_eq!(gate.freed(), 1);
    }
}
