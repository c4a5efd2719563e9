//! The tests of the pool as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-pool --test integration lease` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod block;
mod common;
mod crash;
mod failures;
mod file_server;
mod file_server_shortage;
mod flush;
mod lease;
mod linear;
mod model;
mod page_cache;
mod pages;
mod resize;
mod sharing;
mod threads;
mod tier;
mod tier_split;
mod transparent;
mod truncation;

#[path = "../../../examples/file_server.rs"]
#[allow(dead_code, reason = "`main` is for the command line")]
mod file_server_example;
