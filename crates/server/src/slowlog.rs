//! The log of slow commands: the last ones, their words shortened. Relies on nothing but the words.

use std::collections::VecDeque;

use crate::args::Args;

const MAX_WORDS: usize = 32;
const MAX_WORD_BYTES: usize = 128;

/// A slow command.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// Counted from 0.
    pub id: u64,
    /// When it ran, Unix seconds.
    pub unix_s: i64,
    /// How long.
    pub duration_us: u64,
    /// Its words, shortened.
    pub words: Vec<Vec<u8>>,
    /// Who sent it.
    pub address: String,
    /// The sender's name.
    pub client_name: String,
}

/// The log.
#[derive(Default, Debug)]
pub struct SlowLog {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl SlowLog {
    /// Adds a command; at most `max` entries are kept.
    pub fn push(&mut self, max: usize, unix_s: i64, duration_us: u64, args: Args<'_>, address: &str, name: &str) {
        self.entries.push_front(SlowEntry {
            id: self.next_id,
            unix_s,
            duration_us,
            words: shortened(args),
            address: address.to_owned(),
            client_name: name.to_owned(),
        });
        self.next_id += 1;
        self.entries.truncate(max);
    }

    /// The entries, the newest first.
    pub fn entries(&self) -> &VecDeque<SlowEntry> {
        &self.entries
    }

    /// Forgets all entries.
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    /// Keeps at most `max` entries.
    pub fn shorten(&mut self, max: usize) {
        self.entries.truncate(max);
    }
}

fn shortened(args: Args<'_>) -> Vec<Vec<u8>> {
    let kept = if args.len() > MAX_WORDS { MAX_WORDS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = args
        .iter()
        .take(kept)
        .map(|word| match word.get(..MAX_WORD_BYTES) {
            Some(start) if word.len() > MAX_WORD_BYTES => {
                let mut text = start.to_vec();
                text.extend(format!("... ({} more bytes)", word.len() - MAX_WORD_BYTES).bytes());
                text
            }
            _ => word.to_vec(),
        })
        .collect();
    if kept < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    #[test]
    fn long_commands_are_shortened_and_old_ones_leave() {
        let word = [b'x'; 200];
        let ranges = vec![ArgRange { start: 0, len: 200 }; 40];
        let mut log = SlowLog::default();
        for _ in 0..3 {
            log.push(2, 5, 9, Args::new(&word, &ranges), "a", "");
        }
        assert_eq!(log.entries().len(), 2);
        let newest = &log.entries()[0];
        assert_eq!((newest.id, newest.words.len()), (2, 32));
        assert!(newest.words[0].ends_with(b"... (72 more bytes)"));
        assert_eq!(newest.words[31], b"... (9 more arguments)");
        log.reset();
        assert!(log.entries().is_empty());
    }
}
