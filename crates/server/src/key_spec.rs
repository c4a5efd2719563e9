//! Where keys stand among the words of a request, and what a command does with them: the key specifications that COMMAND
//! INFO shows; and where channels stand. Relies on `args` alone.

use std::ops::Range;

use crate::args::Args;

/// What a command does with a key, a set of bits.
pub type KeyUse = u16;

/// Reads the key.
pub const RO: KeyUse = 1 << 0;
/// Reads and writes the key.
pub const RW: KeyUse = 1 << 1;
/// Overwrites the key.
pub const OW: KeyUse = 1 << 2;
/// Removes the key.
pub const RM: KeyUse = 1 << 3;
/// Returns or copies the value.
pub const ACCESS: KeyUse = 1 << 4;
/// Changes the value depending on what it was.
pub const UPDATE: KeyUse = 1 << 5;
/// Adds data.
pub const INSERT: KeyUse = 1 << 6;
/// Takes data away.
pub const DELETE: KeyUse = 1 << 7;
/// What is done depends on the words of the request.
pub const VARIABLE: KeyUse = 1 << 8;
/// No key stands there, but a name by which a cluster finds the server as by a key.
pub const NOT_KEY: KeyUse = 1 << 9;
/// The specification may miss keys: which there are can be known from other data only.
pub const INCOMPLETE: KeyUse = 1 << 10;

/// Where the search for keys begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyBegin {
    /// At this word.
    Index(i16),
    /// Behind the first word that reads so, looked for from word `from` on, or backwards from the end where `from` is negative.
    Keyword {
        /// The word, in capitals.
        word: &'static str,
        /// Where it may stand first.
        from: i16,
    },
    /// No rule tells: other data say which keys there are.
    Unknown,
}

/// Which words from there on are keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFind {
    /// Every `step` words up to `last`.
    Range {
        /// Distance from the first key to the last; a negative one counts from the end of the request.
        last: i16,
        /// Distance between keys.
        step: i16,
        /// Where `last` is negative: the keys end after this part of the remaining words (2: in their first half).
        limit: i16,
    },
    /// The word says how many keys follow it.
    Counted,
    /// No rule tells.
    Unknown,
}

/// Which words of a request are channels, or patterns of channels.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ChannelWords {
    /// None.
    #[default]
    None,
    /// The first word behind the name.
    First,
    /// All words behind the name.
    All,
    /// All of them, and they are patterns.
    Patterns,
}

impl ChannelWords {
    /// Their indices in a request of so many words.
    pub fn positions(self, words: usize) -> Range<usize> {
        match self {
            Self::None => 0..0,
            Self::First => 1..words.min(2),
            Self::All | Self::Patterns => 1..words,
        }
    }
}

/// Where some of a command's keys stand.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Where the search begins.
    pub begin: KeyBegin,
    /// Which words are keys.
    pub find: KeyFind,
    /// What is done with them.
    pub usage: KeyUse,
}

impl KeySpec {
    /// One key at `index`.
    pub const fn one(index: i16, usage: KeyUse) -> Self {
        Self { begin: KeyBegin::Index(index), find: KeyFind::Range { last: 0, step: 1, limit: 0 }, usage }
    }

    /// Keys from `first` to `last`, every `step` words; a negative `last` counts from the end.
    pub const fn range(first: i16, last: i16, step: i16, usage: KeyUse) -> Self {
        let last = if last < 0 { last } else { last - first };
        Self { begin: KeyBegin::Index(first), find: KeyFind::Range { last, step, limit: 0 }, usage }
    }

    /// As many keys as the word at `index` says, behind it.
    pub const fn counted(index: i16, usage: KeyUse) -> Self {
        Self { begin: KeyBegin::Index(index), find: KeyFind::Counted, usage }
    }

    /// One key behind the first `word` that stands at word `from` or later.
    pub const fn keyword(word: &'static str, from: i16, usage: KeyUse) -> Self {
        let find = KeyFind::Range { last: 0, step: 1, limit: 0 };
        Self { begin: KeyBegin::Keyword { word, from }, find, usage }
    }

    /// Keys behind the first `word` at word `from` or later, in the first half of the words that follow it.
    pub const fn keyword_half(word: &'static str, from: i16, usage: KeyUse) -> Self {
        let find = KeyFind::Range { last: -1, step: 1, limit: 2 };
        Self { begin: KeyBegin::Keyword { word, from }, find, usage }
    }

    /// Keys that no rule finds.
    pub const fn unknown(usage: KeyUse) -> Self {
        Self { begin: KeyBegin::Unknown, find: KeyFind::Unknown, usage }
    }

    /// Index of the first key where it is the same in every request.
    pub const fn first_fixed(&self) -> Option<i16> {
        match (self.begin, self.find) {
            (KeyBegin::Index(index), KeyFind::Counted) => Some(index + 1),
            (KeyBegin::Index(index), KeyFind::Range { .. }) => Some(index),
            _ => None,
        }
    }

    /// First key, last key and step where these three say all.
    pub const fn fixed_range(&self) -> Option<(i16, i16, i16)> {
        match (self.begin, self.find) {
            (KeyBegin::Index(first), KeyFind::Range { last, step, limit: 0 }) => {
                Some((first, if last < 0 { last } else { first + last }, step))
            }
            _ => None,
        }
    }

