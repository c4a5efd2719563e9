//! Folding: pages that belong to the origin alone go back to the file, and the origin shares with it again.
//!
//! Relies on [`crate::scoot::memory::Memory::set_aside`] to keep everybody off meanwhile, except at a cut, where writers
//! hold still anyway. The caller has the desk's lock and knows that no view holds the generation that is written.

use std::io;
use std::ops::Range;
use std::time::Instant;

use quire_sys::userfault::Modes;

use super::layout::Generation;
use super::ledger::Sharing;
use super::state::{Desk, State};
use crate::page::PAGE_SIZE;

/// Faults in a private mapping of a file whose page table is empty: pages that the file has, and holes.
const FILE_FAULTS: Modes = Modes { missing: true, write_protect: false, minor: true };

/// Folds `run` while its writers sleep. All its regions are private, of one home, and not held.
///
/// # Errors
/// Nothing has changed; the run can be folded at the next cut.
pub(super) fn fold(state: &State, desk: &mut Desk, run: &Range<usize>) -> io::Result<()> {
    let home = desk.ledger.region(run.start).home;
    fold_to(state, desk, run, home)?;
    desk.ledger.set_sharing(run.clone(), Sharing::Shared);
    Ok(())
}

/// Moves one held region to `target`, which nobody holds: the view keeps the old generation, the origin shares the new
/// one. Needs a whole region's memory, so this is for origins whose views overlap.
///
/// # Errors
/// Nothing has changed.
pub(super) fn refresh(state: &State, desk: &mut Desk, region: usize, target: Generation) -> io::Result<()> {
    fill(state, desk, region, target)?;
    fold_to(state, desk, &(region..region + 1), target)?;
    desk.ledger.move_home(region, target);
    Ok(())
}

fn fold_to(state: &State, desk: &mut Desk, run: &Range<usize>, target: Generation) -> io::Result<()> {
    let room = state.memory.layout.positions(run).len() / PAGE_SIZE;
    let mut found = Vec::with_capacity(room);
    desk.unwritten.reserve(room);
    let start = Instant::now();
    let aside = state.memory.set_aside(run.clone(), FILE_FAULTS)?;
    aside.private_pages(&mut found)?;
    for page in &found {
        // SAFETY: the page was set aside, nobody writes it; `target` is neither held nor mapped by the origin (which
        // maps nothing in this run), so nobody reads it.
        unsafe { keep(state, desk, aside.at(*page), target, *page) };
    }
    let waits = aside.finish(target)? as u64;
    let blocked_ns = start.elapsed().as_nanos() as u64;
    if waits > 0 {
        state.figures.waits.add(waits);
        state.figures.wait_total_ns.add(waits * blocked_ns);
        state.figures.wait_longest_ns.raise(blocked_ns);
    }
    account(state, desk, run, &found);
    Ok(())
}

/// Folds `run` without keeping anybody off; the origin stays as it is mapped, and the caller maps it anew. Says whether
/// there were pages to fold.
///
/// # Safety
/// Nobody writes the run until it is mapped anew; its regions are private, of one home, and not held.
///
/// # Errors
/// The page map can't be read.
pub(super) unsafe fn fold_in_place(state: &State, desk: &mut Desk, run: &Range<usize>) -> io::Result<bool> {
    let home = desk.ledger.region(run.start).home;
    let mut found = Vec::new();
    state.memory.origin_private_pages(run, &mut found)?;
    for page in &found {
        // SAFETY: the caller keeps writers off; a reader of the origin doesn't see the file's page there, but its own.
        unsafe { keep(state, desk, state.memory.origin_at(*page), home, *page) };
    }
    account(state, desk, run, &found);
    Ok(!found.is_empty())
}

/// Takes a private page into the file. One that was copied ahead and never written is the same there already.
///
/// # Safety
/// As [`super::memory::Memory::put`], and nobody writes `from`.
unsafe fn keep(state: &State, desk: &mut Desk, from: *const u8, target: Generation, position: usize) {
    if desk.coverage.take_precopied(position) {
        // SAFETY: nobody writes either page: this one by the caller's promise, the file's because we alone would.
        let same = unsafe {
            std::slice::from_raw_parts(from, PAGE_SIZE)
                == std::slice::from_raw_parts(state.memory.door_at(target, position), PAGE_SIZE)
        };
        desk.coverage.note_precopied(u64::from(!same), u64::from(same));
        state.figures.precopied_pages.add(1);
        if same {
            state.figures.unneeded_pages.add(1);
            desk.unwritten.push(position);
            return;
        }
        state.figures.needed_pages.add(1);
    }
    // SAFETY: as the caller promises.
    unsafe { state.memory.put(from, target, position) };
}

/// Counts what a fold has found.
fn account(state: &State, desk: &mut Desk, run: &Range<usize>, found: &[usize]) {
    let unwritten = std::mem::take(&mut desk.unwritten);
    let written: Vec<usize> =
        found.iter().copied().filter(|position| unwritten.binary_search(position).is_err()).collect();
    desk.coverage.note(&state.memory.layout.positions(run), &written);
    desk.folded_pages += found.len();
    state.figures.copied_pages.add(found.len() as u64);
    let held = desk.folded_pages * PAGE_SIZE;
    state.figures.held_bytes_peak.raise(held as u64 + state.figures.window_bytes.get());
}

/// Makes `target` of `region` equal to its home, which is held and so doesn't change.
fn fill(state: &State, desk: &mut Desk, region: usize, target: Generation) -> io::Result<()> {
    let memory = &state.memory;
    let home = desk.ledger.region(region).home;
    let filled = memory.filled(home, region)?;
    let pages = filled.iter().map(|range| range.len()).sum::<usize>() / PAGE_SIZE;
    if pages < memory.layout.pages(region) {
        // What a page had that is a hole now must not show through.
        memory.give_back(target, region)?;
    }
    if let Some(first) = filled.first()
        && is_worth_joining(pages, memory.layout.pages(region))
    {
        // A file without any page there has nothing to join.
        // SAFETY: nobody reads `target`; `home` is held and so isn't written.
        unsafe { memory.put(memory.door_at(home, first.start), target, first.start) };
        if memory.make_huge(target, region) {
            desk.ledger.set_huge(region, target);
        }
    }
    for position in filled.into_iter().flat_map(|range| range.step_by(PAGE_SIZE)) {
        // SAFETY: as above.
        unsafe { memory.put(memory.door_at(home, position), target, position) };
    }
    Ok(())
}

/// Whether a region of which these pages are there should get a huge page, which fills its holes.
pub(super) fn is_worth_joining(filled: usize, pages: usize) -> bool {
    filled > 0 && filled * 4 >= pages
}
