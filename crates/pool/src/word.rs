//! What has become of one page, who uses it, and how it gets from one state to the next: one atomic word.
//!
//! ```text
//!          begin_read            end_read                     exclude
//!   absent ─────────▶ reading ─────────────▶ clean ─────────────────────────▶ dirty ◀─┐ failed
//!     ▲ ▲               │ fail_read          │   ▲                             │      │
//!     │ └───────────────┘                    │   │ end_write                   │ begin_write
//!     │                         begin_evict  │   └────────────────── writing ◀─┴──────┘
//!     └───────────── evicting ◀──────────────┘
//!        end_evict
//! ```
//! Clean, dirty and writing pages can be read, by any number of threads ([`Word::share`]) or by nobody's leave at all
//! ([`Word::look`], asked afterwards with [`Word::still`]). Only one thread at a time changes a page ([`Word::exclude`]),
//! when nobody reads it and it is not being written. Only a clean page that nobody uses is evicted.
//!
//! ```text
//!  63       32 31      16 15     14      9 8      7      6       5         4 3     2 0
//!  [ version ][ shared  ][mark ][  lane   ][ahead][queued][waiters][exclusive][touches][state]
//! ```
//! The version goes up whenever the bytes change or go: when an exclusive user leaves and when the page is evicted. All
//! zero is an absent page, so words need no setting up.
//!
//! Waiting: who finds the page in a state that doesn't suit sets `waiters` and sleeps while the low half stays as it was;
//! every change that somebody may wait for clears the bit and wakes all. Relies on nothing; every interleaving is
//! explored in `tests/loom.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

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
const LANE_SHIFT: u32 = 9;
const LANE: u64 = 0b11_1111 << LANE_SHIFT;
const MARK: u64 = 1 << 15;
const SHARED_ONE: u64 = 1 << 16;
const SHARED: u64 = 0xffff << 16;
const VERSION_SHIFT: u32 = 32;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;

/// Most touches that a word remembers.
pub const MOST_TOUCHES: u8 = 3;
/// Lanes that a word can name.
pub const MOST_LANES: usize = 64;

/// State of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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

/// A word as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// State of the page.
    pub fn state(self) -> State {
        match self.0 & STATE {
            ABSENT => State::Absent,
            READING => State::Reading,
            EVICTING => State::Evicting,
            CLEAN => State::Clean,
            DIRTY => State::Dirty,
            _ => State::Writing,
        }
    }

    /// Whether somebody may be changing the page.
    pub fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// Users that read the page.
    pub fn shared(self) -> u64 {
        (self.0 & SHARED) / SHARED_ONE
    }

    /// Whether a touch of this page is to start more read-ahead.
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// The lane that reads the page ahead of its use.
    pub fn lane(self) -> Option<usize> {
        (self.0 & (AHEAD | STATE) == AHEAD | READING).then_some(((self.0 & LANE) >> LANE_SHIFT) as usize)
    }

    /// Counts the changes of the page's bytes.
    pub fn version(self) -> u32 {
        (self.0 >> VERSION_SHIFT) as u32
    }

    /// Whether [`Word::share`] would succeed.
    pub fn can_share(self) -> bool {
        self.0 & (READABLE | EXCLUSIVE | MARK) == READABLE && self.0 & SHARED != SHARED
    }

    /// Whether [`Word::exclude`] would succeed.
    pub fn can_exclude(self) -> bool {
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

/// How a page that has just been read is used by whoever had it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Not at all.
    None,
    /// Read.
    Shared,
    /// Changed: it is dirty from the start.
    Exclusive,
}

/// What a change of state leaves to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct After {
    /// Somebody waits and must be woken ([`Parking::unpark_all`]).
    pub wake: bool,
    /// The page must be entered in a queue of clean pages.
    pub enqueue: bool,
}

/// How threads sleep at a word.
pub trait Parking {
    /// Sleeps while the low half of `word` is `low`. May return for no reason.
    fn park(&self, word: &Word, low: u32);
    /// Wakes everybody who sleeps at `word`.
    fn unpark_all(&self, word: &Word);
}

