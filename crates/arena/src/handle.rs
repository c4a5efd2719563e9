//! Names of objects in an arena.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes that a handle counts in.
pub const GRANULE: usize = 16;

/// Place of an object: its offset in granules of 16 bytes, so 64 GiB can be named. Plain data, fit to lie in an arena.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Handle(u32);

impl Handle {
    /// Names no object.
    pub const NULL: Self = Self(0);

    /// Whether this names no object.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The number behind the handle.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// A handle of that number. It may name nothing: every use is checked.
    #[inline]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Offset of the object from the arena's base, in bytes.
    #[inline]
    pub(crate) const fn offset(self) -> usize {
        self.0 as usize * GRANULE
    }

    /// The handle of the object at `offset`, which is a multiple of [`GRANULE`] below 64 GiB.
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(GRANULE));
        Self((offset / GRANULE) as u32)
    }
}
