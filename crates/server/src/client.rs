//! What the server knows of one client, its socket and buffers aside.

use quire_store::DbId;

use crate::acl::Login;
use crate::args::{ArgRange, Args};
use crate::blocked::{BlockReason, BlockedClient};
use crate::pubsub::{Subscriptions, TopicKind};
use crate::resp::Protocol;
use crate::tracking::ClientTracking;

/// The number of the client in whose name the log is read back; none that connects has it.
pub const LOG_CLIENT: u64 = 0;

/// Which command; an index into the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommandId(pub u16);

/// Whether a client wants replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    /// It does.
    #[default]
    On,
    /// Not until it asks for them again.
    Off,
    /// Not for the next command.
    SkipNext,
    /// Not for the command that is running.
    Skip,
}

/// A command that waits for EXEC.
#[derive(Clone, Copy, Debug)]
pub struct QueuedCommand {
    /// The command.
    pub command: CommandId,
    first: u32,
    words: u32,
}

/// The commands between MULTI and EXEC.
#[derive(Default, Debug)]
pub struct MultiState {
    buffer: Vec<u8>,
    ranges: Vec<ArgRange>,
    /// In the order in which they came.
    pub commands: Vec<QueuedCommand>,
    /// One of them was refused; EXEC will refuse too.
    pub failed: bool,
    /// The properties that any of them has.
    pub flags: u32,
}

impl MultiState {
    /// Copies a command's words to the queue.
    pub fn push(&mut self, command: CommandId, flags: u32, args: Args<'_>) {
        let first = self.ranges.len() as u32;
        for word in args.iter() {
            self.ranges.push(ArgRange { start: self.buffer.len() as u32, len: word.len() as u32 });
            self.buffer.extend_from_slice(word);
        }
        self.commands.push(QueuedCommand { command, first, words: args.len() as u32 });
        self.flags |= flags;
    }

    /// The words of a queued command.
    pub fn args(&self, queued: &QueuedCommand) -> Args<'_> {
        let ranges = self.ranges.get(queued.first as usize..(queued.first + queued.words) as usize);
        Args::new(&self.buffer, ranges.unwrap_or_default())
    }

    /// What the queued commands take.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.ranges.len() * size_of::<ArgRange>() + self.commands.len() * size_of::<QueuedCommand>()
    }

    /// Memory that the queue holds.
    fn held_bytes(&self) -> usize {
        let (ranges, commands) = (self.ranges.capacity(), self.commands.capacity());
        self.buffer.capacity() + ranges * size_of::<ArgRange>() + commands * size_of::<QueuedCommand>()
    }
}

/// The class of a client, for CLIENT LIST and the limits of what it may leave unread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientClass {
    /// An ordinary one.
    Normal,
    /// It listens to channels.
    PubSub,
    /// It is sent the data as a file (SYNC), as a replica would be first.
    Replica,
}

/// When to close a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CloseState {
    /// Not.
    #[default]
    No,
    /// When the replies that are written so far have been sent.
    AfterReply,
    /// At once.
    Now,
}

/// What a client calls itself.
#[derive(Default, Debug)]
pub struct ClientIdentity {
    /// Its name (CLIENT SETNAME).
    pub name: String,
    /// Its library (CLIENT SETINFO).
    pub lib_name: String,
    /// Its library's version.
    pub lib_version: String,
}

/// Where a client comes from.
#[derive(Debug)]
pub struct Peer {
    /// Its address; the socket's path for Unix sockets.
    pub address: String,
    /// The server's address as the client sees it.
    pub local_address: String,
    /// Comes from this machine.
    pub is_local: bool,
    /// Came by the Unix socket.
    pub is_unix: bool,
    /// Its socket's number.
    pub fd: i32,
    /// When it came, on the server's monotonic clock.
    pub since_ms: u64,
}

/// What SYNC is to send a client, as it has said by REPLCONF.
#[derive(Clone, Copy, Debug)]
pub struct RdbRequest {
    /// A file and nothing after it: the client is no replica.
    pub only_file: bool,
    /// It knows the end of a file by a mark.
    pub takes_end_mark: bool,
    /// The file has keys.
    pub keys: bool,
    /// The file has libraries of functions.
    pub functions: bool,
}

