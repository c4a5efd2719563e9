//! What FUNCTION DUMP gives and FUNCTION RESTORE takes: the code of libraries of functions, the version of its form, and a checksum
//! of both.
//!
//! Relies on `payload` for version and checksum.

use crate::WRITTEN_VERSION;
use crate::encoder::Encoder;
use crate::error::{Cause, RdbError};
use crate::payload::{PayloadReader, finish_payload};
use crate::type_number::opcode;

/// Why libraries can't be read from a payload.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It holds something else.
    #[error("something stands where a library of functions should")]
    Foreign,
    /// It is in the form that the release candidates of redis-server 7.0 had.
    #[error("a library of functions in an early form")]
    EarlyForm,
    /// The code can't be read.
    #[error(transparent)]
    Code(#[from] RdbError),
}

/// Writes libraries, in this order.
pub fn write_libraries<'c>(codes: impl IntoIterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    for code in codes {
        encoder.raw(&[opcode::FUNCTION]);
        encoder.string(code);
    }
    finish_payload(encoder, WRITTEN_VERSION)
}

impl PayloadReader<'_> {
    /// The code of the next library; `None` behind the last one.
    ///
    /// # Errors
    /// [`LibraryError`]; nothing can be read behind it.
    pub fn next_library(&mut self) -> Result<Option<Vec<u8>>, LibraryError> {
        let input = self.input();
        if input.is_at_end()? {
            return Ok(None);
        }
        match input.byte()? {
            opcode::FUNCTION => Ok(Some(input.string()?)),
            opcode::FUNCTION_EARLY => Err(LibraryError::EarlyForm),
            _ => Err(LibraryError::Foreign),
        }
    }
}

/// The code of all libraries of a payload.
///
/// # Errors
/// [`LibraryError`]; a wrong version or checksum is [`Cause::Malformed`].
pub fn read_libraries(payload: &[u8]) -> Result<Vec<Vec<u8>>, LibraryError> {
    let footer = |_| RdbError { offset: payload.len() as u64, cause: Cause::Malformed("a wrong version or checksum") };
    let mut reader = PayloadReader::open(payload).map_err(footer)?;
    let mut codes = Vec::new();
    while let Some(code) = reader.next_library()? {
        codes.push(code);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    fn payload(body: &[u8]) -> Vec<u8> {
        let mut payload = [body, &10u16.to_le_bytes()].concat();
        payload.extend_from_slice(&checksum(&payload).to_le_bytes());
        payload
    }

    #[test]
    fn libraries_come_back_in_their_order() {
        let long = b"#!lua name=b\n".repeat(100);
        let codes = [&b"#!lua name=a\nx"[..], &long[..], b"", b"12"];
        assert_eq!(read_libraries(&write_libraries(codes)).unwrap(), codes);
        assert!(read_libraries(&write_libraries([])).unwrap().is_empty());
        assert_eq!(write_libraries([&b"abc"[..]]), payload(b"\xf5\x03abc"));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        assert!(matches!(read_libraries(&payload(b"\x00\x01a")), Err(LibraryError::Foreign)));
        assert!(matches!(read_libraries(&payload(b"\xf6\x01a")), Err(LibraryError::EarlyForm)));
        assert!(matches!(read_libraries(&payload(b"\xf5\x05a")), Err(LibraryError::Code(_))));
        let whole = write_libraries([&b"#!lua name=a\n"[..]]);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(read_libraries(&damaged).is_err(), "{at}");
            assert!(read_libraries(&whole[..at]).is_err(), "{at}");
        }
    }
}
