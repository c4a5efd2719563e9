//! The memory of the second tier: segments that the kernel may take back once they are full.
//!
//! Relies on each shard having a range of its own and on `&mut` for every access, so that no two threads touch a byte at a time. The
//! kernel is the exception: it turns pages of a full segment into zeros whenever it likes, which is why a reader copies bytes
//! out first and checks the copy.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, PAGE_SIZE, Reservation};
use quire_sys::pagemap::{Pagemap, PagemapEntry};

/// Pages that the pagemap is asked for at a time.
const ASKED_PAGES: usize = 512;

/// The segments of one shard.
#[derive(Debug)]
pub(super) struct ShardMemory {
    memory: Arc<Reservation>,
    range: Range<usize>,
    segment_bytes: usize,
    /// The log has been told that the kernel doesn't take memory back.
    is_told: bool,
}

impl ShardMemory {
    /// The memory of `shards` shards with `segments` segments each; `None` if the kernel wouldn't take it back. `segment_bytes` is a
    /// multiple of the system's page.
    pub(super) fn split(shards: usize, segments: usize, segment_bytes: usize) -> Result<Option<Vec<Self>>, MemError> {
        let shard_bytes = segments * segment_bytes;
        let memory = Arc::new(Reservation::new(shards * shard_bytes)?);
        // Asked before it is committed: where all memory to come is locked (`mlockall`), committing it takes every page at once.
        if let Err(error) = memory.free_lazily(0..memory.len()) {
            tracing::warn!(%error, "there is no second tier: its memory can't be given to the kernel");
            return Ok(None);
        }
        memory.commit(0..memory.len())?;
        // Pages are taken back one by one, and a huge page would go as a whole. Where there are no huge pages it fails.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        let part = |shard: usize| Self {
            memory: Arc::clone(&memory),
            range: shard * shard_bytes..(shard + 1) * shard_bytes,
            segment_bytes,
            is_told: false,
        };
        Ok(Some((0..shards).map(part).collect()))
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Where `len` bytes at `at` of the shard are.
    ///
    /// # Panics
    /// If they don't lie inside.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.range.len()), "outside the shard's memory");
        self.memory.base().wrapping_add(self.range.start + at)
    }

    /// Puts `bytes` at `at`. A page that is stored to is not taken back until its segment is freed again.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: `place` has checked that the bytes lie inside this shard's part of a committed reservation, which `Arc` keeps. No other
        // struct has that part, and `&mut self` keeps other threads out; `bytes` is memory of the caller's, not of the tier.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Copies the bytes at `at`, or zeros for pages that were taken back; the two can be mixed.
    pub(super) fn read(&mut self, at: usize, into: &mut [u8]) {
        let place = self.place(at, into.len());
        // SAFETY: `place` has checked that the bytes lie inside this shard's part of a committed reservation, which `Arc` keeps. No other
        // struct has that part, and `&mut self` keeps other threads out; `into` is memory of the caller's, not of the tier. The kernel may
        // zero a page in the middle of the copy: that changes bytes, to which no reference exists, and leaves the memory mapped.
        unsafe { std::ptr::copy_nonoverlapping(place, into.as_mut_ptr(), into.len()) };
    }

    fn segment(&self, number: usize) -> Range<usize> {
        let start = self.range.start + number * self.segment_bytes;
        start..start + self.segment_bytes
    }

    /// The kernel may take the segment's pages from now on.
    pub(super) fn free_lazily(&mut self, segment: usize) -> Result<(), MemError> {
        self.memory.free_lazily(self.segment(segment))
    }

    /// Gives the segment's pages back now; whether the kernel has taken them. Where it has not, they hold what they held.
    pub(super) fn release(&mut self, segment: usize) -> bool {
        self.release_range(self.segment(segment))
    }

    /// Gives all of the shard's pages back now, those of segments that were never filled included; whether the kernel has taken them.
    pub(super) fn release_all(&mut self) -> bool {
        self.release_range(self.range.clone())
    }

    fn release_range(&mut self, range: Range<usize>) -> bool {
        let Err(error) = self.memory.release(range) else { return true };
        // It is tried again with every look.
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(%error, "memory of the second tier stays taken: is all memory locked (mlockall)?");
        }
        false
    }

    /// Gives back the pages of the shard that `chosen` names, as the kernel does.
    pub(super) fn take_back(&mut self, mut chosen: impl FnMut(usize) -> bool) -> usize {
        let mut count = 0;
        for page in 0..self.range.len() / PAGE_SIZE {
            if chosen(page) {
                let start = self.range.start + page * PAGE_SIZE;
                count += usize::from(self.memory.release(start..start + PAGE_SIZE).is_ok());
            }
        }
        count
    }

    /// What to ask for the bytes that are in memory, without holding the shard.
    pub(super) fn residency(&self) -> ShardResidency {
        ShardResidency { memory: Arc::clone(&self.memory), range: self.range.clone() }
    }
}

/// Where a shard's memory lies.
#[derive(Debug)]
pub(super) struct ShardResidency {
    memory: Arc<Reservation>,
    range: Range<usize>,
}

impl ShardResidency {
    /// Bytes that are in memory.
    pub(super) fn resident_bytes(&self) -> io::Result<usize> {
        let pagemap = Pagemap::open(None)?;
        let mut words = [0; ASKED_PAGES];
        let mut pages = 0;
        for start in self.range.clone().step_by(ASKED_PAGES * PAGE_SIZE) {
            let asked = ((self.range.end - start) / PAGE_SIZE).min(ASKED_PAGES);
            let address = self.memory.base().addr() + start;
            let got = pagemap.read_words(address, &mut words[..asked])?;
            pages += words[..got].iter().filter(|&&word| PagemapEntry::has_contents(word)).count();
        }
        Ok(pages * PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_apart_and_what_was_taken_back_reads_as_zero() {
        let mut shards = ShardMemory::split(2, 3, 4 * PAGE_SIZE).unwrap().unwrap();
        shards[0].write(5, &[7; 100]);
        shards[1].write(5, &[9; 100]);
        shards[0].free_lazily(0).unwrap();
        assert_eq!(shards[0].take_back(|page| page == 0), 1);
        let mut found = [1; 100];
        shards[0].read(5, &mut found);
        assert_eq!(found, [0; 100]);
        shards[1].read(5, &mut found);
        assert_eq!(found, [9; 100]);
        assert_eq!(shards[1].residency().resident_bytes().unwrap(), PAGE_SIZE);
        assert!(shards[1].release(0));
        assert_eq!(shards[1].residency().resident_bytes().unwrap(), 0);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn bytes_of_another_shard_are_out_of_reach() {
        let mut shards = ShardMemory::split(2, 1, PAGE_SIZE).unwrap().unwrap();
        shards[0].write(PAGE_SIZE - 1, &[0; 2]);
    }
}
