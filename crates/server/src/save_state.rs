//! What the server knows of its saves: when the last one was, how it went, how many changes it lacks.

use std::time::Instant;

use crate::config::SaveRule;

/// Seconds to wait after a failed background save before the rules start another.
const RETRY_AFTER_S: i64 = 5;

/// How an image was brought back at the start.
#[derive(Clone, Default, Debug)]
pub struct Restored {
    /// `map`, `load`, or `none` when there was no image.
    pub mode: &'static str,
    /// Keys that the image had.
    pub keys: u64,
    /// Its size.
    pub image_bytes: u64,
    /// Until the first command could be served.
    pub first_read_us: u64,
    /// Until everything was read and verified.
    pub full_us: Option<u64>,
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
    /// The same for the save that is running.
    pub changes_at_cut: u64,
    /// The last record of the log that the save which is running holds.
    pub position_at_cut: u64,
    /// It was asked for by BGREWRITEAOF, or for the log's sake.
    pub for_log: bool,
    /// BGREWRITEAOF waits for the save that is running to end.
    pub rewrite_scheduled: bool,
    /// How long the last save for the log took.
    pub last_rewrite_s: Option<u64>,
    /// Whether it went well.
    pub last_rewrite_ok: bool,
    /// Good saves for the log since the start.
    pub rewrites: u64,
    /// When the last good save ended (or the server started), Unix seconds.
    pub last_save_unix_s: i64,
    /// When the last background save was tried, Unix seconds.
    pub last_attempt_unix_s: i64,
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
    pub restored: Restored,
}

impl SaveState {
    /// The state at the start.
    pub fn new(now_unix_s: i64, changes: u64) -> Self {
        Self {
            running_since: None,
            scheduled: false,
            changes_at_last_save: changes,
            changes_at_cut: changes,
            position_at_cut: 0,
            for_log: false,
            rewrite_scheduled: false,
            last_rewrite_s: None,
            last_rewrite_ok: true,
            rewrites: 0,
            last_save_unix_s: now_unix_s,
            last_attempt_unix_s: 0,
            last_ok: true,
            last_error: String::new(),
            last_duration_s: None,
            saves: 0,
            last_bytes: 0,
            restored: Restored { mode: "none", ..Restored::default() },
        }
    }

    /// Changes that the last save lacks; `changes` is the store's count.
    pub fn unsaved(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.changes_at_last_save)
    }

    /// Whether a save has failed so shortly before that another isn't tried by itself.
    pub fn must_wait(&self, now_unix_s: i64) -> bool {
        !self.last_ok && now_unix_s - self.last_attempt_unix_s <= RETRY_AFTER_S
    }

    /// The rule that asks for a save now.
    pub fn due(&self, rules: &[SaveRule], changes: u64, now_unix_s: i64) -> Option<SaveRule> {
        if self.must_wait(now_unix_s) {
            return None;
        }
        let passed_s = now_unix_s - self.last_save_unix_s;
        let unsaved = self.unsaved(changes);
        rules.iter().copied().find(|rule| unsaved >= rule.changes && passed_s > rule.seconds as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_needs_changes_and_time() {
        let rules = [SaveRule { seconds: 60, changes: 10 }];
        let mut state = SaveState::new(1000, 5);
        assert_eq!(state.due(&rules, 100, 1060), None);
        assert_eq!(state.due(&rules, 14, 1061), None);
        assert_eq!(state.due(&rules, 15, 1061), Some(rules[0]));
        (state.last_ok, state.last_attempt_unix_s) = (false, 1061);
        assert_eq!(state.due(&rules, 15, 1066), None);
        assert_eq!(state.due(&rules, 15, 1067), Some(rules[0]));
    }
}
