//! Migration: what a range holds moves into the file, region by region, and the range shares with the file from then on.
//!
//! Relies on [`super::isolate`], so threads may go on using the range meanwhile, where
//! userfaultfd is to be had and a region is one mapping; otherwise no thread may write it during the call.

use std::io;
use std::ops::Range;

use quire_sys::map;
use quire_sys::proc_maps;
use quire_sys::userfault::RegisterModes;

use super::backing::{BackingFile, MAX_ISOLATED_REGIONS, refused};
use super::isolate::IsolatedPages;
use super::layout::Generation;
use super::merge::is_worth_collapsing;
use super::region_table::{RegionMapping, RegionTable};
use crate::origin::MechanismError;
use crate::page::PAGE_SIZE;
use crate::racy;

const FIRST: Generation = Generation(0);
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Takes everything over. Pages that were never touched stay holes.
///
/// # Errors
/// The range is as it was; part of it may lie in the file, mapped privately.
pub(super) fn migrate(backing: &BackingFile, regions: &mut RegionTable) -> Result<(), MechanismError> {
    let result = pieces(backing).and_then(|pieces| {
        let mut migration = Migration { backing, pieces, done: 0 };
        migration.take_all(regions).inspect_err(|_| migration.undo())
    });
    if result.is_err() {
        // Also where nothing was taken: what counts as shared gets the file, which is empty, when the state goes.
        regions.set_sharing(0..backing.layout.regions(), RegionMapping::Private);
    }
    result
}

/// A part of the range that is one mapping: only such can be isolated.
struct Piece {
    positions: Range<usize>,
    /// Memory as it comes from the system: what has no page is zero.
    is_anonymous: bool,
}

struct Migration<'a> {
    backing: &'a BackingFile,
    pieces: Vec<Piece>,
    /// Everything below this position has been taken.
    done: usize,
}

