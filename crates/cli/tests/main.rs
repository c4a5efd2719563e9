//! The tests of the command as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire --test integration serve` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod bench;
mod clone;
mod common;
mod doctor_preload;
mod image_copy;
mod log;
mod serve;
mod tools;
mod top;
