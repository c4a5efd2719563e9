//! The names of types and of the encodings that their values have. What each does is known to `value` alone.

use crate::error::{Result, StoreError};

/// The type of a value, as TYPE shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// A map from fields to values.
    Hash,
}

impl Kind {
    /// Redis' name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
        }
    }
}

/// Type and encoding of a value, as an entry's header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    /// Bytes.
    String = 1,
    /// Fields one after the other, see `value::hash::packed`.
    PackedHash = 2,
    /// The head of a table of fields.
    TableHash = 3,
}

impl Encoding {
    #[inline]
    pub(crate) fn from_raw(raw: u8) -> Result<Encoding> {
        match raw {
            1 => Ok(Encoding::String),
            2 => Ok(Encoding::PackedHash),
            3 => Ok(Encoding::TableHash),
            0 => Err(StoreError::damaged("an entry without an encoding")),
            newer => Err(StoreError::newer(format!("a value of encoding {newer}"))),
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self {
            Encoding::String => Kind::String,
            Encoding::PackedHash | Encoding::TableHash => Kind::Hash,
        }
    }

    /// Whether the value is the head of a table, which always lies in its entry.
    #[inline]
    pub(crate) fn is_table(self) -> bool {
        match self {
            Encoding::String | Encoding::PackedHash => false,
            Encoding::TableHash => true,
        }
    }
}
