//! The regular files that are open, or of which something is still on its way to the slow device.
//!
//! An [`Inode`] is one file, whatever names it has: its open file in the directory, its life in the mount
//! ([`crate::file_state`]) and what the next flush has to make durable. It stays as long as a program uses it or its volume
//! holds anything, and keeps its file open, so that its inode number means this file.
//!
//! Locks, from the outside in: an inode's `attaching`, the map of inodes, an inode's state.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::at;
use quire_writecache::VolumeId;

use crate::dirty_inodes::DirtyFlags;
use crate::file_state::{FileEvent, InodeState};
use crate::pending_sync::PendingSync;
use crate::privileges::FilePrivileges;
use crate::times::FileTimes;

/// A regular file.
#[derive(Debug)]
pub struct Inode {
    /// Its inode number in the directory.
    pub ino: u64,
    /// The file in the directory.
    pub file: Arc<File>,
    /// It could be opened for writing.
    pub writable: bool,
    /// When it was last written.
    pub times: Arc<FileTimes>,
    /// What running it gives.
    pub privileges: Arc<FilePrivileges>,
    /// What the next flush has to make durable besides its bytes.
    pub pending_sync: Arc<PendingSync>,
    is_log: AtomicBool,
    /// Held while it becomes a volume, and while it is written because it is none.
    attaching: Mutex<()>,
    state: Mutex<InodeState>,
}

impl Inode {
    /// The file with this inode number.
    pub fn new(ino: u64, file: File, writable: bool, dirty: DirtyFlags) -> Self {
        Self {
            ino,
            file: Arc::new(file),
            writable,
            times: Arc::default(),
            privileges: Arc::default(),
            pending_sync: Arc::new(PendingSync::new(dirty)),
            is_log: AtomicBool::new(false),
            attaching: Mutex::new(()),
            state: Mutex::default(),
        }
    }

    /// Its life in the mount.
    pub fn state(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the one thread that makes a volume of it, or must be sure that it is none.
    pub fn attaching(&self) -> MutexGuard<'_, ()> {
        self.attaching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its volume, if it has one.
    pub fn volume(&self) -> Option<VolumeId> {
        self.state().attachment().map(|attachment| attachment.volume)
    }

    /// Where its file is, for people.
    pub fn path(&self) -> String {
        let path = at::path_of(&*self.file);
        path.map_or_else(|| format!("inode {}", self.ino), |path| path.to_string_lossy().into_owned())
    }

    /// Whether it is a log, as the rules say.
    pub fn is_log(&self) -> bool {
        self.is_log.load(Ordering::Relaxed)
    }

    /// Says whether it is a log.
    pub fn set_log(&self, is_log: bool) {
        self.is_log.store(is_log, Ordering::Relaxed);
    }
}

/// All inodes, by inode number.
#[derive(Debug, Default)]
pub struct InodeTable {
    map: Mutex<HashMap<u64, Arc<Inode>>>,
}

impl InodeTable {
    /// The map.
    pub fn map(&self) -> MutexGuard<'_, HashMap<u64, Arc<Inode>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode with this number, if it is in the table, without using it.
    pub fn get(&self, ino: u64) -> Option<Arc<Inode>> {
        self.map().get(&ino).cloned()
    }

    /// Those of which `wanted` says so, each used once more.
    pub fn acquire_where(&self, wanted: impl Fn(&InodeState) -> bool) -> Vec<Arc<Inode>> {
        let map = self.map();
        let take = |inode: &&Arc<Inode>| {
            let mut state = inode.state();
            let is_wanted = wanted(&state);
            if is_wanted {
                state.transition(FileEvent::Opened);
            }
            is_wanted
        };
        map.values().filter(take).cloned().collect()
    }

    /// All of them, without using them.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.map().values().cloned().collect()
    }
}
