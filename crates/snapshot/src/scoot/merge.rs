//! Merging: pages that belong to the origin alone go back to the file, and the origin shares with it again.
//!
//! Relies on [`super::isolate`] to keep writers off meanwhile, except at a cut, where writers
//! hold still anyway. The caller has the lock of the mappings and knows that no view holds the generation that is written.

use std::io;
use std::ops::Range;
use std::time::Instant;

use quire_sys::userfault::RegisterModes;

use super::backing::BackingFile;
use super::isolate::IsolatedPages;
use super::layout::Generation;
use super::page_bitmaps::MergeBitmaps;
use super::region_table::RegionMapping;
use super::state::{Mappings, ScootState};
use crate::page::PAGE_SIZE;

/// Faults in a private mapping of a file whose page table is empty: pages that the file has, and holes.
const FILE_FAULTS: RegisterModes = RegisterModes { missing: true, write_protect: false, minor: true };

/// Merges `run` while its writers sleep. All its regions are private, of one home, and not held.
///
/// # Errors
/// Nothing has changed; the run can be merged at the next cut.
pub(super) fn merge(state: &ScootState, mappings: &mut Mappings, run: &Range<usize>) -> io::Result<()> {
    let home = mappings.regions.region(run.start).home;
    merge_to(state, mappings, run, home)?;
    mappings.regions.set_sharing(run.clone(), RegionMapping::Shared);
    Ok(())
}

/// Relocates one held region to `target`, which no view holds: the view keeps the old generation, the origin shares the new
/// one. Needs a whole region's memory, so this is for origins whose views overlap.
///
/// # Errors
/// Nothing has changed.
pub(super) fn relocate(
    state: &ScootState,
    mappings: &mut Mappings,
    region: usize,
    target: Generation,
) -> io::Result<()> {
    fill(state, mappings, region, target)?;
    merge_to(state, mappings, &(region..region + 1), target)?;
    mappings.regions.move_home(region, target);
    Ok(())
}

fn merge_to(state: &ScootState, mappings: &mut Mappings, run: &Range<usize>, target: Generation) -> io::Result<()> {
    let backing: &BackingFile = &state.backing;
    let positions = backing.layout.positions(run);
    let mut bitmaps = MergeBitmaps::new(run.start);
    mappings.coverage.list_precopied(positions.clone(), |position| bitmaps.note_precopied(position));
    let start = Instant::now();
    let waits = move_to_file(backing, positions, target, &mut bitmaps)? as u64;
    let blocked_ns = start.elapsed().as_nanos() as u64;
    if waits > 0 {
        state.stats.waits.add(waits);
        state.stats.wait_total_ns.add(waits * blocked_ns);
        state.stats.wait_longest_ns.raise(blocked_ns);
    }
    account(state, mappings, run, &bitmaps);
    Ok(())
}

/// Moves the private pages at `positions` to the file while threads that touch them sleep; how many faults there were. Touches no
/// heap.
fn move_to_file(
    backing: &BackingFile,
    positions: Range<usize>,
    target: Generation,
    bitmaps: &mut MergeBitmaps,
) -> io::Result<usize> {
    let mut next = positions.start;
    let isolated = IsolatedPages::new(backing, positions, FILE_FAULTS)?;
    isolated.private_pages(|position| bitmaps.note_found(position))?;
    while let Some(position) = bitmaps.next_found(next) {
        // SAFETY: `merge_page` demands that no thread writes `from` (it is isolated) and that none reads the page in `target`,
        // which no view holds, and which the origin does not map: it maps nothing in this run.
        unsafe { merge_page(backing, bitmaps, isolated.at(position), target, position) };
        next = position + PAGE_SIZE;
    }
    isolated.finish(target)
}

