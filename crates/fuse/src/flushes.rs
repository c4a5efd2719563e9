//! Making files durable: because a program asks for it, and because no program does.
//!
//! A program that asks is told of every failure, also of one that came about while no program had the file open. What flushes a
//! file without being asked by a program leaves its failure with the file's [`PendingSync`](crate::pending_sync::PendingSync).
//!
//! Relies on the system telling each opening of a file once of bytes that it lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fuser::Errno;
use quire_sys::file::{sync_file_system, write_out};
use quire_writecache::WriteContext;

use crate::dirty_inodes::DirtyFlags;
use crate::engine::MountEngine;
use crate::error::{FuseResult, log_failure};
use crate::file_state::FileEvent;
use crate::inodes::Inode;

/// More files than these at a time are flushed by flushing the whole file system.
const FEW: usize = 8;

impl MountEngine {
    /// Answers a program that asked for something durable by `work`. It has been told then if the file can't be trusted.
    pub fn answer_sync(&self, inode: &Inode, work: impl FnOnce() -> FuseResult<()>) -> FuseResult<()> {
        let result = work();
        let result = if result.is_ok() && inode.pending_sync.has_failed() { Err(Errno::EIO) } else { result };
        result.inspect_err(|_| inode.pending_sync.reported())
    }

    /// Makes everything written to the file durable, in the name of `context.task`; with `data_only`, not what is known
    /// about it besides its name and length.
    ///
    /// # Errors
    /// A device fails.
    pub fn flush(&self, inode: &Inode, data_only: bool, context: &WriteContext) -> FuseResult<()> {
        self.counts.flushes.fetch_add(1, Relaxed);
        self.answer_sync(inode, || {
            if let Some(volume) = inode.volume() {
                // If the directory's file must be flushed anyway, its bytes go along: one flush instead of two.
                let through = inode.pending_sync.is_pending(data_only);
                let flushed =
                    if through { self.cache.flush_through(volume, context) } else { self.cache.flush(volume, context) };
                flushed.map_err(|error| log_failure(&error, "flushing", inode.ino))?;
            }
            self.flush_pending(inode, data_only, context)
        })
    }

    /// Flushes the directory's file if that is due; with `data_only` not for attributes. A failure stays with the file.
    ///
    /// # Errors
    /// The device fails.
    pub fn flush_pending(&self, inode: &Inode, data_only: bool, context: &WriteContext) -> FuseResult<()> {
        let flushed = inode.pending_sync.flush(data_only, || {
            let _way = self.cache.make_way(context);
            self.counts.slow_syncs.fetch_add(1, Relaxed);
            inode.times.tell(&inode.file, true);
            // What is written from now on is not flushed by this.
            self.write_through.transition(&mut inode.state(), FileEvent::Flushed);
            inode.file.sync_all()
        });
        if let Some(Err(error)) = flushed {
            tracing::error!(%error, inode = inode.ino, "flushing a file of the directory failed: it is not trusted any more");
            return Err(Errno::from(error));
        }
        Ok(())
    }

    /// Files with lost bytes of which no program was told: inode numbers, and where they are as far as that is known.
    pub fn unreported_errors(&self) -> Vec<(u64, String)> {
        let inodes = self.inodes.all();
        let known = inodes.iter().filter(|inode| inode.pending_sync.dirty().error && !inode.state().is_unlinked());
        let name = |inode: &Arc<Inode>| (inode.ino, inode.path());
        let closed = self.dirty_inodes.errors().into_iter().map(|ino| (ino, format!("inode {ino}")));
        known.map(name).chain(closed).collect()
    }

    /// Names or attributes of a file were changed.
    pub fn mark_dirty(&self, ino: u64, dirty: DirtyFlags) {
        // Under the map's lock: the thread that takes an inode out of it hands on what is dirty about it.
        let map = self.inodes.map();
        match map.get(&ino) {
            Some(inode) => {
                inode.pending_sync.mark_dirty(dirty);
                inode.times.change();
            }
            None => self.dirty_inodes.note(ino, dirty),
        }
    }

    /// Flushes the small new files that have waited for a flush for `age`, and lets go of those that no program uses.
    pub fn flush_write_through(&self, age: Duration) {
        if self.write_through.count() == 0 {
            return;
        }
        // In use meanwhile: who opens a file that is being flushed must find what that flush has taken upon itself, and its
        // failure.
        let old = self.inodes.acquire_where(|state| state.has_waited(age));
        if old.len() <= FEW {
            for inode in &old {
                // The pending sync keeps a failure until a program was told.
                let _ = self.flush_pending(inode, false, &WriteContext::current());
            }
        } else {
            // First of all: what is written meanwhile is not flushed by this.
            for inode in &old {
                self.write_through.transition(&mut inode.state(), FileEvent::Flushed);
            }
            self.flush_together(&old);
        }
        old.iter().for_each(|inode| self.release(inode));
    }

    /// Flushes the whole file system for these. What the system says of that is about all files at once, and it may have told
    /// others before; so every file is asked for its own failure, which costs the device nothing.
    fn flush_together(&self, inodes: &[Arc<Inode>]) {
        let synced = sync_file_system(&self.backing_root.dir);
        if let Err(error) = &synced {
            tracing::warn!(%error, "flushing new files failed: the next fsync of each tells it");
        }
        for inode in inodes {
            let checked = inode.pending_sync.check(|| match &synced {
                Ok(()) => write_out(&inode.file, 0, i64::MAX.unsigned_abs()),
                Err(_) => inode.file.sync_all(),
            });
            if let Err(error) = checked {
                tracing::error!(%error, inode = inode.ino, "bytes of a new file are lost: its next flush says so");
            }
        }
    }
}
