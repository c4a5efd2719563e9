//! The testbed: slow disks, a fast device, the write cache between them, and everything gone afterwards.
//!
//! Relies on root, loop devices, cgroup v1 and FUSE. Everything that is made lies in or is named after one directory,
//! `quire-wcache-PID`, so that what a killed run left behind is recognised ([`leftovers`]).

pub mod command;
pub mod counters;
pub mod daemon;
pub mod device_throttle;
pub mod interrupt;
pub mod leftovers;
pub mod loop_disk;
pub mod run_dir;
pub mod storage_stack;
pub mod unprivileged_user;
