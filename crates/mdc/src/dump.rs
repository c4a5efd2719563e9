//! The dump: memory is copied a unit at a time in the order of addresses, written, and given back.
//!
//! A block is copied while the kernel writes the one before ([`WriteQueue`]), and that one is given back when all of it is written.
//!
//! Relies on `/proc/self/pagemap` for which pages have contents (without it all have), and on this process having one thread where
//! memory is given back. Signals wait meanwhile: what a handler wrote to memory that is already copied would be lost.
//!
//! Pages are copied to a buffer before they are written. A direct write straight from pages that are shared after a fork would make
//! the kernel unshare each of them first, which costs a page of memory and more than the copy.

use std::ops::Range;

use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::thread::BlockedSignals;
use quire_sys::write_queue::WriteQueue;

use crate::dump_table::DumpTable;
use crate::error::CheckpointError;
use crate::format::{PAGE_BYTES, UNIT_BYTES, UNIT_PAGES, UnitEntry, checksum};
use crate::target::DumpTarget;

/// Memory is given back in pieces of huge pages: a huge page of which the child still maps a part is copied by the parent as if
/// the child mapped all of it.
const BLOCK_BYTES: usize = HUGE_PAGE_SIZE;
const BLOCK_PAGES: usize = BLOCK_BYTES / PAGE_BYTES;
const BLOCK_UNITS: usize = BLOCK_BYTES / UNIT_BYTES;
/// Buffers of the queue: one block is written while the next one is copied.
pub(crate) const BUFFERS: usize = 2 * BLOCK_UNITS;
/// Signals wait for so many bytes to be copied, written and given back: some tens of milliseconds.
const STRETCH_BYTES: usize = 64 << 20;
/// Shorter gaps between pages with contents are written as zeros: one larger write is cheaper than two.
const MOST_GAP_PAGES: usize = 8;
/// Most pieces of memory that are exchanged for pieces of the file, far below the kernel's usual 65,530 mappings of a process.
const MOST_PIECES: usize = 16_000;
/// Most ranges that must stay.
pub(crate) const MOST_KEPT: usize = 12;

/// Ranges of addresses whose memory must not be given back: what the dump itself works with.
#[derive(Clone, Copy, Default)]
pub(crate) struct ExcludedRanges {
    ranges: [(usize, usize); MOST_KEPT],
    count: usize,
}

impl ExcludedRanges {
    /// Adds a range, made larger to whole pages.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        let whole = (range.start / PAGE_BYTES * PAGE_BYTES, range.end.next_multiple_of(PAGE_BYTES));
        // More are added than there is room for only by a change of this crate; its tests would find it.
        assert!(self.count < MOST_KEPT, "too many ranges are kept");
        self.ranges[self.count] = whole;
        self.count += 1;
    }

    /// The first part of `range` that may be given back.
    fn first_free(&self, range: &Range<usize>) -> Range<usize> {
        let kept = &self.ranges[..self.count];
        let mut start = range.start;
        // Each turn passes one range, so it ends.
        while let Some(&(_, end)) = kept.iter().find(|&&(from, end)| from <= start && start < end) {
            start = end;
        }
        let start = start.min(range.end);
        let end = kept.iter().map(|&(from, _)| from).filter(|&from| from > start).fold(range.end, usize::min);
        start..end
    }
}

/// A dump that is under way.
pub(crate) struct Dump<'a, T> {
    pub(crate) target: &'a mut T,
    pub(crate) table: &'a mut DumpTable,
    /// Where unit 0 goes.
    pub(crate) offset: u64,
    /// Units on their way to the file.
    pub(crate) queue: WriteQueue,
    pub(crate) pagemap: Option<Pagemap>,
    /// `None`: all memory stays.
    pub(crate) kept: Option<ExcludedRanges>,
    pub(crate) pages: u64,
    pub(crate) released: u64,
    pub(crate) pieces: MappingCounter,
}

/// Counts the pieces that the kernel needs a mapping of their own for: it joins neighbours.
#[derive(Clone, Copy, Default)]
pub(crate) struct MappingCounter {
    count: usize,
    /// Where the last one ended, in memory and in the file.
    end: (usize, u64),
}

impl MappingCounter {
    /// Whether a piece that begins there may be made.
    fn allow(&self, at: usize, offset: u64) -> bool {
        self.count < MOST_PIECES || self.end == (at, offset)
    }

    fn add(&mut self, at: usize, offset: u64, len: usize) {
        self.count += usize::from(self.end != (at, offset));
        self.end = (at + len, offset + len as u64);
    }
}

/// Units that are in the file, or on their way, and still in memory: neighbours in memory and in the file.
#[derive(Clone)]
struct Copied {
    memory: Range<usize>,
    offset: u64,
}

