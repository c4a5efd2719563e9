//! The words that follow SET's value and GETEX's key, and points in time given to commands on strings.
//!
//! Relies on the request's words only, so that a wrong one is found before the store is touched.

use quire_store::ExpiryChange;

use crate::ctx::{Args, CmdError};
use quire_store::numbers::parse_i64;

/// When SET may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetCondition {
    /// The key must not exist.
    Missing,
    /// It must.
    Present,
}

/// How a point in time is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Unix time in seconds.
    UnixSeconds,
    /// Unix time in milliseconds.
    UnixMillis,
}

/// What becomes of the time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryOption<'a> {
    /// Nothing was said.
    Unsaid,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// A new one, as it was written.
    Until(TimeUnit, &'a [u8]),
}

/// The command whose words they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionContext {
    /// SET.
    Set,
    /// GETEX.
    GetEx,
}

/// The options of SET or GETEX.
#[derive(PartialEq, Eq, Debug)]
pub struct SetOptions<'a> {
    /// NX or XX.
    pub condition: Option<SetCondition>,
    /// GET.
    pub get: bool,
    /// The time to live.
    pub lifetime: ExpiryOption<'a>,
}

/// Reads the options in `args`, which has nothing else. Saying the same thing twice is allowed.
pub fn parse<'a>(args: Args<'a>, owner: OptionContext) -> Result<SetOptions<'a>, CmdError> {
    let mut options = SetOptions { condition: None, get: false, lifetime: ExpiryOption::Unsaid };
    let mut at = 0;
    while at < args.len() {
        at += 1 + options.take(args, at, owner).ok_or(CmdError::SYNTAX)?;
    }
    Ok(options)
}

impl<'a> SetOptions<'a> {
    /// Takes the option at `at`; returns how many words belong to it, `None` if it does not fit.
    fn take(&mut self, args: Args<'a>, at: usize, owner: OptionContext) -> Option<usize> {
        let is = |word| args.is(at, word);
        if owner == OptionContext::Set {
            for (word, condition) in [("NX", SetCondition::Missing), ("XX", SetCondition::Present)] {
                if is(word) {
                    return (*self.condition.get_or_insert(condition) == condition).then_some(0);
                }
            }
            if is("GET") {
                self.get = true;
                return Some(0);
            }
        }
        let (word, lifetime) = match owner {
            OptionContext::Set => ("KEEPTTL", ExpiryOption::Keep),
            OptionContext::GetEx => ("PERSIST", ExpiryOption::Persist),
        };
        if is(word) {
            let fits = self.lifetime == ExpiryOption::Unsaid || self.lifetime == lifetime;
            self.lifetime = lifetime;
            return fits.then_some(0);
        }
        let unit = match () {
            () if is("EX") => TimeUnit::Seconds,
            () if is("PX") => TimeUnit::Millis,
            () if is("EXAT") => TimeUnit::UnixSeconds,
            () if is("PXAT") => TimeUnit::UnixMillis,
            () => return None,
        };
        let fits = match self.lifetime {
            ExpiryOption::Unsaid => true,
            ExpiryOption::Until(before, _) => before == unit,
            ExpiryOption::Keep | ExpiryOption::Persist => false,
        };
        self.lifetime = ExpiryOption::Until(unit, args.get(at + 1)?);
        fits.then_some(1)
    }
}

impl ExpiryOption<'_> {
    /// For the store. `command` is named in errors.
    pub fn expiry(self, now_ms: i64, command: &str) -> Result<ExpiryChange, CmdError> {
        match self {
            ExpiryOption::Unsaid | ExpiryOption::Persist => Ok(ExpiryChange::Clear),
            ExpiryOption::Keep => Ok(ExpiryChange::Keep),
            ExpiryOption::Until(unit, text) => Ok(ExpiryChange::At(instant_ms(text, unit, now_ms, command)?)),
        }
    }
}

/// The point in time that `text` names, in Unix milliseconds: after the epoch, though it may have passed.
pub fn instant_ms(text: &[u8], unit: TimeUnit, now_ms: i64, command: &str) -> Result<i64, CmdError> {
    let number = parse_i64(text).ok_or(CmdError::NOT_INTEGER)?;
    let instant = (number > 0).then_some(number).and_then(|number| match unit {
        TimeUnit::Seconds => number.checked_mul(1000)?.checked_add(now_ms),
        TimeUnit::Millis => number.checked_add(now_ms),
        TimeUnit::UnixSeconds => number.checked_mul(1000),
        TimeUnit::UnixMillis => Some(number),
    });
    instant.ok_or_else(|| CmdError::invalid_expire(command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    fn with_words<T>(text: &str, check: impl FnOnce(Args<'_>) -> T) -> T {
        let mut ranges = Vec::new();
        for word in text.split_whitespace() {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
        }
        check(Args::new(text.as_bytes(), &ranges))
    }

    fn fits(text: &str, owner: OptionContext) -> bool {
        with_words(text, |args| parse(args, owner).is_ok())
    }

    #[test]
    fn options_are_read_in_any_order_and_case() {
        with_words("get px 12 Nx", |args| {
            let options = parse(args, OptionContext::Set).unwrap();
            let lifetime = ExpiryOption::Until(TimeUnit::Millis, b"12");
            assert_eq!(options, SetOptions { condition: Some(SetCondition::Missing), get: true, lifetime });
        });
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for text in ["", "NX NX", "EX 1 EX 2", "KEEPTTL KEEPTTL", "XX GET PXAT 1", "GET GET", "EXAT nothing"] {
            assert!(fits(text, OptionContext::Set), "{text}");
        }
        for text in ["NX XX", "XX NX", "EX 1 PX 1", "EX 1 KEEPTTL", "KEEPTTL EX 1", "EX", "EX 1 PX", "PERSIST", "no"] {
            assert!(!fits(text, OptionContext::Set), "{text}");
        }
        for text in ["", "PERSIST", "PERSIST PERSIST", "EX 1", "PXAT 1 PXAT 2"] {
            assert!(fits(text, OptionContext::GetEx), "{text}");
        }
        for text in ["NX", "GET", "KEEPTTL", "PERSIST EX 1", "EX 1 PERSIST", "PX"] {
            assert!(!fits(text, OptionContext::GetEx), "{text}");
        }
    }

    #[test]
    fn instants_must_be_positive_and_representable() {
        let at = |text: &str, unit| instant_ms(text.as_bytes(), unit, 1_000, "set").map_err(|e| e.line().into_owned());
        assert_eq!(at("5", TimeUnit::Seconds), Ok(6_000));
        assert_eq!(at("5", TimeUnit::Millis), Ok(1_005));
        assert_eq!(at("5", TimeUnit::UnixSeconds), Ok(5_000));
        assert_eq!(at("5", TimeUnit::UnixMillis), Ok(5));
        let invalid = Err("ERR invalid expire time in 'set' command".to_owned());
        for (text, unit) in [
            ("0", TimeUnit::Seconds),
            ("-1", TimeUnit::UnixMillis),
            ("9223372036854775807", TimeUnit::Millis),
            ("9223372036854775", TimeUnit::Seconds),
            ("9223372036854776", TimeUnit::UnixSeconds),
        ] {
            assert_eq!(at(text, unit), invalid, "{text} {unit:?}");
        }
        assert_eq!(at("x", TimeUnit::Seconds), Err("ERR value is not an integer or out of range".to_owned()));
    }
}
