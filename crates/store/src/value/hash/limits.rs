//! The limits up to which hashes are packed.

use crate::encoding::ValueType;
use crate::limits::EncodingLimit;

/// A hash of more fields becomes a table.
pub const MAX_PACKED_FIELDS: EncodingLimit = EncodingLimit {
    kind: ValueType::Hash,
    slot: 0,
    name: "hash-max-listpack-entries",
    aliases: &["hash-max-ziplist-entries"],
    min: 0,
    default: 128,
    max: i64::MAX,
    doc: "Fields up to which a hash is stored packed (Redis: 512; a packed hash is searched from its beginning); one of more than \
          8192 fields or 512 KiB never is.",
};

/// A hash with a longer field or value becomes a table.
pub const MAX_PACKED_LEN: EncodingLimit = EncodingLimit {
    kind: ValueType::Hash,
    slot: 1,
    name: "hash-max-listpack-value",
    aliases: &["hash-max-ziplist-value"],
    min: 0,
    default: 64,
    max: i64::MAX,
    doc: "Length up to which a field or value may be stored packed.",
};

/// All of them.
pub(crate) static ALL: &[EncodingLimit] = &[MAX_PACKED_FIELDS, MAX_PACKED_LEN];
