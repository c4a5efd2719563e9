//! Up to what size values are packed: one number for each limit that a type declares.
//!
//! Knows the limits of no type. Those are declared in the type's folder (`value/<type>/limits.rs`) and listed in `value`; the
//! directives that set them are made from the same declarations.

use crate::encoding::ValueType;

/// Limits that a type has at most.
const SLOTS: usize = 4;

/// Bytes that a packed value has at most, whatever the limits are: it is written, copied and unpacked in one step.
pub(crate) const PACKED_MAX_BYTES: usize = 512 << 10;
/// Items that a packed value has at most, whatever the limits are.
pub(crate) const PACKED_MAX_ITEMS: usize = 8192;

/// A limit of a type's values, and the directive that sets it.
#[derive(Clone, Copy, Debug)]
pub struct EncodingLimit {
    /// The type whose values it is for.
    pub(crate) kind: ValueType,
    /// Its place among the type's limits.
    pub(crate) slot: usize,
    /// The directive's name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// The smallest that it may be set to.
    pub min: i64,
    /// What it is if it isn't set.
    pub default: i64,
    /// The largest that it may be set to.
    pub max: i64,
    /// What it is for, in a line.
    pub doc: &'static str,
}

/// The limits of all types. `EncodingLimits::default()` has every one at its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingLimits {
    slots: [[i64; SLOTS]; ValueType::ALL.len()],
}

impl EncodingLimits {
    /// Every limit at its default.
    pub(crate) fn of(declared: impl Iterator<Item = &'static EncodingLimit>) -> EncodingLimits {
        let mut limits = EncodingLimits { slots: [[0; SLOTS]; ValueType::ALL.len()] };
        declared.for_each(|limit| limits.set(limit, limit.default));
        limits
    }

    /// What a limit is that can't be negative.
    #[inline]
    pub fn get(&self, limit: &EncodingLimit) -> usize {
        usize::try_from(self.number(limit)).unwrap_or(0)
    }

    /// What a limit is.
    #[inline]
    pub fn number(&self, limit: &EncodingLimit) -> i64 {
        self.slots[limit.kind as usize][limit.slot]
    }

    /// Sets a limit; what exceeds a bound sets it to that.
    pub fn set(&mut self, limit: &EncodingLimit, value: i64) {
        self.slots[limit.kind as usize][limit.slot] = value.clamp(limit.min, limit.max);
    }

    /// The same limits but for one.
    #[must_use]
    pub fn with(mut self, limit: &EncodingLimit, value: usize) -> EncodingLimits {
        self.set(limit, i64::try_from(value).unwrap_or(i64::MAX));
        self
    }
}
