//! The upkeep that views leave behind: folding, unmapping their windows, giving memory back, joining huge pages, copying
//! ahead of writers. One step at a time, so that a cut never waits for more than one.
//!
//! Relies on being done by one thread at a time (the lock in [`Upkeep`]'s owner): the keeper's, or whoever settles.

use std::sync::MutexGuard;
use std::time::Duration;

use quire_sys::map;
use quire_sys::mem::Reservation;

use super::ahead::{self, Ahead};
use super::fold;
use super::ledger::Sharing;
use super::memory::ASIDE_REGIONS;
use super::state::{Desk, State};
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Private pages, found beforehand, up to which neighbouring regions are folded at once: a bound on how long writers wait.
const FOLD_PAGES: usize = 128;
/// Bytes of a window that are unmapped at once: a bound on how long a cut waits for the address space.
const BURY_BYTES: usize = 64 << 20;
/// Failures in a row after which joining is put off.
const JOIN_FAILURES: usize = 4;
/// How often regions of origins whose views overlap are looked at.
const REFRESH_PERIOD: Duration = Duration::from_millis(50);

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more.
    Worked,
    /// Nothing to do until something changes, or until this time has passed.
    Rest(Option<Duration>),
}

/// Where the upkeep is.
pub(super) struct Upkeep {
    ahead: Ahead,
    fold_at: usize,
    join_at: usize,
    join_failures: usize,
    refresh_at: usize,
    /// Regions that could not be folded in this epoch; the next cut folds them.
    stuck: Vec<bool>,
    stuck_epoch: u64,
}

impl Upkeep {
    pub(super) fn new(regions: usize) -> Self {
        Self {
            ahead: Ahead::new(),
            fold_at: 0,
            join_at: 0,
            join_failures: 0,
            refresh_at: 0,
            stuck: vec![false; regions],
            stuck_epoch: 0,
        }
    }

    /// Does the next thing there is to do.
    pub(super) fn step(&mut self, state: &State) -> Step {
        let mut desk = state.lock_last();
        if desk.closing {
            return Step::Rest(None);
        }
        if self.fold(state, &mut desk) {
            return Step::Worked;
        }
        if let Some(window) = desk.graves.pop() {
            drop(desk);
            bury(window);
            return Step::Worked;
        }
        if state.gives_back(&desk)
            && let Some((region, generation)) = desk.ledger.take_idle()
        {
            // Memory that the system doesn't take back now is given back with the file.
            let _ = state.memory.give_back(generation, region);
            return Step::Worked;
        }
        if desk.join_due {
            if let Some(region) = self.next_join(state, &mut desk) {
                drop(desk);
                self.join(state, region);
            }
            return Step::Worked;
        }
        if !desk.settled {
            desk.settled = true;
            state.idle.notify_all();
        }
        if !desk.kept {
            return Step::Rest(None);
        }
        self.look_ahead(state, desk)
    }

    /// What the keeper does while views live.
    fn look_ahead(&mut self, state: &State, desk: MutexGuard<'_, Desk>) -> Step {
        let (step, mut desk) = self.ahead.step(state, desk);
        let rest = match step {
            ahead::Step::Copied => return Step::Worked,
            ahead::Step::Early(rest) => Some(rest),
            ahead::Step::Finished => None,
        };
        if !desk.overlaps || state.memory.fault.is_none() {
            return Step::Rest(rest);
        }
        if self.refresh(state, &mut desk) {
            return Step::Worked;
        }
        if desk.views == 0 {
            return Step::Rest(rest);
        }
        Step::Rest(Some(rest.map_or(REFRESH_PERIOD, |rest| rest.min(REFRESH_PERIOD))))
    }

