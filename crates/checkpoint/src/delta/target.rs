//! A delta that is being written.
//!
//! Relies on the set of changed pages being fixed at the cut: it says where each of them goes, whatever order they come in.

use std::ops::Range;

use quire_device::DeviceError;
use quire_snapshot::{PAGE_SIZE, PageSet};
use zerocopy::IntoBytes;

use crate::delta::format::{DeltaEntry, DeltaFooter, DeltaHeader, DeltaLayout, present_pages, ranks_in, regions_of};
use crate::format::{ImageMeta, LinkId, StoredRegion};
use crate::pages::PageWriter;
use crate::target::DumpTarget;

const _: () = assert!(size_of::<DeltaEntry>() == size_of::<StoredRegion>());

/// Bytes of the table that are written at once.
const TABLE_PIECE_BYTES: usize = 1 << 20;

/// The table of a delta, filled as pages come.
pub(crate) struct DeltaTarget {
    base: LinkId,
    page_count: u32,
    /// All changed pages in rising order: the table as it will be in the file.
    entries: Vec<DeltaEntry>,
    /// Regions with changed pages in rising order, and how each is stored; `None` if they are stored as they are.
    stored: Option<Vec<(u32, StoredRegion)>>,
}

impl DeltaTarget {
    /// Of those of `changed` that are among the first `page_count` pages, over `base`.
    pub(crate) fn new(base: LinkId, changed: &PageSet, page_count: u32, is_compressed: bool) -> Self {
        let empty = |page: u32| DeltaEntry { page: page.into(), present: 0.into(), sum: 0.into() };
        let entries: Vec<DeltaEntry> = changed.pages_in(0..page_count).map(empty).collect();
        let plain = |region| (region, StoredRegion::default());
        let stored = is_compressed.then(|| regions_of(&entries).into_iter().map(plain).collect());
        Self { base, page_count, entries, stored }
    }

    fn layout(&self) -> DeltaLayout {
        let regions = self.stored.as_ref().map_or(0, Vec::len) as u32;
        DeltaLayout::new(self.entries.len() as u32).with_regions(regions)
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

    fn place_of(&self, region: u32) -> Range<u64> {
        let ranks = ranks_in(&self.entries, region);
        self.layout().page_offset(ranks.start)..self.layout().page_offset(ranks.end)
    }

    fn note_stored(&mut self, region: u32, stored: StoredRegion) {
        let Some(regions) = &mut self.stored else { return };
        if let Ok(at) = regions.binary_search_by_key(&region, |(region, _)| *region) {
            regions[at].1 = stored;
        }
    }

    fn add(&mut self, page: u32, sum: u64) {
        let rank = self.rank(page);
        self.entries[rank] = DeltaEntry { page: page.into(), present: 1.into(), sum: sum.into() };
    }

    fn finish(self, meta: &ImageMeta, writer: &mut PageWriter<'_>) -> Result<(LinkId, u64), DeviceError> {
        let layout = self.layout();
        let header = DeltaHeader::new(meta, self.base, self.page_count, self.entries.len() as u32);
        let header = match &self.stored {
            Some(regions) => header.compressed(regions.len() as u32),
            None => header,
        };
        let stored: Vec<StoredRegion> = self.stored.iter().flatten().map(|(_, stored)| *stored).collect();
        let footer = DeltaFooter::new(&header, &self.entries, &stored);
        writer.write(0, header.as_bytes())?;
        let mut offset = layout.table_offset();
        let entry_bytes = size_of::<DeltaEntry>();
        let mut entries =
            self.entries.as_bytes().chunks(entry_bytes).chain(stored.as_bytes().chunks(entry_bytes)).peekable();
        while entries.peek().is_some() {
            let mut piece: Vec<u8> =
                entries.by_ref().take(TABLE_PIECE_BYTES / entry_bytes).flatten().copied().collect();
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
