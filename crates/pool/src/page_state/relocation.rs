//! Leases of a page's bytes, and what they make of its state: the page is relocated while its address shows leased bytes that are
//! not the page's any more.
//!
//! ```text
//!                begin_relocate, end_relocate                    begin_move_back, end_move_back
//!   leased, clean or dirty ─────────────▶ relocated, exclusive, dirty ─ ─ ─ ─ ▶ no lease left ────────────▶ as every page
//!            │ detach                        ▲ end_read
//!            ▼         begin_read_relocated  │
//!   relocated, absent ───────────────▶ relocated, reading
//! ```
//! Relies on locks being of the page's bytes, wherever these are, and leases of those at its address only. A lease is begun where both are
//! the same; the number of leases of a relocated page only goes down. So a thread that finds a relocated page without a lease may use
//! its address again.

use super::{
    ABSENT, AHEAD, CLEAN, DIRTY, EVICTING, EXCLUSIVE, LEASE_ONE, LEASES, MARK, PageState, READABLE, READING, RELOCATED,
    SHARED, SHARED_ONE, STATE, StateSnapshot, TOUCHES, VERSION_ONE, WAITERS,
};
use super::{DeferredWork, Ordering, fence};

/// What the end of a lease has left of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEnd {
    /// No other lease of these bytes is left.
    pub is_last: bool,
    /// The page is elsewhere, and can be moved back if this was the last lease.
    pub is_relocated: bool,
}

impl StateSnapshot {
    /// Leases of the bytes at the page's address.
    pub fn leases(self) -> u64 {
        (self.0 & LEASES) / LEASE_ONE
    }

    /// Whether no further lease can be counted.
    pub fn is_leased_out(self) -> bool {
        self.0 & LEASES == LEASES
    }

    /// Whether the page's bytes are not those at its address.
    pub fn is_relocated(self) -> bool {
        self.0 & RELOCATED != 0
    }

    fn can_lease(self) -> bool {
        self.0 & (READABLE | EXCLUSIVE | MARK | RELOCATED) == READABLE && !self.is_leased_out()
    }

    /// No thread has the page locked, and it is not on its way to the device.
    fn is_idle(self) -> bool {
        self.0 & (EXCLUSIVE | SHARED) == 0 && matches!(self.0 & STATE, CLEAN | DIRTY)
    }

    /// Whether [`PageState::begin_relocate`] would succeed.
    pub fn can_relocate(self) -> bool {
        self.is_idle() && self.0 & (MARK | RELOCATED) == 0 && self.leases() > 0
    }
}

impl PageState {
    /// Leases the bytes at the page's address: they stay there as they are until [`PageState::end_lease`]. Returns whether this is the first
    /// lease of them.
    ///
    /// # Errors
    /// The page's bytes aren't there, or a thread has it locked exclusively, or the page is marked, or leased as often as can be counted.
    #[inline]
    pub fn try_lease(&self) -> Result<bool, StateSnapshot> {
        let begin = |seen: StateSnapshot| seen.can_lease().then(|| seen.touched() + LEASE_ONE);
        self.update(Ordering::Acquire, begin).map(|before| before.leases() == 0)
    }

    /// As [`PageState::try_lease`], of a page that the caller has locked shared, whether it is marked or not.
    ///
    /// # Errors
    /// The page is relocated, or leased as often as can be counted.
    pub fn lease_locked(&self) -> Result<bool, StateSnapshot> {
        let begin = |seen: StateSnapshot| (!seen.is_relocated() && !seen.is_leased_out()).then_some(seen.0 + LEASE_ONE);
        self.update(Ordering::Acquire, begin).map(|before| before.leases() == 0)
    }

    /// Ends a lease. What the caller has read of the bytes was read before other bytes come to their place.
    #[inline]
    pub fn end_lease(&self) -> LeaseEnd {
        let before = StateSnapshot(self.0.fetch_sub(LEASE_ONE, Ordering::Release));
        LeaseEnd { is_last: before.leases() == 1, is_relocated: before.is_relocated() }
    }

    /// As [`PageState::try_lock_shared`], wherever the page's bytes are. Returns whether the page is relocated; it stays so, or not, while
    /// it is locked.
    ///
    /// # Errors
    /// The bytes are nowhere, or a thread has the page locked exclusively, or the page is marked.
    pub fn try_lock_shared_anywhere(&self) -> Result<bool, StateSnapshot> {
        let begin = |seen: StateSnapshot| seen.can_lock_shared().then(|| seen.touched() + SHARED_ONE);
        self.update(Ordering::Acquire, begin).map(StateSnapshot::is_relocated)
    }

