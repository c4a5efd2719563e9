//! Complete requests, as the parser found them: ranges of the input buffer.
//!
//! Relies on the parser for the ranges: each lies within the buffer that was parsed, or within what was unpacked.

use crate::args::{ArgRange, Args};

/// A complete request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub(super) first: u32,
    pub(super) words: u32,
    /// Where the next request begins in the input.
    pub end: usize,
    pub(super) inline: bool,
}

/// Complete requests, and where their words are. Meant to be reused.
#[derive(Default, Debug)]
pub struct RequestBatch {
    pub(super) ranges: Vec<ArgRange>,
    pub(super) requests: Vec<Request>,
    pub(super) unpacked: Vec<u8>,
}

impl RequestBatch {
    /// Forgets all requests; keeps the memory, unless it is a lot.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.requests.clear();
        self.unpacked.clear();
        self.ranges.shrink_to(1 << 16);
        self.unpacked.shrink_to(1 << 20);
    }

    /// How many requests there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Request `index`.
    #[inline]
    pub fn request(&self, index: usize) -> Request {
        self.requests[index]
    }

    /// The words of request `index`; `input` is the buffer that was parsed.
    #[inline]
    pub fn args<'a>(&'a self, index: usize, input: &'a [u8]) -> Args<'a> {
        let request = &self.requests[index];
        let ranges = &self.ranges[request.first as usize..(request.first + request.words) as usize];
        Args::new(if request.inline { &self.unpacked } else { input }, ranges)
    }
}
