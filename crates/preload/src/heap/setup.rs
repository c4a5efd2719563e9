//! Lays the program's heap on a file, before its `main`: makes the file, the pool and its threads, and opens the allocator
//! last, when all of that stands.
//!
//! Relies on the calling thread being the program's only one. A thread of the library, the setup thread, makes all of it.
//! That thread has a table of descriptors of its own and all signals blocked; threads that it starts share the one and
//! inherit the other. It stays: children find the file through it.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use quire_device::{Device, Directory, DiskDirectory};
use quire_pool::{FaultThreadOptions, MapOptions, Pool, PoolConfig, TierConfig, TransparentMap, WritebackHooks};
use quire_sys::bare_thread::take_own_descriptors;
use quire_sys::thread::BlockedSignals;
use quire_sys::{guest, symbol};

use super::child::ParentHeap;
use super::file::HeapFile;
use super::heap_error::HeapError;
use super::refaults::{self, RefaultCounter, RefaultWindow};
use super::spec::HeapSpec;
use super::written_pages::WrittenPages;
use super::{arena, forks, internal_threads};
use crate::{log, state};
use quire_units::Bytes;

/// Servers for each processor, and at most: they mostly wait for the disk.
const SERVERS_PER_PROCESSOR: usize = 2;
const MOST_SERVERS: usize = 16;
/// Threads that write back; each has many writes in flight.
const WRITERS: usize = 1;
/// How long a thread of the program may wait for memory without anything moving, before the program is ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long threads may take to start.
const LONGEST_START: Duration = Duration::from_secs(10);

/// The pool, and the process that has it: a forked child hasn't.
static POOL: OnceLock<(Arc<Pool>, i32)> = OnceLock::new();

/// Where the setup thread says how it went.
#[derive(Default)]
struct SetupResult {
    said: Mutex<Option<Result<Range<usize>, HeapError>>>,
    changed: Condvar,
}

