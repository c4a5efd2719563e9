//! Requests of the kernel: [`protocol`] takes them apart, [`spread`] says where they are done, and [`Server`] does them.
//!
//! A few threads read requests and do them in place; those that find too many others waiting for devices hand theirs to
//! helpers ([`Crew`]). Whatever waits for a device does so in the name of the thread that asked ([`Who`]).
//!
//! Relies on the kernel for permissions, locks and its own cache of pages.

mod files;
mod protocol;
mod spread;

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fuser::{Errno, FileAttr};
use quire_sys::at::{self, Fallocate, InodeType, NewTime, OpenFlags, Whence};
use quire_writecache::{Content, WriteContext};

use crate::bodies::Body;
use crate::crew::{Crew, Urgency};
use crate::dirs::Dirs;
use crate::engine::Engine;
use crate::error::Answer;
use crate::names::{Maker, Names};
use crate::nodes::Node;
use crate::privileges::CAPABILITIES;
use crate::report::{self, About};
use crate::unsynced::Owed;
use crate::who::{Caller, Entered, Verdict, Who, Work};
use crate::xattrs::{self, Asker};

use files::{Files, OpenFile};
pub use spread::Protocol;

/// Threads that read requests from the kernel.
pub const READERS: usize = 16;
/// Of those, so many may wait for devices at a time.
const MOST_WAITING: usize = 12;

/// What of a file's attributes is to change.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
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
pub struct Write {
    /// The file's handle.
    pub handle: u64,
    /// Where.
    pub offset: u64,
    /// It is to be durable when it returns.
    pub durable: bool,
    /// It takes away the right to run the file under its owner's name.
    pub strips: bool,
    /// The thread that writes; 0 if nobody in particular.
    pub thread: u32,
}

/// Everything that serves a mount.
pub struct Server {
    /// Names.
    pub names: Names,
    /// Bytes.
    pub engine: Arc<Engine>,
    /// Who asks.
    pub who: Arc<Who>,
    /// What doesn't change.
    pub about: About,
    crew: Crew,
    dirs: Dirs,
    files: Files,
}

