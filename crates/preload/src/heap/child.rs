//! In a forked child: a thread that brings in from the file what was not in memory at the fork. The child has no pool: what
//! it touches stays in its memory, as in any forked child.
//!
//! Relies on the file staying as it was at the fork (see [`super::forks`]), and on the child's copy of what had been written
//! to it by then. The thread is a bare one: it must not use what is thread-local, nor the child's heap.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use quire_sys::area::AnonymousMap;
use quire_sys::bare_thread;
use quire_sys::futex::{self, FutexScope};
use quire_sys::guest;
use quire_sys::userfault::{RegisterModes, Userfault};

use super::written_pages::WrittenPages;
use crate::log;

const STACK_BYTES: usize = 64 << 10;

/// What a child needs to know of its parent's heap.
#[derive(Clone, Debug)]
pub struct ParentHeap {
    /// The heap's first address.
    pub base: usize,
    /// Its bytes.
    pub len: usize,
    /// Bytes of a page of the pool.
    pub page_bytes: usize,
    /// What is in the file.
    pub written: Arc<WrittenPages>,
}

/// What serves the faults of a forked child.
struct FaultServer {
    parent_heap: *const ParentHeap,
    fault: Userfault,
    file: OwnedFd,
    /// Room for a page.
    page: AnonymousMap,
}

static SERVER: AtomicPtr<FaultServer> = AtomicPtr::new(null_mut());
/// The thread has a table of descriptors of its own, or has found that it gets none.
static STATE: AtomicU32 = AtomicU32::new(STARTING);
const STARTING: u32 = 0;
const AT_WORK: u32 = 1;
const GIVEN_UP: u32 = 2;

