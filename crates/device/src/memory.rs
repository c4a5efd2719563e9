//! Files in memory that remember what is durable, so that a power cut can be tried at any step.
//!
//! Relies on the rules that a careful program may count on, and on nothing more:
//! - a write is durable after a later flush of its file; before that any part of it (in sectors of 512 bytes) may be;
//! - a durable write is durable when it returns, and later than all writes before it; those it doesn't make durable;
//! - a name is durable after a later sync of the directory; before that any of the changes may be;
//! - a rename happens whole or not at all.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::file::DirectAlignment;
use quire_sys::transfer::{Direction, Transfer};

use crate::device::{Device, Queue, TakenBytes};
use crate::directory::{Directory, check_name};
use crate::errno;
use crate::error::{DeviceError, DeviceOperation};
use crate::inline_queue::InlineQueue;
use crate::memory::content::{FileChange, SparseContent};
use quire_rng::SplitMix64;

mod content;

/// A directory in memory. Clones share it.
///
/// ```
/// use quire_device::{Directory, MemoryDirectory, PowerCut};
///
/// let directory = MemoryDirectory::with_file("old", b"durable");
/// directory.rename("old", "new")?; // not synced
/// let found = directory.after_power_cut(PowerCut::LoseAll);
/// assert_eq!((found.bytes("old"), found.bytes("new")), (Some(b"durable".to_vec()), None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryDirectory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Stored>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync.
    renamed: Vec<NameChange>,
    /// Changes made or tried so far.
    steps: u64,
    /// The step at which the power goes.
    off_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Stored {
    now: SparseContent,
    durable: SparseContent,
    /// Changes since the last flush, in order.
    changes: VecDeque<Pending>,
}

/// A change that `durable` doesn't have.
#[derive(Debug)]
struct Pending {
    change: FileChange,
    /// It survives whatever happens; it is kept here because of changes before it that may not.
    sure: bool,
}

impl Stored {
    fn holding(content: SparseContent) -> Self {
        Self { now: content.clone(), durable: content, changes: VecDeque::new() }
    }

    fn pend(&mut self, change: FileChange) {
        self.changes.push_back(Pending { change, sure: false });
    }

    /// Makes the newest `count` changes survive.
    fn make_sure(&mut self, count: usize) {
        for pending in self.changes.iter_mut().rev().take(count) {
            pending.sure = true;
        }
        while self.changes.front().is_some_and(|pending| pending.sure)
            && let Some(pending) = self.changes.pop_front()
        {
            self.durable.apply(&pending.change);
        }
    }
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, usize),
    Unlink(String),
    Move(String, String, usize),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Move(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}

/// What of the unsynced changes survives when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// Nothing.
    LoseAll,
    /// Everything.
    KeepAll,
    /// Some of them, whole or torn; which ones, the number decides.
    KeepSome(u64),
}

impl State {
    /// Counts a change. An error if the power is off; then `true` says that this very step was the one in progress when
    /// it went, so its effect may still be found afterwards.
    fn step(&mut self) -> Result<(), bool> {
        let step = self.steps;
        self.steps += 1;
        match self.off_at {
            Some(off) if step >= off => Err(step == off),
            _ => Ok(()),
        }
    }

    fn rename(&mut self, change: NameChange) -> Result<(), i32> {
        match self.step() {
            Ok(()) => {
                change.apply(&mut self.names);
                self.renamed.push(change);
                Ok(())
            }
            Err(in_progress) => {
                if in_progress {
                    self.renamed.push(change);
                }
                Err(errno::EIO)
            }
        }
    }

    fn change(&mut self, file: usize, change: FileChange) -> Result<(), i32> {
        match self.step() {
            Ok(()) => {
                self.files[file].now.apply(&change);
                self.files[file].pend(change);
                Ok(())
            }
            Err(in_progress) => {
                if in_progress {
                    self.files[file].pend(change);
                }
                Err(errno::EIO)
            }
        }
    }
}