impl SetupResult {
    fn leave(&self, result: Result<Range<usize>, HeapError>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<Range<usize>, HeapError> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match said.take() {
                Some(result) => return result,
                None => said = self.changed.wait(said).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Gives the program the heap that the values of `QUIRE_HEAP` and `QUIRE_HEAP_PAGE` ask for.
///
/// # Errors
/// Why there is none; the program's heap is as it was then.
pub fn set_up(heap: &[u8], page: Option<&[u8]>) -> Result<(), HeapError> {
    let spec = HeapSpec::parse(heap, page)?;
    let setup_result = Arc::new(SetupResult::default());
    let (its_result, its_spec) = (Arc::clone(&setup_result), spec.clone());
    let life = move || {
        internal_threads::register();
        let _blocked = BlockedSignals::new();
        std::panic::set_hook(Box::new(|info| {
            let at = info.location().map_or(0, std::panic::Location::line);
            let file = info.location().map_or("", std::panic::Location::file);
            log::line(format_args!("heap: error at {file}:{at}; the program is ended"));
            guest::abort();
        }));
        let refaults = Arc::<RefaultCounter>::default();
        let result = build(&its_spec, &refaults);
        let stays = result.is_ok();
        its_result.leave(result);
        if stays {
            loop {
                std::thread::sleep(refaults::WINDOW);
                if let Some(lately) = refaults.end_window() {
                    tell(lately, its_spec.pool_bytes);
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("quire-heap".into()).spawn(life);
    thread.map_err(|error| HeapError::System { what: "no thread", error })?;
    let memory = setup_result.wait()?;
    let bytes = memory.len() as u64;
    // SAFETY: `give` asks for memory that can be used, has no other owner and stays. `build` returns a part of the map's
    // memory, which it has leaked, so it is never unmapped, and which no other code allocates from. It reads as zero, since
    // its file is new.
    if !unsafe { arena::give(memory) } {
        return Err(HeapError::Arena(bytes));
    }
    arena::open();
    let is_reached = || symbol::program_malloc_address().is_some_and(|address| arena::has(address as *mut c_void));
    if !symbol::is_first_here(c"malloc") && !is_reached() {
        return Err(HeapError::OwnAllocator);
    }
    log::line(format_args!(
        "heap: {} on {}, {} of it in memory, in pages of {}",
        Bytes(arena::len() as u64),
        spec.path.display(),
        Bytes(spec.pool_bytes),
        Bytes(spec.page_bytes as u64)
    ));
    Ok(())
}

/// That the program waits for pages that had to make room.
fn tell(lately: RefaultWindow, pool_bytes: u64) {
    log::line(format_args!(
        "heap: in {} s the program waited {} s for {} pages that it had used before: what it uses at a time is more than the pool of \
         {}, so it runs at the speed of the disk; ask for a larger pool in QUIRE_HEAP",
        refaults::WINDOW.as_secs(),
        lately.waited.as_secs(),
        lately.reads,
        Bytes(pool_bytes)
    ));
}

/// Everything but the allocator; returns memory for it.
fn build(spec: &HeapSpec, refaults: &Arc<RefaultCounter>) -> Result<Range<usize>, HeapError> {
    let refused = |what: &'static str| move |error: std::io::Error| HeapError::System { what, error };
    take_own_descriptors().map_err(refused("no file descriptors of the library's own (Linux 5.9)"))?;
    // Whatever is printed by mistake must not get into the heap.
    for _ in 0..3 {
        std::mem::forget(File::options().read(true).write(true).open("/dev/null").map_err(refused("/dev/null"))?);
    }
    let size_bytes = spec.size_bytes.next_multiple_of(arena::SEGMENT_BYTES);
    // Room for aligning the first segment; it takes no space in the file.
    let len = size_bytes + arena::SEGMENT_BYTES;
    let file = make_file(&spec.path, size_bytes, len)?;
    let number = file.as_file().map_or(-1, AsRawFd::as_raw_fd);
    let written = WrittenPages::new(len, spec.page_bytes).map_err(refused("no memory"))?;
    let written = Arc::new(written);
    let pool = Pool::new(PoolConfig {
        budget_bytes: spec.pool_bytes as usize,
        page_bytes: spec.page_bytes,
        writers: WRITERS,
        miss_timeout_ms: PATIENCE.as_millis() as u64,
        on_thread_start: Some(internal_threads::register),
        gate: Some(WritebackHooks { enter: forks::enter, leave: forks::leave }),
        // A heap's pages come back changed as a rule, and the program's threads have the processors.
        tier: TierConfig::off(),
        ..PoolConfig::default()
    })?;
    let device = HeapFile::over(file, Arc::clone(&written), Arc::clone(refaults));
    let options = MapOptions { reserve_bytes: len, ..MapOptions::default() };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (SERVERS_PER_PROCESSOR * processors).clamp(2, MOST_SERVERS);
    let map = TransparentMap::with_fault_threads(&pool, device, options, FaultThreadOptions { threads, lost })?;
    let base = map.as_ptr().expose_provenance();
    forks::watch(ParentHeap { base, len: len as usize, page_bytes: spec.page_bytes, written }, number)
        .map_err(refused("forks can't be watched"))?;
    // As long as threads start they may allocate by ways that the hooks don't see.
    let setup_thread_and_evictor = 2;
    let all = setup_thread_and_evictor + WRITERS + threads;
    let begun = Instant::now();
    while internal_threads::count() < all && begun.elapsed() < LONGEST_START {
        std::thread::sleep(Duration::from_micros(100));
    }
    std::mem::forget(map);
    let _ = POOL.set((pool, guest::process_id()));
    let start = base.next_multiple_of(arena::SEGMENT_BYTES as usize);
    Ok(start..start + size_bytes as usize)
}

/// What the pool says when a page can't be had.
fn lost(words: &str) {
    let why = if forks::is_held() {
        ": nothing may be written to the file while a child that was forked lives and calls no exec; ask for a larger pool"
    } else {
        ""
    };
    log::line(format_args!("heap: {words}{why}; the program is ended, as memory of it is lost"));
    guest::abort();
}

/// A file of `len` bytes that has no name (any more), where the file system has `wanted_bytes` left.
fn make_file(path: &Path, wanted_bytes: u64, len: u64) -> Result<Arc<dyn Device>, HeapError> {
    let directory = if path.is_dir() {
        path.to_owned()
    } else if path.symlink_metadata().is_ok() {
        return Err(HeapError::Exists(path.display().to_string()));
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
    };
    let disk = DiskDirectory::new(&directory);
    if let Some(free) = disk.free_bytes()
        && free < wanted_bytes
    {
        return Err(HeapError::Space { directory: directory.display().to_string(), wanted: wanted_bytes, free });
    }
    // A name for a moment, which no other process has.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let name = format!(".quire-heap-{}-{now}", guest::process_id());
    let file = guest::with_private_files(|| disk.create(&name))?;
    disk.remove(&name)?;
    file.set_len(len)?;
    Ok(file)
}

/// Before the program's end: what its heap has done, if that is asked for.
pub fn about_to_end() {
    let is_asked = |(_, owner): &&(Arc<Pool>, i32)| state::settings().log >= 1 && *owner == guest::process_id();
    let Some((pool, _)) = POOL.get().filter(is_asked) else { return };
    let stats = pool.stats();
    log::line(format_args!(
        "heap: {} pages of {} brought in, {} evicted, {} written in {} writes; {} in memory now",
        stats.misses + stats.ahead,
        Bytes(stats.page_bytes),
        stats.evicted,
        stats.written,
        stats.writes,
        Bytes(stats.resident_pages * stats.page_bytes),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_name_is_made_where_there_is_room_and_no_file_of_a_user_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("new")] {
            let file = make_file(&path, 1 << 20, 2 << 20).unwrap();
            assert_eq!(file.len().unwrap(), 2 << 20);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        let there = folder.path().join("there");
        std::fs::write(&there, "mine").unwrap();
        assert!(matches!(make_file(&there, 1, 1), Err(HeapError::Exists(_))));
        assert_eq!(std::fs::read(&there).unwrap(), b"mine");
        assert!(matches!(make_file(folder.path(), 1 << 60, 1), Err(HeapError::Space { .. })));
        assert!(matches!(make_file(&folder.path().join("no/such"), 1, 1), Err(HeapError::Place { .. })));
    }
}
