//! What is known of active defragmentation: what share of time it has, when its next slice is due, what it did. Relies on no clock but
//! those that it is told; `defrag` moves the data.

use std::time::{Duration, Instant};

use quire_store::DefragSummary;

/// How long nothing is moved after a cycle that was not worth its time: what is wasted lies where it can't be moved, or is being used again.
/// After each further one in a row it is twice as long, since a cycle looks at all data.
const REST: Duration = Duration::from_secs(10);
/// How often it is doubled at most, to about five minutes.
const MOST_DOUBLINGS: u32 = 5;
/// When so large a part more is wasted than when that cycle began, its outcome says nothing any more.
const GROWTH_PARTS: u64 = 8;
/// A cycle was worth it if it moved an object, or gave a page back, for each so many entries and pages that it looked at.
const WORTHWHILE_PARTS: u64 = 100;
/// What slices may make up for when commands have held them up. A slice is late by more than a millisecond where the loop has slept, too.
const LONGEST_DEBT: Duration = Duration::from_millis(20);

/// Figures of what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DefragStats {
    /// Objects that were moved.
    pub moved: u64,
    /// Objects that stayed, in slabs that are well filled.
    pub stayed: u64,
    /// Pages given back to the system out of regions in which something lives.
    pub released_pages: u64,
}

/// What a walk through all data has done so far.
#[derive(Debug, Default)]
struct CycleProgress {
    examined: u64,
    achieved: u64,
    /// Bytes that were wasted when it began, as far as was known then.
    wasted_bytes: u64,
}

/// Nothing is moved, whatever the fragmentation is.
#[derive(Debug)]
struct Rest {
    /// At the latest until then.
    until: Instant,
    /// As long as no more is wasted.
    most_wasted_bytes: u64,
}

/// What is known of active defragmentation.
#[derive(Debug, Default)]
pub struct DefragState {
    /// Percent of a processor; 0 while nothing is moved.
    share_percent: u32,
    /// The next slice, while something is moved.
    due: Option<Instant>,
    /// Since when it is.
    running_since: Option<Instant>,
    /// For how long it was before.
    ran_before: Duration,
    rest: Option<Rest>,
    /// How many rests there have been in a row, with no cycle between them that was worth its time.
    rests: u32,
    cycle: CycleProgress,
    /// Bytes that were wasted when that was last looked at.
    wasted_bytes: u64,
    /// What was done.
    pub stats: DefragStats,
}

impl DefragState {
    /// Percent of a processor that moving takes; 0 while nothing is moved.
    pub fn share_percent(&self) -> u32 {
        self.share_percent
    }

    /// When the next slice is due, if any is.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// For how long data has been moved this time, and in all.
    pub fn running(&self, now: Instant) -> (Duration, Duration) {
        let current = self.running_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        (current, self.ran_before + current)
    }

    /// Starts counting again (CONFIG RESETSTAT).
    pub fn reset_stats(&mut self) {
        self.stats = DefragStats::default();
        self.ran_before = Duration::ZERO;
        self.running_since = self.running_since.map(|_| Instant::now());
    }

    /// Begins, goes on or stops: so many percent of a processor are wanted now, 0 for none, since so many bytes are wasted. A rest that was
    /// begun goes on.
    pub fn set_share(&mut self, percent: u32, wasted_bytes: u64, now: Instant) {
        self.wasted_bytes = wasted_bytes;
        if self.rest.as_ref().is_some_and(|rest| wasted_bytes > rest.most_wasted_bytes) {
            (self.rest, self.rests) = (None, 0);
        }
        let rests = self.rest.as_ref().is_some_and(|rest| now < rest.until);
        self.share_percent = if rests { 0 } else { percent };
        if self.share_percent == 0 {
            self.stop(now);
        } else if self.due.is_none() {
            (self.due, self.running_since, self.rest) = (Some(now), Some(now), None);
            if self.cycle.examined == 0 {
                self.cycle.wasted_bytes = wasted_bytes;
            }
        }
    }

