//! Memory taken straight from the system, for those who must not touch the program's allocator.
//!
//! Relies on `mmap` and `munmap`. An [`AnonymousMap`] reads as zero until it is written, and is backed page by page as it is
//! touched, so a large one that is used little costs little.

use std::io;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// A range of anonymous memory of its own.
#[derive(Debug)]
pub struct AnonymousMap {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; the bytes can be reached only by `unsafe`.
unsafe impl Send for AnonymousMap {}
// SAFETY: threads that share it can reach the bytes only by `unsafe`.
unsafe impl Sync for AnonymousMap {}

impl AnonymousMap {
    /// `len` bytes that a forked child gets a copy of.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn private(len: usize) -> io::Result<Self> {
        Self::map(len, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// `len` bytes that a forked child sees and changes as its parent does.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn shared(len: usize) -> io::Result<Self> {
        Self::map(len, MapFlags::SHARED)
    }

    /// `len` bytes of addresses at which nothing may be loaded or stored until they are [made accessible](crate::map::protect). They count
    /// as no data, are in no core file, and locking all memory of the process gives them none.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn reserved(len: usize) -> io::Result<Self> {
        Self::map_as(len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn map(len: usize, flags: MapFlags) -> io::Result<Self> {
        Self::map_as(len, ProtFlags::READ | ProtFlags::WRITE, flags)
    }

    fn map_as(len: usize, rights: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(crate::mem::PAGE_SIZE);
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is touched.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, rights, flags) }?;
        Ok(Self { base: base.cast(), len })
    }

    /// Its first `len` bytes are no more its own: they were moved elsewhere, and what lies at their addresses by now is not known.
    ///
    /// # Panics
    /// If it has not so many.
    pub fn forget_front(&mut self, len: usize) {
        assert!(len <= self.len, "{len} of {} bytes", self.len);
        self.base = self.base.wrapping_add(len);
        self.len -= len;
    }

    /// Leaves the area out of what later children get, so that a fork copies no page tables for it.
    pub fn keep_from_children(&self) {
        // Refused or not, the caller stays correct: the child has an area that it doesn't use.
        // SAFETY: advice about memory of our own that doesn't change its contents here.
        let _ = unsafe { mm::madvise(self.base.cast(), self.len, Advice::LinuxDontFork) };
    }

    /// Keeps the area in memory: none of it is written to swap.
    ///
    /// # Errors
    /// As `mlock`.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: memory of our own.
        Ok(unsafe { mm::mlock(self.base.cast(), self.len) }?)
    }

    /// Asks for huge pages behind the area. A wish: without them it works as well.
    pub fn prefer_huge_pages(&self) {
        // SAFETY: advice about memory of our own that doesn't change its contents.
        let _ = unsafe { mm::madvise(self.base.cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Gives back the memory behind the area, which reads as zero again.
    ///
    /// # Safety
    /// No reference into it exists.
    pub unsafe fn discard(&self) {
        // SAFETY: the mapping is this struct's, and `discard` demands that no reference into it exists.
        let _ = unsafe { mm::madvise(self.base.cast(), self.len, Advice::LinuxDontNeed) };
    }

    /// Its first address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for AnonymousMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's. Code that dereferences the base is `unsafe` and answers for the area living that long.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_reads_as_zero_and_keeps_what_is_written() {
        for area in [AnonymousMap::private(5000).unwrap(), AnonymousMap::shared(5000).unwrap()] {
            assert_eq!(area.len(), 8192);
            // SAFETY: the area is mapped, only this test knows it, and the offsets lie inside.
            unsafe {
                assert_eq!(area.base().add(8191).read(), 0);
                area.base().add(8191).write(7);
                assert_eq!(area.base().add(8191).read(), 7);
            }
            area.keep_from_children();
        }
        let reserved = AnonymousMap::reserved(1 << 40).unwrap();
        // SAFETY: the area is mapped, only this test knows it, and a part may be used once it is accessible.
        unsafe {
            crate::map::protect(reserved.base(), 8192, crate::map::Protection::ReadWrite).unwrap();
            reserved.base().add(8191).write(7);
            assert_eq!(reserved.base().add(8191).read(), 7);
        }
        let area = AnonymousMap::private(4 << 20).unwrap();
        area.prefer_huge_pages();
        // SAFETY: the area is mapped, only this test knows it, and no reference into it exists.
        unsafe {
            area.base().write(7);
            area.discard();
            assert_eq!(area.base().read(), 0);
        }
    }

    #[test]
    fn what_was_moved_out_of_an_area_stays_mapped_when_the_area_goes() {
        let mut area = AnonymousMap::private(8192).unwrap();
        let front = area.base();
        area.forget_front(4096);
        assert_eq!((area.base() as usize, area.len()), (front as usize + 4096, 4096));
        drop(area);
        let rest = AnonymousMap { base: front, len: 4096 };
        // SAFETY: the first page was forgotten, not unmapped, and only this test knows it.
        unsafe {
            rest.base().write(7);
            assert_eq!(rest.base().read(), 7);
        }
    }
}
