//! Position-independent memory behind a write barrier.
//!
//! An [`Arena`] is one range of addresses, up to 1 TiB, in which everything is named by [`Handle`]s: offsets in
//! granules of 16 bytes. Its bytes mean the same wherever they are mapped, so an image of them *is* the data. Objects are
//! plain data (`zerocopy`), every access is bounds-checked, and the only way to `&mut` passes the barrier of
//! `quire-snapshot`, so a snapshot can be cut at any time.
//!
//! Relies on one owner (`&mut self`). Must not know what objects mean, nor about files and images.
//!
//! # Layout
//! ```text
//! chunk of 1 GiB:  | descriptors, 16 B a page: 4 MiB | pages: slabs of equal slots · runs of large objects · free runs |
//! chunk 0 only:    the superblock takes the descriptors of the first pages, which need none
//! ```

mod access;
mod arena;
mod classes;
mod defrag;
mod defrag_plan;
mod descriptor;
mod error;
mod free_regions;
mod handle;
mod prefaulter;
mod runs;
mod slabs;
mod stats;
mod superblock;

pub use arena::{Arena, ArenaConfig};
pub use error::ArenaError;
pub use handle::{ALIGNED_MIN, GRANULE, Handle, MAX_BYTES, NARROW_BYTES};
pub use runs::RunsTrimmed;
pub use stats::ArenaStats;
