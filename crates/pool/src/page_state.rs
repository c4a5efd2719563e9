//! The state of one page: where its bytes are, which threads use it, and how it gets from one status to the next. It is one
//! atomic word of 64 bits, as in vmcache.
//!
//! ```text
//!          begin_read            end_read               try_lock_exclusive
//!   absent ─────────▶ reading ─────────────▶ clean ─────────────────────────▶ dirty ◀─┐ failed
//!     ▲ ▲               │ fail_read          │   ▲                             │      │
//!     │ └───────────────┘                    │   │ end_write                   │ begin_write
//!     │                         begin_evict  │   └────────────────── writing ◀─┴──────┘
//!     └───────────── evicting ◀──────────────┘
//!        end_evict            (or back to clean by end_overwrite, with other bytes)
//! ```
//! Any number of threads can read a clean, dirty or writing page: under a shared lock ([`PageState::try_lock_shared`]), or without
//! a lock ([`PageState::optimistic_read`]), after which they ask [`PageState::validate`]. One thread at a time changes a page
//! ([`PageState::try_lock_exclusive`]), while no thread reads it under a lock and it is not being written. Only a clean page
//! without a lock is evicted.
//!
//! ```text
//!  63       32 31      22 21      11 10         9     8      7       6        5          4   3    2   0
//!  [ version ][ leases  ][ shared  ][relocated][mark][ahead][queued][waiters][exclusive][touches][state]
//! ```
//! The version goes up whenever the bytes change or go: when an exclusive user leaves, when the page is evicted or overwritten past the pool, and when an absent page is
//! told to have other bytes ([`PageState::outdate`]). All
//! zero is an absent page, so a state needs no setting up. A page that is being read has no shared locks: the number of its readahead
//! queue is in their place.
//!
//! A lease ([`PageState::try_lease`]) keeps the bytes at the page's address as they are, and excludes no user: a writer puts the page into
//! another frame first, and the page is *relocated* until it is moved back, after the last lease has ended (`relocation`).
//!
//! Waiting: a thread that finds the page in a status that doesn't suit sets `waiters` and sleeps while the low half stays as
//! it was. Every change that a thread may wait for clears the bit and wakes all sleepers. Relies on nothing; every
//! interleaving is explored in `tests/loom.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

mod relocation;

pub use relocation::LeaseEnd;

const STATE: u64 = 0b111;
const ABSENT: u64 = 0;
const READING: u64 = 1;
const EVICTING: u64 = 2;
/// The states from here on have this bit: the bytes are there.
const READABLE: u64 = 4;
const CLEAN: u64 = 4;
const DIRTY: u64 = 5;
const WRITING: u64 = 6;

const TOUCH_SHIFT: u32 = 3;
const TOUCHES: u64 = 0b11 << TOUCH_SHIFT;
const TOUCH_ONE: u64 = 1 << TOUCH_SHIFT;
const EXCLUSIVE: u64 = 1 << 5;
const WAITERS: u64 = 1 << 6;
const QUEUED: u64 = 1 << 7;
const AHEAD: u64 = 1 << 8;
const MARK: u64 = 1 << 9;
const RELOCATED: u64 = 1 << 10;
const SHARED_ONE: u64 = 1 << 11;
const SHARED: u64 = 0x7ff * SHARED_ONE;
/// In the place of the shared locks, while the page is being read.
const QUEUE_NUMBER: u64 = 0b11_1111 * SHARED_ONE;
const LEASE_ONE: u64 = 1 << 22;
const LEASES: u64 = 0x3ff * LEASE_ONE;
const VERSION_SHIFT: u32 = 32;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;

/// Most touches that a state remembers.
pub const MOST_TOUCHES: u8 = 3;
/// Readahead queues that a state can name.
pub const MOST_READAHEAD_QUEUES: usize = 64;

/// Where the bytes of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    /// Not in memory.
    Absent,
    /// Being read from the device.
    Reading,
    /// In memory as on the device.
    Clean,
    /// Changed in memory.
    Dirty,
    /// Being written to the device; can be read, not changed.
    Writing,
    /// Its memory is being given back.
    Evicting,
}

/// The state of a page as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSnapshot(u64);

impl StateSnapshot {
    /// Where the bytes of the page are.
    pub fn status(self) -> PageStatus {
        match self.0 & STATE {
            ABSENT => PageStatus::Absent,
            READING => PageStatus::Reading,
            EVICTING => PageStatus::Evicting,
            CLEAN => PageStatus::Clean,
            DIRTY => PageStatus::Dirty,
            _ => PageStatus::Writing,
        }
    }

    /// Whether a thread has the page locked exclusively, and may be changing it.
    pub fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// Threads that have the page locked for reading.
    pub fn shared(self) -> u64 {
        if self.0 & STATE == READING { 0 } else { (self.0 & SHARED) / SHARED_ONE }
    }

