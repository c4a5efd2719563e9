//! The maintenance that views leave behind: merging, unmapping their windows, giving memory back, collapsing huge pages, copying
//! ahead of writers. One step at a time, so that a cut never waits for more than one.
//!
//! Relies on being done by one thread at a time (the lock in [`Maintenance`]'s owner): the maintenance thread, or a thread that
//! calls `settle`.

use std::sync::MutexGuard;
use std::time::Duration;

use quire_sys::map;
use quire_sys::mem::Reservation;

use super::backing::MAX_ISOLATED_REGIONS;
use super::merge;
use super::precopy::{PrecopyQueue, PrecopyStep};
use super::region_table::RegionMapping;
use super::state::{Mappings, ScootState};
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Private pages, found beforehand, up to which neighbouring regions are merged at once: a bound on how long writers wait.
const MERGE_PAGES: usize = 128;
/// Bytes of a window that are unmapped at once: a bound on how long a cut waits for the address space.
const UNMAP_BYTES: usize = 64 << 20;
/// Failures in a row after which collapsing is put off.
const COLLAPSE_FAILURES: usize = 4;
/// How often regions of origins whose views overlap are looked at.
const RELOCATE_PERIOD: Duration = Duration::from_millis(50);

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MaintenanceStep {
    /// There may be more.
    Worked,
    /// Nothing to do until something changes, or until this time has passed.
    Rest(Option<Duration>),
}

/// How far the maintenance has come.
pub(super) struct Maintenance {
    precopy: PrecopyQueue,
    merge_at: usize,
    collapse_at: usize,
    collapse_failures: usize,
    relocate_at: usize,
    /// Regions that could not be merged in this epoch; the next cut merges them.
    stuck: Vec<bool>,
    stuck_epoch: u64,
}

impl Maintenance {
    pub(super) fn new(regions: usize) -> Self {
        Self {
            precopy: PrecopyQueue::new(),
            merge_at: 0,
            collapse_at: 0,
            collapse_failures: 0,
            relocate_at: 0,
            stuck: vec![false; regions],
            stuck_epoch: 0,
        }
    }

    /// Does the next thing there is to do.
    pub(super) fn step(&mut self, state: &ScootState) -> MaintenanceStep {
        let mut mappings = state.lock_after_cuts();
        if mappings.closing {
            return MaintenanceStep::Rest(None);
        }
        if self.merge_next(state, &mut mappings) {
            return MaintenanceStep::Worked;
        }
        if let Some(window) = mappings.unmap_queue.pop() {
            drop(mappings);
            unmap_window(window);
            return MaintenanceStep::Worked;
        }
        if state.gives_back(&mappings)
            && let Some((region, generation)) = mappings.regions.take_idle()
        {
            // Memory that the system doesn't take back now is given back with the file.
            let _ = state.backing.give_back(generation, region);
            return MaintenanceStep::Worked;
        }
        if mappings.collapse_due {
            if let Some(region) = self.next_collapse(state, &mut mappings) {
                drop(mappings);
                self.collapse(state, region);
            }
            return MaintenanceStep::Worked;
        }
        if !mappings.settled {
            mappings.settled = true;
            state.idle.notify_all();
        }
        if !mappings.has_thread {
            return MaintenanceStep::Rest(None);
        }
        self.precopy_or_relocate(state, mappings)
    }

    /// What the maintenance thread does while views live.
    fn precopy_or_relocate(&mut self, state: &ScootState, mappings: MutexGuard<'_, Mappings>) -> MaintenanceStep {
        let (step, mut mappings) = self.precopy.step(state, mappings);
        let rest = match step {
            PrecopyStep::Copied => return MaintenanceStep::Worked,
            PrecopyStep::Early(rest) => Some(rest),
            PrecopyStep::Finished => None,
        };
        if !mappings.overlaps || state.backing.fault.is_none() {
            return MaintenanceStep::Rest(rest);
        }
        if self.relocate_next(state, &mut mappings) {
            return MaintenanceStep::Worked;
        }
        if mappings.views == 0 {
            return MaintenanceStep::Rest(rest);
        }
        MaintenanceStep::Rest(Some(rest.map_or(RELOCATE_PERIOD, |rest| rest.min(RELOCATE_PERIOD))))
    }

