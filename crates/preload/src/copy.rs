//! The two ways to give the parent its own copy of pages that it shares with a child.
//!
//! Relies on both leaving contents alone. `MADV_POPULATE_WRITE` copies page by page (1.6 µs each) and makes every
//! processor that runs the program drop the page's address: next to the program's thread on the same processor it is
//! cheap, from another one it costs the program as much as it spares. `MADV_COLLAPSE` copies a whole region into a huge
//! page (0.4 µs a page, addresses dropped once), and huge pages make later forks short.

use std::io;

use quire_sys::area::AnonymousMap;
use quire_sys::bare_thread;
use quire_sys::mem::{HUGE_PAGE_SIZE, PAGE_SIZE};
use quire_sys::pagemap::PagemapEntry;
use quire_sys::thread;

/// Room for one huge page of the worker's own, to find out what one costs and to have it cheap for the program.
///
/// A virtual machine gives free huge pages back to its host at once, and each page of one that is had anew then costs 10
/// µs. The thread that copies into it spends that time, and holds up the program's faults meanwhile. So the worker takes
/// and touches one here first, where no fault waits, and frees it again: the processor keeps it at hand for the next
/// request.
#[derive(Debug)]
pub struct SpareHugePage(AnonymousMap);

impl SpareHugePage {
    /// Room for it.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn new() -> io::Result<Self> {
        let area = AnonymousMap::private(2 * HUGE_PAGE_SIZE)?;
        area.keep_from_children();
        area.prefer_huge_pages();
        Ok(Self(area))
    }

    /// Has a huge page touched and at hand; returns what that cost, in nanoseconds of processor time.
    pub fn fetch_ns(&self) -> u64 {
        let before_ns = thread::cpu_time_ns();
        // Without a huge page it becomes small ones; what follows then fails by itself.
        let _ = populate((self.0.base() as usize).next_multiple_of(HUGE_PAGE_SIZE), HUGE_PAGE_SIZE);
        // SAFETY: the mapping is private to this value, which hands out no reference into it.
        unsafe { self.0.discard() };
        thread::cpu_time_ns() - before_ns
    }
}

/// Bytes that are copied page by page in one go, about 50 µs.
pub const PIECE_BYTES: usize = 128 << 10;

/// Makes the pages at `address` the parent's own, one by one.
///
/// # Errors
/// When they are mapped no more, or the kernel can't.
pub fn populate(address: usize, bytes: usize) -> io::Result<()> {
    bare_thread::populate_write(address, bytes)
}

/// Makes `bytes` of whole huge pages from `address` on the parent's own.
///
/// # Errors
/// When the kernel can't or the program has ruled huge pages out.
pub fn collapse(address: usize, bytes: usize) -> io::Result<()> {
    bare_thread::collapse(address, bytes)
}

/// Copies the region at `address`, a huge page with the page-map words `words`, whole.
///
/// # Errors
/// As [`collapse`].
pub fn whole(address: usize, words: &[u64]) -> io::Result<()> {
    // A huge page that is shared as a whole would be left as it is: breaking the sharing of one page splits it.
    if let Some(page) = words.iter().position(|&word| PagemapEntry::is_shared_anonymous(word)) {
        populate(address + page * PAGE_SIZE, PAGE_SIZE)?;
    }
    collapse(address, HUGE_PAGE_SIZE)
}

/// What [`all_but`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedPages {
    /// Pages copied.
    pub copied: u16,
    /// Which of the pages to leave were still shared, and so tell something: a bit each, in order.
    pub left: u16,
}