    /// Whether a touch of this page is to start more read-ahead.
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// The readahead queue by which the page is on its way.
    pub fn readahead_queue(self) -> Option<usize> {
        (self.0 & (AHEAD | STATE) == AHEAD | READING).then_some(((self.0 & QUEUE_NUMBER) / SHARED_ONE) as usize)
    }

    /// Counts the changes of the page's bytes.
    pub fn version(self) -> u32 {
        (self.0 >> VERSION_SHIFT) as u32
    }

    /// Whether the page can be locked shared, wherever its bytes are.
    pub fn can_lock_shared(self) -> bool {
        self.0 & (READABLE | EXCLUSIVE | MARK) == READABLE && self.0 & SHARED != SHARED
    }

    /// Whether the page can be locked exclusively; if it is leased, in another frame.
    pub fn can_lock_exclusive(self) -> bool {
        self.0 & (EXCLUSIVE | MARK | SHARED) == 0 && matches!(self.0 & STATE, CLEAN | DIRTY)
    }

    fn touched(self) -> u64 {
        if self.0 & TOUCHES == TOUCHES { self.0 } else { self.0 + TOUCH_ONE }
    }

    /// The low half, which waiters watch.
    pub fn low(self) -> u32 {
        self.0 as u32
    }
}

/// The lock that the thread that has just read a page takes on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// None.
    None,
    /// For reading.
    Shared,
    /// For changing: the page is dirty from the start.
    Exclusive,
}

/// What a change of status leaves for the caller to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct DeferredWork {
    /// Threads wait and must be woken ([`WaitQueue::unpark_all`]).
    pub wake: bool,
    /// The page must be entered in a queue of clean pages.
    pub enqueue: bool,
}

/// How threads sleep until a page's state changes.
pub trait WaitQueue {
    /// Sleeps while the low half of `state` is `low`. May return for no reason.
    fn park(&self, state: &PageState, low: u32);
    /// Wakes all threads that sleep at `state`.
    fn unpark_all(&self, state: &PageState);
}

/// The state of a page.
#[derive(Debug)]
#[repr(transparent)]
pub struct PageState(AtomicU64);

impl PageState {
    /// The state of an absent page.
    #[cfg(any(test, loom))]
    #[expect(clippy::new_without_default, reason = "for tests")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The state now.
    #[inline]
    pub fn load(&self) -> StateSnapshot {
        StateSnapshot(self.0.load(Ordering::Acquire))
    }

    /// The state itself, for sleeping at it.
    pub fn atomic(&self) -> &AtomicU64 {
        &self.0
    }

