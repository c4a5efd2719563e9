//! Runs of pages: which are free, joined with their neighbours, found by length.
//!
//! Relies on descriptors. Free runs lie in lists by length (bins: each length below 32, then four to a doubling); a run
//! never crosses a chunk.

use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::arena::Arena;
use crate::descriptor::{CHUNK_PAGES, Descriptor, FREE_HEAD, FREE_TAIL, META_PAGES, NONE, RUN_MAX_PAGES};
use crate::error::ArenaError;
use crate::superblock::BINS;

/// How many runs of one bin are looked at before a longer one is cut.
const LOOKS: usize = 16;
/// How far access to memory is opened at once, in pages: seldom, since it waits for whoever is backing memory.
const COMMIT_PAGES: u32 = CHUNK_PAGES;
/// How much memory is backed ahead of growth, in bytes.
const WARM_BYTES: usize = 2 * REGION_SIZE;

/// The bin of runs of `len` pages: no run of a later bin is shorter.
fn bin_of(len: u32) -> usize {
    if len < 32 {
        return len as usize;
    }
    let exponent = len.ilog2();
    (32 + (exponent - 5) * 4 + ((len >> (exponent - 2)) & 3)) as usize
}

const _: () = assert!(32 + (18 - 5) * 4 + 3 < BINS);

impl Arena {
    /// `len` adjacent pages; their descriptors are the caller's to fill.
    pub(crate) fn take_run(&mut self, len: u32) -> Result<u32, ArenaError> {
        if len > RUN_MAX_PAGES {
            return Err(self.out_of_memory(u64::from(len) * PAGE_SIZE as u64));
        }
        let page = loop {
            match self.find_run(len)? {
                Some(page) => break page,
                None => self.grow(len)?,
            }
        };
        let found = self.descriptor(page)?.len;
        self.unlink_run(page, found)?;
        if found > len {
            self.link_run(page + len, found - len)?;
        }
        self.superblock_mut().free_pages -= len;
        let fresh = self.barrier.mark_present(page..page + len);
        self.released_pages = self.released_pages.saturating_sub(u64::from(fresh));
        Ok(page)
    }

    /// Gives pages back, joined with free neighbours.
    pub(crate) fn give_run(&mut self, page: u32, len: u32) -> Result<(), ArenaError> {
        let (mut first, mut total) = (page, len);
        let chunk = page / CHUNK_PAGES;
        let after = page + len;
        if after < self.superblock().page_count && after / CHUNK_PAGES == chunk {
            let next = *self.descriptor(after)?;
            if next.kind == FREE_HEAD {
                self.unlink_run(after, next.len)?;
                total += next.len;
            }
        }
        if page % CHUNK_PAGES > META_PAGES {
            let before = *self.descriptor(page - 1)?;
            let reach = if before.kind == FREE_TAIL { before.len } else { 1 };
            if matches!(before.kind, FREE_TAIL | FREE_HEAD) && reach <= page % CHUNK_PAGES - META_PAGES {
                first = page - reach;
                self.unlink_run(first, reach)?;
                total += reach;
            }
        }
        if total > RUN_MAX_PAGES {
            return Err(ArenaError::Damaged { page, what: "a free run longer than a chunk" });
        }
        self.link_run(first, total)?;
        let superblock = self.superblock_mut();
        superblock.free_pages = superblock.free_pages.saturating_add(len);
        Ok(())
    }

    fn find_run(&self, len: u32) -> Result<Option<u32>, ArenaError> {
        let bin = bin_of(len);
        let mut page = self.superblock().bins[bin];
        for _ in 0..LOOKS {
            if page == 0 {
                break;
            }
            let run = self.free_run(page)?;
            if run.len >= len {
                return Ok(Some(page));
            }
            page = run.next;
        }
        let used = self.superblock().bins_used;
        let later = (u128::from(used[1]) << 64 | u128::from(used[0])) & (u128::MAX << (bin + 1));
        if later == 0 {
            return Ok(None);
        }
        let page = self.superblock().bins.get(later.trailing_zeros() as usize).copied().unwrap_or(0);
        if self.free_run(page)?.len < len {
            return Err(ArenaError::Damaged { page, what: "a free run in the wrong list" });
        }
        Ok(Some(page))
    }

    /// The descriptor of a free run's first page, checked.
    fn free_run(&self, page: u32) -> Result<Descriptor, ArenaError> {
        let run = *self.descriptor(page)?;
        let end = u64::from(page % CHUNK_PAGES) + u64::from(run.len);
        if run.kind != FREE_HEAD || run.len == 0 || page % CHUNK_PAGES < META_PAGES || end > u64::from(CHUNK_PAGES) {
            return Err(ArenaError::Damaged { page, what: "not a free run where a list says so" });
        }
        Ok(run)
    }

    fn link_run(&mut self, page: u32, len: u32) -> Result<(), ArenaError> {
        let bin = bin_of(len);
        let next = self.superblock().bins[bin];
        *self.descriptor_mut(page)? = Descriptor { kind: FREE_HEAD, len, next, ..Descriptor::default() };
        if len > 1 {
            *self.descriptor_mut(page + len - 1)? = Descriptor { kind: FREE_TAIL, len, ..Descriptor::default() };
        }
        if next != 0 {
            self.descriptor_mut(next)?.prev = page;
        }
        let superblock = self.superblock_mut();
        superblock.bins[bin] = page;
        superblock.bins_used[bin / 64] |= 1 << (bin % 64);
        Ok(())
    }

