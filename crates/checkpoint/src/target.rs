//! What a dump writes to: where its pages go, and what stands before and behind them.

use std::ops::Range;

use quire_device::DeviceError;

use crate::format::{ImageMeta, LinkId, StoredRegion};
use crate::pages::PageWriter;

/// A file that a dump fills.
pub(crate) trait DumpTarget {
    /// Bytes of the file.
    fn file_bytes(&self) -> u64;

    /// Where `page` goes.
    fn offset_of(&self, page: u32) -> u64;

    /// The first page from `page` on, and before `end`, that belongs into the file.
    fn next(&self, page: u32, end: u32) -> Option<u32>;

    /// Where the pages of `region` go, one behind the other.
    fn place_of(&self, region: u32) -> Range<u64>;

    /// How `region` is stored, if regions may be compressed.
    fn note_stored(&mut self, region: u32, stored: StoredRegion);

    /// `page`, whose checksum is `sum`, is in the file.
    fn add(&mut self, page: u32, sum: u64);

    /// Writes all but the pages. Returns what tells the file from others, and how many pages it has.
    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError>;
}
