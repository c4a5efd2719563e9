//! A delta that is being written.
//!
//! Relies on the set of changed pages being fixed at the cut: it says where each of them goes, whatever order they come in.

use quire_device::DeviceError;
use quire_snapshot::{PAGE_SIZE, PageSet};
use zerocopy::IntoBytes;

use crate::delta::format::{DeltaEntry, DeltaFooter, DeltaHeader, DeltaLayout, present_pages};
use crate::format::{ImageMeta, LinkId};
use crate::pages::PageWriter;
use crate::target::DumpTarget;

/// Bytes of the table that are written at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// The table of a delta, filled as pages come.
pub(crate) struct DeltaTarget {
    base: LinkId,
    page_count: u32,
    /// All changed pages in rising order: the table as it will be in the file.
    entries: Vec<DeltaEntry>,
}

impl DeltaTarget {
    /// Of those of `changed` that are among the first `page_count` pages, over `base`.
    pub(crate) fn new(base: LinkId, changed: &PageSet, page_count: u32) -> Self {
        let empty = |page: u32| DeltaEntry { page: page.into(), present: 0.into(), sum: 0.into() };
        Self { base, page_count, entries: changed.pages_in(0..page_count).map(empty).collect() }
    }

    fn layout(&self) -> DeltaLayout {
        DeltaLayout::new(self.entries.len() as u32)
    }

    /// How many changed pages there are before `page`.
    fn rank(&self, page: u32) -> usize {
        self.entries.partition_point(|entry| entry.page.get() < page)
    }
}

impl DumpTarget for DeltaTarget {
    fn file_bytes(&self) -> u64 {
        self.layout().file_bytes()
    }

    fn offset_of(&self, page: u32) -> u64 {
        self.layout().page_offset(self.rank(page))
    }

    fn next(&self, page: u32, end: u32) -> Option<u32> {
        self.entries.get(self.rank(page)).map(|entry| entry.page.get()).filter(|&next| next < end)
    }

    fn add(&mut self, page: u32, sum: u64) {
        let rank = self.rank(page);
        self.entries[rank] = DeltaEntry { page: page.into(), present: 1.into(), sum: sum.into() };
    }

    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError> {
        let layout = self.layout();
        let header = DeltaHeader::new(meta, self.base, self.page_count, self.entries.len() as u32);
        let footer = DeltaFooter::new(&header, &self.entries);
        writer.write(0, header.as_bytes())?;
        let mut offset = layout.table_offset();
        for piece in self.entries.as_bytes().chunks(TABLE_PIECE_BYTES) {
            let mut piece = piece.to_vec();
            piece.resize(piece.len().next_multiple_of(PAGE_SIZE), 0);
            writer.write(offset, &piece)?;
            // One piece in memory at a time.
            writer.finish()?;
            offset += piece.len() as u64;
        }
        writer.write(layout.footer_offset(), footer.as_bytes())?;
        writer.finish()?;
        Ok((footer.id(), present_pages(&self.entries)))
    }
}
