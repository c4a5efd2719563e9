//! Up to what size values are packed: one number for each limit that a type declares.
//!
//! Knows the limits of no type. Those are declared in the type's folder (`value/<type>/limits.rs`) and listed in `value`; the
//! directives that set them are made from the same declarations.

use crate::encoding::Kind;

/// Limits that a type has at most.
const SLOTS: usize = 4;

/// Bytes that a packed value has at most, whatever the limits are: it is written, copied and unpacked in one step.
pub(crate) const PACKED_MAX_BYTES: usize = 512 << 10;
/// Items that a packed value has at most, whatever the limits are.
pub(crate) const PACKED_MAX_ITEMS: usize = 8192;

/// A limit of a type's values, and the directive that sets it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The type whose values it is for.
    pub(crate) kind: Kind,
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

/// The limits of all types. `Limits::default()` has every one at its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    slots: [[i64; SLOTS]; Kind::ALL.len()],
}

impl Limits {
    /// Every limit at its default.
    pub(crate) fn of(declared: impl Iterator<Item = &'static Limit>) -> Limits {
        let mut limits = Limits { slots: [[0; SLOTS]; Kind::ALL.len()] };
        declared.for_each(|limit| limits.set(limit, limit.default));
        limits
    }

    /// What a limit is that can't be negative.
    #[inline]
    pub fn get(&self, limit: &Limit) -> usize {
        usize::try_from(self.number(limit)).unwrap_or(0)
    }

    /// What a limit is.
    #[inline]
    pub fn number(&self, limit: &Limit) -> i64 {
        self.slots[limit.kind as usize][limit.slot]
    }

    /// Sets a limit; what exceeds a bound sets it to that.
    pub fn set(&mut self, limit: &Limit, value: i64) {
        self.slots[limit.kind as usize][limit.slot] = value.clamp(limit.min, limit.max);
    }

    /// The same limits but for one.
    #[must_use]
    pub fn with(mut self, limit: &Limit, value: usize) -> Limits {
        self.set(limit, i64::try_from(value).unwrap_or(i64::MAX));
        self
    }
}
