//! Makes remapped memory anonymous, with the bytes that it has, while threads go on using it (`docs/design/zread.md`, "State of a range").
//!
//! Relies on userfaultfd for faults inside system calls, on frames that a pipe holds, and on a second thread that reads the events of
//! userfaultfd: the thread that moves a registered range sleeps until then. Runs in the lease process: nothing allocates. A process may have
//! so many mappings, and a program that has used them all must not keep its buffers from being converted: some are held for that.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use quire_sys::area::AnonymousMap;
use quire_sys::bare_thread;
use quire_sys::frame_pipe::FramePipe;
use quire_sys::limits;
use quire_sys::map;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::spare_maps::{self, SpareMaps};
use quire_sys::userfault::{RegisterModes, Userfault, features};

use super::stats;

/// What the second thread reads from.
static EVENTS: AtomicPtr<Userfault> = AtomicPtr::new(std::ptr::null_mut());
/// Where it is said where its stack is: kept for the next lease process.
static STACK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The second thread runs.
static READS: AtomicBool = AtomicBool::new(false);
const STACK_BYTES: usize = 64 << 10;
const NAP: Duration = Duration::from_micros(50);
/// How often a range that the kernel refuses is tried again.
const MOST_TRIES: usize = 100;
/// Mappings that are held for conversions. One takes a few at a time, and leaves one in place of one.
const SPARES: usize = 32;
/// Pieces that are converted before mappings are counted again, at least.
const LEAST_PIECES: usize = 256;

/// Mappings are held for conversions, and the program has enough left.
static HAS_MAPS: AtomicBool = AtomicBool::new(false);

/// Whether there are mappings enough for more ranges. What was remapped before can be converted without.
pub fn has_maps() -> bool {
    HAS_MAPS.load(Ordering::Relaxed)
}

/// What converting takes.
#[derive(Debug)]
pub struct Converter {
    fault: &'static Userfault,
    pipe: FramePipe,
    scratch: AnonymousMap,
    spares: RefCell<Option<SpareMaps>>,
    /// Pieces converted since mappings were counted, and how many make it time to count again.
    pieces: Cell<usize>,
    counted_after: Cell<usize>,
    most_maps: usize,
}

/// Memory without pages, at which threads sleep, that takes the place of a range piece by piece. It has been touched once, so that the pieces are
/// one mapping again where they arrive: the kernel joins neighbours only if their pages are accounted for together.
struct FreshMemory {
    map: AnonymousMap,
}

impl FreshMemory {
    fn new(fault: &Userfault, len: usize) -> io::Result<Self> {
        let map = AnonymousMap::private(len)?;
        // SAFETY: fresh memory of this function's, which is empty again afterwards: all of it, as the kernel may have taken a huge page.
        unsafe {
            map.base().write_volatile(1);
            map::discard(map.base(), map.len())?;
        }
        let modes = RegisterModes { missing: true, ..RegisterModes::default() };
        // SAFETY: fresh memory of this function's. After a move threads sleep there until `convert_piece` fills it.
        unsafe { fault.register(map.base(), len, modes) }?;
        Ok(Self { map })
    }

    /// Puts its first `len` bytes over what lies at `at`.
    ///
    /// # Safety
    /// Whole pages of the caller's, whose bytes it has and puts back.
    unsafe fn replace(&mut self, at: usize, len: usize) -> io::Result<()> {
        // SAFETY: the source is this struct's; `replace` demands a target of its caller's.
        unsafe { map::move_whole(self.map.base(), len, at as *mut u8) }?;
        self.map.forget_front(len);
        Ok(())
    }
}

/// Reads the events, for as long as the process lives.
extern "C" fn read_events() {
    // SAFETY: `Converter::new` has stored a leaked one before it started this thread.
    while let Some(fault) = unsafe { EVENTS.load(Ordering::Acquire).as_ref() } {
        READS.store(true, Ordering::Release);
        if fault.wait(None).is_err() {
            bare_thread::sleep(NAP);
        }
        let _ = fault.next();
    }
}

/// Memory for the second thread, of which there is one at a time.
fn stack() -> Option<&'static AnonymousMap> {
    if STACK.load(Ordering::Relaxed).is_null() {
        let stack = AnonymousMap::private(STACK_BYTES + size_of::<Userfault>()).ok()?;
        let place = AnonymousMap::private(size_of::<AnonymousMap>()).ok()?;
        stack.keep_from_children();
        place.keep_from_children();
        // SAFETY: a fresh mapping of that size, aligned to a page, leaked in the statement after.
        unsafe { place.base().cast::<AnonymousMap>().write(stack) };
        STACK.store(place.base(), Ordering::Relaxed);
        std::mem::forget(place);
    }
    // SAFETY: it was written and leaked above, by this lease process or one before it.
    Some(unsafe { &*STACK.load(Ordering::Relaxed).cast::<AnonymousMap>() })
}

/// In the child of a fork, which has none of that memory.
pub fn forget() {
    STACK.store(std::ptr::null_mut(), Ordering::Relaxed);
    EVENTS.store(std::ptr::null_mut(), Ordering::Relaxed);
}

