//! Files and directories behind two small traits, so that crashes and failing disks are ordinary tests.
//!
//! [`Device`] is a file: its length, reads, transfers one at a time or in a [`Queue`] of many in flight, a flush.
//! [`Directory`] is where devices have names: create, open, rename, remove, sync. [`Disk`] is the real thing, as is
//! [`BlockDevice`], which has no directory; [`Memory`] keeps files in memory and can lose its power; [`Faulty`] and
//! [`Throttled`] stand before any other directory or device and make it fail or slow, a [`Gate`] lets a test stall it; [`Null`] does nothing at no cost.
//!
//! Relies on `quire-sys` for direct I/O and io_uring. Must not know what is stored.

#![forbid(unsafe_code)]

mod block_device;
mod device;
mod dice;
mod directory;
mod disk;
mod disk_file;
mod disk_model;
mod engine;
mod error;
mod fault;
mod gate;
mod inline_queue;
mod layer;
mod memory;
mod null;
mod open_file;
mod poison;
mod thread_pool;
mod throttle;
mod zeros;

pub use block_device::BlockDevice;
pub use device::{Completion, Device, Queue};
pub use directory::{Directory, check_name};
pub use disk::Disk;
pub use disk_file::{Caching, of_file};
pub use disk_model::{DiskModel, SeekModel};
pub use engine::Engine;
pub use error::{Action, DeviceError};
pub use fault::{Fault, Faulty, Trigger};
pub use gate::Gate;
pub use inline_queue::InlineQueue;
pub use layer::{DirectoryLayer, Layer, Layered};
pub use memory::{Memory, PowerCut};
pub use null::{Null, ReadPattern};
pub use quire_sys::buffer::{Buffer, Carver};
pub use quire_sys::file::{Alignment, DIRECT_ALIGN, errno};
pub use quire_sys::transfer::{Direction, Extent, Transfer};
pub use throttle::Throttled;
