//! What a thread does that has touched an absent page, or stored to a clean one: all of it inside a signal handler, unless
//! the map has [threads](super::servers) for that.
//!
//! Relies on the page's word as the guards do. Clean pages are write-protected, always: they are filled so, and a page is
//! protected again before it is written to the device. So every first change since then is noticed, and a page that is being
//! written or evicted can't be changed.
//!
//! In here nothing is locked and nothing allocated: atomics, futexes, one read (two, if one failed) and a few ioctls.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quire_device::{DeviceError, Extent};
use quire_sys::mem::MemError;
use quire_sys::signal::Touch;
use quire_sys::userfault::{Modes, Userfault, features};

use super::claim::Claim;
use super::pending::{DIRTY, ENQUEUE, Pending};
use super::staging::{Lease, Staging};
use super::streaks::Streaks;
use crate::config::Advice;
use crate::counters::{Cause, Count};
use crate::credits::Credit;
use crate::error::PoolError;
use crate::map::Map;
use crate::mapped::Mapped;
use crate::page::Run;
use crate::park::Futex;
use crate::shared::Shared;
use crate::signal::Events;
use crate::word::{Parking, Seen, State};

/// Notes left behind before the tender is called.
const MANY_NOTES: usize = 256;
/// Longest sleep for memory without another look.
const NAP: Duration = Duration::from_millis(2);

/// Why a page can't be had.
#[derive(Debug)]
pub(super) enum Lost {
    /// Nothing could be evicted for it within the pool's patience.
    Memory,
    /// The device failed.
    Device(DeviceError),
    /// The kernel doesn't put it into its place.
    Place(io::Error),
}

/// The faults of one map.
pub(super) struct Faults {
    pub(super) shared: Arc<Shared>,
    pub(super) mapped: Arc<Mapped>,
    pub(super) pending: Pending,
    /// For the tender: there is something to do.
    pub(super) work: Events,
    /// Held while notes are passed on: who comes next finds them passed on, not on their way.
    telling: Mutex<()>,
    staging: Staging,
    streaks: Streaks,
}

impl Faults {
    pub(super) fn new(map: &Map) -> Result<Self, PoolError> {
        let (shared, mapped) = (Arc::clone(map.shared()), Arc::clone(map.mapped()));
        let refused = |error: MemError| PoolError::Memory { what: "a transparent map", cause: error.to_string() };
        let page_bytes = mapped.frames.page_bytes();
        let pages = mapped.frames.reserved_bytes() / page_bytes as u64;
        let pending = Pending::new(pages, shared.config.shards).map_err(refused)?;
        let staging = Staging::new(page_bytes).map_err(refused)?;
        let (work, telling, streaks) = (Events::default(), Mutex::default(), Streaks::default());
        Ok(Self { shared, mapped, pending, work, telling, staging, streaks })
    }

