//! What a thread does that has touched an absent page, or stored to a clean one: all of it inside a signal handler, unless
//! the map has [threads](super::fault_threads) for that.
//!
//! Relies on the page's state as the guards do. Clean pages are write-protected, always: they are filled so, and a page is
//! protected again before it is written to the device. So every first change since then is noticed, and a page that is being
//! written or evicted can't be changed.
//!
//! In here nothing is locked and nothing allocated: atomics, futexes, one read (two, if one failed) and a few ioctls.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quire_device::{DeviceError, Extent};
use quire_sys::mem::MemError;
use quire_sys::signal::FaultAccess;
use quire_sys::userfault::{RegisterModes, Userfault, features};

use super::fault_batch::FaultBatch;
use super::pending_updates::{DIRTY, ENQUEUE, PendingUpdates};
use super::sequential_detector::SequentialDetector;
use super::staging::{StagingBuffers, StagingLease};
use crate::config::AccessAdvice;
use crate::counters::{PoolCounter, WaitCause};
use crate::credits::Credit;
use crate::error::PoolError;
use crate::futex::Futex;
use crate::map::Map;
use crate::mapped_file::MappedFile;
use crate::memory_pressure::EventCount;
use crate::page::PageRun;
use crate::page_state::{PageStatus, StateSnapshot, WaitQueue};
use crate::paths;
use crate::pool_state::PoolState;

/// Pending updates before the background evictor is called.
const MANY_NOTES: usize = 256;
/// Longest sleep for memory before the next try.
const NAP: Duration = Duration::from_millis(2);

/// Why a page can't be had.
#[derive(Debug)]
pub(super) enum FaultError {
    /// Nothing could be evicted for it within the pool's patience.
    Memory,
    /// The device failed.
    Device(DeviceError),
    /// The kernel doesn't put it into its place.
    HandlerSlot(io::Error),
}

/// The faults of one map.
pub(super) struct FaultHandler {
    pub(super) shared: Arc<PoolState>,
    pub(super) mapped: Arc<MappedFile>,
    pub(super) pending: PendingUpdates,
    /// For the background evictor: there is something to do.
    pub(super) work: EventCount,
    /// Held while notes are passed on: who comes next finds them passed on, not on their way.
    telling: Mutex<()>,
    staging: StagingBuffers,
    sequential: SequentialDetector,
}

impl FaultHandler {
    pub(super) fn new(map: &Map) -> Result<Self, PoolError> {
        let (shared, mapped) = (Arc::clone(map.shared()), Arc::clone(map.mapped()));
        let refused = |error: MemError| PoolError::Memory { what: "a transparent map", cause: error.to_string() };
        let page_bytes = mapped.frames.page_bytes();
        let pages = mapped.frames.reserved_bytes() / page_bytes as u64;
        let pending = PendingUpdates::new(pages, shared.config.shards).map_err(refused)?;
        let staging = StagingBuffers::new(page_bytes).map_err(refused)?;
        let (work, telling, sequential) = (EventCount::default(), Mutex::default(), SequentialDetector::default());
        Ok(Self { shared, mapped, pending, work, telling, staging, sequential })
    }

