//! Writing a snapshot to a new image while the writer goes on.
//!
//! Pages go in address order, in large writes; a pre-image that the writer made is found when its page's turn comes.
//! If the writer is getting short of buffers, the region that holds most of them is next; if even that one holds few,
//! pre-images are written one by one.
//!
//! With compression a region's pages are gathered first, and the region is packed into the beginning of its place: pages still have
//! fixed places, so the order still does not matter. What was written one by one keeps its region from being packed.
//!
//! Relies on [`crate::pages`] for the writing and on [`crate::publish`] for the order that survives a crash.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{Device, DeviceError, Directory, await_freed, free_later, is_freeing};
use quire_snapshot::{BackgroundPriority, PAGE_SIZE, Snapshot};

use crate::chain;
use crate::compression::{Codec, Compressor};
use crate::delta::{DeltaTarget, delta_name, find_deltas, remove_delta};
use crate::error::{DumpError, no_buffers};
use crate::format::{ImageLayout, ImageMeta, LinkId};
use crate::image::Image;
use crate::image_target::ImageTarget;
use crate::pages::PageWriter;
use crate::pass::{DumpPass, Stop};
use crate::progress::{DumpPhase, DumpProgress};
use crate::publish::TemporaryFile;
use crate::target::DumpTarget;

/// How to dump.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// Bytes of one write.
    pub write_bytes: usize,
    /// Buffers of that size: all but one of them are being written while one is filled.
    pub buffers: usize,
    /// How far the dumping thread runs behind everything else until the writer has to wait for it. `None` leaves it alone.
    pub background: Option<BackgroundPriority>,
    /// The image that the new one replaces is to be kept under this name.
    pub keep_replaced_as: Option<String>,
    /// The links that a delta is over are not known to be durable: this process has not written them.
    pub flush_links: bool,
    /// How regions are compressed. A region is stored as it is if it does not get smaller by an eighth, if the writer is short of
    /// buffers, or was while pages of the region had not been taken.
    pub compression: Option<Codec>,
    /// What part of the pages' bytes is expected to be left by compression, as of an earlier dump; 1 without.
    pub expected_share: f64,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            write_bytes: 1 << 20,
            buffers: 6,
            background: None,
            keep_replaced_as: None,
            flush_links: false,
            compression: None,
            expected_share: 1.0,
        }
    }
}

/// What a dump has done.
#[derive(Clone, Copy, Debug)]
pub struct DumpSummary {
    /// What tells the image or the delta from every other.
    pub id: LinkId,
    /// Whether it is a delta.
    pub is_delta: bool,
    /// Pages in it.
    pub pages: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Length of the file, holes counted.
    pub file_bytes: u64,
    /// Pre-images written one by one.
    pub preimages_spilled: u64,
    /// Regions written before their turn.
    pub regions_preferred: u64,
    /// Regions that are stored compressed.
    pub regions_compressed: u64,
    /// Bytes that compression has saved.
    pub saved_bytes: u64,
    /// Time until all pages were taken and the writer was free of the snapshot.
    pub data_time: Duration,
    /// Time that the flush took.
    pub sync_time: Duration,
    /// Time in all.
    pub total_time: Duration,
    /// How the bytes travelled.
    pub mode: &'static str,
}

impl DumpSummary {
    /// Bytes that the file takes on a disk that keeps holes: of an image those of its pages, of a delta those of its table, too.
    pub fn stored_bytes(&self) -> u64 {
        let with_holes = if self.is_delta { self.file_bytes } else { self.pages * PAGE_SIZE as u64 };
        with_holes.saturating_sub(self.saved_bytes)
    }
}

/// Writes `snapshot` to the image `name` in `directory`, in place of the previous one and of the deltas over it, whose space is
/// given back in the background. To be called on its own thread.
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
    let layout = ImageLayout::new(snapshot.page_count());
    let layout = if options.compression.is_some() { layout.compressed() } else { layout };
    let target = ImageTarget::new(layout, directory, name);
    let dump = Dump { meta, directory, name, file: name, links: &[], progress, options, started: Instant::now() };
    let result = dump.run(snapshot, target).map_err(|error| dump.over_chain(error));
    if result.is_ok() {
        // Only now that the new image is durable under its name.
        dump.remove_deltas();
    }
    dump.finish(result)
}

/// Writes `snapshot`, one of [changes](Snapshot::changed), to a delta over the last of `links`: the image `name` in `directory`
/// and the deltas over it that were published so far, in order. To be called on its own thread.
///
/// # Errors
/// As [`dump`], and [`DumpError::BaseChanged`] if the links are not there any more, or can't be flushed.
///
/// # Panics
/// If there are no links, or the snapshot is not one of changes.
pub fn dump_delta(
    snapshot: Snapshot,
    links: &[LinkId],
    meta: &ImageMeta,
    directory: &dyn Directory,
    name: &str,
    progress: &DumpProgress,
    options: &DumpOptions,
) -> Result<DumpSummary, DumpError> {
    let base = *links.last().expect("a delta is over something");
    let changed = Arc::clone(snapshot.changed().expect("a delta holds changes"));
    let file = delta_name(name, links.len());
    let dump = Dump { meta, directory, name, file: &file, links, progress, options, started: Instant::now() };
    if let Err(error) = chain::check_links(directory, name, links) {
        drop(snapshot);
        return dump.finish(Err(error));
    }
    let target = DeltaTarget::new(base, &changed, snapshot.page_count(), options.compression.is_some());
    let result = dump.run(snapshot, target);
    dump.finish(result.map(|summary| DumpSummary { is_delta: true, ..summary }))
}

