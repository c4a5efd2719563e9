//! The limits up to which hashes are packed.

use crate::encoding::Kind;
use crate::limits::Limit;

/// A hash of more fields becomes a table.
pub const MAX_PACKED_FIELDS: Limit = Limit {
    kind: Kind::Hash,
    slot: 0,
    name: "hash-max-listpack-entries",
    aliases: &["hash-max-ziplist-entries"],
    min: 0,
    default: 128,
    max: i64::MAX,
    doc: "Fields up to which a hash is stored packed; one of more than 8192 fields or 512 KiB never is.",
};

/// A hash with a longer field or value becomes a table.
pub const MAX_PACKED_LEN: Limit = Limit {
    kind: Kind::Hash,
    slot: 1,
    name: "hash-max-listpack-value",
    aliases: &["hash-max-ziplist-value"],
    min: 0,
    default: 64,
    max: i64::MAX,
    doc: "Length up to which a field or value may be stored packed.",
};

/// All of them.
pub(crate) static ALL: &[Limit] = &[MAX_PACKED_FIELDS, MAX_PACKED_LEN];
