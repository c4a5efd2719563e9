//! One walk through all pages of a snapshot, in address order as far as the writer's buffers allow.
//!
//! Relies on pages having fixed places in the file, compressed or not, so that regions and single pages may be taken in any order.

use std::time::{Duration, Instant};

use quire_device::DeviceError;
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, Snapshot, TakeOutcome};

use crate::compression::Compressor;
use crate::format::{ImageLayout, page_sum};
use crate::pages::PageWriter;
use crate::progress::DumpProgress;
use crate::rate_limit::RateLimit;
use crate::target::DumpTarget;

/// A region with fewer pre-images than this isn't worth 2 MiB of writing to free them.
const SPILL_BELOW: u32 = 8;
/// Pages that are written at once while the writer is short of buffers: 256 KiB. The dump waits for a write before it can take the next
/// pages, and the writer waits with it. A disk of 500 MB/s has a write of 1 MiB for 2 ms.
const URGENT_PAGES: usize = 64;
/// A dump that keeps to a rate looks so often whether the writer is getting short of buffers.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);

/// Why pages stopped flowing.
pub(crate) enum Stop {
    Device(DeviceError),
    Cancelled,
    /// A page comes from a file that does not hold what was checked any more.
    Damaged(u32),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// How much of a region has been taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RegionState {
    /// Nothing.
    Whole,
    /// Pages that were written to their places, so the others must be, too.
    Spilled,
    /// Everything.
    Done,
}

/// One walk through all pages of a snapshot.
pub(crate) struct DumpPass<'a, T> {
    pub(crate) snapshot: Snapshot,
    pub(crate) writer: PageWriter<'a>,
    pub(crate) target: T,
    /// Of the snapshot's pages in memory.
    layout: ImageLayout,
    /// How much of each region has been taken.
    regions: Vec<RegionState>,
    compressor: Option<Compressor>,
    progress: &'a DumpProgress,
    rate: RateLimit,
}

impl<'a, T: DumpTarget> DumpPass<'a, T> {
    /// Of all pages of `snapshot`, from the start.
    pub(crate) fn new(
        snapshot: Snapshot,
        writer: PageWriter<'a>,
        target: T,
        compressor: Option<Compressor>,
        progress: &'a DumpProgress,
    ) -> Self {
        let layout = ImageLayout::new(snapshot.page_count());
        let regions = vec![RegionState::Whole; layout.region_count() as usize];
        let rate = RateLimit::new(Instant::now());
        Self { snapshot, writer, target, layout, regions, compressor, progress, rate }
    }

    /// Takes all pages, and starts writing them.
    pub(crate) fn take_all(&mut self) -> Result<(), Stop> {
        for region in 0..self.regions.len() as u32 {
            self.keep_to_rate()?;
            self.relieve()?;
            if self.is_left(region) {
                self.take_region(region)?;
            }
        }
        self.writer.submit()?;
        Ok(())
    }

    /// Waits as long as the rate asks for, or until the writer gets short of buffers: it must not wait for a dump that waits.
    fn keep_to_rate(&mut self) -> Result<(), Stop> {
        loop {
            if self.progress.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let wait = self.rate.wait(Instant::now());
            if wait.is_zero() || self.progress.max_bytes_per_s() == 0 || self.snapshot.pressure() {
                return Ok(());
            }
            // What has been taken is written meanwhile, and counts as progress.
            self.writer.submit()?;
            std::thread::sleep(wait.min(LONGEST_SLEEP));
        }
    }

    fn take_region(&mut self, region: u32) -> Result<(), Stop> {
        if self.progress.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        // A writer that waits for buffers must not wait for a codec, too: taking a region and writing it is faster.
        let may_pack = self.regions[region as usize] == RegionState::Whole && !self.snapshot.pressure();
        let written_pages = match self.compressor.take() {
            Some(mut compressor) if may_pack => {
                let packed = self.pack_region(region, &mut compressor);
                self.compressor = Some(compressor);
                packed?
            }
            compressor => {
                self.compressor = compressor;
                self.copy_region(region)?
            }
        };
        self.regions[region as usize] = RegionState::Done;
        self.rate.add(written_pages * PAGE_SIZE as u64, self.progress.max_bytes_per_s(), Instant::now());
        Ok(())
    }

