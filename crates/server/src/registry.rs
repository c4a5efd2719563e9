//! Finds a command by its name, whatever the case of its letters, in constant time however many commands there are and
//! however long their names: a hash table with open addressing, built at the start.

use std::sync::OnceLock;

use crate::acl::{CommandCatalog, NamedCommand};
use crate::categories;
use crate::client::CommandId;
use crate::table::CommandSpec;

/// Commands have numbers of sixteen bits.
const MOST_COMMANDS: usize = 1 << 16;
/// Slots of the table for each command, so that hardly any name shares its slot with another.
const SLOTS_PER_COMMAND: usize = 8;
/// Ways of hashing that are tried at the start; the one is taken that puts most names into the slot of their own.
const TRIES: u32 = 64;
/// Bits by which a letter and its capital differ, in each byte of a word.
const CASE: u64 = 0x2020_2020_2020_2020;
/// An odd number whose bits are as good as random.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Names up to this length are described by their first and last eight bytes.
const SHORT_NAME_BYTES: usize = 16;

/// A command or subcommand with its place in the registry.
#[derive(Debug)]
pub struct Command {
    /// Its number.
    pub id: CommandId,
    /// What is known of it.
    pub spec: &'static CommandSpec,
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
    /// The names of commands that are no subcommands, each in the first free slot from the one on that it hashes to. Most
    /// slots are free.
    slots: Vec<Slot>,
    /// Chosen for these names, so that few of them are not in the first slot that is looked at.
    multiplier: u64,
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
    longest_name_bytes: usize,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// The registry of this process: empty until [`install`] was called.
pub fn registry() -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::build(&[]))
}

