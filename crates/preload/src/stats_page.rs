//! The page that a parent and its children share, as Apache's scoreboard: on it a child says that it is about to end, and
//! waits for the answer.
//!
//! Relies on a shared mapping made before the fork and on futexes, which may be used in the child of a fork. No file
//! descriptor is involved, so a child that closes all of them, or reuses their numbers, is not harmed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quire_sys::futex::{self, FutexScope};

/// Children that can be known at a time; an older one that still lives is forgotten.
pub const SLOTS: usize = 64;

/// The child runs and the parent does not ask for its end.
const RUNNING: u32 = 1;
/// The parent's thread wants to look at memory before the child ends.
const TRACKED: u32 = 2;
/// The child waits before its end.
const ENDING: u32 = 3;
/// The child may go.
const RELEASED: u32 = 4;

/// The shared page.
#[derive(Debug)]
#[repr(C)]
pub struct StatsPage {
    /// Changes with everything that the thread in the parent has to look at.
    events: AtomicU32,
    slots: [Slot; SLOTS],
}

const _: () = assert!(std::mem::size_of::<StatsPage>() <= quire_sys::mem::PAGE_SIZE);

/// Where one child and its parent meet. All zero before its first use.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// Which child it is for; it changes with every use, so that a forgotten child finds it taken.
    generation: AtomicU32,
    state: AtomicU32,
}

/// A child's slot on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    /// Which of the slots, and which use of it.
    generation: u32,
}

impl SlotId {
    /// The slot as a number that is never 0.
    pub fn raw(self) -> u32 {
        self.generation
    }

    /// The slot of that number.
    pub fn from_raw(generation: u32) -> Self {
        Self { generation }
    }
}

impl StatsPage {
    /// The number to wait with: [`StatsPage::wait`] returns at once if anything was reported since.
    pub fn events(&self) -> u32 {
        self.events.load(Ordering::Acquire)
    }

    /// Reports that something has happened.
    pub fn report(&self) {
        self.events.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.events, FutexScope::Shared);
    }

    /// Sleeps until something is reported after `events` was read, at most for `limit`.
    pub fn wait(&self, events: u32, limit: Option<Duration>) {
        futex::wait(&self.events, events, limit, FutexScope::Shared);
    }

    /// A slot for the `count`th child, before it is made.
    pub fn take(&self, count: u32) -> SlotId {
        let slot_id = SlotId { generation: count.max(1) };
        let slot = self.slot(slot_id);
        slot.state.store(RUNNING, Ordering::Relaxed);
        slot.generation.store(slot_id.generation, Ordering::Release);
        slot_id
    }

    fn slot(&self, slot_id: SlotId) -> &Slot {
        &self.slots[slot_id.generation as usize % SLOTS]
    }

    /// In the parent: asks the child to say when it is about to end.
    pub fn track(&self, slot_id: SlotId) {
        let state = &self.slot(slot_id).state;
        // It fails only if the slot is in use for another child by now.
        let _ = state.compare_exchange(RUNNING, TRACKED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// In the parent: whether the child waits before its end.
    pub fn is_ending(&self, slot_id: SlotId) -> bool {
        self.slot(slot_id).state.load(Ordering::Acquire) == ENDING
    }

    /// In the parent: lets the child go, and does not ask it again.
    pub fn release(&self, slot_id: SlotId) {
        let state = &self.slot(slot_id).state;
        state.store(RELEASED, Ordering::Release);
        futex::wake_all(state, FutexScope::Shared);
    }

    /// In the child, about to end: if the parent asked to know, tells it and waits for its leave, at most for `limit`.
    pub fn announce_end(&self, slot_id: SlotId, limit: Duration) {
        let slot = self.slot(slot_id);
        if slot.generation.load(Ordering::Acquire) != slot_id.generation
            || slot.state.compare_exchange(TRACKED, ENDING, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        self.report();
        let until = Instant::now() + limit;
        while slot.state.load(Ordering::Acquire) == ENDING
            && slot.generation.load(Ordering::Relaxed) == slot_id.generation
        {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            futex::wait(&slot.state, ENDING, Some(left), FutexScope::Shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats_page() -> StatsPage {
        // As a fresh shared page would be.
        StatsPage {
            events: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot { generation: AtomicU32::new(0), state: AtomicU32::new(0) }),
        }
    }

    #[test]
    fn a_child_that_its_parent_did_not_ask_does_not_wait() {
        let stats_page = stats_page();
        let slot_id = stats_page.take(1);
        let began = Instant::now();
        stats_page.announce_end(slot_id, Duration::from_secs(20));
        assert!(
            began.elapsed() < Duration::from_secs(10) && !stats_page.is_ending(slot_id) && stats_page.events() == 0
        );
    }

    #[test]
    fn a_tracked_child_waits_until_it_is_released() {
        let stats_page = stats_page();
        let slot_id = stats_page.take(7);
        stats_page.track(slot_id);
        std::thread::scope(|scope| {
            let child = scope.spawn(|| stats_page.announce_end(slot_id, Duration::from_secs(60)));
            while !stats_page.is_ending(slot_id) {
                let events = stats_page.events();
                if !stats_page.is_ending(slot_id) {
                    stats_page.wait(events, Some(Duration::from_millis(50)));
                }
            }
            assert!(!child.is_finished());
            stats_page.release(slot_id);
        });
    }

    #[test]
    fn a_child_waits_no_longer_than_its_limit() {
        let stats_page = stats_page();
        let slot_id = stats_page.take(7);
        stats_page.track(slot_id);
        stats_page.announce_end(slot_id, Duration::from_millis(5));
        assert!(stats_page.is_ending(slot_id));
    }

    #[test]
    fn a_forgotten_child_finds_its_slot_taken() {
        let stats_page = stats_page();
        let old = stats_page.take(1);
        let new = stats_page.take(1 + SLOTS as u32);
        stats_page.track(new);
        stats_page.announce_end(old, Duration::from_secs(60));
        assert!(!stats_page.is_ending(new));
    }
}
