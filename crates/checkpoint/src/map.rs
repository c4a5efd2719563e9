//! Restoring by mapping: the file serves as memory at once, and is replaced by verified memory region by region.
//!
//! ```text
//! files ─map, privately──▶ memory ◀──remap, between commands── staging ◀──direct reads, checked── files
//! ```
//! Pages of deltas are mapped over those of the image, run by run; a region that has too many runs for that, that is compressed, or that has
//! holes in a file on tmpfs, is read first.
//! Relies on the file not being cut short by others while it is mapped (the system ends the process, which says why before); a new image
//! comes by rename, which leaves this one alone. What is read before its region was verified comes from the file as it is.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quire_device::Device;
use quire_snapshot::{PAGE_SIZE, REGION_SIZE, WriteBarrier};
use quire_sys::mapped_file::FaultNotice;
use quire_sys::mem::Reservation;
use quire_sys::thread::spawn_unsignalled;

use crate::clone::lost_pages_notice;
use crate::error::ImageError;
use crate::format::DATA_OFFSET;
use crate::image::Image;
use crate::load::{guard, reserve};
use crate::parallel_load::load_regions;
use crate::region_loader::{LoadedRegion, RegionLoader};
use crate::region_memory::{RegionMemory, no_memory, touch};
use crate::regions::DEPTH;
use crate::restore_options::RestoreOptions;
use crate::source::{RestoreSource, neighbours};

/// Regions that may be staged and not taken over yet: 64 MiB of memory beside the data.
const STAGED_MAX: usize = 32;
/// Most mapped runs of deltas' pages in regions that are exchanged at once.
const MAX_RUNS_PER_EXCHANGE: usize = 64;
/// How long the first commands have the disk to themselves: they need a few pages at once, the background needs all.
const HEAD_START: Duration = Duration::from_millis(50);

/// A restore by mapping that goes on in the background. Dropping it ends that.
pub struct BackgroundRestore {
    ready: Receiver<u32>,
    /// Taken from `ready`, but not a neighbour of what was given out.
    next: Option<u32>,
    shared: Arc<Shared>,
    staging: Arc<Reservation>,
    source: Arc<RestoreSource>,
    thread: Option<JoinHandle<()>>,
    file: String,
    regions_total: u32,
    adopted: u32,
    _notice: Option<FaultNotice>,
}

/// How far a restore has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreStatus {
    /// Regions to be exchanged.
    pub regions_total: u32,
    /// Regions read and verified.
    pub staged: u32,
    /// Regions exchanged.
    pub adopted: u32,
    /// Regions that are used although they are damaged.
    pub damaged: u32,
    /// What ended it early.
    pub failed: Option<ImageError>,
    /// Every region has been exchanged.
    pub done: bool,
}

#[derive(Default)]
struct Shared {
    staged: AtomicU32,
    damaged: AtomicU32,
    stop: AtomicBool,
    failed: Mutex<Option<ImageError>>,
}

/// Memory that an image has been mapped to.
pub struct MappedImage {
    /// The memory, behind its barrier.
    pub barrier: WriteBarrier,
    /// Bytes of it that are mapped.
    pub committed_bytes: usize,
    /// What goes on in the background.
    pub restore: BackgroundRestore,
    /// What is used already although it is damaged.
    pub damage: Vec<ImageError>,
    /// Regions that were read and verified first, as they could not be mapped.
    pub regions_loaded: u32,
    /// Runs of deltas' pages that are mapped.
    pub delta_runs: u32,
}

impl std::fmt::Debug for BackgroundRestore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Restore").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// Maps the pages of an image as memory, copy on write, and starts to read and verify them in the background.
///
/// # Errors
/// The image needs more than allowed, or isn't a file that can be mapped.
pub fn map(image: Image, options: &RestoreOptions) -> Result<MappedImage, ImageError> {
    map_source(RestoreSource::new(image, Vec::new(), options)?, options, usize::MAX)
}

/// [`map`] of an image and what is put over it, on a system that allows `max_mappings` of a process.
pub(crate) fn map_source(
    source: RestoreSource,
    options: &RestoreOptions,
    max_mappings: usize,
) -> Result<MappedImage, ImageError> {
    let MappedMemory { barrier, committed_bytes, mapped, regions_loaded, delta_runs, damage } =
        map_memory(&source, options, max_mappings)?;
    let restore = BackgroundRestore::start(source, mapped, &barrier, options.accept_damaged)?;
    Ok(MappedImage { barrier, committed_bytes, restore, damage, regions_loaded, delta_runs })
}

