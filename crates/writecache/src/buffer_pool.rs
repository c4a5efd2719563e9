//! Buffers for transfers, kept for the next one: taking them from the system costs more than a small write.
//!
//! Relies on [`Buffer`].

use std::sync::{Mutex, PoisonError};

use quire_device::{Buffer, DeviceError, DeviceOperation};

const LEAST_SHIFT: u32 = 13;
const CLASSES: usize = 10;
/// Buffers of a size that are kept.
const KEPT: usize = 8;

/// A shelf of buffers by size: powers of two from 8 KiB to 4 MiB.
#[derive(Default)]
pub struct BufferPool {
    free: Mutex<[Vec<Buffer>; CLASSES]>,
}

impl BufferPool {
    fn class(len: usize) -> usize {
        len.next_power_of_two().trailing_zeros().saturating_sub(LEAST_SHIFT) as usize
    }

    /// A buffer of at least `len` bytes with anything in it.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn take(&self, len: usize) -> Result<Buffer, DeviceError> {
        let class = Self::class(len);
        let kept = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.get_mut(class).and_then(Vec::pop)
        };
        let size = len.max(1 << (class as u32 + LEAST_SHIFT));
        let none = |_| {
            let none = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
            DeviceError::new(DeviceOperation::Buffers, "the write cache", &none).at(0, size as u64)
        };
        kept.map_or_else(|| Buffer::new(size).map_err(none), Ok)
    }

    /// Gives a buffer back.
    pub fn put(&self, buffer: Buffer) {
        let class = Self::class(buffer.len());
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = free.get_mut(class)
            && kept.len() < KEPT
            && buffer.len() >= 1 << (class as u32 + LEAST_SHIFT)
        {
            kept.push(buffer);
        }
    }
}
