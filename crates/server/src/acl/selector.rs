//! A selector: commands together with the keys and channels that they may use. A user has one of its own, and may have more; a
//! request is allowed if one of them allows all of it.
//!
//! Relies on `command_rules` for commands, on key specifications for what is done with keys, and on `glob` for patterns.

use std::sync::Arc;

use super::command_catalog::RuleContext;
use super::command_rules::CommandRules;
use super::rule_error::{MOST_ENTRIES, RuleError};
use crate::args::Args;
use crate::glob::{self, Glob};
use crate::key_spec::{ACCESS, ChannelWords, DELETE, INSERT, KeyUse, UPDATE};

/// What of a request is not allowed. Of two the greater one is told: it was got further with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denial {
    /// The command.
    Command,
    /// The key that is this word.
    Key(usize),
    /// The channel that is this word.
    Channel(usize),
}

/// A request, as far as rules are about it.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The command's number.
    pub command: u16,
    /// Clients may send it before they log in, whatever their user's rules are.
    pub is_free: bool,
    /// Its words.
    pub args: Args<'a>,
    /// Which of them are keys, and what is done with each.
    pub keys: &'a [(usize, KeyUse)],
    /// Which of them are channels.
    pub channels: ChannelWords,
}

/// A pattern with what it stands for, read once.
#[derive(Clone, Debug)]
struct Pattern {
    text: Box<[u8]>,
    glob: Arc<Glob>,
}

impl Pattern {
    /// # Errors
    /// The text could not be told again, word by word, or is too long.
    fn parse(text: &[u8]) -> Result<Self, RuleError> {
        let is_plain = !text.iter().any(|byte| is_space(*byte) || *byte == 0);
        if !is_plain || text.len() > glob::LONGEST_BYTES {
            return Err(RuleError::Syntax);
        }
        Ok(Self { text: text.into(), glob: Arc::new(Glob::new(text, false)) })
    }
}

/// White space as C knows it, which has one byte more than ASCII white space here.
pub(super) fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Keys that may be used, and how.
#[derive(Clone, Debug)]
struct KeyPattern {
    pattern: Pattern,
    reads: bool,
    writes: bool,
}

impl KeyPattern {
    fn write(&self, text: &mut Vec<u8>) {
        let prefix: &[u8] = match (self.reads, self.writes) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            (true, true) | (false, false) => b"~",
        };
        text.extend_from_slice(prefix);
        text.extend_from_slice(&self.pattern.text);
    }
}

/// Commands, keys and channels.
#[derive(Clone, Default, Debug)]
pub struct Selector {
    commands: CommandRules,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Pattern>,
}

impl Selector {
    /// One that allows no command.
    pub fn new(context: RuleContext<'_>) -> Self {
        Self { all_channels: context.all_channels, ..Self::default() }
    }

    /// One that allows everything.
    pub fn unrestricted() -> Self {
        let mut selector = Self { all_keys: true, all_channels: true, ..Self::default() };
        selector.commands.set_all(true);
        selector
    }

    /// Whether it allows everything, whatever the request.
    pub fn is_unrestricted(&self) -> bool {
        self.commands.allows_all() && self.all_keys && self.all_channels
    }

    /// Whether it allows all channels.
    pub fn allows_all_channels(&self) -> bool {
        self.all_channels
    }

    /// Whether what is allowed depends on a request's keys.
    pub fn looks_at_keys(&self) -> bool {
        !self.all_keys
    }

