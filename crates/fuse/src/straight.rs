//! Files that are small and new: their bytes go straight to the directory.
//!
//! Whoever flushes a new file has to wait for the directory's file system anyway, which must learn the file's name and length
//! (its [`Debt`](crate::debt::Debt)). Its bytes can go along; the log, a volume and a place in the table would be paid for in addition
//! and help nobody. So while such a debt is due, a file that is no volume is written in the directory itself, up to
//! [`MOST_BYTES`]; it becomes a volume when it grows beyond or is written after its flush.
//!
//! Relies on the debt being owed again after each such write, so that no flush that began before can have paid for it; and on
//! somebody flushing what no program does.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use fuser::Errno;

use crate::bodies::{Body, State};
use crate::error::Answer;
use crate::unsynced::Owed;

/// Largest file that is written straight.
const MOST_BYTES: u64 = 64 << 10;
/// Most such files of which something is not flushed; each is held open.
const MOST_FILES: usize = 1024;

/// How many files hold such bytes.
#[derive(Debug)]
pub struct Straight {
    files: AtomicUsize,
    most: usize,
}

impl Straight {
    /// At most `most` files, and never more than are reasonable.
    pub fn new(most: usize) -> Self {
        Self { files: AtomicUsize::new(0), most: most.min(MOST_FILES) }
    }

    /// One more file does, if it didn't.
    fn begin(&self, state: &mut State) {
        if state.straight_since.is_none() {
            self.files.fetch_add(1, Relaxed);
            state.straight_since = Some(Instant::now());
        }
    }

    /// It does no more: they are being flushed, or nobody will ever want them.
    pub fn end(&self, state: &mut State) {
        if state.straight_since.take().is_some() {
            self.files.fetch_sub(1, Relaxed);
        }
    }

    /// Files that do.
    pub fn count(&self) -> usize {
        self.files.load(Relaxed)
    }

    /// Writes to the directory's file, if it is one for that; else `None`, and nothing was done. `admit` says whether a
    /// file of so many bytes may be written there.
    pub fn write(
        &self,
        body: &Body,
        offset: u64,
        bytes: &[u8],
        admit: impl FnOnce(u64) -> Answer<()>,
    ) -> Option<Answer<()>> {
        let fits = offset.saturating_add(bytes.len() as u64) <= MOST_BYTES;
        if !fits || !body.writable || !body.debt.is_due(true) || body.volume().is_some() {
            return None;
        }
        // It must not become a volume meanwhile.
        let _one = body.attaching();
        {
            let mut state = body.state();
            if state.attached.is_some() || state.straight_since.is_none() && self.count() >= self.most {
                return None;
            }
            self.begin(&mut state);
        }
        let written = (|| {
            admit(body.file.metadata()?.len())?;
            body.file.write_all_at(bytes, offset).map_err(Errno::from)
        })();
        // Once more: a flush that began before may have ended it.
        self.begin(&mut body.state());
        body.debt.owe(Owed::NAME);
        Some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_until_it_is_flushed() {
        let body = Body::new(1, tempfile::tempfile().unwrap(), true, Owed::default());
        let straight = Straight::new(10);
        straight.begin(&mut body.state());
        straight.begin(&mut body.state());
        assert_eq!(straight.count(), 1);
        straight.end(&mut body.state());
        straight.end(&mut body.state());
        assert_eq!((straight.count(), body.state().straight_since), (0, None));
    }
}
