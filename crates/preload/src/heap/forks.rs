//! Forks of a program with a heap on a file. The child sees its heap as it was at the fork: what was in memory it has copied
//! as always, what was not it reads from the file (see [`child`]). So the file must not change while such a child lives and
//! has not become another program: nothing is written to it meanwhile.
//!
//! Relies on a page of the library's, the sentinel, that no thread writes after it was first written. A forked child shares
//! it; once no child does any more, whether it has ended or called `exec`, the kernel shows it as this process's alone.
//! Writers ask that before they claim pages, and a fork waits until those that were allowed to have begun: what they write
//! is in memory at the fork, or written. `vfork` and `posix_spawn` share memory and need nothing of this.

use std::ffi::CStr;
use std::fmt::Write;
use std::io;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use quire_sys::area::AnonymousMap;
use quire_sys::atfork;
use quire_sys::bare_thread::close_number;
use quire_sys::guest;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};

use super::child::{self, ParentHeap};
use super::internal_threads;
use crate::log;

/// Between two looks whether writers have ended, and how often their end is looked for with streams in memory.
const NAP: Duration = Duration::from_micros(200);
const LOOKS: u32 = 500;

/// What children and the parent's writers need.
struct ForkWatch {
    parent_heap: ParentHeap,
    sentinel: AnonymousMap,
    pagemap: Pagemap,
}

static WATCH: OnceLock<ForkWatch> = OnceLock::new();
/// Forks that have begun and not ended.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Forks that have ended.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// As many forks had ended when no child was left.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// Writers that write, and whether they were last told to wait.
static WRITING: AtomicU32 = AtomicU32::new(0);
static HELD: AtomicBool = AtomicBool::new(false);
/// One thread forks at a time.
static ALONE: AtomicBool = AtomicBool::new(false);
/// A thread that has the file open in its table, and as which number.
static KEEPER: AtomicI32 = AtomicI32::new(0);
static NUMBER: AtomicI32 = AtomicI32::new(-1);
/// The file for the child, in the program's table, while a fork lasts.
static LENT: AtomicI32 = AtomicI32::new(-1);

/// Watches forks from now on. The calling thread has the heap's file open as `number`, and keeps it.
///
/// # Errors
/// The kernel doesn't tell who shares a page, or there is no memory.
pub fn watch(parent_heap: ParentHeap, number: i32) -> io::Result<()> {
    let sentinel = AnonymousMap::private(PAGE_SIZE)?;
    // SAFETY: a fresh mapping of one page that no other thread knows. Once written it is no longer the kernel's page of zeros.
    unsafe { sentinel.base().write_volatile(1) };
    // In swap it would tell nothing; a child's part of it would not count.
    sentinel.lock()?;
    let watch = ForkWatch { parent_heap, sentinel, pagemap: Pagemap::open(None)? };
    if !watch.is_alone()? {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "/proc/self/pagemap doesn't tell who shares a page"));
    }
    KEEPER.store(quire_sys::thread::current().raw(), Ordering::Relaxed);
    NUMBER.store(number, Ordering::Relaxed);
    atfork::find_streams();
    if WATCH.set(watch).is_ok() {
        // SAFETY: `around_forks` asks for functions that may run in any thread that forks, the last one in the child: they
        // make system calls, use atomics, take no lock that the program could hold, and the last starts a bare thread.
        unsafe { atfork::around_forks(before, in_parent, in_child) }?;
    }
    Ok(())
}

impl ForkWatch {
    /// Whether no forked child shares this process's memory.
    fn is_alone(&self) -> io::Result<bool> {
        let mut word = [0];
        self.pagemap.read_words(self.sentinel.base() as usize, &mut word)?;
        Ok(PagemapEntry::is_exclusive(word[0]))
    }
}

