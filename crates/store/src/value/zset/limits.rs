//! The limits up to which sorted sets are packed.

use crate::encoding::ValueType;
use crate::limits::{EncodingLimit, PACKED_MAX_ITEMS};

/// A sorted set of more members becomes a tree.
pub const MAX_PACKED_MEMBERS: EncodingLimit = EncodingLimit {
    kind: ValueType::Zset,
    slot: 0,
    name: "zset-max-listpack-entries",
    aliases: &["zset-max-ziplist-entries"],
    min: 0,
    default: 128,
    max: PACKED_MAX_ITEMS as i64,
    doc: "Members up to which a sorted set is stored packed; one of more than 512 KiB never is.",
};

/// A sorted set with a longer member becomes a tree.
pub const MAX_PACKED_LEN: EncodingLimit = EncodingLimit {
    kind: ValueType::Zset,
    slot: 1,
    name: "zset-max-listpack-value",
    aliases: &["zset-max-ziplist-value"],
    min: 0,
    default: 64,
    max: 8192,
    doc: "Length up to which a member of a sorted set may be stored packed.",
};

/// All of them.
pub(crate) static ALL: &[EncodingLimit] = &[MAX_PACKED_MEMBERS, MAX_PACKED_LEN];
