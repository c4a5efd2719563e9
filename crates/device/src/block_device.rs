//! A whole block device.
//!
//! Relies on the kernel to give a device to one user at a time, who is then sure that no file system lies on it in use.

use std::path::Path;
use std::sync::Arc;

use quire_sys::block;

use crate::device::Device;
use crate::disk_file::{CacheMode, DiskFile, FileKind};
use crate::engine::IoEngine;
use crate::error::{DeviceError, DeviceOperation};

/// Opens block devices. They have the length that they have: [`Device::set_len`] is refused, and [`Device::allocate`] up
/// to their size does nothing.
#[derive(Clone, Copy, Debug)]
pub struct BlockDevice;

impl BlockDevice {
    /// The device at `path`, with direct I/O through the best engine, for the caller alone.
    ///
    /// # Errors
    /// It is mounted or otherwise in use (`EBUSY`), isn't a block device (`ENOTBLK`), or can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Device>, DeviceError> {
        Self::open_with(path, CacheMode::default(), IoEngine::default())
    }

    /// The same with a choice of caching and engine.
    ///
    /// # Errors
    /// As [`BlockDevice::open`].
    pub fn open_with(
        path: impl AsRef<Path>,
        caching: CacheMode,
        engine: IoEngine,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = block::open(path).map_err(|error| DeviceError::new(DeviceOperation::Open, &name, &error))?;
        let len = block::len(&file).map_err(|error| DeviceError::new(DeviceOperation::Length, &name, &error))?;
        Ok(Arc::new(DiskFile::new(name, file, FileKind::Block(len), caching, engine)))
    }
}
