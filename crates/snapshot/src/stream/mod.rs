//! The arena's barrier: one writer, one snapshot at a time that is streamed out by one reader, and a fixed budget of extra
//! memory.
//!
//! Relies on `quire-sys` for memory. (For any range, any number of writers and views: the mechanism
//! [`WriteBarrier`](crate::Mechanism::Barrier) of [`crate::attach()`].)
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
//!
//! ```
//! use quire_snapshot::{TakeOutcome, WriteBarrier, WriteBarrierConfig};
//! use quire_sys::mem::Reservation;
//! use std::sync::Arc;
//!
//! let memory = Arc::new(Reservation::new(2 << 20)?);
//! memory.commit(0..memory.len())?;
//! let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig { budget_bytes: 1 << 20 })?;
//! barrier.mark_present(0..512);
//! barrier.write(0, b"before")?;
//! let mut snapshot = barrier.cut(512)?; // the reader's, which another thread may have
//! barrier.write(0, b"after!")?;
//! let mut page = vec![0; 4096];
//! assert_eq!(snapshot.take(0, &mut page), TakeOutcome::Copied);
//! assert_eq!(&page[..6], b"before");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod background;
mod buffer_pool;
mod bytes;
mod changed_pages;
mod error;
mod file_pages;
mod page_set;
#[doc(hidden)]
pub mod page_state;
mod race_detector;
#[doc(hidden)]
pub mod ring;
mod shared;
mod snapshot;
mod state_table;
mod stats;
mod write_barrier;
mod write_counts;

pub use background::BackgroundPriority;
pub use error::SnapshotError;
pub use file_pages::FilePages;
pub use page_set::PageSet;
pub use snapshot::{Snapshot, TakeOutcome};
pub use stats::WriteBarrierStats;
pub use write_barrier::{WriteBarrier, WriteBarrierConfig};
