//! The tests of the write cache as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-writecache --test integration cache_sweep` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod cache;
mod cache_critical;
mod cache_damage;
mod cache_faults;
mod cache_files;
mod cache_many;
mod cache_refused;
mod cache_sweep;
mod cache_threads;
mod cache_truncations;
mod released;
mod wcache;