/// The word of a page.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// The word of an absent page.
    #[cfg(any(test, loom))]
    #[expect(clippy::new_without_default, reason = "for tests")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The word now.
    #[inline]
    pub fn seen(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// The word itself, for sleeping at it.
    pub fn atomic(&self) -> &AtomicU64 {
        &self.0
    }

    /// Changes the word as `change` says until it holds; `change` may refuse.
    #[inline]
    fn update(&self, order: Ordering, mut change: impl FnMut(Seen) -> Option<u64>) -> Result<Seen, Seen> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let Some(next) = change(Seen(seen)) else { return Err(Seen(seen)) };
            match self.0.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
                Ok(_) => return Ok(Seen(seen)),
                Err(now) => seen = now,
            }
        }
    }

    /// Begins to read the page's bytes, which stay as they are until [`Word::unshare`].
    ///
    /// # Errors
    /// The bytes aren't there, or somebody may be changing them, or the page is marked.
    #[inline]
    pub fn share(&self) -> Result<(), Seen> {
        let begin = |seen: Seen| seen.can_share().then(|| seen.touched() + SHARED_ONE);
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// Ends what [`Word::share`] began. Whether somebody must be woken.
    #[inline]
    pub fn unshare(&self) -> bool {
        let before = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        // Somebody may wait for nobody to read, or for one reader less than the most there can be.
        before & WAITERS != 0 && matches!(before & SHARED, SHARED_ONE | SHARED) && self.take_waiters()
    }

    /// Begins to change the page's bytes: nobody else uses them until [`Word::unexclude`]. Returns whether the page was
    /// clean, and so has become dirty now.
    ///
    /// # Errors
    /// The bytes aren't there, or somebody uses them, or they are being written to the device, or the page is marked.
    #[inline]
    pub fn exclude(&self) -> Result<bool, Seen> {
        let begin = |seen: Seen| seen.can_exclude().then(|| (seen.touched() | EXCLUSIVE) & !STATE | DIRTY);
        let before = self.update(Ordering::Acquire, begin)?;
        // Who sees a byte that is changed from here on sees the bit, too, when it asks whether the page is still the same.
        fence(Ordering::Release);
        Ok(before.0 & STATE == CLEAN)
    }

    /// Ends what [`Word::exclude`] began. Whether somebody must be woken.
    #[inline]
    pub fn unexclude(&self) -> bool {
        let before = self.0.fetch_add(VERSION_ONE - EXCLUSIVE, Ordering::Release);
        before & WAITERS != 0 && self.take_waiters()
    }

    /// Clears the waiters' bit; whoever had set it before must be woken.
    fn take_waiters(&self) -> bool {
        self.0.fetch_and(!WAITERS, Ordering::Relaxed) & WAITERS != 0
    }

    /// Begins a look at the bytes without keeping anybody from changing or evicting them.
    ///
    /// # Errors
    /// The bytes aren't there, or somebody may be changing them, or the page is marked.
    #[inline]
    pub fn look(&self) -> Result<Seen, Seen> {
        let seen = self.seen();
        if seen.0 & (READABLE | EXCLUSIVE | MARK) == READABLE { Ok(seen) } else { Err(seen) }
    }

    /// Whether the bytes seen since [`Word::look`] were those of the page all the time.
    #[inline]
    pub fn still(&self, since: Seen) -> bool {
        fence(Ordering::Acquire);
        let now = self.0.load(Ordering::Relaxed);
        now & (READABLE | EXCLUSIVE) == READABLE && now >> VERSION_SHIFT == since.0 >> VERSION_SHIFT
    }

    /// Remembers a look that was none of the word's business; writes only if there is something new to remember.
    #[inline]
    pub fn touch(&self, seen: Seen) {
        if seen.0 & TOUCHES != TOUCHES {
            // If somebody else has changed the word meanwhile, this touch is forgotten: it is only a hint.
            let _ = self.0.compare_exchange(seen.0, seen.touched(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Claims an absent page for reading it from the device, on behalf of a lane if it is ahead of its use.
    ///
    /// # Errors
    /// The page isn't absent any more.
    pub fn begin_read(&self, lane: Option<usize>) -> Result<(), Seen> {
        let ahead = lane.map_or(0, |lane| AHEAD | (lane as u64) << LANE_SHIFT);
        let begin = |seen: Seen| {
            (seen.0 & STATE == ABSENT).then_some(seen.0 & !(TOUCHES | MARK | AHEAD | LANE) | READING | ahead)
        };
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// The bytes are there.
    pub fn end_read(&self, hold: Hold) -> After {
        let before = self.update(Ordering::Release, |seen| {
            let state = match hold {
                Hold::None => CLEAN,
                Hold::Shared => CLEAN + SHARED_ONE,
                Hold::Exclusive => DIRTY | EXCLUSIVE,
            };
            Some((seen.0 & !(STATE | AHEAD | LANE | WAITERS) | QUEUED) + state)
        });
        if hold == Hold::Exclusive {
            fence(Ordering::Release);
        }
        Self::after(before, true)
    }

    /// The bytes could not be read; the memory has been given back.
    pub fn fail_read(&self) -> After {
        let end = |seen: Seen| Some(seen.0 & !(STATE | AHEAD | LANE | WAITERS | MARK) | ABSENT);
        Self::after(self.update(Ordering::Release, end), false)
    }

    fn after(before: Result<Seen, Seen>, is_clean: bool) -> After {
        // These changes are never refused: the page is the caller's.
        let (Ok(seen) | Err(seen)) = before;
        After { wake: seen.0 & WAITERS != 0, enqueue: is_clean && seen.0 & QUEUED == 0 }
    }

    /// Claims a dirty page for writing it to the device. Readers may come and go meanwhile.
    ///
    /// # Errors
    /// The page isn't dirty, or somebody is changing it.
    pub fn begin_write(&self) -> Result<(), Seen> {
        let begin = |seen: Seen| (seen.0 & (STATE | EXCLUSIVE) == DIRTY).then_some(seen.0 & !STATE | WRITING);
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// The page is on the device, or (`failed`) it isn't and stays dirty.
    pub fn end_write(&self, failed: bool) -> After {
        let end = |seen: Seen| {
            Some(if failed {
                seen.0 & !(STATE | WAITERS) | DIRTY
            } else {
                seen.0 & !(STATE | WAITERS) | CLEAN | QUEUED
            })
        };
        Self::after(self.update(Ordering::Release, end), !failed)
    }

    /// Claims a clean page that nobody uses, in order to give its memory back. `dequeued`: its entry in the queue of clean
    /// pages has been taken out.
    ///
    /// # Errors
    /// The page is not clean, or somebody uses it.
    pub fn begin_evict(&self, dequeued: bool) -> Result<(), Seen> {
        let gone = if dequeued { QUEUED } else { 0 };
        let begin = |seen: Seen| {
            (seen.0 & (STATE | EXCLUSIVE | SHARED) == CLEAN)
                .then_some(seen.0 & !(STATE | TOUCHES | MARK | gone) | EVICTING)
        };
        self.update(Ordering::Acquire, begin)?;
        // As in `exclude`, and stronger: it isn't this thread that changes the bytes, but the kernel.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The memory has been given back.
    pub fn end_evict(&self) -> After {
        let end = |seen: Seen| Some((seen.0 & !(STATE | WAITERS) | ABSENT).wrapping_add(VERSION_ONE));
        Self::after(self.update(Ordering::Release, end), false)
    }

    /// The page's entry has been taken out of the queue of clean pages because the page isn't clean.
    ///
    /// # Errors
    /// It is clean by now and must stay in the queue.
    pub fn dequeue(&self) -> Result<(), Seen> {
        self.update(Ordering::Relaxed, |seen| (seen.0 & STATE != CLEAN).then_some(seen.0 & !QUEUED)).map(drop)
    }

    /// Touches since they were last lowered, at most [`MOST_TOUCHES`].
    pub fn touches(&self) -> u8 {
        ((self.0.load(Ordering::Relaxed) & TOUCHES) >> TOUCH_SHIFT) as u8
    }

    /// Lowers the touches to `most`.
    pub fn cool(&self, most: u8) {
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

    /// Waits until `ready` and returns the word as it was then: spins for a moment, then sleeps.
    pub fn wait(&self, parking: &impl Parking, ready: impl Fn(Seen) -> bool) -> Seen {
        let mut seen = self.seen();
        for _ in 0..SPINS {
            if ready(seen) {
                return seen;
            }
            std::hint::spin_loop();
            seen = self.seen();
        }
        while !ready(seen) {
            let flagged = Seen(seen.0 | WAITERS);
            if seen != flagged
                && let Err(now) = self.0.compare_exchange(seen.0, flagged.0, Ordering::Relaxed, Ordering::Acquire)
            {
                seen = Seen(now);
                continue;
            }
            parking.park(self, flagged.low());
            seen = self.seen();
        }
        seen
    }
}

/// Looks before sleeping; a page is locked for less than that most of the time.
#[cfg(not(loom))]
const SPINS: usize = 100;
#[cfg(loom)]
const SPINS: usize = 0;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn clean() -> Word {
        let word = Word::new();
        word.begin_read(None).unwrap();
        assert_eq!(word.end_read(Hold::None), After { wake: false, enqueue: true });
        word
    }

    #[test]
    fn a_page_goes_through_its_life() {
        let word = clean();
        word.share().unwrap();
        assert_eq!(word.seen().shared(), 1);
        assert!(word.exclude().is_err() && word.begin_evict(true).is_err());
        assert!(!word.unshare());
        assert!(word.exclude().unwrap(), "it was clean");
        assert!(word.share().is_err() && word.begin_write().is_err());
        assert!(!word.unexclude());
        assert_eq!((word.seen().state(), word.seen().version()), (State::Dirty, 1));
        assert!(word.begin_evict(true).is_err());
        word.begin_write().unwrap();
        word.share().unwrap();
        assert!(word.exclude().is_err(), "a page that is being written is not changed");
        assert_eq!(word.end_write(false), After::default(), "it is still in its queue");
        assert!(!word.unshare());
        word.begin_evict(true).unwrap();
        assert_eq!(word.end_evict(), After::default());
        assert_eq!((word.seen().state(), word.seen().version(), word.touches()), (State::Absent, 2, 0));
    }

    #[test]
    fn a_page_read_in_order_to_change_it_is_never_clean() {
        let word = Word::new();
        word.begin_read(None).unwrap();
        assert_eq!(word.end_read(Hold::Exclusive), After { wake: false, enqueue: true });
        assert!(word.seen().is_exclusive());
        assert_eq!(word.seen().state(), State::Dirty);
        assert!(!word.unexclude());
        assert_eq!(word.seen().shared(), 0);
    }

    #[test]
    fn a_failed_write_leaves_the_page_dirty_and_a_failed_read_leaves_it_absent() {
        let word = clean();
        assert!(word.exclude().unwrap());
        let _ = word.unexclude();
        word.begin_write().unwrap();
        assert_eq!(word.end_write(true), After::default());
        assert_eq!(word.seen().state(), State::Dirty);

        let word = Word::new();
        word.begin_read(Some(5)).unwrap();
        assert_eq!(word.seen().lane(), Some(5));
        let _ = word.fail_read();
        assert_eq!((word.seen().state(), word.seen().lane()), (State::Absent, None));
    }

    #[test]
    fn touches_count_to_three_and_cool() {
        let word = clean();
        for expected in [1, 2, 3, 3] {
            word.share().unwrap();
            let _ = word.unshare();
            assert_eq!(word.touches(), expected);
        }
        word.cool(1);
        word.cool(2);
        assert_eq!(word.touches(), 1);
        word.touch(word.seen());
        assert_eq!(word.touches(), 2);
    }

    #[test]
    fn a_look_is_refuted_by_a_change_and_by_an_eviction_but_not_by_readers_and_writeback() {
        let word = clean();
        let look = word.look().unwrap();
        word.share().unwrap();
        let _ = word.unshare();
        assert!(word.still(look));
        assert!(word.exclude().unwrap());
        assert!(!word.still(look));
        let _ = word.unexclude();
        assert!(!word.still(look));
        let look = word.look().unwrap();
        word.begin_write().unwrap();
        let _ = word.end_write(false);
        assert!(word.still(look));
        word.begin_evict(true).unwrap();
        assert!(!word.still(look));
        let _ = word.end_evict();
        word.begin_read(None).unwrap();
        let _ = word.end_read(Hold::None);
        assert!(!word.still(look));
    }

    #[test]
    fn an_entry_stays_queued_until_it_is_taken_out() {
        let word = clean();
        assert!(word.dequeue().is_err());
        word.begin_evict(false).unwrap();
        let _ = word.end_evict();
        word.begin_read(None).unwrap();
        assert!(!word.end_read(Hold::None).enqueue, "its old entry is still there");
        assert!(word.exclude().unwrap());
        let _ = word.unexclude();
        word.dequeue().unwrap();
        word.begin_write().unwrap();
        assert!(word.end_write(false).enqueue);
    }

    #[test]
    fn a_marked_page_is_passed_on_once() {
        let word = clean();
        word.mark();
        assert!(word.share().unwrap_err().is_marked());
        assert!(word.unmark() && !word.unmark());
        word.share().unwrap();
    }

    #[test]
    fn no_more_readers_come_in_than_can_be_counted() {
        let word = clean();
        (0..0xffff).for_each(|_| word.share().unwrap());
        assert!(word.share().is_err());
        assert_eq!(word.seen().version(), 0);
        let _ = word.unshare();
        word.share().unwrap();
    }

    #[test]
    fn a_version_that_wraps_touches_nothing_else() {
        let word = clean();
        word.0.fetch_or(u64::MAX << VERSION_SHIFT, Ordering::Relaxed);
        assert!(word.exclude().unwrap());
        let _ = word.unexclude();
        assert_eq!((word.seen().version(), word.seen().state()), (0, State::Dirty));
    }
}
