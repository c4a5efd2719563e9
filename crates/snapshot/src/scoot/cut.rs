//! The cut: the origin is mapped privately over itself, and what it shared with the file until now is the view.
//!
//! Relies on writers holding still, which [`crate::Origin::cut`] demands.
//!
//! What it costs depends on what earlier views have left behind:
//! - A shared region (everything, once the maintenance thread has merged): one `mmap` for all neighbours.
//! - A private one that no view holds (the maintenance thread has not merged it yet): its pages are merged here.
//! - A private one that an older view holds: its pages are copied into the new view. From then on the maintenance thread moves such
//!   regions away from under their views, so that the next cut finds them shared.

use std::sync::Arc;
use std::time::Instant;

use super::backing::refused;
use super::merge;
use super::region_table::{RegionMapping, RegionState};
use super::state::{Mappings, ScootState};
use super::view::ScootView;
use crate::origin::MechanismError;

/// Cuts a view of the origin.
pub(super) fn cut(state: &Arc<ScootState>) -> Result<ScootView, MechanismError> {
    let start = Instant::now();
    let mut mappings = state.lock();
    let mappings = &mut *mappings;
    let own = pages_under_views(state, mappings)?;
    merge_rest(state, mappings)?;
    detach(state, mappings)?;
    let homes = mappings.regions.homes();
    // SAFETY: `origin_at` gives pages of the origin, which are mapped. `Origin::cut` demands that writers hold still, and with
    // every region private a later store goes to a page of the origin's own, so no thread writes a home.
    let view = unsafe { ScootView::new(state, mappings, homes, &own, |position| state.backing.origin_at(position)) }?;
    mappings.overlaps |= !own.is_empty();
    mappings.epoch += 1;
    mappings.merged_pages = 0;
    mappings.coverage.next_epoch();
    state.stats.cuts.add(1);
    state.stats.copied_pages.add(own.len() as u64);
    state.stats.last_cut_ns.set(start.elapsed().as_nanos() as u64);
    if mappings.has_thread {
        mappings.woken = true;
        state.work.notify_one();
    }
    Ok(view)
}

/// Pages that the origin alone has, of regions that an older view holds.
fn pages_under_views(state: &ScootState, mappings: &Mappings) -> Result<Vec<usize>, MechanismError> {
    let mut own = Vec::new();
    for run in mappings.regions.runs(|region| region.sharing == RegionMapping::Private && region.is_held()) {
        state.backing.origin_private_pages(&run, &mut own).map_err(|error| refused("read(pagemap)", error))?;
    }
    Ok(own)
}

/// Merges what the maintenance thread has not merged yet. Regions with nothing to merge stay as they are.
fn merge_rest(state: &ScootState, mappings: &mut Mappings) -> Result<(), MechanismError> {
    for region in mappings.regions.runs(RegionState::is_mergeable).into_iter().flatten() {
        // SAFETY: `merge_in_place` demands that no thread writes the region: `Origin::cut` demands that writers hold still. The
        // run was picked by `is_mergeable`, so it is private and not held.
        unsafe { merge::merge_in_place(state, mappings, region) }
            .map_err(|error| refused("merging a region", error))?;
    }
    Ok(())
}

/// Maps every shared region privately.
fn detach(state: &ScootState, mappings: &mut Mappings) -> Result<(), MechanismError> {
    for run in mappings.regions.runs(|region| region.sharing == RegionMapping::Shared) {
        let home = mappings.regions.region(run.start).home;
        // SAFETY: `map_origin` demands that the generation holds the bytes shown: a shared region shows the file's own pages.
        let mapped = unsafe { state.backing.map_origin(&run, home, quire_sys::map::MapSharing::Private) };
        mapped.map_err(|error| refused("mmap", error))?;
        mappings.regions.set_sharing(run, RegionMapping::Private);
    }
    Ok(())
}
