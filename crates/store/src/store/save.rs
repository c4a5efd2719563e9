//! Saving: a cut at a command boundary, and a thread that writes what was cut to an image while commands go on.
//!
//! Relies on the arena for the cut and on `quire-checkpoint` for everything about images. One save at a time; how it went
//! is learnt by asking ([`Store::poll_save`]), so the thread that runs commands never waits for a disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quire_checkpoint::{
    Codec, DumpError, DumpOptions, DumpProgress, DumpSummary, ImageIdentity, ImageMeta, LinkId, dump, dump_delta,
};
use quire_snapshot::{BackgroundPriority, PAGE_SIZE, Snapshot};

use crate::keyspace::root;
use crate::store::Store;
use crate::store::location::ImageLocation;
use crate::store::published::{DeltaBase, DeltaPolicy, PublishedChain};
use crate::store::save_error::SaveError;
use crate::store::stored_shares::StoredShares;
use quire_sys::thread::spawn_unsignalled;

/// Nice values that a background save runs behind: commands come first, until they have to wait for it.
pub(super) const NICE: i32 = 10;

/// How a save went that ended well.
#[derive(Clone, Copy, Debug)]
pub struct SaveSummary {
    /// How long the cut held commands up.
    pub cut_ns: u64,
    /// What was written.
    pub image: DumpSummary,
}

impl SaveSummary {
    /// Bytes a second, from the cut to the durable image.
    pub fn bytes_per_s(&self) -> u64 {
        (self.image.bytes_written as f64 / self.image.total_time.as_secs_f64().max(1e-6)) as u64
    }
}

/// How far a running save has come.
#[derive(Clone, Copy, Debug)]
pub struct SaveProgress {
    /// Pages written or on their way.
    pub pages_done: u64,
    /// Pages to write.
    pub pages_total: u64,
    /// Bytes that the disk has taken.
    pub bytes_written: u64,
    /// Since the cut.
    pub elapsed: Duration,
}

impl SaveProgress {
    /// How long the save still takes if it goes on as so far; `None` as long as that can't be told.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.pages_total.saturating_sub(self.pages_done);
        (self.pages_done > 0).then(|| self.elapsed.mul_f64(left as f64 / self.pages_done as f64))
    }
}

/// Figures of the last saves.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveStats {
    /// How long the last cut held commands up.
    pub last_cut_ns: u64,
    /// Pre-images held now.
    pub preimage_bytes_now: u64,
    /// Most pre-images held at once since the last cut.
    pub preimage_bytes_peak: u64,
    /// Most that may be held.
    pub budget_bytes: u64,
    /// Times that a command waited for the thread that saves.
    pub waits: u64,
    /// How long they waited together.
    pub wait_total_ns: u64,
    /// The longest wait.
    pub wait_longest_ns: u64,
    /// Rate of the last save, from the cut to the durable image; of the running one while one runs.
    pub dump_bytes_per_s: u64,
    /// Deltas over the image that is on the disk, as far as is known.
    pub chain_deltas: u64,
    /// Bytes that these take on the disk.
    pub chain_delta_bytes: u64,
    /// Bytes of the last of these.
    pub last_delta_bytes: u64,
    /// Bytes that compression saved in the last save.
    pub last_compression_savings_bytes: u64,
    /// Bytes of pages that have changed since the last save, if that is tracked.
    pub changed_bytes: Option<u64>,
}

