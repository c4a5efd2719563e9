//! The Redis-compatible server: RESP sockets over the store.
//!
//! One engine thread owns the [`quire_store::Store`] and runs every command; the same thread runs the event loop
//! ([`net`]). A request is parsed in place ([`resp`]), looked up in the one table of command specifications ([`table`]),
//! checked and timed ([`dispatch`]) and run by its family's file ([`cmd`]).
#![forbid(unsafe_code)]

pub mod acl;
pub mod aof;
pub mod args;
pub mod awaited_keys;
pub mod blocked;
pub mod categories;
pub mod client;
pub mod clients;
pub mod clone_origin;
pub mod cloning;
// Brackets in what a handler says of its command are those of its syntax.
#[allow(rustdoc::broken_intra_doc_links)]
pub mod cmd;
pub mod compat;
pub mod config;
pub mod ctx;
pub mod defrag;
pub mod defrag_state;
pub mod delivery;
pub mod dispatch;
pub mod durability;
pub mod durations;
pub mod effects;
pub mod error;
pub mod event_classes;
pub mod eviction;
pub mod eviction_state;
pub mod file_identity;
pub mod file_replacement;
pub mod geohash;
pub mod glob;
pub mod hyperloglog;
pub mod info;
pub mod info_fields;
pub mod invalid_keys;
pub mod invalidation;
pub mod key_spec;
pub mod key_uses;
pub mod latency;
pub mod latency_graph;
pub mod leftover_logs;
pub mod library_store;
pub mod load_progress;
pub mod lock_file;
pub mod log_control;
pub mod log_writer;
pub mod metrics;
pub mod metrics_desk;
pub mod migration;
pub mod monitor;
pub mod net;
pub mod notifications;
pub mod output_buffer;
pub mod permission;
pub mod persistence;
pub mod pubsub;
pub mod rdb;
pub mod registry;
pub mod replay;
pub mod request_flags;
pub mod resp;
pub mod save_state;
pub mod saving;
pub mod script_host;
pub mod scripts;
pub mod slowlog;
pub mod socket;
pub mod specs;
pub mod state;
pub mod stats;
pub mod table;
pub mod tls;
pub mod tracked_keys;
pub mod tracking;
pub mod transfer;
pub mod transfer_control;
pub mod users;

pub use compat::compat_markdown;
pub use info_fields::info_markdown;
pub use metrics::metrics_markdown;

/// The version of Redis whose behaviour the server follows; clients decide by it what they may use.
pub const COMPATIBLE_VERSION: &str = "7.2.6";
/// Quire's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
