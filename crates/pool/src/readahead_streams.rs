//! Finds streams among the pages that a map's users miss, and says how far to read ahead.
//!
//! Relies on being told of every miss, and of touches of the page that it has asked to be marked, which mean that the
//! stream is half through what was read ahead.

use std::ops::Range;

/// ReadaheadStreams followed at a time.
const STREAMS: usize = 8;
/// Pages read ahead when a stream is found; doubled with each further step.
const FIRST_PAGES: u32 = 4;

/// What to read ahead, and which of the pages to mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadaheadWindow {
    /// Pages to read.
    pub(crate) pages: Range<u64>,
    /// The page whose touch continues the stream.
    pub(crate) mark: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The page after what was read or read ahead last.
    next: u64,
    /// Pages of the last order; 0 before the first.
    window: u32,
    /// When the stream was last heard of.
    used: u64,
}

/// The streams of a map.
#[derive(Debug, Default)]
pub(crate) struct ReadaheadStreams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl ReadaheadStreams {
    /// `page` was not in memory. `eager` takes it for a stream at once.
    pub(crate) fn missed(&mut self, page: u64, most_pages: u32, eager: bool) -> Option<ReadaheadWindow> {
        if most_pages == 0 {
            return None;
        }
        self.clock += 1;
        let near = |stream: &&mut Stream| stream.used > 0 && stream.next == page;
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.used = self.clock;
            stream.next = page + 1;
            return Some(stream.advance(most_pages));
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used)?;
        *oldest = Stream { next: page + 1, window: if eager { most_pages } else { 0 }, used: self.clock };
        eager.then(|| oldest.advance(most_pages))
    }

    /// The marked `page` was touched.
    pub(crate) fn reached(&mut self, page: u64, most_pages: u32) -> Option<ReadaheadWindow> {
        self.clock += 1;
        let holds = |stream: &&mut Stream| {
            stream.used > 0 && page < stream.next && stream.next - page <= u64::from(stream.window.max(1))
        };
        let stream = self.streams.iter_mut().find(holds)?;
        stream.used = self.clock;
        (most_pages > 0).then(|| stream.advance(most_pages))
    }
}

impl Stream {
    fn advance(&mut self, most_pages: u32) -> ReadaheadWindow {
        self.window = (self.window * 2).clamp(FIRST_PAGES.min(most_pages), most_pages);
        let start = self.next;
        self.next += u64::from(self.window);
        ReadaheadWindow { pages: start..self.next, mark: start + u64::from(self.window / 2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(pages: Range<u64>, mark: u64) -> Option<ReadaheadWindow> {
        Some(ReadaheadWindow { pages, mark })
    }

    #[test]
    fn a_stream_is_read_ahead_further_and_further() {
        let mut streams = ReadaheadStreams::default();
        assert_eq!(streams.missed(10, 16, false), None);
        assert_eq!(streams.missed(11, 16, false), order(12..16, 14));
        assert_eq!(streams.reached(14, 16), order(16..24, 20));
        assert_eq!(streams.reached(20, 16), order(24..40, 32));
        assert_eq!(streams.reached(32, 16), order(40..56, 48));
        assert_eq!(streams.missed(56, 16, false), order(57..73, 65), "the mark was lost");
    }

    #[test]
    fn several_streams_are_told_apart_and_random_pages_start_none() {
        let mut streams = ReadaheadStreams::default();
        for start in [0, 1000, 2000] {
            assert_eq!(streams.missed(start, 8, false), None);
        }
        for start in [0, 1000, 2000] {
            assert_eq!(streams.missed(start + 1, 8, false), order(start + 2..start + 6, start + 4));
        }
        for page in [77, 5000, 31, 990_000, 12] {
            assert_eq!(streams.missed(page, 8, false), None);
        }
    }

    #[test]
    fn an_eager_map_reads_ahead_at_once_and_none_if_told_so() {
        let mut streams = ReadaheadStreams::default();
        assert_eq!(streams.missed(7, 8, true), order(8..16, 12));
        assert_eq!(streams.missed(100, 0, true), None);
        assert_eq!(streams.reached(3, 8), None);
    }
}
