//! Reading a whole image to find damage.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use quire_device::Buffer;
use quire_snapshot::{PAGE_SIZE, REGION_SIZE};

use crate::error::{ImageError, no_buffers};
use crate::image::Image;
use crate::regions::{DEPTH, RegionReader};

/// What a verification found.
#[derive(Clone, Debug)]
pub struct VerifySummary {
    /// Regions read.
    pub regions: u64,
    /// Bytes of the pages in them.
    pub bytes: u64,
    /// Every region whose bytes are not what was written, and the gap if it is not zero. In no order.
    pub damage: Vec<ImageError>,
    /// How long it took.
    pub took: Duration,
}

impl Image {
    /// Reads all pages and checks them; `on_progress` is told regions done and in all. Goes on after damage, so that
    /// all of it is found.
    ///
    /// # Errors
    /// The device fails, or there is no memory for buffers.
    pub fn verify(&self, mut on_progress: impl FnMut(u64, u64)) -> Result<VerifySummary, ImageError> {
        self.verify_until(&mut |done, total| {
            on_progress(done, total);
            ControlFlow::Continue(())
        })
    }

    /// As [`Image::verify`], until `on_progress` breaks it off: then damage in what was not read is not found.
    pub(crate) fn verify_until(
        &self,
        on_progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<VerifySummary, ImageError> {
        let start = Instant::now();
        let total = self.table().regions().count() as u64;
        let mut reader = RegionReader::new(self, DEPTH)?;
        let mut free = Buffer::several(DEPTH, REGION_SIZE).map_err(|_| no_buffers(self.device().name()))?;
        let mut regions = self.table().regions();
        let mut damage: Vec<ImageError> = self.check_gap()?.into_iter().collect();
        let mut done = 0;
        let mut flow = on_progress(0, total);
        while flow.is_continue() {
            while reader.has_room()
                && let Some(buffer) = free.pop()
            {
                match regions.next() {
                    Some(region) => reader.submit(region, buffer),
                    None => break,
                }
            }
            let Some(read) = reader.next() else { break };
            let read = read?;
            damage.extend(read.damage);
            free.push(read.buffer);
            done += 1;
            flow = on_progress(done, total);
        }
        let bytes = self.table().present_pages() * PAGE_SIZE as u64;
        Ok(VerifySummary { regions: total, bytes, damage, took: start.elapsed() })
    }
}
