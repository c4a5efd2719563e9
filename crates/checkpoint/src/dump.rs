//! Writing a snapshot to a new image while the writer goes on.
//!
//! Pages go in address order, in large writes; a pre-image that the writer made is found when its page's turn comes.
//! If the writer is getting short of buffers, the region that holds most of them is next; if even that one holds few,
//! pre-images are written one by one.
//!
//! Relies on [`crate::pages`] for the writing and on [`crate::publish`] for the order that survives a crash.

use std::time::{Duration, Instant};

use quire_device::{Device, DeviceError, Directory, await_freed, free_later, is_freeing};
use quire_snapshot::{PAGE_SIZE, Snapshot, TakeOutcome};
use zerocopy::IntoBytes;

use crate::error::DumpError;
use crate::format::{ImageFooter, ImageHeader, ImageLayout, ImageMeta, page_sum};
use crate::pages::PageWriter;
use crate::progress::{DumpPhase, DumpProgress};
use crate::publish::TemporaryFile;
use crate::table::ChecksumTable;

/// A region with fewer pre-images than this isn't worth 2 MiB of writing to free them.
const SPILL_BELOW: u32 = 8;

/// How to dump.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// Bytes of one write.
    pub write_bytes: usize,
    /// Buffers of that size: all but one of them are being written while one is filled.
    pub buffers: usize,
    /// By how many nice values the dumping thread runs behind until the writer has to wait for it, where the system would
    /// allow to raise it again then. `None` leaves it alone.
    pub nice: Option<i32>,
    /// The image that the new one replaces is to be kept under this name.
    pub keep_replaced_as: Option<String>,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self { write_bytes: 1 << 20, buffers: 6, nice: None, keep_replaced_as: None }
    }
}

/// What a dump has done.
#[derive(Clone, Copy, Debug)]
pub struct DumpSummary {
    /// The image's epoch.
    pub epoch: u64,
    /// Pages in the image.
    pub pages: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Length of the file, holes counted.
    pub file_bytes: u64,
    /// Pre-images written one by one.
    pub preimages_spilled: u64,
    /// Regions written before their turn.
    pub regions_preferred: u64,
    /// Time until all pages were taken and the writer was free of the snapshot.
    pub data_time: Duration,
    /// Time that the flush took.
    pub sync_time: Duration,
    /// Time in all.
    pub total_time: Duration,
    /// How the bytes travelled.
    pub mode: &'static str,
}

/// Writes `snapshot` to the image `name` in `directory`, in place of the previous one, whose space is given back in the
/// background. To be called on its own thread.
///
/// # Errors
/// The device fails or is full, or `progress` was told to cancel. The previous image is untouched then, with the one
/// exception that [`DumpError::NotDurable`] describes.
pub fn dump(
    snapshot: Snapshot,
    meta: &ImageMeta,
    directory: &dyn Directory,
    name: &str,
    progress: &DumpProgress,
    options: &DumpOptions,
) -> Result<DumpSummary, DumpError> {
    let result = Dump { meta, directory, name, progress, options, started: Instant::now() }.run(snapshot);
    progress.enter(if result.is_ok() { DumpPhase::Done } else { DumpPhase::Failed });
    result
}

struct Dump<'a> {
    meta: &'a ImageMeta,
    directory: &'a dyn Directory,
    name: &'a str,
    progress: &'a DumpProgress,
    options: &'a DumpOptions,
    started: Instant,
}

/// Why pages stopped flowing.
enum Stop {
    Device(DeviceError),
    Cancelled,
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl Dump<'_> {
    fn run(&self, snapshot: Snapshot) -> Result<DumpSummary, DumpError> {
        if let Some(nice) = self.options.nice {
            snapshot.run_in_background(nice);
        }
        let layout = ImageLayout::new(snapshot.page_count());
        let total = snapshot.present_count();
        self.progress.start(total);
        self.await_room(total);
        let temporary = TemporaryFile::new(self.directory, self.name);
        let device = self.directory.create(temporary.name()).map_err(|error| self.failed(error))?;
        let written = self.write_image(&*device, layout, snapshot);
        let (pages, data_time) = written.map_err(|stop| match stop {
            Stop::Device(error) => self.failed(error),
            Stop::Cancelled => DumpError::Cancelled { file: self.path() },
        })?;
        self.progress.enter(DumpPhase::Sync);
        let sync_started = Instant::now();
        device.flush().map_err(|error| self.failed(error))?;
        let sync_time = sync_started.elapsed();
        if self.progress.is_cancelled() {
            return Err(DumpError::Cancelled { file: self.path() });
        }
        self.progress.enter(DumpPhase::Publish);
        if let Some(kept) = &self.options.keep_replaced_as {
            self.keep_replaced(kept)?;
        }
        // Held open, so that the rename does not free it.
        let replaced = self.directory.open(self.name).ok();
        temporary.publish(self.name).map_err(|error| self.failed(error))?;
        let synced = self.directory.sync();
        // Only now: what frees the blocks also keeps the file system's journal busy, through which the name becomes durable.
        if let Some(replaced) = replaced {
            free_later(replaced);
        }
        synced.map_err(|source| DumpError::NotDurable { file: self.path(), source })?;
        let summary = DumpSummary {
            epoch: self.meta.epoch,
            pages,
            bytes_written: self.progress.bytes_written(),
            file_bytes: layout.file_bytes(),
            preimages_spilled: self.progress.preimages_spilled(),
            regions_preferred: self.progress.regions_preferred(),
            data_time,
            sync_time,
            total_time: self.started.elapsed(),
            mode: device.mode(),
        };
        Ok(summary)
    }