    /// As [`PageState::try_lock_exclusive`], wherever the page's bytes are. Returns the state before.
    ///
    /// # Errors
    /// As there, but that a relocated page may be leased.
    pub fn try_lock_exclusive_anywhere(&self) -> Result<StateSnapshot, StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            let is_free = seen.leases() == 0 || seen.is_relocated();
            (is_free && seen.can_lock_exclusive()).then(|| (seen.touched() | EXCLUSIVE) & !STATE | DIRTY)
        };
        let before = self.update(Ordering::Acquire, begin)?;
        // As in `try_lock_exclusive`.
        fence(Ordering::Release);
        Ok(before)
    }

    /// Locks a leased page exclusively, in order to relocate it: the bytes at its address stay as they are. Returns whether the page
    /// was clean, and so has become dirty now.
    ///
    /// # Errors
    /// The page isn't leased any more, or already relocated, or one of the reasons of [`PageState::try_lock_exclusive`].
    pub fn begin_relocate(&self) -> Result<bool, StateSnapshot> {
        let begin = |seen: StateSnapshot| seen.can_relocate().then(|| (seen.touched() | EXCLUSIVE) & !STATE | DIRTY);
        self.update(Ordering::Acquire, begin).map(|before| before.0 & STATE == CLEAN)
    }

    /// The bytes of the page that is locked since [`PageState::begin_relocate`] are in another frame. It stays locked.
    pub fn end_relocate(&self) {
        self.0.fetch_or(RELOCATED, Ordering::Release);
    }

    /// The page, which the caller has locked exclusively and which is not leased, is at its address again. It stays locked.
    pub fn end_relocation_locked(&self) {
        self.0.fetch_and(!RELOCATED, Ordering::Release);
    }

    /// Locks a relocated page without a lease, in order to move it back to its address.
    ///
    /// # Errors
    /// It isn't relocated, or leased, or in use, or on its way to the device.
    pub fn begin_move_back(&self) -> Result<(), StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            (seen.is_idle() && seen.0 & (RELOCATED | LEASES) == RELOCATED).then_some(seen.0 | EXCLUSIVE)
        };
        self.update(Ordering::Acquire, begin)?;
        // A thread that looked at the page before it was relocated, and sees a byte that is stored from here on, sees this, too.
        fence(Ordering::Release);
        Ok(())
    }

    /// The page is at its address again.
    pub fn end_move_back(&self) -> DeferredWork {
        let end = |seen: StateSnapshot| Some((seen.0 & !(EXCLUSIVE | RELOCATED | WAITERS)).wrapping_add(VERSION_ONE));
        Self::after(self.update(Ordering::Release, end), false)
    }

    /// Forgets a clean page that is leased: it is absent from now on, and its address shows leased bytes.
    ///
    /// # Errors
    /// It isn't clean, or a thread has it locked, or it is not leased, or relocated already.
    pub fn detach(&self) -> Result<DeferredWork, StateSnapshot> {
        let detach = |seen: StateSnapshot| {
            let is_fit = seen.is_idle() && seen.0 & (STATE | RELOCATED) == CLEAN && seen.leases() > 0;
            let rest = seen.0 & !(STATE | TOUCHES | MARK | WAITERS);
            is_fit.then(|| (rest | ABSENT | RELOCATED).wrapping_add(VERSION_ONE))
        };
        self.update(Ordering::AcqRel, detach).map(|before| Self::after(Ok(before), false))
    }

    /// Claims a clean, relocated page that no thread has locked, in order to give its frame up. Its address may be leased.
    ///
    /// # Errors
    /// It isn't clean, or isn't relocated, or a thread has it locked.
    pub fn begin_evict_relocated(&self) -> Result<(), StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            (seen.is_idle() && seen.0 & (STATE | RELOCATED) == CLEAN | RELOCATED)
                .then_some(seen.0 & !(STATE | TOUCHES | MARK) | EVICTING)
        };
        self.update(Ordering::Acquire, begin).map(drop)
    }

    /// Claims a relocated, absent page whose leases have ended, in order to give the memory at its address back.
    ///
    /// # Errors
    /// It is leased, or isn't absent, or isn't relocated.
    pub fn begin_end_detached(&self) -> Result<(), StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            (seen.0 & (STATE | RELOCATED | LEASES) == ABSENT | RELOCATED).then_some(seen.0 & !STATE | EVICTING)
        };
        self.update(Ordering::Acquire, begin)?;
        // As in `begin_evict`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The memory at the page's address has been given back: the page is absent as every other.
    pub fn end_detached(&self) -> DeferredWork {
        let end =
            |seen: StateSnapshot| Some((seen.0 & !(STATE | RELOCATED | WAITERS) | ABSENT).wrapping_add(VERSION_ONE));
        Self::after(self.update(Ordering::Release, end), false)
    }

    /// Claims an absent page whose address shows leased bytes, for reading it into another frame.
    ///
    /// # Errors
    /// It isn't absent any more, or its address can be used.
    pub fn begin_read_relocated(&self) -> Result<(), StateSnapshot> {
        let begin = |seen: StateSnapshot| {
            (seen.0 & (STATE | RELOCATED) == ABSENT | RELOCATED).then_some(seen.0 & !(TOUCHES | MARK | AHEAD) | READING)
        };
        self.update(Ordering::Acquire, begin).map(drop)
    }
}
