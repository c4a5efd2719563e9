//! Space of the circular log: where the next record goes, and how far behind the oldest one that counts is.
//!
//! Relies on nothing. Positions are lsns as in [`crate::format`].

use std::collections::BTreeMap;

use crate::format::{IN_FLIGHT_BYTES, MOST_BLOCKS, record_bytes};
use crate::ids::BLOCK_BYTES;

/// Besides the largest record, what relocating one may take: where its blocks lie apart, at the end of a lap.
const RELOCATION_SLACK_BYTES: u64 = 3 * 8192;

/// What a record is for: how much of the log it must leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPurpose {
    /// It may as well go elsewhere, or wait.
    Ordinary,
    /// It can't wait: it leaves free only what relocation needs.
    Privileged,
    /// It moves blocks from the tail to the head, so that the tail can move on. It leaves nothing free: else a full log whose
    /// tail can't be written back would stay full.
    Relocation,
}

/// Why there is no place for a record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Write-back must free space first.
    Full,
    /// An older record must be finished first.
    InFlight,
    /// The record is larger than the log.
    Never,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// Where it begins.
    pub lsn: u64,
    /// Where it ends.
    pub end: u64,
    /// Where the record before it ends.
    pub previous_end: u64,
    /// Every record that began before is finished.
    pub settled: u64,
}

/// The log's space.
#[derive(Clone, Debug)]
pub struct Ring {
    area_bytes: u64,
    tail: u64,
    head: u64,
    /// Kept free for records that can't wait.
    reserve_bytes: u64,
    /// Kept free for relocation.
    relocation_bytes: u64,
    in_flight_bytes: u64,
    /// Unfinished records: where they begin, and where the gap before them began.
    unfinished: BTreeMap<u64, u64>,
}

impl Ring {
    /// A ring whose records lie between `tail` and `head`.
    pub fn new(area_bytes: u64, tail: u64, head: u64) -> Self {
        let in_flight_bytes = IN_FLIGHT_BYTES.min(area_bytes);
        let mut ring = Self {
            area_bytes,
            tail,
            head,
            reserve_bytes: area_bytes / 16,
            relocation_bytes: 0,
            in_flight_bytes,
            unfinished: BTreeMap::new(),
        };
        ring.relocation_bytes = ring.most_record_bytes() + RELOCATION_SLACK_BYTES;
        ring
    }

    /// Where the oldest record that counts may begin.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes between tail and head.
    pub fn used_bytes(&self) -> u64 {
        self.head - self.tail
    }

    /// Bytes of the area.
    pub fn area_bytes(&self) -> u64 {
        self.area_bytes
    }

    /// Every record that began before this lsn is finished.
    pub fn settled(&self) -> u64 {
        self.unfinished.first_key_value().map_or(self.head, |(_, &began)| began)
    }

    /// Where unfinished records begin.
    pub fn unfinished(&self) -> impl Iterator<Item = u64> {
        self.unfinished.keys().copied()
    }

    /// Bytes that are free, what is kept included.
    pub fn free_bytes(&self) -> u64 {
        self.area_bytes - self.used_bytes()
    }

    /// Bytes from the head to the end of the area: a longer record begins at the next lap.
    pub fn lap_bytes(&self) -> u64 {
        self.area_bytes - self.head % self.area_bytes
    }

    /// Largest record: so small a part of the log that room to relocate it is always kept.
    pub fn most_record_bytes(&self) -> u64 {
        (self.area_bytes / 16).min(record_bytes(BLOCK_BYTES as u64, MOST_BLOCKS))
    }

    /// A place for a record of `len` bytes.
    ///
    /// # Errors
    /// There is none now.
    pub fn take(&mut self, len: u64, purpose: RecordPurpose) -> Result<LogExtent, NoRoom> {
        let kept = match purpose {
            RecordPurpose::Ordinary => self.reserve_bytes + self.relocation_bytes,
            RecordPurpose::Privileged => self.relocation_bytes,
            RecordPurpose::Relocation => 0,
        };
        if len > self.most_record_bytes() {
            return Err(NoRoom::Never);
        }
        let at = self.head % self.area_bytes;
        let pad = if at + len > self.area_bytes { self.area_bytes - at } else { 0 };
        let (lsn, end) = (self.head + pad, self.head + pad + len);
        if end - self.tail + kept > self.area_bytes {
            return Err(NoRoom::Full);
        }
        if self.unfinished.first_key_value().is_some_and(|(_, &began)| end - began > self.in_flight_bytes) {
            return Err(NoRoom::InFlight);
        }
        let (previous_end, settled) = (self.head, self.settled());
        self.unfinished.insert(lsn, previous_end);
        self.head = end;
        Ok(LogExtent { lsn, end, previous_end, settled })
    }