    /// Applies a rule.
    ///
    /// # Errors
    /// Why it is refused; what has changed so far is to be thrown away.
    pub fn apply(&mut self, context: RuleContext<'_>, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || is("~*") {
            (self.all_keys, self.keys) = (true, Vec::new());
        } else if is("resetkeys") {
            (self.all_keys, self.keys) = (false, Vec::new());
        } else if is("allchannels") || is("&*") {
            (self.all_channels, self.channels) = (true, Vec::new());
        } else if is("resetchannels") {
            (self.all_channels, self.channels) = (false, Vec::new());
        } else if is("allcommands") {
            self.commands.set_all(true);
        } else if is("nocommands") {
            self.commands.set_all(false);
        } else {
            return match rule.split_first() {
                Some((b'~', pattern)) => self.add_keys(pattern, true, true),
                Some((b'%', rest)) => self.add_keys_for(rest),
                Some((b'&', pattern)) => self.add_channels(pattern),
                Some((b'+', name)) => self.commands.apply(context.commands, true, name),
                Some((b'-', name)) => self.commands.apply(context.commands, false, name),
                _ => Err(RuleError::Syntax),
            };
        }
        Ok(())
    }

    /// `%R~pattern`, `%W~pattern`, `%RW~pattern`, of which the `%` was read.
    fn add_keys_for(&mut self, rest: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let (mut reads, mut writes) = (false, false);
        for (at, letter) in rest.iter().enumerate() {
            match letter.to_ascii_uppercase() {
                b'R' if !reads => reads = true,
                b'W' if !writes => writes = true,
                b'~' if reads || writes => return self.add_keys(&rest[at + 1..], reads, writes),
                _ => break,
            }
        }
        Err(RuleError::Syntax)
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        if let Some(known) = self.keys.iter_mut().find(|known| *known.pattern.text == *pattern) {
            (known.reads, known.writes) = (known.reads | reads, known.writes | writes);
            return Ok(());
        }
        if self.keys.len() >= MOST_ENTRIES {
            return Err(RuleError::TooMany);
        }
        self.keys.push(KeyPattern { pattern: Pattern::parse(pattern)?, reads, writes });
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        if self.channels.iter().any(|known| *known.text == *pattern) {
            return Ok(());
        }
        if self.channels.len() >= MOST_ENTRIES {
            return Err(RuleError::TooMany);
        }
        self.channels.push(Pattern::parse(pattern)?);
        Ok(())
    }

    /// # Errors
    /// What of the request it does not allow.
    pub fn check(&self, request: &RequestFacts<'_>) -> Result<(), Denial> {
        if !request.is_free && !self.commands.allows(request.command, request.args.get(1)) {
            return Err(Denial::Command);
        }
        if !self.all_keys {
            let is_denied = |(at, usage): &&(usize, KeyUse)| !self.allows_key(request.args.at(*at), *usage);
            if let Some((at, _)) = request.keys.iter().find(is_denied) {
                return Err(Denial::Key(*at));
            }
        }
        if !self.all_channels {
            let by_pattern = request.channels == ChannelWords::Patterns;
            let mut words = request.channels.positions(request.args.len());
            if let Some(at) = words.find(|at| !self.allows_channel(request.args.at(*at), by_pattern)) {
                return Err(Denial::Channel(at));
            }
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], usage: KeyUse) -> bool {
        let (reads, writes) = (usage & ACCESS != 0, usage & (INSERT | DELETE | UPDATE) != 0);
        let enough = |known: &&KeyPattern| (known.reads || !reads) && (known.writes || !writes);
        self.keys.iter().filter(enough).any(|known| known.pattern.glob.matches(key))
    }

    /// Whether any key may be read.
    pub fn reads_all_keys(&self) -> bool {
        self.all_keys || self.keys.iter().any(|known| known.reads && *known.pattern.text == *b"*")
    }

    /// Whether a client may listen to a channel, or to a pattern of channels, which must be allowed in these very words.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let matches = |known: &Pattern| if is_pattern { *known.text == *name } else { known.glob.matches(name) };
        self.all_channels || self.channels.iter().any(matches)
    }

    /// The patterns of channels.
    pub fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.channels.iter().map(|known| &*known.text)
    }

    /// The rules of commands.
    pub fn describe_commands(&self) -> Vec<u8> {
        self.commands.describe()
    }

    /// The patterns of keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let mut text = Vec::new();
        for pattern in &self.keys {
            if !text.is_empty() {
                text.push(b' ');
            }
            pattern.write(&mut text);
        }
        text
    }

    /// The patterns of channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|known| [b"&".as_slice(), &*known.text].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Everything, as rules that make it again.
    pub fn describe(&self) -> Vec<u8> {
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let parts = [self.describe_keys(), reset.to_vec(), self.describe_channels(), self.describe_commands()];
        let parts: Vec<Vec<u8>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(&b' ')
    }
}