    fn path(&self) -> String {
        self.directory.path_of(self.name)
    }

    /// Gives the previous image a second name, which is durable when the new one's is: the directory is flushed once.
    fn keep_replaced(&self, kept: &str) -> Result<(), DumpError> {
        match self.directory.link(self.name, kept) {
            Ok(()) => {
                tracing::warn!(
                    file = self.directory.path_of(kept),
                    "the image that is replaced is kept under this name"
                );
                Ok(())
            }
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, source: DeviceError) -> DumpError {
        DumpError::Device { file: self.path(), source }
    }

    /// Waits for the space of removed files where the disk is too full without it: of images that were replaced, of saves
    /// that failed. Otherwise it is only a warning: others use the disk too, so the truth is what the writes meet.
    fn await_room(&self, pages: u64) {
        while self.lacks_room(pages).is_some() && is_freeing() && !self.progress.is_cancelled() {
            await_freed(Duration::from_millis(50));
        }
        if let Some((needed_bytes, free_bytes)) = self.lacks_room(pages) {
            tracing::warn!(file = self.path(), needed_bytes, free_bytes, "the disk may be too full for this save");
        }
    }

    /// Bytes that are needed, and those that are free, if these are fewer.
    fn lacks_room(&self, pages: u64) -> Option<(u64, u64)> {
        let needed_bytes = pages * PAGE_SIZE as u64;
        let free_bytes = self.directory.free_bytes()?;
        (free_bytes < needed_bytes).then_some((needed_bytes, free_bytes))
    }

    /// Writes everything. Returns how many pages, and when the snapshot was done with.
    fn write_image(
        &self,
        device: &dyn Device,
        layout: ImageLayout,
        snapshot: Snapshot,
    ) -> Result<(u64, Duration), Stop> {
        device.set_len(layout.file_bytes())?;
        let writer = PageWriter::new(device, layout, self.progress, self.options.buffers, self.options.write_bytes)?;
        let regions = layout.region_count() as usize;
        let mut pass = Pass {
            snapshot,
            writer,
            table: ChecksumTable::new(layout),
            done: vec![false; regions],
            progress: self.progress,
        };
        pass.take_all()?;
        let Pass { snapshot, mut writer, table, .. } = pass;
        // From here on the writer is free: nothing of the snapshot is needed any more.
        drop(snapshot);
        let data_time = self.started.elapsed();
        let header = ImageHeader::new(self.meta, layout.page_count());
        let mut tail = table.encode();
        let footer = ImageFooter::new(&header, &tail, table.present_pages());
        tail.extend_from_slice(footer.as_bytes());
        writer.write(0, header.as_bytes())?;
        writer.write(layout.table_offset(), &tail)?;
        writer.finish()?;
        Ok((table.present_pages(), data_time))
    }
}

/// One walk through all pages of a snapshot.
struct Pass<'a> {
    snapshot: Snapshot,
    writer: PageWriter<'a>,
    table: ChecksumTable,
    /// Regions whose pages have been taken.
    done: Vec<bool>,
    progress: &'a DumpProgress,
}

impl Pass<'_> {
    fn take_all(&mut self) -> Result<(), Stop> {
        for region in 0..self.done.len() as u32 {
            self.relieve()?;
            if !self.done[region as usize] {
                self.take_region(region)?;
            }
        }
        self.writer.submit()?;
        Ok(())
    }

    fn take_region(&mut self, region: u32) -> Result<(), Stop> {
        if self.progress.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        for page in self.table.layout().pages_of(region) {
            if self.snapshot.take(page, self.writer.slot()?) == TakeOutcome::Copied {
                self.keep(page)?;
            }
        }
        self.done[region as usize] = true;
        Ok(())
    }

    /// The slot holds `page`.
    fn keep(&mut self, page: u32) -> Result<(), DeviceError> {
        // Summed here, while the page is still in the processor's cache.
        let sum = page_sum(page, self.writer.slot()?);
        self.table.add(page, sum);
        self.writer.keep(page)
    }

    /// Frees buffers of the writer if it is getting short of them.
    fn relieve(&mut self) -> Result<(), Stop> {
        while self.snapshot.pressure() {
            match self.snapshot.fullest_region() {
                Some(region) if !self.done[region as usize] && self.snapshot.held_in(region) >= SPILL_BELOW => {
                    self.progress.add_preferred();
                    self.take_region(region)?;
                }
                Some(_) => {
                    // Small writes are slow: one bufferful, then a region in its turn, which frees some too.
                    return self.spill();
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Takes pre-images wherever they are, a bufferful at most.
    fn spill(&mut self) -> Result<(), Stop> {
        self.writer.submit()?;
        self.writer.slot()?;
        let mut spilled = 0;
        for _ in 0..self.writer.room() {
            let Some(page) = self.snapshot.next_preimage(self.writer.slot()?) else { break };
            self.keep(page)?;
            spilled += 1;
        }
        self.progress.add_spilled(spilled);
        self.writer.submit()?;
        Ok(())
    }
}
