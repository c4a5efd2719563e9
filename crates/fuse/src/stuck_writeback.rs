//! Tells the operator of a file that can't be written to while the log holds bytes for it, before that harms others.
//!
//! What the log holds for such a file (it refuses it, or its device is full) is kept and moved along, so the log is freed
//! behind it and other files go on. Writes to the file itself fail when the log holds as much as it may of such files. Only
//! when most of the log was of them already, as they began to refuse it, it is not freed any more. So there is time to act: to
//! make room, to mend the file, or to remove it.
//!
//! Relies on [`WritebackProgress`], which is looked at from time to time.

use quire_writecache::{VolumeId, WritebackProgress};

/// The log tells of it again each time when such files have so much more of it, or while it is not freed, when it has become
/// fuller by so much, in percent.
const STEP_PERCENT: u8 = 10;
/// Looks without such a file after which it is forgotten: each attempt to write to a full device looks for a moment as if it had
/// succeeded.
const QUIET_LOOKS: u8 = 20;

/// What was told.
#[derive(Clone, Copy, Debug)]
struct Told {
    volume: VolumeId,
    refused_percent: u8,
    used_percent: u8,
}

/// A file to tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedFile {
    /// Its volume.
    pub volume: VolumeId,
    /// The log is not freed: other files fail, too, when it is full.
    pub is_stuck: bool,
}

/// What was told, and how long ago there was reason to.
#[derive(Debug, Default)]
pub struct StuckWriteback {
    told: Option<Told>,
    quiet_looks: u8,
}

impl StuckWriteback {
    /// The file to tell of, if there is news of it.
    pub fn news(&mut self, progress: &WritebackProgress) -> Option<RefusedFile> {
        let &WritebackProgress { refused_percent, used_percent, .. } = progress;
        let Some(volume) = progress.refused else {
            self.quiet_looks = self.quiet_looks.saturating_add(1);
            self.told = self.told.filter(|_| self.quiet_looks < QUIET_LOOKS);
            return None;
        };
        self.quiet_looks = 0;
        let is_stuck = progress.stuck_on.is_some();
        let is_known = self.told.is_some_and(|told| {
            let has_more = refused_percent >= told.refused_percent.saturating_add(STEP_PERCENT);
            let is_fuller = is_stuck && used_percent >= told.used_percent.saturating_add(STEP_PERCENT);
            told.volume == volume && !has_more && !is_fuller
        });
        if is_known {
            return None;
        }
        self.told = Some(Told { volume, refused_percent, used_percent });
        Some(RefusedFile { volume, is_stuck })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(used_percent: u8, refused_percent: u8, refused: Option<u64>, is_stuck: bool) -> WritebackProgress {
        let refused = refused.map(VolumeId);
        let stuck_on = refused.filter(|_| is_stuck);
        WritebackProgress { used_percent, refused_percent, refused, stuck_on, ..WritebackProgress::default() }
    }

    #[test]
    fn a_file_that_can_not_be_written_to_is_told_of_once_and_again_as_the_log_holds_more_of_it() {
        let mut stuck = StuckWriteback::default();
        assert_eq!(stuck.news(&at(70, 0, None, false)), None);
        for (refused, is_news) in [(5, true), (5, false), (14, false), (15, true), (24, false), (30, true), (3, false)]
        {
            // However full the log is, it is freed.
            for used in [30, 90, 31] {
                let news = stuck.news(&at(used, refused, Some(7), false));
                assert_eq!(news.is_some(), is_news && used == 30, "{refused} of {used}");
            }
            // The device is tried again.
            assert_eq!(stuck.news(&at(30, 0, None, false)), None);
        }
        assert_eq!(
            stuck.news(&at(30, 30, Some(8), false)),
            Some(RefusedFile { volume: VolumeId(8), is_stuck: false }),
            "another file"
        );
        for _ in 0..QUIET_LOOKS {
            assert_eq!(stuck.news(&at(30, 0, None, false)), None);
        }
        assert!(stuck.news(&at(30, 30, Some(8), false)).is_some(), "it took everything in between");
    }

    #[test]
    fn a_log_that_is_not_freed_is_told_of_again_as_it_fills() {
        let mut stuck = StuckWriteback::default();
        for (used, is_news) in [(80, true), (80, false), (89, false), (90, true), (100, true), (100, false)] {
            let told = is_news.then_some(RefusedFile { volume: VolumeId(7), is_stuck: true });
            assert_eq!(stuck.news(&at(used, 75, Some(7), true)), told, "{used}");
        }
    }
}
