//! Structures that grow at their end from version to version, and say by their first field which one they are, as the kernel's
//! extensible structures do (`copy_struct_from_user`).
//!
//! Relies on each being nothing but integers without gaps, the first of them its `struct_size`: so any bytes are a valid
//! one, and bytes that one side doesn't have are zero.

use std::mem::MaybeUninit;

use crate::api_error::ApiError;
use crate::boundary;

/// No structure of any version is larger; a larger one was never initialised.
const MOST_BYTES: usize = 4096;

/// A structure that later versions may extend at its end.
///
/// # Safety
/// It is `repr(C)`, of integers only, without padding, and begins with a `usize` that holds its size.
pub unsafe trait ExtensibleStruct: Copy {}

/// Reads the structure of whichever version lies at `from`.
///
/// # Safety
/// Unless it is null or unaligned, `from` leads to a `usize` that says how many bytes there may be read.
pub unsafe fn read<T: ExtensibleStruct>(argument: &'static str, from: *const T) -> Result<T, ApiError> {
    boundary::check(argument, from)?;
    // SAFETY: `check` has found `from` neither null nor unaligned, so by the caller's duty a `usize` can be read there.
    let size = unsafe { from.cast::<usize>().read() };
    check_size(argument, size)?;
    let known = size.min(size_of::<T>());
    let mut structure = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` is at most `size`, as many bytes as the caller lets be read, and at most the size of `structure`, which is
    // a local variable and so elsewhere.
    unsafe { from.cast::<u8>().copy_to_nonoverlapping(structure.as_mut_ptr().cast(), known) };
    // SAFETY: `known` is at most `size`, so these are the last of the `size` bytes that the caller lets be read; no thread
    // changes them during the call, as with every argument of a C function that isn't declared shared.
    let later = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if later.iter().any(|&byte| byte != 0) {
        return Err(ApiError::Later { argument, version: env!("CARGO_PKG_VERSION") });
    }
    // SAFETY: all bytes are initialised, by zeros at first; an `ExtensibleStruct` has integers only, for which any bytes are valid.
    Ok(unsafe { structure.assume_init() })
}

/// Writes as much of `structure` as the one at `to` has room for, and zeroes behind it; `struct_size` stays as it is.
///
/// # Safety
/// Unless it is null or unaligned, `to` leads to a `usize` that says how many bytes there may be written.
pub unsafe fn write<T: ExtensibleStruct>(argument: &'static str, to: *mut T, structure: &T) -> Result<(), ApiError> {
    boundary::check(argument, to)?;
    // SAFETY: `check` has found `to` neither null nor unaligned, so by the caller's duty a `usize` can be read there.
    let size = unsafe { to.cast::<usize>().read() };
    check_size(argument, size)?;
    let (first, known) = (size_of::<usize>(), size.min(size_of::<T>()));
    let from = std::ptr::from_ref(structure).cast::<u8>();
    // SAFETY: `known` is at most the size of either, and at least `first`, as `check_size` has seen; `structure` is borrowed
    // and so isn't where C's program lets us write.
    unsafe { from.add(first).copy_to_nonoverlapping(to.cast::<u8>().add(first), known - first) };
    // SAFETY: `known` is at most `size`, so these are the last of the `size` bytes that the caller lets be written.
    unsafe { to.cast::<u8>().add(known).write_bytes(0, size - known) };
    Ok(())
}

fn check_size(argument: &'static str, size: usize) -> Result<(), ApiError> {
    if size < size_of::<usize>() || size > MOST_BYTES {
        return Err(ApiError::StructSize { argument, size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Now {
        struct_size: usize,
        first: u64,
        second: u32,
        third: u32,
    }

    // SAFETY: integers without gaps, beginning with the size.
    unsafe impl ExtensibleStruct for Now {}

    fn of_size(struct_size: usize) -> [usize; 5] {
        [struct_size, 1, 2 | (3 << 32), 0, 0]
    }

    fn read_from(words: &[usize; 5]) -> Result<Now, ApiError> {
        // SAFETY: the array holds whatever sizes up to 40 say, and others are refused.
        unsafe { read("it", words.as_ptr().cast::<Now>()) }
    }

    #[test]
    fn an_older_structure_lacks_its_tail_and_a_newer_one_may_have_zeroes_there() {
        assert_eq!(read_from(&of_size(24)).unwrap(), Now { struct_size: 24, first: 1, second: 2, third: 3 });
        assert_eq!(read_from(&of_size(16)).unwrap(), Now { struct_size: 16, first: 1, second: 0, third: 0 });
        assert_eq!(read_from(&of_size(20)).unwrap(), Now { struct_size: 20, first: 1, second: 2, third: 0 });
        assert_eq!(read_from(&of_size(40)).unwrap().third, 3);
        let mut newer = of_size(40);
        newer[4] = 1 << 60;
        assert!(read_from(&newer).unwrap_err().to_string().contains("a later libquire"));
        for size in [0, 7, 4097, usize::MAX] {
            assert!(matches!(read_from(&of_size(size)), Err(ApiError::StructSize { .. })), "{size}");
        }
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        let now = Now { struct_size: 24, first: 10, second: 20, third: 30 };
        let written = |size: usize| {
            let mut words = [9; 5];
            words[0] = size;
            // SAFETY: the array has room for whatever sizes up to 40 say, and others are refused.
            unsafe { write("it", words.as_mut_ptr().cast::<Now>(), &now) }.map(|()| words)
        };
        assert_eq!(written(8).unwrap(), [8, 9, 9, 9, 9]);
        assert_eq!(written(16).unwrap(), [16, 10, 9, 9, 9]);
        assert_eq!(written(24).unwrap(), [24, 10, 20 | (30 << 32), 9, 9]);
        assert_eq!(written(32).unwrap(), [32, 10, 20 | (30 << 32), 0, 9]);
        assert!(written(0).is_err());
    }
}
