//! Reading regions of an image, several at once, and checking each against the table.
//!
//! Relies on a [`Queue`] for what is in flight. The only pass over the bytes is the checksum's, but for regions that are unpacked.

use quire_device::{Buffer, DeviceError, Direction, Extent, Queue, Transfer};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::compression::{Decompressor, span_bytes};
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
    depth: usize,
    decompressor: Decompressor,
}

impl<'a> RegionReader<'a> {
    /// That reads up to `depth` regions at once.
    pub(crate) fn new(image: &'a Image, depth: usize) -> Result<Self, DeviceError> {
        Ok(Self { image, queue: image.device().queue(depth)?, depth, decompressor: Decompressor::default() })
    }

    /// Whether another region may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.in_flight() < self.depth
    }

    /// Starts to read `region`, which has pages in the image, into `buffer`, which has room for a region.
    pub(crate) fn submit(&mut self, region: u32, buffer: Buffer) {
        let (layout, table) = (self.image.layout(), self.image.table());
        let stored = table.stored(region);
        // One read from the first page to the last: holes between cost nothing to read.
        let extents = table.span(region).into_iter().map(|span| {
            let place = span_bytes(layout.pages_of(region).start, &span);
            let len = if stored.is_plain() { place.len() } else { stored.padded_bytes() };
            Extent { offset: layout.page_offset(span.start), start: place.start, len }
        });
        let extents = extents.collect();
        self.queue.submit(Transfer { direction: Direction::Read, buffer, extents, tag: u64::from(region) });
    }

    /// The next region that has been read; `None` if none is in flight.
    pub(crate) fn next(&mut self) -> Option<Result<ReadRegion, ImageError>> {
        let finished = self.queue.complete()?;
        let region = finished.transfer.tag as u32;
        if let Err(source) = finished.result {
            return Some(Err(ImageError::Unreadable { part: ImagePart::Region(region), source }));
        }
        let mut buffer = finished.transfer.buffer;
        let damage = self.unpack(region, &mut buffer).err().or_else(|| self.check(region, &buffer));
        Some(Ok(ReadRegion { region, buffer, damage }))
    }

    /// Has the pages of `region` in `bytes`, if it was stored compressed.
    fn unpack(&mut self, region: u32, bytes: &mut [u8]) -> Result<(), ImageError> {
        let (layout, table) = (self.image.layout(), self.image.table());
        let stored = table.stored(region);
        let Some(span) = table.span(region).filter(|_| !stored.is_plain()) else { return Ok(()) };
        let place = span_bytes(layout.pages_of(region).start, &span);
        let unpacked = self.decompressor.unpack(&stored, &mut bytes[place]);
        let told = |what| self.image.damaged(ImagePart::Region(region), layout.page_offset(span.start), what);
        unpacked.map_err(|error| told(error.what))
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
        // Of a compressed region nothing lies before its first page with content.
        let stored_from = table.span(region).filter(|_| !table.stored(region).is_plain());
        let offset = layout.page_offset(stored_from.map_or(first, |span| span.start));
        let what = format!("the checksum of its pages is {sum:016x}, but {wanted:016x} was written");
        Some(self.image.damaged(ImagePart::Region(region), offset, what))
    }
}

const _: () = assert!(PAGES_PER_REGION * PAGE_SIZE == REGION_SIZE);