/// Number of the temporary file beside the image that a temporary image is written to; copies number theirs from 0.
const TEMPORARY_IMAGE: usize = 999;

/// Writes `snapshot` to an image without a name, beside the image `name` in `directory`, which it leaves alone: no start finds it, and its
/// space is given back when what is returned is dropped, or the process ends. Nothing of it is flushed. It is opened in `reader`, which is the
/// same directory. To be called on its own thread.
///
/// # Errors
/// The device fails or is full, or `progress` was told to cancel.
pub fn dump_temporary(
    snapshot: Snapshot,
    meta: &ImageMeta,
    (directory, reader): (&dyn Directory, &dyn Directory),
    name: &str,
    progress: &DumpProgress,
    options: &DumpOptions,
) -> Result<Image, DumpError> {
    let dump = Dump { meta, directory, name, file: name, links: &[], progress, options, started: Instant::now() };
    let temporary = TemporaryFile::numbered(directory, name, TEMPORARY_IMAGE);
    let target = ImageTarget::new(ImageLayout::new(snapshot.page_count()), directory, temporary.name());
    let written = dump.write(snapshot, target, &temporary);
    // The name goes at the end of this function, and the file with what is open of it.
    let opened = written.and_then(|_| {
        Image::open(reader, temporary.name()).map_err(|error| DumpError::Unreadable {
            file: directory.path_of(temporary.name()),
            source: Box::new(error),
        })
    });
    dump.finish(opened)
}

/// What was written to a temporary file.
struct WrittenFile {
    device: Arc<dyn Device>,
    id: LinkId,
    pages: u64,
    file_bytes: u64,
    data_time: Duration,
}

struct Dump<'a> {
    meta: &'a ImageMeta,
    directory: &'a dyn Directory,
    /// The image that the chain begins with.
    name: &'a str,
    /// What is written: the image, or a delta over it.
    file: &'a str,
    /// What a delta is over; nothing if it is an image.
    links: &'a [LinkId],
    progress: &'a DumpProgress,
    options: &'a DumpOptions,
    started: Instant,
}

