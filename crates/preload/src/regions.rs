//! The regions of the program's memory and what is known of each: how much of it was written while a child lived.
//!
//! Relies on `/proc/self/maps` and `/proc/self/pagemap`. Only private memory that belongs to no file is looked at. The
//! list is made anew for every child, in order of address, and takes over what was learned under the same address.

use std::io;
use std::ops::Range;

use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::proc_maps;

use crate::fixed_vec::FixedVec;
use crate::zread::blocks;

/// Most regions that are kept: 1 TiB in regions of 2 MiB. The list is mapped whole, but backed as far as it is used.
const MOST_REGIONS: usize = 1 << 19;
/// Most pages that one look covers, 64 GiB: programs reserve more, but don't fill it.
const MOST_PAGES: usize = 1 << 24;
/// Pages that are read from the page map at once.
const READ_PAGES: usize = 4096;

/// Share of a dense region's pages that are there, in thousandths.
const LEAST_DENSE_PERMILLE: u32 = 970;

/// What has become of a region since the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMethod {
    /// Nothing: the program copies what it writes.
    #[default]
    Own,
    /// It could have been copied whole and was left, to learn from.
    Left,
    /// It was copied page by page, all but a sample.
    Sampled,
    /// It was copied whole.
    Whole,
}

/// One region, or the part of one that belongs to a mapping.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappedRegion {
    /// Its first address.
    pub address: usize,
    /// Share of its pages that was written in earlier epochs, in thousandths; `None` until there was one.
    pub coverage_permille: Option<u16>,
    /// It was made a huge page, and not torn since as far as is known.
    pub huge: bool,
    /// Pages that it spans.
    pub pages: u16,
    /// Pages with memory behind them when the child was young.
    pub present: u16,
    /// What was done.
    pub method: CopyMethod,
    /// At its turn: pages that were the parent's own already.
    pub own_before: u16,
    /// At its turn: pages still shared.
    pub shared_before: u16,
    /// Pages that were copied ahead.
    pub precopied: u16,
    /// Which strata's pages were left, of those still shared then.
    pub sample: u16,
    /// What the last valid look before the child's end found.
    pub end: PageCounts,
    /// What a look finds that may yet turn out to be invalid.
    pub pending: PageCounts,
}

/// What a look at a region finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages that the parent has for itself.
    pub own: u16,
    /// Pages that are shared.
    pub shared: u16,
    /// Sampled pages that the parent has for itself by now.
    pub sample_own: u16,
}

impl MappedRegion {
    /// Its addresses.
    pub fn range(&self) -> Range<usize> {
        self.address..self.address + usize::from(self.pages) * PAGE_SIZE
    }

    /// Whether so few of its pages are missing when `present` are there that making a huge page of it takes no memory
    /// worth mentioning.
    pub fn is_dense(&self, present: u16) -> bool {
        u32::from(present) * 1000 >= u32::from(self.pages) * LEAST_DENSE_PERMILLE
    }

    /// Counts own and shared pages in the words of this region.
    pub fn count(words: &[u64]) -> (u16, u16) {
        words.iter().fold((0, 0), |(own, shared), &word| {
            (
                own + u16::from(PagemapEntry::is_exclusive(word)),
                shared + u16::from(PagemapEntry::is_shared_anonymous(word)),
            )
        })
    }
}

/// All regions.
#[derive(Debug)]
pub struct Regions {
    now: FixedVec<MappedRegion>,
    before: FixedVec<MappedRegion>,
    words: FixedVec<u64>,
    text: FixedVec<u8>,
    region_bytes: usize,
}

impl Regions {
    /// No regions yet.
    ///
    /// # Errors
    /// When there is no address space.
    pub fn new(region_bytes: usize) -> io::Result<Self> {
        let mut words = FixedVec::new(READ_PAGES)?;
        let mut text = FixedVec::new(proc_maps::BUFFER_BYTES)?;
        while words.push(0) {}
        while text.push(0) {}
        Ok(Self { now: FixedVec::new(MOST_REGIONS)?, before: FixedVec::new(MOST_REGIONS)?, words, text, region_bytes })
    }

