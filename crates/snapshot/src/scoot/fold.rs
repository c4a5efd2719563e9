//! Folding: pages that belong to the origin alone go back to the file, and the origin shares with it again.
//!
//! Relies on [`super::aside`] to keep everybody off meanwhile, except at a cut, where writers
//! hold still anyway. The caller has the desk's lock and knows that no view holds the generation that is written.

use std::io;
use std::ops::Range;
use std::time::Instant;

use quire_sys::userfault::Modes;

use super::aside::Aside;
use super::layout::Generation;
use super::ledger::Sharing;
use super::memory::Memory;
use super::sheet::Sheet;
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
    let memory: &Memory = &state.memory;
    let positions = memory.layout.positions(run);
    let mut sheet = Sheet::new(run.start);
    desk.coverage.list_precopied(positions.clone(), |position| sheet.note_precopied(position));
    let start = Instant::now();
    let waits = move_to_file(memory, positions, target, &mut sheet)? as u64;
    let blocked_ns = start.elapsed().as_nanos() as u64;
    if waits > 0 {
        state.figures.waits.add(waits);
        state.figures.wait_total_ns.add(waits * blocked_ns);
        state.figures.wait_longest_ns.raise(blocked_ns);
    }
    account(state, desk, run, &sheet);
    Ok(())
}

/// Moves the private pages at `positions` to the file while everybody is kept off; how many faults there were. Touches no heap.
fn move_to_file(memory: &Memory, positions: Range<usize>, target: Generation, sheet: &mut Sheet) -> io::Result<usize> {
    let mut next = positions.start;
    let aside = Aside::new(memory, positions, FILE_FAULTS)?;
    aside.private_pages(|position| sheet.note_found(position))?;
    while let Some(position) = sheet.next_found(next) {
        // SAFETY: the page was set aside, no thread writes it; `target` is neither held nor mapped by the origin (which
        // maps nothing in this run), so no thread reads it.
        unsafe { keep(memory, sheet, aside.at(position), target, position) };
        next = position + PAGE_SIZE;
    }
    aside.finish(target)
}

/// Folds `region` without keeping anybody off, and maps it privately anew, if it has private pages. Between the copy and the mapping
/// no heap is touched: what is written there meanwhile would be lost.
///
/// # Safety
/// No other thread writes the region; it is private and not held.
///
/// # Errors
/// The page map can't be read, or the region not be mapped. It keeps its pages, and can be folded again.
pub(super) unsafe fn fold_in_place(state: &State, desk: &mut Desk, region: usize) -> io::Result<()> {
    let memory: &Memory = &state.memory;
    let home = desk.ledger.region(region).home;
    let run = region..region + 1;
    let positions = memory.layout.positions(&run);
    let mut sheet = Sheet::new(region);
    desk.coverage.list_precopied(positions.clone(), |position| sheet.note_precopied(position));
    let origin = memory.origin_at(positions.start);
    memory.each_private_page(origin, positions, |position| sheet.note_found(position))?;
    let mut next = sheet.next_found(region * crate::page::REGION_SIZE);
    if next.is_some() {
        while let Some(position) = next {
            // SAFETY: the caller keeps writers off; a reader of the origin doesn't see the file's page there, but its own.
            unsafe { keep(memory, &mut sheet, memory.origin_at(position), home, position) };
            next = sheet.next_found(position + PAGE_SIZE);
        }
        // SAFETY: the file holds what the region holds.
        unsafe { memory.map_origin(&run, home, quire_sys::map::Sharing::Private) }?;
    }
    account(state, desk, &run, &sheet);
    Ok(())
}

/// Takes a private page into the file. One that was copied ahead and never written is the same there already. Touches no heap.
///
/// # Safety
/// As [`super::memory::Memory::put`], and nobody writes `from`.
unsafe fn keep(memory: &Memory, sheet: &mut Sheet, from: *const u8, target: Generation, position: usize) {
    if sheet.is_precopied(position) {
        // SAFETY: nobody writes either page: this one by the caller's promise, the file's because we alone would.
        let same = unsafe {
            std::slice::from_raw_parts(from, PAGE_SIZE)
                == std::slice::from_raw_parts(memory.door_at(target, position), PAGE_SIZE)
        };
        if same {
            return sheet.note_same(position);
        }
    }
    // SAFETY: as the caller promises.
    unsafe { memory.put(from, target, position) };
}

/// Counts what a fold has found.
fn account(state: &State, desk: &mut Desk, run: &Range<usize>, sheet: &Sheet) {
    let (needed, unneeded) = sheet.precopied();
    let found = sheet.found();
    for &position in &found {
        desk.coverage.take_precopied(position);
    }
    desk.coverage.note_precopied(needed, unneeded);
    state.figures.precopied_pages.add(needed + unneeded);
    state.figures.needed_pages.add(needed);
    state.figures.unneeded_pages.add(unneeded);
    desk.coverage.note(&state.memory.layout.positions(run), &sheet.written());
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
