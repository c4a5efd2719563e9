//! When files were last changed as programs see it, for files that are no volumes any more.
//!
//! Bytes reach the directory long after a program wrote them, and each time the directory's file counts as changed
//! (`ctime`), which no call can undo. So what programs were shown while the file was a volume is shown on, as long as the
//! directory's own time is the one that the last late write has left: else `tar` and others take it for a change by a
//! program.
//!
//! Relies on every change by a program giving the directory's file another time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Most files that are remembered; of the others the directory's time is shown.
const MOST: usize = 100_000;

#[derive(Clone, Copy, Debug)]
struct ShownCtime {
    shown: SystemTime,
    behind: SystemTime,
}

/// Those of all files, by inode number.
#[derive(Debug, Default)]
pub struct CtimeCache {
    map: Mutex<HashMap<u64, ShownCtime>>,
}

impl CtimeCache {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, ShownCtime>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Programs were shown `shown`, and late writes have left `behind`.
    pub fn keep(&self, ino: u64, shown: SystemTime, behind: SystemTime) {
        let mut map = self.map();
        if map.len() >= MOST {
            map.clear();
        }
        map.insert(ino, ShownCtime { shown, behind });
    }

    /// What to show of a file that the directory says was changed at `behind`.
    pub fn shown(&self, ino: u64, behind: SystemTime) -> SystemTime {
        self.map().get(&ino).filter(|stamp| stamp.behind == behind).map_or(behind, |stamp| stamp.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_change_by_a_program_ends_what_was_shown() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let ctimes = CtimeCache::default();
        ctimes.keep(5, at(10), at(20));
        assert_eq!(
            (ctimes.shown(5, at(20)), ctimes.shown(5, at(21)), ctimes.shown(6, at(20))),
            (at(10), at(21), at(20))
        );
    }
}
