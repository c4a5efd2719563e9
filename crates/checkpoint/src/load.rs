//! Restoring by reading everything first.
//!
//! Relies on [`load_regions`] for reading on all processors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_snapshot::{PAGE_SIZE, REGION_SIZE, WriteBarrier};
use quire_sys::mem::Reservation;

use crate::error::ImageError;
use crate::format::{ImageLayout, MAX_PAGES};
use crate::image::Image;
use crate::parallel_load::load_regions;
use crate::region_memory::{RegionMemory, no_memory};
use crate::restore_options::RestoreOptions;
use crate::source::RestoreSource;

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

/// Addresses for what is restored and for what it may grow to.
pub(crate) fn reserve(source: &RestoreSource, options: &RestoreOptions) -> Result<Reservation, ImageError> {
    // At least whole regions, as they are exchanged whole.
    let most = ImageLayout::new(MAX_PAGES).data_bytes();
    let bytes = (options.max_bytes.clamp(1, most) as usize).next_multiple_of(REGION_SIZE);
    Reservation::new(bytes).map_err(|error| no_memory(&source.image, &error))
}

/// A barrier that knows which pages have content.
pub(crate) fn guard(
    source: &RestoreSource,
    memory: Arc<Reservation>,
    options: &RestoreOptions,
) -> Result<WriteBarrier, ImageError> {
    let mut barrier = WriteBarrier::new(memory, options.barrier).map_err(|error| no_memory(&source.image, &error))?;
    for run in source.present_runs() {
        barrier.mark_present(run);
    }
    Ok(barrier)
}

/// Reads all pages of an image into memory of its own, on huge pages where the system has them, and checks them, on all
/// processors. `on_progress` is told regions done and in all.
///
/// # Errors
/// The image is damaged (unless that is accepted), needs more than allowed, or the device fails.
pub fn load(
    image: &Image,
    options: &RestoreOptions,
    on_progress: impl FnMut(u64, u64),
) -> Result<LoadedImage, ImageError> {
    load_source(&RestoreSource::new(image.clone(), Vec::new(), options)?, options, on_progress)
}

/// [`load`] of an image and what is put over it.
pub(crate) fn load_source(
    source: &RestoreSource,
    options: &RestoreOptions,
    on_progress: impl FnMut(u64, u64),
) -> Result<LoadedImage, ImageError> {
    let start = Instant::now();
    let mut regions_memory = RegionMemory::new(reserve(source, options)?);
    let committed_bytes = source.data_bytes();
    regions_memory.reservation().commit(0..committed_bytes).map_err(|error| no_memory(&source.image, &error))?;
    let damage = load_regions(source, &source.regions(), &mut regions_memory, options.accept_damaged, on_progress)?;
    let barrier = guard(source, Arc::clone(regions_memory.reservation()), options)?;
    let bytes = source.pages_read() * PAGE_SIZE as u64;
    Ok(LoadedImage { barrier, committed_bytes, summary: LoadSummary { bytes, damage, took: start.elapsed() } })
}
