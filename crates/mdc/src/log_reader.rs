//! The log of a checkpoint as it is read: a stream of records.
//!
//! Relies on the footer for its length, and on nothing else: a chunk is believed when its checksum is right, and a record when it ends
//! within the log.

use zerocopy::FromBytes;

use crate::error::FilePart;
use crate::format::{CHUNK_PAYLOAD, ChunkHead, LOG_OFFSET, UNIT_BYTES, checksum, unfold};
use crate::source::ByteSource;

/// What is wrong, and where.
pub(crate) type Fault = (FilePart, String);

/// A part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRecord {
    /// The object's bytes follow in the log.
    Value { len: u64 },
    /// The object lay there.
    Reference { address: u64, len: u64 },
}

#[derive(Debug)]
pub(crate) struct LogReader {
    /// Bytes of the log.
    bytes: u64,
    /// The next byte to be read.
    at: u64,
    /// The payload of the chunk that was verified last, and its number.
    chunk: Vec<u8>,
    number: Option<u64>,
    last_end: u64,
}

impl LogReader {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, at: 0, chunk: Vec::new(), number: None, last_end: 0 }
    }

    /// Bytes that were not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.bytes - self.at
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        (FilePart::Log(self.at / CHUNK_PAYLOAD as u64), what.into())
    }

    /// Verifies chunk `number` and keeps it.
    pub(crate) fn load(&mut self, source: &ByteSource, number: u64) -> Result<(), Fault> {
        if self.number == Some(number) {
            return Ok(());
        }
        let part = FilePart::Log(number);
        let offset = LOG_OFFSET + number * UNIT_BYTES as u64;
        let want = (self.bytes - number * CHUNK_PAYLOAD as u64).min(CHUNK_PAYLOAD as u64) as usize;
        let mut head = [0; size_of::<ChunkHead>()];
        self.number = None;
        self.chunk.resize(want, 0);
        if !source.copy(offset, &mut head) || !source.copy(offset + head.len() as u64, &mut self.chunk) {
            return Err((part, "it lies outside the file".into()));
        }
        source.read_ahead(offset + UNIT_BYTES as u64, UNIT_BYTES);
        let head = ChunkHead::read_from_bytes(&head).map_err(|_| (part, "no head".to_owned()))?;
        if head.used.get() as usize != want || head.reserved.get() != 0 {
            return Err((part, format!("its head says {} bytes, the footer {want}", head.used)));
        }
        if head.checksum.get() != checksum(&self.chunk, number) {
            return Err((part, "wrong checksum".into()));
        }
        self.number = Some(number);
        Ok(())
    }

    /// The bytes that follow, up to the end of their chunk: none at the end of the log.
    fn rest(&mut self, source: &ByteSource) -> Result<&[u8], Fault> {
        if self.at == self.bytes {
            return Ok(&[]);
        }
        self.load(source, self.at / CHUNK_PAYLOAD as u64)?;
        Ok(&self.chunk[(self.at % CHUNK_PAYLOAD as u64) as usize..])
    }

    fn number(&mut self, source: &ByteSource) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.rest(source)?.first() else { return Err(self.fault("it ends within a record")) };
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.fault("a number has too many digits"))
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self, source: &ByteSource) -> Result<Option<LogRecord>, Fault> {
        if self.left() == 0 {
            return Ok(None);
        }
        let head = self.number(source)?;
        let len = head >> 1;
        if len == 0 {
            return Err(self.fault("a record without bytes"));
        }
        if head & 1 == 0 {
            if len > self.left() {
                return Err(self.fault(format!("a value of {len} bytes reaches beyond its end")));
            }
            return Ok(Some(LogRecord::Value { len }));
        }
        let distance = unfold(self.number(source)?);
        let address = self.last_end.wrapping_add(distance.cast_unsigned());
        let Some(end) = address.checked_add(len) else {
            return Err(self.fault(format!("an object of {len} bytes at {address:#x}")));
        };
        self.last_end = end;
        Ok(Some(LogRecord::Reference { address, len }))
    }

    /// Reads bytes of a value, of which at least as many are left.
    pub(crate) fn read(&mut self, source: &ByteSource, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            let rest = self.rest(source)?;
            let part = rest.len().min(into.len() - done);
            into[done..done + part].copy_from_slice(&rest[..part]);
            if part == 0 {
                return Err(self.fault("it ends within a value"));
            }
            self.at += part as u64;
            done += part;
        }
        Ok(())
    }
}
