//! Tells the operator of write-back that one file holds up, before the log is full.
//!
//! The log is freed in order. Records of a file that can't be written to (it refuses what the log holds, or its device is
//! full) stay at the tail until that is mended, and nothing behind them is freed. Other files fail only when the log is full,
//! so there is time to act: to make room, to mend the file, or to remove it.
//!
//! Relies on [`WritebackProgress`], which is looked at from time to time.

use quire_writecache::{VolumeId, WritebackProgress};

/// The log tells of it again each time when it has become fuller by so much, in percent.
const STEP_PERCENT: u8 = 10;

/// What was told.
#[derive(Debug, Default)]
pub struct StuckWriteback {
    told: Option<(VolumeId, u8)>,
}

impl StuckWriteback {
    /// The volume to tell of, if there is news of it. A volume that holds write-back up no longer is forgotten only when the log
    /// is emptier than when it was told of: each attempt to go on looks for a moment as if it had succeeded.
    pub fn news(&mut self, progress: &WritebackProgress) -> Option<VolumeId> {
        let used = progress.used_percent;
        let told = self.told.filter(|(_, percent)| used >= *percent);
        self.told = told;
        let stuck = progress.stuck_on?;
        let is_known =
            told.is_some_and(|(volume, percent)| volume == stuck && used < percent.saturating_add(STEP_PERCENT));
        if is_known {
            return None;
        }
        self.told = Some((stuck, used));
        Some(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(used_percent: u8, stuck: Option<u64>) -> WritebackProgress {
        WritebackProgress { used_percent, stuck_on: stuck.map(VolumeId), ..WritebackProgress::default() }
    }

    #[test]
    fn a_file_that_holds_write_back_up_is_told_of_once_and_again_as_the_log_fills() {
        let mut stuck = StuckWriteback::default();
        assert_eq!(stuck.news(&at(70, None)), None);
        let told =
            [(20, true), (20, false), (29, false), (30, true), (39, false), (45, true), (100, true), (100, false)];
        for (used, is_news) in told {
            assert_eq!(stuck.news(&at(used, Some(7))).is_some(), is_news, "{used}");
            assert_eq!(stuck.news(&at(used, None)), None);
        }
        assert_eq!(stuck.news(&at(100, Some(8))), Some(VolumeId(8)), "another file");
        assert_eq!(stuck.news(&at(5, None)), None);
        assert_eq!(stuck.news(&at(5, Some(8))), Some(VolumeId(8)), "it went on in between");
    }
}
