//! The one table of command specifications: what each command is called, takes, touches and does. `COMMAND`, the generated
//! `COMPAT.md`, the checks before a command runs and the look-up of its handler all read it. The specifications themselves
//! are in [`crate::specs`], one file per family.
//!
//! They are written with `const` builders, so that an entry names only what differs from the default:
//! `CommandSpec::new("strlen", 2, cmd::strings::strlen).flags(READONLY | FAST).keys(&[KeySpec::one(1, RO)])…`.

use std::fmt::Write as _;

use crate::ctx::{Args, CmdError, Ctx, Handler};
pub use crate::key_spec::*;
use crate::key_uses::KeyUses;

/// Properties of a command, a set of bits.
pub type Flags = u32;

/// Changes data.
pub const WRITE: Flags = 1 << 0;
/// Only reads data.
pub const READONLY: Flags = 1 << 1;
/// Refused when `maxmemory` is reached.
pub const DENYOOM: Flags = 1 << 2;
/// For operators.
pub const ADMIN: Flags = 1 << 3;
/// Not allowed in scripts.
pub const NOSCRIPT: Flags = 1 << 4;
/// Allowed while data is being loaded.
pub const LOADING: Flags = 1 << 5;
/// Allowed on a stale replica.
pub const STALE: Flags = 1 << 6;
/// Hidden from MONITOR.
pub const SKIP_MONITOR: Flags = 1 << 7;
/// Not recorded in the slow log.
pub const SKIP_SLOWLOG: Flags = 1 << 8;
/// Constant or logarithmic time.
pub const FAST: Flags = 1 << 9;
/// Allowed before authentication.
pub const NO_AUTH: Flags = 1 << 10;
/// Not allowed inside MULTI.
pub const NO_MULTI: Flags = 1 << 11;
/// Allowed while the server is kept busy by a script.
pub const ALLOW_BUSY: Flags = 1 << 12;
/// Not allowed while data is loaded in the background.
pub const NO_ASYNC_LOADING: Flags = 1 << 13;
/// May wait.
pub const BLOCKING: Flags = 1 << 14;
/// Concerns publish/subscribe.
pub const PUBSUB: Flags = 1 << 15;
/// Counted as dangerous by ACL categories.
pub const DANGEROUS: Flags = 1 << 16;
/// Its key positions may hold no key at all.
pub const NO_MANDATORY_KEYS: Flags = 1 << 17;
/// Counted as concerning connections by ACL categories, whatever its family.
pub const CONNECTION: Flags = 1 << 18;
/// Runs a script, which may write any key: it waits where commands that write do.
pub const MAY_WRITE: Flags = 1 << 25;
/// Counts as a command that writes where clients that write are paused, and in scripts that may not write, though it changes no data that
/// clients see: with replicas, these would be told of it.
pub const COUNTS_AS_WRITE: Flags = 1 << 26;
/// A client of RESP2 that listens to channels may send it.
pub const WHILE_SUBSCRIBED: Flags = 1 << 24;
/// Counted as concerning the keyspace by ACL categories, whatever its family.
pub const KEYSPACE: Flags = 1 << 19;

/// Counted as concerning lists, sets and sorted sets by ACL categories, whatever its family.
pub const COLLECTIONS: Flags = 1 << 30;
/// Counted as for operators by ACL categories, though it is no such command.
pub const OPERATORS: Flags = 1 << 29;

/// Runs at once inside MULTI, and isn't queued.
pub const NOT_QUEUED: Flags = 1 << 20;
/// Runs what was queued since MULTI: it writes if any of that does, and when it is refused the transaction is over.
pub const RUNS_QUEUED: Flags = 1 << 21;
/// Runs while clients are paused, whatever it does.
pub const NEVER_PAUSED: Flags = 1 << 22;
/// Refused while writes are because nothing would keep them, though it changes nothing: programs that watch over a server
/// ask with it whether the server is well.
pub const REFUSED_WITH_WRITES: Flags = 1 << 23;
/// Refused unless `enable-debug-command` allows it, before anything else is looked at but its arity.
pub const PROTECTED: Flags = 1 << 27;

/// The family of a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum CommandGroup {
    Generic,
    String,
    Bitmap,
    Hash,
    Set,
    List,
    SortedSet,
    HyperLogLog,
    Geo,
    Stream,
    Transactions,
    PubSub,
    Scripting,
    Connection,
    Server,
    Cluster,
}

