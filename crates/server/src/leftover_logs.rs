//! Logs that the server does not write any more: their segments lie beside the images that they continue, until a save to one of these
//! covers them.
//!
//! A server that is moved from directory to directory may leave several. What a save can't remove stays known, so that the next
//! one to that image tries again. Relies on images being told apart by [`is_same_image`].

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use crate::file_identity::is_same_image;

/// So many are known; of older ones the segments stay where they are until a server starts there.
const MOST: usize = 16;

/// Logs that are not written any more.
#[derive(Debug, Default)]
pub struct LeftoverLogs {
    /// The images that they continue, the last one noted at the end.
    images: VecDeque<PathBuf>,
    /// Threads that remove segments which an image has made unnecessary.
    removals: Vec<Removal>,
}

/// A thread that removes segments, and tells whether they are gone.
#[derive(Debug)]
struct Removal {
    image: PathBuf,
    thread: JoinHandle<bool>,
}

impl LeftoverLogs {
    /// The log that continues this image is written no more.
    pub fn note(&mut self, image: PathBuf) {
        self.images.retain(|known| !is_same_image(known, &image));
        if self.images.len() == MOST
            && let Some(oldest) = self.images.pop_front()
        {
            tracing::warn!(image = %oldest.display(), "log segments beside this image stay until a server starts there");
        }
        self.images.push_back(image);
    }

    /// Takes the log that continues this image out, if there is one.
    pub fn take(&mut self, image: &Path) -> Option<PathBuf> {
        self.collect(|removal| removal.thread.is_finished());
        let at = self.images.iter().position(|known| is_same_image(known, image))?;
        self.images.remove(at)
    }

    /// This thread removes the segments beside `image`.
    pub fn removed_by(&mut self, image: PathBuf, thread: JoinHandle<bool>) {
        self.removals.push(Removal { image, thread });
    }

    /// Waits until no segments are being removed.
    pub fn wait(&mut self) {
        self.collect(|_| true);
    }

    /// Ends threads; a log whose segments are still there, since the thread could not remove them or has panicked, stays known.
    fn collect(&mut self, ends: impl Fn(&Removal) -> bool) {
        let (ended, running) = std::mem::take(&mut self.removals).into_iter().partition(ends);
        self.removals = running;
        for Removal { image, thread } in ended {
            if !thread.join().unwrap_or(false) {
                self.note(image);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(number: usize) -> PathBuf {
        PathBuf::from(format!("/none/{number}/dump.quire"))
    }

    #[test]
    fn several_logs_are_known_until_a_save_takes_them_and_no_more_than_a_limit() {
        let mut logs = LeftoverLogs::default();
        (0..=MOST).chain([5, MOST]).for_each(|number| logs.note(image(number)));
        assert_eq!((logs.images.len(), logs.take(&image(0))), (MOST, None), "the oldest one");
        for number in [3, MOST, 5] {
            assert_eq!(logs.take(&image(number)), Some(image(number)));
            assert_eq!(logs.take(&image(number)), None);
        }
        assert_eq!(logs.images.len(), MOST - 3);
    }

    #[test]
    fn a_log_that_could_not_be_removed_is_known_again() {
        let mut logs = LeftoverLogs::default();
        logs.removed_by(image(1), std::thread::spawn(|| false));
        logs.removed_by(image(2), std::thread::spawn(|| true));
        logs.removed_by(image(3), std::thread::spawn(|| panic!("in a test")));
        logs.wait();
        assert_eq!([1, 2, 3].map(|number| logs.take(&image(number)).is_some()), [true, false, true]);
        assert!(logs.removals.is_empty());
    }
}
