//! The names of types and of the encodings that their values have. What each does is known to `value` alone.

use crate::error::{Result, StoreError};

/// The type of a value, as TYPE shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueType {
    /// A string of bytes.
    String,
    /// A map from fields to values.
    Hash,
    /// Different members without order.
    Set,
    /// Elements in order, with two ends.
    List,
    /// Different members in the order of their scores.
    Zset,
    /// Entries in the order of their IDs, and groups that read them.
    Stream,
}

impl ValueType {
    /// All types, in the order of their numbers.
    pub const ALL: [ValueType; 6] =
        [ValueType::String, ValueType::Hash, ValueType::Set, ValueType::List, ValueType::Zset, ValueType::Stream];

    /// Redis' name of the type.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::String => "string",
            ValueType::Hash => "hash",
            ValueType::Set => "set",
            ValueType::List => "list",
            ValueType::Zset => "zset",
            ValueType::Stream => "stream",
        }
    }

    /// The type of this name, in any case.
    pub fn of_name(name: &[u8]) -> Option<ValueType> {
        ValueType::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
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
    /// Integers in order, see `value::set::ints`.
    IntSet = 4,
    /// Members one after the other, see `value::set::packed`.
    PackedSet = 5,
    /// The head of a table of members.
    TableSet = 6,
    /// Elements one after the other, see `value::list::whole`.
    PackedList = 7,
    /// The head of a table of nodes, see `value::list::nodes`.
    NodeList = 8,
    /// Scores and members in order, see `value::zset::packed`.
    PackedZset = 9,
    /// The head of a table of members and of the nodes of a tree, see `value::zset::nodes`.
    TreeZset = 10,
    /// Entries one after the other, see `value::stream::packed`.
    PackedStream = 11,
    /// The head of a table of blocks, groups, consumers and the nodes of an index, see `value::stream::items`.
    TreeStream = 12,
    /// Fields one after the other, some of which have times to live, see `value::hash::packed_ttl`.
    PackedTtlHash = 13,
    /// The head of a table of fields, some of which have times to live, and of the nodes of a tree, see `value::hash::ttl_table`.
    TableTtlHash = 14,
}

/// The encodings of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashEncoding {
    Packed,
    Table,
    PackedTtl,
    TableTtl,
}

/// The encodings of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetEncoding {
    Ints,
    Packed,
    Table,
}

/// The encodings of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEncoding {
    Packed,
    Nodes,
}

/// The encodings of sorted sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZsetEncoding {
    Packed,
    Tree,
}

/// The encodings of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEncoding {
    Packed,
    Tree,
}

impl Encoding {
    /// Which encoding of hashes this is; those of other types are refused.
    #[inline]
    pub(crate) fn of_hash(self) -> Result<HashEncoding> {
        match self {
            Encoding::PackedHash => Ok(HashEncoding::Packed),
            Encoding::TableHash => Ok(HashEncoding::Table),
            Encoding::PackedTtlHash => Ok(HashEncoding::PackedTtl),
            Encoding::TableTtlHash => Ok(HashEncoding::TableTtl),
            Encoding::String
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::TableSet
            | Encoding::PackedList
            | Encoding::NodeList
            | Encoding::PackedZset
            | Encoding::TreeZset
            | Encoding::PackedStream
            | Encoding::TreeStream => Err(StoreError::WrongType),
        }
    }

    /// Which encoding of sets this is; those of other types are refused.
    #[inline]
    pub(crate) fn of_set(self) -> Result<SetEncoding> {
        match self {
            Encoding::IntSet => Ok(SetEncoding::Ints),
            Encoding::PackedSet => Ok(SetEncoding::Packed),
            Encoding::TableSet => Ok(SetEncoding::Table),
            Encoding::String
            | Encoding::PackedHash
            | Encoding::TableHash
            | Encoding::PackedTtlHash
            | Encoding::TableTtlHash
            | Encoding::PackedList
            | Encoding::NodeList
            | Encoding::PackedZset
            | Encoding::TreeZset
            | Encoding::PackedStream
            | Encoding::TreeStream => Err(StoreError::WrongType),
        }
    }

