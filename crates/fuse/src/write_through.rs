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
use std::time::Instant;

use fuser::Errno;

use crate::dirty_inodes::DirtyFlags;
use crate::error::FuseResult;
use crate::inodes::{Inode, InodeState};

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

    /// One more file does, if it didn't.
    fn begin(&self, state: &mut InodeState) {
        if state.write_through_since.is_none() {
            self.files.fetch_add(1, Relaxed);
            state.write_through_since = Some(Instant::now());
        }
    }

    /// It does no more: they are being flushed, or nobody will ever want them.
    pub fn end(&self, state: &mut InodeState) {
        if state.write_through_since.take().is_some() {
            self.files.fetch_sub(1, Relaxed);
        }
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
            if state.attached.is_some() || state.write_through_since.is_none() && self.count() >= self.most {
                return None;
            }
            self.begin(&mut state);
        }
        let written = (|| {
            admit(inode.file.metadata()?.len())?;
            inode.file.write_all_at(bytes, offset).map_err(Errno::from)
        })();
        // Once more: a flush that began before may have ended it.
        self.begin(&mut inode.state());
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
        write_through.begin(&mut inode.state());
        write_through.begin(&mut inode.state());
        assert_eq!(write_through.count(), 1);
        write_through.end(&mut inode.state());
        write_through.end(&mut inode.state());
        assert_eq!((write_through.count(), inode.state().write_through_since), (0, None));
    }
}