impl Migration<'_> {
    fn take_all(&mut self, regions: &mut RegionTable) -> Result<(), MechanismError> {
        let mut region = 0;
        while region < self.backing.layout.regions() {
            let (run, pages) = self.next_run(region)?;
            if run.len() == 1 && is_worth_collapsing(pages.len(), self.backing.layout.pages(region)) {
                // A file without any page there has nothing to collapse. Zeroes, since nothing is shared yet.
                // SAFETY: no other code maps the file there yet.
                unsafe { self.backing.put(ZEROES.as_ptr(), FIRST, pages[0]) };
                if self.backing.make_huge(FIRST, region) {
                    regions.set_huge(region, FIRST);
                }
            }
            let positions = self.backing.layout.positions(&run);
            for index in 0..self.pieces.len() {
                let Piece { positions: piece, is_anonymous } = &self.pieces[index];
                let part = positions.start.max(piece.start)..positions.end.min(piece.end);
                if !part.is_empty() {
                    self.take(part.clone(), *is_anonymous)?;
                    self.done = part.end;
                }
            }
            region = run.end;
        }
        Ok(())
    }

    /// The region with its pages, or a run of regions that have none.
    fn next_run(&self, first: usize) -> Result<(Range<usize>, Vec<usize>), MechanismError> {
        let mut run = first..first;
        let most = self.backing.layout.regions().min(first + MAX_ISOLATED_REGIONS);
        while run.end < most {
            let pages = self.pages_of(run.end)?;
            if !pages.is_empty() {
                return Ok(if run.is_empty() { (first..first + 1, pages) } else { (run, Vec::new()) });
            }
            run.end += 1;
        }
        Ok((run, Vec::new()))
    }

    fn pages_of(&self, region: usize) -> Result<Vec<usize>, MechanismError> {
        let mut pages = Vec::new();
        let run = region..region + 1;
        if self.pieces.iter().any(|piece| !piece.is_anonymous) {
            return Ok(self.backing.layout.positions(&run).step_by(PAGE_SIZE).collect());
        }
        self.backing.origin_private_pages(&run, &mut pages).map_err(|error| refused("read(pagemap)", error))?;
        Ok(pages)
    }

    /// Copies the pages of `part`, of one mapping, and maps it shared. Writers are kept off if that is possible here at all. If it is
    /// possible but fails, it must not be done without: threads may be writing.
    fn take(&self, part: Range<usize>, is_anonymous: bool) -> Result<(), MechanismError> {
        if self.backing.fault.is_none() {
            return self.take_openly(part, is_anonymous);
        }
        let modes = RegisterModes { missing: true, write_protect: false, minor: !is_anonymous };
        let all = part.clone();
        // From here on nothing touches the heap.
        let isolated =
            IsolatedPages::new(self.backing, part, modes).map_err(|error| refused("isolating pages", error))?;
        // SAFETY: `put` demands a readable page: an isolated one, which no other thread reaches.
        let put = |page| unsafe { self.put(isolated.at(page), page) };
        let looked = if is_anonymous {
            isolated.private_pages(put)
        } else {
            all.step_by(PAGE_SIZE).for_each(put);
            Ok(())
        };
        let finished = looked.and_then(|()| isolated.finish(FIRST));
        finished.map(drop).map_err(|error| refused("mmap", error))
    }

    fn take_openly(&self, part: Range<usize>, is_anonymous: bool) -> Result<(), MechanismError> {
        // SAFETY: `put` demands a readable page: one of the origin. `ScootOrigin::new` demands that no thread writes it during the call
        // where there is no userfaultfd.
        let put = |page| unsafe { self.put(self.backing.origin_at(page), page) };
        if is_anonymous {
            let at = self.backing.origin_at(part.start);
            let looked = self.backing.each_private_page(at, part.clone(), put);
            looked.map_err(|error| refused("read(pagemap)", error))?;
        } else {
            part.clone().step_by(PAGE_SIZE).for_each(put);
        }
        // SAFETY: `map_positions` demands that the generation holds the bytes shown: all pages of the part were put there above.
        unsafe { self.backing.map_positions(part, FIRST, map::MapSharing::Shared) }
            .map_err(|error| refused("mmap", error))
    }

    /// Makes what was taken private memory again; its content stays in the file for as long as it is mapped.
    fn undo(&self) {
        let taken = self.backing.layout.lead()..self.done;
        if !taken.is_empty() {
            // What can't be mapped anew stays as it is: readable and writable.
            // SAFETY: `map_positions` demands that the generation holds the bytes shown: what was taken is mapped shared, so the
            // range shows the file's own pages, and no other code writes the file.
            let _ = unsafe { self.backing.map_positions(taken, FIRST, map::MapSharing::Private) };
        }
    }

    /// # Safety
    /// `from` is a readable page.
    unsafe fn put(&self, from: *const u8, position: usize) {
        let mut page = [0; PAGE_SIZE];
        // SAFETY: `page` is on this thread's stack; `put` demands of its caller that `from` is a readable page.
        unsafe { racy::copy(from, page.as_mut_ptr(), PAGE_SIZE) };
        // The file has zeroes already; a page of zeroes need not become one of memory.
        if page != ZEROES {
            // SAFETY: `BackingFile::put` demands that no thread reads the page in the file: no view exists yet, and the origin does not
            // map the file there yet.
            unsafe { self.backing.put(page.as_ptr(), FIRST, position) };
        }
    }
}

/// The mappings that make up the range.
fn pieces(backing: &BackingFile) -> Result<Vec<Piece>, MechanismError> {
    let (base, end) = (backing.base() as usize, backing.base() as usize + backing.len());
    let lead = backing.layout.lead();
    let mut at = base;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut buffer = vec![0; proc_maps::BUFFER_BYTES];
    let read = proc_maps::each(&mut buffer, |mapping| {
        if mapping.start <= at && at < mapping.end && at < end {
            let until = mapping.end.min(end);
            pieces.push(Piece { positions: lead + at - base..lead + until - base, is_anonymous: mapping.anonymous });
            at = until;
        }
        mapping.start < end
    });
    read.map_err(|error| refused("read(/proc/self/maps)", error))?;
    if at < end {
        return Err(refused("looking for the range in /proc/self/maps", io::ErrorKind::NotFound.into()));
    }
    Ok(pieces)
}