    /// Changes the state as `change` says until it holds; `change` may refuse.
    #[inline]
    fn update(
        &self,
        order: Ordering,
        mut change: impl FnMut(StateSnapshot) -> Option<u64>,
    ) -> Result<StateSnapshot, StateSnapshot> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let Some(next) = change(StateSnapshot(seen)) else { return Err(StateSnapshot(seen)) };
            match self.0.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
                Ok(_) => return Ok(StateSnapshot(seen)),
                Err(now) => seen = now,
            }
        }
    }

    /// Begins to read the page's bytes, which stay as they are until [`PageState::unlock_shared`].
    ///
    /// # Errors
    /// The bytes aren't there or elsewhere, or a thread has the page locked exclusively, or the page is marked.
    #[inline]
    pub fn try_lock_shared(&self) -> Result<(), StateSnapshot> {
        let begin =
            |seen: StateSnapshot| (seen.can_lock_shared() && !seen.is_relocated()).then(|| seen.touched() + SHARED_ONE);
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// Ends what [`PageState::try_lock_shared`] began. Whether threads must be woken.
    #[inline]
    pub fn unlock_shared(&self) -> bool {
        let before = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        // A writer may wait for the last reader to leave, or a reader for one reader less than the most there can be.
        before & WAITERS != 0 && matches!(before & SHARED, SHARED_ONE | SHARED) && self.take_waiters()
    }

    /// Begins to change the page's bytes: no other thread uses them until [`PageState::unlock_exclusive`]. Returns whether the page was
    /// clean, and so has become dirty now.
    ///
    /// # Errors
    /// The bytes aren't there or elsewhere, or a thread has the page locked or leased, or it is being written to the device, or the page
    /// is marked.
    #[inline]
    pub fn try_lock_exclusive(&self) -> Result<bool, StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            let is_plain = seen.0 & (LEASES | RELOCATED) == 0;
            (is_plain && seen.can_lock_exclusive()).then(|| (seen.touched() | EXCLUSIVE) & !STATE | DIRTY)
        };
        let before = self.update(Ordering::Acquire, begin)?;
        // A thread that reads a byte changed from here on sees the bit, too, when it validates its read.
        fence(Ordering::Release);
        Ok(before.0 & STATE == CLEAN)
    }

    /// Ends what [`PageState::try_lock_exclusive`] began. Whether threads must be woken.
    #[inline]
    pub fn unlock_exclusive(&self) -> bool {
        let before = self.0.fetch_add(VERSION_ONE - EXCLUSIVE, Ordering::Release);
        before & WAITERS != 0 && self.take_waiters()
    }

    /// Clears the waiters' bit; whether it was set, and the threads that set it must be woken.
    fn take_waiters(&self) -> bool {
        self.0.fetch_and(!WAITERS, Ordering::Relaxed) & WAITERS != 0
    }

    /// Begins to read the bytes without a lock: other threads may change or evict them meanwhile.
    ///
    /// # Errors
    /// The bytes aren't there or elsewhere, or a thread has the page locked exclusively, or the page is marked.
    #[inline]
    pub fn optimistic_read(&self) -> Result<StateSnapshot, StateSnapshot> {
        let seen = self.load();
        if seen.0 & (READABLE | EXCLUSIVE | MARK | RELOCATED) == READABLE { Ok(seen) } else { Err(seen) }
    }

    /// Whether the bytes read since [`PageState::optimistic_read`] were those of the page all the time.
    #[inline]
    pub fn validate(&self, since: StateSnapshot) -> bool {
        fence(Ordering::Acquire);
        let now = self.0.load(Ordering::Relaxed);
        now & (READABLE | EXCLUSIVE) == READABLE && now >> VERSION_SHIFT == since.0 >> VERSION_SHIFT
    }

    /// Counts a touch by an optimistic read; writes only while the count can go up.
    #[inline]
    pub fn touch(&self, seen: StateSnapshot) {
        if seen.0 & TOUCHES != TOUCHES {
            // If another thread has changed the state meanwhile, this touch is forgotten: it is only a hint.
            let _ = self.0.compare_exchange(seen.0, seen.touched(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Claims an absent page for reading it from the device, on behalf of a readahead queue if it is ahead of its use.
    ///
    /// # Errors
    /// The page isn't absent any more, or its address still shows leased bytes.
    pub fn begin_read(&self, queue: Option<usize>) -> Result<(), StateSnapshot> {
        let ahead = queue.map_or(0, |queue| AHEAD | (queue as u64 * SHARED_ONE));
        let begin = |seen: StateSnapshot| {
            (seen.0 & (STATE | RELOCATED) == ABSENT).then_some(seen.0 & !(TOUCHES | MARK | AHEAD) | READING | ahead)
        };
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// The bytes are there.
    pub fn end_read(&self, hold: LockMode) -> DeferredWork {
        let before = self.update(Ordering::Release, |seen| {
            let state = match hold {
                LockMode::None => CLEAN,
                LockMode::Shared => CLEAN + SHARED_ONE,
                LockMode::Exclusive => DIRTY | EXCLUSIVE,
            };
            Some((seen.0 & !(STATE | AHEAD | QUEUE_NUMBER | WAITERS) | QUEUED) + state)
        });
        if hold == LockMode::Exclusive {
            fence(Ordering::Release);
        }
        Self::after(before, true)
    }

    /// The bytes could not be read; the memory has been given back.
    pub fn fail_read(&self) -> DeferredWork {
        let end = |seen: StateSnapshot| Some(seen.0 & !(STATE | AHEAD | QUEUE_NUMBER | WAITERS | MARK) | ABSENT);
        Self::after(self.update(Ordering::Release, end), false)
    }

    fn after(before: Result<StateSnapshot, StateSnapshot>, is_clean: bool) -> DeferredWork {
        // These changes are never refused: the page is the caller's.
        let (Ok(seen) | Err(seen)) = before;
        DeferredWork { wake: seen.0 & WAITERS != 0, enqueue: is_clean && seen.0 & QUEUED == 0 }
    }

    /// Claims a dirty page for writing it to the device. Readers may come and go meanwhile.
    ///
    /// # Errors
    /// The page isn't dirty, or a thread has it locked exclusively.
    pub fn begin_write(&self) -> Result<(), StateSnapshot> {
        let begin = |seen: StateSnapshot| (seen.0 & (STATE | EXCLUSIVE) == DIRTY).then_some(seen.0 & !STATE | WRITING);
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// The page is on the device, or (`failed`) it isn't and stays dirty.
    pub fn end_write(&self, failed: bool) -> DeferredWork {
        let end = |seen: StateSnapshot| {
            Some(if failed {
                seen.0 & !(STATE | WAITERS) | DIRTY
            } else {
                seen.0 & !(STATE | WAITERS) | CLEAN | QUEUED
            })
        };
        Self::after(self.update(Ordering::Release, end), !failed)
    }

    /// Claims a clean page that no thread has locked, in order to give its memory back. `dequeued`: its entry in the queue of clean
    /// pages has been taken out.
    ///
    /// # Errors
    /// The page is not clean, or a thread has it locked or leased.
    pub fn begin_evict(&self, dequeued: bool) -> Result<(), StateSnapshot> {
        let gone = if dequeued { QUEUED } else { 0 };
        let begin = |seen: StateSnapshot| {
            (seen.0 & (STATE | EXCLUSIVE | SHARED | LEASES | RELOCATED) == CLEAN)
                .then_some(seen.0 & !(STATE | TOUCHES | MARK | gone) | EVICTING)
        };
        self.update(Ordering::Acquire, begin)?;
        // As in `try_lock_exclusive`, and stronger: it isn't this thread that changes the bytes, but the kernel.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The memory has been given back.
    pub fn end_evict(&self) -> DeferredWork {
        let end = |seen: StateSnapshot| Some((seen.0 & !(STATE | WAITERS) | ABSENT).wrapping_add(VERSION_ONE));
        Self::after(self.update(Ordering::Release, end), false)
    }

    /// The memory of a page that was claimed for its eviction has been given the file's new bytes instead, and the page stays. That counts
    /// as a touch.
    pub fn end_overwrite(&self) -> DeferredWork {
        let end = |seen: StateSnapshot| {
            Some((seen.0 & !(STATE | WAITERS) | CLEAN | QUEUED | TOUCH_ONE).wrapping_add(VERSION_ONE))
        };
        Self::after(self.update(Ordering::Release, end), true)
    }

    /// The file has other bytes than the page had when it was evicted: its version goes up, so copies that were made of it are stale.
    ///
    /// # Errors
    /// The page is not absent.
    pub fn outdate(&self) -> Result<(), StateSnapshot> {
        let outdated = |seen: StateSnapshot| (seen.0 & STATE == ABSENT).then_some(seen.0.wrapping_add(VERSION_ONE));
        // A thread that reads the page from here on sees the version, and what its caller has done to the file before.
        self.update(Ordering::AcqRel, outdated).map(drop)
    }

    /// The page's entry has been taken out of the queue of clean pages because the page isn't clean.
    ///
    /// # Errors
    /// It is clean by now and must stay in the queue.
    pub fn dequeue(&self) -> Result<(), StateSnapshot> {
        self.update(Ordering::Relaxed, |seen| (seen.0 & STATE != CLEAN).then_some(seen.0 & !QUEUED)).map(drop)
    }

    /// Touches since they were last lowered, at most [`MOST_TOUCHES`].
    pub fn touches(&self) -> u8 {
        ((self.0.load(Ordering::Relaxed) & TOUCHES) >> TOUCH_SHIFT) as u8
    }

    /// Lowers the touches to `most`.
    pub fn decay(&self, most: u8) {
        let lowered = u64::from(most.min(MOST_TOUCHES)) << TOUCH_SHIFT;
        let _ =
            self.update(Ordering::Relaxed, |seen| (seen.0 & TOUCHES > lowered).then_some(seen.0 & !TOUCHES | lowered));
    }

    /// The next touch of the page starts more read-ahead. Only for a page that is being read or is there.
    pub fn mark(&self) {
        let _ = self.update(Ordering::Relaxed, |seen| {
            matches!(seen.0 & STATE, READING | CLEAN | DIRTY | WRITING).then_some(seen.0 | MARK)
        });
    }

    /// Takes the mark away; whether it was there.
    pub fn unmark(&self) -> bool {
        self.0.fetch_and(!MARK, Ordering::Relaxed) & MARK != 0
    }

    /// Waits until `ready` and returns the state as it was then: spins for a moment, then sleeps.
    pub fn wait(&self, parking: &impl WaitQueue, ready: impl Fn(StateSnapshot) -> bool) -> StateSnapshot {
        let mut seen = self.load();
        for _ in 0..SPINS {
            if ready(seen) {
                return seen;
            }
            std::hint::spin_loop();
            seen = self.load();
        }
        while !ready(seen) {
            let flagged = StateSnapshot(seen.0 | WAITERS);
            if seen != flagged
                && let Err(now) = self.0.compare_exchange(seen.0, flagged.0, Ordering::Relaxed, Ordering::Acquire)
            {
                seen = StateSnapshot(now);
                continue;
            }
            parking.park(self, flagged.low());
            seen = self.load();
        }
        seen
    }
}

/// Times that a thread loads the state before it sleeps; a page is locked for less than that most of the time.
#[cfg(not(loom))]
const SPINS: usize = 100;
#[cfg(loom)]
const SPINS: usize = 0;

#[cfg(all(test, not(loom)))]
mod tests;
