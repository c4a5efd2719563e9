//! What a regular file is to the mount: how it comes into use, becomes a volume of the cache, stops being one, and is given up.
//!
//! A file becomes a volume of the cache when it is first written, and stops being one when nothing of it is pending and
//! no program has it open. Until then its length is the cache's, not the directory's.
//!
//! Relies on the kernel to let only one thread at a time write to a file or change its length.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, SystemTime};

use fuser::Errno;
use quire_device::{CacheMode, Device, IoEngine as Transfers, errno, of_file};
use quire_sys::at::{self, AccessMode};
use quire_writecache::{
    CacheError, CriticalReason, CriticalScope, TaskGraph, TaskId, VolumeId, VolumeLength, VolumeSpec, WriteCache,
    WriteContext,
};

use crate::backing_file::BackingFile;
use crate::backing_root::BackingRoot;
use crate::config::DeviceWrapper;
use crate::criticality::CriticalityRules;
use crate::ctimes::CtimeCache;
use crate::dirty_inodes::{DirtyFlags, DirtyInodes};
use crate::error::{FuseResult, log_failure};
use crate::file_state::{FileEvent, ForgottenInode, InodeState};
use crate::inodes::{Inode, InodeTable};
use crate::orphans::{Orphan, OrphanList};
use crate::privileges::FilePrivileges;
use crate::space::FreeSpace;
use crate::volume_table::{VolumeAttachment, VolumeTable};
use crate::write_through::WriteThrough;

/// The mount itself, for what it writes in no program's name and a program waits for.
pub const SYSTEM: TaskId = TaskId(1 << 62);

/// Requests served, by kind.
#[derive(Debug, Default)]
pub struct RequestStats {
    /// Reads, and their bytes.
    pub reads: AtomicU64,
    /// See `reads`.
    pub read_bytes: AtomicU64,
    /// Writes, and their bytes.
    pub writes: AtomicU64,
    /// See `writes`.
    pub written_bytes: AtomicU64,
    /// Flushes of files.
    pub flushes: AtomicU64,
    /// Of those, so many had to bring names or attributes to the slow device.
    pub slow_syncs: AtomicU64,
    /// Writes that were to be durable at once.
    pub durable_writes: AtomicU64,
    /// Bytes written through to the directory, of small new files.
    pub write_through_bytes: AtomicU64,
}

/// Everything about files' bytes.
pub struct MountEngine {
    /// The cache.
    pub cache: WriteCache,
    /// The directory.
    pub backing_root: BackingRoot,
    /// Files in use.
    pub inodes: InodeTable,
    /// Requests served.
    pub counts: RequestStats,
    /// Small new files.
    pub write_through: WriteThrough,
    /// When files were changed, that are no volumes any more.
    pub ctimes: CtimeCache,
    /// Everything is to be brought to the directory when the mount ends.
    pub drains_at_end: AtomicBool,
    wrap_slow: Option<DeviceWrapper>,
    /// What is dirty about files that are not in use.
    pub dirty_inodes: DirtyInodes,
    orphans: OrphanList,
    volume_table: VolumeTable,
    /// Room on the slow device.
    pub space: FreeSpace,
    rules: CriticalityRules,
    _system: CriticalScope,
}

/// What the cache knows better than the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedAttributes {
    /// Bytes of the file.
    pub len: u64,
    /// When it was last written.
    pub modified: Option<SystemTime>,
    /// When a program last changed anything about it.
    pub changed: Option<SystemTime>,
    /// Bytes of it may not be in the directory yet.
    pub is_pending: bool,
}

/// An inode in use; dropping it ends that, which may take time if the file has no name any more.
pub struct InodeRef {
    engine: Arc<MountEngine>,
    /// The inode.
    pub inode: Arc<Inode>,
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        self.engine.release(&self.inode);
    }
}

impl MountEngine {
    /// The engine over an open cache, in a process that may have so many files open.
    pub fn new(
        cache: WriteCache,
        backing_root: BackingRoot,
        volume_table: VolumeTable,
        rules: CriticalityRules,
        wrap_slow: Option<DeviceWrapper>,
        tasks: &Arc<TaskGraph>,
        open_files: u64,
    ) -> Self {
        let space = FreeSpace::new(backing_root.longest_file_bytes());
        Self {
            cache,
            backing_root,
            inodes: InodeTable::default(),
            counts: RequestStats::default(),
            write_through: WriteThrough::new(
                usize::try_from(open_files / 8).unwrap_or(usize::MAX),
                wrap_slow.is_some(),
            ),
            ctimes: CtimeCache::default(),
            drains_at_end: AtomicBool::new(false),
            wrap_slow,
            dirty_inodes: DirtyInodes::default(),
            orphans: OrphanList::default(),
            volume_table,
            space,
            rules,
            _system: tasks.enter(SYSTEM, CriticalReason::Hint),
        }
    }