/// What is copied of a block.
#[derive(Default)]
struct Block {
    copied: [Option<Copied>; BLOCK_UNITS],
    count: usize,
    units: usize,
}

impl Block {
    fn add(&mut self, memory: Range<usize>, offset: u64) {
        self.units += 1;
        if let Some(Some(last)) = self.count.checked_sub(1).map(|last| &mut self.copied[last])
            && last.memory.end == memory.start
            && last.offset + last.memory.len() as u64 == offset
        {
            last.memory.end = memory.end;
            return;
        }
        self.copied[self.count] = Some(Copied { memory, offset });
        self.count += 1;
    }
}

impl<T: DumpTarget> Dump<'_, T> {
    /// Dumps an area.
    ///
    /// # Safety
    /// - The area is readable.
    /// - If memory is given back: the area is private anonymous memory that may be written and not executed, this process has one
    ///   thread, and `kept` has all of the area that changes during the call.
    pub(crate) unsafe fn dump(&mut self, area: &Range<usize>) -> Result<(), CheckpointError> {
        let mut at = area.start;
        while at < area.end {
            let end = ((at / STRETCH_BYTES + 1) * STRETCH_BYTES).min(area.end);
            // SAFETY: `dump_stretch` demands of the stretch what `dump` demands of its area, of which the stretch is a part.
            unsafe { self.dump_stretch(&(at..end)) }?;
            at = end;
        }
        Ok(())
    }

    /// Dumps a part of an area; all of it is written at the end.
    ///
    /// # Safety
    /// As [`Dump::dump`].
    unsafe fn dump_stretch(&mut self, stretch: &Range<usize>) -> Result<(), CheckpointError> {
        // What a handler of a signal wrote between a page's copy and its exchange would be lost.
        let _signals = self.kept.is_some().then(BlockedSignals::new);
        let (mut at, mut before) = (stretch.start, Block::default());
        while at < stretch.end {
            let end = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(stretch.end);
            // SAFETY: `copy_block` demands readable memory: the block is a part of the stretch, and `dump` demands a readable area.
            let block = unsafe { self.copy_block(&(at..end)) }?;
            self.wait_for_all_but(block.units)?;
            // SAFETY: `give_back` demands what `dump` demands of its caller, and that the file has the units: of those that were copied only
            // the later block's are still on their way.
            unsafe { self.give_back(before) };
            (at, before) = (end, block);
        }
        self.wait_for_all_but(0)?;
        // SAFETY: `give_back` demands what `dump` demands of its caller, and that the file has the units: the wait before this line has
        // left none on its way.
        unsafe { self.give_back(before) };
        Ok(())
    }

    /// Copies the pages of a block that have contents, and begins to write them.
    ///
    /// # Safety
    /// The block is readable. It is at most [`BLOCK_BYTES`] long.
    unsafe fn copy_block(&mut self, block: &Range<usize>) -> Result<Block, CheckpointError> {
        let (mut words, mut copied) = ([0; BLOCK_PAGES], Block::default());
        let words = &mut words[..block.len() / PAGE_BYTES];
        let read = self.pagemap.as_ref().and_then(|map| map.read_words(block.start, words).ok());
        if read != Some(words.len()) {
            words.fill(u64::MAX >> 1 & !(1 << 58));
        }
        if !words.iter().any(|&word| PagemapEntry::has_contents(word)) {
            return Ok(copied);
        }
        let mut at = block.start;
        while at < block.end {
            let end = ((at / UNIT_BYTES + 1) * UNIT_BYTES).min(block.end);
            let first = (at - block.start) / PAGE_BYTES;
            let words = &words[first..first + (end - at) / PAGE_BYTES];
            let bitmap =
                words.iter().rev().fold(0, |bits, &word| bits << 1 | u64::from(PagemapEntry::has_contents(word)));
            if bitmap != 0 {
                let offset = self.offset + self.table.units() * UNIT_BYTES as u64;
                // SAFETY: a part of the block, of whose pages these have contents.
                unsafe { self.write_unit(&(at..end), bitmap, offset) }?;
                copied.add(at..end, offset);
            }
            at = end;
        }
        Ok(copied)
    }

    /// # Safety
    /// The pages of `memory` in the bitmap are readable.
    unsafe fn write_unit(&mut self, memory: &Range<usize>, bitmap: u64, offset: u64) -> Result<(), CheckpointError> {
        let Self { target, queue, .. } = self;
        let buffer = queue.next_buffer(*target).map_err(CheckpointError::system("writing the dump"))?;
        let (bytes, mut kept) = (&mut buffer[..memory.len()], 0);
        for (page, to) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
            if bitmap >> page & 1 == 0 {
                to.fill(0);
                continue;
            }
            let from = (memory.start + page * PAGE_BYTES) as *const u8;
            // SAFETY: a readable page; the buffer is memory of the dump's own, of which no object is a part.
            unsafe { copy_page(from, to) };
            // A hole of the file reads as zero, too; a page that was only read is a page of zeros.
            kept |= u64::from(to.iter().any(|&byte| byte != 0)) << page;
        }
        let bitmap = kept;
        let pages = memory.len() / PAGE_BYTES;
        let mut from = 0;
        while let Some(run) = next_run(bitmap, from, pages) {
            let place = offset + (run.start * PAGE_BYTES) as u64;
            let begun = queue.begin_write(run.start * PAGE_BYTES..run.end * PAGE_BYTES, place, *target);
            begun.map_err(CheckpointError::system("writing the dump"))?;
            from = run.end;
        }
        let start = memory.start as u64;
        self.table.add(&UnitEntry {
            start: start.into(),
            bitmap: bitmap.into(),
            checksum: checksum(&queue.buffer()[..memory.len()], start).into(),
            pages: (pages as u32).into(),
            reserved: 0.into(),
        });
        self.pages += u64::from(bitmap.count_ones());
        Ok(())
    }

    /// Waits until all units but the `newest` last ones are in the file.
    fn wait_for_all_but(&mut self, newest: usize) -> Result<(), CheckpointError> {
        self.queue.wait(newest, self.target).map_err(CheckpointError::system("writing the dump"))
    }

    /// Exchanges memory for what was written of it.
    ///
    /// # Safety
    /// As [`Dump::dump`], and the file has the bytes of the memory.
    unsafe fn give_back(&mut self, block: Block) {
        let Some(kept) = self.kept else { return };
        for Copied { memory, offset } in block.copied.into_iter().flatten() {
            let mut rest = memory.clone();
            while !rest.is_empty() {
                let part = kept.first_free(&rest);
                let offset = offset + (part.start - memory.start) as u64;
                if !part.is_empty() && self.pieces.allow(part.start, offset) {
                    // SAFETY: private anonymous memory with these bytes, of which no more is kept; one thread runs, without signals.
                    let given = unsafe { self.target.replace_memory(part.start as *mut u8, part.len(), offset) };
                    // Where the system refuses, the memory stays: the checkpoint is as good.
                    if given.is_ok() {
                        self.released += part.len() as u64;
                        self.pieces.add(part.start, offset, part.len());
                    }
                }
                rest.start = part.end;
            }
        }
    }
}

