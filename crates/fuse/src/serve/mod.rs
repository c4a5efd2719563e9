//! Requests of the kernel: [`protocol`] takes them apart, [`dispatch`] says where they are done, and [`FuseServer`] does them.
//!
//! A few threads read requests and do them in place; those that find too many others waiting for devices hand theirs to
//! helpers ([`OffloadPool`]). Whatever waits for a device does so in the name of the thread that asked
//! ([`CriticalityTracker`]).
//!
//! Relies on the kernel for permissions, locks and its own cache of pages.

mod dispatch;
mod files;
mod protocol;

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fuser::{Errno, FileAttr};
use quire_sys::at::{self, Fallocate, InodeType, NewTime, OpenFlags, Whence};
use quire_writecache::{ContentKind, WriteContext};

use crate::backing_root::FOLDER;
use crate::criticality::{CallerScope, CriticalityDecision, CriticalityTracker, FileOperation, RequestTask};
use crate::dirs::OpenDirs;
use crate::dirty_inodes::DirtyFlags;
use crate::engine::MountEngine;
use crate::error::FuseResult;
use crate::inodes::Inode;
use crate::names::{CreateContext, Namespace};
use crate::nodes::{LookedUpInode, ROOT};
use crate::offload_pool::{OffloadPool, Priority};
use crate::privileges::CAPABILITIES;
use crate::report::{self, MountInfo};
use crate::xattrs::{self, Credentials};

pub use dispatch::FuseDispatcher;
use files::{OpenFile, OpenFiles};

/// Threads that read requests from the kernel.
pub const READERS: usize = 16;
/// Of those, so many may wait for devices at a time.
const MOST_WAITING: usize = 12;

/// What of a file's attributes is to change.
#[derive(Clone, Copy, Debug)]
pub struct SetAttr {
    /// Bytes.
    pub len: Option<u64>,
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: NewTime,
    /// Last written.
    pub modified: NewTime,
}

/// A write to an open file.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest {
    /// The file's handle.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// It is to be durable when it returns.
    pub durable: bool,
    /// It takes away the right to run the file under its owner's name.
    pub strips: bool,
    /// The thread that writes; 0 if the kernel names none.
    pub thread: u32,
}

/// Everything that serves a mount.
pub struct FuseServer {
    /// Names.
    pub namespace: Namespace,
    /// Bytes.
    pub engine: Arc<MountEngine>,
    /// Who asks.
    pub criticality: Arc<CriticalityTracker>,
    /// What doesn't change.
    pub info: MountInfo,
    offload_pool: OffloadPool,
    dirs: OpenDirs,
    files: OpenFiles,
}

