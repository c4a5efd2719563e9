//! Files and directories behind two small traits, so that crashes and failing disks are ordinary tests.
//!
//! [`Device`] is a file: its length, reads, a [`Queue`] of transfers in flight, a flush. [`Directory`] is where devices
//! have names: create, open, rename, remove, sync. [`Disk`] is the real thing; [`Memory`] keeps files in memory and can
//! lose its power; [`Faulty`] and [`Throttled`] stand before any other directory and make it fail or slow.
//!
//! Relies on `quire-sys` for direct I/O and io_uring. Must not know what is stored.

#![forbid(unsafe_code)]

mod device;
mod directory;
mod disk;
mod engine;
mod error;
mod fault;
mod memory;
mod target;
mod threads;
mod throttle;

pub use device::{Device, Finished, Queue};
pub use directory::{Directory, check_name};
pub use disk::{Caching, Disk};
pub use engine::Engine;
pub use error::{Action, DeviceError};
pub use fault::{Fault, Faulty, Trigger};
pub use memory::{Memory, PowerCut};
pub use quire_sys::buffer::{Buffer, Carver};
pub use quire_sys::file::{DIRECT_ALIGN, errno};
pub use quire_sys::transfer::{Direction, Extent, Transfer};
pub use throttle::{Pace, Throttled};