    /// The regions.
    pub fn all(&self) -> &[MappedRegion] {
        self.now.all()
    }

    /// The regions, to be changed.
    pub fn all_mut(&mut self) -> &mut [MappedRegion] {
        self.now.all_mut()
    }

    /// Makes the list anew, as memory is now, and takes over what was learned.
    ///
    /// # Errors
    /// When `/proc` can't be read.
    pub fn renew(&mut self, pagemap: &Pagemap) -> io::Result<()> {
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.clear();
        let own_lists = [&self.now, &self.before].map(FixedVec::addresses);
        let (mut pages_left, mut old, mut failed) = (MOST_PAGES, 0, None);
        let Self { now, before, words, text, region_bytes } = self;
        proc_maps::each(text.all_mut(), |mapping| {
            if !mapping.anonymous || mapping.stack || own_lists.iter().any(|range| range.contains(&mapping.start)) {
                return true;
            }
            for part in around(mapping.start..mapping.end, &blocks::range()) {
                let end = part.end.min(part.start + pages_left * PAGE_SIZE);
                pages_left -= (end - part.start) / PAGE_SIZE;
                let mut address = part.start;
                while address < end {
                    // Whole regions at a time, as far as the buffer goes.
                    let piece_end = (address / *region_bytes * *region_bytes + READ_PAGES * PAGE_SIZE).min(end);
                    let words = &mut words.all_mut()[..(piece_end - address) / PAGE_SIZE];
                    match pagemap.read_words(address, words) {
                        Ok(count) => words[count..].fill(0),
                        Err(error) => {
                            failed = Some(error);
                            return false;
                        }
                    }
                    add(now, before.all(), &mut old, address..piece_end, words, *region_bytes);
                    address = piece_end;
                }
            }
            pages_left > 0
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Looks at every region again; the results are pending until [`Regions::accept`].
    ///
    /// # Errors
    /// When the page map can't be read.
    pub fn look(&mut self, pagemap: &Pagemap, sampler: crate::sampler::WriteSampler) -> io::Result<()> {
        let words = self.words.all_mut();
        for region in self.now.all_mut() {
            let words = &mut words[..usize::from(region.pages)];
            let count = pagemap.read_words(region.address, words)?;
            let (own, shared) = MappedRegion::count(&words[..count]);
            let sample_own = match region.method {
                CopyMethod::Sampled => sampler
                    .pages(region.address, words.len())
                    .enumerate()
                    .filter(|&(stratum, page)| {
                        region.sample >> stratum & 1 == 1 && PagemapEntry::is_exclusive(words[page])
                    })
                    .count() as u16,
                _ => 0,
            };
            region.pending = PageCounts { own, shared, sample_own };
        }
        Ok(())
    }

    /// Takes the pending look as valid.
    pub fn accept(&mut self) {
        for region in self.now.all_mut() {
            region.end = region.pending;
        }
    }

    /// Reads the words of region number `index`.
    ///
    /// # Errors
    /// When the page map can't be read.
    pub fn words(&mut self, pagemap: &Pagemap, index: usize) -> io::Result<(&mut MappedRegion, &[u64])> {
        let region = &mut self.now.all_mut()[index];
        let words = &mut self.words.all_mut()[..usize::from(region.pages)];
        let count = pagemap.read_words(region.address, words)?;
        words[count..].fill(0);
        Ok((region, words))
    }
}

/// The parts of `whole` before and behind `hole`. The blocks of z-READ are left out by it: they are 64 GiB of addresses with hardly any
/// memory, which would use up what may be looked at; the kernel may have joined other memory with them in one mapping.
fn around(whole: Range<usize>, hole: &Range<usize>) -> [Range<usize>; 2] {
    if hole.is_empty() || hole.end <= whole.start || whole.end <= hole.start {
        return [whole, 0..0];
    }
    [whole.start..hole.start.max(whole.start), hole.end.min(whole.end)..whole.end]
}

/// Adds the regions of a piece of a mapping that have any memory.
fn add(
    now: &mut FixedVec<MappedRegion>,
    before: &[MappedRegion],
    old: &mut usize,
    piece: Range<usize>,
    words: &[u64],
    region_bytes: usize,
) {
    let mut address = piece.start;
    while address < piece.end {
        let end = (address / region_bytes + 1).saturating_mul(region_bytes).min(piece.end);
        let from = (address - piece.start) / PAGE_SIZE;
        let (own, shared) = MappedRegion::count(&words[from..from + (end - address) / PAGE_SIZE]);
        while before.get(*old).is_some_and(|region| region.address < address) {
            *old += 1;
        }
        let known = before.get(*old).filter(|region| region.address == address);
        if own + shared > 0 {
            let region = MappedRegion {
                address,
                coverage_permille: known.and_then(|region| region.coverage_permille),
                huge: known.is_some_and(|region| region.huge && region.pages == ((end - address) / PAGE_SIZE) as u16),
                pages: ((end - address) / PAGE_SIZE) as u16,
                present: own + shared,
                ..MappedRegion::default()
            };
            if !now.push(region) {
                return;
            }
        }
        address = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::WriteSampler;
    use quire_sys::area::AnonymousMap;

    #[test]
    fn memory_is_found_cut_at_regions_and_remembered() {
        // Not while another test reserves the addresses of z-READ's blocks, which are left out only when they are known.
        let _alone = crate::state::alone();
        // Between pages without access: mappings of tests beside this one must not grow together with it.
        let memory = quire_sys::mem::Reservation::new(16 << 20).unwrap();
        memory.commit(2 << 20..11 << 20).unwrap();
        let base = memory.base() as usize + (2 << 20);
        for page in 0..(9 << 20) / PAGE_SIZE {
            // SAFETY: `page` stays below the 9 MiB that were committed from `base` on, in a reservation that only this test
            // knows.
            unsafe { (base as *mut u8).add(page * PAGE_SIZE).write(1) };
        }
        let pagemap = Pagemap::open(None).unwrap();
        let mut regions = Regions::new(2 << 20).unwrap();
        let inside = |region: &MappedRegion| (base..base + (9 << 20)).contains(&region.address);
        regions.renew(&pagemap).unwrap();
        let pages: usize = regions.all().iter().filter(|r| inside(r)).map(|r| usize::from(r.present)).sum();
        assert_eq!(pages, (9 << 20) / PAGE_SIZE);
        assert!(regions.all().windows(2).all(|pair| pair[0].range().end <= pair[1].address));
        regions.all_mut().iter_mut().filter(|r| inside(r)).for_each(|r| r.coverage_permille = Some(5));
        regions.renew(&pagemap).unwrap();
        assert!(regions.all().iter().filter(|r| inside(r)).all(|r| r.coverage_permille == Some(5)));
        regions.look(&pagemap, WriteSampler::new(1)).unwrap();
        regions.accept();
        assert!(regions.all().iter().filter(|r| inside(r)).all(|r| r.end.own == r.present && r.end.shared == 0));
    }

    #[test]
    fn a_range_is_left_out_of_what_the_kernel_has_joined_with_it() {
        assert_eq!(around(10..90, &(0..0)), [10..90, 0..0]);
        assert_eq!(around(10..90, &(90..95)), [10..90, 0..0]);
        assert_eq!(around(10..90, &(20..30)), [10..20, 30..90]);
        assert_eq!(around(10..90, &(5..30)), [10..10, 30..90]);
        assert!(around(10..90, &(10..90)).iter().all(Range::is_empty));
    }

    #[test]
    fn regions_without_memory_are_not_listed() {
        let area = AnonymousMap::private(64 << 20).unwrap();
        let mut regions = Regions::new(32 << 10).unwrap();
        regions.renew(&Pagemap::open(None).unwrap()).unwrap();
        let range = area.base() as usize..area.base() as usize + area.len();
        assert!(!regions.all().iter().any(|region| range.contains(&region.address)));
    }
}
