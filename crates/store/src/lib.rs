//! The keyspace: databases of strings and hashes, with times to live, in one arena.
//!
//! Everything that matters lies in the arena as plain data (root object, tables, entries), so that an image of the arena
//! is an image of the keyspace. The arena checks every access and this crate bounds every walk: bytes from a damaged
//! image give [`StoreError::Damaged`], never a panic and never an endless loop.
//!
//! Start at `store` (how a key is found), then `table` and `entry` (how the data lies), `shape` (how entries are made
//! and changed); the other files are families of operations.
#![forbid(unsafe_code)]

mod big;
mod bucket;
mod config;
mod databases;
mod db;
mod digest;
mod entry;
mod error;
mod expiration;
mod expires;
mod fields;
mod hash_view;
mod hash_walks;
mod hashes;
mod keys;
mod logged;
mod logging;
mod long_double;
mod memory;
pub mod numbers;
mod packed;
mod place;
mod reclaim;
mod resize;
mod restore;
mod root;
mod sample;
mod save;
mod saves;
mod scan;
mod shape;
mod stats;
mod store;
mod strings;
mod table;
mod transfer;
mod watch;

pub use config::StoreConfig;
pub use db::{DbId, Expiry};
pub use entry::Kind;
pub use error::{OpenError, Result, StoreError};
pub use expires::ExpireSummary;
pub use hash_view::HashView;
pub use logged::ExpiredKey;
pub use long_double::LongDouble;
pub use place::ImagePlace;
pub use restore::{RestoreMode, RestoreReport, RestoreStep};
pub use saves::{SaveError, SaveProgress, SaveStats, SaveSummary};
pub use stats::{DbStats, StoreStats};
pub use store::{Prefetched, STRING_MAX_BYTES, Store};
