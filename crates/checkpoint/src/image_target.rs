//! An image that is being written.
//!
//! Relies on pages having fixed places, so that they may come in any order.

use quire_device::{DeviceError, Directory};
use quire_snapshot::PAGE_SIZE;
use zerocopy::IntoBytes;

use crate::format::{ImageFooter, ImageHeader, ImageLayout, ImageMeta, LinkId};
use crate::pages::PageWriter;
use crate::replaced::fingerprints;
use crate::table::ChecksumTable;
use crate::target::DumpTarget;

/// The table of an image, filled as pages come.
pub(crate) struct ImageTarget<'a> {
    table: ChecksumTable,
    directory: &'a dyn Directory,
    /// The name that the image will have.
    name: &'a str,
}

impl<'a> ImageTarget<'a> {
    /// Of a memory of `page_count` pages.
    pub(crate) fn new(page_count: u32, directory: &'a dyn Directory, name: &'a str) -> Self {
        Self { table: ChecksumTable::new(ImageLayout::new(page_count)), directory, name }
    }
}

impl DumpTarget for ImageTarget<'_> {
    fn file_bytes(&self) -> u64 {
        self.table.layout().file_bytes()
    }

    fn offset_of(&self, page: u32) -> u64 {
        self.table.layout().page_offset(page)
    }

    fn next(&self, page: u32, end: u32) -> Option<u32> {
        (page < end).then_some(page)
    }

    fn add(&mut self, page: u32, sum: u64) {
        self.table.add(page, sum);
    }

    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError> {
        let Self { table, directory, name } = self;
        let layout: ImageLayout = table.layout();
        let header = ImageHeader::new(meta, layout.page_count()).replacing(&fingerprints(directory, name)?);
        let mut tail = table.encode();
        let footer = ImageFooter::new(&header, &tail, table.present_pages());
        tail.extend_from_slice(footer.as_bytes());
        debug_assert_eq!(tail.len(), layout.table_bytes() + PAGE_SIZE);
        writer.write(0, header.as_bytes())?;
        writer.write(layout.table_offset(), &tail)?;
        writer.finish()?;
        Ok((footer.id(), table.present_pages()))
    }
}
