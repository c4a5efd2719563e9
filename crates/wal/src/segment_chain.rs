//! The segments of a log but for what is being written: which are full, and whether the log counts.
//!
//! Shared by the log thread and the maintenance thread. Neither waits for the other while it holds the lock.

use std::sync::Arc;

use quire_device::Device;

use super::format::SegmentMeta;
use super::segment_pool::ClosedSegment;

/// A segment whose header doesn't say that the log is in force.
pub(crate) type UnmarkedSegment = (Arc<dyn Device>, SegmentMeta);

/// The segments of a log.
pub(crate) struct SegmentChain {
    /// Those that are full, to be taken away.
    closed: Vec<ClosedSegment>,
    /// Bytes of the one that is written to.
    current_bytes: u64,
    /// Bytes of one that wasn't made for a large record.
    ordinary_bytes: u64,
    /// Whether the image that the log builds on is durable.
    in_force: bool,
    /// The segments of a log that isn't in force yet, to be marked when it is.
    pending: Vec<UnmarkedSegment>,
}

impl SegmentChain {
    /// No segments yet.
    pub(crate) fn new(in_force: bool, ordinary_bytes: u64) -> Self {
        Self { closed: Vec::new(), current_bytes: 0, ordinary_bytes, in_force, pending: Vec::new() }
    }

    /// The first segment is begun, behind those that are full. True if it must be marked now.
    pub(crate) fn begin(
        &mut self,
        mut closed: Vec<ClosedSegment>,
        device: &Arc<dyn Device>,
        meta: SegmentMeta,
    ) -> bool {
        self.closed.append(&mut closed);
        self.enter(device, meta)
    }

    pub(crate) fn is_in_force(&self) -> bool {
        self.in_force
    }

    /// One is full, and another is written to. True if that one must be marked now: the log has come in force since its
    /// header was written.
    pub(crate) fn rotate(&mut self, full: ClosedSegment, device: &Arc<dyn Device>, meta: SegmentMeta) -> bool {
        self.closed.push(full);
        self.enter(device, meta)
    }

    fn enter(&mut self, device: &Arc<dyn Device>, meta: SegmentMeta) -> bool {
        self.current_bytes = meta.segment_bytes;
        let unmarked = !meta.in_force;
        if unmarked && !self.in_force {
            self.pending.push((Arc::clone(device), meta));
        }
        unmarked && self.in_force
    }

    /// The image that the log builds on is durable: from here on the log counts. Returns the segments to be marked.
    pub(crate) fn come_in_force(&mut self) -> Vec<UnmarkedSegment> {
        self.in_force = true;
        std::mem::take(&mut self.pending)
    }

    /// Segments all of whose records are at most `position`.
    pub(crate) fn take_covered(&mut self, position: u64) -> Vec<ClosedSegment> {
        self.closed.extract_if(.., |closed| closed.last_sequence <= position).collect()
    }

    /// Bytes of the files that are full.
    pub(crate) fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.bytes).sum()
    }

    /// Bytes of the files in use, the one that is written to taken for an ordinary one: an image can't make it shorter, so
    /// no client may be made to wait for that.
    pub(crate) fn bounded_bytes(&self) -> u64 {
        self.closed_bytes() + self.current_bytes.min(self.ordinary_bytes)
    }

    /// Bytes of the files in use.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.closed_bytes() + self.current_bytes
    }

    /// Files in use.
    pub(crate) fn segments(&self) -> u64 {
        self.closed.len() as u64 + 1
    }
}
