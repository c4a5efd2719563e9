//! The tests of the server as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-server --test integration pubsub` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod access;
mod acl;
mod blocking;
mod blocking_streams;
mod blocking_zsets;
mod clients;
mod clones;
mod common;
mod compressed;
mod config;
mod copies;
mod defrag;
mod dump;
mod eviction;
mod field_expiry;
mod functions;
mod in_steps;
mod incremental;
mod introspection;
mod keys;
mod lists;
mod loading;
mod log;
mod log_damage;
mod log_memory;
mod log_power;
mod log_replay;
mod metrics;
mod migrate;
mod notifications;
mod places;
mod protocol;
mod pubsub;
mod saves;
mod scripts;
mod string_copies;
mod tls;
mod tracking;
mod transactions;
mod transfers;
mod unverified;
mod zsets;
