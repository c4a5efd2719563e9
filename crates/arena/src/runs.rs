//! Runs of pages: which are free, joined with their neighbours, found by length.
//!
//! Relies on descriptors. Free runs lie in lists by length (bins: each length below 32, then four to a doubling); a run
//! never crosses a chunk.

use std::ops::{Range, RangeInclusive};

use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::arena::Arena;
use crate::descriptor::{CHUNK_PAGES, FREE_HEAD, FREE_TAIL, META_PAGES, NONE, PageDescriptor, RUN_MAX_PAGES};
use crate::error::ArenaError;
use crate::superblock::BINS;

/// How many runs of one bin are looked at before a longer one is cut.
const LOOKS: usize = 16;
/// How far access to memory is opened at once, in pages: seldom, since it waits for the threads that are backing memory.
const COMMIT_PAGES: u32 = CHUNK_PAGES;
/// A free run of fewer pages is worth no call to the system, unless so many of a group of pages are in such runs.
const TRIMMED_PAGES: u32 = 8;
const GROUP_PAGES: u32 = 128;
const TRIMMED_OF_GROUP: u32 = GROUP_PAGES / 4;
/// What such a call weighs, in looks at descriptors, and each page that it gives back.
const CALL_LOOKS: usize = 100;
const LOOKS_PER_PAGE: usize = 2;
/// How much memory is backed ahead of growth, in bytes: at least, and at most.
const WARM_BYTES: RangeInclusive<usize> = 2 * REGION_SIZE..=16 * REGION_SIZE;
/// Of so many bytes that the arena spans, one is backed ahead within these bounds: a large arena may grow faster than memory is backed that was
/// never touched, and does not feel the few pages more.
const WARM_SHARE: usize = 64;

/// The bin of runs of `len` pages: no run of a later bin is shorter.
fn bin_of(len: u32) -> usize {
    if len < 32 {
        return len as usize;
    }
    let exponent = len.ilog2();
    (32 + (exponent - 5) * 4 + ((len >> (exponent - 2)) & 3)) as usize
}

const _: () = assert!(32 + (18 - 5) * 4 + 3 < BINS);

