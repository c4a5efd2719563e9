//! A temporary image: the data as it was at a cut, for a reader in this process, in a file without a name.
//!
//! Relies on `save` for the cut. No save and no start knows of such an image: it is no link of a chain, a delta is not over it, and what has
//! changed before its cut is still to be saved. It is always whole and never compressed, so that all of it is mapped and none of it takes
//! memory of its own. There is one snapshot at a time, so a temporary image and a save wait for one another.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use quire_checkpoint::{DumpError, DumpOptions, DumpProgress, Image, ImageChain, dump_temporary};
use quire_snapshot::BackgroundPriority;
use quire_sys::thread::spawn_unsignalled;

use crate::config::StoreConfig;
use crate::error::OpenError;
use crate::store::Store;
use crate::store::location::ImageLocation;
use crate::store::restore::RestoreReport;
use crate::store::save::{Cut, NICE};
use crate::store::save_error::SaveError;

/// A temporary image that is whole. Its space is given back with the last of its clones and of the stores on it.
#[derive(Clone, Debug)]
pub struct TemporaryImage(Image);

/// A temporary image that is being written.
pub(super) struct RunningTemporaryImage {
    thread: Option<JoinHandle<()>>,
    result: Receiver<Result<Image, DumpError>>,
    pub(super) progress: Arc<DumpProgress>,
}

impl Drop for RunningTemporaryImage {
    fn drop(&mut self) {
        // As with a save: what is dropped while it runs is not wanted, and leaves nothing.
        self.progress.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Fixes the data as it is now and starts to write it to a temporary image beside the image at `place`. Commands may go on at once.
    /// `reader` is the same place, through which the image will be read: through the system's cache, so that its pages can be mapped.
    ///
    /// # Errors
    /// As [`Store::begin_save`]. What fails later is told by [`Store::poll_temporary_image`].
    pub fn begin_temporary_image(&mut self, place: &ImageLocation, reader: &ImageLocation) -> Result<(), SaveError> {
        if self.saves.running.is_some() {
            return Err(SaveError::Busy);
        }
        let Cut { snapshot, meta, .. } = self.cut(None)?;
        let progress = Arc::new(DumpProgress::new());
        progress.limit_rate(self.saves.max_bytes_per_s);
        let background = Some(BackgroundPriority { nice: NICE, idle_io: self.saves.idle_io });
        let options = DumpOptions { background, ..DumpOptions::default() };
        let (place, reader, shared) = (place.clone(), reader.clone(), Arc::clone(&progress));
        let (tell, result) = sync_channel(1);
        let write = move || {
            let directories = (place.directory(), reader.directory());
            // If there is no receiver, the store is gone.
            let _ = tell.send(dump_temporary(snapshot, &meta, directories, place.file(), &shared, &options));
        };
        let thread = match spawn_unsignalled("quire-image", write) {
            Ok(thread) => Some(thread),
            Err(error) => {
                self.forget_cut();
                return Err(SaveError::Thread(error));
            }
        };
        self.temporary = Some(RunningTemporaryImage { thread, result, progress });
        Ok(())
    }

    /// Whether a temporary image is being written.
    pub fn makes_temporary_image(&self) -> bool {
        self.temporary.is_some()
    }

    /// The temporary image, or why there is none, once that is known; `None` while it is being written and when none is. To be asked from time
    /// to time.
    pub fn poll_temporary_image(&mut self) -> Option<Result<TemporaryImage, SaveError>> {
        // As soon as the last page is taken, writing costs nothing any more.
        self.arena_mut().try_finish();
        let result = match self.temporary.as_ref()?.result.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(result) => result.map(TemporaryImage).map_err(SaveError::Dump),
            Err(TryRecvError::Disconnected) => Err(SaveError::Crashed),
        };
        // The thread has told its result, or has crashed: it does nothing more with the data, and ends by itself, as one that saves.
        if let Some(running) = &mut self.temporary {
            running.thread = None;
        }
        self.end_temporary_image();
        Some(result)
    }

    /// Tells the thread that writes a temporary image to stop; [`Store::poll_temporary_image`] says when it has.
    pub fn cancel_temporary_image(&mut self) {
        if let Some(running) = &self.temporary {
            running.progress.cancel();
        }
        self.hurry_save();
    }

    /// Ends a temporary image that is being written, if there is one, and waits for that.
    pub(super) fn end_temporary_image(&mut self) {
        if self.temporary.take().is_some() {
            self.forget_cut();
        }
    }

    /// The reader of the last cut is done, and nothing that is kept came of it: what has changed before is still to be saved.
    fn forget_cut(&mut self) {
        self.arena_mut().try_finish();
        self.arena_mut().settle(false);
    }

    /// A store on a temporary image, which stays mapped and is verified in the background ([`Store::finish_restore`] waits for that).
    ///
    /// # Errors
    /// As [`Store::open_clone`].
    pub fn open_temporary(config: StoreConfig, image: TemporaryImage) -> Result<(Store, RestoreReport), OpenError> {
        Self::on_chain(config, ImageChain::of(image.0), Instant::now())
    }
}
