//! Advice about many ranges of this process's memory in one call: pages dropped in batches.
//!
//! Relies on `process_madvise` of the calling process (Linux 6.13 takes `MADV_DONTNEED` for it); where the kernel refuses,
//! each range costs a `madvise` of its own. One call shares the processors' interrupts for their TLBs among all ranges.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most ranges that one call is given.
pub const MOST_RANGES: usize = 512;

/// `MADV_DONTNEED_LOCKED` (Linux 5.18): as `MADV_DONTNEED`, also for memory that is locked.
pub(crate) const DONTNEED_LOCKED: libc::c_int = 24;

/// What it took to drop a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCost {
    /// Ranges after neighbours were joined.
    pub ranges: usize,
    /// System calls.
    pub calls: usize,
}

/// Ranges of memory to be dropped together. Neighbours that are added one after the other become one range.
#[derive(Debug, Default)]
pub struct DiscardBatch {
    ranges: Vec<libc::iovec>,
}

// SAFETY: addresses and lengths, which mean the same in every thread. Only `discard` touches the memory, and it demands of its caller,
// in whatever thread, that no reference into the ranges exists.
unsafe impl Send for DiscardBatch {}

/// This process, to the kernel. In a child of a fork it still names the parent, of whose memory the kernel drops nothing:
/// the child then goes the other way.
fn this_process() -> Option<&'static OwnedFd> {
    static THIS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    THIS.get_or_init(|| {
        rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).ok()
    })
    .as_ref()
}

/// The kernel has refused once, and is not asked again.
static REFUSED: AtomicBool = AtomicBool::new(false);

impl DiscardBatch {
    /// An empty batch with room for `ranges`.
    pub fn with_capacity(ranges: usize) -> Self {
        Self { ranges: Vec::with_capacity(ranges) }
    }

    /// Adds `len` bytes at `at`.
    pub fn add(&mut self, at: *mut u8, len: usize) {
        if let Some(last) = self.ranges.last_mut()
            && last.iov_base as usize + last.iov_len == at as usize
        {
            last.iov_len += len;
            return;
        }
        self.ranges.push(libc::iovec { iov_base: at.cast(), iov_len: len });
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Drops the pages of all ranges, which read as zero afterwards, and empties the batch.
    ///
    /// # Safety
    /// - Every range is page-aligned private anonymous memory of the caller's.
    /// - No reference into it exists: its bytes change.
    ///
    /// # Errors
    /// As `madvise`. Any of the ranges may have been dropped then; the batch is as it was.
    pub unsafe fn discard(&mut self) -> io::Result<DiscardCost> {
        let mut cost = DiscardCost { ranges: self.ranges.len(), calls: 0 };
        for part in self.ranges.chunks(MOST_RANGES) {
            // SAFETY: `discard_together` demands page-aligned anonymous memory into which no reference exists; `discard` demands the same of
            // its caller for all ranges, of which `part` are some.
            let done = unsafe { discard_together(part) };
            cost.calls += usize::from(done.is_some());
            if done != Some(bytes(part)) {
                // A part of it may be gone already; dropping that again changes nothing, since no code uses it.
                // SAFETY: `discard_singly` demands page-aligned anonymous memory into which no reference exists; `discard` demands the same
                // of its caller for all ranges, of which `part` are some.
                unsafe { discard_singly(part) }?;
                cost.calls += part.len();
            }
        }
        self.ranges.clear();
        Ok(cost)
    }
}

fn bytes(ranges: &[libc::iovec]) -> usize {
    ranges.iter().map(|range| range.iov_len).sum()
}

/// Bytes dropped by one call; `None` if there is no such call here.
///
/// # Safety
/// As [`DiscardBatch::discard`].
unsafe fn discard_together(ranges: &[libc::iovec]) -> Option<usize> {
    // One range needs no list.
    if ranges.len() < 2 || REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let this = this_process()?;
    // SAFETY: the list is valid for its length and only read. `discard_together` demands ranges of
    // anonymous memory into which no reference exists, so no code sees that they read as zero.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            this.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_DONTNEED,
            0 as libc::c_uint,
        )
    };
    if done < 0 {
        let passing = matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINTR | libc::EAGAIN));
        REFUSED.fetch_or(!passing, Ordering::Relaxed);
        return None;
    }
    Some(done as usize)
}

