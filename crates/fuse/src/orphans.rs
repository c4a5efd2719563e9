//! Files whose last name is gone and which no program uses, while their bytes are still in the log.
//!
//! The log may give up their bytes only when the directory durably lacks the name. Until then a power cut may bring the name
//! back, and with it everything that was flushed under it: a file that was replaced by `rename` has to be there whole as long
//! as the new one may be lost.
//!
//! Relies on a flush of a directory making the removal of names from it durable.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_sys::at::{self, AccessMode};
use quire_sys::file::sync_file_system;

use crate::inodes::Inode;
use crate::volume_table::VolumeAttachment;

/// A file without a name that no program has open.
#[derive(Debug)]
pub struct Orphan {
    /// Keeps its inode's number from being given to another file.
    pub inode: Arc<Inode>,
    /// What the log may have of it.
    pub attached: VolumeAttachment,
    /// The directory that had its last name.
    pub dir: Arc<OwnedFd>,
}

/// All orphans.
#[derive(Debug, Default)]
pub struct OrphanList {
    open: Mutex<Vec<Orphan>>,
}

impl OrphanList {
    fn open(&self) -> MutexGuard<'_, Vec<Orphan>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an orphan.
    pub fn add(&self, orphan: Orphan) {
        self.open().push(orphan);
    }

    /// Flushes the directories, all below `root`; returns the files that are durably gone. Those whose directory fails stay.
    pub fn reap(&self, root: &File) -> Vec<Orphan> {
        let orphans = std::mem::take(&mut *self.open());
        let mut flushed: Vec<(u64, bool)> = Vec::new();
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        for orphan in orphans {
            let is_durable = flush_once(&mut flushed, &orphan.dir, root);
            if is_durable { gone.push(orphan) } else { stay.push(orphan) }
        }
        self.open().append(&mut stay);
        gone
    }
}

/// Flushes a directory, unless that was done a moment ago.
fn flush_once(flushed: &mut Vec<(u64, bool)>, dir: &OwnedFd, root: &File) -> bool {
    let Ok(facts) = at::facts(dir) else { return false };
    if let Some((_, result)) = flushed.iter().find(|(ino, _)| *ino == facts.ino) {
        return *result;
    }
    let result = match at::open(dir, AccessMode::List) {
        Ok(dir) => dir.sync_all(),
        // It may be gone itself.
        Err(_) => sync_file_system(root),
    };
    if let Err(error) = &result {
        tracing::warn!(%error, "flushing a directory failed: what the log has of files removed there is kept");
    }
    flushed.push((facts.ino, result.is_ok()));
    result.is_ok()
}
