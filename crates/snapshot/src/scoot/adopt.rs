//! Adoption: what a range holds moves into the file, region by region, and the range shares with the file from then on.
//!
//! Relies on [`crate::scoot::memory::Memory::set_aside`], so threads may go on using the range meanwhile, where
//! userfaultfd is to be had and a region is one mapping; otherwise nobody may write it during the call.

use std::ops::Range;

use quire_sys::map::Sharing;
use quire_sys::proc_maps;
use quire_sys::userfault::Modes;

use super::fold::is_worth_joining;
use super::layout::Generation;
use super::ledger::Ledger;
use super::memory::{ASIDE_REGIONS, Memory, refused};
use crate::origin::Refused;
use crate::page::PAGE_SIZE;
use crate::racy;

const FIRST: Generation = Generation(0);
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Takes everything over. Pages that were never touched stay holes.
pub(super) fn adopt(memory: &Memory, ledger: &mut Ledger) -> Result<(), Refused> {
    let is_anonymous = is_anonymous(memory.base() as usize, memory.len());
    let adoption = Adoption { memory, is_anonymous };
    let mut region = 0;
    while region < memory.layout.regions() {
        let (run, pages) = adoption.next_run(region)?;
        if run.len() == 1 && is_worth_joining(pages.len(), memory.layout.pages(region)) {
            // A file without any page there has nothing to join. Zeroes, since nothing is shared yet.
            // SAFETY: nobody else maps the file yet there.
            unsafe { memory.put(ZEROES.as_ptr(), FIRST, pages[0]) };
            if memory.make_huge(FIRST, region) {
                ledger.set_huge(region, FIRST);
            }
        }
        adoption.take(&run)?;
        region = run.end;
    }
    Ok(())
}

struct Adoption<'a> {
    memory: &'a Memory,
    /// Memory as it comes from the system: what has no page is zero.
    is_anonymous: bool,
}

impl Adoption<'_> {
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
        if !self.is_anonymous {
            return Ok(self.memory.layout.positions(&run).step_by(PAGE_SIZE).collect());
        }
        self.memory.origin_private_pages(&run, &mut pages).map_err(|error| refused("read(pagemap)", error))?;
        Ok(pages)
    }

    /// Copies the pages of `run` and maps it shared, with everybody kept off if that is possible.
    fn take(&self, run: &Range<usize>) -> Result<(), Refused> {
        let modes = Modes { missing: true, write_protect: false, minor: !self.is_anonymous };
        let positions = self.memory.layout.positions(run);
        let mut pages = Vec::with_capacity(positions.len() / PAGE_SIZE);
        let Ok(aside) = self.memory.set_aside(run.clone(), modes) else { return self.take_openly(run) };
        if self.is_anonymous {
            aside.private_pages(&mut pages).map_err(|error| refused("read(pagemap)", error))?;
        } else {
            pages.extend(positions.step_by(PAGE_SIZE));
        }
        for &page in &pages {
            // SAFETY: set aside, so nobody else reaches it.
            unsafe { self.put(aside.at(page), page) };
        }
        aside.finish(FIRST).map_err(|error| refused("mmap", error))?;
        Ok(())
    }

    fn take_openly(&self, run: &Range<usize>) -> Result<(), Refused> {
        for region in run.clone() {
            for page in self.pages_of(region)? {
                // SAFETY: a page of the origin, which nobody writes during the call (see the head of this file).
                unsafe { self.put(self.memory.origin_at(page), page) };
            }
        }
        // SAFETY: the file holds what the run holds.
        unsafe { self.memory.map_origin(run, FIRST, Sharing::Shared) }.map_err(|error| refused("mmap", error))
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

/// Whether nothing but private anonymous memory lies there. In doubt no: then every page is looked at.
fn is_anonymous(base: usize, len: usize) -> bool {
    let mut at = base;
    let mut buffer = vec![0; proc_maps::BUFFER_BYTES];
    let read = proc_maps::each(&mut buffer, |mapping| {
        if mapping.start <= at && at < mapping.end && mapping.anonymous {
            at = mapping.end;
        }
        mapping.start < base + len
    });
    read.is_ok() && at >= base + len
}
