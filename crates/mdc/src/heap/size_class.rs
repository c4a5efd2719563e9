//! The sizes that objects of a pool have: multiples of 16 up to 128 bytes, from there on four sizes for each doubling.
//!
//! Relies on nothing.

/// Sizes up to [`EVEN_BYTES`].
const EVEN: usize = 8;
const EVEN_BYTES: usize = 128;
/// Sizes for each doubling.
const STEPS: usize = 4;
/// The largest small size: objects of it and below share spans.
pub(crate) const MOST_SMALL_BYTES: usize = 32 << 10;
/// How many small sizes there are.
pub(crate) const SMALL_CLASSES: usize = class_of(MOST_SMALL_BYTES) + 1;
/// How many sizes there are, up to 2^47 bytes.
pub(crate) const CLASSES: usize = class_of(1 << 47) + 1;

/// The first class whose objects have room for `bytes`.
pub(crate) const fn class_of(bytes: usize) -> usize {
    if bytes <= EVEN_BYTES {
        return if bytes == 0 { 0 } else { (bytes - 1) / 16 };
    }
    // 2^power < bytes <= 2^(power + 1), in steps of a quarter of 2^power.
    let power = (bytes - 1).ilog2() as usize;
    let step = (bytes - 1 - (1 << power)) >> (power - 2);
    EVEN + (power - 7) * STEPS + step
}

/// Bytes of an object of `class`.
pub(crate) const fn bytes_of(class: usize) -> usize {
    if class < EVEN {
        return (class + 1) * 16;
    }
    let (power, step) = ((class - EVEN) / STEPS + 7, (class - EVEN) % STEPS);
    (1 << power) + ((step + 1) << (power - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_first_class_with_room_for_it() {
        let mut last = 0;
        for bytes in (1..70_000).chain([1 << 30, (1 << 30) + 1, (1 << 46) - 5, 1 << 47]) {
            let class = class_of(bytes);
            assert!(class >= last && bytes_of(class) >= bytes, "{bytes}");
            assert!(class == 0 || bytes_of(class - 1) < bytes, "{bytes}");
            assert!(bytes_of(class).is_multiple_of(16) && bytes_of(class) <= bytes + bytes / 4 + 16, "{bytes}");
            last = class;
        }
        assert_eq!((bytes_of(SMALL_CLASSES - 1), bytes_of(CLASSES - 1)), (MOST_SMALL_BYTES, 1 << 47));
    }
}
