//! The parts that need no stage: Quire's own log beside redis-server's, and what a mount costs where nothing is slow.
//!
//! Relies on both sides of a comparison being on the same disk, and on rounds that alternate between them.

pub mod commits;
pub mod overhead;