/// # Safety
/// As [`DiscardBatch::discard`].
unsafe fn discard_singly(ranges: &[libc::iovec]) -> io::Result<()> {
    for range in ranges {
        // SAFETY: `discard_singly` demands ranges of anonymous memory into which no reference exists, so no code sees that they read as zero.
        let dropped = unsafe {
            libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) == 0
                || libc::madvise(range.iov_base, range.iov_len, DONTNEED_LOCKED) == 0
        };
        if !dropped {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{PAGE_SIZE, Reservation};

    fn filled(pages: usize) -> Reservation {
        let memory = Reservation::new(pages * PAGE_SIZE).unwrap();
        memory.commit(0..memory.len()).unwrap();
        for page in 0..pages {
            // SAFETY: committed above, used by this thread only.
            unsafe { memory.base().add(page * PAGE_SIZE).write(page as u8 | 1) };
        }
        memory
    }

    fn byte(memory: &Reservation, page: usize) -> u8 {
        // SAFETY: committed, used by this thread only.
        unsafe { memory.base().add(page * PAGE_SIZE).read() }
    }

    #[test]
    fn pages_of_a_batch_are_dropped_and_no_others() {
        let pages = 3 * MOST_RANGES;
        let memory = filled(pages);
        let mut batch = DiscardBatch::default();
        let is_chosen = |page: usize| page.is_multiple_of(2);
        for page in (0..pages).filter(|&page| is_chosen(page)) {
            batch.add(memory.base().wrapping_add(page * PAGE_SIZE), PAGE_SIZE);
        }
        // SAFETY: memory of this test, without references into it.
        let cost = unsafe { batch.discard() }.unwrap();
        assert_eq!(cost.ranges, pages / 2);
        assert!(batch.is_empty());
        for page in 0..pages {
            assert_eq!(byte(&memory, page), if is_chosen(page) { 0 } else { page as u8 | 1 });
        }
    }

    #[test]
    fn neighbours_become_one_range() {
        let memory = filled(8);
        let mut batch = DiscardBatch::with_capacity(2);
        for page in [2, 3, 4, 6] {
            batch.add(memory.base().wrapping_add(page * PAGE_SIZE), PAGE_SIZE);
        }
        // SAFETY: memory of this test, without references into it.
        assert_eq!(unsafe { batch.discard() }.unwrap().ranges, 2);
        let left: Vec<usize> = (0..8).filter(|&page| byte(&memory, page) != 0).collect();
        assert_eq!(left, [0, 1, 5, 7]);
    }

    #[test]
    fn single_calls_do_the_same_where_the_kernel_knows_no_batches() {
        let memory = filled(8);
        let ranges: Vec<libc::iovec> = [1, 5]
            .map(|page| libc::iovec {
                iov_base: memory.base().wrapping_add(page * PAGE_SIZE).cast(),
                iov_len: PAGE_SIZE,
            })
            .into();
        // SAFETY: memory of this test, without references into it.
        unsafe { discard_singly(&ranges) }.unwrap();
        let left: Vec<usize> = (0..8).filter(|&page| byte(&memory, page) != 0).collect();
        assert_eq!(left, [0, 2, 3, 4, 6, 7]);
    }

    #[test]
    fn a_range_that_is_not_mapped_is_an_error() {
        let mut batch = DiscardBatch::default();
        batch.add(PAGE_SIZE as *mut u8, PAGE_SIZE);
        // SAFETY: nothing is mapped there.
        assert!(unsafe { batch.discard() }.is_err());
    }
}
