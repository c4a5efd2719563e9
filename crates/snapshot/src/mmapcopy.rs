//! `mmapcopy`: `memcpy`'s interface over private mappings of one file in memory, after Korb, Kotthaus and Marwedel (SAC 2016).
//!
//! Relies on `quire_sys::map` for files and mappings, and on the page map to tell pages that were written since they were
//! mapped. The first copy moves the source's content into a file and maps that privately at both places; as long as the
//! source is not written, further copies map the same file. A written source is moved into a new file. Pages that were
//! never touched stay holes.
//!
//! The range stays such a mapping when the mechanism is gone: turning it back into plain memory would take writers that
//! hold still. So `MADV_DONTNEED` on it gives back the content of the last cut, not zeros.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quire_sys::map::{self, MapSharing, Protection};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::proc_maps;

use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, Origin, OriginStats, View, ViewError, check};
use crate::page::PAGE_SIZE;
use crate::racy;
use crate::span::PageRange;

/// Words of the page map that are read at once.
const MAP_WORDS: usize = 4096;

/// The range that is copied.
pub(crate) struct MmapCopyOrigin {
    source: Source,
    cuts: AtomicU64,
    last_cut_ns: AtomicU64,
    copied_pages: AtomicU64,
}

/// Content in a file, and which of its pages are no holes.
struct FileContent {
    file: File,
    /// One bit a page.
    filled: Vec<u64>,
    /// Bytes of these pages, which count among the files' for as long as this lives.
    bytes: usize,
    files: Arc<FileSizes>,
}

/// All files of one origin that are still mapped somewhere. Sums, so that a cut costs the same however many copies are kept.
#[derive(Default)]
struct FileSizes {
    bytes: AtomicUsize,
    held_peak: AtomicU64,
}

/// Memory that can be copied by mapping: the origin's range, or that of a view.
struct Source {
    span: PageRange,
    /// What is mapped there, if it is a file of ours already. Held while that changes.
    content: Mutex<Option<Arc<FileContent>>>,
    files: Arc<FileSizes>,
}

/// One copy. Its memory is its own; the field is last so that the mapping outlives the source that uses it.
struct MmapCopyView {
    source: Source,
    memory: Reservation,
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> MechanismError {
    move |source| MechanismError::System {
        mechanism: Mechanism::MmapCopy,
        call,
        source,
        suggestion: "If memory or mappings are short, see the memory limit and vm.max_map_count; else use memcpy.",
    }
}

impl MmapCopyOrigin {
    pub(crate) fn new(span: PageRange) -> Result<Self, MechanismError> {
        let unsupported = |reason: String| MechanismError::Unsupported {
            mechanism: Mechanism::MmapCopy,
            reason,
            suggestion: "Allow memfd_create and mount procfs, or use memcpy.",
        };
        map::memory_file("quire-probe", 0).map_err(|error| unsupported(format!("memfd_create: {error}")))?;
        Pagemap::open(None).map_err(|error| unsupported(format!("/proc/self/pagemap: {error}")))?;
        let source = Source { span, content: Mutex::new(None), files: Arc::default() };
        Ok(Self { source, cuts: AtomicU64::new(0), last_cut_ns: AtomicU64::new(0), copied_pages: AtomicU64::new(0) })
    }
}

/// Pages of the source, as a first look at the page map finds them.
#[derive(Default)]
struct WrittenPages {
    /// One bit a page: it has content of its own that no file of ours has.
    bits: Vec<u64>,
    count: usize,
}

impl WrittenPages {
    fn find(span: &PageRange) -> io::Result<Self> {
        let map = Pagemap::open(None)?;
        let mut written = Self { bits: vec![0; span.pages().div_ceil(64)], count: 0 };
        let mut words = vec![0; MAP_WORDS.min(span.pages())];
        for start in (0..span.pages()).step_by(MAP_WORDS) {
            let words = &mut words[..(span.pages() - start).min(MAP_WORDS)];
            note_work(words.len());
            if map.read_words(span.base() as usize + start * PAGE_SIZE, words)? < words.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (page, entry) in (start..).zip(words.iter().map(|&word| PagemapEntry::from_word(word))) {
                if (entry.present || entry.swapped) && !entry.file_or_shared {
                    written.bits[page / 64] |= 1 << (page % 64);
                    written.count += 1;
                }
            }
        }
        Ok(written)
    }

