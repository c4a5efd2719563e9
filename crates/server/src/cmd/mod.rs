//! The commands, one file per family. A handler gets a [`crate::ctx::Ctx`], checks its words, calls the store and writes the
//! reply. Where doing the same words again would not do the same (chance, the clock, floats) it says its effect
//! ([`crate::effects`]). What holds for every command (arity, authentication, transactions, statistics) is in `dispatch`.

pub mod bitfield;
pub mod bits;
pub mod blocking_lists;
pub mod blocking_zsets;
mod client_filter;
pub mod clients;
pub mod config;
pub mod connection;
pub mod databases;
pub mod debug;
pub mod dump;
pub mod expire;
pub mod geo;
pub mod geo_search;
pub mod hashes;
pub mod hyperloglogs;
pub mod introspect;
mod key_waits;
pub mod keys;
pub mod lcs;
pub mod lists;
pub mod memory;
pub mod persistence;
pub mod pubsub;
mod random_draw;
mod range;
pub mod scan;
pub mod scripts;
pub mod server;
mod set_options;
pub mod sets;
pub mod sort;
mod sort_pattern;
pub mod stream_claims;
pub mod stream_groups;
pub mod stream_info;
pub mod stream_reads;
mod stream_words;
pub mod streams;
pub mod strings;
pub mod transactions;
pub mod wait;
pub mod zset_algebra;
pub mod zset_ranges;
pub mod zsets;
