//! Large reads without copying (`QUIRE_ZREAD=patterns`): pages of the page cache are remapped into the buffer of a `read`, while a
//! lease keeps writers away from the file (`docs/design/zread.md`).
//!
//! ```text
//! the program ──malloc──▶ blocks: large ones, from addresses of the library's own
//!             ──read────▶ hooks ──▶ decision ──▶ remap ──mremap──▶ extents (what is remapped where)
//!                                                  │ lease_asks              ▲ convert: anonymous again, same bytes
//!                                                  ▼                         │
//!                              lease_process: leases, sources ──a writer comes
//! ```
//! Relies on the kernel's leases and on userfaultfd. Whatever can't be exactly as `read` is, is copied, and counted in [`stats`].

pub mod blocks;
pub mod calibration;
pub mod convert;
pub mod decision;
pub mod descriptor_hooks;
pub mod extents;
pub mod forks;
pub mod hooks;
pub mod lease_asks;
pub mod lease_process;
pub mod loss_model;
pub mod maps;
pub mod memory_hooks;
pub mod patterns;
pub mod probe_budget;
pub mod real_calls;
pub mod remap;
pub mod requests;
pub mod stats;
pub mod unseen_child;
pub mod use_history;
