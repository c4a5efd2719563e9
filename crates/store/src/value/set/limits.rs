//! The limits up to which sets are sorted integers, or packed.

use crate::encoding::ValueType;
use crate::limits::{EncodingLimit, PACKED_MAX_ITEMS};

/// A set of more integers becomes a table.
pub const MAX_INTS: EncodingLimit = EncodingLimit {
    kind: ValueType::Set,
    slot: 0,
    name: "set-max-intset-entries",
    aliases: &[],
    min: 0,
    default: 512,
    max: PACKED_MAX_ITEMS as i64,
    doc: "Members up to which a set of integers is stored as sorted integers.",
};

/// A set of more members becomes a table.
pub const MAX_PACKED_MEMBERS: EncodingLimit = EncodingLimit {
    kind: ValueType::Set,
    slot: 1,
    name: "set-max-listpack-entries",
    aliases: &[],
    min: 0,
    default: 128,
    max: PACKED_MAX_ITEMS as i64,
    doc: "Members up to which a set is stored packed; one of more than 512 KiB never is.",
};

/// A set with a longer member becomes a table.
pub const MAX_PACKED_LEN: EncodingLimit = EncodingLimit {
    kind: ValueType::Set,
    slot: 2,
    name: "set-max-listpack-value",
    aliases: &[],
    min: 0,
    default: 64,
    max: 8192,
    doc: "Length up to which a member may be stored packed.",
};

/// All of them.
pub(crate) static ALL: &[EncodingLimit] = &[MAX_INTS, MAX_PACKED_MEMBERS, MAX_PACKED_LEN];
