//! Names: looking them up, making, removing, linking and renaming what they stand for.
//!
//! All of it passes through to the directory, one component at a time below an open place. What is done for a program is
//! made to belong to it: the kernel has checked that it may (`default_permissions`).
//!
//! Relies on the kernel to keep operations on one name apart from each other.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{Errno, FileAttr};
use quire_sys::at::{self, Access, Facts, Kind, OnExisting};

use crate::attr::attr_of;
use crate::engine::{Engine, Use};
use crate::error::Answer;
use crate::home::FOLDER;
use crate::nodes::{Node, Nodes, ROOT};
use crate::unsynced::Owed;

/// Who makes something, and what permissions it gets.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// The owner.
    pub uid: u32,
    /// The group, unless the directory gives it its own.
    pub gid: u32,
    /// Kind and permissions.
    pub mode: u32,
}

/// The names below the mount's root.
pub struct Names {
    /// What the kernel knows.
    pub nodes: Nodes,
    engine: Arc<Engine>,
    dev: u64,
    /// Whose files are made if nothing is done about it.
    uid: u32,
    /// Owners can be set.
    is_root: bool,
}

impl Names {
    /// Names of the engine's directory.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn new(engine: Arc<Engine>) -> std::io::Result<Self> {
        let facts = at::facts(&engine.home.root)?;
        let nodes = Nodes::new(engine.home.root.try_clone()?.into(), facts.ino);
        let uid = quire_sys::task::user_of(std::process::id()).unwrap_or(u32::MAX);
        Ok(Self { nodes, engine, dev: facts.dev, uid, is_root: uid == 0 })
    }

    /// The node with this number.
    ///
    /// # Errors
    /// The kernel has forgotten it.
    pub fn node(&self, number: u64) -> Answer<Node> {
        self.nodes.get(number).ok_or(Errno::ESTALE)
    }

    /// The directory `parent`, in which `name` may be used.
    fn parent(&self, parent: u64, name: &OsStr) -> Answer<Node> {
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
    pub fn attr(&self, number: u64) -> Answer<FileAttr> {
        let node = self.node(number)?;
        let facts = at::facts(&node.place)?;
        Ok(attr_of(number, &facts, self.engine.view(node.ino)))
    }

    /// What `name` stands for in `parent`; counts as a lookup by the kernel.
    ///
    /// # Errors
    /// There is none, or it lies on another file system.
    pub fn look_up(&self, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        if parent == ROOT && name == FOLDER {
            return Err(Errno::ENOENT);
        }
        let parent = self.parent(parent, name)?;
        let place = at::place(&parent.place, name)?;
        let facts = at::facts(&place)?;
        if facts.dev != self.dev {
            return Err(Errno::EXDEV);
        }
        Ok(self.known(place, &facts))
    }

    /// Counts as a lookup by the kernel.
    fn known(&self, place: OwnedFd, facts: &Facts) -> FileAttr {
        let number = self.nodes.looked_up(place, facts.ino, facts.kind);
        attr_of(number, facts, self.engine.view(facts.ino))
    }

    /// Makes what was just made belong to its maker, as far as it doesn't. The result is what it is then.
    fn give(&self, parent: &Node, name: &OsStr, maker: &Maker) -> Answer<(OwnedFd, Facts)> {
        let place = at::place(&parent.place, name)?;
        let made = at::facts(&place)?;
        let is_theirs = (made.uid, made.gid) == (maker.uid, maker.gid);
        if self.is_root && !is_theirs {
            let inherits = at::facts(&parent.place)?.permissions & 0o2000 != 0;
            at::set_owner(&place, Some(maker.uid), (!inherits).then_some(maker.gid))?;
        }
        let inherited = if made.kind == Kind::Directory { made.permissions & 0o2000 } else { 0 };
        let permissions = (maker.mode & 0o7777) | inherited;
        let differs = made.kind != Kind::Link && (made.permissions != permissions || !is_theirs);
        if differs {
            at::set_permissions(&place, permissions)?;
        }
        let facts = if differs || !is_theirs { at::facts(&place)? } else { made };
        Ok((place, facts))
    }

    /// As [`Names::give`]; takes the name away again if that fails.
    fn finish(&self, parent: &Node, name: &OsStr, maker: &Maker, is_directory: bool) -> Answer<(OwnedFd, Facts)> {
        self.give(parent, name, maker).inspect_err(|_| {
            // The first error is the one that counts.
            let _ = at::remove(&parent.place, name, is_directory);
        })
    }

    /// Makes a regular file and opens it; one that is there already is opened, unless `exclusive`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(&self, parent: u64, name: &OsStr, maker: &Maker, exclusive: bool) -> Answer<(FileAttr, Use)> {
        let dir = self.parent(parent, name)?;
        // Nobody but its owner may use it while that is not its maker.
        let permissions = if maker.uid == self.uid { maker.mode } else { 0o600 };
        match at::create(&dir.place, name, permissions) {
            Ok(file) => {
                let (place, facts) = self.finish(&dir, name, maker, false)?;
                let used = self.engine.adopt(file, facts.ino);
                return Ok((self.known(place, &facts), used));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && !exclusive => {}
            Err(error) => return Err(error.into()),
        }
        let attr = self.look_up(parent, name)?;
        let opened = self.node(attr.ino.0).and_then(|node| Ok(self.engine.open(&node.place, node.ino)?));
        let used = opened.inspect_err(|_| self.nodes.forget(attr.ino.0, 1))?;
        Ok((attr, used))
    }

    /// Makes anything that `mknod` makes.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_node(&self, parent: u64, name: &OsStr, maker: &Maker, rdev: u32) -> Answer<FileAttr> {
        let dir = self.parent(parent, name)?;
        at::make_node(&dir.place, name, maker.mode, rdev)?;
        let (place, facts) = self.finish(&dir, name, maker, false)?;
        self.engine.made(facts.ino);
        self.engine.owe(facts.ino, Owed::NAME);
        Ok(self.known(place, &facts))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_directory(&self, parent: u64, name: &OsStr, maker: &Maker) -> Answer<FileAttr> {
        let dir = self.parent(parent, name)?;
        at::make_directory(&dir.place, name)?;
        let (place, facts) = self.finish(&dir, name, maker, true)?;
        Ok(self.known(place, &facts))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_link(&self, parent: u64, name: &OsStr, target: &OsStr, maker: &Maker) -> Answer<FileAttr> {
        let dir = self.parent(parent, name)?;
        at::make_link(target, &dir.place, name)?;
        let (place, facts) = self.finish(&dir, name, maker, false)?;
        Ok(self.known(place, &facts))
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// What the system says.
    pub fn add_name(&self, number: u64, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        let (node, dir) = (self.node(number)?, self.parent(parent, name)?);
        at::add_name(&node.place, &dir.place, name)?;
        self.engine.owe(node.ino, Owed::NAME);
        self.look_up(parent, name)
    }

    /// Takes a name away.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, parent: u64, name: &OsStr, is_directory: bool) -> Answer<()> {
        let dir = self.parent(parent, name)?;
        let before = at::facts_at(&dir.place, name)?;
        at::remove(&dir.place, name, is_directory)?;
        if before.kind == Kind::File {
            self.engine.lost_name(before.ino, before.links, &dir.place);
        }
        Ok(())
    }

    /// Renames.
    ///
    /// # Errors
    /// What the system says.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), existing: OnExisting) -> Answer<()> {
        let (from_dir, to_dir) = (self.parent(from.0, from.1)?, self.parent(to.0, to.1)?);
        let moved = at::facts_at(&from_dir.place, from.1)?;
        let replaced = at::facts_at(&to_dir.place, to.1).ok();
        at::rename(&from_dir.place, from.1, &to_dir.place, to.1, existing)?;
        for facts in [Some(&moved), replaced.as_ref()].into_iter().flatten().filter(|facts| facts.kind == Kind::File) {
            self.engine.owe(facts.ino, Owed::NAME);
        }
        if existing == OnExisting::Replace
            && let Some(replaced) = replaced.filter(|replaced| replaced.kind == Kind::File && replaced.ino != moved.ino)
        {
            self.engine.lost_name(replaced.ino, replaced.links, &to_dir.place);
        }
        Ok(())
    }

    /// Opens a directory for listing.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_directory(&self, number: u64) -> Answer<File> {
        Ok(at::open(&self.node(number)?.place, Access::List)?)
    }
}
