//! A user: whether clients may log in as it, with which passwords, and what they may do then.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::command_catalog::RuleContext;
use super::rule_error::{MOST_ENTRIES, RuleError};
use super::selector::{Denial, RequestFacts, Selector};

/// No password is longer: what clients send as one is hashed before any other command runs.
pub const MOST_PASSWORD_BYTES: usize = 64 * 1024;
const HASH_BYTES: usize = 32;

/// The SHA-256 of a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PasswordHash([u8; HASH_BYTES]);

impl PasswordHash {
    /// That of a password; `None` if it is longer than any may be.
    pub fn of(password: &[u8]) -> Option<Self> {
        (password.len() <= MOST_PASSWORD_BYTES).then(|| Self(Sha256::digest(password).into()))
    }

    fn parse(digits: &[u8]) -> Result<Self, RuleError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(RuleError::BadHash),
        };
        if digits.len() != 2 * HASH_BYTES {
            return Err(RuleError::BadHash);
        }
        let mut hash = [0; HASH_BYTES];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(hash))
    }
}

/// Whether payloads are checked that the user restores, as its rules say it. They always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PayloadChecks {
    Wanted,
    Unwanted,
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: Box<[u8]>,
    is_enabled: bool,
    takes_any_password: bool,
    payload_checks: PayloadChecks,
    passwords: Vec<PasswordHash>,
    own: Selector,
    more: Vec<Selector>,
}

impl User {
    /// A user as which no client may log in, and that may do nothing.
    pub fn new(name: &[u8], context: RuleContext<'_>) -> Self {
        Self {
            name: name.into(),
            is_enabled: false,
            takes_any_password: false,
            payload_checks: PayloadChecks::Wanted,
            passwords: Vec::new(),
            own: Selector::new(context),
            more: Vec::new(),
        }
    }

    /// A user that may do everything, without a password.
    pub fn unrestricted(name: &[u8]) -> Self {
        Self {
            name: name.into(),
            is_enabled: true,
            takes_any_password: true,
            payload_checks: PayloadChecks::Wanted,
            passwords: Vec::new(),
            own: Selector::unrestricted(),
            more: Vec::new(),
        }
    }

    /// Whether it may do everything.
    pub fn is_unrestricted(&self) -> bool {
        self.selectors().any(Selector::is_unrestricted)
    }

    /// Whether any password will do.
    pub fn takes_any_password(&self) -> bool {
        self.takes_any_password
    }

    /// Whether clients are this user without a password.
    pub fn needs_no_password(&self) -> bool {
        self.is_enabled && self.takes_any_password
    }

    /// Whether a client that has given a password of this hash may be this user.
    pub(super) fn admits(&self, given: Option<PasswordHash>) -> bool {
        // All are compared, each as a whole, so that the time tells nothing of where the difference is.
        let is_known = given.is_some_and(|given| {
            self.passwords.iter().fold(subtle::Choice::from(0), |found, known| found | known.0.ct_eq(&given.0)).into()
        });
        self.is_enabled && (self.takes_any_password || is_known)
    }

