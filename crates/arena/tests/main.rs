//! The tests of the arena as one program, of which each file is a module: one program is compiled and linked sooner than many.
//! `cargo test -p quire-arena --test integration defrag` runs those of one file.

mod common;
mod defrag;
mod model;