impl CommandGroup {
    /// The name that COMMAND DOCS gives the family.
    pub const fn name(self) -> &'static str {
        match self {
            CommandGroup::Generic => "generic",
            CommandGroup::String => "string",
            CommandGroup::Bitmap => "bitmap",
            CommandGroup::Hash => "hash",
            CommandGroup::Set => "set",
            CommandGroup::List => "list",
            CommandGroup::SortedSet => "sorted-set",
            CommandGroup::HyperLogLog => "hyperloglog",
            CommandGroup::Geo => "geo",
            CommandGroup::Stream => "stream",
            CommandGroup::Transactions => "transactions",
            CommandGroup::PubSub => "pubsub",
            CommandGroup::Scripting => "scripting",
            CommandGroup::Connection => "connection",
            CommandGroup::Server => "server",
            CommandGroup::Cluster => "cluster",
        }
    }
}

/// What kind of word an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ArgKind {
    Key,
    String,
    Integer,
    Double,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgKind {
    /// The name that COMMAND DOCS gives the kind.
    pub const fn name(self) -> &'static str {
        match self {
            ArgKind::Key => "key",
            ArgKind::String => "string",
            ArgKind::Integer => "integer",
            ArgKind::Double => "double",
            ArgKind::Pattern => "pattern",
            ArgKind::UnixTime => "unix-time",
            ArgKind::PureToken => "pure-token",
            ArgKind::OneOf => "oneof",
            ArgKind::Block => "block",
        }
    }
}

/// One argument of a command, for COMMAND DOCS and COMPAT.md.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in texts.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgKind,
    /// The word that must stand before it, or that it is.
    pub token: Option<&'static str>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
    /// With its token each time.
    pub multiple_token: bool,
    /// Which of the command's key specifications it belongs to, where that isn't the next one.
    pub key_spec: Option<u8>,
    /// Its parts (`Block`) or alternatives (`OneOf`).
    pub parts: &'static [Arg],
    /// The version of Redis that brought it, if later than the command.
    pub since: Option<&'static str>,
}

impl Arg {
    const fn of(name: &'static str, kind: ArgKind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: None,
            parts: &[],
            since: None,
        }
    }
    /// A key.
    pub const fn key(name: &'static str) -> Self {
        Self::of(name, ArgKind::Key)
    }
    /// Any bytes.
    pub const fn string(name: &'static str) -> Self {
        Self::of(name, ArgKind::String)
    }
    /// An integer.
    pub const fn int(name: &'static str) -> Self {
        Self::of(name, ArgKind::Integer)
    }
    /// A floating-point number.
    pub const fn double(name: &'static str) -> Self {
        Self::of(name, ArgKind::Double)
    }
    /// A glob pattern.
    pub const fn pattern(name: &'static str) -> Self {
        Self::of(name, ArgKind::Pattern)
    }
    /// A point in time.
    pub const fn unix_time(name: &'static str) -> Self {
        Self::of(name, ArgKind::UnixTime)
    }
    /// A fixed word.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::of(name, ArgKind::PureToken).token(token)
    }
    /// One of several alternatives.
    pub const fn one_of(name: &'static str, parts: &'static [Arg]) -> Self {
        let mut arg = Self::of(name, ArgKind::OneOf);
        arg.parts = parts;
        arg
    }
    /// Several arguments that belong together.
    pub const fn block(name: &'static str, parts: &'static [Arg]) -> Self {
        let mut arg = Self::of(name, ArgKind::Block);
        arg.parts = parts;
        arg
    }
    /// The word that must stand before it.
    pub const fn token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }
    /// It may be left out.
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
    /// It may be repeated.
    pub const fn multiple(mut self) -> Self {
        self.multiple = true;
        self
    }
    /// It may be repeated, with its token each time.
    pub const fn multiple_token(mut self) -> Self {
        self.multiple = true;
        self.multiple_token = true;
        self
    }
    /// Which of the command's key specifications it belongs to.
    pub const fn key_spec(mut self, index: u8) -> Self {
        self.key_spec = Some(index);
        self
    }
    /// The version of Redis that brought it.
    pub const fn since(mut self, version: &'static str) -> Self {
        self.since = Some(version);
        self
    }
}