impl Default for RdbRequest {
    fn default() -> Self {
        Self { only_file: false, takes_end_mark: false, keys: true, functions: true }
    }
}

/// What a client has asked for by CLIENT REPLY, NO-EVICT and NO-TOUCH, by MONITOR and by REPLCONF.
#[derive(Default, Debug)]
pub struct ClientOptions {
    /// Whether it wants replies.
    pub reply_mode: ReplyMode,
    /// Never evicted.
    pub no_evict: bool,
    /// Its reads leave access times alone.
    pub no_touch: bool,
    /// It is shown each command (MONITOR).
    pub monitors: bool,
    /// What SYNC is to send it.
    pub rdb: RdbRequest,
}

/// The keys that a client watches (WATCH), and those on which it waits.
#[derive(Default, Debug)]
pub struct WatchedKeys {
    /// How many.
    pub keys: usize,
    /// Memory that this takes.
    pub bytes: usize,
    /// One of them was changed.
    pub touched: bool,
    /// Memory that the keys take on which it waits.
    pub awaited_bytes: usize,
}

/// What a client has sent and was sent, and how much of both waits.
#[derive(Debug)]
pub struct ClientStats {
    /// When the server last heard of it, on the server's monotonic clock.
    pub active_ms: u64,
    /// The last command that it sent.
    pub last_command: &'static str,
    /// Commands that it sent.
    pub commands: u64,
    /// Bytes read from it.
    pub input_total_bytes: u64,
    /// Bytes written to it.
    pub output_total_bytes: u64,
    /// Bytes of requests that wait.
    pub input_bytes: usize,
    /// Bytes of replies that wait.
    pub output_bytes: usize,
}

/// What of the log a client's replies and waits depend on.
#[derive(Default, Debug)]
pub struct LogMarks {
    /// The last record that it has made, or found when it wrote and changed nothing.
    pub last_write: u64,
    /// What its replies of this turn wait for: 0 for nothing, a number that is never reached if the log has failed.
    pub owes: u64,
}

/// A client's state.
#[derive(Debug)]
pub struct Client {
    /// Its number, never used again.
    pub id: u64,
    /// The database that it selected.
    pub db: DbId,
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// Who it is, and what it may do.
    pub login: Login,
    /// What it calls itself.
    pub identity: ClientIdentity,
    /// Where it comes from.
    pub peer: Peer,
    /// What it has asked for.
    pub options: ClientOptions,
    /// The transaction that it is putting together.
    pub multi: Option<Box<MultiState>>,
    /// A transaction of it is running, so that no command waits.
    pub in_exec: bool,
    /// What of the log its replies and waits depend on.
    pub log: LogMarks,
    /// What it waits for.
    pub blocked: Option<BlockedClient>,
    /// The keys that it watches.
    pub watch: WatchedKeys,
    /// What it listens to.
    pub subscriptions: Subscriptions,
    /// Whether its connection is to be closed.
    pub closing: CloseState,
    /// What it has sent and was sent.
    pub stats: ClientStats,
}

impl Client {
    /// A client that just came.
    pub fn new(id: u64, address: String, local_address: String, now_ms: u64) -> Self {
        Self {
            id,
            db: DbId(0),
            protocol: Protocol::Resp2,
            login: Login::default(),
            identity: ClientIdentity::default(),
            peer: Peer { address, local_address, is_local: false, is_unix: false, fd: -1, since_ms: now_ms },
            options: ClientOptions::default(),
            multi: None,
            in_exec: false,
            log: LogMarks::default(),
            blocked: None,
            watch: WatchedKeys::default(),
            subscriptions: Subscriptions::default(),
            closing: CloseState::No,
            stats: ClientStats {
                active_ms: now_ms,
                last_command: "NULL",
                commands: 0,
                input_total_bytes: 0,
                output_total_bytes: 0,
                input_bytes: 0,
                output_bytes: 0,
            },
        }
    }

