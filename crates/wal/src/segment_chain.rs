//! The segments of a log: which are full, which an image covers, and whether the log counts.
//!
//! The one that is written to is no other's while it is. When the log thread stands still with it, since the disk has no room for the next one,
//! nothing more is written there: an image that covers it may have it taken away then, so that the log goes on in its place.
//!
//! Shared by the log thread and the maintenance thread. Neither waits for the other while it holds the lock.

use std::sync::Arc;

use quire_device::Device;

use super::format::SegmentMeta;
use super::segment_pool::ClosedSegment;

/// A segment whose header doesn't say that the log is in force.
pub(crate) type UnmarkedSegment = (Arc<dyn Device>, SegmentMeta);

/// What is done with the segment that was begun last.
enum CurrentSegment {
    /// It is written to, or will be.
    Written,
    /// The log thread stands still: there is no room for the next one.
    Resting(ClosedSegment),
    /// It was taken away. The log thread stands still without a segment.
    Taken,
}

/// The segments of a log.
pub(crate) struct SegmentChain {
    /// Those that are full, to be taken away.
    closed: Vec<ClosedSegment>,
    /// The one that was begun last.
    current: CurrentSegment,
    /// Its bytes.
    current_bytes: u64,
    /// A durable image holds all records up to this one.
    covered: u64,
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
        let (closed, current, pending) = (Vec::new(), CurrentSegment::Written, Vec::new());
        Self { closed, current, current_bytes: 0, covered: 0, ordinary_bytes, in_force, pending }
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
        if !matches!(self.current, CurrentSegment::Taken) {
            self.closed.push(full);
        }
        self.current = CurrentSegment::Written;
        self.enter(device, meta)
    }

    /// The log thread writes no more to the segment that was begun last, however long it stands still. Returns it if an image covers it
    /// already: it is to be taken away.
    pub(crate) fn rest(&mut self, current: ClosedSegment) -> Option<ClosedSegment> {
        if matches!(self.current, CurrentSegment::Taken) {
            return None;
        }
        self.current = CurrentSegment::Resting(current);
        self.take_resting()
    }

    fn take_resting(&mut self) -> Option<ClosedSegment> {
        match std::mem::replace(&mut self.current, CurrentSegment::Taken) {
            // Nothing is covered before the first image is: not a segment without records either, whose header may still have to be marked.
            CurrentSegment::Resting(current) if (1..=self.covered).contains(&current.last_sequence) => {
                self.current_bytes = 0;
                Some(current)
            }
            other => {
                self.current = other;
                None
            }
        }
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
        self.covered = self.covered.max(position);
        let full = self.closed.extract_if(.., |closed| closed.last_sequence <= position);
        let mut covered: Vec<ClosedSegment> = full.collect();
        covered.extend(self.take_resting());
        covered
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
        self.closed.len() as u64 + u64::from(!matches!(self.current, CurrentSegment::Taken))
    }
}