/// Tells which words of a request are keys, and what is done with each.
pub type KeyUsesBy = fn(Args<'_>) -> KeyUses;

/// Everything that is known about a command.
#[derive(Debug)]
pub struct CommandSpec {
    /// Lower-case name; of a subcommand only its own part (`get` of `config get`).
    pub name: &'static str,
    /// Exact number of words, or at least so many if negative; a subcommand counts its container's name too.
    pub arity: i16,
    /// Properties.
    pub flags: Flags,
    /// Where its keys stand.
    pub key_specs: &'static [KeySpec],
    /// Which words of a request are keys, and what is done with each, where no rule tells.
    pub key_uses_by: Option<KeyUsesBy>,
    /// Which words are channels.
    pub channels: ChannelWords,
    /// Its family.
    pub group: CommandGroup,
    /// The version of Redis that brought it.
    pub since: &'static str,
    /// Its cost.
    pub complexity: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Its arguments.
    pub arguments: &'static [Arg],
    /// Its subcommands; a command that has any is a container, and its own handler is not called.
    pub subcommands: &'static [CommandSpec],
    /// Request and response policies that proxies of a cluster ask for.
    pub tips: &'static [&'static str],
    /// How it differs from Redis, for COMPAT.md; empty when it does not.
    pub differs: &'static str,
    /// Runs it.
    pub handler: Handler,
}

impl CommandSpec {
    /// A command that has a name, an arity and a handler; the builders below add the rest.
    pub const fn new(name: &'static str, arity: i16, handler: Handler) -> Self {
        Self {
            name,
            arity,
            flags: 0,
            key_specs: &[],
            key_uses_by: None,
            channels: ChannelWords::None,
            group: CommandGroup::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            arguments: &[],
            subcommands: &[],
            tips: &[],
            differs: "",
            handler,
        }
    }
    /// A container: it only has subcommands.
    pub const fn container(name: &'static str, subcommands: &'static [CommandSpec]) -> Self {
        let mut spec = Self::new(name, -2, container);
        spec.subcommands = subcommands;
        spec.complexity = "Depends on subcommand.";
        spec
    }
    /// A container that is also a command when no subcommand is named.
    pub const fn bare(mut self, handler: Handler) -> Self {
        self.arity = -1;
        self.handler = handler;
        self
    }
    /// Sets the properties.
    pub const fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }
    /// Sets where the keys stand.
    pub const fn keys(mut self, key_specs: &'static [KeySpec]) -> Self {
        self.key_specs = key_specs;
        self
    }
    /// Sets what tells the keys of a request where no rule does.
    pub const fn key_uses_by(mut self, tell: KeyUsesBy) -> Self {
        self.key_uses_by = Some(tell);
        self
    }
    /// Sets which words are channels.
    pub const fn channels(mut self, channels: ChannelWords) -> Self {
        self.channels = channels;
        self
    }
    /// Sets family, version and cost.
    pub const fn group(mut self, group: CommandGroup, since: &'static str, complexity: &'static str) -> Self {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self
    }
    /// Says what it does, in a line.
    pub const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }
    /// Sets the arguments.
    pub const fn args(mut self, arguments: &'static [Arg]) -> Self {
        self.arguments = arguments;
        self
    }
    /// Sets the tips.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }
    /// Says how it differs from Redis.
    pub const fn differs(mut self, differs: &'static str) -> Self {
        self.differs = differs;
        self
    }
    /// True when it has all of `flags`.
    #[inline]
    pub const fn has(&self, flags: Flags) -> bool {
        self.flags & flags == flags
    }
    /// True when a request of `words` words is long enough and not too long.
    #[inline]
    pub const fn takes(&self, words: usize) -> bool {
        if self.arity >= 0 { words == self.arity as usize } else { words >= self.arity.unsigned_abs() as usize }
    }
    /// First key, last key and step as COMMAND reports them: the span of the key specs that these three can say.
    pub fn key_range(&self) -> (i16, i16, i16) {
        let mut fixed = self.key_specs.iter().filter_map(KeySpec::fixed_range);
        match (fixed.next(), fixed.next_back()) {
            (None, _) => (0, 0, 0),
            (Some(only), None) => only,
            (Some(first), Some(last)) => (first.0, last.1, last.2),
        }
    }
    /// Whether it has keys that first key, last key and step can't say.
    pub fn moves_keys(&self) -> bool {
        self.key_specs.iter().any(|spec| spec.fixed_range().is_none())
    }
    /// Whether a request of these words may change the key of this name, in whatever database.
    pub fn may_change(&self, args: Args<'_>, key: &[u8]) -> bool {
        // What names no keys may change any: it empties or exchanges databases.
        let names_key =
            |spec: &KeySpec| spec.find == KeyFind::Unknown || spec.positions(args).any(|at| args.at(at) == key);
        let specs_name_it = || self.key_specs.iter().any(|spec| spec.usage & RO == 0 && names_key(spec));
        // Rules may miss keys where a request can be read in more than one way.
        let uses_it = || self.key_uses(args).iter().any(|(at, usage)| usage & RO == 0 && args.at(*at) == key);
        self.has(MAY_WRITE) || self.has(WRITE) && (self.key_specs.is_empty() || specs_name_it() || uses_it())
    }
    /// The indices of all words of a request that may be keys, and what is done with each.
    pub fn key_uses(&self, args: Args<'_>) -> KeyUses {
        if let Some(tell) = self.key_uses_by {
            return tell(args);
        }
        let specs = self.key_specs.iter().filter(|spec| spec.usage & NOT_KEY == 0);
        specs.flat_map(|spec| spec.possible_positions(args).into_iter().map(|at| (at, spec.usage))).collect()
    }
    /// The indices of all keys among the words of a request.
    pub fn key_positions(&self, args: Args<'_>) -> Vec<usize> {
        if let Some(tell) = self.key_uses_by {
            return tell(args).into_iter().map(|(at, _)| at).collect();
        }
        let keys = self.key_specs.iter().filter(|spec| spec.usage & NOT_KEY == 0);
        keys.flat_map(|spec| spec.positions(args)).collect()
    }
}

