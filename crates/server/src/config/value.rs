//! The kinds of values that settings have: how they are read, checked and written. Errors are worded as Redis does.

use std::borrow::Cow;
use std::fmt::Write as _;

use quire_store::{Codec, numbers};
use quire_units::redis;

use crate::client::ClientClass;
use crate::event_classes::NotifyClasses;

/// Why a value was refused.
pub type RejectReason = Cow<'static, str>;

/// Save when `seconds` have passed and `changes` were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SaveRule {
    /// Seconds since the last save.
    pub seconds: u64,
    /// Changes since the last save.
    pub changes: u64,
}

/// How an image is brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreMode {
    /// Serve from the mapped file at once, read and verify it in the background.
    Map,
    /// Read and verify everything first.
    Load,
}

/// When the disk serves what a save in the background writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaveIoPriority {
    /// When no other request wants the disk, until a writer waits for the save.
    Idle,
    /// In its turn.
    Normal,
}

/// When the log of writes is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendSync {
    /// Before a write is replied to.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes.
    Never,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
}

/// How much output a client may leave unread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputLimit {
    /// Closed at once beyond so many bytes; 0 means never.
    pub hard_bytes: u64,
    /// Closed when beyond so many bytes…
    pub soft_bytes: u64,
    /// …for so long.
    pub soft_seconds: u64,
}

/// The limits per class of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Clients that are sent the data as a file; replicas there are none.
    pub replica: OutputLimit,
    /// Subscribers.
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// That of a class.
    pub const fn of(&self, class: ClientClass) -> OutputLimit {
        match class {
            ClientClass::Normal => self.normal,
            ClientClass::PubSub => self.pubsub,
            ClientClass::Replica => self.replica,
        }
    }
}

/// How much memory all clients together may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientMemory {
    /// What suits the machine.
    #[default]
    Automatic,
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of `maxmemory`.
    Percent(u64),
}

impl std::fmt::Display for ClientMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientMemory::Automatic => f.write_str("0"),
            ClientMemory::Bytes(bytes) => write!(f, "{bytes}"),
            ClientMemory::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Text that can be a path or a word of a line: UTF-8 without NUL.
pub fn text(value: &[u8]) -> Result<&str, RejectReason> {
    match std::str::from_utf8(value) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => Err("argument must not contain a NUL byte".into()),
        Err(_) => Err("argument must be UTF-8 text".into()),
    }
}

/// Bytes, or a percentage.
pub fn client_memory(text: &str) -> Result<ClientMemory, RejectReason> {
    if let Some(number) = text.strip_suffix('%') {
        let percent = numbers::parse_u64(number.as_bytes()).ok_or("argument must be a memory or percent value")?;
        if percent > 100 {
            return Err("percentage argument must be less or equal to 100".into());
        }
        return Ok(if percent == 0 { ClientMemory::Automatic } else { ClientMemory::Percent(percent) });
    }
    let bytes = redis::parse_bytes(text).ok_or("argument must be a memory or percent value")?;
    Ok(if bytes == 0 { ClientMemory::Automatic } else { ClientMemory::Bytes(bytes) })
}

/// `yes` or `no`.
pub fn boolean(text: &str) -> Result<bool, RejectReason> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

/// Writes a boolean.
pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// An integer within bounds.
pub fn integer(text: &str, min: i64, max: i64) -> Result<i64, RejectReason> {
    let value = numbers::parse_i64(text.as_bytes()).ok_or("argument couldn't be parsed into an integer")?;
    if value < min || value > max {
        return Err(format!("argument must be between {min} and {max} inclusive").into());
    }
    Ok(value)
}

/// A size with a unit, within bounds.
pub fn memory(text: &str, min: u64, max: u64) -> Result<u64, RejectReason> {
    let value = redis::parse_bytes(text).ok_or("argument must be a memory value")?;
    if value < min || value > max {
        return Err(format!("argument must be between {min} and {max} inclusive").into());
    }
    Ok(value)
}

