//! What a restore reads: an image with what the deltas put over it.
//!
//! Relies on the structures of all links having been checked.

use quire_device::Device;
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

use crate::delta::Delta;
use crate::error::ImageError;
use crate::format::{DATA_OFFSET, ImageLayout};
use crate::image::Image;
use crate::overlay::Overlay;
use crate::restore_options::RestoreOptions;
use crate::table::ChecksumTable;

/// An image and what is put over it.
pub(crate) struct RestoreSource {
    /// Regions of which no page can count any more are forgotten in its table, so they are not read.
    pub(crate) image: Image,
    pub(crate) overlay: Overlay,
    /// The image's pages that count.
    base: ChecksumTable,
    page_count: u32,
}

impl RestoreSource {
    /// `image` with `deltas` over it, the oldest first. Fails if that is more than `options` allow.
    pub(crate) fn new(mut image: Image, deltas: Vec<Delta>, options: &RestoreOptions) -> Result<Self, ImageError> {
        let mut page_count = image.layout().page_count();
        check_size(image.device().name(), page_count, options)?;
        for delta in &deltas {
            page_count = page_count.max(delta.header.page_count.get());
            check_size(delta.file(), page_count, options)?;
        }
        let mut overlay = Overlay::new(deltas);
        let mut base = image.table.clone();
        overlay.runs().iter().flat_map(|run| run.range()).for_each(|page| base.forget_page(page));
        for region in 0..base.layout().region_count() {
            // What a delta has compressed may prove lost; then what is below is used, if that is accepted.
            let may_count = options.accept_damaged && overlay.is_packed(region);
            if base.present_in(region) == 0 && !may_count {
                image.table.forget_region(region);
            }
        }
        overlay.forget_empty_outside(|region| image.table.present_in(region) > 0);
        Ok(Self { image, overlay, base, page_count })
    }

    /// What messages call the files together.
    pub(crate) fn files(&self) -> String {
        let image = self.image.device().name();
        if self.overlay.deltas().is_empty() { image.to_owned() } else { format!("{image} or of a delta over it") }
    }

    /// Bytes of all pages.
    pub(crate) fn data_bytes(&self) -> usize {
        ImageLayout::new(self.page_count).data_bytes() as usize
    }

    /// Regions with content, in rising order.
    pub(crate) fn regions(&self) -> Vec<u32> {
        let mut regions = self.overlay.regions();
        regions.extend(self.image.table().regions());
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    /// Whether the image has `region` compressed.
    pub(crate) fn is_packed(&self, region: u32) -> bool {
        !self.image.table().stored(region).is_plain()
    }

    /// Whether what is mapped for `region` has a hole of its file in it: pages that the image has nothing for, and pages of zeros in a file
    /// that was copied.
    pub(crate) fn has_hole(&self, region: u32) -> bool {
        let has_hole = |device: &dyn Device, offset, bytes| {
            device.as_file().is_some_and(|file| quire_sys::file::has_hole(file, offset, bytes))
        };
        let start = u64::from(region) * REGION_SIZE as u64;
        let bytes = self.image.layout().data_bytes().saturating_sub(start).min(REGION_SIZE as u64);
        let is_in_image = self.image.table().present_in(region) > 0;
        is_in_image && has_hole(self.image.device(), DATA_OFFSET + start, bytes)
            || self.overlay.runs_in(region).iter().any(|run| {
                run.place.is_some_and(|place| {
                    let delta = &self.overlay.deltas()[place.delta as usize];
                    has_hole(delta.device(), delta.offset_of(place.rank), u64::from(run.pages) * PAGE_SIZE as u64)
                })
            })
    }

    /// Runs of pages that have content, in no order.
    pub(crate) fn present_runs(&self) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        let over = self.overlay.runs().iter().filter(|run| run.place.is_some()).map(|run| run.range());
        self.base.present_runs(0..self.base.layout().page_count()).chain(over)
    }

    /// As [`RestoreSource::present_runs`], of one region.
    pub(crate) fn present_runs_in(&self, region: u32) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        let first = first_page(region);
        let over = self.overlay.runs_in(region).iter().filter(|run| run.place.is_some()).map(|run| run.range());
        self.base.present_runs(first..first + PAGES_PER_REGION as u32).chain(over)
    }

    /// Pages that are read: those that a newer link has, too.
    pub(crate) fn pages_read(&self) -> u64 {
        self.image.table().present_pages() + self.overlay.deltas().iter().map(Delta::present_pages).sum::<u64>()
    }
}

fn check_size(file: &str, page_count: u32, options: &RestoreOptions) -> Result<(), ImageError> {
    let needed_bytes = ImageLayout::new(page_count).data_bytes();
    match needed_bytes > options.max_bytes {
        true => Err(ImageError::TooLarge { file: file.to_owned(), needed_bytes, max_bytes: options.max_bytes }),
        false => Ok(()),
    }
}

/// Neighbouring numbers of `regions`, which are in rising order, as ranges.
pub(crate) fn neighbours(regions: impl Iterator<Item = u32>) -> impl Iterator<Item = std::ops::Range<u32>> {
    let mut regions = regions.peekable();
    std::iter::from_fn(move || {
        let start = regions.next()?;
        let mut end = start + 1;
        while regions.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(start..end)
    })
}

/// The first page of `region`.
pub(crate) fn first_page(region: u32) -> u32 {
    region * PAGES_PER_REGION as u32
}