impl MemoryDirectory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory with one durable file.
    pub fn with_file(name: &str, bytes: &[u8]) -> Self {
        let memory = Self::new();
        memory.put(name, bytes);
        memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a durable file of these bytes in place of whatever has the name.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(Stored::holding(SparseContent::from_bytes(bytes)));
        state.names.insert(name.to_owned(), file);
        state.durable_names.insert(name.to_owned(), file);
    }

    /// All bytes of a file, if there is one.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let file = *state.names.get(name)?;
        Some(state.files[file].now.to_bytes())
    }

    /// Changes made or tried so far: writes, flushes, lengths, names.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Lets the power go at step number `step` (counted from the start): it and everything after it fails.
    pub fn power_off_at(&self, step: u64) {
        self.state().off_at = Some(step);
    }

    /// What is found when the power is back.
    pub fn after_power_cut(&self, cut: PowerCut) -> MemoryDirectory {
        let state = self.state();
        let mut fate = Fate::new(cut);
        let mut names = state.durable_names.clone();
        for change in &state.renamed {
            if fate.keeps() {
                change.apply(&mut names);
            }
        }
        let files = state.files.iter().map(|file| {
            let mut found = file.durable.clone();
            for Pending { change, sure } in &file.changes {
                if *sure || fate.keeps() {
                    found.apply(change);
                } else if fate.tears() {
                    found.apply_torn(change, |_| fate.keeps());
                }
            }
            Stored::holding(found)
        });
        let files = files.collect();
        let found = State { files, durable_names: names.clone(), names, ..State::default() };
        MemoryDirectory { state: Arc::new(Mutex::new(found)) }
    }
}

/// Decides what survives.
struct Fate {
    cut: PowerCut,
    rng: SplitMix64,
}

impl Fate {
    fn new(cut: PowerCut) -> Self {
        let seed = if let PowerCut::KeepSome(seed) = cut { seed } else { 0 };
        Self { cut, rng: SplitMix64::new(seed) }
    }

    fn keeps(&mut self) -> bool {
        match self.cut {
            PowerCut::LoseAll => false,
            PowerCut::KeepAll => true,
            PowerCut::KeepSome(_) => self.rng.coin(),
        }
    }

    fn tears(&mut self) -> bool {
        matches!(self.cut, PowerCut::KeepSome(_)) && self.rng.coin()
    }
}

impl Directory for MemoryDirectory {
    fn path_of(&self, name: &str) -> String {
        format!("memory:{name}")
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Create, name)?;
        let failed = |errno| DeviceError::from_errno(DeviceOperation::Create, self.path_of(name), errno);
        let mut state = self.state();
        if state.names.contains_key(name) {
            return Err(failed(errno::EEXIST));
        }
        let file = state.files.len();
        state.files.push(Stored::default());
        state.rename(NameChange::Link(name.to_owned(), file)).map_err(failed)?;
        Ok(Arc::new(MemoryFile { memory: self.clone(), file, name: self.path_of(name) }))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        check_name(DeviceOperation::Open, name)?;
        match self.state().names.get(name) {
            Some(&file) => Ok(Arc::new(MemoryFile { memory: self.clone(), file, name: self.path_of(name) })),
            None => Err(DeviceError::from_errno(DeviceOperation::Open, self.path_of(name), errno::ENOENT)),
        }
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Rename, from)?;
        check_name(DeviceOperation::Rename, to)?;
        let failed = |errno| DeviceError::from_errno(DeviceOperation::Rename, self.path_of(from), errno);
        let mut state = self.state();
        let file = *state.names.get(from).ok_or_else(|| failed(errno::ENOENT))?;
        state.rename(NameChange::Move(from.to_owned(), to.to_owned(), file)).map_err(failed)
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Link, from)?;
        check_name(DeviceOperation::Link, to)?;
        let failed = |errno| DeviceError::from_errno(DeviceOperation::Link, self.path_of(from), errno);
        let mut state = self.state();
        let file = *state.names.get(from).ok_or_else(|| failed(errno::ENOENT))?;
        if state.names.contains_key(to) {
            return Err(failed(errno::EEXIST));
        }
        state.rename(NameChange::Link(to.to_owned(), file)).map_err(failed)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        check_name(DeviceOperation::Remove, name)?;
        let failed = |errno| DeviceError::from_errno(DeviceOperation::Remove, self.path_of(name), errno);
        let mut state = self.state();
        if !state.names.contains_key(name) {
            return Err(failed(errno::ENOENT));
        }
        state.rename(NameChange::Unlink(name.to_owned())).map_err(failed)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        if state.step().is_err() {
            return Err(DeviceError::from_errno(DeviceOperation::SyncDirectory, self.path_of(""), errno::EIO));
        }
        state.durable_names = state.names.clone();
        state.renamed.clear();
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[derive(Clone)]
struct MemoryFile {
    memory: MemoryDirectory,
    file: usize,
    name: String,
}

