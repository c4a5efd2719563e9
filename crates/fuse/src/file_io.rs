//! Reading and writing the bytes of regular files: through the cache, through the directory's file, or both in turn.
//!
//! Relies on the kernel to let only one thread at a time write to a file or change its length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use fuser::Errno;
use quire_sys::at::{self, Fallocate};
use quire_writecache::{BLOCK_BYTES, WriteContext};

use crate::dirty_inodes::DirtyFlags;
use crate::engine::MountEngine;
use crate::error::{FuseResult, log_failure};
use crate::inodes::Inode;

/// Most bytes that are zeroed at once; more would keep the cache busy for long.
const MOST_ZEROS: u64 = 64 << 20;

impl MountEngine {
    /// Reads at most `len` bytes.
    ///
    /// # Errors
    /// A device fails.
    pub fn read(&self, inode: &Inode, offset: u64, len: usize) -> FuseResult<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = match inode.volume() {
            Some(volume) => self
                .cache
                .read(volume, offset, &mut bytes)
                .map_err(|error| log_failure(&error, "reading", inode.ino))?,
            None => read_file(&inode.file, offset, &mut bytes)?,
        };
        bytes.truncate(got);
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(got as u64, Relaxed);
        Ok(bytes)
    }

    /// Writes; if `context` says that a program waits for it, returns when it is durable.
    ///
    /// # Errors
    /// The slow device is full, or a device fails.
    pub fn write(&self, inode: &Inode, offset: u64, bytes: &[u8], context: &WriteContext) -> FuseResult<()> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.counts.durable_writes.fetch_add(u64::from(context.is_sync), Relaxed);
        let admit = |len| self.admit_growth(len, offset, bytes.len());
        match self.write_through.write(inode, offset, bytes, admit) {
            Some(written) => {
                self.counts.write_through_bytes.fetch_add(bytes.len() as u64, Relaxed);
                written?;
            }
            None => self.write_to_cache(inode, offset, bytes, context)?,
        }
        if context.is_sync { self.answer_sync(inode, || self.flush_pending(inode, true, context)) } else { Ok(()) }
    }

    fn write_to_cache(&self, inode: &Inode, offset: u64, bytes: &[u8], context: &WriteContext) -> FuseResult<()> {
        let volume = self.volume_of(inode)?;
        inode.privileges.lose(&inode.file)?;
        let failed = |error| log_failure(&error, "writing", inode.ino);
        self.admit_growth(self.cache.len(volume).map_err(failed)?, offset, bytes.len())?;
        inode.times.touch();
        let ticket = self.cache.write(volume, offset, bytes, context).map_err(failed)?;
        if context.is_sync {
            self.cache.wait(&ticket, context).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether a file of `len` bytes may be written at `offset`, as far as the slow device's room goes.
    fn admit_growth(&self, len: u64, offset: u64, count: usize) -> FuseResult<()> {
        let end = self.space.end_of(offset, count as u64)?;
        let growth = end.saturating_sub(len).min(count as u64);
        let admit = || self.space.admit(&self.backing_root.dir, growth, || self.pending_bytes());
        if growth > 0 && !admit() {
            // Files that are gone may still have theirs.
            self.reap_orphans();
            if !admit() {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }

    fn pending_bytes(&self) -> u64 {
        let stats = self.cache.stats();
        stats.pending_bytes + stats.cached_blocks * BLOCK_BYTES as u64
    }

    /// Makes the file `len` bytes long.
    ///
    /// # Errors
    /// A device fails.
    pub fn set_len(&self, inode: &Inode, len: u64, context: &WriteContext) -> FuseResult<()> {
        if !inode.writable {
            return Err(Errno::EROFS);
        }
        self.space.end_of(len, 0)?;
        match inode.volume() {
            Some(volume) => {
                inode.privileges.lose(&inode.file)?;
                inode.times.touch();
                // A file that the log does not know is cut in the directory, and one that grows is made longer there first: other
                // requests leave the slow device to a critical task. One that only the log needs holds them back for a moment, never
                // for long (`holds_back`), so which it is need not be known before.
                let _way = self.cache.make_way(context);
                self.cache.set_len(volume, len, context).map_err(|error| log_failure(&error, "cutting", inode.ino))?;
                // What the log holds needs no flush of the directory's file.
                if self.cache.volume_state(volume).is_none_or(|known| known.is_len_pending) {
                    inode.pending_sync.mark_dirty(DirtyFlags::DATASYNC);
                }
            }
            None => {
                inode.file.set_len(len)?;
                inode.pending_sync.mark_dirty(DirtyFlags::DATASYNC);
            }
        }
        inode.times.change();
        Ok(())
    }

    /// Takes space for bytes, or makes them zero.
    ///
    /// # Errors
    /// `ENOTSUP` for more zeros than are reasonable to write; the slow device is full, or a device fails.
    pub fn reserve(
        &self,
        inode: &Inode,
        offset: u64,
        len: u64,
        wish: Fallocate,
        context: &WriteContext,
    ) -> FuseResult<()> {
        let old_len = self.len_of(inode)?;
        let end = self.space.end_of(offset, len)?;
        if wish.zeros {
            // Written, not punched: whatever is pending for these bytes keeps its place in the order.
            let until = if wish.keep_len { end.min(old_len) } else { end };
            if until.saturating_sub(offset) > MOST_ZEROS {
                return Err(Errno::ENOTSUP);
            }
            let zeros = vec![0; 1 << 20];
            let mut at = offset;
            while at < until {
                let part = (until - at).min(zeros.len() as u64);
                self.write(inode, at, &zeros[..part as usize], context)?;
                at += part;
            }
            return Ok(());
        }
        // What the directory's file loses to a cut that is still to come would be missing of what is reserved now.
        if let Some(volume) = inode.volume() {
            self.cache
                .await_truncations(volume, context)
                .map_err(|error| log_failure(&error, "reserving", inode.ino))?;
        }
        at::reserve_within(&inode.file, offset, len)?;
        if !wish.keep_len && end > old_len {
            self.set_len(inode, end, context)?;
        }
        inode.pending_sync.mark_dirty(DirtyFlags::DATASYNC);
        inode.times.change();
        Ok(())
    }

    /// Where the next data or hole begins. While anything is pending all of the file counts as data.
    ///
    /// # Errors
    /// `ENXIO` beyond the end.
    pub fn seek(&self, inode: &Inode, offset: u64, hole: bool) -> FuseResult<u64> {
        let idle =
            inode.volume().is_none_or(|volume| self.cache.volume_state(volume).is_none_or(|state| state.is_idle));
        if idle {
            // No request relies on the file's own position.
            return Ok(at::seek(&inode.file, offset, hole)?);
        }
        let len = self.len_of(inode)?;
        if offset >= len {
            return Err(Errno::ENXIO);
        }
        Ok(if hole { len } else { offset })
    }

    fn len_of(&self, inode: &Inode) -> FuseResult<u64> {
        match inode.volume() {
            Some(volume) => self.cache.len(volume).map_err(|error| log_failure(&error, "sizing", inode.ino)),
            None => Ok(inode.file.metadata()?.len()),
        }
    }
}

fn read_file(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
