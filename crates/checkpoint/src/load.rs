//! Restoring by reading everything first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{Buffer, BumpAllocator};
use quire_snapshot::{PAGE_SIZE, REGION_SIZE, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::{MemError, Reservation};

use crate::error::ImageError;
use crate::format::{ImageLayout, MAX_PAGES};
use crate::image::Image;
use crate::regions::RegionReader;

/// How to restore.
#[derive(Clone, Copy, Debug)]
pub struct RestoreOptions {
    /// Most bytes that the memory may ever span.
    pub max_bytes: u64,
    /// Settings of the barrier before the memory.
    pub barrier: WriteBarrierConfig,
    /// Use regions even if their bytes are not what was written.
    pub accept_damaged: bool,
}

/// What a load has done.
#[derive(Clone, Debug)]
pub struct LoadSummary {
    /// Bytes of the pages read.
    pub bytes: u64,
    /// Regions that are used although damaged.
    pub damage: Vec<ImageError>,
    /// How long it took.
    pub took: Duration,
}

/// Memory that an image has been loaded to.
pub struct LoadedImage {
    /// The memory, behind its barrier.
    pub barrier: WriteBarrier,
    /// Bytes of it that are mapped.
    pub committed_bytes: usize,
    /// What was done.
    pub summary: LoadSummary,
}

/// Addresses for an image and for what it may grow to.
pub(crate) fn reserve(image: &Image, options: &RestoreOptions) -> Result<Reservation, ImageError> {
    let needed_bytes = image.layout().data_bytes();
    if needed_bytes > options.max_bytes {
        let file = image.device().name().to_owned();
        return Err(ImageError::TooLarge { file, needed_bytes, max_bytes: options.max_bytes });
    }
    // At least whole regions, as they are exchanged whole.
    let most = ImageLayout::new(MAX_PAGES).data_bytes();
    let bytes = (options.max_bytes.clamp(1, most) as usize).next_multiple_of(REGION_SIZE);
    Reservation::new(bytes).map_err(|error| no_memory(image, &error))
}

pub(crate) fn no_memory(image: &Image, error: &impl std::fmt::Display) -> ImageError {
    ImageError::Memory { file: image.device().name().to_owned(), why: error.to_string() }
}

/// A barrier that knows which pages have content.
pub(crate) fn guard(
    image: &Image,
    memory: Arc<Reservation>,
    options: &RestoreOptions,
) -> Result<WriteBarrier, ImageError> {
    let mut barrier = WriteBarrier::new(memory, options.barrier).map_err(|error| no_memory(image, &error))?;
    for run in image.table().present_runs(0..image.layout().page_count()) {
        barrier.mark_present(run);
    }
    Ok(barrier)
}

/// The bytes of `region` as a buffer.
pub(crate) fn carve(carver: &mut BumpAllocator, region: u32) -> Result<Buffer, MemError> {
    let start = region as usize * REGION_SIZE;
    let mut buffer = carver.carve(start..start + REGION_SIZE)?;
    // Has its memory backed by an ordinary page fault. The read itself would fault under a lock, for which the
    // thread that remaps regions would have to wait.
    buffer[0] = 0;
    Ok(buffer)
}

/// Reads all pages of an image into memory of its own, on huge pages where the system has them, and checks them.
/// `on_progress` is told regions done and in all.
///
/// # Errors
/// The image is damaged (unless that is accepted), needs more than allowed, or the device fails.
pub fn load(
    image: &Image,
    options: &RestoreOptions,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<LoadedImage, ImageError> {
    let start = Instant::now();
    let mut carver = BumpAllocator::new(reserve(image, options)?);
    let committed_bytes = image.layout().data_bytes() as usize;
    carver.memory().commit(0..committed_bytes).map_err(|error| no_memory(image, &error))?;
    let total = image.table().regions().count() as u64;
    let mut regions = image.table().regions();
    let mut reader = RegionReader::new(image)?;
    let (mut damage, mut done) = (Vec::new(), 0);
    loop {
        while reader.has_room()
            && let Some(region) = regions.next()
        {
            reader.submit(region, carve(&mut carver, region).map_err(|error| no_memory(image, &error))?);
        }
        let Some(read) = reader.next() else { break };
        match read?.damage {
            Some(error) if options.accept_damaged => damage.push(error),
            Some(error) => return Err(error),
            None => {}
        }
        done += 1;
        on_progress(done, total);
    }
    drop(reader);
    let barrier = guard(image, Arc::clone(carver.memory()), options)?;
    let bytes = image.table().present_pages() * PAGE_SIZE as u64;
    Ok(LoadedImage { barrier, committed_bytes, summary: LoadSummary { bytes, damage, took: start.elapsed() } })
}