/// What went wrong, and how.
pub type HeapFailure = (&'static str, io::Error);

/// Gives this process, which has just been forked, the heap of its parent; `file` is the number of the heap's file, which
/// is closed in the calling thread's table. Returns the thread that has it open as the same number.
///
/// # Errors
/// The system refuses what is needed for that; the heap must not be touched then.
pub fn start(parent_heap: &'static ParentHeap, file: i32) -> Result<i32, HeapFailure> {
    let failed = |what: &'static str| move |error: io::Error| (what, error);
    if file < 0 {
        return Err(("its file could not be opened", io::ErrorKind::NotFound.into()));
    }
    // SAFETY: `forks::before` has opened it for this child and told no other; `forks::in_child` has taken the number out of
    // `LENT`.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    let fault = Userfault::open(0).map_err(failed("no userfaultfd"))?;
    let modes = RegisterModes { missing: true, ..RegisterModes::default() };
    let base = std::ptr::with_exposed_provenance_mut(parent_heap.base);
    // SAFETY: the range is the heap's, mapped in the parent and inherited. `register` asks that faults in it are served:
    // the thread below does so until the process ends.
    unsafe { fault.register(base, parent_heap.len, modes) }.map_err(failed("userfaultfd does not take its memory"))?;
    let page = AnonymousMap::private(parent_heap.page_bytes).map_err(failed("no memory"))?;
    let place = AnonymousMap::private(size_of::<FaultServer>()).map_err(failed("no memory"))?;
    let stack = AnonymousMap::private(STACK_BYTES).map_err(failed("no memory"))?;
    let (in_table, of_file) = (fault.as_raw_fd(), file.as_raw_fd());
    let server = place.base().cast::<FaultServer>();
    // SAFETY: a fresh mapping of that size, aligned to a page, that no other thread knows. It is leaked in the next statement.
    unsafe { server.write(FaultServer { parent_heap, fault, file, page }) };
    std::mem::forget(place);
    SERVER.store(server, Ordering::Release);
    STATE.store(STARTING, Ordering::Release);
    // SAFETY: the stack is a fresh mapping that is leaked below, so it is the thread's alone for good. `run` keeps what
    // `start` asks of a bare thread: it neither allocates nor uses anything thread-local.
    unsafe { bare_thread::start(&stack, run) }.map_err(failed("no thread"))?;
    std::mem::forget(stack);
    while STATE.load(Ordering::Acquire) == STARTING {
        futex::wait(&STATE, STARTING, None, FutexScope::Process);
    }
    if STATE.load(Ordering::Acquire) == GIVEN_UP {
        return Err(("no descriptors", io::ErrorKind::Unsupported.into()));
    }
    // SAFETY: the thread has both open in a table of its own, where the owning values live; in this table no value owns the
    // numbers.
    unsafe {
        bare_thread::close_number(in_table);
        bare_thread::close_number(of_file);
    }
    Ok(bare_thread::latest())
}

/// The life of the thread.
extern "C" fn run() {
    // SAFETY: `start` has stored it before it started this thread, and leaked it; after that only this thread uses it.
    let server = unsafe { &mut *SERVER.load(Ordering::Acquire) };
    let own = bare_thread::take_own_descriptors_but([server.fault.as_fd(), server.file.as_fd()]);
    STATE.store(if own.is_ok() { AT_WORK } else { GIVEN_UP }, Ordering::Release);
    futex::wake_all(&STATE, FutexScope::Process);
    guest::name_thread(c"quire-heap");
    while own.is_ok() {
        if let Err((what, error)) = server.serve() {
            let code = error.raw_os_error().unwrap_or(0);
            log::line(format_args!("heap: a forked child can't have a page of its heap: {what} (error {code})"));
            guest::exit_now(ENDED_WITHOUT_A_PAGE);
        }
    }
}

/// As a shell tells of a process that was aborted.
const ENDED_WITHOUT_A_PAGE: i32 = 134;

impl FaultServer {
    /// Waits for a fault and sees to it.
    fn serve(&mut self) -> Result<(), HeapFailure> {
        let failed = |what: &'static str| move |error: io::Error| (what, error);
        self.fault.wait(None).map_err(failed("poll"))?;
        let Some(fault) = self.fault.next().map_err(failed("read"))? else { return Ok(()) };
        // SAFETY: `start` got it as a `&'static` reference.
        let heap = unsafe { &*self.parent_heap };
        let offset = fault.address.wrapping_sub(heap.base) / heap.page_bytes * heap.page_bytes;
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(heap.base + offset);
        let filled = if heap.written.any(offset as u64, 1) {
            // SAFETY: `start` has mapped `page_bytes` bytes for it, and only this thread uses them.
            let page = unsafe { std::slice::from_raw_parts_mut(self.page.base(), heap.page_bytes) };
            guest::read_whole_at(&self.file, page, offset as u64).map_err(failed("reading the file"))?;
            // SAFETY: `page` was just read whole. `to` is a page of the registered range, since the fault is in that range; a
            // thread that touches it sleeps until the page is whole.
            unsafe { self.fault.copy(to, page.as_ptr(), heap.page_bytes, false) }
        } else {
            self.fault.zeropage(to, heap.page_bytes)
        };
        match filled {
            Ok(count) if count == heap.page_bytes => Ok(()),
            // Some of it is there: parts of a page came to the child by themselves.
            Ok(_) => self.fill_parts(fault.address, offset),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.fill_parts(fault.address, offset),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(("filling it", error)),
        }
    }

    /// Fills what is missing of a page some of which is there, and wakes who waits for the rest.
    fn fill_parts(&self, address: usize, offset: usize) -> Result<(), HeapFailure> {
        // SAFETY: `start` got it as a `&'static` reference.
        let heap = unsafe { &*self.parent_heap };
        let part = quire_sys::mem::PAGE_SIZE;
        let within = (address - heap.base - offset) / part * part;
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(heap.base + offset + within);
        let filled = if heap.written.any(offset as u64, 1) {
            let from = self.page.base().wrapping_add(within).cast_const();
            // SAFETY: `serve` has read the page into this mapping, and `within` is a part of it. `to` is in the registered
            // range, and a thread that touches it sleeps until it is filled.
            unsafe { self.fault.copy(to, from, part, false) }
        } else {
            self.fault.zeropage(to, part)
        };
        match filled {
            Ok(_) => Ok(()),
            // Another fault of the same page came first.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.fault.wake(to, part).map_err(|error| ("waking", error))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(("filling a part of it", error)),
        }
    }
}