    fn unlink_run(&mut self, page: u32, len: u32) -> Result<(), ArenaError> {
        let run = self.free_run(page)?;
        if run.len != len {
            return Err(ArenaError::Damaged { page, what: "the two ends of a free run disagree" });
        }
        let bin = bin_of(len);
        if run.next != 0 {
            self.descriptor_mut(run.next)?.prev = run.prev;
        }
        if run.prev != 0 {
            self.descriptor_mut(run.prev)?.next = run.next;
        } else {
            let superblock = self.superblock_mut();
            superblock.bins[bin] = run.next;
            if run.next == 0 {
                superblock.bins_used[bin / 64] &= !(1 << (bin % 64));
            }
        }
        // The ends must not be mistaken for a run's when they lie inside a larger one later.
        self.descriptor_mut(page)?.kind = NONE;
        self.descriptor_mut(page + len - 1)?.kind = NONE;
        Ok(())
    }

    /// Lays out further regions until a run of `len` pages fits.
    fn grow(&mut self, len: u32) -> Result<(), ArenaError> {
        let region = PAGES_PER_REGION as u32;
        let mut top = self.superblock().page_count;
        if top.is_multiple_of(CHUNK_PAGES) {
            top = self.start_chunk(top)?;
        }
        let left = CHUNK_PAGES - top % CHUNK_PAGES;
        let pages = len.next_multiple_of(region).min(left);
        let end = top + pages;
        self.commit(end, len)?;
        // The descriptors of a region fill two pages exactly, which exist from now on.
        let first = (top % CHUNK_PAGES) as usize * size_of::<Descriptor>() / PAGE_SIZE;
        let count = pages as usize * size_of::<Descriptor>() / PAGE_SIZE;
        let meta = top / CHUNK_PAGES * CHUNK_PAGES + first as u32;
        self.barrier.mark_present(meta..meta + count as u32);
        self.superblock_mut().page_count = end;
        self.released_pages += u64::from(pages);
        self.give_run(top, pages)
    }

    /// Makes room for the descriptors of a new chunk; returns its first page for data.
    fn start_chunk(&mut self, top: u32) -> Result<u32, ArenaError> {
        self.commit(top + META_PAGES, META_PAGES)?;
        self.superblock_mut().page_count = top + META_PAGES;
        Ok(top + META_PAGES)
    }

    /// Opens access up to page `end`.
    fn commit(&mut self, end: u32, wanted: u32) -> Result<(), ArenaError> {
        let end_bytes = end as usize * PAGE_SIZE;
        if end_bytes > self.max_bytes {
            return Err(self.out_of_memory(u64::from(wanted) * PAGE_SIZE as u64));
        }
        if end_bytes > self.limit {
            let ahead = (end.next_multiple_of(COMMIT_PAGES) as usize * PAGE_SIZE).min(self.max_bytes);
            // Where commitments are counted strictly, only what is needed may be had.
            if self.barrier.memory().commit(self.limit..ahead).is_ok() {
                self.limit = ahead;
            } else {
                self.barrier.memory().commit(self.limit..end_bytes)?;
                self.limit = end_bytes;
            }
        }
        let warm = end_bytes..(end_bytes + WARM_BYTES).min(self.limit);
        if !warm.is_empty() {
            self.warmer.warm(warm);
        }
        Ok(())
    }

    pub(crate) fn out_of_memory(&self, wanted_bytes: u64) -> ArenaError {
        let committed_bytes = u64::from(self.superblock().page_count) * PAGE_SIZE as u64;
        ArenaError::OutOfMemory { wanted_bytes, committed_bytes, max_bytes: self.max_bytes as u64 }
    }

    /// Gives whole free regions back to the system, at most `max_regions`; returns how many. None while a snapshot is
    /// open.
    pub fn trim(&mut self, max_regions: usize) -> usize {
        let region = PAGES_PER_REGION as u32;
        let mut given = 0;
        for bin in bin_of(region)..BINS {
            let mut page = self.superblock().bins[bin];
            // A list can't hold more runs than regions exist; the bound also ends the walk of a damaged one.
            let mut looks = self.superblock().page_count / region + 1;
            while page != 0 && looks > 0 && given < max_regions {
                let Ok(run) = self.free_run(page) else {
                    return given;
                };
                given += self.release_regions(page, run.len, max_regions - given);
                page = run.next;
                looks -= 1;
            }
        }
        given
    }

    fn release_regions(&mut self, page: u32, len: u32, max_regions: usize) -> usize {
        let region = PAGES_PER_REGION as u32;
        let mut given = 0;
        let mut start = page.next_multiple_of(region);
        while start + region <= page + len && given < max_regions {
            let backed = (start..start + region).filter(|&page| self.barrier.is_present(page)).count();
            if backed > 0 {
                if !self.barrier.release_pages(start..start + region) {
                    return given;
                }
                self.released_pages += backed as u64;
                given += 1;
            }
            start += region;
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_bins_hold_longer_runs() {
        let mut last = 0;
        for len in 1..=CHUNK_PAGES {
            let bin = bin_of(len);
            assert!(bin == last || bin == last + 1, "{len}");
            last = bin;
        }
        assert!(last < BINS);
    }
}
