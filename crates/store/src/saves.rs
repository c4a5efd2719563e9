//! What the store knows of its saves, and what it tells about them.
//!
//! Relies on the dump's [`Progress`] for figures and for telling it to stop.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quire_arena::ArenaError;
use quire_checkpoint::{DumpError, DumpSummary, Progress};

use crate::error::{OpenError, StoreError};

/// Why a save failed or did not start.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Another save is still running, or ending after it was cancelled.
    #[error("a save is in progress")]
    Busy,
    /// What is mapped from an image has not been verified yet.
    #[error("the image that the data comes from is still being verified; the data can be saved when that is done")]
    Unverified,
    /// The image that the data comes from proved damaged, or could not be read, so nothing may be saved over it.
    #[error("the data comes from an image that can't be verified, so it is not saved: {0}")]
    NotVerifiable(#[source] Box<OpenError>),
    /// The memory could not be cut.
    #[error("cannot fix the data as it is now: {0}")]
    Cut(#[source] ArenaError),
    /// The data is damaged where it says what it holds.
    #[error("cannot note the place in the log: {0}")]
    Root(#[source] StoreError),
    /// The image could not be written.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The system refused a thread.
    #[error("cannot start the thread that saves: {0}")]
    Thread(#[source] std::io::Error),
    /// The thread that saves ended by a fault in this program.
    #[error("the thread that saves has crashed; please report this")]
    Crashed,
}

impl SaveError {
    /// Whether nothing failed: the save was told to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Dump(DumpError::Cancelled { .. }))
    }
}

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
}

/// What the store knows of its saves.
#[derive(Default)]
pub(crate) struct Saves {
    pub(crate) running: Option<Running>,
    /// Gives the space of the image before the last one back.
    pub(crate) retiring: Option<JoinHandle<()>>,
    /// Memory for pre-images, to hold from the next cut on.
    pub(crate) new_budget_bytes: Option<usize>,
    /// The image that the data comes from is damaged: the save that replaces it keeps it under another name.
    pub(crate) keep_replaced: bool,
    /// Regions of it that are used all the same, of those that were brought back in the background.
    pub(crate) damaged_regions: u32,
    /// The last image's.
    pub(crate) epoch: u64,
    pub(crate) last_cut_ns: u64,
    pub(crate) last_bytes_per_s: u64,
}

/// A save in the background.
pub(crate) struct Running {
    pub(crate) thread: JoinHandle<()>,
    /// How it ended; the thread goes on a little longer.
    pub(crate) result: Receiver<Result<DumpSummary, DumpError>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) cut_ns: u64,
    pub(crate) since: Instant,
}

impl Running {
    pub(crate) fn progress(&self) -> SaveProgress {
        SaveProgress {
            pages_done: self.progress.pages_done(),
            pages_total: self.progress.pages_total(),
            bytes_written: self.progress.bytes_written(),
            elapsed: self.since.elapsed(),
        }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        // Whoever drops the store doesn't want what is being saved, nor what an unfinished save leaves on the disk.
        if let Some(running) = self.running.take() {
            running.progress.cancel();
            let _ = running.thread.join();
        }
        if let Some(thread) = self.retiring.take() {
            let _ = thread.join();
        }
    }
}
