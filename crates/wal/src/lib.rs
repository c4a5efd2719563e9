//! A write-ahead log: what clients did since the last image, durable before they are told.
//!
//! - [`Log`] takes records and makes them durable: [`Log::command`], [`Log::word`], [`Log::seal`] put a record together,
//!   [`Log::commit`] hands over what was put together in one turn of the caller's loop, and [`Log::durable`] tells how far
//!   the device has come. One write makes all records of a turn durable, whoever they are from.
//! - [`Recovery`] reads the records that an image lacks, in order.
//! - [`Survey`] tells which segments there are.
//!
//! The format, what is valid, and how it is read are at the head of [`format`](mod@format) and in `docs/format.md`.
//!
//! Relies on `quire-device` for files, so that power cuts and failing devices are ordinary tests. Must not know what the
//! words of a command mean.

#![forbid(unsafe_code)]

mod base;
mod chain;
mod error;
mod files;
pub mod format;
mod handle;
mod header;
mod patience;
mod record;
mod recovery;
mod salvage;
mod scanner;
mod shared;
mod stock;
mod supply;
mod survey;
mod writer;

pub use base::Base;
pub use error::{LogError, Malformed};
pub use files::{remove_covered, set_aside};
pub use handle::{Log, LogOptions};
pub use patience::Patience;
pub use record::{Commands, Record};
pub use recovery::{Recovered, Recovery, Torn};
pub use shared::{LogStats, Notify, Sync};
pub use survey::{DamagedFile, Segment, Survey, has_log};
pub use writer::Identity;
