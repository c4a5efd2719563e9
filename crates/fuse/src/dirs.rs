//! Open directories: a list of entries taken when reading begins, and served from there by index.
//!
//! So a program that removes files while it lists them misses none and sees none twice. Relies on `rewinddir` beginning at
//! offset 0, where the list is taken anew.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::at::{self, DirectoryEntry};

use crate::error::FuseResult;

/// An open directory.
pub struct OpenDir {
    /// The directory.
    pub file: File,
    /// Its number as a node.
    pub number: u64,
    entries: Mutex<Arc<Vec<DirectoryEntry>>>,
}

impl OpenDir {
    /// The entries, taken anew for offset 0. `hidden` is left out.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn entries(&self, offset: u64, hidden: Option<&str>) -> FuseResult<Arc<Vec<DirectoryEntry>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            let mut list = at::list(&self.file)?;
            list.retain(|entry| hidden.is_none_or(|hidden| entry.name != hidden));
            *entries = Arc::new(list);
        }
        Ok(Arc::clone(&entries))
    }
}

/// All open directories, by handle.
#[derive(Default)]
pub struct OpenDirs {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OpenDir>>>,
}

impl OpenDirs {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenDir>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory was opened; returns its handle.
    pub fn add(&self, file: File, number: u64) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.map().insert(handle, Arc::new(OpenDir { file, number, entries: Mutex::default() }));
        handle
    }

    /// The open directory with this handle.
    pub fn get(&self, handle: u64) -> Option<Arc<OpenDir>> {
        self.map().get(&handle).cloned()
    }

    /// It was closed.
    pub fn remove(&self, handle: u64) {
        let gone = self.map().remove(&handle);
        drop(gone);
    }
}
