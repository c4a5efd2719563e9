//! What a dump writes to: where its pages go, and what stands before and behind them.

use quire_device::DeviceError;

use crate::format::{ImageMeta, LinkId};
use crate::pages::PageWriter;

/// A file that a dump fills.
pub(crate) trait DumpTarget {
    /// Bytes of the file.
    fn file_bytes(&self) -> u64;

    /// Where `page` goes.
    fn offset_of(&self, page: u32) -> u64;

    /// The first page from `page` on, and before `end`, that belongs into the file.
    fn next(&self, page: u32, end: u32) -> Option<u32>;

    /// `page`, whose checksum is `sum`, is in the file.
    fn add(&mut self, page: u32, sum: u64);

    /// Writes all but the pages. Returns what tells the file from others, and how many pages it has.
    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError>;
}
