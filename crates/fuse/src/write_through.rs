//! Files that are small and new: their bytes go straight to the directory.
//!
//! Whoever flushes a new file has to wait for the directory's file system anyway, which must learn the file's name and length
//! (its [`PendingSync`](crate::pending_sync::PendingSync)). Its bytes can go along; the log, a volume and a place in the table would be paid for in addition
//! and help nobody. So while such a debt is due, a file that is no volume is written in the directory itself, up to
//! [`MOST_BYTES`]; it becomes a volume when it grows beyond or is written after its flush.
//!
//! Relies on the debt being owed again after each such write, so that no flush that began before can have paid for it; and on
//! somebody flushing what no program does.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fuser::Errno;

use crate::dirty_inodes::DirtyFlags;
use crate::error::FuseResult;
use crate::file_state::{Departure, FileEvent, InodeState};
use crate::inodes::Inode;

/// Largest file that is written straight.
const MOST_BYTES: u64 = 64 << 10;
/// Most such files of which something is not flushed; each is held open.
const MOST_FILES: usize = 1024;

/// How many files hold such bytes.
#[derive(Debug)]
pub struct WriteThrough {
    files: AtomicUsize,
    most: usize,
}

impl WriteThrough {
    /// At most `most` files, and never more than are reasonable.
    pub fn new(most: usize) -> Self {
        Self { files: AtomicUsize::new(0), most: most.min(MOST_FILES) }
    }

    /// Takes an event of a file in, and counts the file if its state says that it holds such bytes.
    pub fn transition(&self, state: &mut InodeState, event: FileEvent<'_>) -> Option<Departure> {
        let before = state.is_write_through();
        let departure = state.transition(event);
        match (before, state.is_write_through()) {
            (false, true) => drop(self.files.fetch_add(1, Relaxed)),
            (true, false) => drop(self.files.fetch_sub(1, Relaxed)),
            _ => {}
        }
        departure
    }

    /// Files that do.
    pub fn count(&self) -> usize {
        self.files.load(Relaxed)
    }

    /// Writes to the directory's file, if it is one for that; else `None`, and nothing was done. `admit` says whether a
    /// file of so many bytes may be written there.
    pub fn write(
        &self,
        inode: &Inode,
        offset: u64,
        bytes: &[u8],
        admit: impl FnOnce(u64) -> FuseResult<()>,
    ) -> Option<FuseResult<()>> {
        let fits = offset.saturating_add(bytes.len() as u64) <= MOST_BYTES;
        if !fits || !inode.writable || !inode.pending_sync.is_pending(true) || inode.volume().is_some() {
            return None;
        }
        // It must not become a volume meanwhile.
        let _one = inode.attaching();
        {
            let mut state = inode.state();
            if state.attachment().is_some() || !state.is_write_through() && self.count() >= self.most {
                return None;
            }
            self.transition(&mut state, FileEvent::WrittenThrough);
        }
        let written = (|| {
            admit(inode.file.metadata()?.len())?;
            inode.file.write_all_at(bytes, offset).map_err(Errno::from)
        })();
        // Once more: a flush that began before may have ended it.
        self.transition(&mut inode.state(), FileEvent::WrittenThrough);
        inode.pending_sync.mark_dirty(DirtyFlags::DATASYNC);
        Some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_until_it_is_flushed() {
        let inode = Inode::new(1, tempfile::tempfile().unwrap(), true, DirtyFlags::default());
        let write_through = WriteThrough::new(10);
        let take_in = |event| write_through.transition(&mut inode.state(), event);
        take_in(FileEvent::WrittenThrough);
        take_in(FileEvent::WrittenThrough);
        assert_eq!(write_through.count(), 1);
        take_in(FileEvent::Flushed);
        take_in(FileEvent::Flushed);
        assert_eq!((write_through.count(), inode.state().is_write_through()), (0, false));
    }
}
