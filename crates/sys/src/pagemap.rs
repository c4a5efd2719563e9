//! What the kernel says of single pages: `/proc/PID/pagemap`, one 8-byte word a page.
//!
//! Relies on procfs. A user may read the flags of the user's own processes (20–50 ns a page in large reads). Frame numbers are
//! shown only with `CAP_SYS_ADMIN` and are 0 otherwise, which [`PagemapEntry::frame`] turns into `None`. A read walks page tables
//! without stopping any thread, so its answer may be old when the caller looks at it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::mem::PAGE_SIZE;

/// Bytes of a word in the file.
const WORD_BYTES: usize = 8;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE_OR_SHARED: u64 = 1 << 61;
const UFFD_WP: u64 = 1 << 57;
const EXCLUSIVE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;
/// A page that no code may touch (`MADV_GUARD_INSTALL`, Linux 6.13); it is shown as swapped, too.
const GUARD: u64 = 1 << 58;
const FRAME: u64 = (1 << 55) - 1;

/// One page as its page-table entry has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagemapEntry {
    /// A frame of memory backs it.
    pub present: bool,
    /// It is mapped here and nowhere else. After a fork: parent or child has broken the sharing, or the other is gone.
    pub exclusive: bool,
    /// It belongs to a file or to shared memory.
    pub file_or_shared: bool,
    /// It lies in swap.
    pub swapped: bool,
    /// It was written since soft-dirty bits were last cleared.
    pub soft_dirty: bool,
    /// userfaultfd has it write-protected.
    pub uffd_wp: bool,
    /// Number of its frame, where it is present and the kernel tells.
    pub frame: Option<u64>,
}

impl PagemapEntry {
    /// Takes a word of the file apart.
    pub fn from_word(word: u64) -> Self {
        let present = word & PRESENT != 0;
        Self {
            present,
            exclusive: word & EXCLUSIVE != 0,
            file_or_shared: word & FILE_OR_SHARED != 0,
            swapped: word & SWAPPED != 0,
            soft_dirty: word & SOFT_DIRTY != 0,
            uffd_wp: word & UFFD_WP != 0,
            frame: (present && word & FRAME != 0).then_some(word & FRAME),
        }
    }

    /// Whether `word` is a page that is present and mapped nowhere else: the one question that is asked of very many.
    pub fn is_exclusive(word: u64) -> bool {
        word & (PRESENT | EXCLUSIVE) == PRESENT | EXCLUSIVE
    }

    /// Whether `word` is a page with contents: in memory or in swap, and none that may not be touched.
    pub fn has_contents(word: u64) -> bool {
        word & (PRESENT | SWAPPED) != 0 && word & GUARD == 0
    }

    /// Whether `word` is an anonymous page that is present and mapped by another process as well.
    pub fn is_shared_anonymous(word: u64) -> bool {
        word & (PRESENT | EXCLUSIVE | FILE_OR_SHARED) == PRESENT
    }
}

/// The open page map of a process.
#[derive(Debug)]
pub struct Pagemap(OwnedFd);

impl Pagemap {
    /// Opens the map of process `pid`, or of this one. Allocates nothing.
    ///
    /// # Errors
    /// When procfs is not there, or the process is gone, or it belongs to another user.
    pub fn open(pid: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match pid {
            None => rustix::fs::open(c"/proc/self/pagemap", flags, Mode::empty()),
            Some(pid) => rustix::fs::open(format!("/proc/{pid}/pagemap"), flags, Mode::empty()),
        };
        Ok(Self(file?))
    }

    /// A map read from `file`, for tests and for those who opened it themselves.
    pub fn from_file(file: File) -> Self {
        Self(file.into())
    }

    /// Reads the words of the pages from the one that holds `address` on; returns how many were read, which is less
    /// than asked for only past the end of the address space. Allocates nothing.
    ///
    /// # Errors
    /// When the process has ended or the kernel refuses.
    pub fn read_words(&self, address: usize, words: &mut [u64]) -> io::Result<usize> {
        let first = (address / PAGE_SIZE * WORD_BYTES) as u64;
        let wanted = words.len() * WORD_BYTES;
        // SAFETY: the words are initialised and any bytes are valid words; the slice covers exactly their memory.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), wanted) };
        let mut done = 0;
        while done < wanted {
            match rustix::io::pread(&self.0, &mut bytes[done..], first + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(done / WORD_BYTES)
    }

    /// As [`Pagemap::read_words`], taken apart.
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, address: usize, pages: usize) -> io::Result<Vec<PagemapEntry>> {
        let mut words = vec![0; pages];
        let count = self.read_words(address, &mut words)?;
        words.truncate(count);
        Ok(words.into_iter().map(PagemapEntry::from_word).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Reservation;

    #[test]
    fn a_touched_page_is_present_and_its_neighbour_is_not() {
        let memory = Reservation::new(1 << 21).unwrap();
        memory.commit(0..1 << 21).unwrap();
        // Huge pages would make both present.
        // SAFETY: advice about memory of this reservation, which only this test knows.
        unsafe {
            rustix::mm::madvise(memory.base().cast(), memory.len(), rustix::mm::Advice::LinuxNoHugepage).unwrap();
        }
        let map = Pagemap::open(None).unwrap();
        let entries = loop {
            // SAFETY: committed memory, which only this test knows.
            unsafe { memory.base().write_volatile(1) };
            let entries = map.read(memory.base() as usize, 2).unwrap();
            // A child that another test forks between the two shares the page, until this one writes it again.
            if !entries[0].present || entries[0].exclusive {
                break entries;
            }
        };
        assert!(entries[0].present && !entries[0].file_or_shared && !entries[0].swapped);
        assert_eq!(entries[1], PagemapEntry { soft_dirty: entries[1].soft_dirty, ..PagemapEntry::default() });
    }

    #[test]
    fn pages_of_a_file_are_told_from_anonymous_ones() {
        let code = Pagemap::open as *const () as usize;
        let entry = Pagemap::open(Some(std::process::id())).unwrap().read(code, 1).unwrap()[0];
        assert!(entry.present && entry.file_or_shared);
    }

    #[test]
    fn words_are_taken_apart_as_the_kernel_documents_them() {
        let word = PRESENT | EXCLUSIVE | SOFT_DIRTY | 77;
        let entry = PagemapEntry::from_word(word);
        assert_eq!((entry.present, entry.exclusive, entry.soft_dirty, entry.frame), (true, true, true, Some(77)));
        assert!(PagemapEntry::is_exclusive(word) && !PagemapEntry::is_shared_anonymous(word));
        assert!(!PagemapEntry::is_exclusive(EXCLUSIVE) && !PagemapEntry::is_shared_anonymous(EXCLUSIVE));
        assert!(
            PagemapEntry::is_shared_anonymous(PRESENT) && !PagemapEntry::is_shared_anonymous(PRESENT | FILE_OR_SHARED)
        );
        assert_eq!(PagemapEntry::from_word(SWAPPED | 5).frame, None);
        assert!(PagemapEntry::has_contents(PRESENT) && PagemapEntry::has_contents(SWAPPED));
        assert!(!PagemapEntry::has_contents(SOFT_DIRTY) && !PagemapEntry::has_contents(SWAPPED | GUARD));
        assert!(PagemapEntry::from_word(UFFD_WP).uffd_wp);
    }
}