    /// The indices of the keys among the words of a request; none if it says that there are more than it has words.
    pub fn positions(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let words = args.len();
        let begin = self.begin_in(args);
        let (first, end, step) = match (begin, self.find) {
            (Some(at), KeyFind::Counted) => {
                let count = args.get(at).and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
                let end = count.and_then(|count| count.checked_add(at + 1)).filter(|&end| end <= words).unwrap_or(0);
                (at + 1, end, 1)
            }
            (Some(first), KeyFind::Range { last, step, limit }) => (first, range_end(first, words, last, limit), step),
            (None, _) | (_, KeyFind::Unknown) => (0, 0, 1),
        };
        (first..end).step_by(usize::try_from(step).unwrap_or(0).max(1))
    }

    /// The same, but behind each word where only the first one that reads so is looked for: which of several counts, commands decide.
    pub fn possible_positions(&self, args: Args<'_>) -> Vec<usize> {
        match (self.begin, self.find) {
            (KeyBegin::Keyword { word, from: from @ 0.. }, KeyFind::Range { last: 0, .. }) => {
                let is_key = |at: &usize| args.is(at - 1, word);
                (from as usize + 1..args.len()).filter(is_key).collect()
            }
            _ => self.positions(args).collect(),
        }
    }

    fn begin_in(&self, args: Args<'_>) -> Option<usize> {
        let words = args.len();
        match self.begin {
            KeyBegin::Index(index) => usize::try_from(index).ok(),
            KeyBegin::Keyword { word, from: from @ 0.. } => {
                (from as usize..words).find(|&at| args.is(at, word)).map(|at| at + 1)
            }
            KeyBegin::Keyword { word, from } => {
                let last = words.checked_sub(usize::from(from.unsigned_abs()))?;
                (1..=last).rev().find(|&at| args.is(at, word)).map(|at| at + 1)
            }
            KeyBegin::Unknown => None,
        }
    }
}

/// The index behind the last word that may be a key.
fn range_end(first: usize, words: usize, last: i16, limit: i16) -> usize {
    let from_end = usize::from(last.unsigned_abs()).saturating_sub(1);
    match last {
        last @ 0.. => words.min(first.saturating_add(last as usize + 1)),
        _ if limit > 1 => {
            let part = words.saturating_sub(first) / usize::from(limit.unsigned_abs());
            (first + part).saturating_sub(from_end)
        }
        _ => words.saturating_sub(from_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    fn positions(spec: KeySpec, line: &str) -> Vec<usize> {
        let mut ranges = Vec::new();
        for word in line.split(' ') {
            let start = word.as_ptr() as usize - line.as_ptr() as usize;
            ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
        }
        spec.positions(Args::new(line.as_bytes(), &ranges)).collect()
    }

    #[test]
    fn keys_are_found_by_index_count_keyword_and_share_of_the_words() {
        for (spec, line, expected) in [
            (KeySpec::one(1, RO), "GET a", vec![1]),
            (KeySpec::one(2, RO), "GET a", vec![]),
            (KeySpec::range(1, -1, 2, OW), "MSET a 1 b 2", vec![1, 3]),
            (KeySpec::range(1, -2, 1, RO), "BLPOP a b 0", vec![1, 2]),
            (KeySpec::range(1, 2, 1, RO), "RENAME a b", vec![1, 2]),
            (KeySpec::counted(1, RO), "ZUNION 2 a b WITHSCORES", vec![2, 3]),
            (KeySpec::counted(1, RO), "ZUNION 9 a b", vec![]),
            (KeySpec::counted(1, RO), "ZUNION x a b", vec![]),
            (KeySpec::counted(1, RO), "ZUNION", vec![]),
            (KeySpec::counted(1, RO), "ZUNION 18446744073709551615 a", vec![]),
            (KeySpec::keyword("STORE", 2, OW), "G a 1 store b", vec![4]),
            (KeySpec::keyword("STORE", 2, OW), "G store 1 2", vec![]),
            (KeySpec::keyword("STORE", 2, OW), "G a store", vec![]),
            (KeySpec::keyword("KEYS", -2, OW), "M h KEYS a KEYS b", vec![5]),
            (KeySpec::keyword_half("STREAMS", 1, RO), "XREAD COUNT 1 STREAMS a b 0 0", vec![4, 5]),
            (KeySpec::keyword_half("STREAMS", 1, RO), "XREAD STREAMS", vec![]),
            (KeySpec::unknown(RO), "SORT a BY x", vec![]),
        ] {
            assert_eq!(positions(spec, line), expected, "{line}");
        }
    }

    #[test]
    fn the_fixed_range_is_what_command_reports() {
        assert_eq!(KeySpec::range(1, -2, 1, RO).fixed_range(), Some((1, -2, 1)));
        assert_eq!(KeySpec::range(2, 4, 2, RO).fixed_range(), Some((2, 4, 2)));
        assert_eq!(KeySpec::counted(2, RO).fixed_range(), None);
        assert_eq!(KeySpec::counted(2, RO).first_fixed(), Some(3));
        assert_eq!(KeySpec::keyword("STORE", 6, OW).first_fixed(), None);
    }
}
