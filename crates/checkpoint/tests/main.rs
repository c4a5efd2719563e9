//! The tests of images as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-checkpoint --test integration chain` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod chain;
mod chain_faults;
mod common;
mod compressed;
mod compressed_damage;
mod copy;
mod damage;
mod faults;
mod map;
mod map_chain;
mod power;
mod rate;
mod roundtrip;
mod shared;
mod write_sizes;
