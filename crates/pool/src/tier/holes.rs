//! The holes of a shard's segments: bytes of which the index has no entry any more.
//!
//! Relies on the ring for which segments hold bytes at all. A little forgetfulness is harmless, as in the index: of a segment that has more
//! holes than there are places for, the latest stay unused until it is emptied. All memory is taken at the start, because signal handlers
//! make holes, too.

use std::ops::Range;

/// Stored bytes begin at multiples of this.
pub(super) const GRANULE_BYTES: usize = 16;
/// A segment has a place for a hole for so many of its bytes. So the quarter of it from which on it is filled again can be holes of 256 bytes.
const PLACE_BYTES: usize = 1024;

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
    /// Zeros at first, so that a place takes memory as it is used.
    places: Box<[Hole]>,
    /// Of each segment.
    segment_places: usize,
    known: Box<[KnownHoles]>,
}

impl SegmentHoles {
    /// No holes in `segments` segments of `segment_bytes`.
    pub(super) fn new(segments: usize, segment_bytes: usize) -> Self {
        let segment_places = segment_bytes.div_ceil(PLACE_BYTES);
        let (places, known) = (vec![[0; 2]; segments * segment_places], vec![KnownHoles::default(); segments]);
        Self { places: places.into(), segment_places, known: known.into() }
    }

    fn places(&mut self, segment: usize) -> &mut [Hole] {
        &mut self.places[segment * self.segment_places..][..self.segment_places]
    }

    fn holes(&self, segment: usize) -> &[Hole] {
        &self.places[segment * self.segment_places..][..usize::from(self.known[segment].count)]
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
        let mut holes = SegmentHoles::new(2, 256 * KIB);
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
        let mut holes = SegmentHoles::new(2, 64 * KIB);
        holes.add(1, 0..KIB);
        for hole in 0..128 {
            holes.add(0, hole * 512..hole * 512 + 256);
        }
        assert_eq!((holes.bytes(0), holes.bytes(1)), (64 * 256, KIB));
        // A neighbour of one that is known finds its place.
        holes.add(0, 256..512);
        assert_eq!(holes.bytes(0), 65 * 256);
    }

    #[test]
    fn a_quarter_of_a_segment_can_be_holes_of_small_pages() {
        for segment_kib in [4, 56, 256] {
            let mut holes = SegmentHoles::new(1, segment_kib * KIB);
            for page in 0..segment_kib {
                holes.add(0, page * KIB..page * KIB + 256);
            }
            assert_eq!(holes.fitting_bytes(0, 256), segment_kib * KIB / 4);
        }
    }
}