    /// The inode of the regular file at `place`, opened if need be.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn open(self: &Arc<Self>, place: impl AsFd, ino: u64) -> io::Result<InodeRef> {
        let mut map = self.inodes.map();
        let inode = match map.get(&ino) {
            Some(inode) => Arc::clone(inode),
            None => {
                let (file, writable) = match at::open(&place, AccessMode::ReadWrite) {
                    Ok(file) => (file, true),
                    // Read-only file systems, immutable files, programs that are being run.
                    Err(_) => (at::open(&place, AccessMode::Read)?, false),
                };
                let inode = Arc::new(Inode::new(ino, file, writable, self.dirty_inodes.take(ino)));
                map.insert(ino, Arc::clone(&inode));
                inode
            }
        };
        inode.state().transition(FileEvent::Opened);
        drop(map);
        Ok(self.opened(inode))
    }

    /// The inode with this number, if it is in the table, used once more.
    pub fn acquire(self: &Arc<Self>, ino: u64) -> Option<InodeRef> {
        let map = self.inodes.map();
        let inode = Arc::clone(map.get(&ino)?);
        inode.state().transition(FileEvent::Opened);
        drop(map);
        Some(InodeRef { engine: Arc::clone(self), inode })
    }

    /// The inode of a file that was just made.
    pub fn adopt(self: &Arc<Self>, file: File, ino: u64) -> InodeRef {
        self.made(ino);
        let mut map = self.inodes.map();
        let new = || Arc::new(Inode::new(ino, file, true, DirtyFlags::default()));
        let inode = Arc::clone(map.entry(ino).or_insert_with(new));
        inode.state().transition(FileEvent::Opened);
        drop(map);
        inode.pending_sync.mark_dirty(DirtyFlags::DATASYNC);
        self.opened(inode)
    }

    /// A file was just made: what was dirty about an earlier file with its inode number is not its affair.
    pub fn made(&self, ino: u64) {
        self.dirty_inodes.forget(ino);
    }

    fn opened(self: &Arc<Self>, inode: Arc<Inode>) -> InodeRef {
        if self.rules.names_logs() {
            inode.set_log(self.is_log(&inode.file));
        }
        InodeRef { engine: Arc::clone(self), inode }
    }

    fn is_log(&self, file: &File) -> bool {
        let path = at::path_of(file);
        let inside = path.as_deref().map(Path::new).and_then(|path| path.strip_prefix(&self.backing_root.path).ok());
        inside.is_some_and(|path| self.rules.is_log(&path.to_string_lossy()))
    }

    /// A user of the inode ends; the last one has the mount forget the file unless something of it is pending.
    pub fn release(&self, inode: &Arc<Inode>) {
        let mut map = self.inodes.map();
        let mut state = inode.state();
        let departure = self.write_through.transition(&mut state, FileEvent::Closed);
        if state.is_used() {
            return;
        }
        if let Some(departure) = &departure {
            map.remove(&inode.ino);
            if departure.unlinked_from.is_none() {
                self.dirty_inodes.note(inode.ino, inode.pending_sync.dirty());
            }
        }
        drop(state);
        drop(map);
        inode.times.tell(&inode.file, true);
        if let Some(ForgottenInode { attachment: Some(attached), unlinked_from: Some(dir) }) = departure {
            self.orphans.add(Orphan { inode: Arc::clone(inode), attached, dir });
        }
    }

    fn forget(&self, attached: VolumeAttachment, ino: u64) {
        match self.cache.forget(attached.volume) {
            Ok(()) => self.volume_table.free(attached.slot),
            Err(error) => drop(log_failure(&error, "giving a file up", ino)),
        }
    }

    /// A name was taken away in `dir` from a file that had `links`: if it was the last, the cache gives its bytes up when no
    /// program uses it and the directory durably lacks the name.
    pub fn lost_name(&self, ino: u64, links: u64, dir: &Arc<OwnedFd>) {
        let mut map = self.inodes.map();
        let Some(inode) = map.get(&ino).map(Arc::clone) else {
            if links <= 1 {
                self.dirty_inodes.forget(ino);
            }
            return;
        };
        // Where it can't be told, bytes that may be wanted are kept.
        if at::facts(&*inode.file).map_or(links > 1, |facts| facts.links > 0) {
            inode.times.change();
            return;
        }
        let mut state = inode.state();
        let attached = state.attachment();
        let unused = self.write_through.transition(&mut state, FileEvent::Unlinked(dir)).is_some();
        if unused {
            map.remove(&ino);
        }
        drop(state);
        drop(map);
        let Some(attached) = attached else { return };
        if unused && self.cache.volume_state(attached.volume).is_some_and(|known| known.is_idle) {
            return self.forget(attached, ino);
        }
        self.volume_table.mark_removed(&self.cache, &attached, &inode.file, ino, SYSTEM);
        if unused {
            self.orphans.add(Orphan { inode, attached, dir: Arc::clone(dir) });
        }
    }

    /// Has the cache give up the bytes of files that are gone. Not before the directory durably lacks their names: else a
    /// power cut might bring a name back without its bytes.
    pub fn reap_orphans(&self) {
        for Orphan { inode, attached, .. } in self.orphans.reap(&self.backing_root.dir) {
            self.forget(attached, inode.ino);
        }
    }

    /// The volume of a file that no program has used for `idle` and of which nothing is pending.
    fn unused(&self, state: &InodeState, idle: Duration) -> Option<VolumeAttachment> {
        let attached = state.attachment().filter(|_| state.is_unused_for(idle))?;
        let known = self.cache.volume_state(attached.volume);
        // The cache does not know the volume of a file that refused what the log has for it: that stays in the log.
        known.is_some_and(|known| known.is_idle && known.dead.is_none()).then_some(attached)
    }

    /// Ends the volume of a file that no program has used for `idle` and of which nothing is pending.
    pub fn detach_idle(&self, inode: &Arc<Inode>, idle: Duration) {
        if self.unused(&inode.state(), idle).is_none() {
            return;
        }
        // Before a program sees the directory's times.
        inode.times.tell(&inode.file, true);
        let behind = at::facts(&*inode.file);
        let mut map = self.inodes.map();
        let mut state = inode.state();
        let Some(attached) = self.unused(&state, idle) else { return };
        self.write_through.transition(&mut state, FileEvent::Idle);
        map.remove(&inode.ino);
        self.dirty_inodes.note(inode.ino, inode.pending_sync.dirty());
        if let (Ok(behind), Some(shown)) = (behind, inode.times.changed()) {
            self.ctimes.keep(inode.ino, shown, behind.changed);
        }
        drop(state);
        drop(map);
        self.forget(attached, inode.ino);
    }

    /// Closes what it can of the files that are open though no program uses them; waits for devices.
    pub fn make_room(&self) {
        self.flush_write_through(Duration::ZERO);
        for inode in self.inodes.all() {
            let volume = inode.volume().filter(|_| !inode.state().is_used());
            // A failure stays with the volume.
            if let Some(volume) = volume
                && self.cache.flush_through(volume, &WriteContext::current()).is_ok()
            {
                self.detach_idle(&inode, Duration::ZERO);
            }
        }
        self.reap_orphans();
    }

    /// A file recovered from the log's names, with its volume's number. If the file refuses what the log has for it, that
    /// stays in the log, and programs that use the file get errors until a mount finds it willing; other files have nothing
    /// to do with it.
    ///
    /// # Errors
    /// The cache can't take it, for a reason that is not this file's.
    pub fn restore(&self, file: File, ino: u64, attached: VolumeAttachment) -> Result<(), CacheError> {
        let inode = Arc::new(Inode::new(ino, file, true, DirtyFlags::ALL));
        if let Err(error) = inode.privileges.adopt(&inode.file) {
            tracing::warn!(%error, inode = ino, "what running this file gives is not known, and may go when its bytes are brought back");
        }
        match self.attach(&inode, attached.volume) {
            Err(CacheError::Slow { cause, .. }) if !matches!(cause.errno, Some(errno::EMFILE | errno::ENFILE)) => {
                let path = inode.path();
                tracing::error!(
                    path,
                    "the file refuses what the log holds for it ({cause}): reading and writing it fails until a mount finds \
                     that mended; its bytes stay in the log, and removing the file gives them up"
                );
            }
            result => result?,
        }
        inode.state().transition(FileEvent::Attached(attached));
        self.inodes.map().insert(ino, inode);
        Ok(())
    }

    /// Files that refused what the log holds for them when the mount began.
    pub fn refused(&self) -> Vec<String> {
        let is_refused = |inode: &&Arc<Inode>| {
            let volume = inode.volume().filter(|_| !inode.state().is_unlinked());
            volume.is_some_and(|volume| self.cache.volume_state(volume).is_none())
        };
        self.inodes.all().iter().filter(is_refused).map(|inode| inode.path()).collect()
    }

    /// Attaches the inode's file to the cache; also anew, after its device was full.
    ///
    /// # Errors
    /// The cache can't take it.
    pub fn attach(&self, inode: &Inode, volume: VolumeId) -> Result<(), CacheError> {
        let name = inode.path();
        // An opening of its own: the system tells each once of bytes that it lost, and neither is to take that from the other.
        let file = at::open(&*inode.file, AccessMode::ReadWrite).or_else(|_| inode.file.try_clone());
        let file = file.map_err(|error| CacheError::Slow {
            volume,
            cause: quire_device::DeviceError::new(quire_device::DeviceOperation::Open, &name, &error),
        })?;
        if let Ok(facts) = at::facts(&file) {
            inode.times.adopt(facts.modified, self.ctimes.shown(inode.ino, facts.changed));
        }
        let inner = of_file(name, file, CacheMode::Buffered, Transfers::Threads);
        let inner = self.wrap_slow.as_ref().map_or(Arc::clone(&inner), |wrap| wrap(inner));
        let device: Arc<dyn Device> = BackingFile::over(inner, inode);
        self.cache.attach(&VolumeSpec { id: volume, device, growth: VolumeLength::Growable })
    }

    /// The inode's volume, which it gets now if it has none.
    ///
    /// # Errors
    /// The file can't be written, or a device fails.
    pub fn volume_of(&self, inode: &Inode) -> FuseResult<VolumeId> {
        if let Some(volume) = inode.volume() {
            return Ok(volume);
        }
        // Not under the inode's state: a thread that opens the file looks at that, and the table may have to wait for a device.
        let _one = inode.attaching();
        if let Some(volume) = inode.volume() {
            return Ok(volume);
        }
        if !inode.writable {
            return Err(Errno::EROFS);
        }
        let failed = |error| log_failure(&error, "preparing a file for writing", inode.ino);
        let (slot, volume) = self.volume_table.add(&self.cache, &inode.file, inode.ino, SYSTEM).map_err(failed)?;
        if let Err(error) = self.attach(inode, volume) {
            self.volume_table.free(slot);
            return Err(failed(error));
        }
        let mut state = inode.state();
        // The next flush of the volume covers what was written through.
        self.write_through.transition(&mut state, FileEvent::Attached(VolumeAttachment { volume, slot }));
        let removed = state.is_unlinked();
        drop(state);
        if removed {
            // Its last name went before there was a volume to tell that of.
            self.volume_table.mark_removed(
                &self.cache,
                &VolumeAttachment { volume, slot },
                &inode.file,
                inode.ino,
                SYSTEM,
            );
        }
        Ok(volume)
    }

    /// What the cache knows better than the directory about the file with this inode number.
    pub fn cached_attributes(&self, ino: u64) -> Option<CachedAttributes> {
        let inode = self.inodes.get(ino)?;
        let state = self.cache.volume_state(inode.volume()?)?;
        let (modified, changed) = (inode.times.modified(), inode.times.changed());
        Some(CachedAttributes { len: state.len, modified, changed, is_pending: !state.is_idle })
    }

    /// What running the file gives, for a request that changes it; of a file that is not in use nothing need be kept.
    pub fn privileges(&self, ino: u64) -> Arc<FilePrivileges> {
        self.inodes.get(ino).map_or_else(Arc::default, |inode| Arc::clone(&inode.privileges))
    }

    /// A program has set the file's time of writing (or has had the file told the present).
    pub fn set_modified(&self, ino: u64, modified: SystemTime) {
        if let Some(inode) = self.inodes.get(ino)
            && inode.volume().is_some()
        {
            inode.times.set(modified);
        }
    }
}
