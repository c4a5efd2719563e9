//! The limits up to which entries are packed together.

use crate::encoding::ValueType;
use crate::limits::EncodingLimit;

/// A block of entries that would get so many bytes is followed by another one.
pub const MAX_BLOCK_BYTES: EncodingLimit = EncodingLimit {
    kind: ValueType::Stream,
    slot: 0,
    name: "stream-node-max-bytes",
    aliases: &[],
    min: 0,
    default: 4096,
    max: i64::MAX,
    doc: "Bytes that entries of a stream take together at most, counted as Redis counts them, before a node is full; 0 is no limit. A node of more than 512 KiB always is.",
};

/// A block of so many entries is followed by another one.
pub const MAX_BLOCK_ENTRIES: EncodingLimit = EncodingLimit {
    kind: ValueType::Stream,
    slot: 1,
    name: "stream-node-max-entries",
    aliases: &[],
    min: 0,
    default: 100,
    max: i64::MAX,
    doc: "Entries that a node of a stream has before it is full, deleted ones included; 0 is no limit. A node of 8192 entries always is.",
};

/// All of them.
pub(crate) static ALL: &[EncodingLimit] = &[MAX_BLOCK_BYTES, MAX_BLOCK_ENTRIES];
