//! The plain second tier, for comparison: the page cache, which takes dirty victims only.
//!
//! A program can write a page into the page cache, and can't put a clean one there without a write. So writes go through the page cache, what
//! is read comes past it, and a miss first looks there and has the cache give the page up (`TierConfig::page_cache`). The pool writes nothing
//! before it needs the memory (`dirty_percent`), so that what is written is a victim: the path *evict-dirty*. Clean victims are dropped.
//!
//! Relies on the kernel for coherence: a direct read of bytes that are dirty in the cache has them written first.

use std::sync::Arc;

use quire_device::{Device, DeviceError, Direction, Layer, LayeredDevice, Queue, Transfer};

/// Sends writes through the page cache, in front of a device that goes past it.
struct BufferedWrites {
    /// The same file.
    buffered: Arc<dyn Device>,
}

/// `direct` for reads, and `buffered`, which has the same file, for writes.
pub fn page_cache_tier(direct: Arc<dyn Device>, buffered: Arc<dyn Device>) -> Arc<dyn Device> {
    LayeredDevice::new(direct, BufferedWrites { buffered })
}

impl Layer for BufferedWrites {
    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        match transfer.direction {
            Direction::Read => inner.run(transfer),
            Direction::Write => self.buffered.run(transfer),
        }
    }

    fn write_durable(&self, _: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.buffered.write_durable(transfer)
    }

    /// The pool of a trial reads nothing ahead, so its queues only write.
    fn queue(&self, _: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        self.buffered.queue(depth)
    }

    fn flush(&self, _: &dyn Device) -> Result<(), DeviceError> {
        self.buffered.flush()
    }

    fn flush_data(&self, _: &dyn Device) -> Result<(), DeviceError> {
        self.buffered.flush_data()
    }
}