    /// Whether an ordinary record of `len` bytes would find a place.
    pub fn has_room(&self, len: u64) -> bool {
        self.clone_without_records().take(len, RecordPurpose::Ordinary).is_ok()
    }

    /// Whether a privileged record of `len` bytes would find a place.
    pub fn has_room_reserved(&self, len: u64) -> bool {
        self.clone_without_records().take(len, RecordPurpose::Privileged).is_ok()
    }

    fn clone_without_records(&self) -> Self {
        Self { unfinished: BTreeMap::new(), ..*self }
    }

    /// The record at `lsn` is on the device, or never will be.
    pub fn finish(&mut self, lsn: u64) {
        self.unfinished.remove(&lsn);
    }

    /// What lies before `tail` no longer counts, durably.
    pub fn free_up_to(&mut self, tail: u64) {
        self.tail = tail.clamp(self.tail, self.head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use super::RecordPurpose::{Ordinary, Privileged, Relocation};

    #[test]
    fn a_record_never_wraps_and_never_covers_one_that_counts() {
        let mut ring = Ring::new(256 << 10, 0, 0);
        let mut spans = Vec::new();
        assert_eq!(ring.most_record_bytes(), 16 << 10);
        while let Ok(span) = ring.take(9 << 10, Relocation) {
            ring.finish(span.lsn);
            spans.push(span);
        }
        assert_eq!(spans.len(), 28, "252 of 256 KiB");
        assert_eq!((ring.free_bytes(), ring.lap_bytes()), (4 << 10, 4 << 10));
        assert_eq!(ring.take(9 << 10, Relocation), Err(NoRoom::Full));
        ring.free_up_to(spans[0].end);
        let next = LogExtent { lsn: 256 << 10, end: 265 << 10, previous_end: 252 << 10, settled: 252 << 10 };
        assert_eq!(ring.take(9 << 10, Relocation), Ok(next), "the next lap, behind a gap");
        assert_eq!(ring.settled(), 252 << 10, "that one is not finished");
        ring.finish(next.lsn);
        assert_eq!(ring.settled(), 265 << 10);
    }

    #[test]
    fn some_space_is_kept_for_the_privileged_and_room_to_move_the_largest_record_for_relocation() {
        let mut ring = Ring::new(256 << 10, 0, 0);
        let mut fill = |purpose| {
            while let Ok(span) = ring.take(1 << 10, purpose) {
                ring.finish(span.lsn);
            }
            assert!(ring.take(1 << 30, purpose) == Err(NoRoom::Never));
            ring.free_bytes()
        };
        assert_eq!([Ordinary, Privileged, Relocation].map(&mut fill), [56 << 10, 40 << 10, 0]);
        assert!(!ring.has_room_reserved(512));
    }

    proptest! {
        #[test]
        fn unfinished_records_stay_close_to_the_head(
            steps in prop::collection::vec((1u64..200, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let area = 16 << 20;
            let mut ring = Ring::new(area, 0, 0);
            let mut open: Vec<(u64, u64)> = Vec::new();
            for (blocks, finishes, which) in steps {
                let before = ring.head;
                match ring.take(blocks * 4096 + 512, Relocation) {
                    Ok(span) => open.push((span.lsn, before)),
                    Err(NoRoom::Full) => ring.free_up_to(open.first().map_or(ring.head, |&(_, began)| began)),
                    Err(_) => {}
                }
                for &(_, began) in &open {
                    prop_assert!(ring.head - began <= IN_FLIGHT_BYTES);
                }
                prop_assert!(ring.used_bytes() <= area);
                if finishes && !open.is_empty() {
                    let (lsn, _) = open.remove(which.index(open.len()));
                    ring.finish(lsn);
                }
            }
        }
    }
}
