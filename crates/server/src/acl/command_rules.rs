//! Which commands a selector allows: a bit for each, and the rules that made it so, which tell them again.
//!
//! Rules are kept in their order, as Redis keeps them from 7.2 on. Relies on a catalog for commands' numbers and categories.

use std::collections::BTreeMap;

use super::command_catalog::CommandCatalog;
use super::rule_error::{MOST_ENTRIES, RuleError};

/// Commands that may be run.
#[derive(Clone, Default, Debug)]
pub struct CommandRules {
    /// Every command may be run: no rule has taken one away since they were all allowed.
    all: bool,
    /// What holds for commands that have no bit.
    by_default: bool,
    /// A bit for each command, by its number.
    allowed: Vec<u64>,
    /// First arguments with which a command may be run that may not be run with all.
    first_args: BTreeMap<u16, Vec<Box<[u8]>>>,
    /// What has been allowed and taken away since all or none were, in small letters.
    rules: Vec<(bool, Box<[u8]>)>,
}

impl CommandRules {
    /// Every command may be run, or none.
    pub fn set_all(&mut self, allowed: bool) {
        *self = Self { all: allowed, by_default: allowed, ..Self::default() };
    }

    /// Whether every command may be run.
    pub fn allows_all(&self) -> bool {
        self.all
    }

    /// Applies `+name` or `-name`, with a category, a command, a subcommand, or a command and its first argument.
    ///
    /// # Errors
    /// Why the rule is refused; what has changed so far is to be thrown away.
    pub fn apply(&mut self, commands: &dyn CommandCatalog, allowed: bool, name: &[u8]) -> Result<(), RuleError> {
        let name = name.to_ascii_lowercase();
        if let Some(category) = name.strip_prefix(b"@") {
            if category == b"all" {
                self.set_all(allowed);
                return Ok(());
            }
            let numbers = commands.in_category(category).ok_or(RuleError::UnknownCommand)?;
            numbers.into_iter().for_each(|number| self.set(number, allowed));
            return self.note(allowed, name);
        }
        if let Some(command) = commands.named(&name) {
            self.set(command.number, allowed);
            command.subcommands.iter().for_each(|number| self.set(*number, allowed));
            return self.note(allowed, name);
        }
        if commands.is_absent(&name) {
            return self.note(allowed, name);
        }
        // Of what is allowed by its first argument nothing can be taken away.
        let bar = name.iter().rposition(|byte| *byte == b'|').filter(|_| allowed).ok_or(RuleError::UnknownCommand)?;
        let command = commands.named(&name[..bar]).ok_or(RuleError::UnknownCommand)?;
        if command.is_subcommand {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        let first_arg = &name[bar + 1..];
        if first_arg.is_empty() || first_arg.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Err(RuleError::Syntax);
        }
        if !command.subcommands.is_empty() {
            return Err(RuleError::UnknownCommand);
        }
        let words = self.first_args.entry(command.number).or_default();
        if words.iter().all(|word| **word != *first_arg) {
            if words.len() >= MOST_ENTRIES {
                return Err(RuleError::TooMany);
            }
            words.push(first_arg.into());
        }
        self.note(true, name)
    }

    fn set(&mut self, number: u16, allowed: bool) {
        let (word, bit) = (usize::from(number) / 64, 1 << (number % 64));
        if word >= self.allowed.len() {
            self.allowed.resize(word + 1, if self.by_default { u64::MAX } else { 0 });
        }
        if allowed {
            self.allowed[word] |= bit;
        } else {
            self.allowed[word] &= !bit;
            self.all = false;
        }
        self.first_args.remove(&number);
    }

    /// Keeps a rule. One about the same, or about a part of it, doesn't matter any more.
    fn note(&mut self, allowed: bool, name: Vec<u8>) -> Result<(), RuleError> {
        let is_part =
            |old: &[u8]| old.strip_prefix(&name[..]).is_some_and(|rest| matches!(rest.first(), None | Some(b'|')));
        self.rules.retain(|(_, old)| !is_part(old));
        if self.rules.len() >= MOST_ENTRIES {
            return Err(RuleError::TooMany);
        }
        self.rules.push((allowed, name.into_boxed_slice()));
        Ok(())
    }

    /// Whether the command of this number may be run with this first argument.
    #[inline]
    pub fn allows(&self, number: u16, first_arg: Option<&[u8]>) -> bool {
        let bits = self.allowed.get(usize::from(number) / 64);
        if bits.map_or(self.by_default, |bits| bits >> (number % 64) & 1 == 1) {
            return true;
        }
        let (Some(words), Some(first_arg)) = (self.first_args.get(&number), first_arg) else { return false };
        words.iter().any(|word| first_arg.eq_ignore_ascii_case(word))
    }

    /// The rules that make it again.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = if self.by_default { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for (allowed, name) in &self.rules {
            text.extend_from_slice(if *allowed { b" +" } else { b" -" });
            text.extend_from_slice(name);
        }
        text
    }
}
