//! `libquire`: snapshots of memory, files as memory, and hints to mounts, for C and for whatever can call C.
//!
//! Relies on `quire-snapshot` and `quire-pool` for all that happens. Here is only the boundary: pointers are checked, errors become a status
//! and a [message](message), panics stay inside ([`boundary`]), and structures may grow ([`extensible_struct`]).
//!
//! `include/quire.h` is generated from these sources by `cargo xtask docs`: what a doc comment says here, C programmers
//! read there. So the names are C's, spelled as in C.

// One name for one thing, whichever side looks for it.
#![allow(non_camel_case_types)]

pub mod api_error;
pub mod boundary;
pub mod extensible_struct;
pub mod handle;
pub mod range_lease;

// What C sees, in the order in which the header shows it.
pub mod version;

pub mod status;

pub mod message;

pub mod mechanism;

pub mod support;

pub mod options;

pub mod range;

pub mod snapshot;

pub mod stats;

pub mod pool;

pub mod map;

pub mod lease;

pub mod critical;

pub mod mdc;

pub mod mdc_heap;