/// What [`Arena::trim_runs`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunsTrimmed {
    /// The page to go on at; 0 after the last one.
    pub cursor: u32,
    /// Looks at what begins at a page, and what weighs as much.
    pub looks: usize,
    /// Pages given back.
    pub released_pages: usize,
}

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
        // A figure only, which a damaged arena may have wrong.
        let superblock = self.superblock_mut();
        superblock.free_pages = superblock.free_pages.saturating_sub(len);
        self.free_regions.note_taken(page..page + len);
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
        self.free_regions.note_freed(page..page + len, first..first + total);
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
    pub(crate) fn free_run(&self, page: u32) -> Result<PageDescriptor, ArenaError> {
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
        *self.descriptor_mut(page)? = PageDescriptor { kind: FREE_HEAD, len, next, ..PageDescriptor::default() };
        if len > 1 {
            *self.descriptor_mut(page + len - 1)? =
                PageDescriptor { kind: FREE_TAIL, len, ..PageDescriptor::default() };
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
        let first = (top % CHUNK_PAGES) as usize * size_of::<PageDescriptor>() / PAGE_SIZE;
        let count = pages as usize * size_of::<PageDescriptor>() / PAGE_SIZE;
        let meta = top / CHUNK_PAGES * CHUNK_PAGES + first as u32;
        self.barrier.mark_present(meta..meta + count as u32);
        self.superblock_mut().reach(end);
        self.released_pages += u64::from(pages);
        self.give_run(top, pages)?;
        // Nothing there is backed yet.
        self.free_regions.note_taken(top..end);
        Ok(())
    }

    /// Makes room for the descriptors of a new chunk; returns its first page for data.
    fn start_chunk(&mut self, top: u32) -> Result<u32, ArenaError> {
        self.commit(top + META_PAGES, META_PAGES)?;
        self.superblock_mut().reach(top + META_PAGES);
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
            } else if let Err(error) = self.barrier.memory().commit(self.limit..end_bytes) {
                return Err(self.refused_memory(u64::from(wanted) * PAGE_SIZE as u64, format!("; {error}")));
            } else {
                self.limit = end_bytes;
            }
        }
        let ahead_bytes =
            (end_bytes / WARM_SHARE).clamp(*WARM_BYTES.start(), *WARM_BYTES.end()) / REGION_SIZE * REGION_SIZE;
        let warm = end_bytes..(end_bytes + ahead_bytes).min(self.limit);
        if !warm.is_empty() {
            self.warmer.warm(warm);
        }
        Ok(())
    }

    pub(crate) fn out_of_memory(&self, wanted_bytes: u64) -> ArenaError {
        self.refused_memory(wanted_bytes, String::new())
    }

    /// The system has refused memory, for this reason. It is no other error than a full arena: what can do without memory does.
    fn refused_memory(&self, wanted_bytes: u64, refusal: String) -> ArenaError {
        let committed_bytes = u64::from(self.superblock().page_count) * PAGE_SIZE as u64;
        ArenaError::OutOfMemory { wanted_bytes, committed_bytes, max_bytes: self.max_bytes as u64, refusal }
    }

    /// Gives whole free regions back to the system; looks at `max_regions` at most, however many are free. Returns how
    /// many were given back; none while a snapshot is open.
    pub fn trim(&mut self, max_regions: usize) -> usize {
        if self.unsurveyed && !self.barrier.is_restoring() {
            self.unsurveyed = false;
            self.survey();
        }
        let mut given = 0;
        for _ in 0..max_regions {
            let Some(region) = self.free_regions.take() else { break };
            let pages = region * PAGES_PER_REGION as u32..(region + 1) * PAGES_PER_REGION as u32;
            let backed = self.barrier.present_in(pages.clone());
            if backed == 0 {
                continue;
            }
            if !self.barrier.release_pages(pages) {
                self.free_regions.put_back(region);
                break;
            }
            self.released_pages += u64::from(backed);
            given += 1;
        }
        given
    }

    /// Gives free runs back to the system that are no regions, which are given back by [`Arena::trim`], in the order of pages: goes on
    /// at the page `cursor` for about so many looks at what begins at a page. None while a snapshot is open, and where memory is shared
    /// with a file.
    pub fn trim_runs(&mut self, cursor: u32, looks: usize) -> RunsTrimmed {
        let mut trimmed = RunsTrimmed { cursor, ..RunsTrimmed::default() };
        if self.barrier.is_open() || self.barrier.is_restoring() || self.barrier.is_file_backed() {
            return trimmed;
        }
        let mut pieces = Vec::new();
        while trimmed.looks < looks {
            let page_count = self.superblock().page_count;
            if trimmed.cursor >= page_count {
                trimmed.cursor = 0;
                break;
            }
            let group_end = (trimmed.cursor / GROUP_PAGES + 1) * GROUP_PAGES;
            while trimmed.cursor < group_end.min(page_count) {
                let page = trimmed.cursor;
                let (found, next) = self.extent_at(page);
                (trimmed.looks, trimmed.cursor) = (trimmed.looks + 1, next);
                if found.is_some_and(|found| found.kind == FREE_HEAD && self.is_listed(page, &found)) {
                    // Between the two are regions, if any.
                    let region = PAGES_PER_REGION as u32;
                    let first = page.next_multiple_of(region).min(next);
                    pieces.extend([page..first, (next / region * region).max(first)..next]);
                }
            }
            self.trim_group(&mut pieces, &mut trimmed);
        }
        trimmed
    }

    /// Whether the free run at `page` is in its list: what is given back is lost, so one descriptor alone is not believed.
    fn is_listed(&self, page: u32, run: &PageDescriptor) -> bool {
        match run.prev {
            0 => self.superblock().bins[bin_of(run.len)] == page,
            prev => self.descriptor(prev).is_ok_and(|before| before.kind == FREE_HEAD && before.next == page),
        }
    }

    /// Gives pieces of the free runs of a group of pages back.
    fn trim_group(&mut self, pieces: &mut Vec<Range<u32>>, trimmed: &mut RunsTrimmed) {
        let backed = pieces.iter().map(|pages| self.barrier.present_in(pages.clone())).sum::<u32>();
        for pages in pieces.drain(..) {
            if backed >= TRIMMED_OF_GROUP || pages.len() as u32 >= TRIMMED_PAGES {
                self.trim_piece(pages, trimmed);
            }
        }
    }

    /// Gives some pages of a free run back.
    fn trim_piece(&mut self, pages: Range<u32>, trimmed: &mut RunsTrimmed) {
        let backed = self.barrier.present_in(pages.clone());
        if backed > 0 && self.barrier.release_pages(pages) {
            self.released_pages += u64::from(backed);
            trimmed.released_pages += backed as usize;
            trimmed.looks += CALL_LOOKS + LOOKS_PER_PAGE * backed as usize;
        }
    }

    /// Regions that the next calls of [`Arena::trim`] will look at.
    pub fn trimmable_regions(&self) -> usize {
        self.free_regions.len()
    }

    /// Finds the free regions of an image: one look at each free run that is as long as a region.
    fn survey(&mut self) {
        let region = PAGES_PER_REGION as u32;
        for bin in bin_of(region)..BINS {
            let mut page = self.superblock().bins[bin];
            // A list can't hold more runs than regions exist; the bound also ends the walk of a damaged one.
            let mut looks = self.superblock().page_count / region + 1;
            while page != 0 && looks > 0 {
                let Ok(run) = self.free_run(page) else { break };
                let pages = page..page + run.len;
                self.free_regions.note_freed(pages.clone(), pages);
                page = run.next;
                looks -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::ArenaConfig;
    use crate::handle::Handle;

    /// Every region that is free as a whole and backed, found the long way.
    fn backed_free_regions(arena: &Arena) -> usize {
        let region = PAGES_PER_REGION as u32;
        let mut found = 0;
        for bin in bin_of(region)..BINS {
            let mut page = arena.superblock().bins[bin];
            while page != 0 {
                let run = arena.free_run(page).unwrap();
                let regions = page.div_ceil(region)..(page + run.len) / region;
                found += regions.filter(|at| arena.barrier.present_in(at * region..(at + 1) * region) > 0).count();
                page = run.next;
            }
        }
        found
    }

    #[test]
    fn a_trim_takes_as_many_steps_as_it_is_told_however_much_is_free() {
        let mut arena = Arena::create(ArenaConfig { max_bytes: 4 << 30, ..ArenaConfig::default() }).unwrap();
        // None of these gigabytes is ever touched but for the allocator's own pages.
        let handles: Vec<Handle> = (0..300).map(|_| arena.alloc(8 << 20).unwrap()).collect();
        assert_eq!(arena.trimmable_regions(), 0);
        for &handle in &handles {
            arena.free(handle).unwrap();
        }
        let mut left = arena.trimmable_regions();
        assert!(left >= 1199 && left == backed_free_regions(&arena), "{left}");
        while left > 0 {
            assert_eq!(arena.trim(8), left.min(8));
            assert_eq!(arena.trimmable_regions(), left - left.min(8), "each region is looked at once");
            left = arena.trimmable_regions();
        }
        assert_eq!((arena.trim(usize::MAX), backed_free_regions(&arena)), (0, 0));
        assert!(arena.stats().free_bytes > 2 << 30, "all of it is free, and none of it is looked at any more");
    }

    #[test]
    fn a_region_under_a_snapshot_is_given_back_afterwards() {
        let mut arena = Arena::create(ArenaConfig { max_bytes: 1 << 30, ..ArenaConfig::default() }).unwrap();
        let handle = arena.alloc(20 << 20).unwrap();
        let snapshot = arena.cut().unwrap();
        arena.free(handle).unwrap();
        let free = arena.trimmable_regions();
        assert!(free >= 9);
        assert_eq!((arena.trim(100), arena.trimmable_regions()), (0, free));
        drop(snapshot);
        assert!(arena.try_finish());
        assert_eq!((arena.trim(100), arena.trimmable_regions()), (free, 0));
    }

    proptest::proptest! {
        #[test]
        fn what_can_be_given_back_is_what_a_search_of_all_runs_finds(
            steps in proptest::collection::vec((0u8..3, 1usize..3 << 20, 0usize..64), 1..200),
        ) {
            let mut arena = Arena::create(ArenaConfig { max_bytes: 1 << 30, ..ArenaConfig::default() }).unwrap();
            let mut handles = Vec::new();
            for (step, bytes, index) in steps {
                match step {
                    0 if !handles.is_empty() => arena.free(handles.swap_remove(index % handles.len())).unwrap(),
                    1 => drop(arena.trim(index % 3)),
                    _ => handles.push(arena.alloc(bytes).unwrap()),
                }
                proptest::prop_assert_eq!(arena.trimmable_regions(), backed_free_regions(&arena));
            }
        }
    }

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
