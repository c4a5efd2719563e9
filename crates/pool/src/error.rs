//! What can go wrong with a pool and its maps.

use quire_device::DeviceError;

use crate::page::PageNo;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A setting makes no sense.
    #[error("the pool can't be set up: {0}")]
    Config(&'static str),
    /// The system gives no memory or address space.
    #[error("no memory for {what}: {cause}")]
    Memory {
        /// For what.
        what: &'static str,
        /// What the system said.
        cause: String,
    },
    /// The system gives no thread.
    #[error("no thread for writing pages back: {cause}; raise the limit of threads")]
    Thread {
        /// What the system said.
        cause: String,
    },
    /// This system doesn't let user space see to page faults.
    #[error("no transparent map: userfaultfd: {cause}; allow the system call (container profile), or use guards")]
    Unsupported {
        /// What the system said.
        cause: String,
    },
    /// The device failed. Nothing has changed; trying again may help.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// There is no such page.
    #[error("page {page} lies outside {map}, which has {pages} pages; `grow` the map first")]
    Outside {
        /// Name of the file.
        map: String,
        /// The page asked for.
        page: PageNo,
        /// Pages of the map.
        pages: u64,
    },
    /// The map can't get so long.
    #[error(
        "{map} can't grow to {asked_bytes} bytes: {reserved_bytes} are reserved; map it with a larger `reserve_bytes`"
    )]
    TooLong {
        /// Name of the file.
        map: String,
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes that there are addresses for.
        reserved_bytes: u64,
    },
    /// Writing to the file failed earlier. What is dirty can still be read; nothing more is written.
    #[error("{map} was given up: {cause}; its dirty pages can be read but are not on the device")]
    Poisoned {
        /// Name of the file.
        map: String,
        /// The first failure.
        cause: DeviceError,
    },
    /// Every page of the pool is held by guards, or dirty and can't be written.
    #[error(
        "none of the pool's {budget_pages} pages could be freed within {waited_ms} ms: they are held by guards, or \
         dirty in maps that were given up; drop some, or enlarge the pool"
    )]
    Exhausted {
        /// Pages that the pool may hold.
        budget_pages: usize,
        /// How long nothing moved.
        waited_ms: u64,
    },
    /// More pages would be pinned by leases than may be, or one of them by more leases than can be counted.
    #[error(
        "no lease of {asked_pages} pages could be had within {waited_ms} ms: leases may pin {limit_pages} pages; drop some, ask \
         for less, or raise `lease_percent`"
    )]
    LeaseLimit {
        /// Pages asked for.
        asked_pages: u64,
        /// Pages that leases may pin.
        limit_pages: usize,
        /// How long no lease ended.
        waited_ms: u64,
    },
}
