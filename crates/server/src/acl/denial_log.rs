//! What was denied lately (ACL LOG), and how often since the start. Relies on nothing.

use std::collections::VecDeque;

/// Denials of the same that follow each other within so many milliseconds are one entry.
const TOGETHER_MS: i64 = 60_000;
/// Of the newest entries so many are looked at for one of the same.
const LOOKED_AT: usize = 10;
/// Of a name or a key so many bytes are kept: clients choose them.
const KEPT_BYTES: usize = 4096;

/// What a denial is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenialReason {
    /// A wrong name or password.
    Auth,
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

impl DenialReason {
    /// Its name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// What has sent a request that was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DenialContext {
    /// A client.
    TopLevel,
    /// A client in a transaction.
    Transaction,
    /// A script.
    Lua,
}

impl DenialContext {
    /// Its name in ACL LOG.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Transaction => "multi",
            Self::Lua => "lua",
        }
    }
}

/// A denial.
#[derive(Clone, Debug)]
pub struct DenialEntry {
    /// Counted from 0.
    pub id: u64,
    /// How often.
    pub count: u64,
    /// What it is about.
    pub reason: DenialReason,
    /// What has sent the request.
    pub context: DenialContext,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// The user.
    pub user_name: Vec<u8>,
    /// When it was denied first, Unix milliseconds.
    pub created_ms: i64,
    /// When it was denied last.
    pub updated_ms: i64,
    /// The client that was denied it last, as CLIENT LIST shows it.
    pub client: String,
}

impl DenialEntry {
    /// One denial.
    pub fn new(
        (reason, context): (DenialReason, DenialContext),
        object: &[u8],
        user_name: &[u8],
        (now_ms, client): (i64, String),
    ) -> Self {
        let kept = |bytes: &[u8]| bytes[..bytes.len().min(KEPT_BYTES)].to_vec();
        let (object, user_name) = (kept(object), kept(user_name));
        Self { id: 0, count: 1, reason, context, object, user_name, created_ms: now_ms, updated_ms: now_ms, client }
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.reason, self.context) == (other.reason, other.context)
            && (&self.object, &self.user_name) == (&other.object, &other.user_name)
            && self.updated_ms.abs_diff(other.updated_ms) <= TOGETHER_MS.unsigned_abs()
    }
}

/// The denials.
#[derive(Debug, Default)]
pub struct DenialLog {
    /// The newest first.
    entries: VecDeque<DenialEntry>,
    next_id: u64,
    /// How many there were of each reason.
    counts: [u64; 4],
}

impl DenialLog {
    /// Notes a denial; at most `max` entries are kept.
    pub fn push(&mut self, entry: DenialEntry, max: usize) {
        self.counts[entry.reason as usize] += 1;
        let same = self.entries.iter().take(LOOKED_AT).position(|known| known.is_same(&entry));
        if let Some(mut known) = same.and_then(|at| self.entries.remove(at)) {
            known.count += 1;
            (known.updated_ms, known.client) = (entry.updated_ms, entry.client);
            self.entries.push_front(known);
        } else {
            self.entries.push_front(DenialEntry { id: self.next_id, ..entry });
            self.next_id += 1;
        }
        self.shorten(max);
    }

    /// The entries, the newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &DenialEntry> {
        self.entries.iter()
    }

    /// Keeps at most `max` entries.
    pub fn shorten(&mut self, max: usize) {
        self.entries.truncate(max);
    }

    /// Forgets all entries.
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    /// How many denials there were for a reason.
    pub fn count(&self, reason: DenialReason) -> u64 {
        self.counts[reason as usize]
    }

    /// Counts from zero again.
    pub fn reset_counts(&mut self) {
        self.counts = [0; 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &[u8], now_ms: i64) -> DenialEntry {
        let what = (DenialReason::Key, DenialContext::TopLevel);
        DenialEntry::new(what, object, b"a", (now_ms, String::new()))
    }

    #[test]
    fn denials_of_the_same_are_one_entry() {
        let mut log = DenialLog::default();
        for (object, now_ms) in [(b"x", 0), (b"y", 10), (b"x", 20), (b"x", 90_000)] {
            log.push(entry(object, now_ms), 10);
        }
        let shown: Vec<_> =
            log.iter().map(|entry| (entry.id, entry.object[0], entry.count, entry.created_ms)).collect();
        assert_eq!(shown, [(2, b'x', 1, 90_000), (0, b'x', 2, 0), (1, b'y', 1, 10)]);
        log.push(entry(b"z", 90_000), 2);
        assert_eq!(log.iter().len(), 2);
        log.push(entry(&[b'k'; 1 << 20], 90_000), 1);
        assert!(log.iter().next().unwrap().object.len() < 10_000, "a client does not choose how much is kept");
        assert_eq!(log.count(DenialReason::Key), 6);
    }
}