/// What the store knows of its saves.
#[derive(Default)]
pub(crate) struct Saves {
    pub(crate) running: Option<RunningSave>,
    /// Memory for pre-images, to hold from the next cut on.
    pub(crate) new_budget_bytes: Option<usize>,
    /// Most bytes a second that a save in the background writes; 0 is no limit.
    pub(crate) max_bytes_per_s: u64,
    /// Whether a save in the background has the idle I/O priority.
    pub(super) idle_io: bool,
    /// What is wrong with the image that the data comes from: the save that replaces it keeps it under another name, which says this.
    pub(crate) keep_replaced: Option<&'static str>,
    /// Places that have been saved to since: what is there now is not the damaged image.
    kept_at: Vec<String>,
    /// Regions of it that are used all the same, of those that were brought back in the background.
    pub(crate) damaged_regions: u32,
    /// Whether a save is a delta.
    pub(crate) deltas: DeltaPolicy,
    /// The last image's.
    pub(crate) epoch: u64,
    /// The last save that was whole.
    pub(crate) last_image: Option<ImageIdentity>,
    pub(crate) last_cut_ns: u64,
    pub(crate) last_bytes_per_s: u64,
    /// How regions are compressed, if they are.
    pub(crate) compression: Option<Codec>,
    /// Bytes that compression saved in the last save.
    last_compression_savings_bytes: u64,
    /// What part of their pages' bytes the last image and the last delta took with this compression, if there was one.
    stored_shares: StoredShares,
}

/// A save in the background.
pub(crate) struct RunningSave {
    pub(crate) thread: JoinHandle<()>,
    /// How it ended.
    pub(crate) result: Receiver<Result<DumpSummary, DumpError>>,
    pub(crate) progress: Arc<DumpProgress>,
    /// Path of the image.
    pub(crate) place: String,
    pub(crate) cut_ns: u64,
    pub(crate) since: Instant,
}

/// What a cut has fixed, to be written.
pub(super) struct Cut {
    pub(super) snapshot: Snapshot,
    pub(super) meta: ImageMeta,
    /// What a delta of it is over; `None` if it is an image.
    base: Option<DeltaBase>,
    cut_ns: u64,
}

impl Cut {
    /// Writes the image or the delta.
    fn dump(
        self,
        place: &ImageLocation,
        progress: &DumpProgress,
        options: DumpOptions,
    ) -> Result<DumpSummary, DumpError> {
        let Self { snapshot, meta, base, .. } = self;
        let (directory, file) = (place.directory(), place.file());
        match base {
            Some(DeltaBase { links, flush_links }) => {
                let options = DumpOptions { flush_links, ..options };
                dump_delta(snapshot, &links, &meta, directory, file, progress, &options)
            }
            None => dump(snapshot, &meta, directory, file, progress, &options),
        }
    }
}

impl RunningSave {
    pub(crate) fn progress(&self) -> SaveProgress {
        SaveProgress {
            pages_done: self.progress.pages_done(),
            pages_total: self.progress.pages_total(),
            bytes_written: self.progress.bytes_written(),
            elapsed: self.since.elapsed(),
        }
    }
}

impl Saves {
    /// Whether a save to `place` keeps what it replaces: it may be the damaged image.
    fn keeps_replaced(&self, place: &str) -> bool {
        self.keep_replaced.is_some() && !self.kept_at.iter().any(|kept| kept == place)
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        // The caller that drops the store doesn't want what is being saved, nor what an unfinished save leaves on the disk.
        if let Some(running) = self.running.take() {
            running.progress.cancel();
            let _ = running.thread.join();
        }
    }
}

impl Store {
    /// The data comes from another program's file in the image's place: the first save keeps that under another name.
    pub fn keep_replaced(&mut self) {
        self.saves.keep_replaced = Some("foreign");
    }

    /// Fixes the data as it is now and starts to save it. Commands may go on at once.
    ///
    /// # Errors
    /// [`SaveError::Busy`], [`SaveError::Unverified`] until [`Store::restore_step`] has finished, or the cut or the thread
    /// is refused. What fails later is told by [`Store::poll_save`].
    pub fn begin_save(&mut self, place: &ImageLocation) -> Result<(), SaveError> {
        if self.saves.running.is_some() {
            return Err(SaveError::Busy);
        }
        let cut = self.cut(Some(place))?;
        let cut_ns = cut.cut_ns;
        let progress = Arc::new(DumpProgress::new());
        progress.limit_rate(self.saves.max_bytes_per_s);
        let (path, place, shared) = (place.path(), place.clone(), Arc::clone(&progress));
        let background = Some(BackgroundPriority { nice: NICE, idle_io: self.saves.idle_io });
        let options = DumpOptions { background, ..self.dump_options(&place, cut.base.is_some()) };
        let (tell, result) = sync_channel(1);
        let save = move || {
            // If there is no receiver, the store is gone.
            let _ = tell.send(cut.dump(&place, &shared, options));
        };
        let thread = spawn_unsignalled("quire-save", save).map_err(SaveError::Thread)?;
        self.saves.running = Some(RunningSave { thread, result, progress, place: path, cut_ns, since: Instant::now() });
        Ok(())
    }