impl MemoryFile {
    fn carry_out(&self, state: &mut State, transfer: &mut Transfer) -> Result<(), DeviceError> {
        transfer.check();
        for index in 0..transfer.extents.len() {
            let extent = transfer.extents[index];
            let bytes = extent.start..extent.start + extent.len;
            match transfer.direction {
                Direction::Read => {
                    let got = state.files[self.file].now.read(extent.offset, &mut transfer.buffer[bytes]);
                    if got < extent.len {
                        let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                        let error = DeviceError::new(DeviceOperation::Read, &self.name, &end);
                        return Err(error.at(extent.offset + got as u64, (extent.len - got) as u64));
                    }
                }
                Direction::Write => {
                    let change = FileChange::Write { offset: extent.offset, bytes: transfer.buffer[bytes].to_vec() };
                    state.change(self.file, change).map_err(|errno| {
                        DeviceError::from_errno(DeviceOperation::Write, &self.name, errno)
                            .at(extent.offset, extent.len as u64)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn change_len(&self, action: DeviceOperation, len: u64) -> Result<(), DeviceError> {
        let changed = self.memory.state().change(self.file, FileChange::Len(len));
        changed.map_err(|errno| DeviceError::from_errno(action, &self.name, errno))
    }
}

impl Device for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64, DeviceError> {
        Ok(self.memory.state().files[self.file].now.len())
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.change_len(DeviceOperation::Length, len)
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        // Holes read as zero and nothing is ever full, so there is nothing to write.
        self.change_len(DeviceOperation::Allocate, len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        Ok(self.memory.state().files[self.file].now.read(offset, into))
    }

    fn read_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        // The system's cache has none of this.
        Ok(None)
    }

    fn take_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        Ok(None)
    }

    fn cached_bytes(&self, _offset: u64, _len: u64) -> Option<u64> {
        None
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.carry_out(&mut self.memory.state(), transfer)
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        assert_eq!(transfer.direction, Direction::Write, "only a write can be durable");
        let mut state = self.memory.state();
        // Steps of their own: the power may go before, between and after the writes.
        let written = self.carry_out(&mut state, transfer).and_then(|()| {
            state.step().map_err(|_| DeviceError::from_errno(DeviceOperation::DurableWrite, &self.name, errno::EIO))
        });
        written.map_err(|error| DeviceError { action: DeviceOperation::DurableWrite, ..error })?;
        state.files[self.file].make_sure(transfer.extents.len());
        Ok(())
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(InlineQueue::new(self.clone())))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.memory.state();
        if state.step().is_err() {
            return Err(DeviceError::from_errno(DeviceOperation::Flush, &self.name, errno::EIO));
        }
        let file = &mut state.files[self.file];
        file.durable = file.now.clone();
        file.changes.clear();
        Ok(())
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        self.flush()
    }

    fn alignment(&self) -> DirectAlignment {
        DirectAlignment::DIRECT
    }

    fn mode(&self) -> &'static str {
        "memory"
    }

    fn as_file(&self) -> Option<&File> {
        None
    }
}
