//! Files that are small and new: their bytes go through to the directory at once.
//!
//! The flush of a new file has to reach the directory's file system in any case, which must learn the file's name and
//! length (its [`PendingSync`](crate::pending_sync::PendingSync)). The bytes go along with that flush. The log, a volume
//! and a slot in the table of volumes would cost time in addition and make nothing faster. So while such a flush is
//! pending, a file that is no volume is written in the directory itself; it becomes a volume when it grows or is written
//! after its flush ([`write_path`]).
//!
//! Relies on each such write to mark the file's length dirty after its bytes are there, so that no flush that began before
//! covers them; and on the background flusher to flush what no program does.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fuser::Errno;

use crate::dirty_inodes::DirtyFlags;
use crate::error::FuseResult;
use crate::file_state::{FileEvent, ForgottenInode, InodeState};
use crate::inodes::Inode;
use crate::write_path::{self, WriteFacts, WritePath};

/// Most files with bytes that were written through and not flushed; each is held open.
const MOST_FILES: usize = 1024;

/// Writes small new files, and counts those whose bytes are not flushed.
#[derive(Debug)]
pub struct WriteThrough {
    files: AtomicUsize,
    most: usize,
    is_wrapped: bool,
}

impl WriteThrough {
    /// At most `most` files, and never more than are reasonable; none if the directory's devices are wrapped, which then
    /// see every write.
    pub fn new(most: usize, is_wrapped: bool) -> Self {
        Self { files: AtomicUsize::new(0), most: most.min(MOST_FILES), is_wrapped }
    }

    /// Takes an event of a file in, and counts the file if its state says that it holds such bytes.
    pub fn transition(&self, state: &mut InodeState, event: FileEvent<'_>) -> Option<ForgottenInode> {
        let before = state.is_write_through();
        let departure = state.transition(event);
        match (before, state.is_write_through()) {
            (false, true) => drop(self.files.fetch_add(1, Relaxed)),
            (true, false) => drop(self.files.fetch_sub(1, Relaxed)),
            _ => {}
        }
        departure
    }

    /// Files with bytes that were written through and not flushed.
    pub fn count(&self) -> usize {
        self.files.load(Relaxed)
    }

    fn path_of(&self, inode: &Inode, needs_directory: bool, end: u64) -> WritePath {
        let state = inode.state();
        write_path::choose(&WriteFacts {
            is_cached: state.attachment().is_some(),
            is_writable: inode.writable,
            needs_directory,
            end,
            has_room: state.is_write_through() || self.count() < self.most,
            is_wrapped: self.is_wrapped,
        })
    }

    /// Writes to the directory's file, if that is the write's path; else `None`, and nothing was done. `admit` says whether a
    /// file of so many bytes may be written there.
    pub fn write(
        &self,
        inode: &Inode,
        offset: u64,
        bytes: &[u8],
        admit: impl FnOnce(u64) -> FuseResult<()>,
    ) -> Option<FuseResult<()>> {
        let end = offset.saturating_add(bytes.len() as u64);
        let needs_directory = inode.pending_sync.is_pending(true);
        if self.path_of(inode, needs_directory, end) == WritePath::Cache {
            return None;
        }
        // From here on no other thread makes a volume of it; one may have done so before.
        let _one = inode.attaching();
        if self.path_of(inode, needs_directory, end) == WritePath::Cache {
            return None;
        }
        self.transition(&mut inode.state(), FileEvent::WrittenThrough);
        let written = (|| {
            admit(inode.file.metadata()?.len())?;
            inode.file.write_all_at(bytes, offset).map_err(Errno::from)
        })();
        // Once more: a flush that began before may have taken note of it as flushed.
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
        let write_through = WriteThrough::new(10, false);
        let take_in = |event| write_through.transition(&mut inode.state(), event);
        take_in(FileEvent::WrittenThrough);
        take_in(FileEvent::WrittenThrough);
        assert_eq!(write_through.count(), 1);
        take_in(FileEvent::Flushed);
        take_in(FileEvent::Flushed);
        assert_eq!((write_through.count(), inode.state().is_write_through()), (0, false));
    }
}
