//! Adoption: what a range holds moves into the file, region by region, and the range shares with the file from then on.
//!
//! Relies on [`super::aside`], so threads may go on using the range meanwhile, where
//! userfaultfd is to be had and a region is one mapping; otherwise nobody may write it during the call.

use std::io;
use std::ops::Range;

use quire_sys::map;
use quire_sys::proc_maps;
use quire_sys::userfault::Modes;

use super::aside::Aside;
use super::fold::is_worth_joining;
use super::layout::Generation;
use super::ledger::{Ledger, Sharing};
use super::memory::{ASIDE_REGIONS, Memory, refused};
use crate::origin::Refused;
use crate::page::PAGE_SIZE;
use crate::racy;

const FIRST: Generation = Generation(0);
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Takes everything over. Pages that were never touched stay holes.
///
/// # Errors
/// The range is as it was; part of it may lie in the file, mapped privately.
pub(super) fn adopt(memory: &Memory, ledger: &mut Ledger) -> Result<(), Refused> {
    let mut adoption = Adoption { memory, pieces: pieces(memory)?, done: 0 };
    let result = adoption.take_all(ledger);
    if result.is_err() {
        adoption.undo();
        ledger.set_sharing(0..memory.layout.regions(), Sharing::Private);
    }
    result
}

/// A part of the range that is one mapping: only such can be set aside.
struct Piece {
    positions: Range<usize>,
    /// Memory as it comes from the system: what has no page is zero.
    is_anonymous: bool,
}

struct Adoption<'a> {
    memory: &'a Memory,
    pieces: Vec<Piece>,
    /// Everything below this position has been taken.
    done: usize,
}

impl Adoption<'_> {
    fn take_all(&mut self, ledger: &mut Ledger) -> Result<(), Refused> {
        let mut region = 0;
        while region < self.memory.layout.regions() {
            let (run, pages) = self.next_run(region)?;
            if run.len() == 1 && is_worth_joining(pages.len(), self.memory.layout.pages(region)) {
                // A file without any page there has nothing to join. Zeroes, since nothing is shared yet.
                // SAFETY: no other code maps the file there yet.
                unsafe { self.memory.put(ZEROES.as_ptr(), FIRST, pages[0]) };
                if self.memory.make_huge(FIRST, region) {
                    ledger.set_huge(region, FIRST);
                }
            }
            let positions = self.memory.layout.positions(&run);
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
    fn next_run(&self, first: usize) -> Result<(Range<usize>, Vec<usize>), Refused> {
        let mut run = first..first;
        let most = self.memory.layout.regions().min(first + ASIDE_REGIONS);
        while run.end < most {
            let pages = self.pages_of(run.end)?;
            if !pages.is_empty() {
                return Ok(if run.is_empty() { (first..first + 1, pages) } else { (run, Vec::new()) });
            }
            run.end += 1;
        }
        Ok((run, Vec::new()))
    }

    fn pages_of(&self, region: usize) -> Result<Vec<usize>, Refused> {
        let mut pages = Vec::new();
        let run = region..region + 1;
        if self.pieces.iter().any(|piece| !piece.is_anonymous) {
            return Ok(self.memory.layout.positions(&run).step_by(PAGE_SIZE).collect());
        }
        self.memory.origin_private_pages(&run, &mut pages).map_err(|error| refused("read(pagemap)", error))?;
        Ok(pages)
    }

    /// Copies the pages of `part`, of one mapping, and maps it shared, with everybody kept off if that is possible here at all. If it
    /// is, but fails, it must not be done otherwise: threads may be writing.
    fn take(&self, part: Range<usize>, is_anonymous: bool) -> Result<(), Refused> {
        if self.memory.fault.is_none() {
            return self.take_openly(part, is_anonymous);
        }
        let modes = Modes { missing: true, write_protect: false, minor: !is_anonymous };
        let all = part.clone();
        // From here on nothing touches the heap.
        let aside = Aside::new(self.memory, part, modes).map_err(|error| refused("setting pages aside", error))?;
        // SAFETY: set aside, so no other thread reaches it.
        let put = |page| unsafe { self.put(aside.at(page), page) };
        let looked = if is_anonymous {
            aside.private_pages(put)
        } else {
            all.step_by(PAGE_SIZE).for_each(put);
            Ok(())
        };
        let finished = looked.and_then(|()| aside.finish(FIRST));
        finished.map(drop).map_err(|error| refused("mmap", error))
    }

    fn take_openly(&self, part: Range<usize>, is_anonymous: bool) -> Result<(), Refused> {
        // SAFETY: a page of the origin, which no thread writes during the call (see the head of this file).
        let put = |page| unsafe { self.put(self.memory.origin_at(page), page) };
        if is_anonymous {
            let at = self.memory.origin_at(part.start);
            let looked = self.memory.each_private_page(at, part.clone(), put);
            looked.map_err(|error| refused("read(pagemap)", error))?;
        } else {
            part.clone().step_by(PAGE_SIZE).for_each(put);
        }
        // SAFETY: the file holds what the run holds.
        unsafe { self.memory.map_positions(part, FIRST, map::Sharing::Shared) }.map_err(|error| refused("mmap", error))
    }

    /// Makes what was taken private memory again; its content stays in the file for as long as it is mapped.
    fn undo(&self) {
        let taken = self.memory.layout.lead()..self.done;
        if !taken.is_empty() {
            // What can't be mapped anew stays as it is: readable and writable.
            // SAFETY: the file holds what the range shows there, and no thread writes it by another way.
            let _ = unsafe { self.memory.map_positions(taken, FIRST, map::Sharing::Private) };
        }
    }

    /// # Safety
    /// `from` is a readable page.
    unsafe fn put(&self, from: *const u8, position: usize) {
        let mut page = [0; PAGE_SIZE];
        // SAFETY: `page` is ours, `from` readable by the caller's promise.
        unsafe { racy::copy(from, page.as_mut_ptr(), PAGE_SIZE) };
        // The file has zeroes already; a page of zeroes need not become one of memory.
        if page != ZEROES {
            // SAFETY: nobody else maps the file there yet.
            unsafe { self.memory.put(page.as_ptr(), FIRST, position) };
        }
    }
}

/// The mappings that make up the range.
fn pieces(memory: &Memory) -> Result<Vec<Piece>, Refused> {
    let (base, end) = (memory.base() as usize, memory.base() as usize + memory.len());
    let lead = memory.layout.lead();
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
