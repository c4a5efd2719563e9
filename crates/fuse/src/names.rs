//! Names: looking them up, making, removing, linking and renaming what they stand for.
//!
//! All of it passes through to the directory, one component at a time below an open place. What is done for a program is
//! made to belong to that program: the kernel has checked that it may (`default_permissions`).
//!
//! Relies on the kernel to keep operations on one name apart from each other.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Errno, FileAttr, INodeNo};
use quire_device::errno;
use quire_sys::at::{self, AccessMode, FileStat, InodeType, OnExisting};
use quire_sys::xattr;

use crate::acl;
use crate::attr::attr_of;
use crate::backing_root::FOLDER;
use crate::dirty_inodes::DirtyFlags;
use crate::engine::{InodeRef, MountEngine};
use crate::error::FuseResult;
use crate::nodes::{LookedUpInode, NodeTable, ROOT};

/// Most places that are open without need, however many files the process may open.
const MOST_PLACES: usize = 16_384;

/// Who makes something, and what permissions it gets.
#[derive(Clone, Copy, Debug)]
pub struct CreateContext {
    /// The owner.
    pub uid: u32,
    /// The group, unless the directory gives it its own.
    pub gid: u32,
    /// Kind and permissions.
    pub mode: u32,
    /// Permissions that its files don't get, unless their directory says what they get.
    pub mask: u32,
}

/// The names below the mount's root.
pub struct Namespace {
    /// What the kernel knows.
    pub nodes: NodeTable,
    engine: Arc<MountEngine>,
    dev: u64,
    /// Whose files are made if nothing is done about it.
    uid: u32,
    /// Owners can be set.
    is_root: bool,
    /// Held while room is made for more open files.
    making_room: Mutex<()>,
}

