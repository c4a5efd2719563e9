//! The units in which memory is tracked.

/// Bytes of a page: the unit of page states and pre-images.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of a region: the unit of coverage, checksums and huge pages.
pub const REGION_SIZE: usize = 2 << 20;
/// Pages of a region.
pub const PAGES_PER_REGION: usize = REGION_SIZE / PAGE_SIZE;

/// Number of the page that holds byte `offset`.
#[inline]
pub(crate) const fn page_of(offset: usize) -> usize {
    offset / PAGE_SIZE
}
