//! Open files, by the handles that the kernel has for them.
//!
//! Relies on nothing. A request that is under way keeps its file in use even if that is closed meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::InodeRef;

/// An open file.
pub struct OpenFile {
    /// Its inode.
    pub inode_ref: InodeRef,
}

/// All of them.
#[derive(Default)]
pub struct OpenFiles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<OpenFile>>>,
}

impl OpenFiles {
    /// A file was opened; returns its handle.
    pub fn add(&self, inode_ref: InodeRef) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(OpenFile { inode_ref }));
        handle
    }

    /// The file with this handle.
    pub fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    /// It was closed. What is returned is to be dropped without a lock: it may take time.
    pub fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}