impl Converter {
    /// Gets everything that is needed, in a process with descriptors of its own; starts the second thread.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn new() -> Result<Self, &'static str> {
        let fault = Userfault::open(features::EVENT_REMAP)
            .map_err(|_| "no userfaultfd (root, /dev/userfaultfd or vm.unprivileged_userfaultfd=1)")?;
        if fault.is_user_mode_only() {
            return Err(
                "no userfaultfd for faults in system calls (root, /dev/userfaultfd or vm.unprivileged_userfaultfd=1)",
            );
        }
        let pipe = FramePipe::new().map_err(|_| "no pipe")?;
        let scratch = AnonymousMap::private(pipe.len()).map_err(|_| "no memory")?;
        scratch.keep_from_children();
        let stack = stack().ok_or("no memory")?;
        let place = stack.base().cast::<Userfault>();
        // SAFETY: memory of the lease process's alone, with room for it in front of the stack, which grows from the other end.
        let fault = unsafe {
            place.write(fault);
            &*place
        };
        EVENTS.store(place, Ordering::Release);
        READS.store(false, Ordering::Release);
        // SAFETY: the stack is never unmapped, and `read_events` makes system calls that leave `errno` alone.
        unsafe { bare_thread::start(stack, read_events) }.map_err(|_| "no thread")?;
        while !READS.load(Ordering::Acquire) {
            bare_thread::sleep(NAP);
        }
        let converter = Self {
            fault,
            pipe,
            scratch,
            spares: RefCell::new(None),
            pieces: Cell::new(0),
            counted_after: Cell::new(LEAST_PIECES),
            // The other half is the program's.
            most_maps: limits::max_mappings() / 2,
        };
        converter.count_maps();
        Ok(converter)
    }

    /// Counts mappings if many pieces were converted since the last time, each of which may be one more. To be called now and then.
    pub fn look_at_maps(&self) {
        if self.pieces.get() >= self.counted_after.get() || self.spares.borrow().is_none() {
            self.count_maps();
        }
    }

    /// Counts mappings, and holds spares if it holds none.
    fn count_maps(&self) {
        let mut spares = self.spares.borrow_mut();
        if spares.is_none() {
            *spares = SpareMaps::hold(SPARES).ok();
        }
        let count = spare_maps::count().unwrap_or(usize::MAX);
        HAS_MAPS.store(spares.is_some() && count <= self.most_maps, Ordering::Relaxed);
        self.pieces.set(0);
        // Counting takes time in proportion.
        self.counted_after.set(LEAST_PIECES.max(count.min(self.most_maps) / 16));
    }

    /// Gives the mappings that are held for this to the conversion; whether there were any.
    fn use_spares(&self) -> bool {
        let had_some = self.spares.take().is_some();
        if had_some {
            HAS_MAPS.store(false, Ordering::Relaxed);
        }
        had_some
    }

    /// Makes `range`, remapped pages of a file in blocks of the library's, anonymous. The caller holds MAPS. Pages that can't be read
    /// stay as they are, and are counted.
    pub fn convert(&self, range: Range<usize>) {
        let mut at = range.start;
        let mut tries = 0;
        let mut most = self.pipe.len();
        let mut fresh = None;
        while at < range.end {
            if fresh.is_none() {
                // For all of it, so that it is one mapping afterwards as it is now.
                fresh = FreshMemory::new(self.fault, range.end - at).ok();
            }
            match self.convert_piece(at, most.min(range.end - at), fresh.as_mut()) {
                Ok(len) => {
                    stats::add(&stats::CONVERTED_BYTES, len as u64);
                    self.pieces.set(self.pieces.get() + 1);
                    at += len;
                    (tries, most) = (0, self.pipe.len());
                }
                // The program has used up its mappings.
                Err(_) if self.use_spares() => {}
                // One page of it is at fault, or memory is short.
                Err(_) if most > PAGE_SIZE => most = PAGE_SIZE,
                Err(_) if tries < MOST_TRIES => {
                    tries += 1;
                    bare_thread::sleep(NAP);
                }
                Err(_) => {
                    stats::add(&stats::LOST_PAGES, 1);
                    at += PAGE_SIZE;
                    // What is left of it lies one page too early now.
                    (tries, fresh) = (0, None);
                }
            }
        }
        drop(fresh);
        if self.spares.borrow().is_none() {
            self.count_maps();
        }
    }

    /// Converts up to `len` bytes at `at`; returns how many these are.
    fn convert_piece(&self, at: usize, len: usize, fresh: Option<&mut FreshMemory>) -> io::Result<usize> {
        let fresh = fresh.ok_or(io::ErrorKind::OutOfMemory)?;
        let len = self.pipe.take(at, len)?;
        // SAFETY: the target is remapped memory of the library's blocks, whose bytes the pipe has and which are put back below.
        if let Err(error) = unsafe { fresh.replace(at, len) } {
            self.pipe.drop_frames(len);
            return Err(error);
        }
        // From here on threads that touch the range sleep until it is filled, so nothing may fail for good.
        // SAFETY: the scratch memory is this struct's, as long as the pipe, from which no more than its length was taken.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.scratch.base(), len) };
        while self.pipe.empty_into(bytes).is_err() {
            bare_thread::sleep(NAP);
        }
        let mut done = 0;
        while done < len {
            // SAFETY: the scratch memory is readable, and the range is registered and the library's.
            let filled = unsafe {
                self.fault.copy((at + done) as *mut u8, self.scratch.base().wrapping_add(done), len - done, false)
            };
            match filled {
                Ok(count) if count > 0 => done += count,
                // It is there already.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => done += PAGE_SIZE,
                // No memory, or the event of the move was not read yet.
                _ => bare_thread::sleep(NAP),
            }
        }
        while self.fault.unregister(at as *mut u8, len).is_err() {
            bare_thread::sleep(NAP);
        }
        Ok(len)
    }
}
