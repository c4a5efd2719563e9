//! An image that is being written.
//!
//! Relies on pages having fixed places, so that they may come in any order.

use std::ops::Range;

use quire_device::{DeviceError, Directory};
use quire_snapshot::PAGE_SIZE;
use zerocopy::IntoBytes;

use crate::fingerprint::fingerprints;
use crate::format::{ImageFooter, ImageHeader, ImageLayout, ImageMeta, LinkId, StoredRegion};
use crate::pages::PageWriter;
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
    /// Of a memory that lies in the file as `layout` says.
    pub(crate) fn new(layout: ImageLayout, directory: &'a dyn Directory, name: &'a str) -> Self {
        Self { table: ChecksumTable::new(layout), directory, name }
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

    fn place_of(&self, region: u32) -> Range<u64> {
        let layout = self.table.layout();
        let pages = layout.pages_of(region);
        layout.page_offset(pages.start)..layout.page_offset(pages.end)
    }

    fn note_stored(&mut self, region: u32, stored: StoredRegion) {
        self.table.note_stored(region, stored);
    }

    fn add(&mut self, page: u32, sum: u64) {
        self.table.add(page, sum);
    }

    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError> {
        let Self { table, directory, name } = self;
        let layout: ImageLayout = table.layout();
        let header = ImageHeader::new(meta, layout.page_count()).replacing(&fingerprints(directory, name)?);
        let header = if layout.is_compressed() { header.compressed() } else { header };
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
