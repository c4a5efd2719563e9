//! Reserved address ranges: memory that is claimed at once, backed step by step, given back and remapped in place.
//!
//! Relies on `mmap`, `mprotect`, `madvise` and `mremap`. A [`Reservation`] never moves, so offsets into it stay valid
//! for its whole life; what lies behind an offset (anonymous pages, a private file mapping) can be exchanged under it.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::advise::DONTNEED_LOCKED;
use crate::map;

/// Bytes of a page, the unit of every mapping.
pub const PAGE_SIZE: usize = 4096;
/// Bytes of a huge page, the unit in which memory is backed where the system allows.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

/// Why the system refused a memory operation.
#[derive(Debug, thiserror::Error)]
pub enum MemError {
    /// The system call failed.
    #[error("{call} of {len} bytes at offset {offset} failed: {source}{advice}")]
    Call {
        /// Which call.
        call: &'static str,
        /// Offset into the reservation.
        offset: usize,
        /// Bytes concerned.
        len: usize,
        /// What the system said.
        source: std::io::Error,
        /// What to do about it; empty if there is nothing to say.
        advice: &'static str,
    },
    /// The range isn't page-aligned or lies outside the reservation.
    #[error("range {start}..{end} is not page-aligned inside a reservation of {len} bytes")]
    Range {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Bytes of the reservation.
        len: usize,
    },
}

fn failed(call: &'static str, range: &Range<usize>, errno: Errno) -> MemError {
    let advice = match errno {
        Errno::NOMEM => {
            " (no memory or too many mappings: raise vm.overcommit_memory, vm.max_map_count or the memory limit)"
        }
        Errno::AGAIN => " (over RLIMIT_MEMLOCK or busy: raise the limit or try again)",
        _ => "",
    };
    MemError::Call { call, offset: range.start, len: range.len(), source: errno.into(), advice }
}

/// A range of addresses claimed from the system.
///
/// Nothing is accessible until it is [committed](Reservation::commit). The reservation hands out only a base pointer:
/// code that dereferences it must argue why the bytes are committed and why no thread writes them at the same time.
#[derive(Debug)]
pub struct Reservation {
    base: *mut u8,
    len: usize,
    /// One bit a huge page: all of it was committed.
    committed: Box<[AtomicU64]>,
}