    /// Nothing is moved until a share is set again.
    pub fn stop(&mut self, now: Instant) {
        (self.share_percent, self.due) = (0, None);
        if let Some(since) = self.running_since.take() {
            self.ran_before += now.saturating_duration_since(since);
        }
    }

    /// The setting is off: when it is on again nothing is waited for.
    pub fn switch_off(&mut self, now: Instant) {
        self.stop(now);
        (self.rest, self.rests, self.cycle) = (None, 0, CycleProgress::default());
    }

    /// Nothing is moved for a while, unless much more is wasted than `wasted_bytes`.
    fn rest(&mut self, wasted_bytes: u64, now: Instant) {
        self.stop(now);
        self.rest = Some(Rest {
            until: now + REST * (1 << self.rests.min(MOST_DOUBLINGS)),
            most_wasted_bytes: wasted_bytes.saturating_add(wasted_bytes / GROWTH_PARTS),
        });
        self.rests = self.rests.saturating_add(1);
    }

    /// A step has failed: nothing is moved for a while.
    pub fn note_failure(&mut self, now: Instant) {
        self.rest(u64::MAX, now);
    }

    /// Notes what a step did; false if none is to follow at once.
    pub fn note_step(&mut self, step: DefragSummary, now: Instant) -> bool {
        let (moved, released_pages) = (step.moved as u64, step.released_pages as u64);
        self.stats.moved += moved;
        self.stats.stayed += step.stayed as u64;
        self.stats.released_pages += released_pages;
        self.cycle.examined += step.examined as u64;
        self.cycle.achieved += moved + released_pages;
        if step.is_cycle_done {
            let next = CycleProgress { wasted_bytes: self.wasted_bytes, ..CycleProgress::default() };
            let cycle = std::mem::replace(&mut self.cycle, next);
            if cycle.achieved == 0 || cycle.achieved * WORTHWHILE_PARTS < cycle.examined {
                self.rest(cycle.wasted_bytes, now);
                return false;
            }
            self.rests = 0;
        } else if step.examined == 0 {
            // The store can't move anything now; it is asked again when the share is set the next time.
            self.stop(now);
            return false;
        }
        true
    }