    /// Adds what the page map of a mapped file does not tell: pages that the file has and that were not written since. An earlier mechanism
    /// may have left such a mapping. Reads them all, and leaves out those that are zero.
    fn add_pages_of_files(&mut self, span: &PageRange) -> io::Result<()> {
        let (base, end) = (span.base() as usize, span.base() as usize + span.len());
        let mut files: Vec<Range<usize>> = Vec::new();
        proc_maps::each(&mut vec![0; proc_maps::BUFFER_BYTES], |mapping| {
            let part = mapping.start.max(base)..mapping.end.min(end);
            if !mapping.anonymous && mapping.readable && !part.is_empty() {
                files.push(part.start - base..part.end - base);
            }
            mapping.start < end
        })?;
        let mut bytes = [0; PAGE_SIZE];
        for offset in files.into_iter().flat_map(|part| part.step_by(PAGE_SIZE)) {
            // SAFETY: inside the span, which is mapped; a thread that writes it meanwhile is what the racy copy is for.
            unsafe { racy::copy(span.at(offset), bytes.as_mut_ptr(), PAGE_SIZE) };
            let (page, bit) = (offset / PAGE_SIZE, 1 << (offset / PAGE_SIZE % 64));
            if bytes != [0; PAGE_SIZE] && self.bits[page / 64] & bit == 0 {
                self.bits[page / 64] |= bit;
                self.count += 1;
            }
        }
        Ok(())
    }
}

/// Tests count the words of the page map and of bits that a cut looks at.
#[cfg(not(test))]
fn note_work(_words: usize) {}

#[cfg(test)]
fn note_work(words: usize) {
    tests::WORK.set(tests::WORK.get() + words);
}

/// Runs of pages whose bit is set.
fn runs(bits: &[u64]) -> impl Iterator<Item = Range<usize>> {
    let has = |page: usize| bits.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1);
    let end = bits.len() * 64;
    let mut page = 0;
    std::iter::from_fn(move || {
        while page < end && !has(page) {
            // Holes are long: whole words of them are passed at once.
            page = if bits[page / 64] == 0 { (page / 64 + 1) * 64 } else { page + 1 };
        }
        let start = page;
        while page < end && has(page) {
            page += 1;
        }
        (start < page).then_some(start..page)
    })
}

