//! The segments of a shard: filled one after the other, emptied in the order in which they were filled, and filled again in their holes.
//!
//! Relies on the shard for what lies in a segment: the shard says which bytes are dead, and its entries hold good only while their segment's
//! generation is the one that they were entered with, so emptying a segment changes one number and visits no entry. A segment that is filled
//! again is the newest, with what it holds: that has another turn, which costs less than moving it.

use std::collections::VecDeque;
use std::ops::Range;

use quire_sys::mem::MemError;

use super::holes::{GRANULE_BYTES, SegmentHoles};
use super::index::next_generation;
use super::memory::{ShardMemory, ShardResidency};

/// Bytes that a ring's granules can reach.
pub(super) const MOST_RING_BYTES: usize = GRANULE_BYTES << 32;
/// A segment is filled again if one part in so many of it is holes that fit: then freeing it anew is little beside the pages that it takes.
const HOLES_PART: usize = 4;
/// Segments among which the one with the most holes is looked for.
const LOOKED_AT: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Number of the filling; it tells which of two segments is older.
    filling: u64,
    /// Segments that had been emptied for others when its last entries were forgotten.
    forgotten_at: u64,
    /// Bytes of its second copies.
    twice_bytes: u32,
    generation: u16,
    /// Number of the filling before, if bytes of it are left.
    filled_before: u64,
    /// Where something was put since then: a bit for each of `PARTS` parts.
    refilled: [u64; PARTS / 64],
}

/// Parts of a segment of which it is known whether they were filled with the last filling.
const PARTS: usize = 256;

/// The segment that is being filled, and what is left of the hole that is filled.
#[derive(Clone, Debug)]
struct OpenSegment {
    number: usize,
    gap: Range<usize>,
}

/// The segments of a shard. Places are told in bytes from the shard's first.
#[derive(Debug)]
pub(super) struct SegmentRing {
    memory: ShardMemory,
    segments: Box<[Segment]>,
    /// Full segments, the oldest first.
    filled: VecDeque<usize>,
    /// Segments without memory.
    free: Vec<usize>,
    open: Option<OpenSegment>,
    holes: SegmentHoles,
    /// Where the next look for holes begins.
    hand: usize,
    fillings: u64,
    /// Segments that were emptied for others, and as many as there are, so that there is a time before the first.
    emptied: u64,
    /// Segments that may have memory.
    limit: usize,
    /// The ring is closed, and the kernel has not taken its memory, of whatever segment.
    is_lost: bool,
    /// Bytes of all second copies.
    twice_bytes: usize,
}

impl SegmentRing {
    /// `segments` segments over `memory`, which has as many.
    pub(super) fn new(memory: ShardMemory, segments: usize) -> Self {
        let new = Segment {
            filling: 0,
            forgotten_at: 0,
            twice_bytes: 0,
            generation: 1,
            filled_before: 0,
            refilled: [0; PARTS / 64],
        };
        let segment_bytes = memory.segment_bytes();
        Self {
            memory,
            segments: vec![new; segments].into(),
            filled: VecDeque::with_capacity(segments),
            free: (0..segments).rev().collect(),
            open: None,
            holes: SegmentHoles::new(segments, segment_bytes),
            hand: 0,
            fillings: 0,
            emptied: segments as u64,
            limit: segments,
            is_lost: false,
            twice_bytes: 0,
        }
    }

    fn segment_of(&self, at: usize) -> usize {
        at / self.memory.segment_bytes()
    }

    /// All segments.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Full segments.
    pub(super) fn filled(&self) -> usize {
        self.filled.len()
    }

    /// Bytes that may have memory.
    pub(super) fn limit_bytes(&self) -> usize {
        self.limit * self.memory.segment_bytes()
    }

    /// The generation of what is put at `at` now.
    pub(super) fn generation(&self, at: usize) -> u16 {
        self.segments[self.segment_of(at)].generation
    }

    /// Fillings since that of the segment of `at`.
    pub(super) fn age(&self, at: usize) -> u64 {
        self.fillings - self.segments[self.segment_of(at)].filling
    }

    /// Fillings since that with which the bytes at `at` came: in a segment whose holes were filled again others lie there for longer.
    pub(super) fn age_of_bytes(&self, at: usize) -> u64 {
        let (segment, [word, bit]) = self.part_of(at);
        let segment = &self.segments[segment];
        let is_refilled = segment.refilled[word] >> bit & 1 == 1;
        self.fillings - if is_refilled { segment.filling } else { segment.filled_before }
    }