    /// Notes that a slice took until `now`; the next one is due when the share allows it.
    pub fn note_slice(&mut self, took: Duration, now: Instant) {
        if let Some(due) = self.due {
            let from = now.checked_sub(LONGEST_DEBT).map_or(due, |earliest| due.max(earliest));
            self.due = Some(from + took * 100 / self.share_percent.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WASTED: u64 = 1 << 30;
    const MS: Duration = Duration::from_millis(1);

    fn step(examined: usize, moved: usize, is_cycle_done: bool) -> DefragSummary {
        DefragSummary { examined, moved, is_cycle_done, ..DefragSummary::default() }
    }

    #[test]
    fn slices_take_their_share_of_the_time() {
        for (percent, expected_ms) in [(1, 10), (25, 250), (75, 750)] {
            let (mut state, begin) = (DefragState::default(), Instant::now());
            state.set_share(percent, WASTED, begin);
            let (mut now, mut spent) = (begin, Duration::ZERO);
            while now < begin + 1000 * MS {
                if state.due().is_some_and(|due| due <= now) {
                    let took = Duration::from_micros(400);
                    (now, spent) = (now + took, spent + took);
                    state.note_slice(took, now);
                } else {
                    // The loop sleeps for longer than it was asked to.
                    now += 2 * MS;
                }
            }
            let differs = spent.as_millis().abs_diff(expected_ms);
            assert!(differs <= 3, "{percent}%: {spent:?} of a second");
        }
    }

    #[test]
    fn what_commands_held_up_for_long_is_not_made_up_for() {
        let (mut state, begin) = (DefragState::default(), Instant::now());
        state.set_share(50, WASTED, begin);
        let late = begin + 1000 * MS;
        state.note_slice(MS, late);
        assert_eq!(state.due(), Some(late - LONGEST_DEBT + 2 * MS));
    }

    #[test]
    fn a_cycle_that_was_not_worth_it_is_followed_by_a_rest() {
        let (mut state, begin) = (DefragState::default(), Instant::now());
        state.set_share(25, WASTED, begin);
        assert!(state.note_step(step(10_000, 0, false), begin));
        assert!(!state.note_step(step(0, 0, true), begin + MS));
        assert_eq!((state.share_percent(), state.due()), (0, None));
        state.set_share(25, WASTED, begin + MS + REST - MS);
        assert_eq!((state.share_percent(), state.due()), (0, None));
        state.set_share(25, WASTED, begin + MS + REST);
        assert!(state.share_percent() == 25 && state.due().is_some());
        // Much more is wasted than when the cycle began: a rest ends, and a bit more changes nothing.
        let wasted_bytes = WASTED + WASTED / GROWTH_PARTS;
        state.set_share(25, wasted_bytes, begin + MS);
        assert!(!state.note_step(step(1000, 9, true), begin + MS));
        state.set_share(25, wasted_bytes, begin + MS);
        assert_eq!(state.due(), None);
        state.set_share(25, wasted_bytes + 1, begin + MS);
        assert!(state.due().is_some());
        // As is one that hardly moved anything, but not one that gave pages back, and what was done before counts no more.
        assert!(state.note_step(step(100, 1, true), begin));
        assert!(state.note_step(DefragSummary { released_pages: 1, ..step(100, 0, true) }, begin));
        assert!(!state.note_step(step(101, 1, true), begin));
        assert!(state.due().is_none());
        // Switched off and on again it begins at once.
        state.switch_off(begin);
        state.set_share(25, WASTED, begin);
        assert!(state.due().is_some());
    }

    #[test]
    fn rests_in_a_row_get_longer() {
        let (mut state, mut now) = (DefragState::default(), Instant::now());
        let rest_after_a_cycle = |state: &mut DefragState, now: Instant, moved| {
            state.set_share(25, WASTED, now);
            assert!(state.due().is_some());
            state.note_step(step(1000, moved, true), now);
            (0..).find(|&seconds| {
                state.set_share(25, WASTED, now + seconds * 1000 * MS);
                state.due().is_some()
            })
        };
        for seconds in [10, 20, 40, 80, 160, 320, 320] {
            assert_eq!(rest_after_a_cycle(&mut state, now, 0), Some(seconds));
            now += seconds * 1000 * MS;
        }
        assert_eq!(rest_after_a_cycle(&mut state, now, 10), Some(0));
        assert_eq!(rest_after_a_cycle(&mut state, now, 9), Some(10));
        state.note_failure(now + 10_000 * MS);
        state.set_share(25, WASTED, now + 29_999 * MS);
        assert_eq!(state.due(), None);
        // Much more is wasted than when the cycle began that was not worth it.
        let (mut state, now) = (DefragState::default(), Instant::now());
        (0..5).for_each(|_| state.rest(WASTED, now));
        state.set_share(25, 2 * WASTED, now);
        assert_eq!(rest_after_a_cycle(&mut state, now, 0), Some(10));
    }

    #[test]
    fn a_store_that_can_not_move_is_not_asked_again_at_once_and_does_not_rest() {
        let (mut state, begin) = (DefragState::default(), Instant::now());
        state.set_share(25, WASTED, begin);
        assert!(!state.note_step(DefragSummary::default(), begin + 5 * MS));
        assert_eq!((state.due(), state.running(begin + 7 * MS)), (None, (Duration::ZERO, 5 * MS)));
        state.note_slice(MS, begin + 5 * MS);
        assert_eq!(state.due(), None);
        state.set_share(25, WASTED, begin + 10 * MS);
        assert_eq!((state.due(), state.running(begin + 12 * MS)), (Some(begin + 10 * MS), (2 * MS, 7 * MS)));
    }

    #[test]
    fn figures_add_up_until_they_are_reset() {
        let (mut state, begin) = (DefragState::default(), Instant::now());
        let one = DefragSummary { stayed: 5, released_pages: 8, ..step(10, 3, false) };
        assert!(state.note_step(one, begin) && state.note_step(one, begin));
        assert_eq!(state.stats, DefragStats { moved: 6, stayed: 10, released_pages: 16 });
        state.reset_stats();
        assert_eq!(state.stats, DefragStats::default());
    }
}
