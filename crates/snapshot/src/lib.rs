//! Copy-on-write snapshots of memory, à la carte.
//!
//! One mechanism so far: the [`Barrier`], which its single writer passes before every write. A [`Snapshot`] made by
//! [`Barrier::cut`] is read by one other thread while the writer goes on.
//!
//! Relies on `quire-sys` for memory. Must not know what the memory holds or where a snapshot goes.
//!
//! # Life of a page in an open snapshot
//! ```text
//!              reader claims            reader has copied
//!   unsaved ─────────────────▶ taken ─────────────────────▶ saved
//!      │                                                      ▲
//!      │ writer has copied (pre-image)       reader collects  │
//!      └───────────────────▶ held in a buffer ────────────────┘
//! ```
//! Every page starts *unsaved* by the mere change of the snapshot's number, so a cut costs the same for any size. A
//! writer waits only for a page that is *taken* (one memory copy) or for a buffer when the budget is used up.

#[cfg(not(loom))]
mod barrier;
#[cfg(not(loom))]
mod bytes;
#[cfg(not(loom))]
mod coverage;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod reader;
#[doc(hidden)]
pub mod ring;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod stats;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod words;

#[cfg(not(loom))]
pub use barrier::{Barrier, BarrierConfig, SnapshotError};
#[cfg(not(loom))]
pub use page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
#[cfg(not(loom))]
pub use reader::{Snapshot, Take};
#[cfg(not(loom))]
pub use stats::BarrierStats;