    /// The segment of `at`, and the word and the bit of its part.
    fn part_of(&self, at: usize) -> (usize, [usize; 2]) {
        let segment = self.segment_of(at);
        let part = (at - segment * self.memory.segment_bytes()) * PARTS / self.memory.segment_bytes();
        (segment, [part / 64, part % 64])
    }

    /// Whether what was put at `at` in `generation` would be there if the ring had fewer than `more` segments more.
    pub(super) fn would_be_in(&self, at: usize, generation: u16, more: u64) -> bool {
        let segment = self.segments[self.segment_of(at)];
        next_generation(generation) == segment.generation && self.emptied - segment.forgotten_at < more
    }

    /// Puts `bytes`, of a page, into the ring; where, or nothing if there is no room.
    ///
    /// # Errors
    /// The kernel doesn't take the segment for memory that it may have back. The ring is empty then, and closed.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<Option<usize>, MemError> {
        let Some(at) = self.room(bytes.len().next_multiple_of(GRANULE_BYTES))? else { return Ok(None) };
        self.memory.write(at, bytes);
        let (segment, [word, bit]) = self.part_of(at);
        self.segments[segment].refilled[word] |= 1 << bit;
        Ok(Some(at))
    }

    /// Copies the bytes at `at`.
    pub(super) fn read(&mut self, at: usize, into: &mut [u8]) {
        self.memory.read(at, into);
    }

    /// A place for `wanted` bytes.
    fn room(&mut self, wanted: usize) -> Result<Option<usize>, MemError> {
        if let Some(at) = self.room_in_open(wanted) {
            return Ok(Some(at));
        }
        self.close_open()?;
        self.open = self.next_to_fill(wanted);
        Ok(self.room_in_open(wanted))
    }

    fn room_in_open(&mut self, wanted: usize) -> Option<usize> {
        let open = self.open.as_mut()?;
        if open.gap.len() < wanted {
            let hole = self.holes.take_fitting(open.number, wanted)?;
            let rest = std::mem::replace(&mut open.gap, hole);
            self.holes.add(open.number, rest);
        }
        let at = open.number * self.memory.segment_bytes() + open.gap.start;
        open.gap.start += wanted;
        Some(at)
    }

    fn close_open(&mut self) -> Result<(), MemError> {
        let Some(OpenSegment { number, gap }) = self.open.take() else { return Ok(()) };
        self.holes.add(number, gap);
        self.filled.push_back(number);
        self.memory.free_lazily(number).inspect_err(|_| self.set_limit(0))
    }

    /// A segment to fill: one that has holes, one without memory, or the oldest.
    fn next_to_fill(&mut self, wanted: usize) -> Option<OpenSegment> {
        if self.limit == 0 {
            return None;
        }
        let open = if let Some(number) = self.with_holes(wanted) {
            self.filled.retain(|&other| other != number);
            OpenSegment { number, gap: 0..0 }
        } else {
            let unused = if self.filled.len() < self.limit { self.free.pop() } else { None };
            let number = unused.or_else(|| {
                let oldest = self.filled.pop_front();
                self.forget(oldest?, self.emptied);
                self.emptied += 1;
                oldest
            })?;
            OpenSegment { number, gap: 0..self.memory.segment_bytes() }
        };
        self.fillings += 1;
        let segment = &mut self.segments[open.number];
        (segment.filled_before, segment.filling) = (segment.filling, self.fillings);
        segment.refilled = [0; PARTS / 64];
        Some(open)
    }

    /// Of the segments that are looked at, the one with the most bytes in holes of at least `wanted` bytes, if those are enough.
    fn with_holes(&mut self, wanted: usize) -> Option<usize> {
        let (first, count) = (self.hand, self.segments.len());
        let looked_at = LOOKED_AT.min(count);
        self.hand = (first + looked_at) % count;
        let enough = (self.memory.segment_bytes() / HOLES_PART).max(1);
        let seen = (0..looked_at).map(|step| (first + step) % count);
        let worth_it = seen.filter(|&number| self.holes.bytes(number) >= enough);
        let fitting = worth_it.map(|number| (self.holes.fitting_bytes(number, wanted), number));
        fitting.filter(|&(bytes, _)| bytes >= enough).max().map(|(_, number)| number)
    }

    /// The `len` bytes that were put at `at` are dead, and others may be put there.
    pub(super) fn bury(&mut self, at: usize, len: usize) {
        let segment = self.segment_of(at);
        let start = at - segment * self.memory.segment_bytes();
        self.holes.add(segment, start..start + len.next_multiple_of(GRANULE_BYTES));
    }

    /// The `len` bytes at `at` are a second copy from now on.
    pub(super) fn begin_second_copy(&mut self, at: usize, len: usize) {
        self.segments[self.segment_of(at)].twice_bytes += len as u32;
        self.twice_bytes += len;
    }

    /// The `len` bytes at `at` are none any more.
    pub(super) fn end_second_copy(&mut self, at: usize, len: usize) {
        // No more than the segment has: an entry whose generation has come again, after 32,767 others, may name any bytes.
        let segment = &mut self.segments[at / self.memory.segment_bytes()];
        let ended = segment.twice_bytes.min(len as u32);
        segment.twice_bytes -= ended;
        self.twice_bytes -= ended as usize;
    }

    /// Bytes of all second copies.
    pub(super) fn twice_bytes(&self) -> usize {
        self.twice_bytes
    }

    /// The segment's entries hold no longer, as if so many segments had been emptied for others before.
    fn forget(&mut self, number: usize, emptied: u64) {
        let segment = &mut self.segments[number];
        segment.generation = next_generation(segment.generation);
        segment.forgotten_at = emptied;
        self.twice_bytes -= std::mem::take(&mut segment.twice_bytes) as usize;
        self.holes.clear(number);
    }

    /// The oldest of the segments that hold pages.
    fn oldest(&self) -> Option<usize> {
        self.filled.front().copied().or_else(|| self.open.as_ref().map(|open| open.number))
    }

    /// Takes the oldest segment out of the ring, as if so many segments had been emptied for others before.
    fn drop_oldest(&mut self, emptied: u64) {
        let oldest = self.filled.pop_front().or_else(|| self.open.take().map(|open| open.number));
        if let Some(oldest) = oldest {
            self.forget(oldest, emptied);
            self.free.push(oldest);
        }
    }

    /// Segments that may have memory from now on; the oldest go at once, but for those that the kernel doesn't take.
    pub(super) fn set_limit(&mut self, segments: usize) {
        self.limit = segments.min(self.segments.len());
        self.is_lost = self.is_lost && !self.memory.release_all();
        while self.held() > self.limit
            && let Some(oldest) = self.oldest()
            && self.memory.release(oldest)
        {
            // Those that go after it were nearer to staying.
            let after = self.held() - self.limit - 1;
            self.drop_oldest(self.emptied - after as u64);
        }
    }

    /// Forgets all entries and gives all memory back. Where memory is locked by now, that of segments that were never filled was taken, too.
    pub(super) fn close(&mut self) {
        self.limit = 0;
        while self.oldest().is_some() {
            self.drop_oldest(self.emptied);
        }
        self.is_lost = !self.memory.release_all();
    }

    /// Segments that have memory.
    pub(super) fn held(&self) -> usize {
        if self.is_lost { self.segments.len() } else { self.filled.len() + usize::from(self.open.is_some()) }
    }

    /// As the kernel does; for tests.
    pub(super) fn take_back(&mut self, chosen: impl FnMut(usize) -> bool) -> usize {
        self.memory.take_back(chosen)
    }

    /// What to ask for the bytes that are in memory.
    pub(super) fn residency(&self) -> ShardResidency {
        self.memory.residency()
    }

    /// Where nothing lies that the ring knows of, as far as it remembers, and what is yet to be filled; for tests.
    #[cfg(test)]
    pub(super) fn unused(&self) -> Vec<Range<usize>> {
        let moved = |number: usize, range: Range<usize>| {
            let first = number * self.memory.segment_bytes();
            first + range.start..first + range.end
        };
        let holes = (0..self.len()).flat_map(|number| self.holes.ranges(number).map(move |hole| moved(number, hole)));
        let gap = self.open.iter().filter(|open| !open.gap.is_empty());
        holes.chain(gap.map(|open| moved(open.number, open.gap.clone()))).collect()
    }
}
