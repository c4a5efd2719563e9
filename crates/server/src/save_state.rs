//! What the server knows of its saves: when the last one was, how it went, how many changes it lacks.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quire_store::ImageIdentity;
use quire_units::UtcTime;

use crate::clone_origin::CloneOrigin;
use crate::config::{Config, SaveRule};
use crate::lock_file::SharedLock;

/// How long to wait after a failed background save before the rules start another.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How an image was brought back at the start.
#[derive(Clone, Default, Debug)]
pub struct RestoreSummary {
    /// `map`, `load`, `clone`, or `none` when there was no image.
    pub mode: &'static str,
    /// Keys that the image had.
    pub keys: u64,
    /// Its size.
    pub image_bytes: u64,
    /// Regions of 2 MiB of a mapped image that were read and verified before the first command.
    pub regions_loaded: u32,
    /// Deltas over it.
    pub deltas: usize,
    /// Time of the last cut in these files, in milliseconds since 1970; 0 if damage has left no time.
    pub created_unix_ms: u64,
    /// Until the first command could be served.
    pub first_read_us: u64,
    /// When that was.
    pub served_since: Option<Instant>,
    /// Until everything was read and verified.
    pub full_us: Option<u64>,
    /// The image that the data stays mapped from, if this server is a clone.
    pub clone_of: Option<CloneOrigin>,
    /// Which save it was, if there was an image and damage has left that.
    pub image: Option<ImageIdentity>,
}

impl RestoreSummary {
    /// How old the data was that was brought back, by the wall clock; zero if that is not known, or was set back meanwhile.
    pub fn age(&self) -> Duration {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64);
        let created_ms = if self.created_unix_ms == 0 { now_ms } else { self.created_unix_ms };
        Duration::from_millis(now_ms.saturating_sub(created_ms))
    }

    /// When the data was fixed that was brought back, for people.
    pub fn saved_at(&self) -> String {
        match self.created_unix_ms {
            0 => "an unknown time".to_owned(),
            unix_ms => UtcTime(unix_ms).to_string(),
        }
    }
}

/// What a save holds, where it goes, and whether it is wanted. The configuration may name another place before it ends.
#[derive(Default, Debug)]
pub struct SaveCut {
    /// The store's count of changes then.
    pub changes: u64,
    /// The last record of the log in it.
    pub log_position: u64,
    /// Path of the image.
    pub image: PathBuf,
    /// Keeps other servers from that image until the save has ended.
    pub image_lock: Option<SharedLock>,
    /// A client has told it to stop.
    pub cancelled: bool,
}

/// Saves for the log's sake, which Redis calls rewrites of its log.
#[derive(Clone, Copy, Debug)]
pub struct RewriteState {
    /// BGREWRITEAOF waits for the save that is running to end.
    pub scheduled: bool,
    /// How long the last one took.
    pub last_duration_s: Option<u64>,
    /// Whether it went well.
    pub last_ok: bool,
    /// Good ones since the start.
    pub count: u64,
}

/// The state of saves.
#[derive(Debug)]
pub struct SaveState {
    /// A background save is running since then.
    pub running_since: Option<Instant>,
    /// One will be started as soon as possible.
    pub scheduled: bool,
    /// The store's count of changes at the last save's cut.
    pub changes_at_last_save: u64,
    /// The background save that is running; empty if there is none.
    pub cut: SaveCut,
    /// It was asked for by BGREWRITEAOF, or for the log's sake.
    pub for_log: bool,
    /// Saves for the log's sake.
    pub rewrites: RewriteState,
    /// When the last good save ended (or the server started), Unix seconds.
    pub last_save_unix_s: i64,
    /// The same by the monotonic clock, for the rules.
    pub last_save: Instant,
    /// When the last background save was tried, by the same clock.
    pub last_attempt: Option<Instant>,
    /// Whether the last background save went well.
    pub last_ok: bool,
    /// Why it did not.
    pub last_error: String,
    /// How long the last background save took.
    pub last_duration_s: Option<u64>,
    /// Good saves since the start.
    pub saves: u64,
    /// Bytes that the last save wrote.
    pub last_bytes: u64,
    /// How the data was brought back at the start.
    pub restored: RestoreSummary,
}

impl SaveState {
    /// The state at the start.
    pub fn new(now_unix_s: i64, changes: u64) -> Self {
        Self {
            running_since: None,
            scheduled: false,
            changes_at_last_save: changes,
            cut: SaveCut::default(),
            for_log: false,
            rewrites: RewriteState { scheduled: false, last_duration_s: None, last_ok: true, count: 0 },
            last_save_unix_s: now_unix_s,
            last_save: Instant::now(),
            last_attempt: None,
            last_ok: true,
            last_error: String::new(),
            last_duration_s: None,
            saves: 0,
            last_bytes: 0,
            restored: RestoreSummary { mode: "none", ..RestoreSummary::default() },
        }
    }

    /// Changes that the last save lacks; `changes` is the store's count.
    pub fn unsaved(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.changes_at_last_save)
    }

    /// Whether a save has failed so shortly before that another isn't tried by itself.
    pub fn must_wait(&self, now: Instant) -> bool {
        !self.last_ok && self.last_attempt.is_some_and(|at| now.saturating_duration_since(at) <= RETRY_AFTER)
    }

    /// Whether writes are refused because the last save failed.
    pub fn stops_writes(&self, config: &Config) -> bool {
        config.stop_writes_on_save_error && !self.last_ok && !config.save.is_empty()
    }

    /// The rule that asks for a save now.
    pub fn due(&self, rules: &[SaveRule], changes: u64, now: Instant) -> Option<SaveRule> {
        if self.must_wait(now) {
            return None;
        }
        let passed = now.saturating_duration_since(self.last_save);
        let unsaved = self.unsaved(changes);
        rules.iter().copied().find(|rule| unsaved >= rule.changes && passed > Duration::from_secs(rule.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_needs_changes_and_time_whatever_the_wall_clock_says() {
        let rules = [SaveRule { seconds: 60, changes: 10 }];
        // The wall clock was far ahead when the server started.
        let mut state = SaveState::new(i64::MAX, 5);
        let at = |seconds: u64| state.last_save + Duration::from_millis(seconds * 1000 + 1);
        let (early, due, retried, later) = (state.last_save + Duration::from_secs(60), at(60), at(65), at(66));
        assert_eq!(state.due(&rules, 100, early), None);
        assert_eq!(state.due(&rules, 14, due), None);
        assert_eq!(state.due(&rules, 15, due), Some(rules[0]));
        (state.last_ok, state.last_attempt) = (false, Some(due));
        assert_eq!(state.due(&rules, 15, retried), None);
        assert_eq!(state.due(&rules, 15, later), Some(rules[0]));
    }
}
