//! Mappings that a process holds for its own later need: the kernel gives each process so many (`vm.max_map_count`), and a program that has
//! used them all leaves none for work that must not fail.
//!
//! Relies on neighbouring pages with different rights being different mappings. Nothing allocates, and `errno` stays.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::mem::PAGE_SIZE;

/// Mappings without memory, given back as a whole when this is dropped.
#[derive(Debug)]
pub struct SpareMaps {
    base: *mut u8,
    len: usize,
}

impl SpareMaps {
    /// Holds `count` of them, an even number; forked children hold as many.
    ///
    /// # Errors
    /// As `mmap` and `mprotect`: there are not so many left.
    pub fn hold(count: usize) -> io::Result<Self> {
        let len = count.max(2) * PAGE_SIZE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        // What fails below gives back what was had.
        let spares = Self { base: base.cast(), len };
        for page in (0..count).step_by(2) {
            // SAFETY: a page of the mapping made above, which no code uses.
            unsafe { rustix::mm::mprotect(base.wrapping_byte_add(page * PAGE_SIZE), PAGE_SIZE, MprotectFlags::READ) }?;
        }
        Ok(spares)
    }
}

impl Drop for SpareMaps {
    fn drop(&mut self) {
        // SAFETY: `hold` has made the mapping, and no code uses it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// How many mappings the calling process has.
///
/// # Errors
/// As reading `/proc/self/maps`.
pub fn count() -> io::Result<usize> {
    let file = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut lines, mut piece) = (0, [0_u8; PAGE_SIZE]);
    loop {
        match rustix::io::read(&file, &mut piece) {
            Ok(0) => return Ok(lines),
            Ok(read) => lines += piece[..read].iter().filter(|&&byte| byte == b'\n').count(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_until_it_is_given_back() {
        // Other tests of this process map memory at the same time, so the number held is far above theirs.
        const COUNT: usize = 4000;
        let before = count().unwrap();
        let spares = SpareMaps::hold(COUNT).unwrap();
        let held = count().unwrap();
        assert!(held > before + COUNT / 2, "{before} then {held}");
        drop(spares);
        assert!(count().unwrap() < held - COUNT / 2);
        let limit = crate::limits::max_mappings();
        assert!(limit > before);
        assert!(SpareMaps::hold(limit + 2).is_err(), "more than there may be");
    }
}
