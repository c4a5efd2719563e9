//! Where the pages of a range lie: in the range itself, in the file behind it, in windows of views.
//!
//! Relies on nothing. A *position* counts bytes from the huge-page boundary at or below the range, so a range that starts
//! between two boundaries has its first position at `lead`, and everything that is congruent to 2 MiB in one place is so
//! in all of them. Only that lets the kernel map huge pages.

use std::ops::Range;

use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Copies of a region that may exist in the file at once: the origin's own, and older ones that views still hold.
pub(super) const GENERATIONS: usize = 3;

/// Which of a region's places in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(pub(super) u8);

impl Generation {
    /// As an index.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The shape of a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLayout {
    lead: usize,
    len: usize,
    regions: usize,
}

impl FileLayout {
    pub(super) fn new(base: usize, len: usize) -> Self {
        let lead = base % REGION_SIZE;
        Self { lead, len, regions: (lead + len).div_ceil(REGION_SIZE) }
    }

    /// Position of the first byte.
    pub(super) fn lead(&self) -> usize {
        self.lead
    }

    /// Regions, the first and the last perhaps in part.
    pub(super) fn regions(&self) -> usize {
        self.regions
    }

    /// Bytes from one generation to the next in the file.
    pub(super) fn stride(&self) -> usize {
        self.regions * REGION_SIZE
    }

    /// Positions of `regions` that lie in the range.
    pub(super) fn positions(&self, regions: &Range<usize>) -> Range<usize> {
        let start = (regions.start * REGION_SIZE).max(self.lead);
        start..(regions.end * REGION_SIZE).min(self.lead + self.len)
    }

    /// Pages of `region` that lie in the range.
    pub(super) fn pages(&self, region: usize) -> usize {
        self.positions(&(region..region + 1)).len() / PAGE_SIZE
    }

    /// Place of `position` in the file.
    pub(super) fn file_offset(&self, generation: Generation, position: usize) -> usize {
        generation.index() * self.stride() + position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_between_boundaries_has_parts_of_regions_at_both_ends() {
        let layout = FileLayout::new((7 << 21) + 8192, REGION_SIZE + 4096);
        assert_eq!((layout.lead(), layout.regions(), layout.stride()), (8192, 2, 2 * REGION_SIZE));
        assert_eq!(layout.positions(&(0..1)), 8192..REGION_SIZE);
        assert_eq!(layout.positions(&(1..2)), REGION_SIZE..REGION_SIZE + 12288);
        assert_eq!((layout.pages(0), layout.pages(1)), (510, 3));
        assert_eq!(layout.file_offset(Generation(1), 8192), 2 * REGION_SIZE + 8192);
    }

    #[test]
    fn an_aligned_range_has_whole_regions() {
        let layout = FileLayout::new(1 << 21, 3 * REGION_SIZE);
        assert_eq!((layout.lead(), layout.regions(), layout.pages(2)), (0, 3, 512));
        assert_eq!(layout.positions(&(1..3)), REGION_SIZE..3 * REGION_SIZE);
    }
}
