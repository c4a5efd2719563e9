//! The keyspace: databases of strings, hashes, sets, lists, sorted sets and streams, with times to live, in one arena.
//!
//! Everything that matters lies in the arena as plain data (root object, tables, entries), so that an image of the arena
//! is an image of the keyspace. The arena checks every access and this crate bounds every walk: bytes from a damaged
//! image give [`StoreError::Damaged`], never a panic and never an endless loop.
//!
//! From the bottom up: `heap` is memory and knows no keys, `table` is linear hashing, `keyspace` holds databases of
//! entries and knows no types, `value` has a folder for each type, `store` saves and restores. What happened to a key passes
//! `events`; what must be logged beside the commands that came is in `effects`.
#![forbid(unsafe_code)]

mod config;
mod db;
mod effects;
mod encoding;
mod error;
mod events;
mod heap;
mod keyspace;
mod limits;
pub mod numbers;
mod store;
mod table;
mod value;

pub use config::StoreConfig;
pub use db::{DbId, ExpiryChange};
pub use effects::ExpiredKey;
pub use encoding::ValueType;
pub use error::{OpenError, Result, StoreError};
pub use events::{KeyEvent, KeyFate};
pub use keyspace::access::AccessCounting;
pub use keyspace::attachment;
pub use keyspace::copying::{CopyProgress, CopyStep};
pub use keyspace::defrag::DefragSummary;
pub use keyspace::eviction::{EvictionOrder, EvictionPolicy, evict_key};
pub use keyspace::expiry::ExpireSummary;
pub use keyspace::stats::{DbStats, StoreStats};
pub use keyspace::{Keyspace, Prefetched, STRING_MAX_BYTES};
pub use limits::{EncodingLimit, EncodingLimits};
pub use numbers::long_double::LongDouble;
pub use quire_checkpoint::{Codec, ImageIdentity, is_delta_name, is_temporary_name};
pub use store::{
    ImageLocation, RestoreMode, RestoreReport, RestoreStep, SaveError, SaveProgress, SaveStats, SaveSummary, Store,
    TemporaryImage,
};
pub use value::hash::{HashMut, HashView};
pub use value::list::{Element, End, ListMut, ListView};
pub use value::set::{SetMember, SetMut, SetView};
pub use value::stream::{StreamId, StreamMut, StreamOrder, StreamView};
pub use value::zset::{Cut, Direction, ZsetMut, ZsetView};
pub use value::{declared_limits, hash, list, set, stream, string, zset};