    /// Memory that its transaction, the keys that it watches and its names take.
    pub fn held_bytes(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.held_bytes());
        let names =
            self.identity.name.capacity() + self.identity.lib_name.capacity() + self.identity.lib_version.capacity();
        queued + self.watch.bytes + self.watch.awaited_bytes + self.subscriptions.bytes() + names
    }

    /// Whether its next request has waited on keys, and still does.
    #[inline]
    pub const fn waits_on_keys(&self) -> bool {
        self.watch.awaited_bytes > 0
    }

    /// Whether it is sent a file, and nothing else any more.
    pub fn is_sent_file(&self) -> bool {
        self.blocked.is_some_and(|blocked| blocked.on == BlockReason::Transfer)
    }

    /// Which class of clients it is one of.
    pub fn class(&self) -> ClientClass {
        if self.is_sent_file() {
            ClientClass::Replica
        } else if self.subscriptions.any() {
            ClientClass::PubSub
        } else {
            ClientClass::Normal
        }
    }

    /// The class whose limits hold for what it leaves unread: a client that monitors is sent what it did not ask for there and then, too.
    pub fn output_class(&self) -> ClientClass {
        if self.options.monitors { ClientClass::PubSub } else { self.class() }
    }

    /// Whether it waits because of a command that is there to wait, also while something else would keep its request from being run.
    pub fn is_blocked(&self) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| blocked.is_asked_for() || self.waits_on_keys())
    }

    /// The line that CLIENT LIST and CLIENT INFO show; `tracking` is what it has asked for, if it tracks.
    pub fn describe(&self, now_ms: u64, tracking: Option<&ClientTracking>) -> String {
        let mut flags = String::new();
        for (set, letter) in [
            (self.options.monitors, 'O'),
            (self.is_sent_file(), 'S'),
            (self.subscriptions.any(), 'P'),
            (self.multi.is_some(), 'x'),
            (tracking.is_some(), 't'),
            (tracking.is_some_and(|tracking| tracking.is_broken), 'R'),
            (tracking.is_some_and(|tracking| tracking.mode.broadcasts), 'B'),
            (self.watch.touched, 'd'),
            (self.closing == CloseState::AfterReply, 'c'),
            (self.closing == CloseState::Now, 'A'),
            (self.peer.is_unix, 'U'),
            (self.options.no_evict, 'e'),
            (self.options.no_touch, 'T'),
            (self.is_blocked(), 'b'),
        ] {
            if set {
                flags.push(letter);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
        let multi_bytes = self.multi.as_ref().map_or(0, |multi| multi.bytes());
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} \
             qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem={} events={} \
             cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer.address,
            self.peer.local_address,
            self.peer.fd,
            self.identity.name,
            seconds(self.peer.since_ms),
            seconds(self.stats.active_ms),
            flags,
            self.db.0,
            self.subscriptions.count(TopicKind::Channel),
            self.subscriptions.count(TopicKind::Pattern),
            self.subscriptions.count(TopicKind::Shard),
            self.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64),
            self.stats.input_bytes,
            multi_bytes,
            self.stats.output_bytes,
            self.stats.output_bytes,
            size_of::<Client>() + self.stats.input_bytes + self.stats.output_bytes + self.held_bytes(),
            if self.stats.output_bytes > 0 { "rw" } else { "r" },
            self.stats.last_command,
            String::from_utf8_lossy(&self.login.user().name),
            tracking.map_or(-1, |tracking| tracking.mode.redirect.cast_signed()),
            if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            self.identity.lib_name,
            self.identity.lib_version,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_commands_keep_their_words() {
        let mut multi = MultiState::default();
        let ranges = [ArgRange { start: 0, len: 3 }, ArgRange { start: 4, len: 1 }];
        multi.push(CommandId(3), 1, Args::new(b"get a", &ranges));
        multi.push(CommandId(4), 4, Args::new(b"del b", &ranges));
        let second = multi.commands[1];
        assert_eq!(multi.args(&second).iter().collect::<Vec<_>>(), [b"del".as_slice(), b"b"]);
        assert_eq!((multi.flags, second.command), (5, CommandId(4)));
    }
}