    /// Has the kernel signal the faults of the map's range, or (`served`) put threads that fault to sleep.
    pub(super) fn guard(&self, served: bool) -> io::Result<()> {
        let signal = if served { 0 } else { features::SIGBUS };
        let fault = Userfault::open(signal | features::PAGEFAULT_FLAG_WP)?;
        if served && fault.is_user_mode_only() {
            // System calls would fail that are handed an address of the map.
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "faults inside system calls can't be had"));
        }
        let modes = RegisterModes { missing: true, write_protect: true, ..RegisterModes::default() };
        let frames = &self.mapped.frames;
        // SAFETY: the map's own memory, which no thread has touched yet; the handler is in place.
        unsafe { fault.register(frames.at(0), frames.reserved_bytes() as usize, modes) }?;
        self.mapped.frames.protect_by(fault);
        Ok(())
    }

    pub(super) fn fault(&self) -> &Userfault {
        self.mapped.frames.protector().expect("the range is guarded before it is handed out")
    }

    /// Free credits that the background evictor keeps in store.
    pub(super) fn low_mark(&self) -> usize {
        (self.shared.credits.total() / 16).max(1)
    }

    /// Tells queues and sets what handlers have left behind; all of it is told when this returns. Not for handlers.
    pub(super) fn tell(&self) {
        let _alone = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.settle();
        self.pending.drain(|page, flags| {
            if flags & ENQUEUE != 0 {
                self.mapped.shard(page).clean().insert(page);
            }
            if flags & DIRTY != 0 {
                self.shared.note_dirty(&self.mapped, page);
            }
        });
    }

    /// Whether the touch was of this map, and can be made again.
    pub(super) fn deal_with(&self, touch: FaultAccess) -> bool {
        let Some(offset) = (touch.address as usize).checked_sub(self.mapped.frames.at(0) as usize) else {
            return false;
        };
        let page = (offset / self.mapped.frames.page_bytes()) as u64;
        // Beyond the file's end it ends as with `mmap`.
        let Some((state, ..)) = self.mapped.find(page) else { return false };
        match state.load().status() {
            PageStatus::Absent => self.bring_in(page, touch.is_store).is_ok(),
            // A store, as a load would have succeeded. (Or a load that came too late, and costs a needless write.)
            PageStatus::Clean | PageStatus::Dirty => self.allow_stores(page),
            PageStatus::Reading | PageStatus::Evicting | PageStatus::Writing => {
                self.await_change(page);
                true
            }
        }
    }

    /// Waits until a page that is on its way in or out, or being written, isn't any more.
    pub(super) fn await_change(&self, page: u64) {
        let begun = Instant::now();
        let seen = self.mapped.state(page).wait(&Futex, |seen| {
            matches!(seen.status(), PageStatus::Absent | PageStatus::Clean | PageStatus::Dirty) && !seen.is_exclusive()
        });
        let cause = if seen.status() == PageStatus::Absent { WaitCause::Evicting } else { WaitCause::Reading };
        self.mapped.counters.waited(cause, begun);
    }

    /// Reads an absent page, and more behind it where the caller goes through the map in order: afterwards the page is there,
    /// or another thread sees to it. With `to_store` it is dirty at once and may be stored to. Wakes no thread that sleeps in a
    /// fault.
    pub(super) fn bring_in(&self, page: u64, to_store: bool) -> Result<(), FaultError> {
        let credit = self.credit().ok_or(FaultError::Memory)?;
        let Some(mut batch) = FaultBatch::new(&self.shared, &self.mapped, page, credit) else { return Ok(()) };
        self.mapped.counters.add(PoolCounter::Misses, 1);
        let wanted = self.run_wanted(page);
        if wanted > 1
            && let Some(mut lease) = self.staging.take_for_run()
        {
            batch.extend(wanted, self.low_mark() / 2);
            let run = batch.run();
            if run.pages > 1 && self.read(&mut lease, run).is_ok() {
                self.mapped.counters.add(PoolCounter::Ahead, run.pages as usize - 1);
                self.mapped.counters.add(PoolCounter::AheadReads, 1);
                return self.slot(lease, batch, to_store);
            }
            // What can't be read may lie behind the page.
            batch.give_up(1);
        }
        let mut lease = self.staging.take();
        if let Err(lost) = self.read(&mut lease, batch.run()) {
            batch.give_up(0);
            return Err(lost);
        }
        self.slot(lease, batch, to_store)
    }

    /// Pages to bring in at a miss of `page`, it included.
    fn run_wanted(&self, page: u64) -> u64 {
        let advice = self.mapped.advice();
        if advice == AccessAdvice::Random {
            return 1;
        }
        // A run in a small pool must not throw out what was read before it.
        let part = (self.shared.credits.total() / 16) as u64;
        let most = u64::from(self.mapped.options.read_ahead_pages).min(self.staging.run_pages()).min(part);
        self.sequential.missed(page, most, advice == AccessAdvice::Sequential)
    }

    /// Reads `run`, a page or whole ones, into the slot.
    fn read(&self, lease: &mut StagingLease<'_>, run: PageRun) -> Result<(), FaultError> {
        let page_bytes = self.mapped.frames.page_bytes();
        let (offset, len) = (run.start * page_bytes as u64, run.pages as usize * page_bytes);
        let transfer = lease.transfer();
        transfer.extents[0] = Extent { offset, start: 0, len };
        let is_tail = self.mapped.is_tail(run.start);
        if is_tail {
            transfer.buffer.fill(0);
        } else if run.pages == 1
            && (paths::read_tier(&self.shared, &self.mapped, run.start, &mut transfer.buffer[..len], false)
                || paths::read_cached(&self.shared, &self.mapped, run.start, &mut transfer.buffer[..len]))
        {
            return Ok(());
        }
        let pages = run.pages as usize;
        match paths::read_direct(&self.shared, &self.mapped, pages, || self.mapped.device.run(transfer)) {
            Ok(()) => {}
            // The file ends here: what there is has been read.
            Err(error) if is_tail && error.kind == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(FaultError::Device(error)),
        }
        if is_tail {
            let inside = (self.mapped.len() - offset).min(len as u64) as usize;
            transfer.buffer[inside..len].fill(0);
        }
        Ok(())
    }

    /// Puts what was read into its place. With `to_store` the first page may be stored to.
    fn slot(&self, mut lease: StagingLease<'_>, mut batch: FaultBatch<'_>, to_store: bool) -> Result<(), FaultError> {
        let page_bytes = self.mapped.frames.page_bytes();
        let run = batch.run();
        let (offset, len) = (run.start * page_bytes as u64, run.pages as usize * page_bytes);
        let from = lease.transfer().buffer.as_ptr();
        let mut done = 0;
        while done < len {
            let is_open = to_store && done < page_bytes;
            let end = if is_open { page_bytes } else { len };
            let to = self.mapped.frames.at(offset + done as u64);
            // SAFETY: the lease holds `len` staged bytes. The place is the map's own, `guard` has registered it, and `batch` has claimed its
            // pages with `begin_read`: no other thread fills or uses them.
            match unsafe { self.fault().copy_asleep(to, from.wrapping_add(done), end - done, !is_open) } {
                Ok(copied) => done += copied,
                // The address space is being changed elsewhere.
                Err(busy) if busy.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => {
                    batch.give_up(0);
                    return Err(FaultError::HandlerSlot(error));
                }
            }
        }
        batch.settle(to_store, |page, flags| self.leave(page, flags));
        Ok(())
    }

    /// A page in memory may be stored to from now on: it is dirty.
    pub(super) fn allow_stores(&self, page: u64) -> bool {
        let state = self.mapped.state(page);
        match state.try_lock_exclusive() {
            Ok(is_newly_dirty) => {
                if is_newly_dirty {
                    self.leave(page, DIRTY);
                }
                let frames = &self.mapped.frames;
                let at = frames.at(page * frames.page_bytes() as u64);
                let is_open = self.fault().write_protect(at, frames.page_bytes(), false, true).is_ok();
                if state.unlock_exclusive() {
                    Futex.unpark_all(state);
                }
                is_open
            }
            Err(_) => {
                // Another thread uses it, or it is being written or evicted: the access is tried again after that.
                state.wait(&Futex, |seen: StateSnapshot| {
                    seen.can_lock_exclusive() || seen.status() == PageStatus::Absent
                });
                true
            }
        }
    }

    fn leave(&self, page: u64, flag: u64) {
        self.pending.push(page, flag);
        if self.pending.len() >= MANY_NOTES.min(self.low_mark()) {
            self.work.notify_all();
        }
    }

    /// A credit; the background evictor frees some if there is none. `None` if nothing has moved for too long.
    fn credit(&self) -> Option<Credit<'_>> {
        let credits = &self.shared.credits;
        if let Some(credit) = credits.take() {
            if credits.free() < self.low_mark() / 2 {
                self.work.notify_all();
            }
            return Some(credit);
        }
        let begun = Instant::now();
        let _waiting = self.shared.pressure.begin_low_memory_wait();
        let patience = Duration::from_millis(self.shared.config.miss_timeout_ms);
        let mut moved = begun;
        loop {
            let seen = self.shared.pressure.freed.current();
            self.work.notify_all();
            if let Some(credit) = credits.take() {
                self.mapped.counters.waited(WaitCause::Writeback, begun);
                return Some(credit);
            }
            if moved.elapsed() >= patience && self.shared.pressure.is_stuck_since(seen) {
                return None;
            }
            self.shared.pressure.wanted.notify_all();
            self.shared.pressure.freed.wait(seen, Some(NAP));
            if self.shared.pressure.freed.current() != seen {
                moved = Instant::now();
            }
        }
    }
}