/// One of several words.
pub fn choice<T: Copy>(text: &str, choices: &[(&'static str, T)]) -> Result<T, RejectReason> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(*value);
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    Err(format!("argument(s) must be one of the following: {}", names.join(", ")).into())
}

/// The word of a value.
pub fn choice_name<T: PartialEq>(value: &T, choices: &[(&'static str, T)]) -> String {
    choices.iter().find(|(_, candidate)| candidate == value).map_or("", |(name, _)| name).to_owned()
}

/// Words of [`LogLevel`].
pub const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Verbose),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("nothing", LogLevel::Nothing),
];

/// Words of [`LogFormat`].
pub const LOG_FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Words of [`AppendSync`].
pub const APPEND_SYNCS: &[(&str, AppendSync)] =
    &[("always", AppendSync::Always), ("everysec", AppendSync::EverySecond), ("no", AppendSync::Never)];

/// Words of [`RestoreMode`].
pub const RESTORE_MODES: &[(&str, RestoreMode)] = &[("map", RestoreMode::Map), ("load", RestoreMode::Load)];

/// Words of [`SaveIoPriority`].
pub const SAVE_IO_PRIORITIES: &[(&str, SaveIoPriority)] =
    &[("idle", SaveIoPriority::Idle), ("normal", SaveIoPriority::Normal)];

/// Words of how saves compress regions.
pub const COMPRESSIONS: &[(&str, Option<Codec>)] =
    &[("no", None), ("lz4", Some(Codec::Lz4)), ("zstd", Some(Codec::Zstd))];

/// From so many seconds on (centuries) a save rule is a mistake.
const MAX_SAVE_SECONDS: u64 = 1 << 34;

/// `seconds changes` pairs; an empty text means none.
pub fn save_rules(text: &str) -> Result<Vec<SaveRule>, RejectReason> {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    if words.len() % 2 != 0 {
        return Err("Invalid save parameters".into());
    }
    words
        .chunks_exact(2)
        .map(|pair| {
            let number = |word: &str| numbers::parse_u64(word.as_bytes()).ok_or("Invalid save parameters");
            match (number(pair[0])?, number(pair[1])?) {
                (0, _) | (MAX_SAVE_SECONDS.., _) => Err("Invalid save parameters".into()),
                (seconds, changes) => Ok(SaveRule { seconds, changes }),
            }
        })
        .collect()
}

/// Writes save rules.
pub fn save_rules_text(rules: &[SaveRule]) -> String {
    let pairs: Vec<_> = rules.iter().map(|rule| format!("{} {}", rule.seconds, rule.changes)).collect();
    pairs.join(" ")
}

/// Reads classes of events.
pub fn event_classes(text: &str) -> Result<NotifyClasses, RejectReason> {
    NotifyClasses::parse(text).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into())
}

/// Changes the limits that `text` names: groups of `class hard soft seconds`.
pub fn output_limits(limits: &mut OutputLimits, text: &str) -> Result<(), RejectReason> {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    if words.len() % 4 != 0 || words.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut changed = *limits;
    for group in words.chunks_exact(4) {
        const BAD: &str = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let limit = OutputLimit {
            hard_bytes: redis::parse_bytes(group[1]).ok_or(BAD)?,
            soft_bytes: redis::parse_bytes(group[2]).ok_or(BAD)?,
            soft_seconds: numbers::parse_u64(group[3].as_bytes()).ok_or(BAD)?,
        };
        match group[0].to_ascii_lowercase().as_str() {
            "normal" => changed.normal = limit,
            "slave" | "replica" => changed.replica = limit,
            "pubsub" => changed.pubsub = limit,
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        }
    }
    *limits = changed;
    Ok(())
}

/// Writes the output limits.
pub fn output_limits_text(limits: &OutputLimits) -> String {
    let mut text = String::new();
    for (name, limit) in [("normal", limits.normal), ("slave", limits.replica), ("pubsub", limits.pubsub)] {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_rules_come_in_pairs() {
        assert_eq!(save_rules("3600 1 300 100").unwrap().len(), 2);
        assert_eq!(save_rules("").unwrap(), []);
        for text in ["3600", "0 1", "a b", "60 -1", "18446744073709551615 1"] {
            assert!(save_rules(text).is_err(), "{text}");
        }
        assert_eq!(save_rules_text(&save_rules(" 60  7 ").unwrap()), "60 7");
    }

    #[test]
    fn output_limits_change_only_what_they_name() {
        let mut limits = OutputLimits::default();
        output_limits(&mut limits, "pubsub 32mb 8mb 60").unwrap();
        output_limits(&mut limits, "normal 1kb 0 0").unwrap();
        assert_eq!(output_limits_text(&limits), "normal 1024 0 0 slave 0 0 0 pubsub 33554432 8388608 60");
        assert!(output_limits(&mut limits, "normal 1kb 0").is_err());
        assert!(output_limits(&mut limits, "strange 1kb 0 0").is_err());
    }
}
