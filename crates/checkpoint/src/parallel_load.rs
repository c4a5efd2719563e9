//! Loading regions on all processors: each thread reads some and checks what it has read.
//!
//! Relies on a [`RegionLoader`] a thread. The calling thread collects what they tell.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use quire_device::Buffer;
use quire_sys::thread::spawn_scoped_unsignalled;

use crate::error::ImageError;
use crate::region_loader::RegionLoader;
use crate::region_memory::{RegionMemory, no_memory, touch};
use crate::regions::DEPTH;
use crate::source::RestoreSource;

/// Most threads: more have no more disk to read from. Each has two regions and a buffer of 2 MiB in flight.
const MAX_THREADS: usize = 16;
/// Least regions that a thread has in flight, so that it checks one while another is being read.
const LEAST_DEPTH: usize = 2;

/// Loads `regions`, which are in rising order, to their places in the memory of `regions_memory`. Returns the damage that is accepted.
/// `on_progress` is told regions done and in all.
pub(crate) fn load_regions(
    source: &RestoreSource,
    regions: &[u32],
    regions_memory: &mut RegionMemory,
    accept_damaged: bool,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<Vec<ImageError>, ImageError> {
    if regions.is_empty() {
        return Ok(Vec::new());
    }
    let processors = available_parallelism().map_or(1, usize::from);
    let threads = processors.min(MAX_THREADS).min(regions.len().div_ceil(LEAST_DEPTH));
    let depth = DEPTH.div_ceil(threads).max(LEAST_DEPTH);
    let feed = Feed { source, depth, next: Mutex::new((regions, regions_memory)), stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let (tell, told) = sync_channel(threads);
        for thread in 0..threads {
            let (feed, tell) = (&feed, tell.clone());
            let started = spawn_scoped_unsignalled(scope, "quire-load", move || feed.load(&tell));
            match started {
                Ok(_) => {}
                Err(error) if thread == 0 => return Err(no_memory(&source.image, &format!("no thread: {error}"))),
                // The threads that there are load everything.
                Err(_) => break,
            }
        }
        drop(tell);
        let (mut damage, mut failed, mut done) = (Vec::new(), None, 0);
        for loaded in told {
            match loaded {
                Ok(mut found) if accept_damaged || found.is_empty() => damage.append(&mut found),
                Ok(found) => failed = failed.or(found.into_iter().next()),
                Err(error) => failed = failed.or(Some(error)),
            }
            // The threads end what they have in flight.
            feed.stop.store(failed.is_some(), Ordering::Relaxed);
            done += 1;
            on_progress(done, regions.len() as u64);
        }
        failed.map_or(Ok(damage), Err)
    })
}

/// What the threads share.
struct Feed<'a> {
    source: &'a RestoreSource,
    /// Regions that a thread has in flight.
    depth: usize,
    /// Regions that no thread has taken yet, and what their memory comes from.
    next: Mutex<(&'a [u32], &'a mut RegionMemory)>,
    stop: AtomicBool,
}

impl Feed<'_> {
    /// Loads regions until there are none; tells the damage of each, or what failed.
    fn load(&self, tell: &SyncSender<Result<Vec<ImageError>, ImageError>>) {
        let loaded = RegionLoader::new(self.source, self.depth).and_then(|mut loader| {
            while let Some(loaded) = self.submit(&mut loader).and_then(|()| loader.next().transpose())? {
                // The receiver outlives the threads.
                let _ = tell.send(Ok(loaded.damage));
            }
            Ok(())
        });
        if let Err(error) = loaded {
            let _ = tell.send(Err(error));
        }
    }

    /// Has as many regions in flight as there is room for.
    fn submit(&self, loader: &mut RegionLoader<'_>) -> Result<(), ImageError> {
        while loader.has_room()
            && !self.stop.load(Ordering::Relaxed)
            && let Some((region, buffer)) = self.take()?
        {
            loader.submit(region, touch(buffer));
        }
        Ok(())
    }

    /// The next region, and its memory.
    fn take(&self) -> Result<Option<(u32, Buffer)>, ImageError> {
        let (left, regions_memory) = &mut *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((&region, others)) = left.split_first() else { return Ok(None) };
        *left = others;
        let buffer = regions_memory.take(region).map_err(|error| no_memory(&self.source.image, &error))?;
        Ok(Some((region, buffer)))
    }
}
