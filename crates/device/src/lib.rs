//! Files and directories behind two small traits, so that crashes and failing disks are ordinary tests.
//!
//! [`Device`] is a file: its length, reads, transfers one at a time or in a [`Queue`] of many in flight, a flush.
//! [`Directory`] is where devices have names: create, open, rename, remove, sync. [`DiskDirectory`] is the real
//! thing, as is [`BlockDevice`], which has no directory; [`MemoryDirectory`] keeps files in memory and can lose its
//! power; [`FaultInjector`] and [`ThrottledDirectory`] stand before any other directory or device and make it fail or
//! slow, an [`IoGate`] lets a test stall it, a [`FreeingGate`] stalls the freeing of its files; [`NullDevice`] does nothing at
//! no cost. [`remove_then_free`] removes a file whose freeing no caller waits for.
//!
//! Relies on `quire-sys` for direct I/O and io_uring. Must not know what is stored.

#![forbid(unsafe_code)]

mod block_device;
mod device;
mod directory;
mod disk;
mod disk_file;
mod disk_model;
mod engine;
mod error;
mod fault;
mod freeing;
mod freeing_gate;
mod gate;
mod inline_queue;
mod layer;
mod memory;
mod null;
mod open_file;
mod poison;
mod thread_pool;
mod throttle;

pub use block_device::BlockDevice;
pub use device::{Completion, Device, Queue, TakenBytes};
pub use directory::{Directory, check_name};
pub use disk::DiskDirectory;
pub use disk_file::{CacheMode, of_file};
pub use disk_model::{DiskModel, SeekModel};
pub use engine::IoEngine;
pub use error::{DeviceError, DeviceOperation};
pub use fault::{FaultInjector, FaultTrigger, InjectedFault};
pub use freeing::{await_freed, free_later, freed_files, is_freeing, remove_then_free};
pub use freeing_gate::FreeingGate;
pub use gate::IoGate;
pub use inline_queue::InlineQueue;
pub use layer::{DirectoryLayer, Layer, LayeredDevice};
pub use memory::{MemoryDirectory, PowerCut};
pub use null::{NullDevice, ReadPattern};
pub use quire_sys::buffer::{Buffer, BumpAllocator};
pub use quire_sys::file::{DIRECT_ALIGN, DirectAlignment, errno};
pub use quire_sys::transfer::{Direction, Extent, Transfer};
pub use throttle::ThrottledDirectory;
