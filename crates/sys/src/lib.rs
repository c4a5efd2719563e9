//! The only place in Quire that makes system calls: safe (or clearly unsafe) Rust above rustix, libc and io-uring.
//!
//! Relies on Linux; every interface newer than 6.1 or refused in containers is probed by [`probe`] before any
//! crate builds on it. Must not know what the memory, files and threads are used for.

pub mod advise;
pub mod area;
pub mod ask;
pub mod at;
pub mod atfork;
pub mod bare_thread;
pub mod block;
pub mod buffer;
pub mod caller_file;
mod cgroup_mount_root;
pub mod child;
pub mod deny;
pub mod descendants;
pub mod dump_file;
pub mod file;
mod file_stat;
pub mod file_view;
pub mod fork_lock;
pub mod fork_mark;
pub mod frame_pipe;
pub mod futex;
pub mod guest;
pub mod handle;
pub mod helper;
pub mod huge_pages;
pub mod io_priority;
pub mod lease;
pub mod library;
pub mod limits;
pub mod locked_file;
pub mod map;
pub mod mapped_file;
pub mod mem;
pub mod mount_users;
pub mod mounts;
pub mod net;
pub mod output;
pub mod page_cache;
pub mod pagemap;
pub mod pressure;
pub mod probe;
pub mod proc;
pub mod proc_maps;
pub mod rw;
pub mod shared_map;
pub mod signal;
pub mod spare_maps;
pub mod symbol;
pub mod task;
#[doc(hidden)]
pub mod testing;
pub mod this_thread;
pub mod thread;
pub mod transfer;
pub mod uring;
pub mod usage;
pub mod userfault;
mod userfault_abi;
pub mod word_range;
pub mod write_queue;
pub mod xattr;
