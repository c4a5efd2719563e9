//! Copies out of memory that another thread may be writing.
//!
//! Relies on the caller to find out afterwards whether the copy is whole (a page state that hasn't moved) and to discard
//! it otherwise. An ordinary copy would be a data race, which the compiler may assume not to happen; these are opaque to
//! it.

/// Copies `len` bytes; what another thread writes meanwhile may be copied or not, byte by byte.
///
/// # Safety
/// - `from` is readable and `to` writable for `len` bytes; they don't overlap.
/// - Nobody else uses `to` meanwhile.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `rep movsb` reads and writes exactly the bytes that the caller vouches for; the direction flag is clear by
    // the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies `len` bytes; what another thread writes meanwhile may be copied or not, byte by byte.
///
/// # Safety
/// - `from` is readable and `to` writable for `len` bytes; they don't overlap.
/// - Nobody else uses `to` meanwhile.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for index in 0..len {
        // SAFETY: inside the bytes that the caller vouches for; volatile, so the compiler can't assume the value stable.
        unsafe { to.add(index).write_volatile(from.add(index).read_volatile()) };
    }
}

/// Whether `len` bytes at both addresses are equal; bytes that another thread writes meanwhile count as either.
///
/// # Safety
/// Both are readable for `len` bytes, aligned to 8; `len` is a multiple of 8.
pub(crate) unsafe fn equal(one: *const u8, two: *const u8, len: usize) -> bool {
    let (one, two) = (one.cast::<u64>(), two.cast::<u64>());
    // SAFETY: inside the bytes that the caller vouches for; volatile, so the compiler can't assume the values stable.
    (0..len / 8).all(|index| unsafe { one.add(index).read_volatile() == two.add(index).read_volatile() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_arrive_in_order() {
        let from: Vec<u8> = (0..=255).collect();
        let mut to = vec![0; 256];
        // SAFETY: two vectors of the same length.
        unsafe { super::copy(from.as_ptr(), to.as_mut_ptr(), 256) };
        assert_eq!(from, to);
    }

    #[test]
    fn memory_equals_itself_until_a_byte_changes() {
        let (one, mut two) = ([7u64; 512], [7u64; 512]);
        // SAFETY: two arrays of 4096 bytes.
        let equal = |two: &[u64; 512]| unsafe { super::equal(one.as_ptr().cast(), two.as_ptr().cast(), 4096) };
        assert!(equal(&two));
        two[511] = 8;
        assert!(!equal(&two));
    }
}