    /// Changes the most memory that a save may use beyond the data, from the next save on.
    pub fn set_save_budget(&mut self, budget_bytes: usize) {
        self.saves.new_budget_bytes = Some(budget_bytes);
    }

    /// Changes how many bytes a second a save in the background writes at most, the running one too; 0 is no limit. A save for
    /// which the caller waits has none, and one on which commands wait goes faster.
    pub fn limit_save_rate(&mut self, max_bytes_per_s: u64) {
        self.saves.max_bytes_per_s = max_bytes_per_s;
        if let Some(running) = &self.saves.running {
            running.progress.limit_rate(max_bytes_per_s);
        }
        if let Some(running) = &self.temporary {
            running.progress.limit_rate(max_bytes_per_s);
        }
    }

    /// Whether the next save in the background asks the disk to serve its requests when no other one wants it (`ioprio_set`), until a
    /// writer waits for the save. Disks whose scheduler heeds no priorities ignore that.
    pub fn set_idle_io(&mut self, idle_io: bool) {
        self.saves.idle_io = idle_io;
    }

    /// Changes how many deltas may be over an image, from the next save on; 0 if every save is to be an image.
    pub fn set_max_deltas(&mut self, max_deltas: u32) {
        self.saves.deltas.max_deltas = max_deltas;
    }

    /// Changes how saves compress regions, from the next save on. A region is stored as it is where that saves less than an eighth.
    pub fn set_compression(&mut self, compression: Option<Codec>) {
        if self.saves.compression != compression {
            self.saves.stored_shares = StoredShares::default();
        }
        self.saves.compression = compression;
    }

    /// Fixes the data as it is now, to be saved to `place`; without one to be kept nowhere, which takes all of it.
    pub(super) fn cut(&mut self, place: Option<&ImageLocation>) -> Result<Cut, SaveError> {
        let start = Instant::now();
        if self.temporary.is_some() {
            return Err(SaveError::Busy);
        }
        if self.restore_progress().is_some() {
            // A new image would give pages that were not checked fresh checksums, and take the place of the one that
            // tells that they are damaged.
            return Err(SaveError::Unverified);
        }
        // Of a clone: pages of its image may have proved to be something else since.
        self.check_step().map_err(|error| SaveError::NotVerifiable(Box::new(error)))?;
        if !self.arena_mut().try_finish() {
            return Err(SaveError::Busy);
        }
        if let Some(budget_bytes) = self.saves.new_budget_bytes.take() {
            self.arena_mut().set_budget(budget_bytes).map_err(SaveError::Cut)?;
        }
        let planned = place.map(|place| self.saves.deltas.plan(self.keyspace.arena_mut(), place));
        let base = planned.transpose().map_err(SaveError::Cut)?.flatten();
        // A chain that is to be kept for its damage is replaced, not added to.
        let base = base.filter(|_| !place.is_some_and(|place| self.saves.keeps_replaced(&place.path())));
        // Fixed by the cut like everything else, so that image and log can't disagree.
        let (root, position) = (self.root(), self.log_position);
        root::set_log_position(self.keyspace.arena_mut(), root, position).map_err(SaveError::Root)?;
        let listed = self.keyspace.list_copy().map_err(SaveError::Root)?;
        let snapshot = if base.is_some() { self.arena_mut().cut_changes() } else { self.arena_mut().cut() };
        self.keyspace.unlist_copy(listed).map_err(SaveError::Root)?;
        let snapshot = snapshot.map_err(SaveError::Cut)?;
        let cut_ns = start.elapsed().as_nanos() as u64;
        self.saves.last_cut_ns = cut_ns;
        self.saves.epoch += 1;
        let meta = ImageMeta {
            epoch: self.saves.epoch,
            created_unix_ms: unix_ms(),
            root: root.low(),
            note: note(),
            history: self.dataset,
            chained: self.saves.deltas.max_deltas > 0,
        };
        Ok(Cut { snapshot, meta, base, cut_ns })
    }