/// Memory of which some regions are mapped, and the others have been read.
pub(crate) struct MappedMemory {
    pub(crate) barrier: WriteBarrier,
    pub(crate) committed_bytes: usize,
    /// Regions that are mapped, in rising order.
    pub(crate) mapped: Vec<u32>,
    pub(crate) regions_loaded: u32,
    pub(crate) delta_runs: u32,
    pub(crate) damage: Vec<ImageError>,
}

/// Maps the pages of `source` as memory, copy on write, and reads those that can't be mapped.
pub(crate) fn map_memory(
    source: &RestoreSource,
    options: &RestoreOptions,
    max_mappings: usize,
) -> Result<MappedMemory, ImageError> {
    let mut regions_memory = RegionMemory::new(reserve(source, options)?);
    let memory = Arc::clone(regions_memory.reservation());
    let committed_bytes = source.data_bytes();
    let base = file_of(source.image.device())?;
    memory.commit(0..committed_bytes).map_err(|error| no_memory(&source.image, &error))?;
    // There a hole must not be mapped: to read it would take space that the file system may not have.
    let fills_holes = quire_sys::file::fills_mapped_holes(base);
    let is_read = |region| source.is_packed(region) || fills_holes && source.has_hole(region);
    let (mapped, first) = source.overlay.divide(&source.regions(), is_read, max_mappings);
    let damage = load_regions(source, &first, &mut regions_memory, options.accept_damaged, |_, _| {})?;
    // Regions without pages stay plain memory: they are never exchanged, so the file would be needed for ever.
    let in_image = mapped.iter().copied().filter(|&region| source.image.table().present_in(region) > 0);
    for regions in neighbours(in_image) {
        let start = regions.start as usize * REGION_SIZE;
        let end = (regions.end as usize * REGION_SIZE).min(source.image.layout().data_bytes() as usize);
        map_part(&memory, start..end, base, source.image.device(), DATA_OFFSET + start as u64)?;
    }
    let mut delta_runs = 0;
    for run in mapped.iter().flat_map(|&region| source.overlay.runs_in(region)) {
        let Some(place) = run.place else { continue };
        let delta = &source.overlay.deltas()[place.delta as usize];
        let range = run.range().start as usize * PAGE_SIZE..run.range().end as usize * PAGE_SIZE;
        map_part(&memory, range, file_of(delta.device())?, delta.device(), delta.offset_of(place.rank))?;
        delta_runs += 1;
    }
    let barrier = guard(source, memory, options)?;
    Ok(MappedMemory { barrier, committed_bytes, mapped, regions_loaded: first.len() as u32, delta_runs, damage })
}

fn not_mappable(device: &dyn Device, why: String) -> ImageError {
    ImageError::NotMappable { file: device.name().to_owned(), why }
}

fn file_of(device: &dyn Device) -> Result<&File, ImageError> {
    device.as_file().ok_or_else(|| not_mappable(device, "it isn't a file".into()))
}

fn map_part(
    memory: &Reservation,
    range: Range<usize>,
    file: &File,
    device: &dyn Device,
    offset: u64,
) -> Result<(), ImageError> {
    memory.map_file_private(range, file, offset).map_err(|error| not_mappable(device, error.to_string()))
}

impl BackgroundRestore {
    /// Reads `regions`, which are in rising order.
    fn start(
        source: RestoreSource,
        regions: Vec<u32>,
        barrier: &WriteBarrier,
        accept_damaged: bool,
    ) -> Result<Self, ImageError> {
        let bytes = source.data_bytes().next_multiple_of(REGION_SIZE).max(REGION_SIZE);
        let regions_memory =
            RegionMemory::new(Reservation::new(bytes).map_err(|error| no_memory(&source.image, &error))?);
        let staging = Arc::clone(regions_memory.reservation());
        let regions_total = regions.len() as u32;
        let shared = Arc::new(Shared::default());
        let (announce, ready) = sync_channel(STAGED_MAX);
        let stager = Stager { shared: Arc::clone(&shared), announce, accept_damaged };
        let file = source.image.device().name().to_owned();
        let refused =
            |error: std::io::Error| ImageError::Memory { file: file.clone(), why: format!("no thread: {error}") };
        let notice = lost_pages_notice(barrier, &source.files());
        let source = Arc::new(source);
        let read = Arc::clone(&source);
        let thread =
            spawn_unsignalled("quire-restore", move || stager.run(&read, &regions, regions_memory)).map_err(refused)?;
        let thread = Some(thread);
        Ok(Self {
            ready,
            next: None,
            shared,
            staging,
            source,
            thread,
            file,
            regions_total,
            adopted: 0,
            _notice: notice,
        })
    }