    /// Has the kernel signal the faults of the map's range, or (`served`) put to sleep who faults.
    pub(super) fn guard(&self, served: bool) -> io::Result<()> {
        let signal = if served { 0 } else { features::SIGBUS };
        let fault = Userfault::open(signal | features::PAGEFAULT_FLAG_WP)?;
        if served && fault.is_user_mode_only() {
            // System calls would fail that are handed an address of the map.
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "faults inside system calls can't be had"));
        }
        let modes = Modes { missing: true, write_protect: true, ..Modes::default() };
        let frames = &self.mapped.frames;
        // SAFETY: the map's own memory, which nobody has touched yet; the handler is in place.
        unsafe { fault.register(frames.at(0), frames.reserved_bytes() as usize, modes) }?;
        self.mapped.frames.protect_by(fault);
        Ok(())
    }

    pub(super) fn fault(&self) -> &Userfault {
        self.mapped.frames.protector().expect("the range is guarded before it is handed out")
    }

    /// Free credits that the tender keeps in store.
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
    pub(super) fn deal_with(&self, touch: Touch) -> bool {
        let Some(offset) = (touch.address as usize).checked_sub(self.mapped.frames.at(0) as usize) else {
            return false;
        };
        let page = (offset / self.mapped.frames.page_bytes()) as u64;
        // Beyond the file's end it ends as with `mmap`.
        let Some((word, ..)) = self.mapped.find(page) else { return false };
        match word.seen().state() {
            State::Absent => self.bring_in(page, touch.is_store).is_ok(),
            // A store, as a load would have succeeded. (Or a load that came too late, and costs a needless write.)
            State::Clean | State::Dirty => self.allow_stores(page),
            State::Reading | State::Evicting | State::Writing => {
                self.await_change(page);
                true
            }
        }
    }

    /// Waits until a page that is on its way in or out, or being written, isn't any more.
    pub(super) fn await_change(&self, page: u64) {
        let begun = Instant::now();
        let seen = self.mapped.word(page).wait(&Futex, |seen| {
            matches!(seen.state(), State::Absent | State::Clean | State::Dirty) && !seen.is_exclusive()
        });
        let cause = if seen.state() == State::Absent { Cause::Evicting } else { Cause::Reading };
        self.mapped.counters.waited(cause, begun);
    }

    /// Reads an absent page, and more behind it where the caller goes through the map in order: afterwards the page is there,
    /// or somebody else sees to it. With `to_store` it is dirty at once and may be stored to. Wakes nobody who sleeps in a
    /// fault.
    pub(super) fn bring_in(&self, page: u64, to_store: bool) -> Result<(), Lost> {
        let credit = self.credit().ok_or(Lost::Memory)?;
        let Some(mut claim) = Claim::new(&self.shared, &self.mapped, page, credit) else { return Ok(()) };
        self.mapped.counters.add(Count::Misses, 1);
        let wanted = self.run_wanted(page);
        if wanted > 1
            && let Some(mut lease) = self.staging.take_for_run()
        {
            claim.extend(wanted, self.low_mark() / 2);
            let run = claim.run();
            if run.pages > 1 && self.read(&mut lease, run).is_ok() {
                self.mapped.counters.add(Count::Ahead, run.pages as usize - 1);
                self.mapped.counters.add(Count::AheadReads, 1);
                return self.place(lease, claim, to_store);
            }
            // What can't be read may lie behind the page.
            claim.give_up(1);
        }
        let mut lease = self.staging.take();
        if let Err(lost) = self.read(&mut lease, claim.run()) {
            claim.give_up(0);
            return Err(lost);
        }
        self.place(lease, claim, to_store)
    }

    /// Pages to bring in at a miss of `page`, it included.
    fn run_wanted(&self, page: u64) -> u64 {
        let advice = self.mapped.advice();
        if advice == Advice::Random {
            return 1;
        }
        // A run in a small pool must not throw out what was read before it.
        let part = (self.shared.credits.total() / 16) as u64;
        let most = u64::from(self.mapped.read_ahead_pages).min(self.staging.run_pages()).min(part);
        self.streaks.missed(page, most, advice == Advice::Sequential)
    }

    /// Reads `run`, a page or whole ones, into the slot.
    fn read(&self, lease: &mut Lease<'_>, run: Run) -> Result<(), Lost> {
        let page_bytes = self.mapped.frames.page_bytes();
        let (offset, len) = (run.start * page_bytes as u64, run.pages as usize * page_bytes);
        let transfer = lease.transfer();
        transfer.extents[0] = Extent { offset, start: 0, len };
        let is_tail = self.mapped.is_tail(run.start);
        if is_tail {
            transfer.buffer.fill(0);
        }
        match self.mapped.device.run(transfer) {
            Ok(()) => {}
            // The file ends here: what there is has been read.
            Err(error) if is_tail && error.kind == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(Lost::Device(error)),
        }
        if is_tail {
            let inside = (self.mapped.len() - offset).min(len as u64) as usize;
            transfer.buffer[inside..len].fill(0);
        }
        Ok(())
    }

    /// Puts what was read into its place. With `to_store` the first page may be stored to.
    fn place(&self, mut lease: Lease<'_>, mut claim: Claim<'_>, to_store: bool) -> Result<(), Lost> {
        let page_bytes = self.mapped.frames.page_bytes();
        let run = claim.run();
        let (offset, len) = (run.start * page_bytes as u64, run.pages as usize * page_bytes);
        let from = lease.transfer().buffer.as_ptr();
        let mut done = 0;
        while done < len {
            let is_open = to_store && done < page_bytes;
            let end = if is_open { page_bytes } else { len };
            let to = self.mapped.frames.at(offset + done as u64);
            // SAFETY: the staged bytes are readable; the place is the map's, registered, and claimed for reading.
            match unsafe { self.fault().copy_asleep(to, from.wrapping_add(done), end - done, !is_open) } {
                Ok(copied) => done += copied,
                // The address space is being changed elsewhere.
                Err(busy) if busy.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => {
                    claim.give_up(0);
                    return Err(Lost::Place(error));
                }
            }
        }
        claim.settle(to_store, |page, flags| self.leave(page, flags));
        Ok(())
    }

    /// A page in memory may be stored to from now on: it is dirty.
    pub(super) fn allow_stores(&self, page: u64) -> bool {
        let word = self.mapped.word(page);
        match word.exclude() {
            Ok(is_newly_dirty) => {
                if is_newly_dirty {
                    self.leave(page, DIRTY);
                }
                let frames = &self.mapped.frames;
                let at = frames.at(page * frames.page_bytes() as u64);
                let is_open = self.fault().write_protect(at, frames.page_bytes(), false, true).is_ok();
                if word.unexclude() {
                    Futex.unpark_all(word);
                }
                is_open
            }
            Err(_) => {
                // Somebody else is at it, or it is being written or evicted: the access is tried again after that.
                word.wait(&Futex, |seen: Seen| seen.can_exclude() || seen.state() == State::Absent);
                true
            }
        }
    }

    fn leave(&self, page: u64, flag: u64) {
        self.pending.push(page, flag);
        if self.pending.len() >= MANY_NOTES.min(self.low_mark()) {
            self.work.raise();
        }
    }

    /// A credit; the tender frees some if there is none. `None` if nothing has moved for too long.
    fn credit(&self) -> Option<Credit<'_>> {
        let credits = &self.shared.credits;
        if let Some(credit) = credits.take() {
            if credits.free() < self.low_mark() / 2 {
                self.work.raise();
            }
            return Some(credit);
        }
        let begun = Instant::now();
        let _starving = self.shared.signal.starve();
        let patience = Duration::from_millis(self.shared.config.patience_ms);
        let mut moved = begun;
        loop {
            let seen = self.shared.signal.freed.seen();
            self.work.raise();
            if let Some(credit) = credits.take() {
                self.mapped.counters.waited(Cause::Writeback, begun);
                return Some(credit);
            }
            if moved.elapsed() >= patience {
                return None;
            }
            self.shared.signal.wanted.raise();
            self.shared.signal.freed.wait(seen, Some(NAP));
            if self.shared.signal.freed.seen() != seen {
                moved = Instant::now();
            }
        }
    }
}
