//! Redis's RDB format: files of versions 1 to 12 and the payloads of DUMP, read and written.
//!
//! A [`Reader`] gives one item of a file after the other, and of a large value one element after the other, so that what it
//! takes of memory is bounded by the largest string, never by a number that the file claims. Every length is believed only
//! as far as bytes follow; whatever is wrong is told by an [`RdbError`] with its place. A [`Writer`] writes what redis-server
//! 7.0 and its successors load.
//!
//! From the bottom up: `lzf` and `checksum` know bytes only, `input` has lengths and strings, `packed` (`listpack`, `ziplist`,
//! `zipmap`, `intset`) what lies in one string, `elements` and `stream` the values, `reader` and `payload` what is around
//! them, `libraries` what a payload of functions holds.
//! Knows nothing of stores, servers or files' names.
#![forbid(unsafe_code)]

mod checksum;
mod elements;
mod encoder;
mod error;
mod input;
mod intset;
mod libraries;
mod listpack;
mod lzf;
mod packed;
mod payload;
mod reader;
mod stream;
mod stream_writer;
mod type_number;
mod value;
mod word;
mod writer;
mod ziplist;
mod zipmap;

pub use checksum::checksum;
pub use elements::{Elements, MAX_FIELD_EXPIRY_MS, Pairs, Scored};
pub use encoder::{Encoder, ValueKind};
pub use error::{Cause, RdbError, Result};
pub use libraries::{LibraryError, read_libraries, write_libraries};
pub use payload::{PayloadError, PayloadReader, PayloadWriter};
pub use reader::{Item, KeyItem, Reader, is_rdb};
pub use stream::{PendingEntry, StreamConsumer, StreamEntry, StreamGroup, StreamId, StreamReader, StreamState};
pub use stream_writer::StreamPacker;
pub use type_number::KeyFacts;
pub use value::Value;
pub use writer::Writer;

/// The newest version that is read: that of redis-server 7.4.
pub const NEWEST_READ: u32 = 12;
/// The version that is written: that of redis-server 7.0.
pub const WRITTEN_VERSION: u32 = 10;
/// The first version that has hashes whose fields have times to live: that of redis-server 7.4.
pub const TTL_VERSION: u32 = 12;
/// Longest string that is read, as Redis' `proto-max-bulk-len` has it.
pub const MAX_STRING_BYTES: u64 = 512 << 20;
