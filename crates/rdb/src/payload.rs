//! What DUMP gives and RESTORE takes: one value, the version of its form, and a checksum of both.
//!
//! Relies on `value` and `encoder` for the value itself.

use crate::checksum::checksum;
use crate::encoder::{Encoder, ValueKind};
use crate::error::{Cause, RdbError};
use crate::input::Input;
use crate::type_number::TypeNumber;
use crate::value::Value;
use crate::{NEWEST_READ, TTL_VERSION, WRITTEN_VERSION};

const FOOTER_BYTES: usize = 10;

/// Why a payload can't be restored.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// It is of a newer version, or not as it was written.
    #[error("the payload's version or checksum is wrong")]
    Footer,
    /// Its value can't be read.
    #[error(transparent)]
    Value(#[from] RdbError),
}

/// A payload whose checksum was found right.
#[derive(Debug)]
pub struct PayloadReader<'p> {
    input: Input<&'p [u8]>,
}

impl<'p> PayloadReader<'p> {
    /// Checks version and checksum.
    ///
    /// # Errors
    /// [`PayloadError::Footer`].
    pub fn open(payload: &'p [u8]) -> Result<Self, PayloadError> {
        let Some(body_len) = payload.len().checked_sub(FOOTER_BYTES) else { return Err(PayloadError::Footer) };
        let (body, footer) = payload.split_at(body_len);
        let version = u32::from(u16::from_le_bytes([footer[0], footer[1]]));
        let stored = footer[2..].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        if version > NEWEST_READ || checksum(&payload[..body_len + 2]) != stored {
            return Err(PayloadError::Footer);
        }
        Ok(Self { input: Input::new(body) })
    }

    /// What is to be read.
    pub(crate) fn input(&mut self) -> &mut Input<&'p [u8]> {
        &mut self.input
    }

    /// Begins to read the value.
    ///
    /// # Errors
    /// It is of no type that is known, or malformed.
    pub fn value(&mut self) -> Result<Value<'_, &'p [u8]>, RdbError> {
        let number = self.input.byte()?;
        if number > TypeNumber::LAST {
            return self.input.fail(Cause::Unsupported { what: "type of values", number: u64::from(number) });
        }
        Value::begin(&mut self.input, TypeNumber(number))
    }
}

/// Writes a payload.
#[derive(Debug)]
pub struct PayloadWriter {
    encoder: Encoder<Vec<u8>>,
    version: u32,
}

impl PayloadWriter {
    /// Begins the payload of a value of this kind.
    pub fn new(kind: ValueKind) -> Self {
        let mut encoder = Encoder::new(Vec::new());
        encoder.raw(&[kind.number()]);
        let version = if kind == ValueKind::TtlHash { TTL_VERSION } else { WRITTEN_VERSION };
        Self { encoder, version }
    }

    /// For the value.
    pub fn encoder(&mut self) -> &mut Encoder<Vec<u8>> {
        &mut self.encoder
    }

    /// The whole payload.
    pub fn finish(self) -> Vec<u8> {
        finish_payload(self.encoder, self.version)
    }
}

/// Writes version and checksum behind what was written.
pub(crate) fn finish_payload(mut encoder: Encoder<Vec<u8>>, version: u32) -> Vec<u8> {
    encoder.raw(&(version as u16).to_le_bytes());
    let sum = encoder.checksum();
    encoder.raw(&sum.to_le_bytes());
    // Memory is no sink that fails.
    encoder.finish().unwrap_or_default()
}