/// Copies a page, word by word and not by the C library: in a program with the address sanitizer its `memcpy` would end the program at
/// the bytes between objects.
///
/// # Safety
/// `from` is the address of a readable page; `to` is a page of other memory.
unsafe fn copy_page(from: *const u8, to: &mut [u8]) {
    for (at, to) in to.chunks_exact_mut(size_of::<u64>()).enumerate() {
        // SAFETY: a word of the page, which is aligned.
        let word = unsafe { from.cast::<u64>().add(at).read_volatile() };
        to.copy_from_slice(&word.to_ne_bytes());
    }
}

/// The next pages to be written at once: they begin and end with contents.
fn next_run(bitmap: u64, from: usize, pages: usize) -> Option<Range<usize>> {
    let has = |page: usize| bitmap >> page & 1 == 1;
    let start = (from..pages.min(UNIT_PAGES)).find(|&page| has(page))?;
    let mut end = start + 1;
    while let Some(next) = (end..pages.min(end + MOST_GAP_PAGES + 1)).find(|&page| has(page)) {
        end = next + 1;
    }
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_are_written_and_long_ones_are_not() {
        assert_eq!(next_run(0, 0, 64), None);
        assert_eq!(next_run(u64::MAX, 0, 64), Some(0..64));
        assert_eq!(next_run(1 << 63 | 1, 0, 64), Some(0..1));
        assert_eq!(next_run(1 << 63 | 1, 1, 64), Some(63..64));
        assert_eq!(next_run(1 << 9 | 1, 0, 64), Some(0..10));
        assert_eq!(next_run(1 << 10 | 1, 0, 64), Some(0..1));
        assert_eq!(next_run(0b110, 0, 3), Some(1..3));
    }

    #[test]
    fn what_is_kept_is_cut_out_of_what_is_given_back() {
        let mut kept = ExcludedRanges::default();
        kept.add(0x5001..0x6002);
        kept.add(0x7000..0x8000);
        kept.add(0x1000..0x3000);
        assert_eq!(kept.first_free(&(0x1000..0x9000)), 0x3000..0x5000);
        assert_eq!(kept.first_free(&(0x5000..0x9000)), 0x8000..0x9000);
        assert_eq!(kept.first_free(&(0x8000..0x9000)), 0x8000..0x9000);
        assert!(kept.first_free(&(0x2000..0x3000)).is_empty());
    }
}
