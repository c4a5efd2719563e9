//! The longest wait of a writer for a save, where a disk takes 500 MB/s by a model: every write takes the time of its bytes.
//!
//! Relies on the same barrier and dump as the server's, in this process, with the default budget, and on no disk: the kernel's own limit
//! (blkio) lets the bytes of 100 ms through at once and then nothing for as long, so a wait under it is mostly the limit's own.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use quire_checkpoint::{DumpOptions, DumpProgress, ImageMeta, dump};
use quire_device::{
    Device, DeviceError, Directory, DirectoryLayer, DiskDirectory, DiskModel, Layer, LayeredDevice, NullDevice, Queue,
    ReadPattern, ThrottledDirectory,
};
use quire_snapshot::{BackgroundPriority, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::{PAGE_SIZE, Reservation};

use super::trial::LIMITED_BYTES_PER_S;

/// Behind what a save of the server runs until a writer waits for it.
const BACKGROUND: BackgroundPriority = BackgroundPriority { nice: 10, idle_io: true };
/// Steps over pages that visit all of them, so that neighbours in time lie in different regions.
const STRIDES: [usize; 3] = [7919, 7907, 7901];
const NAME: &str = "modelled.quire";

/// What one save was to its writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelledSave {
    /// The longest wait, in milliseconds.
    pub(super) longest_wait_ms: f64,
    /// Waits, all of them.
    pub(super) waits: u64,
    /// First writes of pages during the save, over the pages.
    pub(super) written: f64,
}

/// Files whose pages go nowhere.
struct NullDirectory(DiskDirectory);

impl DirectoryLayer for NullDirectory {
    fn inner(&self) -> &dyn Directory {
        &self.0
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        LayeredDevice::new(device, NullWrites)
    }
}

struct NullWrites;

impl Layer for NullWrites {
    fn queue(&self, _inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        let null: Arc<dyn Device> = Arc::new(NullDevice::new(0, ReadPattern::Untouched));
        null.queue(depth)
    }
}

/// Saves `bytes` of memory, and meanwhile writes a page after the other as fast as it may.
///
/// # Errors
/// There is no memory, or the save fails.
pub(super) fn save(dir: &Path, bytes: u64) -> anyhow::Result<ModelledSave> {
    let pages = (bytes as usize / PAGE_SIZE).max(1);
    let memory = Arc::new(Reservation::new(pages * PAGE_SIZE).context("memory for the data")?);
    memory.commit(0..memory.len()).context("memory for the data")?;
    let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig::default())?;
    barrier.mark_present(0..u32::try_from(pages)?);
    let value = [7_u8; 1000];
    for page in 0..pages {
        barrier.write(page * PAGE_SIZE, &value)?;
    }
    let snapshot = barrier.cut(u32::try_from(pages)?)?;
    let null = Arc::new(NullDirectory(DiskDirectory::new(dir)));
    let disk = ThrottledDirectory::new(null, DiskModel { bytes_per_s: LIMITED_BYTES_PER_S, ..DiskModel::default() });
    let options = DumpOptions { background: Some(BACKGROUND), ..DumpOptions::default() };
    let meta = ImageMeta { epoch: 1, created_unix_ms: 0, root: 0, note: [0; 64], history: 1, chained: false };
    let progress = DumpProgress::new();
    let stride = STRIDES.into_iter().find(|stride| !pages.is_multiple_of(*stride)).unwrap_or(1);
    let saved = std::thread::scope(|scope| {
        let saving = scope.spawn(|| dump(snapshot, &meta, &disk, NAME, &progress, &options));
        let mut page = 0;
        while !saving.is_finished() {
            barrier.write(page * PAGE_SIZE, &value)?;
            page = (page + stride) % pages;
        }
        saving.join().expect("a save does not panic").context("saving to the modelled disk")
    });
    saved?;
    let stats = barrier.stats();
    disk.remove(NAME)?;
    Ok(ModelledSave {
        longest_wait_ms: stats.wait_longest_ns as f64 / 1e6,
        waits: stats.waits,
        written: stats.pages_written as f64 / pages as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_to_the_model_writes_nothing_to_the_disk_and_tells_of_the_writes_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let save = save(dir.path(), 4 << 20).unwrap();
        assert!(save.longest_wait_ms >= 0.0 && save.written >= 0.0 && save.written <= 1.0, "{save:?}");
        assert!(save.waits > 0 || save.longest_wait_ms == 0.0, "{save:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