fn ones(bits: &[u64]) -> usize {
    note_work(bits.len());
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

impl Source {
    /// Makes sure that all content is in a file that is mapped privately here, and returns it and how many pages were
    /// copied for that. No thread writes the range meanwhile.
    fn settle_in_file(&self) -> Result<(Arc<FileContent>, usize), MechanismError> {
        let mut current = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = WrittenPages::find(&self.span).map_err(failed("reading /proc/self/pagemap"))?;
        if let Some(content) = current.as_ref().filter(|_| written.count == 0) {
            return Ok((Arc::clone(content), 0));
        }
        match current.as_ref() {
            Some(content) => written.bits.iter_mut().zip(&content.filled).for_each(|(bits, filled)| *bits |= filled),
            None => written.add_pages_of_files(&self.span).map_err(failed("reading /proc/self/maps"))?,
        }
        let content = Arc::new(self.write_file(written.bits)?);
        map_over(&content.file, &self.span)?;
        *current = Some(Arc::clone(&content));
        self.files.note_peak(&content);
        let copied = content.bytes / PAGE_SIZE;
        Ok((content, copied))
    }

    fn write_file(&self, filled: Vec<u64>) -> Result<FileContent, MechanismError> {
        let file = map::memory_file("quire-mmapcopy", self.span.len() as u64).map_err(failed("memfd_create"))?;
        for run in runs(&filled) {
            let (start, len) = (run.start * PAGE_SIZE, run.len() * PAGE_SIZE);
            // SAFETY: the run lies inside the span, which is mapped, and writers hold still during a cut. The slice goes
            // to a system call only, which copies it byte by byte.
            let bytes = unsafe { std::slice::from_raw_parts(self.span.at(start), len) };
            file.write_all_at(bytes, start as u64).map_err(failed("writing a file in memory"))?;
        }
        Ok(FileContent::new(file, filled, &self.files))
    }

    fn copy(&self) -> Result<(MmapCopyView, usize), MechanismError> {
        let memory = Reservation::new(self.span.len())?;
        // SAFETY: new memory, aligned, and unmapped only after the span (fields are dropped in order).
        let span = unsafe { PageRange::borrow(memory.base(), self.span.len()) }?;
        let (content, copied) = self.settle_in_file()?;
        map_over(&content.file, &span)?;
        let source = Source { span, content: Mutex::new(Some(content)), files: Arc::clone(&self.files) };
        Ok((MmapCopyView { source, memory }, copied))
    }
}

fn map_over(file: &File, span: &PageRange) -> Result<(), MechanismError> {
    // SAFETY: the span is this mechanism's to remap (`PageRange::borrow` demands so, or it is a copy's own), no reference into it
    // exists, and the file holds what is there now, so a thread that reads it meanwhile sees no change.
    unsafe { map::map_file_over(span.base(), span.len(), file, 0, MapSharing::Private, Protection::ReadWrite) }
        .map_err(failed("mmap"))
}

impl FileSizes {
    /// Remembers the most that was held, once `newest` stands for the origin's own memory.
    fn note_peak(&self, newest: &FileContent) {
        let held = self.bytes().saturating_sub(newest.bytes);
        self.held_peak.fetch_max(held as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl FileContent {
    fn new(file: File, filled: Vec<u64>, files: &Arc<FileSizes>) -> Self {
        let bytes = ones(&filled) * PAGE_SIZE;
        files.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { file, filled, bytes, files: Arc::clone(files) }
    }
}

impl Drop for FileContent {
    fn drop(&mut self) {
        self.files.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Origin for MmapCopyOrigin {
    fn mechanism(&self) -> Mechanism {
        Mechanism::MmapCopy
    }

    fn base(&self) -> *mut u8 {
        self.source.span.base()
    }

    fn len(&self) -> usize {
        self.source.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        let start = Instant::now();
        let (copy, copied) = self.source.copy()?;
        self.copied_pages.fetch_add(copied as u64, Ordering::Relaxed);
        self.cuts.fetch_add(1, Ordering::Relaxed);
        self.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(Arc::new(copy))
    }

    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
    }

    fn settle(&self) {}

    /// Reads the page map of the whole range: each page that the origin has written keeps a second one in its file.
    fn stats(&self) -> OriginStats {
        let content = self.source.content.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let held = content.map_or(0, |content| {
            let written = WrittenPages::find(&self.source.span).map_or(0, |written| written.count);
            self.source.files.bytes().saturating_sub(content.bytes) + written * PAGE_SIZE
        }) as u64;
        OriginStats {
            cuts: self.cuts.load(Ordering::Relaxed),
            last_cut_ns: self.last_cut_ns.load(Ordering::Relaxed),
            copied_pages: self.copied_pages.load(Ordering::Relaxed),
            held_bytes_now: held,
            held_bytes_peak: self.source.files.held_peak.fetch_max(held, Ordering::Relaxed).max(held),
            ..OriginStats::default()
        }
    }
}

impl View for MmapCopyView {
    fn len(&self) -> usize {
        self.source.span.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len())?;
        // SAFETY: inside the copy (checked), which lives as long as `self`; `to` is borrowed mutably. Another thread may be
        // writing the copy through `as_ptr`, hence the racy copy.
        unsafe { racy::copy(self.memory.base().wrapping_add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        Some(self.memory.base())
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        Ok(Arc::new(self.source.copy()?.0))
    }

    /// Pages of its own, and the file if no other memory shows it.
    fn held_bytes(&self) -> usize {
        let content = self.source.content.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = WrittenPages::find(&self.source.span).map_or(0, |written| written.count) * PAGE_SIZE;
        // One reference is the view's, one this function's.
        own + content.filter(|content| Arc::strong_count(content) <= 2).map_or(0, |content| content.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(pages: usize) -> (MmapCopyOrigin, *mut u8) {
        let span = PageRange::allocate(pages * PAGE_SIZE).unwrap();
        let base = span.base();
        (MmapCopyOrigin::new(span).unwrap(), base)
    }

    #[test]
    fn copies_of_an_unwritten_source_share_one_file() {
        let (origin, base) = origin(64);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(1, 10 * PAGE_SIZE) };
        let _first = origin.cut().unwrap();
        let copied = origin.stats().copied_pages;
        assert!(copied >= 10);
        let second = origin.cut().unwrap();
        let _third = second.cut().unwrap();
        assert_eq!((origin.stats().copied_pages, origin.stats().held_bytes_now), (copied, 0));
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write(2) };
        assert_eq!(origin.stats().held_bytes_now, PAGE_SIZE as u64);
        let _fourth = origin.cut().unwrap();
        assert_eq!(origin.stats().copied_pages, 2 * copied);
        assert_eq!(origin.stats().held_bytes_now, copied * PAGE_SIZE as u64);
        drop((_first, second, _third));
        assert_eq!(origin.stats().held_bytes_now, 0);
    }

    thread_local! {
        /// Words that this thread has looked at.
        pub(super) static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn a_cut_looks_at_as_much_however_many_snapshots_are_kept() {
        let (origin, base) = origin(64);
        // SAFETY: the span is the origin's, and this test is its only writer.
        unsafe { base.write_bytes(1, 10 * PAGE_SIZE) };
        let work_of_cut = || {
            // SAFETY: the span is the origin's, and this test is its only writer: each snapshot has a file of its own.
            unsafe { base.write(base.read().wrapping_add(1)) };
            WORK.set(0);
            (origin.cut().unwrap(), WORK.get())
        };
        let mut kept = vec![work_of_cut().0];
        let (view, first) = work_of_cut();
        kept.push(view);
        kept.extend((0..300).map(|_| work_of_cut().0));
        let (_view, last) = work_of_cut();
        assert!(first > 64 && first == last, "{first} words with one snapshot, {last} with {}", kept.len());
    }

    #[test]
    fn untouched_pages_take_no_memory_in_the_file() {
        let pages = 4096;
        let (origin, base) = origin(pages);
        map::advise(base, pages * PAGE_SIZE, map::MapAdvice::NoHuge).unwrap();
        for page in [0, 63, 64, 65, 1000, pages - 1] {
            // SAFETY: inside the span, which is the origin's, and this test is its only writer.
            unsafe { base.add(page * PAGE_SIZE).write((page % 200) as u8 + 1) };
        }
        let view = origin.cut().unwrap();
        assert_eq!(origin.stats().copied_pages, 6);
        let mut byte = [0];
        for (page, value) in [(0, 1), (1, 0), (63, 64), (64, 65), (66, 0), (pages - 1, 96)] {
            view.read(page * PAGE_SIZE, &mut byte).unwrap();
            assert_eq!(byte, [value], "page {page}");
        }
    }

    #[test]
    fn runs_are_found_across_words() {
        let mut bits = vec![0u64; 4];
        bits[0] = 1 << 3 | 1 << 63;
        bits[1] = 1;
        bits[3] = u64::MAX;
        assert_eq!(runs(&bits).collect::<Vec<_>>(), [3..4, 63..65, 192..256]);
        assert_eq!(ones(&bits), 67);
        assert_eq!(runs(&[]).count(), 0);
    }
}
