//! How much a dump writes at once: large writes, and small ones while the writer is short of buffers.

use std::sync::{Arc, Mutex};

use quire_checkpoint::{DumpOptions, DumpProgress, dump};
use quire_device::{
    Completion, Device, DeviceError, Directory, DirectoryLayer, Layer, LayeredDevice, MemoryDirectory, Queue, Transfer,
};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;
/// Bytes of the writes while the writer is short of buffers.
const URGENT: u64 = 64 * PAGE_SIZE as u64;

/// Bytes of each transfer, in the order in which they were submitted.
type Sizes = Arc<Mutex<Vec<u64>>>;

struct RecordedDirectory {
    inner: MemoryDirectory,
    sizes: Sizes,
}

impl DirectoryLayer for RecordedDirectory {
    fn inner(&self) -> &dyn Directory {
        &self.inner
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        LayeredDevice::new(device, Recorder(Arc::clone(&self.sizes)))
    }
}

struct Recorder(Sizes);

impl Layer for Recorder {
    fn queue(&self, inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(RecordedQueue { inner: inner.queue(depth)?, sizes: Arc::clone(&self.0) }))
    }
}

struct RecordedQueue {
    inner: Box<dyn Queue>,
    sizes: Sizes,
}

impl Queue for RecordedQueue {
    fn submit(&mut self, transfer: Transfer) {
        self.sizes.lock().unwrap().push(transfer.bytes());
        self.inner.submit(transfer);
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        transfers.into_iter().for_each(|transfer| self.submit(transfer));
    }

    fn complete(&mut self) -> Option<Completion> {
        self.inner.complete()
    }

    fn poll(&mut self) -> Option<Completion> {
        self.inner.poll()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

/// Sizes of the writes of a dump of eight full regions, before which `written` pages of the fourth one were written. The writer has buffers
/// for 600 pages.
fn sizes_after(written: u32) -> Vec<u64> {
    let mut world = World::new(8 * REGION, 600);
    (0..8 * REGION).for_each(|page| world.write(page, 1));
    let expected = world.model.clone();
    let snapshot = world.cut();
    (0..written).for_each(|page| world.write(3 * REGION + page, 2));
    let sizes = Sizes::default();
    let directory = RecordedDirectory { inner: MemoryDirectory::new(), sizes: Arc::clone(&sizes) };
    dump(snapshot, &meta(1), &directory, NAME, &DumpProgress::new(), &DumpOptions::default()).unwrap();
    assert_same(&image(&directory.inner).1, &expected);
    sizes.lock().unwrap().clone()
}

#[test]
fn a_writer_that_gets_short_of_buffers_waits_for_small_writes_and_otherwise_they_are_large() {
    let large = DumpOptions::default().write_bytes as u64;
    assert_eq!(sizes_after(300)[..16], [large; 16]);
    // With 309 of 501 buffers in use it is short of them, with 245 it is not. At the end 64 pages are left, which no large write was
    // filled with.
    let sizes = sizes_after(501);
    let expected = [&[URGENT; 3][..], &[large; 15], &[URGENT]].concat();
    assert_eq!(sizes[..19], expected);
}