// SAFETY: the struct is an address and a length; it gives no access to the bytes without `unsafe`, and the system calls
// behind its methods may be made from any thread.
unsafe impl Send for Reservation {}
// SAFETY: threads that share it can only make its system calls, which the kernel serialises.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Claims `len` bytes (rounded up to huge pages), aligned to [`HUGE_PAGE_SIZE`], without access.
    ///
    /// # Errors
    /// When the system has no such range of addresses (RLIMIT_AS, 32-bit).
    pub fn new(len: usize) -> Result<Self, MemError> {
        Self::near(std::ptr::null_mut(), len)
    }

    /// The same at `wished`, a multiple of [`HUGE_PAGE_SIZE`], if nothing is there; else where the system has room. For what must have
    /// the same addresses each time.
    ///
    /// # Errors
    /// As [`Reservation::new`].
    pub fn near(wished: *mut u8, len: usize) -> Result<Self, MemError> {
        let len = len.max(1).next_multiple_of(HUGE_PAGE_SIZE);
        let padded = len + HUGE_PAGE_SIZE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, which takes `wished` for a hint; nothing existing is touched.
        let raw = unsafe {
            mm::mmap_anonymous(wished.cast(), padded, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        }
        .map_err(|errno| failed("mmap", &(0..padded), errno))?
        .cast::<u8>();
        let skip = raw.align_offset(HUGE_PAGE_SIZE);
        let base = raw.wrapping_add(skip);
        // SAFETY: both pieces lie inside the mapping just made and outside base..base+len, which alone is handed out.
        unsafe {
            if skip > 0 {
                let _ = mm::munmap(raw.cast(), skip);
            }
            let tail = HUGE_PAGE_SIZE - skip;
            if tail > 0 {
                let _ = mm::munmap(base.wrapping_add(len).cast(), tail);
            }
        }
        let committed = (0..(len / HUGE_PAGE_SIZE).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { base, len, committed })
    }

    /// First address of the range.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes claimed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn check(&self, range: &Range<usize>) -> Result<(), MemError> {
        let sound = range.start <= range.end
            && range.end <= self.len
            && range.start.is_multiple_of(PAGE_SIZE)
            && range.end.is_multiple_of(PAGE_SIZE);
        if sound { Ok(()) } else { Err(MemError::Range { start: range.start, end: range.end, len: self.len }) }
    }

    /// Makes `range` readable and writable. Pages that were never written read as zero; huge pages are asked for.
    ///
    /// # Errors
    /// [`MemError::Range`], or the system refuses (overcommit limits).
    pub fn commit(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let at = self.base.wrapping_add(range.start).cast();
        // SAFETY: the range is inside this reservation; widening access to it can't invalidate anything.
        unsafe { mm::mprotect(at, range.len(), MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(|errno| failed("mprotect", &range, errno))?;
        // Huge pages are a wish: without them everything works, only slower.
        // SAFETY: advice about memory of this reservation; contents are unchanged.
        let _ = unsafe { mm::madvise(at, range.len(), Advice::LinuxHugepage) };
        for huge in range.start.div_ceil(HUGE_PAGE_SIZE)..range.end / HUGE_PAGE_SIZE {
            self.committed[huge / 64].fetch_or(1 << (huge % 64), Ordering::Release);
        }
        Ok(())
    }

    /// As [`Reservation::commit`], without a system call if every huge page of `range` was committed whole before.
    ///
    /// # Errors
    /// As [`Reservation::commit`].
    pub fn ensure_committed(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        let mut huge_pages = range.start / HUGE_PAGE_SIZE..range.end.div_ceil(HUGE_PAGE_SIZE);
        let is_committed = |huge: usize| self.committed[huge / 64].load(Ordering::Acquire) >> (huge % 64) & 1 == 1;
        if huge_pages.all(is_committed) { Ok(()) } else { self.commit(range) }
    }

    /// Gives the pages of `range` back to the system; they read as zero afterwards.
    ///
    /// The caller must hold no reference into the range: its bytes change.
    ///
    /// # Errors
    /// [`MemError::Range`], or the system refuses.
    pub fn release(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let at = self.base.wrapping_add(range.start);
        // SAFETY: the range is inside this reservation; discarding it is what the caller asked for, and no reference
        // to it exists without unsafe code that answers for it.
        let Err(errno) = (unsafe { mm::madvise(at.cast(), range.len(), Advice::LinuxDontNeed) }) else { return Ok(()) };
        // Locked memory (`mlockall`) takes another call, where there is one.
        // SAFETY: the same range, inside this reservation: its caller asked for its pages to be discarded, and no reference to it exists
        // without unsafe code that answers for it.
        if unsafe { libc::madvise(at.cast(), range.len(), DONTNEED_LOCKED) } == 0 {
            return Ok(());
        }
        Err(failed("madvise(DONTNEED)", &range, errno))
    }

    /// Lets the system take the pages of `range` whenever it is short of memory (`MADV_FREE`): it drops them, without writing them to
    /// swap, and they read as zero then. Until it does, they read as before. A store to a page withdraws that for the page. They count as
    /// memory of the process until they are taken, and as available on the machine.
    ///
    /// The caller must hold no reference into the range: its bytes may change at any time.
    ///
    /// # Errors
    /// [`MemError::Range`], or the system refuses, as for memory that is locked (`mlockall`).
    pub fn free_lazily(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is inside this reservation; that its bytes change is what the caller asked for, and no reference to it
        // exists without unsafe code that answers for it.
        unsafe { mm::madvise(self.base.wrapping_add(range.start).cast(), range.len(), Advice::LinuxFree) }
            .map_err(|errno| failed("madvise(FREE)", &range, errno))
    }

    /// Backs `range` with pages now, so that first touches later cost nothing. Falls back to nothing on old kernels.
    ///
    /// # Errors
    /// [`MemError::Range`], or no memory.
    pub fn populate(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: prefaulting memory of this reservation; contents are unchanged.
        match unsafe {
            mm::madvise(self.base.wrapping_add(range.start).cast(), range.len(), Advice::LinuxPopulateWrite)
        } {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(failed("madvise(POPULATE_WRITE)", &range, errno)),
        }
    }

    /// Puts a private, writable mapping of `file` from `file_offset` over `range`.
    ///
    /// Writes go to private copies. When a process truncates the file, touching the lost part raises SIGBUS.
    ///
    /// # Errors
    /// [`MemError::Range`], or the file can't be mapped.
    pub fn map_file_private(&self, range: Range<usize>, file: &File, file_offset: u64) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let at = self.base.wrapping_add(range.start).cast();
        // SAFETY: MAP_FIXED replaces only pages inside this reservation, which this struct owns.
        unsafe {
            mm::mmap(
                at,
                range.len(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                file.as_fd(),
                file_offset,
            )
        }
        .map_err(|errno| failed("mmap(file)", &range, errno))?;
        Ok(())
    }

    /// Puts fresh anonymous memory, which reads as zero, in place of whatever lies behind `range`, such as a mapped file.
    ///
    /// The caller must hold no reference into the range: its bytes change.
    ///
    /// # Errors
    /// [`MemError::Range`], or the system refuses (too many mappings).
    pub fn replace_by_zeros(&self, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let at = self.base.wrapping_add(range.start);
        // SAFETY: MAP_FIXED replaces only pages inside this reservation, and no reference into them exists without unsafe code
        // that answers for it.
        unsafe { map::map_anonymous_over(at, range.len(), map::Protection::ReadWrite) }
            .map_err(|error| failed("mmap", &range, Errno::from_io_error(&error).unwrap_or(Errno::INVAL)))?;
        // A wish, as in `commit`.
        // SAFETY: advice about memory of this reservation; contents are unchanged.
        let _ = unsafe { mm::madvise(at.cast(), range.len(), Advice::LinuxHugepage) };
        Ok(())
    }

    /// Moves the pages at the same offsets of `source` over `range`, without copying them. `source` stays mapped but
    /// empty there (a hole could be taken by a foreign mapping, which our drop would then destroy).
    ///
    /// # Safety
    /// - No thread reads or writes `range` of `source` during or after the call.
    /// - The bytes of `range` in `self` may change: the caller has made both sides equal, or no reference exists.
    ///
    /// # Errors
    /// [`MemError::Range`], or the system refuses (too many mappings).
    pub unsafe fn move_from(&self, source: &Reservation, range: Range<usize>) -> Result<(), MemError> {
        self.check(&range)?;
        source.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let (from, to) = (source.base.wrapping_add(range.start), self.base.wrapping_add(range.start));
        // SAFETY: `move_over` demands ranges of the caller's without references into them: both lie inside reservations, and
        // `move_from` demands that no thread uses the source and that the target's bytes may change.
        unsafe { map::move_over(from, range.len(), to) }
            .map_err(|error| failed("mremap", &range, Errno::from_io_error(&error).unwrap_or(Errno::INVAL)))?;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range was claimed by `new` and is owned by this struct. Unsafe code that dereferences the base answers for
        // the reservation living that long. `move_from` leaves no holes, so all of it still belongs to this struct.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(memory: &Reservation, offset: usize) -> *mut u8 {
        memory.base().wrapping_add(offset)
    }

    #[test]
    fn committed_memory_is_zero_and_keeps_what_is_written_until_released() {
        let memory = Reservation::new(8 << 20).unwrap();
        memory.commit(0..4 << 20).unwrap();
        // SAFETY: committed above, used by this thread only.
        unsafe {
            assert_eq!(*byte(&memory, 12345), 0);
            *byte(&memory, 12345) = 7;
            assert_eq!(*byte(&memory, 12345), 7);
            memory.release(0..4 << 20).unwrap();
            assert_eq!(*byte(&memory, 12345), 0);
        }
    }

    #[test]
    fn locked_memory_is_released_too_and_not_freed_lazily() {
        let memory = Reservation::new(2 << 20).unwrap();
        memory.commit(0..2 << 20).unwrap();
        // SAFETY: committed above, used by this thread only; locking changes no byte.
        unsafe {
            *byte(&memory, 100) = 7;
            if let Err(error) = mm::mlock(memory.base().cast(), 4 * PAGE_SIZE) {
                return crate::testing::skipped(error);
            }
            assert!(memory.free_lazily(0..PAGE_SIZE).is_err());
            memory.release(0..PAGE_SIZE).unwrap();
            assert_eq!(*byte(&memory, 100), 0);
        }
    }

    #[test]
    fn lazily_freed_memory_reads_as_before_or_as_zero_and_keeps_what_is_stored_afterwards() {
        let memory = Reservation::new(2 << 20).unwrap();
        memory.commit(0..2 << 20).unwrap();
        // SAFETY: committed above, used by this thread only.
        unsafe {
            *byte(&memory, 5) = 7;
            memory.free_lazily(0..1 << 20).unwrap();
            assert!(matches!(*byte(&memory, 5), 0 | 7));
            *byte(&memory, 5) = 8;
            assert_eq!(*byte(&memory, 5), 8);
        }
        assert!(memory.free_lazily(1..PAGE_SIZE).is_err());
    }

    #[test]
    fn ranges_outside_or_unaligned_are_refused() {
        let memory = Reservation::new(1 << 20).unwrap();
        assert!(memory.commit(0..memory.len() + PAGE_SIZE).is_err());
        assert!(memory.commit(1..PAGE_SIZE).is_err());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = PAGE_SIZE..0;
        assert!(memory.commit(reversed).is_err());
    }

    #[test]
    fn a_private_file_mapping_shows_the_file_and_keeps_writes_to_itself() {
        use std::io::Write;
        let mut file = tempfile();
        file.write_all(&[9; 2 * PAGE_SIZE]).unwrap();
        let memory = Reservation::new(2 << 20).unwrap();
        memory.commit(0..2 << 20).unwrap();
        memory.map_file_private(PAGE_SIZE..3 * PAGE_SIZE, &file, 0).unwrap();
        // SAFETY: mapped above, used by this thread only.
        unsafe {
            assert_eq!(*byte(&memory, 0), 0);
            assert_eq!(*byte(&memory, PAGE_SIZE), 9);
            *byte(&memory, PAGE_SIZE) = 1;
            assert_eq!(*byte(&memory, PAGE_SIZE), 1);
            memory.replace_by_zeros(PAGE_SIZE..2 * PAGE_SIZE).unwrap();
            assert_eq!((*byte(&memory, PAGE_SIZE), *byte(&memory, 2 * PAGE_SIZE)), (0, 9));
            *byte(&memory, PAGE_SIZE) = 2;
        }
        use std::os::unix::fs::FileExt;
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [9]);
    }

    #[test]
    fn moved_pages_replace_a_file_mapping_and_merge_into_few_mappings() {
        let memory = Reservation::new(64 << 20).unwrap();
        let staging = Reservation::new(64 << 20).unwrap();
        memory.commit(0..64 << 20).unwrap();
        staging.commit(0..64 << 20).unwrap();
        for region in 0..32 {
            let start = region * HUGE_PAGE_SIZE;
            // SAFETY: committed; this thread alone uses both; the moved range of staging isn't touched again.
            unsafe {
                *byte(&staging, start) = region as u8 + 1;
                memory.move_from(&staging, start..start + HUGE_PAGE_SIZE).unwrap();
                assert_eq!(*byte(&memory, start), region as u8 + 1);
            }
        }
        let base = memory.base() as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inside = maps
            .lines()
            .filter(|line| {
                let start = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
                start >= base && start < base + memory.len()
            })
            .count();
        assert!(inside <= 4, "{inside} mappings after 32 moves");
    }

    fn tempfile() -> File {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quire-sys-mem-{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }
}
