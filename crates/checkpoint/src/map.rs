//! Restoring by mapping: the file serves as memory at once, and is replaced by verified memory region by region.
//!
//! ```text
//! file ──map, privately──▶ memory ◀──remap, between commands── staging ◀──direct reads, checked── file
//! ```
//! Relies on the file not being cut short by others while it is mapped (the system would end the process); a new image
//! comes by rename, which leaves this one alone. What is read before its region was verified comes from the file as it is.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quire_device::BumpAllocator;
use quire_snapshot::{REGION_SIZE, WriteBarrier};
use quire_sys::mem::Reservation;

use crate::error::ImageError;
use crate::format::DATA_OFFSET;
use crate::image::Image;
use crate::load::{RestoreOptions, carve, guard, no_memory, reserve};
use crate::regions::RegionReader;

/// Regions that may be staged and not taken over yet: 64 MiB of memory beside the data.
const STAGED_MAX: usize = 32;
/// How long the first commands have the disk to themselves: they need a few pages at once, the background needs all.
const HEAD_START: Duration = Duration::from_millis(50);

/// A restore by mapping that goes on in the background. Dropping it ends that.
pub struct BackgroundRestore {
    ready: Receiver<u32>,
    /// Taken from `ready`, but not a neighbour of what was given out.
    next: Option<u32>,
    shared: Arc<Shared>,
    staging: Arc<Reservation>,
    thread: Option<JoinHandle<()>>,
    file: String,
    regions_total: u32,
    adopted: u32,
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
    let committed_bytes = image.layout().data_bytes() as usize;
    let memory = Arc::new(reserve(&image, options)?);
    let not_mappable = |why: String| ImageError::NotMappable { file: image.device().name().to_owned(), why };
    let Some(file) = image.device().as_file() else { return Err(not_mappable("it isn't a file".into())) };
    memory.commit(0..committed_bytes).map_err(|error| no_memory(&image, &error))?;
    // Regions without pages stay plain memory: they are never exchanged, so the file would be needed for ever.
    for regions in image.table().region_runs() {
        let start = regions.start as usize * REGION_SIZE;
        let end = (regions.end as usize * REGION_SIZE).min(committed_bytes);
        memory
            .map_file_private(start..end, file, DATA_OFFSET + start as u64)
            .map_err(|error| not_mappable(error.to_string()))?;
    }
    let barrier = guard(&image, memory, options)?;
    let restore = BackgroundRestore::start(image, options.accept_damaged)?;
    Ok(MappedImage { barrier, committed_bytes, restore })
}

impl BackgroundRestore {
    fn start(image: Image, accept_damaged: bool) -> Result<Self, ImageError> {
        let bytes = (image.layout().data_bytes() as usize).next_multiple_of(REGION_SIZE).max(REGION_SIZE);
        let carver = BumpAllocator::new(Reservation::new(bytes).map_err(|error| no_memory(&image, &error))?);
        let staging = Arc::clone(carver.memory());
        let regions_total = image.table().regions().count() as u32;
        let shared = Arc::new(Shared::default());
        let (announce, ready) = sync_channel(STAGED_MAX);
        let stager = Stager { shared: Arc::clone(&shared), announce, accept_damaged };
        let file = image.device().name().to_owned();
        let refused =
            |error: std::io::Error| ImageError::Memory { file: file.clone(), why: format!("no thread: {error}") };
        let thread = std::thread::Builder::new()
            .name("quire-restore".into())
            .spawn(move || stager.run(&image, carver))
            .map_err(refused)?;
        Ok(Self { ready, next: None, shared, staging, thread: Some(thread), file, regions_total, adopted: 0 })
    }

    /// Neighbouring regions that are staged, `most` at most, to be exchanged and then reported by
    /// [`BackgroundRestore::adopted`]. `None` if none are just now.
    pub fn next_ready(&mut self, most: u32) -> Option<Range<u32>> {
        let first = self.next.take().or_else(|| self.ready.try_recv().ok())?;
        let mut regions = first..first + 1;
        while (regions.len() as u32) < most {
            match self.ready.try_recv() {
                Ok(region) if region == regions.end => regions.end += 1,
                Ok(region) => {
                    self.next = Some(region);
                    break;
                }
                Err(_) => break,
            }
        }
        Some(regions)
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
    fn run(self, image: &Image, mut carver: BumpAllocator) {
        if let Err(error) = self.stage_all(image, &mut carver) {
            *self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    fn stage_all(&self, image: &Image, carver: &mut BumpAllocator) -> Result<(), ImageError> {
        std::thread::sleep(HEAD_START);
        let mut regions = image.table().regions();
        let mut reader = RegionReader::new(image)?;
        loop {
            while reader.has_room()
                && !self.shared.stop.load(Ordering::Acquire)
                && let Some(region) = regions.next()
            {
                reader.submit(region, carve(carver, region).map_err(|error| no_memory(image, &error))?);
            }
            let Some(read) = reader.next() else { return Ok(()) };
            let read = read?;
            match read.damage {
                Some(error) if self.accept_damaged => {
                    tracing::warn!(%error, "used all the same, as it was told to");
                    // Seen by a thread that sees the region staged.
                    self.shared.damaged.fetch_add(1, Ordering::Relaxed);
                }
                Some(error) => return Err(error),
                None => {}
            }
            drop(read.buffer);
            self.shared.staged.fetch_add(1, Ordering::Release);
            if self.announce.send(read.region).is_err() {
                return Ok(());
            }
        }
    }
}
