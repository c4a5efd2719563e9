//! The log of a checkpoint, written in chunks as it grows.
//!
//! A record is a number (the object's length times two, plus one for a reference), and then the object's bytes, or the distance of its
//! address from the end of the last referenced object.
//!
//! Relies on [`DumpTarget`]; what is not yet a whole chunk is held in memory of its own.

use std::io;
use std::ops::Range;

use crate::format::{CHUNK_PAYLOAD, ChunkHead, LOG_OFFSET, MOST_NUMBER_BYTES, PAGE_BYTES, UNIT_BYTES};
use crate::format::{checksum, fold, put_number};
use crate::reserved::ReservedSlice;
use crate::target::DumpTarget;
use zerocopy::IntoBytes;

const HEAD_BYTES: usize = size_of::<ChunkHead>();

pub(crate) struct LogWriter {
    /// One chunk with its head.
    chunk: ReservedSlice<u8>,
    /// Bytes of the log in it.
    used: usize,
    /// Chunks that are written.
    written: u64,
    /// Where the last referenced object ended.
    last_end: u64,
}

impl LogWriter {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { chunk: ReservedSlice::new(UNIT_BYTES)?, used: 0, written: 0, last_end: 0 })
    }

    /// Addresses that it works with.
    pub(crate) fn range(&self) -> Range<usize> {
        self.chunk.range()
    }

    /// Bytes of the log so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.written * CHUNK_PAYLOAD as u64 + self.used as u64
    }

    /// Writes an object as its bytes.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read.
    pub(crate) unsafe fn put_value(&mut self, to: &mut impl DumpTarget, from: *const u8, len: usize) -> io::Result<()> {
        self.put_number(to, (len as u64) << 1)?;
        let mut done = 0;
        while done < len {
            let room = self.room(to)?;
            let part = (len - done).min(room.len());
            // SAFETY: `put_value` demands that these bytes may be read; `room` is memory of ours, which no object lies in.
            unsafe { from.add(done).copy_to_nonoverlapping(room.as_mut_ptr(), part) };
            self.used += part;
            done += part;
        }
        Ok(())
    }

    /// Writes an object as its address.
    pub(crate) fn put_reference(&mut self, to: &mut impl DumpTarget, address: u64, len: usize) -> io::Result<()> {
        self.put_number(to, (len as u64) << 1 | 1)?;
        self.put_number(to, fold(address.wrapping_sub(self.last_end).cast_signed()))?;
        self.last_end = address.wrapping_add(len as u64);
        Ok(())
    }

    fn put_number(&mut self, to: &mut impl DumpTarget, number: u64) -> io::Result<()> {
        let mut bytes = [0; MOST_NUMBER_BYTES];
        let len = put_number(number, &mut bytes);
        for &byte in &bytes[..len] {
            self.room(to)?[0] = byte;
            self.used += 1;
        }
        Ok(())
    }

    /// Room for at least one byte.
    fn room(&mut self, to: &mut impl DumpTarget) -> io::Result<&mut [u8]> {
        if self.used == CHUNK_PAYLOAD {
            self.write_chunk(to)?;
        }
        let from = HEAD_BYTES + self.used;
        Ok(&mut self.chunk[from..])
    }

    fn write_chunk(&mut self, to: &mut impl DumpTarget) -> io::Result<()> {
        let end = HEAD_BYTES + self.used;
        let checksum = checksum(&self.chunk[HEAD_BYTES..end], self.written).into();
        let head = ChunkHead { used: (self.used as u32).into(), reserved: 0.into(), checksum };
        self.chunk[..HEAD_BYTES].copy_from_slice(head.as_bytes());
        let whole = end.next_multiple_of(PAGE_BYTES);
        self.chunk[end..whole].fill(0);
        to.write(&self.chunk[..whole], LOG_OFFSET + self.written * UNIT_BYTES as u64)?;
        self.written += 1;
        self.used = 0;
        Ok(())
    }

    /// Writes what is left. Returns the bytes of the log; no more may be written.
    pub(crate) fn finish(&mut self, to: &mut impl DumpTarget) -> io::Result<u64> {
        let bytes = self.bytes();
        if self.used > 0 {
            self.write_chunk(to)?;
        }
        Ok(bytes)
    }
}