    /// Takes the pages of `region` straight to what is written. Returns how many there were.
    fn copy_region(&mut self, region: u32) -> Result<u64, DeviceError> {
        let mut taken_pages = 0;
        let mut pages = self.layout.pages_of(region);
        while let Some(page) = self.target.next(pages.start, pages.end) {
            pages.start = page + 1;
            if self.snapshot.take(page, self.writer.slot()?) == TakeOutcome::Copied {
                self.keep(page)?;
                taken_pages += 1;
            }
        }
        Ok(taken_pages)
    }

    /// Takes the pages of `region` together, and writes what they are compressed to. Returns how many pages of the file that takes.
    fn pack_region(&mut self, region: u32, compressor: &mut Compressor) -> Result<u64, DeviceError> {
        compressor.begin();
        let place = self.target.place_of(region);
        let mut pages = self.layout.pages_of(region);
        while let Some(page) = self.target.next(pages.start, pages.end) {
            pages.start = page + 1;
            let start = (self.target.offset_of(page) - place.start) as usize;
            let slot = compressor.slot(start);
            let is_present = self.snapshot.take(page, slot) == TakeOutcome::Copied;
            if is_present {
                self.target.add(page, page_sum(page, slot));
            }
            compressor.keep(start, is_present);
        }
        let taken_pages = compressor.pages().len() as u64;
        let Some((start, stored)) = compressor.pack() else {
            for &start in compressor.pages() {
                self.writer.slot()?.copy_from_slice(compressor.page(start));
                self.writer.keep(place.start + start as u64)?;
            }
            return Ok(taken_pages);
        };
        self.target.note_stored(region, stored);
        let mut offset = place.start + start as u64;
        let mut stands_for = taken_pages;
        for page in compressor.packed(&stored) {
            self.writer.slot()?.copy_from_slice(page);
            self.writer.keep_as(offset, std::mem::take(&mut stands_for))?;
            offset += PAGE_SIZE as u64;
        }
        let written_bytes = stored.padded_bytes() as u64;
        self.progress.add_compressed(taken_pages * PAGE_SIZE as u64 - written_bytes);
        Ok(written_bytes / PAGE_SIZE as u64)
    }

    /// The slot holds `page`.
    fn keep(&mut self, page: u32) -> Result<(), DeviceError> {
        // Summed here, while the page is still in the processor's cache.
        let sum = page_sum(page, self.writer.slot()?);
        self.target.add(page, sum);
        self.writer.keep(self.target.offset_of(page))?;
        if self.writer.filled_pages().is_multiple_of(URGENT_PAGES) && self.snapshot.pressure() {
            self.writer.submit()?;
        }
        Ok(())
    }

    /// Frees buffers of the writer if it is getting short of them.
    fn relieve(&mut self) -> Result<(), Stop> {
        while self.snapshot.pressure() {
            match self.snapshot.fullest_region() {
                Some(region) if self.is_left(region) && self.snapshot.held_in(region) >= SPILL_BELOW => {
                    self.progress.add_preferred();
                    self.take_region(region)?;
                }
                Some(_) => {
                    // Small writes are slow: one bufferful, then a region in its turn, which frees some too.
                    return self.spill();
                }
                None => break,
            }
        }
        Ok(())
    }

    fn is_left(&self, region: u32) -> bool {
        self.regions[region as usize] != RegionState::Done
    }

    /// Takes pre-images wherever they are, a bufferful at most.
    fn spill(&mut self) -> Result<(), Stop> {
        self.writer.submit()?;
        self.writer.slot()?;
        let mut spilled = 0;
        for _ in 0..self.writer.room() {
            let Some(page) = self.snapshot.next_preimage(self.writer.slot()?) else { break };
            let state = &mut self.regions[page as usize / PAGES_PER_REGION];
            if *state == RegionState::Done {
                // The page got its content after the cut: what had content then was taken with its region. Where that is compressed, the
                // page's place is none of its own.
                continue;
            }
            if *state == RegionState::Whole {
                *state = RegionState::Spilled;
            }
            self.keep(page)?;
            spilled += 1;
        }
        self.progress.add_spilled(spilled);
        self.writer.submit()?;
        Ok(())
    }
}