/// Makes the registry from the specifications of all families; later calls change nothing.
pub fn install(families: &[&'static [CommandSpec]]) -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::build(families))
}

impl Registry {
    /// Builds a registry.
    ///
    /// # Panics
    /// Two commands have the same name, one has none, or there are more than 65,536: the tables that are compiled in are
    /// wrong.
    pub fn build(families: &[&'static [CommandSpec]]) -> Registry {
        let mut registry = Registry {
            commands: Vec::new(),
            slots: Vec::new(),
            multiplier: MULTIPLIER,
            shift: 0,
            longest_name_bytes: 0,
        };
        let mut tops = Vec::new();
        for spec in families.iter().copied().flatten() {
            let container = registry.add(spec, spec.name, None);
            tops.push(container);
            for sub in spec.subcommands {
                let name: &'static str = Box::leak(format!("{}|{}", spec.name, sub.name).into_boxed_str());
                let id = registry.add(sub, name, Some(container));
                registry.commands[container.0 as usize].subcommands.push(id);
            }
        }
        registry.fill_slots(&tops);
        registry
    }

    fn add(&mut self, spec: &'static CommandSpec, name: &'static str, container: Option<CommandId>) -> CommandId {
        assert!(self.commands.len() < MOST_COMMANDS, "too many commands: {name} has no number");
        assert!(!spec.name.is_empty(), "a command has no name");
        let id = CommandId(self.commands.len() as u16);
        let first_key =
            spec.key_specs.first().and_then(|spec| spec.first_fixed()).map_or(0, |first| first.max(0) as usize);
        self.commands.push(Command { id, spec, name, subcommands: Vec::new(), container, first_key });
        id
    }

    fn fill_slots(&mut self, tops: &[CommandId]) {
        let count = (tops.len() * SLOTS_PER_COMMAND).next_power_of_two().max(2);
        self.shift = 64 - count.trailing_zeros();
        self.slots = vec![Slot::default(); count];
        let mixed: Vec<u64> = tops.iter().map(|id| mixed(self.command(*id).spec.name.as_bytes())).collect();
        self.multiplier = (0..TRIES)
            .map(|number| MULTIPLIER.rotate_left(number / 2).wrapping_add(u64::from(number) * 2) | 1)
            .min_by_key(|multiplier| displaced(&mixed, *multiplier, self.shift))
            .unwrap_or(MULTIPLIER);
        for (id, mixed) in tops.iter().zip(mixed) {
            let name = self.command(*id).spec.name;
            assert!(self.find(name.as_bytes()).is_none(), "two commands are called {name}");
            self.longest_name_bytes = self.longest_name_bytes.max(name.len());
            let mut slot = slot_of(mixed, self.multiplier, self.shift);
            while !self.slots[slot].is_free() {
                slot = (slot + 1) & (count - 1);
            }
            self.slots[slot] = Slot::new(name, *id);
        }
    }

    /// The command of this name.
    #[inline]
    pub fn find(&self, bytes: &[u8]) -> Option<&Command> {
        if bytes.is_empty() || bytes.len() > SHORT_NAME_BYTES {
            return self.find_long(bytes);
        }
        let name = Name::new(bytes);
        let slot = slot_of(name.mixed(), self.multiplier, self.shift);
        let found = self.slots.get(slot)?;
        if found.holds(name) {
            return self.commands.get(usize::from(found.id.0));
        }
        if found.is_free() { None } else { self.find_behind(slot, name, bytes) }
    }

    /// The command of a name that is too long to be described by its ends.
    #[cold]
    fn find_long(&self, bytes: &[u8]) -> Option<&Command> {
        // What a client sends as a name may be as long as a request.
        if bytes.is_empty() || bytes.len() > self.longest_name_bytes {
            return None;
        }
        let name = Name::new(bytes);
        let slot = slot_of(mixed(bytes), self.multiplier, self.shift);
        self.find_behind(slot.wrapping_sub(1), name, bytes)
    }

    /// Searches on, from the slot behind `slot`, until one is free, as most are.
    #[cold]
    fn find_behind(&self, slot: usize, name: Name, bytes: &[u8]) -> Option<&Command> {
        let mut slot = slot;
        loop {
            slot = slot.wrapping_add(1) & (self.slots.len() - 1);
            let found = self.slots.get(slot).filter(|found| !found.is_free())?;
            let command = self.command(found.id);
            if found.holds(name) && command.spec.name.as_bytes().eq_ignore_ascii_case(bytes) {
                return Some(command);
            }
        }
    }

    /// The subcommand of this name.
    pub fn find_sub(&self, container: &Command, name: &[u8]) -> Option<&Command> {
        container
            .subcommands
            .iter()
            .map(|id| &self.commands[id.0 as usize])
            .find(|command| command.spec.name.as_bytes().eq_ignore_ascii_case(name))
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

impl CommandCatalog for Registry {
    fn named(&self, name: &[u8]) -> Option<NamedCommand> {
        let command = self.find_full(name)?;
        let subcommands = command.subcommands.iter().map(|id| id.0).collect();
        Some(NamedCommand { number: command.id.0, is_subcommand: command.container.is_some(), subcommands })
    }

    fn in_category(&self, category: &[u8]) -> Option<Vec<u16>> {
        let category = categories::find(category)?;
        let found = self.commands.iter().filter(|command| categories::is_in(command.spec, category));
        Some(found.flat_map(|command| command.subcommands.iter().chain([&command.id])).map(|id| id.0).collect())
    }

    fn is_absent(&self, name: &[u8]) -> bool {
        let top = name.split(|byte| *byte == b'|').next().unwrap_or_default();
        self.find(top).is_none() && categories::ABSENT.iter().any(|absent| absent.as_bytes().eq_ignore_ascii_case(top))
    }
}

/// The first and the last eight bytes of a name, and its length: all of it if it is short. They overlap in a name of less
/// than sixteen bytes; one of less than four has all in front.
#[derive(Clone, Copy)]
struct Name {
    front: u64,
    back: u64,
    len: usize,
}

impl Name {
    #[inline]
    fn new(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let (front, back) = if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
            (u64::from_le_bytes(*front), u64::from_le_bytes(*back))
        } else if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk()) {
            (u64::from(u32::from_le_bytes(*front)), u64::from(u32::from_le_bytes(*back)))
        } else {
            let byte = |index: usize| u64::from(bytes.get(index).copied().unwrap_or_default());
            (byte(0) | byte(1) << 8 | byte(2) << 16, 0)
        };
        Self { front, back, len }
    }

    /// The ends and the length in one word, whatever the case of letters.
    #[inline]
    fn mixed(self) -> u64 {
        (self.front | CASE) ^ (self.back | CASE).rotate_left(29) ^ self.len as u64
    }
}

/// A command's name, and which of its bytes are letters: these match their capitals, all others only themselves. It has a
/// line of the cache for itself.
#[derive(Clone, Default, Debug)]
#[repr(align(64))]
struct Slot {
    /// The first bytes, letters in lower case.
    front: u64,
    back: u64,
    /// The bit of the case in each byte that is a letter.
    front_letters: u64,
    back_letters: u64,
    /// 0 in a free slot.
    len: usize,
    id: CommandId,
}

impl Slot {
    fn new(name: &str, id: CommandId) -> Self {
        let lower = Name::new(name.to_ascii_lowercase().as_bytes());
        let letters = |bytes: u64| {
            u64::from_le_bytes(bytes.to_le_bytes().map(|byte| if byte.is_ascii_lowercase() { CASE as u8 } else { 0 }))
        };
        Self {
            front: lower.front,
            back: lower.back,
            front_letters: letters(lower.front),
            back_letters: letters(lower.back),
            len: lower.len,
            id,
        }
    }

    #[inline]
    fn is_free(&self) -> bool {
        self.len == 0
    }

    /// Whether a name has these first and last bytes and this length.
    #[inline]
    fn holds(&self, name: Name) -> bool {
        let front = (name.front | self.front_letters) ^ self.front;
        let back = (name.back | self.back_letters) ^ self.back;
        front | back | (name.len ^ self.len) as u64 == 0
    }
}

/// Where the search for a name begins.
#[inline]
fn slot_of(mixed: u64, multiplier: u64, shift: u32) -> usize {
    (mixed.wrapping_mul(multiplier) >> shift) as usize
}

/// How many of these names would find the slot taken in which the search for them begins.
fn displaced(names: &[u64], multiplier: u64, shift: u32) -> usize {
    let mut slots: Vec<usize> = names.iter().map(|mixed| slot_of(*mixed, multiplier, shift)).collect();
    slots.sort_unstable();
    slots.dedup();
    names.len() - slots.len()
}

/// A name of any length in one word, whatever the case of its letters.
fn mixed(bytes: &[u8]) -> u64 {
    let ends = Name::new(bytes).mixed();
    if bytes.len() > SHORT_NAME_BYTES { ends ^ hash_of_middle(bytes) } else { ends }
}

/// What tells long names apart that begin and end alike.
#[cold]
fn hash_of_middle(bytes: &[u8]) -> u64 {
    let middle = &bytes[8..bytes.len() - 8];
    middle.iter().fold(0, |hash: u64, byte| (hash.rotate_left(5) ^ u64::from(byte | 0x20)).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use quire_rng::SplitMix64;
    use std::collections::HashMap;
    use std::collections::hash_map::Entry;

    use super::*;
    use crate::specs;

    static NAMES: &[CommandSpec] = &[
        CommandSpec::new("get", 2, |_| Ok(())),
        CommandSpec::new("incr", 2, |_| Ok(())),
        CommandSpec::new("incrbyfloat", 3, |_| Ok(())),
        CommandSpec::new("hincrbyfloat", 3, |_| Ok(())),
        CommandSpec::container("config", SUBS),
    ];
    static SUBS: &[CommandSpec] = &[CommandSpec::new("get", -3, |_| Ok(()))];

    #[test]
    fn names_are_found_whatever_their_case_and_nothing_else_is() {
        let registry = Registry::build(&[NAMES]);
        for spec in NAMES {
            assert_eq!(registry.find(spec.name.as_bytes()).unwrap().name, spec.name);
            assert_eq!(registry.find(spec.name.to_ascii_uppercase().as_bytes()).unwrap().name, spec.name);
        }
        for name in ["", "ge", "gets", "gEt ", "\u{7}et", "incrby", "get\0", "averyveryverylongname"] {
            assert!(registry.find(name.as_bytes()).is_none(), "{name}");
        }
        let config = registry.find(b"CONFIG").unwrap();
        assert_eq!(registry.find_sub(config, b"GET").unwrap().name, "config|get");
        assert_eq!(registry.find_full(b"config|get").unwrap().container, Some(config.id));
    }

    /// Names that are the same in every run.
    struct RandomNames(SplitMix64);

    impl RandomNames {
        /// Some are short, some long, and some differ in their middle only.
        fn name(&mut self) -> String {
            const BYTES: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-._|@[`{\x7f";
            let len = match self.0.index(3) {
                0 => 1 + self.0.index(4),
                1 => 1 + self.0.index(20),
                _ => 1 + self.0.index(300),
            };
            let text: String = (0..len).map(|_| char::from(BYTES[self.0.index(BYTES.len())])).collect();
            if self.0.index(4) == 0 { format!("beginning{text}ending.of.it") } else { text }
        }

        /// A name that is close to another one.
        fn changed(&mut self, name: &str) -> Vec<u8> {
            let mut bytes = name.as_bytes().to_vec();
            let at = self.0.index(bytes.len());
            match self.0.index(4) {
                0 => bytes[at] ^= 1 << self.0.index(8),
                1 => bytes.insert(at, b'x'),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = bytes[at].to_ascii_uppercase(),
            }
            bytes
        }
    }

    #[test]
    fn thousands_of_names_of_any_length_are_found_and_nothing_else_is() {
        let mut names = RandomNames(SplitMix64::new(0x5eed));
        let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut specs = Vec::new();
        while specs.len() < 6000 {
            let name = names.name();
            if let Entry::Vacant(free) = numbers.entry(name.clone().into_bytes()) {
                free.insert(specs.len());
                specs.push(CommandSpec::new(name.leak(), 1, |_| Ok(())));
            }
        }
        let specs: &'static [CommandSpec] = specs.leak();
        let registry = Registry::build(&[&specs[..1000], &specs[1000..]]);
        let number = |name: &[u8]| registry.find(name).map(|command| usize::from(command.id.0));
        for spec in specs {
            let known = numbers.get(spec.name.as_bytes()).copied();
            assert_eq!(number(spec.name.as_bytes()), known, "{}", spec.name);
            assert_eq!(number(spec.name.to_ascii_uppercase().as_bytes()), known, "{}", spec.name);
            for _ in 0..8 {
                let other = names.changed(spec.name);
                let known = numbers.get(&other.to_ascii_lowercase()).copied();
                assert_eq!(number(&other), known, "{:?} beside {}", String::from_utf8_lossy(&other), spec.name);
            }
        }
        assert_eq!(number(&vec![b'x'; 1 << 20]), None);
    }

    #[test]
    fn most_names_are_found_in_the_first_slot() {
        let registry = Registry::build(specs::ALL);
        let first = |command: &&Command| {
            let bytes = command.name.as_bytes();
            registry.slots[slot_of(mixed(bytes), registry.multiplier, registry.shift)].id == command.id
        };
        let (all, first) = (registry.tops().count(), registry.tops().filter(first).count());
        assert!(first * 10 >= all * 9, "{first} of {all}");
    }

    #[test]
    #[should_panic(expected = "two commands are called get")]
    fn a_name_that_two_commands_have_is_refused() {
        Registry::build(&[&NAMES[..1], NAMES]);
    }
}
