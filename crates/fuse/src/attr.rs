//! A file's facts as the kernel wants them, with what the cache knows better.
//!
//! Relies on [`View`] being asked for after the facts: lengths only become newer.

use fuser::{FileAttr, FileType, INodeNo};
use quire_sys::at::{Facts, Kind};

use crate::engine::View;

/// A kind in the kernel's words.
pub fn kind_of(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::Pipe => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Character => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// Attributes of node `number`.
pub fn attr_of(number: u64, facts: &Facts, view: Option<View>) -> FileAttr {
    let modified = view.and_then(|view| view.modified).unwrap_or(facts.modified);
    FileAttr {
        ino: INodeNo(number),
        size: view.map_or(facts.len, |view| view.len),
        blocks: facts.blocks,
        atime: facts.accessed,
        mtime: modified,
        ctime: if view.is_some() { facts.changed.max(modified) } else { facts.changed },
        crtime: facts.changed,
        kind: kind_of(facts.kind),
        perm: facts.permissions as u16,
        nlink: u32::try_from(facts.links).unwrap_or(u32::MAX),
        uid: facts.uid,
        gid: facts.gid,
        rdev: facts.rdev,
        blksize: facts.unit_bytes,
        flags: 0,
    }
}