impl FuseServer {
    /// A server for the engine's directory, in a process that may have so many files open.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn new(
        engine: Arc<MountEngine>,
        criticality: Arc<CriticalityTracker>,
        info: MountInfo,
        open_files: u64,
    ) -> std::io::Result<Self> {
        Ok(Self {
            namespace: Namespace::new(Arc::clone(&engine), open_files)?,
            engine,
            criticality,
            info,
            offload_pool: OffloadPool::new(MOST_WAITING),
            dirs: OpenDirs::default(),
            files: OpenFiles::default(),
        })
    }

    /// Whether a request of `thread` that waits for devices should wait behind others, too.
    fn priority_of(&self, thread: u32) -> Priority {
        match self.criticality.classify(thread, false).verdict {
            CriticalityDecision::Critical | CriticalityDecision::Inherits | CriticalityDecision::Log => {
                Priority::Urgent
            }
            CriticalityDecision::Normal => Priority::Ordinary,
        }
    }

    fn context(caller: &RequestTask, inode: &Inode, is_sync: bool) -> WriteContext {
        let content = if inode.is_log() { ContentKind::Log } else { ContentKind::Data };
        WriteContext { task: caller.task, is_sync, content }
    }

    /// The calling thread works at a file for `caller` until the result is dropped; `locks` if the kernel keeps the file
    /// locked meanwhile.
    fn enter(&self, caller: RequestTask, inode: &Inode, holds_lock: bool) -> CallerScope {
        let file = self.namespace.nodes.number_of(inode.ino);
        self.criticality.enter(caller, FileOperation { file, is_log: inode.is_log(), holds_lock })
    }

    fn file(&self, handle: u64) -> FuseResult<Arc<OpenFile>> {
        self.files.get(handle).ok_or(Errno::EBADF)
    }

    /// The inode of a node, through an open file if there is one.
    fn open_file_of(&self, node: &LookedUpInode, handle: Option<u64>) -> FuseResult<Arc<OpenFile>> {
        if let Some(open) = handle.and_then(|handle| self.files.get(handle)) {
            return Ok(open);
        }
        if node.kind != InodeType::File {
            return Err(if node.kind == InodeType::Directory { Errno::EISDIR } else { Errno::EINVAL });
        }
        Ok(Arc::new(OpenFile { inode_ref: self.namespace.open(node)? }))
    }

    fn open(&self, number: u64, thread: u32) -> FuseResult<u64> {
        self.criticality.opens(thread);
        let node = self.namespace.node(number)?;
        if node.kind != InodeType::File {
            return Err(Errno::EINVAL);
        }
        let inode_ref = self.namespace.open(&node)?;
        Ok(self.files.add(inode_ref))
    }

    fn create(
        &self,
        parent: u64,
        name: &OsStr,
        creator: &CreateContext,
        flags: OpenFlags,
    ) -> FuseResult<(FileAttr, u64)> {
        let (attr, inode_ref) = self.namespace.create(parent, name, creator, flags.exclusive())?;
        Ok((attr, self.files.add(inode_ref)))
    }

    fn read(&self, handle: u64, offset: u64, len: u32, thread: u32) -> FuseResult<Vec<u8>> {
        let open = self.file(handle)?;
        let _entered = self.enter(self.criticality.classify(thread, false), &open.inode_ref.inode, false);
        self.engine.read(&open.inode_ref.inode, offset, len as usize)
    }

    fn write(&self, write: WriteRequest, bytes: &[u8]) -> FuseResult<u32> {
        let open = self.file(write.handle)?;
        let inode = &open.inode_ref.inode;
        let caller = self.criticality.classify(write.thread, write.durable);
        let _entered = self.enter(caller, inode, true);
        let context = Self::context(&caller, inode, write.durable);
        // To become a volume a file is opened once more.
        self.namespace.with_room(|| self.engine.write(inode, write.offset, bytes, &context))?;
        if write.strips {
            strip(inode)?;
        }
        Ok(bytes.len() as u32)
    }

    fn flush(&self, handle: u64, data_only: bool, thread: u32) -> FuseResult<()> {
        let open = self.file(handle)?;
        let inode = &open.inode_ref.inode;
        let caller = self.criticality.classify(thread, true);
        let _entered = self.enter(caller, inode, true);
        self.engine.flush(inode, data_only, &Self::context(&caller, inode, true))
    }

    fn flush_directory(&self, handle: u64, thread: u32) -> FuseResult<()> {
        let dir = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        let caller = self.criticality.classify(thread, true);
        let _entered =
            self.criticality.enter(caller, FileOperation { file: dir.number, is_log: false, holds_lock: false });
        let _way =
            self.engine.cache.make_way(&WriteContext { task: caller.task, is_sync: true, content: ContentKind::Meta });
        Ok(dir.file.sync_all()?)
    }

    fn reserve(&self, handle: u64, offset: u64, len: u64, mode: i32, thread: u32) -> FuseResult<()> {
        let wish = Fallocate::of_mode(mode).ok_or(Errno::ENOTSUP)?;
        let open = self.file(handle)?;
        let caller = self.criticality.classify(thread, false);
        let inode = &open.inode_ref.inode;
        let _entered = self.enter(caller, inode, true);
        let context = Self::context(&caller, inode, false);
        self.namespace.with_room(|| self.engine.reserve(inode, offset, len, wish, &context))
    }

    fn seek(&self, handle: u64, offset: i64, whence: i32) -> FuseResult<i64> {
        let (Some(whence), Ok(offset)) = (Whence::of_number(whence), u64::try_from(offset)) else {
            return Err(Errno::EINVAL);
        };
        let open = self.file(handle)?;
        self.engine.seek(&open.inode_ref.inode, offset, whence == Whence::Hole).map(u64::cast_signed)
    }

    fn change(&self, number: u64, handle: Option<u64>, changes: &SetAttr, thread: u32) -> FuseResult<FileAttr> {
        let node = self.namespace.node(number)?;
        if let Some(len) = changes.len {
            let open = self.open_file_of(&node, handle)?;
            let caller = self.criticality.classify(thread, false);
            let inode = &open.inode_ref.inode;
            let _entered = self.enter(caller, inode, true);
            self.engine.set_len(inode, len, &Self::context(&caller, inode, false))?;
            if changes.mode.is_none() {
                strip(inode)?;
            }
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            // As with every owner's change the file loses its privileges; no late write is to put them back.
            let set = || at::set_owner(&node.place, changes.uid, changes.gid);
            self.engine.privileges(node.ino).set_owner(set)?;
        }
        if let Some(mode) = changes.mode {
            let set = || at::set_permissions(&node.place, mode);
            self.engine.privileges(node.ino).set_permissions(mode, set)?;
        }
        if (changes.accessed, changes.modified) != (NewTime::Keep, NewTime::Keep) {
            at::set_times(&node.place, changes.accessed, changes.modified)?;
            match changes.modified {
                NewTime::Keep => {}
                NewTime::Now => self.engine.set_modified(node.ino, SystemTime::now()),
                NewTime::At(time) => self.engine.set_modified(node.ino, time),
            }
        }
        self.engine.mark_dirty(node.ino, DirtyFlags::SYNC);
        self.namespace.attr(number)
    }

    fn attribute(&self, number: u64, name: &OsStr) -> FuseResult<Vec<u8>> {
        let node = self.namespace.node(number)?;
        xattrs::get(number, &node, name, &self.criticality, |name| match name {
            xattrs::STATS => Some(report::stats(&self.engine, &self.criticality, &self.info).to_string()),
            xattrs::TRACE => Some(report::trace(&self.engine, &self.criticality).to_string()),
            _ => None,
        })
    }

    fn set_attribute(
        &self,
        number: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        credentials: &Credentials,
    ) -> FuseResult<()> {
        if let Some(drains) = xattrs::drains(number, name, value)? {
            self.engine.drains_at_end.store(drains, Ordering::Relaxed);
            return Ok(());
        }
        let node = self.namespace.node(number)?;
        let wish = xattrs::SetXattr { name, value, flags };
        let set = || xattrs::set(number, &node, &wish, credentials, &self.criticality);
        if name == CAPABILITIES {
            self.engine.privileges(node.ino).set_capabilities(Some(value.to_vec()), || set().map(drop))?;
        } else if !set()? {
            return Ok(());
        }
        self.engine.mark_dirty(node.ino, DirtyFlags::SYNC);
        Ok(())
    }

    fn attributes(&self, number: u64, credentials: &Credentials) -> FuseResult<Vec<u8>> {
        xattrs::list(&self.namespace.node(number)?, credentials)
    }

    fn remove_attribute(&self, number: u64, name: &OsStr) -> FuseResult<()> {
        let node = self.namespace.node(number)?;
        let remove = || xattrs::remove(number, &node, name);
        if name == CAPABILITIES {
            self.engine.privileges(node.ino).set_capabilities(None, remove)?;
        } else {
            remove()?;
        }
        self.engine.mark_dirty(node.ino, DirtyFlags::SYNC);
        Ok(())
    }

    /// Gives the entries from `offset` on to `add`, with the directory's number and the offset behind each, until that says
    /// that its room is used up.
    pub fn list(
        &self,
        handle: u64,
        offset: u64,
        add: &mut dyn FnMut(u64, u64, &at::DirectoryEntry) -> FuseResult<bool>,
    ) -> FuseResult<()> {
        let dir = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        let entries = self.namespace.with_room(|| dir.entries(offset, (dir.number == ROOT).then_some(FOLDER)))?;
        for (index, entry) in entries.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if add(dir.number, index as u64 + 1, entry)? {
                break;
            }
        }
        Ok(())
    }
}

/// Takes the rights away to run a file under its owner's or group's name, as a change by another user must.
fn strip(inode: &Inode) -> FuseResult<()> {
    let file = &*inode.file;
    let permissions = at::facts(file)?.permissions;
    let mut kept = permissions & !0o4000;
    if permissions & 0o010 != 0 {
        kept &= !0o2000;
    }
    if kept != permissions {
        inode.privileges.set_permissions(kept, || at::set_permissions(file, kept))?;
    }
    Ok(())
}
