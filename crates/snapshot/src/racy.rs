//! Copies out of memory that another thread may be writing.
//!
//! Relies on the caller to find out afterwards whether the copy is whole (a page state that hasn't moved) and to discard
//! it otherwise. An ordinary copy would be a data race, which the compiler may assume not to happen; these are opaque to
//! it.

/// Copies from this length on bypass the caches: they would push out what the writer is working on, and reading the target's
/// lines before overwriting them costs two thirds as much again (0.44 instead of 0.25 µs a page here).
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STREAMED_BYTES: usize = 32 << 10;

/// Copies `len` bytes; what another thread writes meanwhile may be copied or not, byte by byte.
///
/// # Safety
/// - `from` is readable and `to` writable for `len` bytes; they don't overlap.
/// - No other thread uses `to` meanwhile.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len >= STREAMED_BYTES && (from as usize | to as usize | len).is_multiple_of(128) {
        // SAFETY: `stream` demands what `copy` demands of its caller, and that all three are multiples of 128 (checked here) and
        // that `len` isn't 0 (it is 32 KiB at least).
        return unsafe { stream(from, to, len) };
    }
    // SAFETY: `rep movsb` reads `len` bytes at `from` and writes them at `to`, which `copy` demands to be readable and
    // writable. The direction flag is clear by the calling convention.
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

/// [`copy`] past the caches, ordered before all later stores.
///
/// # Safety
/// As for [`copy`]; both addresses and `len` are multiples of 128, and `len` isn't 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: it reads `len` bytes at `from` and writes them at `to`, 128 in each turn; `stream` demands that both are
    // mapped for `len` bytes and aligned. Prefetching touches nothing. Streaming stores overtake others, hence the fence: the copy may be published right after.
    unsafe {
        std::arch::asm!(
            "2:",
            "prefetchnta [{from} + {at} + 2048]",
            "prefetchnta [{from} + {at} + 2112]",
            "movdqa {x0}, [{from} + {at}]",
            "movdqa {x1}, [{from} + {at} + 16]",
            "movdqa {x2}, [{from} + {at} + 32]",
            "movdqa {x3}, [{from} + {at} + 48]",
            "movdqa {x4}, [{from} + {at} + 64]",
            "movdqa {x5}, [{from} + {at} + 80]",
            "movdqa {x6}, [{from} + {at} + 96]",
            "movdqa {x7}, [{from} + {at} + 112]",
            "movntdq [{to} + {at}], {x0}",
            "movntdq [{to} + {at} + 16], {x1}",
            "movntdq [{to} + {at} + 32], {x2}",
            "movntdq [{to} + {at} + 48], {x3}",
            "movntdq [{to} + {at} + 64], {x4}",
            "movntdq [{to} + {at} + 80], {x5}",
            "movntdq [{to} + {at} + 96], {x6}",
            "movntdq [{to} + {at} + 112], {x7}",
            "add {at}, 128",
            "cmp {at}, {len}",
            "jb 2b",
            "sfence",
            from = in(reg) from,
            to = in(reg) to,
            len = in(reg) len,
            at = inout(reg) 0_usize => _,
            x0 = out(xmm_reg) _,
            x1 = out(xmm_reg) _,
            x2 = out(xmm_reg) _,
            x3 = out(xmm_reg) _,
            x4 = out(xmm_reg) _,
            x5 = out(xmm_reg) _,
            x6 = out(xmm_reg) _,
            x7 = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Copies `len` bytes; what another thread writes meanwhile may be copied or not, byte by byte.
///
/// # Safety
/// - `from` is readable and `to` writable for `len` bytes; they don't overlap.
/// - No other thread uses `to` meanwhile.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for index in 0..len {
        // SAFETY: `copy` demands that `len` bytes are readable and writable, and `index` is below `len`. Volatile, so the
        // compiler can't assume the value stable.
        unsafe { to.add(index).write_volatile(from.add(index).read_volatile()) };
    }
}

/// Whether `len` bytes at both addresses are equal; bytes that another thread writes meanwhile count as either.
///
/// # Safety
/// Both are readable for `len` bytes, aligned to 8; `len` is a multiple of 8.
pub(crate) unsafe fn equal(one: *const u8, two: *const u8, len: usize) -> bool {
    let (one, two) = (one.cast::<u64>(), two.cast::<u64>());
    // SAFETY: `equal` demands that both are readable for `len` bytes and aligned to 8, and `index` is below `len / 8`. Volatile,
    // so the compiler can't assume the values stable.
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
