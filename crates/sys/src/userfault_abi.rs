//! The structures and numbers of userfaultfd, as `linux/userfaultfd.h` has them: neither libc nor rustix has.
//!
//! Relies on `asm-generic/ioctl.h`, by which most machines compose the numbers of ioctls.

use std::mem::size_of;

/// What a userfaultfd is asked to be capable of; the kernel's bits.
pub mod features {
    /// Write-protection faults are told apart.
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    /// A range that is moved stays registered; the thread that moves it sleeps until the descriptor was read.
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// Missing pages of files in memory.
    pub const MISSING_SHMEM: u64 = 1 << 5;
    /// A fault raises SIGBUS in the thread that made it instead of putting it to sleep.
    pub const SIGBUS: u64 = 1 << 7;
    /// Faults on pages that the file in memory has and the page table has not (Linux 5.14).
    pub const MINOR_SHMEM: u64 = 1 << 10;
    /// Fault addresses to the byte, not to the page (Linux 5.18).
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    /// Write protection of files in memory and of hugetlbfs (Linux 5.19).
    pub const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    /// Write protection also of anonymous pages that were never touched (Linux 6.4).
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    /// Pages can be poisoned (Linux 6.6).
    pub const POISON: u64 = 1 << 14;
    /// Write protection is lifted by the kernel itself at the first write; only tracking is left (Linux 6.7).
    pub const WP_ASYNC: u64 = 1 << 15;
    /// Pages can be moved between addresses (Linux 6.8).
    pub const MOVE: u64 = 1 << 16;
}

#[repr(C)]
pub(crate) struct Api {
    pub(crate) api: u64,
    pub(crate) features: u64,
    pub(crate) ioctls: u64,
}

#[repr(C)]
pub(crate) struct RangeArgument {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

#[repr(C)]
pub(crate) struct Register {
    pub(crate) range: RangeArgument,
    pub(crate) mode: u64,
    pub(crate) ioctls: u64,
}

#[repr(C)]
pub(crate) struct CopyArgument {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) mode: u64,
    pub(crate) done: i64,
}

#[repr(C)]
pub(crate) struct Zeropage {
    pub(crate) range: RangeArgument,
    pub(crate) mode: u64,
    pub(crate) done: i64,
}

#[repr(C)]
pub(crate) struct WriteProtect {
    pub(crate) range: RangeArgument,
    pub(crate) mode: u64,
}

pub(crate) const API_VERSION: u64 = 0xAA;
pub(crate) const COPY_ASLEEP: u64 = 1 << 0;
pub(crate) const PROTECTED_COPY: u64 = 1 << 1;

/// Bytes of `struct uffd_msg`.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// The number of an ioctl as `asm-generic/ioctl.h` composes it.
const fn number(direction: u32, command: u32, argument_bytes: usize) -> libc::Ioctl {
    (direction << 30 | (argument_bytes as u32) << 16 | 0xAA << 8 | command) as libc::Ioctl
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;
pub(crate) const IOCTL_API: libc::Ioctl = number(READ_WRITE, 0x3F, size_of::<Api>());
pub(crate) const IOCTL_REGISTER: libc::Ioctl = number(READ_WRITE, 0x00, size_of::<Register>());
pub(crate) const IOCTL_UNREGISTER: libc::Ioctl = number(READ, 0x01, size_of::<RangeArgument>());
pub(crate) const IOCTL_WAKE: libc::Ioctl = number(READ, 0x02, size_of::<RangeArgument>());
pub(crate) const IOCTL_COPY: libc::Ioctl = number(READ_WRITE, 0x03, size_of::<CopyArgument>());
pub(crate) const IOCTL_ZEROPAGE: libc::Ioctl = number(READ_WRITE, 0x04, size_of::<Zeropage>());
pub(crate) const IOCTL_WRITE_PROTECT: libc::Ioctl = number(READ_WRITE, 0x06, size_of::<WriteProtect>());
/// On `/dev/userfaultfd`: a new descriptor, flags as the plain argument.
pub(crate) const IOCTL_NEW: libc::Ioctl = number(0, 0x00, 0);

/// `UFFD_USER_MODE_ONLY` of the system call.
pub(crate) const USER_MODE_ONLY: libc::c_int = 1;

/// The event of a message about a fault, and what its flags say.
pub(crate) const EVENT_PAGEFAULT: u8 = 0x12;
pub(crate) const FLAG_WRITE: u64 = 1 << 0;
pub(crate) const FLAG_PROTECTED: u64 = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctls_have_the_numbers_of_the_kernel_headers() {
        assert_eq!(IOCTL_API as u32, 0xC018_AA3F);
        assert_eq!(IOCTL_REGISTER as u32, 0xC020_AA00);
        assert_eq!(IOCTL_UNREGISTER as u32, 0x8010_AA01);
        assert_eq!(IOCTL_WAKE as u32, 0x8010_AA02);
        assert_eq!(IOCTL_COPY as u32, 0xC028_AA03);
        assert_eq!(IOCTL_ZEROPAGE as u32, 0xC020_AA04);
        assert_eq!(IOCTL_WRITE_PROTECT as u32, 0xC018_AA06);
        assert_eq!(IOCTL_NEW as u32, 0xAA00);
    }
}
