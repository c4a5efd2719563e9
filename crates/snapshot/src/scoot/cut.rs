//! The cut: the origin is mapped privately over itself, and what it shared with the file until now is the view.
//!
//! Relies on writers holding still, which [`crate::Origin::cut`] demands.
//!
//! What it costs depends on what earlier views have left behind:
//! - A shared region (everything, once the keeper has folded): one `mmap` for all neighbours.
//! - A private one that no view holds (the keeper hasn't come to it): its pages are folded here.
//! - A private one that an older view holds: its pages are copied into the new view. From then on the keeper moves such
//!   regions away from under their views, so that the next cut finds them shared.

use std::sync::Arc;
use std::time::Instant;

use super::fold;
use super::ledger::{Region, Sharing};
use super::memory::refused;
use super::state::{Desk, State};
use super::view::Scooted;
use crate::origin::Refused;

/// Cuts a view of the origin.
pub(super) fn cut(state: &Arc<State>) -> Result<Scooted, Refused> {
    let start = Instant::now();
    let mut desk = state.lock();
    let desk = &mut *desk;
    let own = pages_under_views(state, desk)?;
    fold_rest(state, desk)?;
    detach(state, desk)?;
    let homes = desk.ledger.homes();
    // SAFETY: pages of the origin, whose writers hold still; with every region private nobody writes any home.
    let view = unsafe { Scooted::new(state, desk, homes, &own, |position| state.memory.origin_at(position)) }?;
    desk.overlaps |= !own.is_empty();
    desk.epoch += 1;
    desk.folded_pages = 0;
    desk.coverage.next_epoch();
    state.figures.cuts.add(1);
    state.figures.copied_pages.add(own.len() as u64);
    state.figures.last_cut_ns.set(start.elapsed().as_nanos() as u64);
    if desk.kept {
        desk.woken = true;
        state.work.notify_one();
    }
    Ok(view)
}

/// Pages that the origin alone has, of regions that an older view holds.
fn pages_under_views(state: &State, desk: &Desk) -> Result<Vec<usize>, Refused> {
    let mut own = Vec::new();
    for run in desk.ledger.runs(|region| region.sharing == Sharing::Private && region.is_held()) {
        state.memory.origin_private_pages(&run, &mut own).map_err(|error| refused("read(pagemap)", error))?;
    }
    Ok(own)
}

/// Folds what the keeper has not come to. Regions with nothing to fold stay as they are.
fn fold_rest(state: &State, desk: &mut Desk) -> Result<(), Refused> {
    for region in desk.ledger.runs(Region::is_foldable).into_iter().flatten() {
        // SAFETY: writers hold still.
        unsafe { fold::fold_in_place(state, desk, region) }.map_err(|error| refused("folding a region", error))?;
    }
    Ok(())
}

/// Maps every shared region privately.
fn detach(state: &State, desk: &mut Desk) -> Result<(), Refused> {
    for run in desk.ledger.runs(|region| region.sharing == Sharing::Shared) {
        let home = desk.ledger.region(run.start).home;
        // SAFETY: the file holds what the origin shows.
        let mapped = unsafe { state.memory.map_origin(&run, home, quire_sys::map::Sharing::Private) };
        mapped.map_err(|error| refused("mmap", error))?;
        desk.ledger.set_sharing(run, Sharing::Private);
    }
    Ok(())
}
