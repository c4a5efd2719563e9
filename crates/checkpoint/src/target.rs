//! What a dump writes to: where its pages go, and what stands before and behind them.

use quire_device::DeviceError;
use quire_snapshot::PAGE_SIZE;
use zerocopy::IntoBytes;

use crate::format::{ImageFooter, ImageHeader, ImageLayout, ImageMeta, LinkId};
use crate::pages::PageWriter;
use crate::table::ChecksumTable;

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

impl DumpTarget for ChecksumTable {
    fn file_bytes(&self) -> u64 {
        self.layout().file_bytes()
    }

    fn offset_of(&self, page: u32) -> u64 {
        self.layout().page_offset(page)
    }

    fn next(&self, page: u32, end: u32) -> Option<u32> {
        (page < end).then_some(page)
    }

    fn add(&mut self, page: u32, sum: u64) {
        Self::add(self, page, sum);
    }

    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError> {
        let layout: ImageLayout = self.layout();
        let header = ImageHeader::new(meta, layout.page_count());
        let mut tail = self.encode();
        let footer = ImageFooter::new(&header, &tail, self.present_pages());
        tail.extend_from_slice(footer.as_bytes());
        debug_assert_eq!(tail.len(), layout.table_bytes() + PAGE_SIZE);
        writer.write(0, header.as_bytes())?;
        writer.write(layout.table_offset(), &tail)?;
        writer.finish()?;
        Ok((footer.id(), self.present_pages()))
    }
}
