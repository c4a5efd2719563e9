//! The tests of the log as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-wal --test integration log_model` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod common;
mod log_damage;
mod log_faults;
mod log_model;
