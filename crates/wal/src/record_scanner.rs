//! Reads the records of one segment, in order, until one isn't valid.
//!
//! Relies on `format` for what valid means. Reads large pieces, so that a record costs a look at memory.

use std::ops::Range;
use std::sync::Arc;

use quire_device::{Device, DeviceError};
use zerocopy::FromBytes;

use super::directory_scan::Segment;
use super::format::{
    COMMANDS, DATA_OFFSET, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, record_bytes, record_checksum,
};
use super::record::Record;

/// Read at once, unless a record is larger.
const WINDOW_BYTES: u64 = 1 << 20;

/// A segment holds fewer records.
const MOST_RECORDS: u64 = 1 << 32;
/// What lies behind the last record may be anything, even made to look like records. No more than so many times its length
/// is checked.
const MOST_CHECKED: u64 = 16;
const SEQUENCE_OFFSET: usize = std::mem::offset_of!(RecordHeader, sequence);

/// Where a valid record is.
#[derive(Clone, Debug)]
pub(crate) struct RecordLocation {
    /// In the file.
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    commands: u32,
    body: Range<usize>,
}

/// A place in a segment, and what is expected there.
pub(crate) struct RecordScanner {
    device: Arc<dyn Device>,
    salt: u64,
    at: u64,
    end: u64,
    expected: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl RecordScanner {
    /// Stands before the first record.
    pub(crate) fn new(segment: &Segment) -> Self {
        Self {
            device: Arc::clone(&segment.device),
            salt: segment.salt,
            at: DATA_OFFSET,
            end: segment.file_bytes,
            expected: segment.meta.first_sequence,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// The number of the record that would come next.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Where the next record would begin.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Steps over the next record; `None` if there is no valid one.
    pub(crate) fn step(&mut self) -> Result<Option<RecordLocation>, DeviceError> {
        let Some(header) = self.header(self.at)? else { return Ok(None) };
        if header.sequence.get() != self.expected || header.kind.get() != COMMANDS {
            return Ok(None);
        }
        let Some(body) = self.valid_body(self.at, &header)? else { return Ok(None) };
        let place = RecordLocation { offset: self.at, sequence: self.expected, commands: header.commands.get(), body };
        self.at += record_bytes(u64::from(header.body_bytes.get()));
        self.expected = self.expected.saturating_add(1);
        Ok(Some(place))
    }

    /// The record that the last step returned.
    pub(crate) fn record(&self, place: &RecordLocation) -> Record<'_> {
        Record::new(place.sequence, place.commands, self.window.get(place.body.clone()).unwrap_or_default())
    }

    /// Bytes that the record takes which was being written here when everything ended; `None` if none was.
    pub(crate) fn torn_bytes(&mut self) -> Result<Option<u64>, DeviceError> {
        let header = self.header(self.at)?;
        let torn = header.filter(|header| header.sequence.get() == self.expected && header.kind.get() == COMMANDS);
        Ok(torn.and_then(|header| header.record_bytes()).map(|bytes| bytes.min(self.end - self.at)))
    }

    /// Whether the record that isn't valid here was durable once: a later one says so, and is wanted, being behind the
    /// record `position`, the last one that the image holds.
    pub(crate) fn is_damaged(&mut self, position: u64) -> Result<bool, DeviceError> {
        let least = self.expected.max(position);
        let mut left_bytes = MOST_CHECKED * self.end.saturating_sub(self.at);
        let mut at = self.at + RECORD_ALIGN as u64;
        while let Some(range) = self.look(at, RECORD_HEADER_BYTES as u64)? {
            // Nearly nothing passes the first look, which is all that most of a segment gets.
            let numbers = self.window[range.start + SEQUENCE_OFFSET..].chunks_exact(RECORD_ALIGN);
            let passed = numbers.len() as u64;
            let mut numbers = numbers.map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
            let Some(steps) = numbers.position(|number| number > least && number - least < MOST_RECORDS) else {
                at += passed * RECORD_ALIGN as u64;
                continue;
            };
            at += (steps * RECORD_ALIGN) as u64;
            if let Some(header) = self.header(at)?
                && header.durable() >= self.expected
                && (header.kind.get() == COMMANDS || header.durable() > position)
                && let Some(bytes) = header.record_bytes().filter(|bytes| *bytes <= self.end - at)
            {
                if self.valid_body(at, &header)?.is_some() {
                    return Ok(true);
                }
                left_bytes = left_bytes.saturating_sub(bytes);
                if left_bytes == 0 {
                    return Ok(false);
                }
            }
            at += RECORD_ALIGN as u64;
        }
        Ok(false)
    }

    /// The bytes of a header at `offset`, whatever they mean; `None` where the segment ends.
    fn header(&mut self, offset: u64) -> Result<Option<RecordHeader>, DeviceError> {
        let Some(range) = self.look(offset, RECORD_HEADER_BYTES as u64)? else { return Ok(None) };
        Ok(RecordHeader::read_from_bytes(&self.window[range]).ok())
    }

    /// Where the body of the record at `offset` lies in the window, if the record is valid.
    fn valid_body(&mut self, offset: u64, header: &RecordHeader) -> Result<Option<Range<usize>>, DeviceError> {
        if header.record_bytes().is_none() {
            return Ok(None);
        }
        let len = RECORD_HEADER_BYTES as u64 + u64::from(header.body_bytes.get());
        let Some(range) = self.look(offset, len)? else { return Ok(None) };
        let valid = record_checksum(self.salt, &self.window[range.clone()]) == header.checksum.get();
        Ok(valid.then_some(range.start + RECORD_HEADER_BYTES..range.end))
    }

    /// Where `len` bytes from `offset` on lie in the window, which is moved if need be; `None` beyond the end.
    fn look(&mut self, offset: u64, len: u64) -> Result<Option<Range<usize>>, DeviceError> {
        if offset.checked_add(len).is_none_or(|end| end > self.end) {
            return Ok(None);
        }
        let held = self.window_at..self.window_at + self.window.len() as u64;
        if offset < held.start || offset + len > held.end {
            let bytes = len.max(WINDOW_BYTES).min(self.end - offset);
            self.window.resize(bytes as usize, 0);
            self.window_at = offset;
            let got = self.device.read_at(offset, &mut self.window)?;
            self.window.truncate(got);
            if (got as u64) < len {
                return Ok(None);
            }
        }
        let start = (offset - self.window_at) as usize;
        Ok(Some(start..start + len as usize))
    }
}
