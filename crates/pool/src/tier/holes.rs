//! The holes of a shard's segments: bytes of which the index has no entry any more.
//!
//! Relies on the ring for which segments hold bytes at all. A little forgetfulness is harmless, as in the index: of a segment that has more
//! holes than there are places for, the latest stay unused until it is emptied. All memory is taken at the start, because signal handlers
//! make holes, too.

use std::ops::Range;

/// Stored bytes begin at multiples of this.
pub(super) const GRANULE_BYTES: usize = 16;
/// Holes that are remembered of a segment: as many as a segment of 256 KiB has pages that don't compress.
const MOST_HOLES: usize = 64;

/// What is known of a segment's holes.
#[derive(Clone, Copy, Debug, Default)]
struct KnownHoles {
    count: u16,
    granules: u16,
}

/// Where in its segment a hole begins, and its length, in granules.
type Hole = [u16; 2];

/// The holes of all segments.
#[derive(Debug)]
pub(super) struct SegmentHoles {
    /// `MOST_HOLES` places for each segment. Zeros at first, so that a place takes memory as it is used.
    places: Box<[Hole]>,
    known: Box<[KnownHoles]>,
}

impl SegmentHoles {
    /// No holes in `segments` segments.
    pub(super) fn new(segments: usize) -> Self {
        Self { places: vec![[0; 2]; segments * MOST_HOLES].into(), known: vec![KnownHoles::default(); segments].into() }
    }

    fn places(&mut self, segment: usize) -> &mut [Hole] {
        &mut self.places[segment * MOST_HOLES..][..MOST_HOLES]
    }

    fn holes(&self, segment: usize) -> &[Hole] {
        &self.places[segment * MOST_HOLES..][..usize::from(self.known[segment].count)]
    }

    /// Takes the hole at `place` out, and puts the last one there.
    fn remove(&mut self, segment: usize, place: usize) -> Hole {
        let last = usize::from(self.known[segment].count) - 1;
        let places = self.places(segment);
        let hole = places[place];
        places[place] = places[last];
        self.known[segment].count -= 1;
        self.known[segment].granules -= hole[1];
        hole
    }

    /// The bytes `hole` of the segment, which begin and end at granules, hold nothing any more. Neighbours become one hole.
    pub(super) fn add(&mut self, segment: usize, hole: Range<usize>) {
        if hole.is_empty() {
            return;
        }
        let [mut start, mut end] = [hole.start, hole.end].map(|at| (at / GRANULE_BYTES) as u16);
        while let Some(place) = self.holes(segment).iter().position(|hole| hole[0] == end || hole[0] + hole[1] == start)
        {
            let neighbour = self.remove(segment, place);
            start = start.min(neighbour[0]);
            end = end.max(neighbour[0] + neighbour[1]);
        }
        let place = usize::from(self.known[segment].count);
        if let Some(free) = self.places(segment).get_mut(place) {
            *free = [start, end - start];
            self.known[segment].count += 1;
            self.known[segment].granules += end - start;
        }
    }

    /// The smallest hole that fits: larger ones are for larger pages.
    fn fitting(&self, segment: usize, wanted: usize) -> Option<usize> {
        let fits = |(_, hole): &(usize, &Hole)| usize::from(hole[1]) * GRANULE_BYTES >= wanted;
        self.holes(segment).iter().enumerate().filter(fits).min_by_key(|(_, hole)| hole[1]).map(|(place, _)| place)
    }

    /// Bytes of the segment's holes that have `wanted` bytes or more.
    pub(super) fn fitting_bytes(&self, segment: usize, wanted: usize) -> usize {
        self.holes(segment)
            .iter()
            .map(|hole| usize::from(hole[1]) * GRANULE_BYTES)
            .filter(|&bytes| bytes >= wanted)
            .sum()
    }

    /// Takes a hole of at least `wanted` bytes out.
    pub(super) fn take_fitting(&mut self, segment: usize, wanted: usize) -> Option<Range<usize>> {
        let place = self.fitting(segment, wanted)?;
        let [start, granules] = self.remove(segment, place).map(usize::from);
        Some(start * GRANULE_BYTES..(start + granules) * GRANULE_BYTES)
    }

    /// Bytes of the segment's holes.
    pub(super) fn bytes(&self, segment: usize) -> usize {
        usize::from(self.known[segment].granules) * GRANULE_BYTES
    }

    /// The segment is emptied as a whole.
    pub(super) fn clear(&mut self, segment: usize) {
        self.known[segment] = KnownHoles::default();
    }

    /// Where the segment's holes are, in bytes; for tests.
    #[cfg(test)]
    pub(super) fn ranges(&self, segment: usize) -> impl Iterator<Item = Range<usize>> {
        let at = |granule: u16| usize::from(granule) * GRANULE_BYTES;
        self.holes(segment).iter().map(move |&[start, granules]| at(start)..at(start + granules))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn neighbours_become_one_hole_and_the_smallest_that_fits_is_taken() {
        let mut holes = SegmentHoles::new(2);
        for start in [0, 8, 2, 4] {
            holes.add(1, start * KIB..(start + 1) * KIB);
        }
        holes.add(1, KIB..2 * KIB);
        assert_eq!((holes.bytes(0), holes.bytes(1)), (0, 5 * KIB));
        assert_eq!([2, 3, 4].map(|kib| holes.fitting_bytes(1, kib * KIB)), [3 * KIB, 3 * KIB, 0]);
        assert_eq!(holes.take_fitting(1, 2 * KIB), Some(0..3 * KIB));
        assert_eq!(holes.take_fitting(1, 2 * KIB), None);
        holes.add(1, 5 * KIB..8 * KIB);
        assert_eq!(holes.take_fitting(1, 1), Some(4 * KIB..9 * KIB));
        assert_eq!(holes.bytes(1), 0);
        holes.add(1, 0..256 * KIB);
        holes.clear(1);
        assert_eq!(holes.fitting_bytes(1, 1), 0);
        for (start, end) in [(0, 4), (8, 9), (16, 18)] {
            holes.add(0, start * KIB..end * KIB);
        }
        assert_eq!(holes.take_fitting(0, 2 * KIB), Some(16 * KIB..18 * KIB));
    }

    #[test]
    fn more_holes_than_there_are_places_for_are_forgotten_and_no_other_segment_s_suffer() {
        let mut holes = SegmentHoles::new(2);
        holes.add(1, 0..KIB);
        for hole in 0..2 * MOST_HOLES {
            holes.add(0, 2 * hole * KIB..(2 * hole + 1) * KIB);
        }
        assert_eq!((holes.bytes(0), holes.bytes(1)), (MOST_HOLES * KIB, KIB));
        // A neighbour of one that is known finds its place.
        holes.add(0, KIB..2 * KIB);
        assert_eq!(holes.bytes(0), (MOST_HOLES + 1) * KIB);
    }
}
