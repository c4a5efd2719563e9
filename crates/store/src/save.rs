//! Saving: a cut at a command boundary, and a thread that writes what was cut to an image while commands go on.
//!
//! Relies on the arena for the cut and on `quire-checkpoint` for everything about images. One save at a time; how it went
//! is learnt by asking ([`Store::poll_save`]), so the thread that runs commands never waits for a disk.

use std::sync::Arc;
use std::sync::mpsc::{RecvError, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quire_checkpoint::{DumpError, DumpOptions, DumpSummary, ImageMeta, Progress, Replaced, dump};
use quire_snapshot::Snapshot;

use crate::place::ImagePlace;
use crate::root;
use crate::saves::{Running, SaveError, SaveProgress, SaveStats, SaveSummary};
use crate::store::Store;

/// Nice values that a background save runs behind: commands come first, until they have to wait for it.
const NICE: i32 = 10;

impl Store {
    /// Fixes the data as it is now and starts to save it. Commands may go on at once.
    ///
    /// # Errors
    /// [`SaveError::Busy`], [`SaveError::Unverified`] until [`Store::restore_step`] has finished, or the cut or the thread
    /// is refused. What fails later is told by [`Store::poll_save`].
    pub fn begin_save(&mut self, place: &ImagePlace) -> Result<(), SaveError> {
        if self.saves.running.is_some() {
            return Err(SaveError::Busy);
        }
        let (snapshot, meta, cut_ns) = self.cut()?;
        let progress = Arc::new(Progress::new());
        let (place, shared) = (place.clone(), Arc::clone(&progress));
        let options =
            DumpOptions { nice: Some(NICE), keep_replaced_as: self.name_to_keep(&place), ..DumpOptions::default() };
        let earlier = self.saves.retiring.take();
        let (tell, result) = sync_channel(1);
        let save = move || {
            let (result, replaced) = split(dump(snapshot, &meta, place.directory(), place.file(), &shared, &options));
            // Only one old image at a time is on its way out.
            let _ = earlier.map(JoinHandle::join);
            // If nobody listens, the store is gone.
            let _ = tell.send(result);
            drop(replaced);
        };
        let thread = std::thread::Builder::new().name("quire-save".into()).spawn(save).map_err(SaveError::Thread)?;
        self.saves.running = Some(Running { thread, result, progress, cut_ns, since: Instant::now() });
        Ok(())
    }

    /// Changes the most memory that a save may use beyond the data, from the next save on.
    pub fn set_save_budget(&mut self, budget_bytes: usize) {
        self.saves.new_budget_bytes = Some(budget_bytes);
    }

    fn cut(&mut self) -> Result<(Snapshot, ImageMeta, u64), SaveError> {
        let start = Instant::now();
        if self.restore.is_some() {
            // A new image would give pages that were not checked fresh checksums, and take the place of the one that
            // tells that they are damaged.
            return Err(SaveError::Unverified);
        }
        if !self.arena.try_finish() {
            return Err(SaveError::Busy);
        }
        if let Some(budget_bytes) = self.saves.new_budget_bytes.take() {
            self.arena.set_budget(budget_bytes).map_err(SaveError::Cut)?;
        }
        // Fixed by the cut like everything else, so that image and log can't disagree.
        let position = self.logged.position;
        root::set_log_position(&mut self.arena, self.root, position).map_err(SaveError::Root)?;
        let snapshot = self.arena.cut().map_err(SaveError::Cut)?;
        let cut_ns = start.elapsed().as_nanos() as u64;
        self.saves.last_cut_ns = cut_ns;
        self.saves.epoch += 1;
        let meta =
            ImageMeta { epoch: self.saves.epoch, created_unix_ms: unix_ms(), root: self.root.raw(), note: note() };
        Ok((snapshot, meta, cut_ns))
    }

    /// How the save ended, once it has; `None` while it runs and when there is none. To be asked from time to time.
    pub fn poll_save(&mut self) -> Option<Result<SaveSummary, SaveError>> {
        // As soon as the last page is taken, writing costs nothing any more, though the disk is still busy.
        self.arena.try_finish();
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
        let Running { thread, cut_ns, .. } = self.saves.running.take()?;
        self.saves.retiring = Some(thread);
        self.arena.try_finish();
        Some(self.note_save(result.map(|image| SaveSummary { cut_ns, image })))
    }

    /// The name under which the image that the next save replaces is kept, if it is a damaged one.
    fn name_to_keep(&self, place: &ImagePlace) -> Option<String> {
        self.saves.keep_replaced.then(|| format!("{}.damaged-{}", place.file(), unix_ms()))
    }

    fn note_save(&mut self, result: Result<SaveSummary, SaveError>) -> Result<SaveSummary, SaveError> {
        if let Ok(summary) = &result {
            self.saves.keep_replaced = false;
            self.saves.last_bytes_per_s = summary.bytes_per_s();
        }
        result
    }

    /// Tells the running save to stop; [`Store::poll_save`] says when it has. An image that is complete already may
    /// still be published.
    pub fn cancel_save(&mut self) {
        if let Some(running) = &self.saves.running {
            running.progress.cancel();
        }
    }

    /// Saves the data as it is now, and waits for it. A save in the background that was cancelled is waited for first, and
    /// so is a restore in the background.
    ///
    /// # Errors
    /// [`SaveError::Busy`] while a save in the background runs, [`SaveError::NotVerifiable`], and as [`Store::begin_save`]
    /// and [`dump`] have it.
    pub fn save_blocking(&mut self, place: &ImagePlace) -> Result<SaveSummary, SaveError> {
        match &self.saves.running {
            Some(running) if !running.progress.is_cancelled() => return Err(SaveError::Busy),
            Some(_) => drop(self.join_save()),
            None => {}
        }
        self.finish_restore().map_err(|error| SaveError::NotVerifiable(Box::new(error)))?;
        let (snapshot, meta, cut_ns) = self.cut()?;
        let options = DumpOptions { keep_replaced_as: self.name_to_keep(place), ..DumpOptions::default() };
        let (result, _) = split(dump(snapshot, &meta, place.directory(), place.file(), &Progress::new(), &options));
        self.arena.try_finish();
        self.note_save(result.map(|image| SaveSummary { cut_ns, image }).map_err(SaveError::Dump))
    }

    /// How far the running save has come.
    pub fn save_progress(&self) -> Option<SaveProgress> {
        self.saves.running.as_ref().map(Running::progress)
    }

    /// Figures of the last saves.
    pub fn save_stats(&self) -> SaveStats {
        let barrier = self.arena.barrier_stats();
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

type Dumped = Result<(DumpSummary, Replaced), DumpError>;

/// The result without the old image, and the old image.
fn split(dumped: Dumped) -> (Result<DumpSummary, DumpError>, Option<Replaced>) {
    match dumped {
        Ok((summary, replaced)) => (Ok(summary), Some(replaced)),
        Err(error) => (Err(error), None),
    }
}
