//! The parts that need no storage stack: Quire's own log beside redis-server's, and what a mount costs where nothing is slow.
//!
//! Relies on both candidates of a comparison being on the same disk, and on rounds that alternate between them.

pub mod log_commits;
pub mod mount_overhead;