/// Whether the file may be changed now; if so, until [`leave`]. To be asked before pages are claimed: those that are claimed
/// can't be stored to.
pub fn enter() -> bool {
    let Some(watch) = WATCH.get() else { return true };
    // From here on no fork begins; if one has begun, it goes first.
    WRITING.fetch_add(1, Ordering::SeqCst);
    // In this order: a fork counts as ended before it counts as lasting no more.
    let is_quiet = FORKING.load(Ordering::SeqCst) == 0;
    let forks = FORKS.load(Ordering::SeqCst);
    let may = is_quiet
        // A writer that can't look must not write.
        && (SETTLED.load(Ordering::SeqCst) == forks || watch.is_alone().unwrap_or(false));
    if may {
        SETTLED.store(forks, Ordering::SeqCst);
    } else {
        WRITING.fetch_sub(1, Ordering::SeqCst);
    }
    HELD.store(!may, Ordering::Relaxed);
    may
}

/// What was to be written is in the file, or on its way.
pub fn leave() {
    WRITING.fetch_sub(1, Ordering::SeqCst);
}

/// Whether writers were last told to wait for children.
pub fn is_held() -> bool {
    HELD.load(Ordering::Relaxed)
}

/// A path, written without allocating.
struct PathBuffer {
    bytes: [u8; 64],
    len: usize,
}

impl Write for PathBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        // The last byte stays zero.
        let to = self.bytes[..63].get_mut(self.len..end).ok_or(std::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// The heap's file, opened anew in the table of the calling thread.
fn open_file() -> io::Result<i32> {
    let mut path = PathBuffer { bytes: [0; 64], len: 0 };
    let (keeper, number) = (KEEPER.load(Ordering::Relaxed), NUMBER.load(Ordering::Relaxed));
    write!(path, "/proc/self/task/{keeper}/fd/{number}").map_err(|_| io::ErrorKind::InvalidInput)?;
    let path = CStr::from_bytes_until_nul(&path.bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(guest::open_to_read(path)?.into_raw_fd())
}

/// Before a fork, in the thread that forks.
extern "C" fn before() {
    let errno = guest::errno();
    while ALONE.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    LENT.store(open_file().unwrap_or(-1), Ordering::Relaxed);
    for look in 0.. {
        // Last of all, so that they stay in memory; and before writers are kept away, since it may need memory.
        atfork::touch_streams();
        FORKING.fetch_add(1, Ordering::SeqCst);
        while look >= LOOKS && WRITING.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(NAP);
        }
        if WRITING.load(Ordering::SeqCst) == 0 {
            break;
        }
        FORKING.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(NAP);
    }
    guest::set_errno(errno);
}

/// After a fork, in the parent.
extern "C" fn in_parent() {
    let errno = guest::errno();
    // Counted as ended before it counts as lasting no more, or a writer could see neither.
    FORKS.fetch_add(1, Ordering::SeqCst);
    FORKING.fetch_sub(1, Ordering::SeqCst);
    let lent = LENT.swap(-1, Ordering::Relaxed);
    if lent >= 0 {
        // SAFETY: `before` has opened it for this fork in this table; no value owns the number, and the program was not
        // told it.
        unsafe { close_number(lent) };
    }
    ALONE.store(false, Ordering::Release);
    guest::set_errno(errno);
}

/// After a fork, in the child: from here on it has its heap.
extern "C" fn in_child() {
    let errno = guest::errno();
    FORKING.store(0, Ordering::SeqCst);
    WRITING.store(0, Ordering::SeqCst);
    internal_threads::forget();
    let file = LENT.swap(-1, Ordering::Relaxed);
    if let Some(watch) = WATCH.get() {
        match child::start(&watch.parent_heap, file) {
            Ok(thread) => {
                KEEPER.store(thread, Ordering::Relaxed);
                NUMBER.store(file, Ordering::Relaxed);
            }
            Err((what, error)) => {
                let code = error.raw_os_error().unwrap_or(0);
                log::line(format_args!("heap: a forked child can't have its parent's heap: {what} (error {code})"));
                guest::abort();
            }
        }
    }
    ALONE.store(false, Ordering::Release);
    guest::set_errno(errno);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_without_memory_and_not_beyond_its_place() {
        let mut path = PathBuffer { bytes: [0; 64], len: 0 };
        write!(path, "/proc/self/task/{}/fd/{}", i32::MAX, i32::MAX).unwrap();
        let text = CStr::from_bytes_until_nul(&path.bytes).unwrap();
        assert_eq!(text, c"/proc/self/task/2147483647/fd/2147483647");
        assert!(write!(path, "{}", "x".repeat(40)).is_err());
    }
}