/// Merges `region` without keeping writers off, and maps it privately anew, if it has private pages. Between the copy and the mapping
/// no heap is touched: what is written there meanwhile would be lost.
///
/// # Safety
/// No other thread writes the region; it is private and not held.
///
/// # Errors
/// The page map can't be read, or the region not be mapped. It keeps its pages, and can be merged again.
pub(super) unsafe fn merge_in_place(state: &ScootState, mappings: &mut Mappings, region: usize) -> io::Result<()> {
    let backing: &BackingFile = &state.backing;
    let home = mappings.regions.region(region).home;
    let run = region..region + 1;
    let positions = backing.layout.positions(&run);
    let mut bitmaps = MergeBitmaps::new(region);
    mappings.coverage.list_precopied(positions.clone(), |position| bitmaps.note_precopied(position));
    let origin = backing.origin_at(positions.start);
    backing.each_private_page(origin, positions, |position| bitmaps.note_found(position))?;
    let mut next = bitmaps.next_found(region * crate::page::REGION_SIZE);
    if next.is_some() {
        while let Some(position) = next {
            // SAFETY: `merge_page` demands that no thread writes `from`: `merge_in_place` demands that of its caller. A reader of the
            // origin sees the origin's own page there, not the file's.
            unsafe { merge_page(backing, &mut bitmaps, backing.origin_at(position), home, position) };
            next = bitmaps.next_found(position + PAGE_SIZE);
        }
        // SAFETY: `map_origin` demands that the generation holds the bytes shown: every private page was put there above.
        unsafe { backing.map_origin(&run, home, quire_sys::map::MapSharing::Private) }?;
    }
    account(state, mappings, &run, &bitmaps);
    Ok(())
}

/// Takes a private page into the file. One that was copied ahead and never written is the same there already. Touches no heap.
///
/// # Safety
/// As [`super::backing::BackingFile::put`], and no thread writes `from`.
unsafe fn merge_page(
    backing: &BackingFile,
    bitmaps: &mut MergeBitmaps,
    from: *const u8,
    target: Generation,
    position: usize,
) {
    if bitmaps.is_precopied(position) {
        // SAFETY: both pages are mapped and no thread writes either: `merge_page` demands that of `from`, and only this mechanism
        // writes the file's page while the origin is private.
        let same = unsafe {
            std::slice::from_raw_parts(from, PAGE_SIZE)
                == std::slice::from_raw_parts(backing.alias_at(target, position), PAGE_SIZE)
        };
        if same {
            return bitmaps.note_same(position);
        }
    }
    // SAFETY: `put` demands a readable `from` and a page of `target` that no thread reads; `merge_page` demands both of its
    // caller.
    unsafe { backing.put(from, target, position) };
}

/// Counts what a merge has found.
fn account(state: &ScootState, mappings: &mut Mappings, run: &Range<usize>, bitmaps: &MergeBitmaps) {
    let (needed, unneeded) = bitmaps.precopied();
    let found = bitmaps.found();
    for &position in &found {
        mappings.coverage.take_precopied(position);
    }
    mappings.coverage.note_precopied(needed, unneeded);
    state.stats.precopied_pages.add(needed + unneeded);
    state.stats.needed_pages.add(needed);
    state.stats.unneeded_pages.add(unneeded);
    mappings.coverage.note(&state.backing.layout.positions(run), &bitmaps.written());
    mappings.merged_pages += found.len();
    state.stats.copied_pages.add(found.len() as u64);
    let held = mappings.merged_pages * PAGE_SIZE;
    state.stats.held_bytes_peak.raise(held as u64 + state.stats.window_bytes.get());
}

/// Makes `target` of `region` equal to its home, which is held and so doesn't change.
fn fill(state: &ScootState, mappings: &mut Mappings, region: usize, target: Generation) -> io::Result<()> {
    let backing = &state.backing;
    let home = mappings.regions.region(region).home;
    let filled = backing.filled(home, region)?;
    let pages = filled.iter().map(|range| range.len()).sum::<usize>() / PAGE_SIZE;
    if pages < backing.layout.pages(region) {
        // What a page had that is a hole now must not show through.
        backing.give_back(target, region)?;
    }
    if let Some(first) = filled.first()
        && is_worth_collapsing(pages, backing.layout.pages(region))
    {
        // A file without any page there has nothing to collapse.
        // SAFETY: `put` demands that no thread reads `target`: no view holds it and the origin does not map it. `home` is held,
        // so no thread writes it.
        unsafe { backing.put(backing.alias_at(home, first.start), target, first.start) };
        if backing.make_huge(target, region) {
            mappings.regions.set_huge(region, target);
        }
    }
    for position in filled.into_iter().flat_map(|range| range.step_by(PAGE_SIZE)) {
        // SAFETY: `put` demands that no thread reads `target`: no view holds it and the origin does not map it. `home` is held, so no thread
        // writes it.
        unsafe { backing.put(backing.alias_at(home, position), target, position) };
    }
    Ok(())
}

/// Whether a region of which these pages are there should get a huge page, which fills its holes.
pub(super) fn is_worth_collapsing(filled: usize, pages: usize) -> bool {
    filled > 0 && filled * 4 >= pages
}