    /// Which encoding of lists this is; those of other types are refused.
    #[inline]
    pub(crate) fn of_list(self) -> Result<ListEncoding> {
        match self {
            Encoding::PackedList => Ok(ListEncoding::Packed),
            Encoding::NodeList => Ok(ListEncoding::Nodes),
            Encoding::String
            | Encoding::PackedHash
            | Encoding::TableHash
            | Encoding::PackedTtlHash
            | Encoding::TableTtlHash
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::TableSet
            | Encoding::PackedZset
            | Encoding::TreeZset
            | Encoding::PackedStream
            | Encoding::TreeStream => Err(StoreError::WrongType),
        }
    }

    /// Which encoding of sorted sets this is; those of other types are refused.
    #[inline]
    pub(crate) fn of_zset(self) -> Result<ZsetEncoding> {
        match self {
            Encoding::PackedZset => Ok(ZsetEncoding::Packed),
            Encoding::TreeZset => Ok(ZsetEncoding::Tree),
            Encoding::String
            | Encoding::PackedHash
            | Encoding::TableHash
            | Encoding::PackedTtlHash
            | Encoding::TableTtlHash
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::TableSet
            | Encoding::PackedList
            | Encoding::NodeList
            | Encoding::PackedStream
            | Encoding::TreeStream => Err(StoreError::WrongType),
        }
    }

    /// Which encoding of streams this is; those of other types are refused.
    #[inline]
    pub(crate) fn of_stream(self) -> Result<StreamEncoding> {
        match self {
            Encoding::PackedStream => Ok(StreamEncoding::Packed),
            Encoding::TreeStream => Ok(StreamEncoding::Tree),
            Encoding::String
            | Encoding::PackedHash
            | Encoding::TableHash
            | Encoding::PackedTtlHash
            | Encoding::TableTtlHash
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::TableSet
            | Encoding::PackedList
            | Encoding::NodeList
            | Encoding::PackedZset
            | Encoding::TreeZset => Err(StoreError::WrongType),
        }
    }

    #[inline]
    pub(crate) fn from_raw(raw: u8) -> Result<Encoding> {
        match raw {
            1 => Ok(Encoding::String),
            2 => Ok(Encoding::PackedHash),
            3 => Ok(Encoding::TableHash),
            4 => Ok(Encoding::IntSet),
            5 => Ok(Encoding::PackedSet),
            6 => Ok(Encoding::TableSet),
            7 => Ok(Encoding::PackedList),
            8 => Ok(Encoding::NodeList),
            9 => Ok(Encoding::PackedZset),
            10 => Ok(Encoding::TreeZset),
            11 => Ok(Encoding::PackedStream),
            12 => Ok(Encoding::TreeStream),
            13 => Ok(Encoding::PackedTtlHash),
            14 => Ok(Encoding::TableTtlHash),
            0 => Err(StoreError::damaged("an entry without an encoding")),
            newer => Err(StoreError::newer(format!("a value of encoding {newer}"))),
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> ValueType {
        match self {
            Encoding::String => ValueType::String,
            Encoding::PackedHash | Encoding::TableHash | Encoding::PackedTtlHash | Encoding::TableTtlHash => {
                ValueType::Hash
            }
            Encoding::IntSet | Encoding::PackedSet | Encoding::TableSet => ValueType::Set,
            Encoding::PackedList | Encoding::NodeList => ValueType::List,
            Encoding::PackedZset | Encoding::TreeZset => ValueType::Zset,
            Encoding::PackedStream | Encoding::TreeStream => ValueType::Stream,
        }
    }

    /// Whether the value is the head of a table, which always lies in its entry.
    #[inline]
    pub(crate) fn is_table(self) -> bool {
        match self {
            Encoding::String
            | Encoding::PackedHash
            | Encoding::PackedTtlHash
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::PackedList
            | Encoding::PackedZset
            | Encoding::PackedStream => false,
            Encoding::TableHash
            | Encoding::TableTtlHash
            | Encoding::TableSet
            | Encoding::NodeList
            | Encoding::TreeZset
            | Encoding::TreeStream => true,
        }
    }

    /// Whether subkeys of the value have times to live, so that the keyspace has it in the index of such values.
    #[inline]
    pub(crate) fn has_expiring_subkeys(self) -> bool {
        match self {
            Encoding::PackedTtlHash | Encoding::TableTtlHash => true,
            Encoding::String
            | Encoding::PackedHash
            | Encoding::TableHash
            | Encoding::IntSet
            | Encoding::PackedSet
            | Encoding::TableSet
            | Encoding::PackedList
            | Encoding::NodeList
            | Encoding::PackedZset
            | Encoding::TreeZset
            | Encoding::PackedStream
            | Encoding::TreeStream => false,
        }
    }
}
