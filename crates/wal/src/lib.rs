//! A write-ahead log: what clients did since the last image, durable before they are told.
//!
//! - [`Log`] takes records and makes them durable: [`Log::command`], [`Log::word`], [`Log::seal`] put a record together,
//!   [`Log::commit`] hands over what was put together in one turn of the caller's loop, and [`Log::durable`] tells how far
//!   the device has come. One write makes the records of all clients of a turn durable.
//! - [`Recovery`] reads the records that an image lacks, in order.
//! - [`DirectoryScan`] tells which segments there are.
//!
//! The format, what is valid, and how it is read are at the head of [`format`](mod@format) and in `docs/format.md`.
//!
//! Relies on `quire-device` for files, so that power cuts and failing devices are ordinary tests. Must not know what the
//! words of a command mean.

#![forbid(unsafe_code)]

mod adaptive_spin;
mod base_image;
mod directory_scan;
mod error;
pub mod format;
mod group_commit;
mod handle;
mod header;
mod maintenance;
mod preallocation;
mod record;
mod record_scanner;
mod recovery;
mod salvage;
mod segment_allocator;
mod segment_chain;
mod segment_pool;
mod segment_writer;

pub use adaptive_spin::AdaptiveSpin;
pub use base_image::BaseImage;
pub use directory_scan::{DamagedFile, DirectoryScan, Segment, has_log};
pub use error::{LogError, MalformedRecord};
pub use group_commit::{CommitCallback, LogStats, SyncPolicy};
pub use handle::{Log, LogOptions};
pub use maintenance::{remove_covered, set_aside};
pub use preallocation::NextSegment;
pub use record::{CommandReader, Record};
pub use recovery::{Recovery, RecoverySummary, TornTail};
pub use segment_writer::LogIdentity;
