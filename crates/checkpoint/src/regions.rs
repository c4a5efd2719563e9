//! Reading regions of an image, several at once, and checking each against the table.
//!
//! Relies on a [`Queue`] for what is in flight. The only pass over the bytes is the checksum's.

use quire_device::{Buffer, DeviceError, Direction, Extent, Queue, Transfer};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::error::{ImageError, Part};
use crate::format::page_sum;
use crate::image::Image;

/// Regions being read at once.
pub(crate) const DEPTH: usize = 4;

/// A region that has been read.
pub(crate) struct ReadRegion {
    pub(crate) region: u32,
    /// Its bytes, from its first page on.
    pub(crate) buffer: Buffer,
    /// Damage, if its bytes are not what was written.
    pub(crate) damage: Option<ImageError>,
}

/// Reader of regions.
pub(crate) struct RegionReader<'a> {
    image: &'a Image,
    queue: Box<dyn Queue>,
}

impl<'a> RegionReader<'a> {
    pub(crate) fn new(image: &'a Image) -> Result<Self, DeviceError> {
        Ok(Self { image, queue: image.device().queue(DEPTH)? })
    }

    /// Regions that have pages in the image, in address order.
    pub(crate) fn regions(image: &Image) -> impl Iterator<Item = u32> + '_ {
        (0..image.layout().region_count()).filter(|&region| image.table().present_in(region) > 0)
    }

    /// Whether another region may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.in_flight() < DEPTH
    }

    /// Starts to read `region`, which has pages in the image, into `buffer`, which has room for a region.
    pub(crate) fn submit(&mut self, region: u32, buffer: Buffer) {
        let layout = self.image.layout();
        let first = layout.pages_of(region).start;
        // Up to the last page: holes between cost nothing to read.
        let pages = layout.pages_of(region).filter(|&page| self.image.table().is_present(page));
        let (start, end) = pages.fold((u32::MAX, 0), |(start, end), page| (start.min(page), end.max(page + 1)));
        let extent = Extent {
            offset: layout.page_offset(start),
            start: (start - first) as usize * PAGE_SIZE,
            len: (end - start) as usize * PAGE_SIZE,
        };
        let extents = vec![extent];
        self.queue.submit(Transfer { direction: Direction::Read, buffer, extents, tag: u64::from(region) });
    }

    /// The next region that has been read; `None` if none is in flight.
    pub(crate) fn next(&mut self) -> Option<Result<ReadRegion, ImageError>> {
        let finished = self.queue.complete()?;
        if let Err(error) = finished.result {
            return Some(Err(error.into()));
        }
        let region = finished.transfer.tag as u32;
        let buffer = finished.transfer.buffer;
        let damage = self.check(region, &buffer);
        Some(Ok(ReadRegion { region, buffer, damage }))
    }

    fn check(&self, region: u32, bytes: &[u8]) -> Option<ImageError> {
        let (layout, table) = (self.image.layout(), self.image.table());
        let mut sum = 0u64;
        for (page, bytes) in layout.pages_of(region).zip(bytes.chunks_exact(PAGE_SIZE)) {
            if table.is_present(page) {
                sum = sum.wrapping_add(page_sum(page, bytes));
            }
        }
        let wanted = table.sum(region);
        if sum == wanted {
            return None;
        }
        let offset = layout.page_offset(layout.pages_of(region).start);
        let what = format!("the checksum of its pages is {sum:016x}, but {wanted:016x} was written");
        Some(self.image.damaged(Part::Region(region), offset, what))
    }
}

const _: () = assert!(PAGES_PER_REGION * PAGE_SIZE == REGION_SIZE);