impl Dump<'_> {
    /// Tells how it ended.
    fn finish<T>(&self, result: Result<T, DumpError>) -> Result<T, DumpError> {
        self.progress.enter(if result.is_ok() { DumpPhase::Done } else { DumpPhase::Failed });
        result
    }

    /// Writes all of a file, and flushes nothing.
    fn write(
        &self,
        snapshot: Snapshot,
        target: impl DumpTarget,
        temporary: &TemporaryFile<'_>,
    ) -> Result<WrittenFile, DumpError> {
        if let Some(priority) = self.options.background {
            snapshot.run_in_background(priority);
        }
        let file_bytes = target.file_bytes();
        let total = snapshot.present_count();
        self.progress.start(total);
        self.await_room(total);
        let device = self.directory.create(temporary.name()).map_err(|error| self.failed(error))?;
        let written = self.write_file(&*device, target, snapshot);
        let (id, pages, data_time) = written.map_err(|stop| match stop {
            // It waited for space when it was told to stop.
            Stop::Device(error) if error.is_full() && self.progress.is_cancelled() => {
                DumpError::Cancelled { file: self.path() }
            }
            Stop::Device(error) => self.failed(error),
            Stop::Cancelled => DumpError::Cancelled { file: self.path() },
            Stop::Damaged(page) => DumpError::DamagedPage { file: self.path(), page },
        })?;
        Ok(WrittenFile { device, id, pages, file_bytes, data_time })
    }

    fn run(&self, snapshot: Snapshot, target: impl DumpTarget) -> Result<DumpSummary, DumpError> {
        let temporary = TemporaryFile::new(self.directory, self.name);
        let WrittenFile { device, id, pages, file_bytes, data_time } = self.write(snapshot, target, &temporary)?;
        self.progress.enter(DumpPhase::Sync);
        let sync_started = Instant::now();
        device.flush().map_err(|error| self.failed(error))?;
        let sync_time = sync_started.elapsed();
        if self.progress.is_cancelled() {
            return Err(DumpError::Cancelled { file: self.path() });
        }
        self.publish(temporary)?;
        let summary = DumpSummary {
            id,
            is_delta: false,
            pages,
            bytes_written: self.progress.bytes_written(),
            file_bytes,
            preimages_spilled: self.progress.preimages_spilled(),
            regions_preferred: self.progress.regions_preferred(),
            regions_compressed: self.progress.regions_compressed(),
            saved_bytes: self.progress.saved_bytes(),
            data_time,
            sync_time,
            total_time: self.started.elapsed(),
            mode: device.mode(),
        };
        Ok(summary)
    }

    /// Puts the (flushed) file in its place. The writer is free of the snapshot by now, so it waits for nothing of this.
    fn publish(&self, temporary: TemporaryFile<'_>) -> Result<(), DumpError> {
        self.progress.enter(DumpPhase::Publish);
        if self.options.flush_links && !self.links.is_empty() {
            // A delta is worth nothing if the power takes what it is over.
            chain::flush_links(self.directory, self.name, self.links.len())?;
        }
        // The dump may have taken long.
        chain::check_links(self.directory, self.name, self.links)?;
        if let Some(kept) = &self.options.keep_replaced_as {
            self.keep_replaced(kept)?;
        }
        // Held open, so that the rename does not free it.
        let replaced = self.directory.open(self.file).ok();
        temporary.publish(self.file).map_err(|error| self.failed(error))?;
        let synced = self.directory.sync();
        // Only now: what frees the blocks also keeps the file system's journal busy, through which the name becomes durable.
        if let Some(replaced) = replaced {
            free_later(replaced);
        }
        synced.map_err(|source| DumpError::NotDurable { file: self.path(), source })?;
        // Only if the links are there after the rename, the delta and they were there together.
        chain::check_links(self.directory, self.name, self.links)
    }

    /// Removes the deltas over the image that was replaced. The new image lists what can't be removed, so no
    /// start reads it.
    fn remove_deltas(&self) {
        let found = find_deltas(self.directory, self.name);
        let removed =
            found.and_then(|found| found.into_iter().try_for_each(|(_, delta)| remove_delta(self.directory, &delta)));
        if let Err(error) = removed {
            tracing::warn!(%error, "a delta over the image that was replaced is left; the next start removes it");
        }
    }

    fn path(&self) -> String {
        self.directory.path_of(self.file)
    }

    /// Gives the previous image and the deltas over it second names, which are durable when the new one's is: the directory is
    /// flushed once.
    fn keep_replaced(&self, kept: &str) -> Result<(), DumpError> {
        let deltas = find_deltas(self.directory, self.name).map_err(|error| self.failed(error))?;
        let deltas = deltas.into_iter().map(|(number, name)| (name, delta_name(kept, number)));
        for (name, kept) in deltas.chain([(self.name.to_owned(), kept.to_owned())]) {
            match self.directory.link(&name, &kept) {
                Ok(()) => {
                    let file = self.directory.path_of(&kept);
                    tracing::warn!(file, "the image that is replaced is kept under this name");
                }
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Tells of a full disk that the chain takes space until the image that replaces it is durable.
    fn over_chain(&self, error: DumpError) -> DumpError {
        match (error, find_deltas(self.directory, self.name)) {
            (DumpError::Device { file, source }, Ok(deltas)) if source.is_full() && !deltas.is_empty() => {
                DumpError::FullBesideChain { file, source, deltas: deltas.len() }
            }
            (error, _) => error,
        }
    }

    fn failed(&self, source: DeviceError) -> DumpError {
        DumpError::Device { file: self.path(), source }
    }

    /// Waits for the space of removed files where the disk seems to be too full without it: of images that were replaced, of saves
    /// that failed. Otherwise it is only a warning: others use the disk too, and what compression leaves is not known before, so the
    /// truth is what the writes meet. These wait for that space as well.
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
        let needed_bytes = (pages as f64 * PAGE_SIZE as f64 * self.options.expected_share).ceil() as u64;
        let free_bytes = self.directory.free_bytes()?;
        (free_bytes < needed_bytes).then_some((needed_bytes, free_bytes))
    }

    /// Writes everything. Returns what tells the file from others, how many pages it has, and when the snapshot was done with.
    fn write_file(
        &self,
        device: &dyn Device,
        target: impl DumpTarget,
        snapshot: Snapshot,
    ) -> Result<(LinkId, u64, Duration), Stop> {
        device.set_len(target.file_bytes())?;
        let compressor = |codec| Compressor::new(codec).ok_or_else(|| no_buffers(device.name()));
        let compressor = self.options.compression.map(compressor).transpose()?;
        // What compresses takes about the memory of two of them, and one is filled slowly.
        let buffers = if compressor.is_some() { self.options.buffers.saturating_sub(2) } else { self.options.buffers };
        let writer = PageWriter::new(device, self.progress, buffers, self.options.write_bytes)?;
        let mut pass = DumpPass::new(snapshot, writer, target, compressor, self.progress);
        pass.take_all()?;
        if let Some(page) = pass.snapshot.damaged_page() {
            return Err(Stop::Damaged(page));
        }
        let DumpPass { snapshot, mut writer, target, .. } = pass;
        // From here on the writer is free: nothing of the snapshot is needed any more.
        drop(snapshot);
        let data_time = self.started.elapsed();
        let (id, pages) = target.finish(self.meta, &mut writer)?;
        Ok((id, pages, data_time))
    }
}