    /// Neighbouring regions that are staged, `most` at most, to be exchanged and then reported by
    /// [`BackgroundRestore::adopted`]. `None` if none are just now. Fewer where they consist of many mappings, since the
    /// system gives these back while no command runs.
    pub fn next_ready(&mut self, most: u32) -> Option<Range<u32>> {
        let first = self.next.take().or_else(|| self.ready.try_recv().ok())?;
        let mut regions = first..first + 1;
        let mut runs = self.runs_in(first);
        while (regions.len() as u32) < most {
            let Ok(region) = self.ready.try_recv() else { break };
            runs += self.runs_in(region);
            if region != regions.end || runs > MAX_RUNS_PER_EXCHANGE {
                self.next = Some(region);
                break;
            }
            regions.end += 1;
        }
        Some(regions)
    }

    fn runs_in(&self, region: u32) -> usize {
        self.source.overlay.runs_in(region).len()
    }

    /// Where staged regions lie, each at its offset in the memory.
    pub fn staging(&self) -> &Reservation {
        &self.staging
    }

    /// Regions that were staged have been exchanged.
    pub fn adopted(&mut self, regions: Range<u32>) {
        self.adopted += regions.len() as u32;
    }

    /// How far it has come.
    pub fn status(&self) -> RestoreStatus {
        // Looked at first: what the thread did before it ended is seen below.
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let staged = self.shared.staged.load(Ordering::Acquire);
        let mut failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if ended && failed.is_none() && staged < self.regions_total {
            failed = Some(ImageError::Crashed { file: self.file.clone() });
        }
        RestoreStatus {
            regions_total: self.regions_total,
            staged,
            adopted: self.adopted,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
            failed,
            done: self.adopted == self.regions_total,
        }
    }
}

impl Drop for BackgroundRestore {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // The thread that reads regions may wait for room: it must find that the receiver is gone.
        while self.ready.try_recv().is_ok() {}
        let (_, closed) = sync_channel(0);
        drop(std::mem::replace(&mut self.ready, closed));
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and the regions that it leaves are noticed by their absence.
            let _ = thread.join();
        }
    }
}

/// The background's side.
struct Stager {
    shared: Arc<Shared>,
    announce: SyncSender<u32>,
    accept_damaged: bool,
}

impl Stager {
    fn run(self, source: &RestoreSource, regions: &[u32], mut regions_memory: RegionMemory) {
        if let Err(error) = self.stage_all(source, regions, &mut regions_memory) {
            *self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    fn stage_all(
        &self,
        source: &RestoreSource,
        regions: &[u32],
        regions_memory: &mut RegionMemory,
    ) -> Result<(), ImageError> {
        std::thread::sleep(HEAD_START);
        let mut regions = regions.iter();
        let mut loader = RegionLoader::new(source, DEPTH)?;
        loop {
            while loader.has_room()
                && !self.shared.stop.load(Ordering::Acquire)
                && let Some(&region) = regions.next()
            {
                let buffer = regions_memory.take(region).map_err(|error| no_memory(&source.image, &error))?;
                loader.submit(region, touch(buffer));
            }
            let Some(loaded) = loader.next() else { return Ok(()) };
            let LoadedRegion { region, buffer, damage } = loaded?;
            drop(buffer);
            if !damage.is_empty() {
                self.accept(damage)?;
            }
            self.shared.staged.fetch_add(1, Ordering::Release);
            if self.announce.send(region).is_err() {
                return Ok(());
            }
        }
    }

    /// Goes on in spite of what is damaged in a region, if it was told to.
    fn accept(&self, damage: Vec<ImageError>) -> Result<(), ImageError> {
        for error in damage {
            if !self.accept_damaged {
                return Err(error);
            }
            tracing::warn!(%error, "used all the same, as it was told to");
        }
        // Seen by a thread that sees the region staged.
        self.shared.damaged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