impl Namespace {
    /// Names of the engine's directory, for a process that may have so many files open.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn new(engine: Arc<MountEngine>, open_files: u64) -> std::io::Result<Self> {
        let facts = at::facts(&engine.backing_root.dir)?;
        let most_open = usize::try_from(open_files / 4).unwrap_or(usize::MAX).min(MOST_PLACES);
        let nodes = NodeTable::new(engine.backing_root.dir.try_clone()?, most_open)?;
        let uid = quire_sys::task::user_of(std::process::id()).unwrap_or(u32::MAX);
        Ok(Self { nodes, engine, dev: facts.dev, uid, is_root: uid == 0, making_room: Mutex::default() })
    }

    /// Does `work`, which opens files; once more if there were too many open, after closing those that need not be.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_room<T>(&self, work: impl Fn() -> FuseResult<T>) -> FuseResult<T> {
        let is_lacking = |result: &FuseResult<T>| {
            result.as_ref().is_err_and(|error| [errno::EMFILE, errno::ENFILE].contains(&error.code()))
        };
        let result = work();
        if !is_lacking(&result) {
            return result;
        }
        let _one = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have made room meanwhile.
        let result = work();
        if !is_lacking(&result) {
            return result;
        }
        self.nodes.make_room();
        let result = work();
        if !is_lacking(&result) {
            return result;
        }
        self.engine.make_room();
        work()
    }

    /// The node with this number.
    ///
    /// # Errors
    /// The kernel has forgotten it.
    pub fn node(&self, number: u64) -> FuseResult<LookedUpInode> {
        self.with_room(|| Ok(self.nodes.get(number)?))?.ok_or(Errno::ESTALE)
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(&self, node: &LookedUpInode) -> FuseResult<InodeRef> {
        self.with_room(|| Ok(self.engine.open(&node.place, node.ino)?))
    }

    /// The directory `parent`, in which `name` may be used.
    fn parent(&self, parent: u64, name: &OsStr) -> FuseResult<LookedUpInode> {
        let bytes = name.as_encoded_bytes();
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
            return Err(Errno::EINVAL);
        }
        if parent == ROOT && name == FOLDER {
            return Err(Errno::EPERM);
        }
        self.node(parent)
    }

    /// The attributes of a node.
    ///
    /// # Errors
    /// What the system says.
    pub fn attr(&self, number: u64) -> FuseResult<FileAttr> {
        let node = self.node(number)?;
        self.seen(number, &node.place, node.ino, node.kind)
    }

    /// Attributes of a node.
    fn seen(&self, number: u64, place: impl AsFd, ino: u64, kind: InodeType) -> FuseResult<FileAttr> {
        let cached_attributes = if kind == InodeType::File { self.engine.cached_attributes(ino) } else { None };
        // After that: what the cache does not know better is in the directory by now.
        let facts = at::facts(place)?;
        let changed =
            if cached_attributes.is_some() { facts.changed } else { self.engine.ctimes.shown(ino, facts.changed) };
        Ok(attr_of(number, &FileStat { changed, ..facts }, cached_attributes))
    }

    /// What `name` stands for in `parent`; counts as a lookup by the kernel.
    ///
    /// # Errors
    /// There is none, or it lies on another file system.
    pub fn look_up(&self, parent: u64, name: &OsStr) -> FuseResult<FileAttr> {
        if parent == ROOT && name == FOLDER {
            return Err(Errno::ENOENT);
        }
        let dir = self.parent(parent, name)?;
        let place = self.place(&dir, name)?;
        let facts = at::facts(&place)?;
        if facts.dev != self.dev {
            return Err(Errno::EXDEV);
        }
        self.known(place, facts, parent, name)
    }

    fn place(&self, dir: &LookedUpInode, name: &OsStr) -> FuseResult<OwnedFd> {
        self.with_room(|| Ok(at::place(&dir.place, name)?))
    }

    /// Counts as a lookup by the kernel.
    fn known(&self, place: OwnedFd, facts: FileStat, parent: u64, name: &OsStr) -> FuseResult<FileAttr> {
        let number = self.nodes.number_of(facts.ino);
        let attr = self.seen(number, &place, facts.ino, facts.kind)?;
        let number = self.nodes.looked_up(place, &facts, parent, name);
        Ok(FileAttr { ino: INodeNo(number), ..attr })
    }

    /// Makes what was just made belong to its maker, as far as it doesn't. The result is what it is then.
    fn give(
        &self,
        parent: &LookedUpInode,
        name: &OsStr,
        creator: &CreateContext,
        default: Option<&[u8]>,
    ) -> FuseResult<(OwnedFd, FileStat)> {
        let place = self.place(parent, name)?;
        let made = at::facts(&place)?;
        let is_theirs = (made.uid, made.gid) == (creator.uid, creator.gid);
        if self.is_root && !is_theirs {
            let inherits = at::facts(&parent.place)?.permissions & 0o2000 != 0;
            at::set_owner(&place, Some(creator.uid), (!inherits).then_some(creator.gid))?;
        }
        let inherited = if made.kind == InodeType::Directory { made.permissions & 0o2000 } else { 0 };
        let permissions = match default {
            Some(default) => {
                let access = acl::inherited(default, creator.mode)?;
                xattr::set(&place, OsStr::new(acl::ACCESS), &access.list, 0)?;
                access.permissions | (creator.mode & 0o7000)
            }
            None => creator.mode & 0o7777 & !creator.mask,
        };
        let permissions = permissions | inherited;
        let differs =
            made.kind != InodeType::Link && (made.permissions != permissions || !is_theirs || default.is_some());
        if differs {
            at::set_permissions(&place, permissions)?;
        }
        let facts = if differs || !is_theirs { at::facts(&place)? } else { made };
        Ok((place, facts))
    }

    /// As [`Namespace::give`], with the directory's default list of access; takes the name away again if that fails.
    fn finish(
        &self,
        parent: &LookedUpInode,
        name: &OsStr,
        creator: &CreateContext,
        default: Option<&[u8]>,
        is_directory: bool,
    ) -> FuseResult<(OwnedFd, FileStat)> {
        self.give(parent, name, creator, default).inspect_err(|_| {
            // The first error is the one that counts.
            let _ = at::remove(&parent.place, name, is_directory);
        })
    }

    /// Makes a regular file and opens it.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(
        &self,
        parent: u64,
        name: &OsStr,
        creator: &CreateContext,
        exclusive: bool,
    ) -> FuseResult<(FileAttr, InodeRef)> {
        let dir = self.parent(parent, name)?;
        let default = acl::default_of(&dir.place)?;
        // No user but its owner may use it while that is not its creator.
        let is_final = creator.uid == self.uid && default.is_none();
        let permissions = if is_final { creator.mode & !creator.mask } else { 0o600 };
        let file = match self.with_room(|| Ok(at::create(&dir.place, name, permissions)?)) {
            // Made behind the kernel's back: it is to look the name up, and whether this program may open what it finds.
            Err(error) if error.code() == errno::EEXIST && !exclusive => return Err(Errno::ESTALE),
            result => result?,
        };
        let (place, facts) = self.finish(&dir, name, creator, default.as_deref(), false)?;
        let inode_ref = self.engine.adopt(file, facts.ino);
        Ok((self.known(place, facts, parent, name)?, inode_ref))
    }

    /// Makes anything that `mknod` makes.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_node(&self, parent: u64, name: &OsStr, creator: &CreateContext, rdev: u32) -> FuseResult<FileAttr> {
        let dir = self.parent(parent, name)?;
        let default = acl::default_of(&dir.place)?;
        at::make_node(&dir.place, name, (creator.mode & !0o7777) | 0o600, rdev)?;
        let (place, facts) = self.finish(&dir, name, creator, default.as_deref(), false)?;
        self.engine.made(facts.ino);
        self.engine.mark_dirty(facts.ino, DirtyFlags::DATASYNC);
        self.known(place, facts, parent, name)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_directory(&self, parent: u64, name: &OsStr, creator: &CreateContext) -> FuseResult<FileAttr> {
        let dir = self.parent(parent, name)?;
        let default = acl::default_of(&dir.place)?;
        at::make_directory(&dir.place, name)?;
        let (place, facts) = self.finish(&dir, name, creator, default.as_deref(), true)?;
        self.known(place, facts, parent, name)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_link(
        &self,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        creator: &CreateContext,
    ) -> FuseResult<FileAttr> {
        let dir = self.parent(parent, name)?;
        at::make_link(target, &dir.place, name)?;
        let (place, facts) = self.finish(&dir, name, creator, None, false)?;
        self.known(place, facts, parent, name)
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// What the system says.
    pub fn add_name(&self, number: u64, parent: u64, name: &OsStr) -> FuseResult<FileAttr> {
        let (node, dir) = (self.node(number)?, self.parent(parent, name)?);
        at::add_name(&node.place, &dir.place, name)?;
        self.engine.mark_dirty(node.ino, DirtyFlags::DATASYNC);
        self.look_up(parent, name)
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, parent: u64, name: &OsStr, is_directory: bool) -> FuseResult<()> {
        let dir = self.parent(parent, name)?;
        let before = at::facts_at(&dir.place, name)?;
        self.with_room(|| Ok(self.nodes.pin(before.ino, is_directory || before.links <= 1)?))?;
        // It keeps its name, so it need not stay open.
        at::remove(&dir.place, name, is_directory).inspect_err(|_| self.nodes.renamed(before.ino, parent, name))?;
        if before.kind == InodeType::File {
            self.lost_name(&before, &dir);
        }
        Ok(())
    }

    /// A name was taken away in `dir` from a file of which these were the facts.
    fn lost_name(&self, before: &FileStat, dir: &LookedUpInode) {
        let user = self.engine.acquire(before.ino);
        self.engine.lost_name(before.ino, before.links, &dir.place);
        if let Some(user) = user.filter(|user| user.inode.state().is_unlinked()) {
            self.nodes.keep(before.ino, user);
        }
    }

    /// Renames.
    ///
    /// # Errors
    /// What the system says.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), existing: OnExisting) -> FuseResult<()> {
        let (from_dir, to_dir) = (self.parent(from.0, from.1)?, self.parent(to.0, to.1)?);
        let moved = at::facts_at(&from_dir.place, from.1)?;
        let replaced = match at::facts_at(&to_dir.place, to.1) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            facts => Some(facts?),
        };
        self.with_room(|| Ok(self.nodes.pin(moved.ino, false)?))?;
        if let Some(replaced) = &replaced {
            let is_last =
                existing == OnExisting::Replace && (replaced.kind == InodeType::Directory || replaced.links <= 1);
            self.with_room(|| Ok(self.nodes.pin(replaced.ino, is_last)?))?;
        }
        let renamed = at::rename(&from_dir.place, from.1, &to_dir.place, to.1, existing);
        // Where both names stand for one inode, a rename does nothing.
        let stays = renamed.is_err() || replaced.as_ref().is_some_and(|replaced| replaced.ino == moved.ino);
        let (moved_to, replaced_to) = if stays { (from, to) } else { (to, from) };
        self.nodes.renamed(moved.ino, moved_to.0, moved_to.1);
        if let Some(replaced) = replaced.as_ref().filter(|_| stays || existing == OnExisting::Exchange) {
            self.nodes.renamed(replaced.ino, replaced_to.0, replaced_to.1);
        }
        renamed?;
        for facts in
            [Some(&moved), replaced.as_ref()].into_iter().flatten().filter(|facts| facts.kind == InodeType::File)
        {
            self.engine.mark_dirty(facts.ino, DirtyFlags::DATASYNC);
        }
        if existing == OnExisting::Replace
            && let Some(replaced) =
                replaced.filter(|replaced| replaced.kind == InodeType::File && replaced.ino != moved.ino)
        {
            self.lost_name(&replaced, &to_dir);
        }
        Ok(())
    }

    /// Opens a directory for listing.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_directory(&self, number: u64) -> FuseResult<File> {
        let node = self.node(number)?;
        self.with_room(|| Ok(at::open(&node.place, AccessMode::List)?))
    }
}