    /// Merges the next run, if there is one.
    fn merge_next(&mut self, state: &ScootState, mappings: &mut Mappings) -> bool {
        if state.backing.fault.is_none() {
            return false;
        }
        if self.stuck_epoch != mappings.epoch {
            self.stuck_epoch = mappings.epoch;
            self.stuck.fill(false);
        }
        let count = mappings.regions.len();
        let mergeable = |region: usize| mappings.regions.region(region).is_mergeable() && !self.stuck[region];
        let Some(start) = (self.merge_at..count).chain(0..self.merge_at).find(|&region| mergeable(region)) else {
            // Everything is merged: the file shows now which regions have filled up with small pages.
            if self.merge_at != 0 {
                self.merge_at = 0;
                mappings.overlaps &= mappings.views > 0;
                mappings.collapse_due = true;
                return true;
            }
            return false;
        };
        let mut pages = 0;
        let mut found = Vec::new();
        let run = mappings.regions.run_from(start, |region, entry| {
            if !entry.is_mergeable() || self.stuck[region] || region - start >= MAX_ISOLATED_REGIONS {
                return false;
            }
            found.clear();
            let known = state.backing.origin_private_pages(&(region..region + 1), &mut found).is_ok();
            pages += found.len();
            known && (region == start || pages <= MERGE_PAGES)
        });
        let run = start..run.end.max(start + 1);
        self.merge_at = run.end;
        if merge::merge(state, mappings, &run).is_err() {
            // A run can lie across mappings that the kernel will not merge, and pages are isolated mapping by mapping.
            for region in run {
                self.stuck[region] = merge::merge(state, mappings, &(region..region + 1)).is_err();
            }
        }
        true
    }

    /// Moves the next region of which the origin has pages of its own away from under the views that hold it.
    fn relocate_next(&mut self, state: &ScootState, mappings: &mut Mappings) -> bool {
        let count = mappings.regions.len();
        let mut found = Vec::new();
        while self.relocate_at < count {
            let region = self.relocate_at;
            self.relocate_at += 1;
            let entry = mappings.regions.region(region);
            let (spare, idle) = mappings.regions.spare();
            if entry.sharing != RegionMapping::Private || !entry.is_held() || self.stuck[region] {
                continue;
            }
            let Some(target) = mappings.regions.vacant(region) else { continue };
            if spare - idle >= state.spare_regions() {
                break;
            }
            found.clear();
            let known = state.backing.origin_private_pages(&(region..region + 1), &mut found).is_ok();
            if known && !found.is_empty() {
                self.stuck[region] = merge::relocate(state, mappings, region, target).is_err();
                return true;
            }
        }
        self.relocate_at = 0;
        false
    }

    /// The next region that has pages enough for a huge page and isn't one.
    fn next_collapse(&mut self, state: &ScootState, mappings: &mut Mappings) -> Option<usize> {
        while self.collapse_at < mappings.regions.len() && self.collapse_failures < COLLAPSE_FAILURES {
            let region = self.collapse_at;
            self.collapse_at += 1;
            let entry = mappings.regions.region(region);
            if entry.huge[entry.home.index()] {
                continue;
            }
            let Ok(filled) = state.backing.filled(entry.home, region) else { continue };
            let pages = filled.iter().map(|range| range.len()).sum::<usize>() / PAGE_SIZE;
            if merge::is_worth_collapsing(pages, state.backing.layout.pages(region)) {
                return Some(region);
            }
        }
        self.collapse_at = 0;
        self.collapse_failures = 0;
        mappings.collapse_due = false;
        None
    }

    /// Collapses the pages of `region` into a huge page. The kernel keeps writers off while it copies. The lock of the mappings
    /// isn't needed, as only the maintenance changes a region's home.
    fn collapse(&mut self, state: &ScootState, region: usize) {
        let home = state.lock_after_cuts().regions.region(region).home;
        if !state.backing.make_huge(home, region) {
            self.collapse_failures += 1;
            return;
        }
        self.collapse_failures = 0;
        state.lock_after_cuts().regions.set_huge(region, home);
        state.stats.rejoined_regions.add(1);
    }
}

/// Unmaps a window, a part at a time.
fn unmap_window(window: Reservation) {
    for start in (0..window.len()).step_by(UNMAP_BYTES) {
        let len = UNMAP_BYTES.min(window.len() - start);
        // SAFETY: the view, which alone knew the window, is gone.
        let _ = unsafe { map::discard(window.base().wrapping_add(start), len) };
    }
    debug_assert!(window.len().is_multiple_of(REGION_SIZE));
}