impl Server {
    /// A server for the engine's directory, in a process that may have so many files open.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn new(engine: Arc<Engine>, who: Arc<Who>, about: About, open_files: u64) -> std::io::Result<Self> {
        Ok(Self {
            names: Names::new(Arc::clone(&engine), open_files)?,
            engine,
            who,
            about,
            crew: Crew::new(MOST_WAITING),
            dirs: Dirs::default(),
            files: Files::default(),
        })
    }

    /// Whether a request of `thread` that waits for devices should wait behind others, too.
    fn urgency_of(&self, thread: u32) -> Urgency {
        match self.who.of(thread, false).verdict {
            Verdict::Critical | Verdict::Inherits | Verdict::Log => Urgency::Urgent,
            Verdict::Normal => Urgency::Ordinary,
        }
    }

    fn context(caller: &Caller, body: &Body, is_sync: bool) -> WriteContext {
        let content = if body.is_log() { Content::Log } else { Content::Data };
        WriteContext { task: caller.task, is_sync, content }
    }

    /// The calling thread works at a file for `caller` until the result is dropped; `locks` if the kernel keeps the file
    /// locked meanwhile.
    fn enter(&self, caller: Caller, body: &Body, locks: bool) -> Entered {
        let file = self.names.nodes.number_of(body.ino);
        self.who.enter(caller, Work { file, is_log: body.is_log(), locks })
    }

    fn file(&self, handle: u64) -> Answer<Arc<OpenFile>> {
        self.files.get(handle).ok_or(Errno::EBADF)
    }

    /// The body of a node, through an open file if there is one.
    fn body_of(&self, node: &Node, handle: Option<u64>) -> Answer<Arc<OpenFile>> {
        if let Some(open) = handle.and_then(|handle| self.files.get(handle)) {
            return Ok(open);
        }
        if node.kind != InodeType::File {
            return Err(if node.kind == InodeType::Directory { Errno::EISDIR } else { Errno::EINVAL });
        }
        Ok(Arc::new(OpenFile { used: self.names.open(node)? }))
    }

    fn open(&self, number: u64, thread: u32) -> Answer<u64> {
        self.who.opens(thread);
        let node = self.names.node(number)?;
        if node.kind != InodeType::File {
            return Err(Errno::EINVAL);
        }
        let used = self.names.open(&node)?;
        Ok(self.files.add(used))
    }

    fn create(&self, parent: u64, name: &OsStr, maker: &Maker, flags: OpenFlags) -> Answer<(FileAttr, u64)> {
        let (attr, used) = self.names.create(parent, name, maker, flags.exclusive())?;
        Ok((attr, self.files.add(used)))
    }

    fn read(&self, handle: u64, offset: u64, len: u32, thread: u32) -> Answer<Vec<u8>> {
        let open = self.file(handle)?;
        let _entered = self.enter(self.who.of(thread, false), &open.used.body, false);
        self.engine.read(&open.used.body, offset, len as usize)
    }

    fn write(&self, write: Write, bytes: &[u8]) -> Answer<u32> {
        let open = self.file(write.handle)?;
        let body = &open.used.body;
        let caller = self.who.of(write.thread, write.durable);
        let _entered = self.enter(caller, body, true);
        let context = Self::context(&caller, body, write.durable);
        // To become a volume a file is opened once more.
        self.names.with_room(|| self.engine.write(body, write.offset, bytes, &context))?;
        if write.strips {
            strip(body)?;
        }
        Ok(bytes.len() as u32)
    }

    fn flush(&self, handle: u64, data_only: bool, thread: u32) -> Answer<()> {
        let open = self.file(handle)?;
        let body = &open.used.body;
        let caller = self.who.of(thread, true);
        let _entered = self.enter(caller, body, true);
        self.engine.flush(body, data_only, &Self::context(&caller, body, true))
    }

    fn flush_directory(&self, handle: u64, thread: u32) -> Answer<()> {
        let dir = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        let caller = self.who.of(thread, true);
        let _entered = self.who.enter(caller, Work { file: dir.number, is_log: false, locks: false });
        let _way =
            self.engine.cache.make_way(&WriteContext { task: caller.task, is_sync: true, content: Content::Meta });
        Ok(dir.file.sync_all()?)
    }

    fn reserve(&self, handle: u64, offset: u64, len: u64, mode: i32, thread: u32) -> Answer<()> {
        let wish = Fallocate::of_mode(mode).ok_or(Errno::ENOTSUP)?;
        let open = self.file(handle)?;
        let caller = self.who.of(thread, false);
        let body = &open.used.body;
        let _entered = self.enter(caller, body, true);
        let context = Self::context(&caller, body, false);
        self.names.with_room(|| self.engine.reserve(body, offset, len, wish, &context))
    }

    fn seek(&self, handle: u64, offset: i64, whence: i32) -> Answer<i64> {
        let (Some(whence), Ok(offset)) = (Whence::of_number(whence), u64::try_from(offset)) else {
            return Err(Errno::EINVAL);
        };
        let open = self.file(handle)?;
        self.engine.seek(&open.used.body, offset, whence == Whence::Hole).map(u64::cast_signed)
    }

    fn change(&self, number: u64, handle: Option<u64>, changes: &Changes, thread: u32) -> Answer<FileAttr> {
        let node = self.names.node(number)?;
        if let Some(len) = changes.len {
            let open = self.body_of(&node, handle)?;
            let caller = self.who.of(thread, false);
            let body = &open.used.body;
            let _entered = self.enter(caller, body, true);
            self.engine.set_len(body, len, &Self::context(&caller, body, false))?;
            if changes.mode.is_none() {
                strip(body)?;
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
        self.engine.owe(node.ino, Owed::ATTRIBUTES);
        self.names.attr(number)
    }

    fn attribute(&self, number: u64, name: &OsStr) -> Answer<Vec<u8>> {
        let node = self.names.node(number)?;
        xattrs::get(number, &node, name, &self.who, |name| match name {
            xattrs::STATS => Some(report::stats(&self.engine, &self.who, &self.about).to_string()),
            xattrs::TRACE => Some(report::trace(&self.engine, &self.who).to_string()),
            _ => None,
        })
    }

    fn set_attribute(&self, number: u64, name: &OsStr, value: &[u8], flags: i32, asker: &Asker) -> Answer<()> {
        if let Some(drains) = xattrs::drains(number, name, value)? {
            self.engine.drains_at_end.store(drains, Ordering::Relaxed);
            return Ok(());
        }
        let node = self.names.node(number)?;
        let wish = xattrs::Wish { name, value, flags };
        let set = || xattrs::set(number, &node, &wish, asker, &self.who);
        if name == CAPABILITIES {
            self.engine.privileges(node.ino).set_capabilities(Some(value.to_vec()), || set().map(drop))?;
        } else if !set()? {
            return Ok(());
        }
        self.engine.owe(node.ino, Owed::ATTRIBUTES);
        Ok(())
    }

    fn attributes(&self, number: u64, asker: &Asker) -> Answer<Vec<u8>> {
        xattrs::list(&self.names.node(number)?, asker)
    }

    fn remove_attribute(&self, number: u64, name: &OsStr) -> Answer<()> {
        let node = self.names.node(number)?;
        let remove = || xattrs::remove(number, &node, name);
        if name == CAPABILITIES {
            self.engine.privileges(node.ino).set_capabilities(None, remove)?;
        } else {
            remove()?;
        }
        self.engine.owe(node.ino, Owed::ATTRIBUTES);
        Ok(())
    }
}

/// Takes the rights away to run a file under its owner's or group's name, as a change by somebody else must.
fn strip(body: &Body) -> Answer<()> {
    let file = &*body.file;
    let permissions = at::facts(file)?.permissions;
    let mut kept = permissions & !0o4000;
    if permissions & 0o010 != 0 {
        kept &= !0o2000;
    }
    if kept != permissions {
        body.privileges.set_permissions(kept, || at::set_permissions(file, kept))?;
    }
    Ok(())
}
