//! Reading regions of an image, several at once, and checking each against the table.
//!
//! Relies on a [`Queue`] for what is in flight. The only pass over the bytes is the checksum's.

use std::ops::Range;

use quire_device::{Buffer, DeviceError, Direction, Extent, Queue, Transfer};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::error::{ImageError, ImagePart};
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

    /// Whether another region may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.in_flight() < DEPTH
    }

    /// Starts to read `region`, which has pages in the image, into `buffer`, which has room for a region.
    pub(crate) fn submit(&mut self, region: u32, buffer: Buffer) {
        let layout = self.image.layout();
        let pages = layout.pages_of(region);
        // One read from the first page to the last: holes between cost nothing to read.
        let span = self.image.table().present_runs(pages.clone()).reduce(|all, run| all.start..run.end);
        let extent = |span: Range<u32>| Extent {
            offset: layout.page_offset(span.start),
            start: (span.start - pages.start) as usize * PAGE_SIZE,
            len: span.len() * PAGE_SIZE,
        };
        let extents = span.map(extent).into_iter().collect();
        self.queue.submit(Transfer { direction: Direction::Read, buffer, extents, tag: u64::from(region) });
    }

    /// The next region that has been read; `None` if none is in flight.
    pub(crate) fn next(&mut self) -> Option<Result<ReadRegion, ImageError>> {
        let finished = self.queue.complete()?;
        let region = finished.transfer.tag as u32;
        if let Err(source) = finished.result {
            return Some(Err(ImageError::Unreadable { part: ImagePart::Region(region), source }));
        }
        let buffer = finished.transfer.buffer;
        let damage = self.check(region, &buffer);
        Some(Ok(ReadRegion { region, buffer, damage }))
    }

    fn check(&self, region: u32, bytes: &[u8]) -> Option<ImageError> {
        let (layout, table) = (self.image.layout(), self.image.table());
        if !table.has_sums() {
            return None;
        }
        let first = layout.pages_of(region).start;
        let mut sum = 0u64;
        for page in table.present_runs(layout.pages_of(region)).flatten() {
            let start = (page - first) as usize * PAGE_SIZE;
            sum = sum.wrapping_add(page_sum(page, &bytes[start..start + PAGE_SIZE]));
        }
        let wanted = table.sum(region);
        if sum == wanted {
            return None;
        }
        let offset = layout.page_offset(layout.pages_of(region).start);
        let what = format!("the checksum of its pages is {sum:016x}, but {wanted:016x} was written");
        Some(self.image.damaged(ImagePart::Region(region), offset, what))
    }
}

const _: () = assert!(PAGES_PER_REGION * PAGE_SIZE == REGION_SIZE);
