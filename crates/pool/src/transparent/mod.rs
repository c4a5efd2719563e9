//! The transparent way in: a map as plain memory, for code that knows nothing of pages.
//!
//! Relies on userfaultfd: touching an absent page, or storing to a clean one, raises SIGBUS in the thread that does it, whose
//! handler ([`fault_handler`]) reads the page or notes the change and returns; the access is made again. A handler may neither
//! allocate nor take a lock, so what the queues and sets have to be told it leaves behind ([`pending_updates`]), and memory is freed
//! ahead of it by a thread of the map's own ([`background_evictor`]).
//!
//! A system call doesn't raise SIGBUS but fails. Where the code that uses the memory can't be told so, threads of the map's
//! own ([`fault_threads`]) see to the faults instead, and a thread that faults sleeps meanwhile, in a system call or not: slower by two
//! changes of thread a fault, and only for those who have no choice.

mod background_evictor;
mod fault_batch;
mod fault_handler;
mod fault_threads;
mod pending_updates;
mod registry;
mod sequential_detector;
mod staging;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use quire_device::Device;
use quire_sys::signal;

use crate::config::{FaultThreadOptions, MapOptions};
use crate::error::PoolError;
use crate::map::Map;
use crate::page::PageNo;
use crate::pool::Pool;

use background_evictor::BackgroundEvictor;
use fault_handler::FaultHandler;
use fault_threads::FaultThreads;
use registry::HandlerRegistration;

/// A file as memory. Threads load and store through [`TransparentMap::as_ptr`] as they like; what they share they must
/// synchronise as any memory.
///
/// Where the device fails, or the pool's memory is held for longer than the pool's patience, the access ends in SIGBUS as it
/// does with `mmap`. System calls that are handed addresses of absent pages (or of clean ones, to write there) fail with
/// `EFAULT`. A map whose faults are [served](TransparentMap::with_fault_threads) knows neither: system calls wait as loads and stores do,
/// and a page that can't be had ends the process. A forked child must not touch the memory.
pub struct TransparentMap {
    // Dropped in this order: the evictor ends, no signal handler is inside, the fault threads end, the map goes.
    evictor: Option<BackgroundEvictor>,
    registration: Option<HandlerRegistration>,
    fault_threads: Option<FaultThreads>,
    faults: Arc<FaultHandler>,
    map: Map,
}

impl fmt::Debug for TransparentMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TransparentMap").field("map", &self.map).finish_non_exhaustive()
    }
}

fn refused(source: &std::io::Error) -> PoolError {
    PoolError::Unsupported { cause: source.to_string() }
}

impl TransparentMap {
    /// Maps a file as memory, whole. Where a thread goes through it in order, up to [`MapOptions::read_ahead_pages`], but no
    /// more than 64 KiB, come with one fault; [`AccessAdvice::Random`](crate::AccessAdvice::Random) has every page come alone.
    ///
    /// # Errors
    /// [`PoolError::Unsupported`] where userfaultfd is forbidden; otherwise as [`Pool::map`].
    ///
    /// ```
    /// use quire_device::{Directory, MemoryDirectory};
    /// use quire_pool::{MapOptions, Pool, PoolConfig, PoolError, TransparentMap};
    /// use std::sync::atomic::Ordering;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// let map = match TransparentMap::new(&pool, file, MapOptions::default()) {
    ///     Err(PoolError::Unsupported { cause }) => return Ok(println!("not here: {cause}")),
    ///     map => map?,
    /// };
    /// map.words()[100].store(5, Ordering::Relaxed); // a plain store; the page comes by itself
    /// map.sync()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(pool: &Arc<Pool>, device: Arc<dyn Device>, options: MapOptions) -> Result<Self, PoolError> {
        let map = pool.map(device, options)?;
        let faults = Arc::new(FaultHandler::new(&map)?);
        // SAFETY: `on_fault` takes no lock and allocates nothing (see `fault_handler`), and returns, as a signal handler must.
        unsafe { signal::on_bus_error(registry::on_fault) }.map_err(|error| refused(&error))?;
        let registration = HandlerRegistration::new(&faults).ok_or_else(|| PoolError::Unsupported {
            cause: "64 transparent maps are there already: drop one".into(),
        })?;
        // From here on accesses fault, and find the registration.
        faults.guard(false).map_err(|error| refused(&error))?;
        let evictor = BackgroundEvictor::start(&faults)?;
        Ok(Self { evictor: Some(evictor), registration: Some(registration), fault_threads: None, faults, map })
    }

    /// As [`TransparentMap::new`], with threads that see to the faults. They must never touch the map's memory themselves:
    /// a program that allocates in it keeps [`FaultThreadOptions::lost`] and [`PoolConfig::on_thread_start`](crate::PoolConfig::on_thread_start) off it.
    ///
    /// # Errors
    /// As there; also where faults inside system calls can't be had.
    ///
    /// ```
    /// use quire_device::{Directory, MemoryDirectory};
    /// use quire_pool::{FaultThreadOptions, MapOptions, Pool, PoolConfig, PoolError, TransparentMap};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
    /// let threads = FaultThreadOptions { threads: 2, lost: |why| eprintln!("{why}") };
    /// let map = match TransparentMap::with_fault_threads(&pool, file, MapOptions::default(), threads) {
    ///     Err(PoolError::Unsupported { cause }) => return Ok(println!("not here: {cause}")),
    ///     map => map?,
    /// };
    /// println!("{} bytes, also for system calls", map.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_fault_threads(
        pool: &Arc<Pool>,
        device: Arc<dyn Device>,
        options: MapOptions,
        serving: FaultThreadOptions,
    ) -> Result<Self, PoolError> {
        let map = pool.map(device, options)?;
        let faults = Arc::new(FaultHandler::new(&map)?);
        faults.guard(true).map_err(|error| refused(&error))?;
        let evictor = BackgroundEvictor::start(&faults)?;
        let fault_threads = FaultThreads::start(&faults, serving)?;
        Ok(Self { evictor: Some(evictor), registration: None, fault_threads: Some(fault_threads), faults, map })
    }

    /// The file's first byte. The bytes from there on to [`TransparentMap::len`] may be loaded and stored by any thread
    /// while the map lives; code that makes references of them answers for aliasing.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.mapped().frames.at(0)
    }

    /// The file's whole words, to be loaded and stored without `unsafe`.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the addresses are the map's for as long as `self` lives, page-aligned, and answer loads and stores by
        // faulting pages in; they are reached only as atomics here, and by the pool while no thread can touch the page.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<AtomicU64>(), self.len() as usize / 8) }
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Makes the file longer, as [`Map::grow`].
    ///
    /// # Errors
    /// As there.
    pub fn grow(&self, len: u64) -> Result<(), PoolError> {
        self.map.grow(len)
    }

    /// Makes durable what was stored to `pages` before this call, as [`Map::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self, pages: Range<PageNo>) -> Result<(), PoolError> {
        self.faults.tell();
        self.map.flush(pages)
    }

    /// [`TransparentMap::flush`] of all pages.
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<(), PoolError> {
        self.faults.tell();
        self.map.sync()
    }

    /// Pages that hold memory of the pool.
    pub fn resident_pages(&self) -> usize {
        self.map.resident_pages()
    }
}

impl Drop for TransparentMap {
    fn drop(&mut self) {
        self.evictor = None;
        self.faults.tell();
        self.registration = None;
        self.fault_threads = None;
    }
}
