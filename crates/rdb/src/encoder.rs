//! Lengths, strings and scores, written. A sink that fails is noted, and told at the end.
//!
//! Relies on `lzf` for strings that get shorter by it.

use std::io::{self, Write};

use crate::checksum::Checksum;
use crate::listpack::plain_int;
use crate::lzf;
use crate::type_number::TypeNumber;

/// Shorter strings are not compressed, as in Redis.
const LEAST_COMPRESSED: usize = 21;
/// Longer ones neither: the compressor's places are numbers of 32 bits.
const MOST_COMPRESSED: usize = 256 << 20;

/// The kind of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Follows as one string.
    String,
    /// Follows as a length, and so many strings.
    List,
    /// Follows as a length, and so many strings.
    Set,
    /// Follows as a length, and so many fields and values.
    Hash,
    /// Follows as [`Encoder::first_expiry`], a length, and so many fields and values, each with a [`Encoder::field_expiry`] before it.
    /// Versions before [`crate::TTL_VERSION`] have no such values.
    TtlHash,
    /// Follows as a length, and so many strings and scores.
    Zset,
    /// Follows as a [`crate::StreamPacker`] writes it.
    Stream,
}

impl ValueKind {
    pub(crate) fn number(self) -> u8 {
        match self {
            ValueKind::String => TypeNumber::STRING,
            ValueKind::List => TypeNumber::LIST,
            ValueKind::Set => TypeNumber::SET,
            ValueKind::Hash => TypeNumber::HASH,
            ValueKind::TtlHash => TypeNumber::HASH_TTL,
            ValueKind::Zset => TypeNumber::ZSET,
            ValueKind::Stream => TypeNumber::STREAM_2,
        }
    }
}

/// Writes the parts of values.
#[derive(Debug)]
pub struct Encoder<W> {
    out: W,
    checksum: Checksum,
    compresses: bool,
    failed: Option<io::Error>,
}

impl<W: Write> Encoder<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, checksum: Checksum::default(), compresses: true, failed: None }
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.checksum.update(bytes);
            self.failed = self.out.write_all(bytes).err();
        }
    }

    /// What the sink said when it failed, if it has.
    ///
    /// # Errors
    /// That.
    pub fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    pub(crate) fn checksum(&self) -> u64 {
        self.checksum.value()
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.check()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// A length, or another number that is written as one.
    pub fn length(&mut self, length: u64) {
        match length {
            0..=0x3f => self.raw(&[length as u8]),
            0x40..=0x3fff => self.raw(&[0x40 | (length >> 8) as u8, length as u8]),
            0x4000..=0xffff_ffff => {
                self.raw(&[0x80]);
                self.raw(&(length as u32).to_be_bytes());
            }
            _ => {
                self.raw(&[0x81]);
                self.raw(&length.to_be_bytes());
            }
        }
    }

    /// A string: as a number where it is a small one, compressed where that makes it shorter.
    pub fn string(&mut self, bytes: &[u8]) {
        if let Some(number) = plain_int(bytes) {
            if let Ok(number) = i8::try_from(number) {
                return self.raw(&[0xc0, number as u8]);
            } else if let Ok(number) = i16::try_from(number) {
                self.raw(&[0xc1]);
                return self.raw(&number.to_le_bytes());
            } else if let Ok(number) = i32::try_from(number) {
                self.raw(&[0xc2]);
                return self.raw(&number.to_le_bytes());
            }
        }
        if self.compresses
            && (LEAST_COMPRESSED..=MOST_COMPRESSED).contains(&bytes.len())
            && let Some(packed) = lzf::compress(bytes)
        {
            self.raw(&[0xc3]);
            self.length(packed.len() as u64);
            self.length(bytes.len() as u64);
            return self.raw(&packed);
        }
        self.length(bytes.len() as u64);
        self.raw(bytes);
    }

    /// An instant before which no field of the hash expires, in Unix milliseconds.
    pub fn first_expiry(&mut self, first_ms: i64) {
        self.raw(&first_ms.to_le_bytes());
    }

    /// When the field expires that is written next, not before that instant.
    pub fn field_expiry(&mut self, expire_ms: Option<i64>, first_ms: i64) {
        self.length(expire_ms.map_or(0, |at_ms| at_ms.saturating_sub(first_ms).max(0) as u64 + 1));
    }

    /// The score of a member that has been written.
    pub fn score(&mut self, score: f64) {
        self.raw(&score.to_le_bytes());
    }
}
