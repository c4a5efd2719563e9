//! The kernel's protocol: each request is taken apart, done by a [`FuseServer`], and answered.
//!
//! Relies on `fuser`. Every request runs through the offload pool, so no request keeps others waiting.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags as RawOpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use quire_sys::at::{self, OnExisting, OpenFlags};

use crate::attr::{attr_of_unseen, kind_of, nothing};
use crate::error::FuseResult;
use crate::offload_pool::Priority;
use crate::serve::dispatch::{FuseDispatcher, NO_GENERATION, TTL, configure, creator, new_time};
use crate::serve::{FuseServer, SetAttr, WriteRequest};
use crate::xattrs::Credentials;

/// Pages of files stay in the kernel's cache when they are opened; closing needs no request.
const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);

/// Attributes of what can't be looked at; counts as a lookup.
fn unseen(server: &FuseServer, kind: at::InodeType) -> FileAttr {
    attr_of_unseen(server.namespace.nodes.mentioned(kind), kind)
}

impl Filesystem for FuseDispatcher {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config)
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.dispatch(
            move |server| server.namespace.look_up(parent.0, &name),
            |result| match result {
                Ok(attr) => reply.entry(&TTL, &attr, NO_GENERATION),
                Err(error) if error.code() == Errno::ENOENT.code() => reply.entry(&TTL, &nothing(), NO_GENERATION),
                Err(error) => reply.error(error),
            },
        );
    }

    fn forget(&self, _request: &Request, number: INodeNo, times: u64) {
        self.0.namespace.nodes.forget(number.0, times);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.dispatch(
            move |server| server.namespace.attr(number.0),
            |result| match result {
                Ok(attr) => reply.attr(&TTL, &attr),
                Err(error) => reply.error(error),
            },
        );
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        len: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _checked: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let thread = request.pid();
        let (accessed, modified) = (new_time(accessed), new_time(modified));
        let changes = SetAttr { len, mode, uid, gid, accessed, modified };
        self.spread_for(
            thread,
            move |server| server.change(number.0, handle.map(|handle| handle.0), &changes, thread),
            |result| match result {
                Ok(attr) => reply.attr(&TTL, &attr),
                Err(error) => reply.error(error),
            },
        );
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        self.dispatch(
            move |server| Ok(at::read_link(&server.namespace.node(number.0)?.place)?),
            |result| match result {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(error),
            },
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, creator) = (name.to_owned(), creator(request, mode, umask));
        self.entry(reply, move |server| server.namespace.make_node(parent.0, &name, &creator, rdev));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (name, creator) = (name.to_owned(), creator(request, mode, umask));
        self.entry(reply, move |server| server.namespace.make_directory(parent.0, &name, &creator));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.empty(reply, move |server| server.namespace.remove(parent.0, &name, false));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.empty(reply, move |server| server.namespace.remove(parent.0, &name, true));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &std::path::Path, reply: ReplyEntry) {
        let (name, target, creator) = (name.to_owned(), target.as_os_str().to_owned(), creator(request, 0o777, 0));
        self.entry(reply, move |server| server.namespace.make_link(parent.0, &name, &target, &creator));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let existing = match flags {
            flags if flags.is_empty() => OnExisting::Replace,
            flags if flags == RenameFlags::RENAME_NOREPLACE => OnExisting::Refuse,
            flags if flags == RenameFlags::RENAME_EXCHANGE => OnExisting::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (name, new_name): (OsString, OsString) = (name.to_owned(), new_name.to_owned());
        self.empty(reply, move |server| {
            server.namespace.rename((parent.0, &name), (new_parent.0, &new_name), existing)
        });
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.entry(reply, move |server| server.namespace.add_name(number.0, parent.0, &name));
    }

    fn open(&self, request: &Request, number: INodeNo, _flags: RawOpenFlags, reply: ReplyOpen) {
        let thread = request.pid();
        self.dispatch(
            move |server| server.open(number.0, thread),
            |result| match result {
                Ok(handle) => reply.opened(FileHandle(handle), OPENED),
                Err(error) => reply.error(error),
            },
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, creator) = (name.to_owned(), creator(request, mode, umask));
        self.0.criticality.opens(request.pid());
        self.dispatch(
            move |server| server.create(parent.0, &name, &creator, OpenFlags(flags)),
            |result| match result {
                Ok((attr, handle)) => reply.created(&TTL, &attr, NO_GENERATION, FileHandle(handle), OPENED),
                Err(error) => reply.error(error),
            },
        );
    }

    fn read(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u32,
        _flags: RawOpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let thread = request.pid();
        self.spread_for(
            thread,
            move |server| server.read(handle.0, offset, len, thread),
            |result| match result {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(error),
            },
        );
    }

    fn write(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        flags: RawOpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Mapped pages come later, from the kernel, which does not tell which thread stored them.
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let write = WriteRequest {
            handle: handle.0,
            offset,
            durable: OpenFlags(flags.0).durable() && !mapped,
            strips: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            thread: if mapped { 0 } else { request.pid() },
        };
        let answer = |result: FuseResult<u32>| match result {
            Ok(len) => reply.written(len),
            Err(error) => reply.error(error),
        };
        match self.0.offload_pool.try_inline() {
            Some(_inside) => answer(self.0.write(write, bytes)),
            None => {
                let (server, bytes) = (Arc::clone(&self.0), bytes.to_vec());
                let priority = self.0.priority_of(write.thread);
                self.0.offload_pool.offload(priority, move || answer(server.write(write, &bytes)));
            }
        }
    }

    fn flush(&self, _request: &Request, _number: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: RawOpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.empty(reply, move |server| {
            drop(server.files.remove(handle.0));
            Ok(())
        });
    }

    fn fsync(&self, request: &Request, _number: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let thread = request.pid();
        self.empty_for(thread, reply, move |server| server.flush(handle.0, data_only, thread));
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: RawOpenFlags, reply: ReplyOpen) {
        self.dispatch(
            move |server| {
                let file = server.namespace.open_directory(number.0)?;
                Ok(server.dirs.add(file, number.0))
            },
            |result| match result {
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
                Err(error) => reply.error(error),
            },
        );
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let server = Arc::clone(&self.0);
        self.0.offload_pool.run(Priority::Urgent, move || {
            let listed = server.list(handle.0, offset, &mut |_, next, entry| {
                let number = server.namespace.nodes.number_of(entry.ino);
                Ok(reply.add(INodeNo(number), next, kind_of(entry.kind), &entry.name))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let server = Arc::clone(&self.0);
        self.0.offload_pool.run(Priority::Urgent, move || {
            let listed = server.list(handle.0, offset, &mut |dir, next, entry| {
                if entry.name == "." || entry.name == ".." {
                    // Not looked up, so not to be forgotten.
                    let number = INodeNo(server.namespace.nodes.number_of(entry.ino));
                    let attr = FileAttr { ino: number, kind: FileType::Directory, ..nothing() };
                    return Ok(reply.add(number, next, &entry.name, &Duration::ZERO, &attr, NO_GENERATION));
                }
                let (attr, ttl) = match server.namespace.look_up(dir, &entry.name) {
                    Ok(attr) => (attr, TTL),
                    Err(error) if error.code() == Errno::ENOENT.code() => return Ok(false),
                    // It is there all the same; a program that asks for it gets the error.
                    Err(_) => (unseen(&server, entry.kind), Duration::ZERO),
                };
                let full = reply.add(attr.ino, next, &entry.name, &ttl, &attr, NO_GENERATION);
                if full {
                    server.namespace.nodes.forget(attr.ino.0, 1);
                }
                Ok(full)
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: RawOpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.dirs.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, _number: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        let thread = request.pid();
        self.empty_for(thread, reply, move |server| server.flush_directory(handle.0, thread));
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        self.dispatch(
            |server| Ok(at::space(&server.engine.backing_root.dir)?),
            |result| match result {
                Ok(space) => reply.statfs(
                    space.blocks,
                    space.free_blocks,
                    space.available_blocks,
                    space.files,
                    space.free_files,
                    space.unit_bytes as u32,
                    space.name_bytes as u32,
                    space.block_bytes as u32,
                ),
                Err(error) => reply.error(error),
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value, credentials) = (name.to_owned(), value.to_vec(), Credentials::of(request));
        self.empty(reply, move |server| server.set_attribute(number.0, &name, &value, flags, &credentials));
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        self.sized(reply, room, move |server| server.attribute(number.0, &name));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        let credentials = Credentials::of(request);
        self.sized(reply, room, move |server| server.attributes(number.0, &credentials));
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.empty(reply, move |server| server.remove_attribute(number.0, &name));
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _bytes: &[u8],
        _room: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let thread = request.pid();
        self.empty_for(thread, reply, move |server| server.reserve(handle.0, offset, len, mode, thread));
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.dispatch(
            move |server| server.seek(handle.0, offset, whence),
            |result| match result {
                Ok(offset) => reply.offset(offset),
                Err(error) => reply.error(error),
            },
        );
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from: INodeNo,
        _from_handle: FileHandle,
        _from_offset: u64,
        _to: INodeNo,
        _to_handle: FileHandle,
        _to_offset: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies through its cache of pages instead, and does not ask again.
        reply.error(Errno::ENOSYS);
    }
}
