//! Users as text: a line each, in a file of their own (`aclfile`). Words are split at spaces and nowhere else, as in Redis.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::command_catalog::RuleContext;
use super::rule_error::RuleError;
use super::selector::is_space;
use super::{Acl, User};
use crate::file_replacement;

/// No file of users is longer.
const MOST_BYTES: u64 = 64 << 20;
/// So many of a file's faults are told.
const MOST_FAULTS: usize = 32;
const NOTHING_CHANGED: &str =
    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

/// Puts words that are one selector together: from one that begins with a parenthesis to the one that ends with it.
///
/// # Errors
/// The number of the word whose parenthesis nothing closes.
pub fn merge_selectors<'w>(words: impl Iterator<Item = &'w [u8]>) -> Result<Vec<Vec<u8>>, usize> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, word) in words.enumerate() {
        let (begun_at, text) = match open.take() {
            Some((begun_at, mut text)) => {
                text.push(b' ');
                text.extend_from_slice(word);
                (begun_at, text)
            }
            None => (index, word.to_vec()),
        };
        if text.starts_with(b"(") && !text.ends_with(b")") {
            open = Some((begun_at, text));
        } else {
            merged.push(text);
        }
    }
    open.map_or(Ok(merged), |(begun_at, _)| Err(begun_at))
}

/// Whether a user may have this name.
pub fn is_user_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|byte| is_space(*byte) || *byte == 0)
}

/// The users that the lines of a text make. Rules that may be passwords are not among the faults' words.
///
/// # Errors
/// All that is wrong with the lines, in one line for people; `file` is what they are said to be in.
pub fn parse_users(text: &[u8], file: &str, context: RuleContext<'_>) -> Result<Vec<User>, String> {
    let (mut users, mut faults): (Vec<User>, Vec<String>) = (Vec::new(), Vec::new());
    let mut names = std::collections::BTreeSet::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        if faults.len() >= MOST_FAULTS {
            break;
        }
        let number = index + 1;
        let mut words = line.split(|&byte| byte == b' ').map(trimmed).filter(|word| !word.is_empty());
        let (Some(first), name) = (words.next(), words.next()) else { continue };
        let Some(name) = name.filter(|_| first == b"user") else {
            faults.push(format!("{file}:{number} should start with user keyword followed by the username. "));
            continue;
        };
        let shown = String::from_utf8_lossy(name);
        if !is_user_name(name) {
            faults.push(format!("'{file}:{number}: username '{shown}' contains invalid characters. "));
        } else if !names.insert(name) {
            faults.push(format!("WARNING: Duplicate user '{shown}' found on line {number}. "));
        } else {
            users.push(one_user(name, words, context, &mut |fault| {
                faults.push(format!("{file}:{number}: {fault}"));
            }));
        }
    }
    if faults.is_empty() { Ok(users) } else { Err(faults.concat() + NOTHING_CHANGED) }
}

fn one_user<'w>(
    name: &[u8],
    words: impl Iterator<Item = &'w [u8]>,
    context: RuleContext<'_>,
    fault: &mut dyn FnMut(String),
) -> User {
    let mut user = User::new(name, context);
    match merge_selectors(words) {
        Ok(rules) => {
            let refused = rules.iter().filter_map(|rule| Some((rule, user.apply(context, rule).err()?)));
            for (rule, error) in refused.take(MOST_FAULTS) {
                fault(match error {
                    // It is no password.
                    RuleError::UnknownCommand => {
                        format!("Error in applying operation '{}': {error}. ", String::from_utf8_lossy(rule))
                    }
                    _ => format!("{error}. "),
                });
            }
        }
        Err(_) => fault("Unmatched parenthesis in selector definition.".to_owned()),
    }
    user
}

fn trimmed(word: &[u8]) -> &[u8] {
    let is_plain = |byte: &u8| !matches!(byte, b'\t' | b'\r');
    let start = word.iter().position(is_plain).unwrap_or(word.len());
    let end = word.iter().rposition(is_plain).map_or(start, |last| last + 1);
    &word[start..end]
}

/// What a failure of the system is called, without its number.
fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Acl {
    /// Has the users of a file and no others, but for the default one, which may do everything if it is not among them.
    ///
    /// # Errors
    /// The file can't be read, or a line says nothing that can be done; nothing has changed then.
    pub fn load(&mut self, path: &Path, context: RuleContext<'_>) -> Result<(), String> {
        let file = path.display().to_string();
        let cannot = |error: io::Error| format!("Error loading ACLs, opening file '{file}': {}", system_words(&error));
        let mut text = Vec::new();
        File::open(path).and_then(|opened| opened.take(MOST_BYTES + 1).read_to_end(&mut text)).map_err(cannot)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("Error loading ACLs, the file '{file}' is larger than {MOST_BYTES} bytes"));
        }
        self.replace_all(parse_users(&text, &file, context)?);
        Ok(())
    }

    /// Writes all users to a file, which is whole and durable when this returns.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut text = self.lines().join(&b'\n');
        text.push(b'\n');
        file_replacement::replace(path, &text, file_replacement::sync_directory)
    }
}