/// Copies the shared pages of a region, except those of `leave` (in order) and what goes beyond `budget` bytes. After each
/// [`PIECE_BYTES`] it calls `rest`, so that a thread that shares the processor is not held up.
pub fn all_but(
    address: usize,
    words: &[u64],
    leave: impl Iterator<Item = usize>,
    budget: u64,
    mut rest: impl FnMut(),
) -> CopiedPages {
    let mut done = CopiedPages::default();
    let most = usize::try_from(budget / PAGE_SIZE as u64).unwrap_or(usize::MAX);
    let (mut from, mut rested_at) = (0, 0);
    let ends = leave.enumerate().map(|(stratum, page)| (Some(stratum), page)).chain([(None, words.len())]);
    for (stratum, end) in ends {
        let mut page = from;
        while page < end && usize::from(done.copied) < most {
            let shared = words[page..end].iter().take_while(|&&word| PagemapEntry::is_shared_anonymous(word)).count();
            let run = shared.min(most - usize::from(done.copied));
            // A run that can't be copied may be mapped no more; the program copies what it writes of it, as always.
            if run > 0 && populate(address + page * PAGE_SIZE, run * PAGE_SIZE).is_ok() {
                done.copied += run as u16;
                if usize::from(done.copied - rested_at) * PAGE_SIZE >= PIECE_BYTES {
                    rested_at = done.copied;
                    rest();
                }
            }
            page += run.max(1);
        }
        if let Some(stratum) = stratum {
            done.left |= u16::from(PagemapEntry::is_shared_anonymous(words[end])) << stratum;
        }
        from = end + 1;
    }
    done
}

/// Why regions can't be copied into huge pages here; `None` if they can.
pub fn huge_pages_forbidden(wanted: bool) -> Option<&'static str> {
    if !wanted {
        return Some("QUIRE_PRELOAD_HUGE=off");
    }
    if huge_pages_are_off() {
        return Some("transparent huge pages are off");
    }
    let Ok(area) = AnonymousMap::private(2 * HUGE_PAGE_SIZE) else { return Some("no memory") };
    let start = (area.base() as usize).next_multiple_of(HUGE_PAGE_SIZE);
    let tried = populate(start, PAGE_SIZE).and_then(|()| collapse(start, HUGE_PAGE_SIZE));
    tried.err().map(|error| match error.kind() {
        io::ErrorKind::InvalidInput => "the program or the kernel rules them out",
        _ => "no huge page is free",
    })
}

fn huge_pages_are_off() -> bool {
    let mut text = [0; 64];
    let path = c"/sys/kernel/mm/transparent_hugepage/enabled";
    let count = quire_sys::guest::read_file(path, &mut text).unwrap_or(0);
    text[..count].windows(7).any(|word| word == b"[never]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_copied_except_for_the_sample() {
        let area = AnonymousMap::private(16 * PAGE_SIZE).unwrap();
        // Words as of pages that are present and shared.
        let words = [1_u64 << 63; 16];
        let address = area.base() as usize;
        let mut rests = 0;
        let copied = all_but(address, &words, [3, 12].into_iter(), u64::MAX, || rests += 1);
        assert_eq!((copied, rests), (CopiedPages { copied: 14, left: 0b11 }, 0));
        let pagemap = quire_sys::pagemap::Pagemap::open(None).unwrap();
        let present: Vec<bool> = pagemap.read(address, 16).unwrap().iter().map(|entry| entry.present).collect();
        assert!((0..16).all(|page| present[page] != [3, 12].contains(&page)), "{present:?}");
        assert_eq!(all_but(address, &words, [3, 12].into_iter(), 5 * 4096 + 1, || ()).copied, 5);
        assert_eq!(all_but(address, &[0; 16], [3, 12].into_iter(), u64::MAX, || ()), CopiedPages::default());
    }

    #[test]
    fn both_ways_leave_contents_alone() {
        let area = AnonymousMap::private(2 * HUGE_PAGE_SIZE).unwrap();
        let start = (area.base() as usize).next_multiple_of(HUGE_PAGE_SIZE);
        let bytes = area.base().wrapping_add(start - area.base() as usize);
        for page in 0..512 {
            // SAFETY: the huge page lies inside the mapping, `page` counts its 512 pages, and only this test knows the mapping.
            unsafe { bytes.add(page * PAGE_SIZE).write(page as u8) };
        }
        populate(start, HUGE_PAGE_SIZE).unwrap();
        // Whether a huge page is to be had depends on the machine.
        let _ = collapse(start, HUGE_PAGE_SIZE);
        // SAFETY: the huge page lies inside the mapping, which is still there; `page` counts its 512 pages, which were written.
        assert!((0..512).all(|page| unsafe { bytes.add(page * PAGE_SIZE).read() } == page as u8));
        assert!(SpareHugePage::new().unwrap().fetch_ns() > 0);
        assert_eq!(huge_pages_forbidden(false), Some("QUIRE_PRELOAD_HUGE=off"));
        let _ = huge_pages_forbidden(true);
    }
}
