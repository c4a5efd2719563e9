//! What the server knows of one client, its socket and buffers aside.

use quire_store::DbId;

use crate::args::{ArgRange, Args};
use crate::blocked::Blocked;
use crate::resp::Protocol;

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
pub struct Queued {
    /// The command.
    pub command: CommandId,
    first: u32,
    words: u32,
}

/// The commands between MULTI and EXEC.
#[derive(Default, Debug)]
pub struct Multi {
    buffer: Vec<u8>,
    ranges: Vec<ArgRange>,
    /// In the order in which they came.
    pub commands: Vec<Queued>,
    /// One of them was refused; EXEC will refuse too.
    pub failed: bool,
    /// The properties that any of them has.
    pub flags: u32,
}

impl Multi {
    /// Copies a command's words to the queue.
    pub fn push(&mut self, command: CommandId, flags: u32, args: Args<'_>) {
        let first = self.ranges.len() as u32;
        for word in args.iter() {
            self.ranges.push(ArgRange { start: self.buffer.len() as u32, len: word.len() as u32 });
            self.buffer.extend_from_slice(word);
        }
        self.commands.push(Queued { command, first, words: args.len() as u32 });
        self.flags |= flags;
    }

    /// The words of a queued command.
    pub fn args(&self, queued: &Queued) -> Args<'_> {
        let ranges = self.ranges.get(queued.first as usize..(queued.first + queued.words) as usize);
        Args::new(&self.buffer, ranges.unwrap_or_default())
    }

    /// What the queued commands take.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.ranges.len() * size_of::<ArgRange>() + self.commands.len() * size_of::<Queued>()
    }

    /// Memory that the queue holds.
    fn held_bytes(&self) -> usize {
        let (ranges, commands) = (self.ranges.capacity(), self.commands.capacity());
        self.buffer.capacity() + ranges * size_of::<ArgRange>() + commands * size_of::<Queued>()
    }
}

/// When to close a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Closing {
    /// Not.
    #[default]
    No,
    /// When the replies that are written so far have been sent.
    AfterReply,
    /// At once.
    Now,
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
    /// Whether it has given the password, or none is needed.
    pub authenticated: bool,
    /// Its name (CLIENT SETNAME).
    pub name: String,
    /// Its library (CLIENT SETINFO).
    pub lib_name: String,
    /// Its library's version.
    pub lib_version: String,
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
    /// When it was last heard of, on the same clock.
    pub active_ms: u64,
    /// Whether it wants replies.
    pub reply_mode: ReplyMode,
    /// Never evicted (CLIENT NO-EVICT).
    pub no_evict: bool,
    /// Its reads leave access times alone (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// The transaction that it is putting together.
    pub multi: Option<Box<Multi>>,
    /// A transaction of it is running, so that no command waits.
    pub in_exec: bool,
    /// The last record of the log that it has made, or found when it wrote and changed nothing.
    pub last_write: u64,
    /// What its replies of this turn wait for: 0 for nothing, a number that is never reached if the log has failed.
    pub owes: u64,
    /// What it waits for.
    pub blocked: Option<Blocked>,
    /// How many keys it watches.
    pub watched: usize,
    /// Memory that this takes.
    pub watched_bytes: usize,
    /// A key that it watches was changed.
    pub touched: bool,
    /// Whether its connection is to be closed.
    pub closing: Closing,
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

impl Client {
    /// A client that just came.
    pub fn new(id: u64, address: String, local_address: String, now_ms: u64) -> Self {
        Self {
            id,
            db: DbId(0),
            protocol: Protocol::Resp2,
            authenticated: false,
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            address,
            local_address,
            is_local: false,
            is_unix: false,
            fd: -1,
            since_ms: now_ms,
            active_ms: now_ms,
            reply_mode: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            multi: None,
            in_exec: false,
            last_write: 0,
            owes: 0,
            blocked: None,
            watched: 0,
            watched_bytes: 0,
            touched: false,
            closing: Closing::No,
            last_command: "NULL",
            commands: 0,
            input_total_bytes: 0,
            output_total_bytes: 0,
            input_bytes: 0,
            output_bytes: 0,
        }
    }

    /// Memory that its transaction, the keys that it watches and its names take.
    pub fn held_bytes(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.held_bytes());
        let names = self.name.capacity() + self.lib_name.capacity() + self.lib_version.capacity();
        queued + self.watched_bytes + names
    }

    /// The line that CLIENT LIST and CLIENT INFO show.
    pub fn describe(&self, now_ms: u64) -> String {
        let mut flags = String::new();
        for (set, letter) in [
            (self.multi.is_some(), 'x'),
            (self.touched, 'd'),
            (self.closing == Closing::AfterReply, 'c'),
            (self.closing == Closing::Now, 'A'),
            (self.is_unix, 'U'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
            (self.blocked.as_ref().is_some_and(Blocked::is_in_command), 'b'),
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
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} \
             qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem={} events={} \
             cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            self.fd,
            self.name,
            seconds(self.since_ms),
            seconds(self.active_ms),
            flags,
            self.db.0,
            self.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64),
            self.input_bytes,
            multi_bytes,
            self.output_bytes,
            self.output_bytes,
            size_of::<Client>() + self.input_bytes + self.output_bytes + self.held_bytes(),
            if self.output_bytes > 0 { "rw" } else { "r" },
            self.last_command,
            if self.protocol == Protocol::Resp3 { 3 } else { 2 },
            self.lib_name,
            self.lib_version,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_commands_keep_their_words() {
        let mut multi = Multi::default();
        let ranges = [ArgRange { start: 0, len: 3 }, ArgRange { start: 4, len: 1 }];
        multi.push(CommandId(3), 1, Args::new(b"get a", &ranges));
        multi.push(CommandId(4), 4, Args::new(b"del b", &ranges));
        let second = multi.commands[1];
        assert_eq!(multi.args(&second).iter().collect::<Vec<_>>(), [b"del".as_slice(), b"b"]);
        assert_eq!((multi.flags, second.command), (5, CommandId(4)));
    }
}
