//! Bringing regions of a chain into memory: the image's pages are read and checked, the deltas' pages are put over them.
//!
//! Relies on [`RegionReader`] for the image. Of a delta, all pages of a region are one read, since they lie one behind the other.

use std::ops::Range;

use quire_device::{Buffer, Direction, Transfer};
use quire_snapshot::{PAGE_SIZE, REGION_SIZE};

use crate::compression::Decompressor;
use crate::delta::Delta;
use crate::error::{ImageError, ImagePart, no_buffers};
use crate::regions::RegionReader;
use crate::source::{RestoreSource, first_page};

/// A region that is in memory as it was saved.
pub(crate) struct LoadedRegion {
    pub(crate) region: u32,
    /// Its bytes.
    pub(crate) buffer: Buffer,
    /// What is used although it is not what was written.
    pub(crate) damage: Vec<ImageError>,
}

/// Loader of regions, used by one thread.
pub(crate) struct RegionLoader<'a> {
    source: &'a RestoreSource,
    reader: RegionReader<'a>,
    depth: usize,
    /// Regions of which the image has no page that counts.
    without_base: Vec<(u32, Buffer)>,
    /// Where pages of deltas are read to; made when it is needed.
    delta_pages: Option<Transfer>,
    decompressor: Decompressor,
}

impl<'a> RegionLoader<'a> {
    /// That reads up to `depth` regions of the image at once.
    pub(crate) fn new(source: &'a RestoreSource, depth: usize) -> Result<Self, ImageError> {
        let reader = RegionReader::new(&source.image, depth)?;
        Ok(Self {
            source,
            reader,
            depth,
            without_base: Vec::new(),
            delta_pages: None,
            decompressor: Decompressor::default(),
        })
    }

    /// Whether another region may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.reader.has_room() && self.without_base.len() < self.depth
    }

    /// Starts to load `region` into `buffer`, which has room for a region and is zero.
    pub(crate) fn submit(&mut self, region: u32, buffer: Buffer) {
        match self.source.image.table().present_in(region) {
            0 => self.without_base.push((region, buffer)),
            _ => self.reader.submit(region, buffer),
        }
    }

    /// The next region that has been loaded; `None` if none was submitted.
    pub(crate) fn next(&mut self) -> Option<Result<LoadedRegion, ImageError>> {
        if !self.without_base.is_empty() {
            let (region, buffer) = self.without_base.remove(0);
            return Some(self.put_over(region, buffer, Vec::new()));
        }
        let read = match self.reader.next()? {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        Some(self.put_over(read.region, read.buffer, Vec::from_iter(read.damage)))
    }

    /// Puts the deltas' pages over `region`, which is in `buffer` as the image has it. Pages of a delta that can't be unpacked stay as the
    /// links below have them, so all pages of all deltas are put over each other, the oldest first.
    fn put_over(
        &mut self,
        region: u32,
        mut buffer: Buffer,
        mut damage: Vec<ImageError>,
    ) -> Result<LoadedRegion, ImageError> {
        for delta in self.source.overlay.deltas() {
            let span = delta.span_in(region);
            let pages =
                if span.is_empty() { Some(&[][..]) } else { self.read_pages(delta, region, &span, &mut damage)? };
            for rank in delta.ranks_in(region) {
                let entry = &delta.entries[rank];
                let start = (entry.page.get() - first_page(region)) as usize * PAGE_SIZE;
                let place = &mut buffer[start..start + PAGE_SIZE];
                match pages {
                    _ if entry.present.get() == 0 => place.fill(0),
                    Some(pages) => place.copy_from_slice(&pages[(rank - span.start) * PAGE_SIZE..][..PAGE_SIZE]),
                    None => {}
                }
            }
        }
        Ok(LoadedRegion { region, buffer, damage })
    }

    /// The bytes of the pages of `delta` with these ranks, which are those of `region`; `None` if they can't be unpacked. Adds what is
    /// wrong with them to `damage`.
    fn read_pages(
        &mut self,
        delta: &Delta,
        region: u32,
        ranks: &Range<usize>,
        damage: &mut Vec<ImageError>,
    ) -> Result<Option<&[u8]>, ImageError> {
        let transfer = match &mut self.delta_pages {
            Some(transfer) => transfer,
            none => {
                let buffer = Buffer::new(REGION_SIZE).map_err(|_| no_buffers(delta.file()))?;
                none.insert(Transfer { direction: Direction::Read, buffer, extents: Vec::new(), tag: 0 })
            }
        };
        let stored = delta.stored_in(region);
        transfer.extents.clear();
        transfer.extents.push(delta.extent(ranks, &stored));
        let read = delta.device().run(transfer);
        read.map_err(|source| ImageError::Unreadable { part: ImagePart::Data, source })?;
        match delta.unpack_and_check(ranks, &stored, &mut self.decompressor, &mut transfer.buffer) {
            Ok(found) => damage.extend(found),
            Err(lost) => {
                damage.push(lost);
                return Ok(None);
            }
        }
        Ok(Some(&transfer.buffer[..ranks.len() * PAGE_SIZE]))
    }
}
