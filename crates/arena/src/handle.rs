//! Names of objects in an arena, and the ways in which they lie in its bytes.
//!
//! A handle has 36 bits. All of those below [`NARROW_BYTES`] have 32, and lie there as a `u32` wherever they lie: bytes of an arena that
//! reaches no further are what they were when handles had no more. The four bits above have one of two places, which the owner chooses:
//!
//! - beside the lower 32 bits, where the owner has four bits to spare ([`Handle::low`], [`Handle::high`]);
//! - in the lowest four of the 32, which are zero in the handle of an object that lies at a multiple of 256 bytes
//!   ([`Handle::to_aligned`]). So does every object of 4 KiB and more, and every one whose class is a multiple of 256.

/// Bytes that a handle counts in.
pub const GRANULE: usize = 16;
/// Bytes that handles of 32 bits can name.
pub const NARROW_BYTES: u64 = (1 << 32) * GRANULE as u64;
/// Bytes that handles can name: 1 TiB.
pub const MAX_BYTES: u64 = (1 << BITS) * GRANULE as u64;
/// An object that was asked for with so many bytes or more has an [aligned handle](Handle::to_aligned).
pub const ALIGNED_MIN: usize = 4097;

const BITS: u32 = 36;
const MASK: u64 = (1 << BITS) - 1;
/// What the handle of an aligned object has in the place of the four upper bits.
const ALIGNED_MASK: u32 = 0xf;

/// Place of an object: its offset in granules of 16 bytes, so 1 TiB can be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// Names no object.
    pub const NULL: Self = Self(0);

    /// Whether this names no object.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Whether 32 bits are enough for it.
    #[inline]
    pub const fn is_narrow(self) -> bool {
        self.0 >> 32 == 0
    }

    /// The number behind the handle.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A handle of that number, of which the lower 36 bits count. It may name nothing: every use is checked.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw & MASK)
    }

    /// The lower 32 bits.
    #[inline]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The four bits above.
    #[inline]
    pub const fn high(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// The handle of [`Handle::low`] and [`Handle::high`], of which four bits count.
    #[inline]
    pub const fn from_parts(low: u32, high: u8) -> Self {
        Self::from_raw(low as u64 | (high as u64) << 32)
    }

    /// Whether the object lies at a multiple of 256 bytes, as far as the handle tells.
    #[inline]
    pub const fn is_aligned(self) -> bool {
        self.low() & ALIGNED_MASK == 0
    }

    /// The handle of an object at a multiple of 256 bytes in 32 bits; `None` if the object lies elsewhere.
    #[inline]
    pub const fn to_aligned(self) -> Option<u32> {
        if self.is_aligned() { Some(self.low() | self.high() as u32) } else { None }
    }

    /// The handle that [`Handle::to_aligned`] has made these bits of. Of a handle of 32 bits these are the handle.
    #[inline]
    pub const fn from_aligned(bits: u32) -> Self {
        Self::from_parts(bits & !ALIGNED_MASK, (bits & ALIGNED_MASK) as u8)
    }

    /// Offset of the object from the arena's base, in bytes.
    #[inline]
    pub(crate) const fn offset(self) -> usize {
        self.0 as usize * GRANULE
    }

    /// The handle of the object at `offset`, which is a multiple of [`GRANULE`] below [`MAX_BYTES`].
    #[inline]
    pub(crate) const fn at(offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(GRANULE) && (offset as u64) < MAX_BYTES);
        Self((offset / GRANULE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_the_same_whichever_way_its_upper_bits_lie() {
        for raw in [0, 16, 0x1230, 0xffff_fff0, 1 << 32, 0xf_ffff_fff0, 0xa_0000_0010] {
            let handle = Handle::from_raw(raw);
            assert_eq!(Handle::from_parts(handle.low(), handle.high()), handle);
            assert_eq!(handle.to_aligned().map(Handle::from_aligned), Some(handle));
            assert_eq!(handle.is_narrow(), raw < 1 << 32);
            assert_eq!(Handle::from_raw(raw + 8).to_aligned(), None);
        }
    }

    #[test]
    fn handles_of_32_bits_lie_as_they_always_did() {
        for raw in [0u32, 0x10, 0xffff_fff0] {
            let handle = Handle::from_raw(raw.into());
            assert_eq!((handle.low(), handle.high(), handle.to_aligned()), (raw, 0, Some(raw)));
        }
    }

    #[test]
    fn no_bits_make_a_handle_beyond_the_last_byte() {
        for handle in
            [Handle::from_raw(u64::MAX), Handle::from_parts(u32::MAX, u8::MAX), Handle::from_aligned(u32::MAX)]
        {
            assert!((handle.offset() as u64) < MAX_BYTES);
        }
    }
}
