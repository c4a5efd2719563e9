//! The tests of the keyspace as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-store --test integration zsets` runs those of one file.
//!
//! Relies on tests that need a process of their own being programs of their own, which `Cargo.toml` names with the reason.

mod aside;
mod beyond_64_gib;
mod common;
mod copies;
mod damaged_lists;
mod damaged_streams;
mod damaged_zsets;
mod defrag;
mod defrag_model;
mod eviction;
mod field_expiry;
mod flips;
mod images;
mod incremental;
mod list_cuts;
mod lists;
mod memory;
mod model;
mod random_fields;
mod released;
mod saves;
mod semantics;
mod sets;
mod short_of_memory;
mod streams;
mod string_copies;
mod string_growth;
mod temporary;
mod told;
mod zset_algebra;
mod zsets;
