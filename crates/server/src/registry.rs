//! Finds a command by its name, in constant time and whatever the case of its letters: names have at most sixteen
//! letters, so a name is two 64-bit numbers, and a multiplier is searched at the start with which no two names collide.

use std::sync::OnceLock;

use crate::client::CommandId;
use crate::table::CommandFacts;

const SLOT_BITS: u32 = 11;
const NO_COMMAND: u16 = u16::MAX;
/// Longest name.
const MAX_NAME_BYTES: usize = 16;
/// Multipliers that are tried; with 200 names in 2,048 slots about one in twenty thousand does.
const MAX_TRIES: u64 = 1_000_000;

/// A command or subcommand with its place in the registry.
#[derive(Debug)]
pub struct Command {
    /// Its number.
    pub id: CommandId,
    /// What is known of it.
    pub facts: &'static CommandFacts,
    /// Its full name in lower case: `get`, `config|get`.
    pub name: &'static str,
    /// Its subcommands.
    pub subcommands: Vec<CommandId>,
    /// The command that it is a subcommand of.
    pub container: Option<CommandId>,
    /// Index of its first key, 0 if it has none.
    pub first_key: usize,
}

/// All commands.
#[derive(Debug)]
pub struct Registry {
    commands: Vec<Command>,
    keys: Vec<NameKey>,
    slots: Vec<u16>,
    multiplier: u64,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// The registry of this process: empty until [`install`] was called.
pub fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::build(&[]))
}

/// Makes the registry from the facts of all families; later calls change nothing.
pub fn install(families: &[&'static [CommandFacts]]) -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::build(families))
}

impl Registry {
    /// Builds a registry.
    pub fn build(families: &[&'static [CommandFacts]]) -> Registry {
        let mut registry =
            Registry { commands: Vec::new(), keys: Vec::new(), slots: vec![NO_COMMAND; 1 << SLOT_BITS], multiplier: 1 };
        let mut tops = Vec::new();
        for facts in families.iter().copied().flatten() {
            let container = registry.add(facts, facts.name, None);
            tops.push(container);
            for sub in facts.subcommands {
                let name: &'static str = Box::leak(format!("{}|{}", facts.name, sub.name).into_boxed_str());
                let id = registry.add(sub, name, Some(container));
                registry.commands[container.0 as usize].subcommands.push(id);
            }
        }
        registry.keys = registry.commands.iter().map(|command| name_key(command.facts.name.as_bytes())).collect();
        registry.find_multiplier(&tops);
        registry
    }

    fn add(&mut self, facts: &'static CommandFacts, name: &'static str, container: Option<CommandId>) -> CommandId {
        let id = CommandId(self.commands.len() as u16);
        let first_key = facts.key_specs.first().map_or(0, |spec| spec.first.max(0) as usize);
        self.commands.push(Command { id, facts, name, subcommands: Vec::new(), container, first_key });
        id
    }

    fn find_multiplier(&mut self, tops: &[CommandId]) {
        let mut candidate = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..MAX_TRIES {
            let mut slots = vec![NO_COMMAND; 1 << SLOT_BITS];
            let collides = tops.iter().any(|id| {
                let slot = &mut slots[slot_of(self.keys[id.0 as usize], candidate)];
                std::mem::replace(slot, id.0) != NO_COMMAND
            });
            self.slots = slots;
            self.multiplier = candidate;
            if !collides {
                return;
            }
            candidate = candidate.wrapping_mul(0xD129_0B2E_94F3_8E6D).wrapping_add(0x9E37_79B9_7F4A_7C16) | 1;
        }
    }

    /// The command of this name.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return None;
        }
        let key = name_key(name);
        let id = *self.slots.get(slot_of(key, self.multiplier))?;
        (self.keys.get(id as usize) == Some(&key)).then(|| &self.commands[id as usize])
    }

    /// The subcommand of this name.
    pub fn find_sub(&self, container: &Command, name: &[u8]) -> Option<&Command> {
        container
            .subcommands
            .iter()
            .map(|id| &self.commands[id.0 as usize])
            .find(|command| command.facts.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The command of a full name, `config|get`.
    pub fn find_full(&self, name: &[u8]) -> Option<&Command> {
        match name.iter().position(|byte| *byte == b'|') {
            None => self.find(name),
            Some(bar) => self.find_sub(self.find(&name[..bar])?, &name[bar + 1..]),
        }
    }

    /// The command of a number.
    #[inline]
    pub fn command(&self, id: CommandId) -> &Command {
        &self.commands[id.0 as usize]
    }

    /// Commands and subcommands.
    pub fn all(&self) -> &[Command] {
        &self.commands
    }

    /// Commands without subcommands.
    pub fn tops(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|command| command.container.is_none())
    }
}

/// A name as numbers, its letters in lower case: its first and its last eight letters, and its length. Only a letter
/// and its capital become the same by setting bit 0x20, and names have nothing but letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct NameKey {
    front: u64,
    back: u64,
    len: usize,
}

const LOWER: u64 = 0x2020_2020_2020_2020;

#[inline]
fn name_key(name: &[u8]) -> NameKey {
    let len = name.len();
    let (front, back) = if let (Some(front), Some(back)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from_le_bytes(*front), u64::from_le_bytes(*back))
    } else if let (Some(front), Some(back)) = (name.first_chunk(), name.last_chunk()) {
        (u64::from(u32::from_le_bytes(*front)), u64::from(u32::from_le_bytes(*back)))
    } else {
        let byte = |index: usize| u64::from(name.get(index).copied().unwrap_or_default());
        (byte(0) | byte(1) << 8 | byte(2) << 16, 0)
    };
    NameKey { front: front | LOWER, back: back | LOWER, len }
}

#[inline]
fn slot_of(key: NameKey, multiplier: u64) -> usize {
    let mixed = key.front ^ key.back.rotate_left(29) ^ key.len as u64;
    (mixed.wrapping_mul(multiplier) >> (64 - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CommandFacts;

    static NAMES: &[CommandFacts] = &[
        CommandFacts::new("get", 2, |_| Ok(())),
        CommandFacts::new("incr", 2, |_| Ok(())),
        CommandFacts::new("incrbyfloat", 3, |_| Ok(())),
        CommandFacts::new("hincrbyfloat", 3, |_| Ok(())),
        CommandFacts::container("config", SUBS),
    ];
    static SUBS: &[CommandFacts] = &[CommandFacts::new("get", -3, |_| Ok(()))];

    #[test]
    fn names_are_found_whatever_their_case_and_nothing_else_is() {
        let registry = Registry::build(&[NAMES]);
        for facts in NAMES {
            assert_eq!(registry.find(facts.name.as_bytes()).unwrap().name, facts.name);
            assert_eq!(registry.find(facts.name.to_ascii_uppercase().as_bytes()).unwrap().name, facts.name);
        }
        for name in ["", "ge", "gets", "gEt ", "\u{7}et", "incrby", "get\0", "averyveryverylongname"] {
            assert!(registry.find(name.as_bytes()).is_none(), "{name}");
        }
        let config = registry.find(b"CONFIG").unwrap();
        assert_eq!(registry.find_sub(config, b"GET").unwrap().name, "config|get");
        assert_eq!(registry.find_full(b"config|get").unwrap().container, Some(config.id));
    }
}
