//! The atomics of the page-state protocol: the standard ones, or loom's when it explores every interleaving.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub use std::thread::yield_now;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
#[cfg(loom)]
pub use loom::thread::yield_now;