/// Stands in for the handler of a command that only has subcommands; the look-up never lets it run.
fn container(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(CmdError::SYNTAX)
}

/// How the arguments are written: `key [EX seconds | PX milliseconds]`.
pub fn usage(arguments: &[Arg]) -> String {
    let words: Vec<String> = arguments.iter().map(argument).collect();
    words.join(" ")
}

fn argument(arg: &Arg) -> String {
    let inner = match arg.kind {
        ArgKind::OneOf => {
            let parts: Vec<String> = arg.parts.iter().map(argument).collect();
            let text = parts.join(" | ");
            if arg.optional { text } else { format!("<{text}>") }
        }
        ArgKind::Block => usage(arg.parts),
        ArgKind::PureToken => String::new(),
        _ => arg.name.to_owned(),
    };
    let mut text = match arg.token {
        Some(token) if inner.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {inner}"),
        None => inner,
    };
    if arg.multiple {
        let again = text.clone();
        let _ = write!(text, " [{again} ...]");
    }
    if arg.optional { format!("[{text}]") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_a_bit_of_its_own() {
        let flags = [
            WRITE,
            READONLY,
            DENYOOM,
            ADMIN,
            NOSCRIPT,
            LOADING,
            STALE,
            SKIP_MONITOR,
            SKIP_SLOWLOG,
            FAST,
            NO_AUTH,
            NO_MULTI,
            ALLOW_BUSY,
            NO_ASYNC_LOADING,
            BLOCKING,
            PUBSUB,
            DANGEROUS,
            NO_MANDATORY_KEYS,
            CONNECTION,
            KEYSPACE,
            NOT_QUEUED,
            RUNS_QUEUED,
            NEVER_PAUSED,
            REFUSED_WITH_WRITES,
            PROTECTED,
            WHILE_SUBSCRIBED,
            MAY_WRITE,
            COUNTS_AS_WRITE,
            COLLECTIONS,
            OPERATORS,
        ];
        let all = flags.iter().fold(0, |all, flag| all | flag);
        assert_eq!(all.count_ones() as usize, flags.len());
    }

    #[test]
    fn arguments_are_written_as_in_the_manual() {
        static EXPIRY: [Arg; 2] = [Arg::int("seconds").token("EX"), Arg::word("keepttl", "KEEPTTL")];
        let arguments = [Arg::key("key"), Arg::string("value").multiple(), Arg::one_of("expiry", &EXPIRY).optional()];
        assert_eq!(usage(&arguments), "key value [value ...] [EX seconds | KEEPTTL]");
    }
}
