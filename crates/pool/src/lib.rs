//! Pages of files in user space, under a memory ceiling: what the kernel's page cache does for mapped files, without its
//! faults, its shared locks and its single-page requests.
//!
//! A [`Pool`] has the memory, a [`Map`] is a file in it. [`Map::read`] and [`Map::write`] give guards over pages,
//! [`Map::optimistic_read`] reads a page without locking it, [`Map::prefetch`] keeps the device busy, [`Map::sync`] makes
//! changes durable. Each page has a fixed address and a state of one word; nothing is looked up in a table, and a page that is
//! there is used without a lock.
//!
//! Relies on `quire-device` for files and `quire-sys` for memory; `docs/design/pool.md` has the whole picture. Must not know
//! what pages hold.

#[cfg(not(loom))]
mod access_mode;
#[cfg(not(loom))]
mod cache_padded;
#[cfg(not(loom))]
mod completion;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod credits;
#[cfg(not(loom))]
mod dirty_set;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod evict;
#[cfg(not(loom))]
mod fetch;
#[cfg(not(loom))]
mod flush;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod lease_pins;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod mapped_file;
#[cfg(not(loom))]
mod memory_pressure;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod page_read;
#[doc(hidden)]
pub mod page_state;
#[cfg(not(loom))]
mod paths;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod pool_state;
#[cfg(not(loom))]
mod readahead;
#[cfg(not(loom))]
mod readahead_queue;
#[cfg(not(loom))]
mod readahead_streams;
#[cfg(not(loom))]
mod reclaim;
#[cfg(not(loom))]
mod relocated_pages;
#[cfg(not(loom))]
mod relocation;
#[cfg(not(loom))]
mod spare_frames;
#[cfg(not(loom))]
mod stats;
#[doc(hidden)]
pub mod sync;
#[cfg(not(loom))]
mod tier;
#[cfg(not(loom))]
mod tier_budget;
#[cfg(not(loom))]
mod tier_split;
#[cfg(not(loom))]
mod transparent;
#[cfg(not(loom))]
mod view;
#[cfg(not(loom))]
mod writeback;
#[cfg(not(loom))]
mod writers;

#[cfg(not(loom))]
pub use config::{
    AccessAdvice, FaultThreadOptions, MapOptions, PoolConfig, TierCompression, TierConfig, TierSize, WritebackHooks,
};
#[cfg(not(loom))]
pub use counters::WaitCause;
#[cfg(not(loom))]
pub use error::PoolError;
#[cfg(not(loom))]
pub use guard::{ReadGuard, WriteGuard};
#[cfg(not(loom))]
pub use lease::Lease;
#[cfg(not(loom))]
pub use map::Map;
#[cfg(not(loom))]
pub use page::PageNo;
#[cfg(not(loom))]
pub use pool::Pool;
#[cfg(not(loom))]
pub use stats::{DepthStats, LeaseStats, PathStats, PoolStats, WaitStats};
#[cfg(not(loom))]
pub use tier::TierStats;
#[cfg(not(loom))]
pub use transparent::TransparentMap;
#[cfg(not(loom))]
pub use view::PageView;

/// The examples of the README, which are run as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
