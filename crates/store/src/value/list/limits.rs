//! The limit of a list's nodes, and of packed lists.

use crate::encoding::ValueType;
use crate::limits::EncodingLimit;

/// Largest size of a node: bytes by level if negative, elements otherwise.
pub const MAX_NODE: EncodingLimit = EncodingLimit {
    kind: ValueType::List,
    slot: 0,
    name: "list-max-listpack-size",
    aliases: &["list-max-ziplist-size"],
    min: i32::MIN as i64,
    default: -2,
    max: i32::MAX as i64,
    doc: "Size up to which a list is stored packed, and of each node of a longer one: -1 to -5 stand for 4, 8, 16, 32 and 64 KiB, a positive number for so many elements of 8 KiB at most.",
};

/// All of them.
pub(crate) static ALL: &[EncodingLimit] = &[MAX_NODE];

/// Bytes that the levels -1 to -5 stand for.
const LEVEL_BYTES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Bytes of a node whose elements are counted.
const COUNTED_BYTES: usize = 8 << 10;

/// How large a node may get, as the directive says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeLimit {
    bytes: usize,
    elements: usize,
}

impl NodeLimit {
    pub(super) fn of(setting: i64) -> NodeLimit {
        match usize::try_from(setting) {
            Ok(elements) => NodeLimit { bytes: COUNTED_BYTES, elements: elements.max(1) },
            Err(_) => {
                let level = setting.unsigned_abs().min(LEVEL_BYTES.len() as u64) as usize;
                NodeLimit { bytes: LEVEL_BYTES[level - 1], elements: usize::MAX }
            }
        }
    }

    /// Whether so many elements may lie in so many bytes.
    pub(super) fn allows(&self, bytes: usize, elements: usize) -> bool {
        bytes <= self.bytes && elements <= self.elements
    }

    /// The limit below which a list that gets shorter is packed again: half of this, so that one which grows and shrinks by
    /// turns is not converted each time.
    pub(super) fn half(&self) -> NodeLimit {
        let elements = if self.elements == usize::MAX { usize::MAX } else { self.elements / 2 };
        NodeLimit { bytes: if self.elements == usize::MAX { self.bytes / 2 } else { self.bytes }, elements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_bytes_and_other_settings_are_elements() {
        for (setting, bytes) in [(-1, 4096), (-2, 8192), (-3, 16384), (-4, 32768), (-5, 65536), (i64::MIN, 65536)] {
            let limit = NodeLimit::of(setting);
            assert!(limit.allows(bytes, 60_000) && !limit.allows(bytes + 1, 1), "{setting}");
        }
        assert!(
            NodeLimit::of(3).allows(8192, 3) && !NodeLimit::of(3).allows(10, 4) && !NodeLimit::of(3).allows(8193, 1)
        );
        assert!(NodeLimit::of(0).allows(10, 1) && !NodeLimit::of(0).allows(10, 2));
        assert_eq!(NodeLimit::of(-2).half(), NodeLimit { bytes: 4096, elements: usize::MAX });
    }
}
