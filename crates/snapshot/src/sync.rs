//! The atomics and locks of the page-state protocols: the standard ones, or loom's when it explores every interleaving.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex};
#[cfg(not(loom))]
pub use std::thread::yield_now;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex};
#[cfg(loom)]
pub use loom::thread::yield_now;