    /// Folds the next run, if there is one.
    fn fold(&mut self, state: &State, desk: &mut Desk) -> bool {
        if state.memory.fault.is_none() {
            return false;
        }
        if self.stuck_epoch != desk.epoch {
            self.stuck_epoch = desk.epoch;
            self.stuck.fill(false);
        }
        let count = desk.ledger.len();
        let foldable = |region: usize| desk.ledger.region(region).is_foldable() && !self.stuck[region];
        let Some(start) = (self.fold_at..count).chain(0..self.fold_at).find(|&region| foldable(region)) else {
            // Everything is folded: by now it shows which regions have filled up with small pages.
            if self.fold_at != 0 {
                self.fold_at = 0;
                desk.overlaps &= desk.views > 0;
                desk.join_due = true;
                return true;
            }
            return false;
        };
        let mut pages = 0;
        let mut found = Vec::new();
        let run = desk.ledger.run_from(start, |region, entry| {
            if !entry.is_foldable() || self.stuck[region] || region - start >= ASIDE_REGIONS {
                return false;
            }
            found.clear();
            let known = state.memory.origin_private_pages(&(region..region + 1), &mut found).is_ok();
            pages += found.len();
            known && (region == start || pages <= FOLD_PAGES)
        });
        let run = start..run.end.max(start + 1);
        self.fold_at = run.end;
        if fold::fold(state, desk, &run).is_err() {
            // A run can lie across mappings that the kernel will not join, and pages are taken away mapping by mapping.
            for region in run {
                self.stuck[region] = fold::fold(state, desk, &(region..region + 1)).is_err();
            }
        }
        true
    }

    /// Moves the next region of which the origin has pages of its own away from under the views that hold it.
    fn refresh(&mut self, state: &State, desk: &mut Desk) -> bool {
        let count = desk.ledger.len();
        let mut found = Vec::new();
        while self.refresh_at < count {
            let region = self.refresh_at;
            self.refresh_at += 1;
            let entry = desk.ledger.region(region);
            let (spare, idle) = desk.ledger.spare();
            if entry.sharing != Sharing::Private || !entry.is_held() || self.stuck[region] {
                continue;
            }
            let Some(target) = desk.ledger.vacant(region) else { continue };
            if spare - idle >= state.spare_regions() {
                break;
            }
            found.clear();
            let known = state.memory.origin_private_pages(&(region..region + 1), &mut found).is_ok();
            if known && !found.is_empty() {
                self.stuck[region] = fold::refresh(state, desk, region, target).is_err();
                return true;
            }
        }
        self.refresh_at = 0;
        false
    }

    /// The next region that has pages enough for a huge page and isn't one.
    fn next_join(&mut self, state: &State, desk: &mut Desk) -> Option<usize> {
        while self.join_at < desk.ledger.len() && self.join_failures < JOIN_FAILURES {
            let region = self.join_at;
            self.join_at += 1;
            let entry = desk.ledger.region(region);
            if entry.huge[entry.home.index()] {
                continue;
            }
            let Ok(filled) = state.memory.filled(entry.home, region) else { continue };
            let pages = filled.iter().map(|range| range.len()).sum::<usize>() / PAGE_SIZE;
            if fold::is_worth_joining(pages, state.memory.layout.pages(region)) {
                return Some(region);
            }
        }
        self.join_at = 0;
        self.join_failures = 0;
        desk.join_due = false;
        None
    }

    /// Joins the pages of `region`. The kernel keeps writers off while it copies; the desk isn't needed, for nobody but
    /// the upkeep changes a region's home.
    fn join(&mut self, state: &State, region: usize) {
        let home = state.lock_last().ledger.region(region).home;
        if !state.memory.make_huge(home, region) {
            self.join_failures += 1;
            return;
        }
        self.join_failures = 0;
        state.lock_last().ledger.set_huge(region, home);
        state.figures.rejoined_regions.add(1);
    }
}

/// Unmaps a window, a part at a time.
fn bury(window: Reservation) {
    for start in (0..window.len()).step_by(BURY_BYTES) {
        let len = BURY_BYTES.min(window.len() - start);
        // SAFETY: the window is ours alone: its view is gone.
        let _ = unsafe { map::discard(window.base().wrapping_add(start), len) };
    }
    debug_assert!(window.len().is_multiple_of(REGION_SIZE));
}
