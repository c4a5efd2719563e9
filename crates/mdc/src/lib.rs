//! Checkpoints of programs that fork: a log of values and addresses, then a dump of the memory that the addresses lead to.
//!
//! - [`Checkpoint`] runs in the forked child. It gives memory back as it dumps it, so that the parent's writes to that memory
//!   are no longer copied.
//! - [`Restore`] reads the objects again, in the order in which they were written, at any addresses.
//! - [`heap`] is an allocator for programs that keep what is checkpointed apart.
//! - [`mod@format`] is the file.
//!
//! Relies on `quire-sys` for what the kernel tells about memory. `docs/design/mdc.md` has the idea and the rules.

mod address_space;
mod checkpoint;
mod dump;
mod dump_table;
mod error;
pub mod format;
pub mod heap;
mod log_reader;
mod log_writer;
mod reserved;
mod restore;
mod sample;
mod source;
mod target;

pub use checkpoint::{Checkpoint, CheckpointOptions, CheckpointSummary, PassMode};
pub use error::{CheckpointError, FilePart, RestoreError};
pub use restore::{Restore, RestoreInfo};
#[doc(hidden)]
pub use sample::sample;
pub use source::ReadMode;
pub use target::DumpTarget;
