//! A file's facts as the kernel wants them, with what the cache knows better.
//!
//! Relies on [`CachedAttributes`] being asked for before the facts: what is not pending then is in the directory by the
//! time of those.

use std::time::UNIX_EPOCH;

use fuser::{FileAttr, FileType, INodeNo};
use quire_sys::at::{FileStat, InodeType};

use crate::engine::CachedAttributes;

/// A kind in the kernel's words.
pub fn kind_of(kind: InodeType) -> FileType {
    match kind {
        InodeType::File => FileType::RegularFile,
        InodeType::Directory => FileType::Directory,
        InodeType::Link => FileType::Symlink,
        InodeType::Pipe => FileType::NamedPipe,
        InodeType::Socket => FileType::Socket,
        InodeType::Character => FileType::CharDevice,
        InodeType::Block => FileType::BlockDevice,
    }
}

/// Attributes of node `number`.
pub fn attr_of(number: u64, facts: &FileStat, cached_attributes: Option<CachedAttributes>) -> FileAttr {
    // Space may not have been taken yet for what is pending, and a file without any passes for a hole (`tar --sparse`).
    let pending_blocks = cached_attributes
        .filter(|cached_attributes| cached_attributes.is_pending)
        .map_or(0, |cached_attributes| cached_attributes.len.div_ceil(512));
    FileAttr {
        ino: INodeNo(number),
        size: cached_attributes.map_or(facts.len, |cached_attributes| cached_attributes.len),
        blocks: facts.blocks.max(pending_blocks),
        atime: facts.accessed,
        mtime: cached_attributes.and_then(|cached_attributes| cached_attributes.modified).unwrap_or(facts.modified),
        ctime: cached_attributes.and_then(|cached_attributes| cached_attributes.changed).unwrap_or(facts.changed),
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

/// Tells the kernel that there is no such name, which it may believe.
pub fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Attributes of node `number`, which can't be looked at.
pub fn attr_of_unseen(number: u64, kind: InodeType) -> FileAttr {
    FileAttr { ino: INodeNo(number), kind: kind_of(kind), nlink: 1, ..nothing() }
}
