//! The tests of devices as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-device --test integration transfers` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod block;
mod common;
mod failures;
mod files;
mod power;
mod transfers;
