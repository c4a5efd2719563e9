//! Where a request is done and answered: in place by the thread that read it, or by a helper; and what requests have in common.
//!
//! Relies on [`OffloadPool`](crate::offload_pool::OffloadPool) for who may wait, and on what a request is for how long it
//! may have to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, Generation, InitFlags, KernelConfig, ReplyEmpty, ReplyEntry, ReplyXattr, Request, TimeOrNow,
};
use quire_sys::at::NewTime;

use crate::error::FuseResult;
use crate::names::CreateContext;
use crate::offload_pool::Priority;
use crate::serve::FuseServer;
use crate::xattrs::Credentials;

/// How long the kernel may believe names and attributes. They change only through it; what it can't know are the space
/// that a file takes and whatever is done behind its back.
pub(super) const TTL: Duration = Duration::from_secs(10);
pub(super) const NO_GENERATION: Generation = Generation(0);
/// Largest write and read-ahead, in bytes.
const MOST_BYTES: u32 = 1 << 20;

/// A server, as the kernel talks to it.
pub struct FuseDispatcher(pub Arc<FuseServer>);

impl FuseDispatcher {
    /// Does `work`, which waits for no flush, where it keeps no other request waiting, then `answer`.
    pub(super) fn dispatch<T>(
        &self,
        work: impl FnOnce(&FuseServer) -> FuseResult<T> + Send + 'static,
        answer: impl FnOnce(FuseResult<T>) + Send + 'static,
    ) {
        self.dispatch_as(|| Priority::Urgent, work, answer);
    }

    /// As [`FuseDispatcher::dispatch`], for work that may wait long for a device in the name of `thread`.
    pub(super) fn spread_for<T>(
        &self,
        thread: u32,
        work: impl FnOnce(&FuseServer) -> FuseResult<T> + Send + 'static,
        answer: impl FnOnce(FuseResult<T>) + Send + 'static,
    ) {
        self.dispatch_as(|| self.0.priority_of(thread), work, answer);
    }

    pub(super) fn dispatch_as<T>(
        &self,
        priority: impl FnOnce() -> Priority,
        work: impl FnOnce(&FuseServer) -> FuseResult<T> + Send + 'static,
        answer: impl FnOnce(FuseResult<T>) + Send + 'static,
    ) {
        match self.0.offload_pool.try_inline() {
            Some(_inside) => answer(work(&self.0)),
            None => {
                let server = Arc::clone(&self.0);
                self.0.offload_pool.offload(priority(), move || answer(work(&server)));
            }
        }
    }

    /// Work of `thread` that may wait long for a device.
    pub(super) fn empty_for(
        &self,
        thread: u32,
        reply: ReplyEmpty,
        work: impl FnOnce(&FuseServer) -> FuseResult<()> + Send + 'static,
    ) {
        self.spread_for(thread, work, |result| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    pub(super) fn empty(&self, reply: ReplyEmpty, work: impl FnOnce(&FuseServer) -> FuseResult<()> + Send + 'static) {
        self.dispatch(work, |result| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    pub(super) fn entry(
        &self,
        reply: ReplyEntry,
        work: impl FnOnce(&FuseServer) -> FuseResult<FileAttr> + Send + 'static,
    ) {
        self.dispatch(work, |result| match result {
            Ok(attr) => reply.entry(&TTL, &attr, NO_GENERATION),
            Err(error) => reply.error(error),
        });
    }

    pub(super) fn sized(
        &self,
        reply: ReplyXattr,
        room: u32,
        work: impl FnOnce(&FuseServer) -> FuseResult<Vec<u8>> + Send + 'static,
    ) {
        self.dispatch(work, move |result| match result {
            Ok(value) if room == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > room as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(error) => reply.error(error),
        });
    }
}

/// Asks the kernel for what the mount can do.
///
/// # Errors
/// The kernel lacks what access control lists need.
pub(super) fn configure(config: &mut KernelConfig) -> io::Result<()> {
    // What the kernel doesn't have it does without.
    let _ = config.set_max_write(MOST_BYTES);
    if let Err(most) = config.set_max_readahead(MOST_BYTES) {
        let _ = config.set_max_readahead(most);
    }
    let _ = config.set_max_background(64);
    for wish in [
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        // Else every write would be preceded by a question for file capabilities.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ] {
        let _ = config.add_capabilities(wish);
    }
    // Without these, access control lists would not hold.
    let needed = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
    config.add_capabilities(needed).map_err(|_| io::ErrorKind::Unsupported.into())
}

/// Who makes a file, and with what permissions.
pub(super) fn creator(request: &Request, mode: u32, mask: u32) -> CreateContext {
    CreateContext { uid: request.uid(), gid: request.gid(), mode, mask }
}

impl Credentials {
    pub(super) fn of(request: &Request) -> Self {
        Self { thread: request.pid(), uid: request.uid(), gid: request.gid() }
    }
}

/// A time that a request sets.
pub(super) fn new_time(time: Option<TimeOrNow>) -> NewTime {
    match time {
        None => NewTime::Keep,
        Some(TimeOrNow::Now) => NewTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => NewTime::At(time),
    }
}