    /// Has only this password, or none if it is empty (`requirepass`).
    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.takes_any_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.extend(PasswordHash::of(password));
        }
    }

    /// Applies a rule.
    ///
    /// # Errors
    /// Why it is refused; what has changed so far is to be thrown away.
    pub fn apply(&mut self, context: RuleContext<'_>, rule: &[u8]) -> Result<(), RuleError> {
        if rule.is_empty() {
            return Ok(());
        }
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("on") || is("off") {
            self.is_enabled = is("on");
        } else if is("nopass") || is("resetpass") {
            self.takes_any_password = is("nopass");
            self.passwords.clear();
        } else if is("skip-sanitize-payload") {
            self.payload_checks = PayloadChecks::Unwanted;
        } else if is("sanitize-payload") {
            self.payload_checks = PayloadChecks::Wanted;
        } else if is("clearselectors") {
            self.more.clear();
        } else if is("reset") {
            *self = Self::new(&self.name, context);
        } else {
            return match rule.split_first() {
                Some((b'>', password)) => self.add_password(Self::hash_of(password)?),
                Some((b'<', password)) => self.remove_password(&Self::hash_of(password)?),
                Some((b'#', digits)) => self.add_password(PasswordHash::parse(digits)?),
                Some((b'!', digits)) => self.remove_password(&PasswordHash::parse(digits)?),
                Some((b'(', rest)) => self.add_selector(context, rest),
                _ => self.own.apply(context, rule),
            };
        }
        Ok(())
    }

    fn hash_of(password: &[u8]) -> Result<PasswordHash, RuleError> {
        PasswordHash::of(password).ok_or(RuleError::LongPassword)
    }

    fn add_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        if !self.passwords.contains(&hash) {
            if self.passwords.len() >= MOST_ENTRIES {
                return Err(RuleError::TooMany);
            }
            self.passwords.push(hash);
        }
        self.takes_any_password = false;
        Ok(())
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Rules in parentheses, of which the first was read.
    fn add_selector(&mut self, context: RuleContext<'_>, rest: &[u8]) -> Result<(), RuleError> {
        let rules = rest.strip_suffix(b")").ok_or(RuleError::Syntax)?;
        if self.more.len() >= MOST_ENTRIES {
            return Err(RuleError::TooMany);
        }
        let mut selector = Selector::new(context);
        for rule in rules.split(|byte| byte.is_ascii_whitespace()).filter(|rule| !rule.is_empty()) {
            if rule.ends_with(b")") {
                // The user's line could not be read again: the selector would seem to end there.
                return Err(RuleError::Syntax);
            }
            selector.apply(context, rule)?;
        }
        self.more.push(selector);
        Ok(())
    }

    /// What of a request it may not do, if anything: by the selector that goes furthest.
    pub fn denial(&self, request: &RequestFacts<'_>) -> Option<Denial> {
        let mut furthest = Denial::Command;
        for selector in self.selectors() {
            match selector.check(request) {
                Ok(()) => return None,
                Err(denial) => furthest = furthest.max(denial),
            }
        }
        Some(furthest)
    }

    /// Whether what it may do depends on a request's keys.
    pub fn looks_at_keys(&self) -> bool {
        self.selectors().any(Selector::looks_at_keys)
    }

    /// Whether a selector that allows a request allows it to read any key.
    pub fn reads_all_keys(&self, request: &RequestFacts<'_>) -> bool {
        self.selectors().any(|selector| selector.check(request).is_ok() && selector.reads_all_keys())
    }

    /// Whether a client may listen to a channel, or to a pattern of channels.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.allows_channel(name, is_pattern))
    }

    /// Whether there are channels that an earlier state of the user could use and this one may not.
    pub fn lacks_channels_of(&self, before: &Self) -> bool {
        if self.selectors().any(Selector::allows_all_channels) {
            return false;
        }
        let is_kept = |name: &[u8]| self.selectors().flat_map(Selector::channels).any(|kept| kept == name);
        let mut of_before = before.selectors();
        of_before.any(|selector| selector.allows_all_channels() || !selector.channels().all(is_kept))
    }

    /// The selector of its own first, then the others.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.own).chain(&self.more)
    }

    /// The words of its state.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        flags.extend(self.takes_any_password.then_some("nopass"));
        flags.push(match self.payload_checks {
            PayloadChecks::Wanted => "sanitize-payload",
            PayloadChecks::Unwanted => "skip-sanitize-payload",
        });
        flags
    }

    /// The hashes of its passwords, as hexadecimal digits.
    pub fn password_texts(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|hash| quire_store::numbers::hex(&hash.0))
    }

    /// The rules that make it again.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.password_texts().map(|digits| [b"#".as_slice(), digits.as_bytes()].concat()));
        parts.push(self.own.describe());
        parts.extend(self.more.iter().map(|selector| [b"(".as_slice(), &selector.describe(), b")"].concat()));
        parts.join(&b' ')
    }
}