    /// How the save ended, once it has; `None` while it runs and when there is none. To be asked from time to time.
    pub fn poll_save(&mut self) -> Option<Result<SaveSummary, SaveError>> {
        // As soon as the last page is taken, writing costs nothing any more, though the disk is still busy.
        self.arena_mut().try_finish();
        let result = match self.saves.running.as_ref()?.result.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(result) => result.map_err(SaveError::Dump),
            Err(TryRecvError::Disconnected) => Err(SaveError::Crashed),
        };
        self.end_save(result)
    }

    /// Waits for the running save.
    fn join_save(&mut self) -> Option<Result<SaveSummary, SaveError>> {
        let result = match self.saves.running.as_ref()?.result.recv() {
            Ok(result) => result.map_err(SaveError::Dump),
            Err(RecvError) => Err(SaveError::Crashed),
        };
        self.end_save(result)
    }

    fn end_save(&mut self, result: Result<DumpSummary, SaveError>) -> Option<Result<SaveSummary, SaveError>> {
        // The thread has told its result, or has crashed: it does nothing more with the data, and ends by itself. It runs behind
        // everything else, so a command that waited for its end could wait for as long as others take the processors.
        let RunningSave { cut_ns, place, .. } = self.saves.running.take()?;
        self.arena_mut().try_finish();
        Some(self.note_save(place, result.map(|image| SaveSummary { cut_ns, image })))
    }

    /// The name under which the image that the next save replaces is kept, if it is a damaged one.
    fn name_to_keep(&self, place: &ImageLocation) -> Option<String> {
        let fault = self.saves.keep_replaced.filter(|_| self.saves.keeps_replaced(&place.path()))?;
        Some(format!("{}.{fault}-{}", place.file(), unix_ms()))
    }

    fn dump_options(&self, place: &ImageLocation, is_delta: bool) -> DumpOptions {
        DumpOptions {
            keep_replaced_as: self.name_to_keep(place),
            compression: self.saves.compression,
            expected_share: self.saves.stored_shares.expected(is_delta),
            ..DumpOptions::default()
        }
    }

    fn note_save(&mut self, place: String, result: Result<SaveSummary, SaveError>) -> Result<SaveSummary, SaveError> {
        if result.is_ok() && self.saves.keeps_replaced(&place) {
            self.saves.kept_at.push(place.clone());
        }
        let (arena, deltas) = (self.keyspace.arena_mut(), &mut self.saves.deltas);
        match &result {
            Ok(summary) => deltas.note_saved(arena, place, &summary.image),
            Err(error) => deltas.note_failed(arena, error.leaves_disk_as_it_was()),
        }
        if let Ok(summary) = &result {
            let LinkId { epoch, checksum } = summary.image.id;
            self.saves.last_image = Some(ImageIdentity { history: self.dataset, epoch, checksum });
            self.saves.last_bytes_per_s = summary.bytes_per_s();
            self.saves.last_compression_savings_bytes = summary.image.saved_bytes;
            self.saves.stored_shares.note(&summary.image);
        }
        result
    }

    /// Tells the running save to stop; [`Store::poll_save`] says when it has. An image that is complete already may
    /// still be published.
    pub fn cancel_save(&mut self) {
        if let Some(running) = &self.saves.running {
            running.progress.cancel();
        }
        // It may be amid a write, or a flush, that a client waits for from now on.
        self.hurry_save();
    }

    /// Commands wait for the running save, if there is one, or for the temporary image before it: it gets the priorities back that it has
    /// stepped back from.
    pub fn hurry_save(&mut self) {
        if self.saves.running.is_some() || self.temporary.is_some() {
            self.arena_mut().hurry_snapshot();
        }
    }

    /// Saves the data as it is now, and waits for it. A save in the background that was cancelled is waited for first, and
    /// so is a restore in the background. A temporary image that is being written is given up.
    ///
    /// # Errors
    /// [`SaveError::Busy`] while a save in the background runs, [`SaveError::NotVerifiable`], and as [`Store::begin_save`]
    /// and [`dump`] have it.
    pub fn save_blocking(&mut self, place: &ImageLocation) -> Result<SaveSummary, SaveError> {
        match &self.saves.running {
            Some(running) if !running.progress.is_cancelled() => return Err(SaveError::Busy),
            Some(_) => drop(self.join_save()),
            None => {}
        }
        // It ends sooner with the priority of the thread that waits for it.
        self.cancel_temporary_image();
        self.end_temporary_image();
        self.finish_restore().map_err(|error| SaveError::NotVerifiable(Box::new(error)))?;
        match self.save_once(place) {
            // The image was removed or exchanged meanwhile: no reason for a client that waits for a save to do without.
            Err(error) if error.needs_full_image() => {
                tracing::warn!(%error, "saving a full image instead of a delta");
                self.save_once(place)
            }
            result => result,
        }
    }

    fn save_once(&mut self, place: &ImageLocation) -> Result<SaveSummary, SaveError> {
        let cut = self.cut(Some(place))?;
        let cut_ns = cut.cut_ns;
        let options = self.dump_options(place, cut.base.is_some());
        let result = cut.dump(place, &DumpProgress::new(), options);
        self.arena_mut().try_finish();
        self.note_save(place.path(), result.map(|image| SaveSummary { cut_ns, image }).map_err(SaveError::Dump))
    }

    /// How far the running save has come.
    pub fn save_progress(&self) -> Option<SaveProgress> {
        self.saves.running.as_ref().map(RunningSave::progress)
    }

    /// Figures of the last saves.
    pub fn save_stats(&self) -> SaveStats {
        let barrier = self.arena().barrier_stats();
        let running = self.save_progress().map(|now| now.bytes_written as f64 / now.elapsed.as_secs_f64().max(1e-3));
        SaveStats {
            last_cut_ns: self.saves.last_cut_ns,
            preimage_bytes_now: barrier.preimage_bytes_now,
            preimage_bytes_peak: barrier.preimage_bytes_peak,
            budget_bytes: barrier.budget_bytes,
            waits: barrier.waits,
            wait_total_ns: barrier.wait_total_ns,
            wait_longest_ns: barrier.wait_longest_ns,
            dump_bytes_per_s: running.map_or(self.saves.last_bytes_per_s, |rate| rate as u64),
            chain_deltas: self.saves.deltas.published.as_ref().map_or(0, PublishedChain::deltas),
            chain_delta_bytes: self.saves.deltas.published.as_ref().map_or(0, PublishedChain::delta_bytes),
            last_delta_bytes: self.saves.deltas.published.as_ref().map_or(0, PublishedChain::last_delta_bytes),
            last_compression_savings_bytes: self.saves.last_compression_savings_bytes,
            changed_bytes: self.arena().changed_pages().map(|pages| pages * PAGE_SIZE as u64),
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What an image says of its origin.
fn note() -> [u8; 64] {
    let mut note = [0; 64];
    let text = concat!("quire ", env!("CARGO_PKG_VERSION"));
    note[..text.len()].copy_from_slice(text.as_bytes());
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_pages_left() {
        let elapsed = Duration::from_secs(2);
        let at = |pages_done| SaveProgress { pages_done, pages_total: 100, bytes_written: 0, elapsed }.time_left();
        assert_eq!((at(0), at(20), at(100)), (None, Some(4 * elapsed), Some(Duration::ZERO)));
    }
}
