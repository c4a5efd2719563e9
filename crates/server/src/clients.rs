//! All connections: their sockets, their buffers, and how to find them. Relies on `socket`.
//!
//! While a client's commands run its connection is taken out of its slot, so that a command can reach every other
//! client through [`Clients`] and its own through the context.

use std::collections::{HashMap, VecDeque};
use std::io;

use crate::blocked::WaitEntry;
use crate::client::{Client, CloseState};
use crate::pubsub::{PubSub, PushMessage};
use crate::resp::PartialRequest;
use crate::socket::Socket;

/// Replies that the socket did not take yet, or that may not be sent yet.
#[derive(Default, Debug)]
pub struct OutputBuffer {
    bytes: Vec<u8>,
    sent: usize,
    /// Where bytes begin that wait for the log, in order.
    marks: VecDeque<OutputMark>,
    /// Since when it has been above the soft limit.
    pub above_soft_since_ms: Option<u64>,
}

/// From here on bytes may be sent only when a record of the log is durable.
#[derive(Clone, Copy, Debug)]
struct OutputMark {
    at: usize,
    sequence: u64,
}

impl OutputBuffer {
    /// How much waits.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Memory that the buffer takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.marks.capacity() * size_of::<OutputMark>()
    }

    /// True when nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.sent
    }

    /// What waits and may be sent.
    pub fn waiting(&self) -> &[u8] {
        let end = self.marks.front().map_or(self.bytes.len(), |mark| mark.at);
        &self.bytes[self.sent..end]
    }

    /// What is added from here on may be sent only when record `sequence` of the log is durable.
    pub fn hold(&mut self, sequence: u64) {
        if self.marks.back().is_none_or(|mark| mark.sequence < sequence) {
            self.marks.push_back(OutputMark { at: self.bytes.len(), sequence });
        }
    }

    /// The last record that anything waits for.
    #[inline]
    pub fn held_for(&self) -> Option<u64> {
        self.marks.back().map(|mark| mark.sequence)
    }

    /// Lets go what waits for records up to `durable`.
    pub fn settle(&mut self, durable: u64) {
        while self.marks.front().is_some_and(|mark| mark.sequence <= durable) {
            self.marks.pop_front();
        }
    }

    /// Takes over a whole buffer whose first `sent` bytes have been sent. There must be nothing that waits.
    pub fn adopt(&mut self, bytes: Vec<u8>, sent: usize) {
        debug_assert!(self.is_empty());
        (self.bytes, self.sent) = (bytes, sent);
    }

    /// Adds a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        // What was sent is dropped before the buffer would grow because of it.
        if self.sent > 0 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.marks.iter_mut().for_each(|mark| mark.at -= self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// `count` bytes of what waits were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
        if self.is_empty() {
            // An idle connection holds no buffer.
            *self = OutputBuffer::default();
        }
    }
}

/// One client with its socket and buffers.
#[derive(Debug)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Its socket.
    pub socket: Socket,
    /// Requests that are not complete or may not run yet.
    pub input: Vec<u8>,
    /// What is known of the request at the start of `input`.
    pub partial: Option<Box<PartialRequest>>,
    /// Replies that wait.
    pub output: OutputBuffer,
    /// The loop is told when more can be written.
    pub watches_writing: bool,
    /// Where it is entered among the clients that wait.
    pub entry: Option<WaitEntry>,
    /// The socket may have bytes that were not read because requests wait.
    pub unread: bool,
    /// The client sends no more; what it has sent may not all be read yet.
    pub read_closed: bool,
    /// Everything that the client sent was read, up to its end.
    pub at_end: bool,
    /// The loop knows that replies wait for this record of the log.
    pub listed_for: u64,
    /// It was sent messages that the loop is still to hand to the socket.
    pub has_messages: bool,
    /// What [`Clients::memory_bytes`] counts for it.
    counted_bytes: usize,
}

impl Connection {
    /// The connection of a client that has just come.
    pub fn new(client: Client, socket: Socket) -> Self {
        Self {
            client,
            socket,
            input: Vec::new(),
            partial: None,
            output: OutputBuffer::default(),
            watches_writing: false,
            entry: None,
            unread: false,
            read_closed: false,
            at_end: false,
            listed_for: 0,
            has_messages: false,
            counted_bytes: 0,
        }
    }

    /// Memory of its buffers, and of what else its requests can make larger.
    pub fn memory_bytes(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| partial.memory_bytes());
        let buffers = self.input.capacity() + self.output.memory_bytes() + self.socket.memory_bytes();
        buffers + partial + self.client.held_bytes()
    }

    /// True when its requests wait.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.client.blocked.is_some()
    }
}

/// Where a connection is.
pub type Slot = usize;

/// Without a limit of their own all clients together may take this part of the machine's memory, but so much at least.
const CLIENTS_MEMORY_PART: u64 = 4;
const CLIENTS_LEAST_BYTES: u64 = 1 << 30;

/// How much a client may have unread of what it is sent without asking.
#[derive(Clone, Copy, Debug)]
pub struct OutputBounds {
    /// One client; 0 for no bound.
    pub of_one_bytes: u64,
    /// All clients together, with all their buffers.
    pub together_bytes: u64,
}

/// What became of a message to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// It is in the client's output.
    Delivered,
    /// The client has too much unread, and is closed.
    TooMuch,
    /// There is no such client any more.
    Gone,
}

/// Messages that the client whose command is running has sent to itself.
#[derive(Default, Debug)]
struct OwnMessages {
    messages: Vec<PushMessage>,
    bytes: u64,
}

/// Clients may not run commands for a while (CLIENT PAUSE).
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// Until then, on the server's monotonic clock.
    pub until_ms: u64,
    /// All commands, not only those that write.
    pub all: bool,
}

/// All connections.
#[derive(Debug)]
pub struct Clients {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<Slot>,
    by_id: HashMap<u64, Slot>,
    last_id: u64,
    memory_bytes: usize,
    /// Slots whose connection must be closed at the end of the turn.
    pub doomed: Vec<Slot>,
    /// Slots that can be used again from the next turn on, when no event for them can be under way any more.
    leaving: Vec<Slot>,
    /// They may not run commands for a while.
    pub pause: Option<Pause>,
    /// What they may take together if no setting says it.
    automatic_limit_bytes: u64,
    /// Who listens to what.
    pub pubsub: PubSub,
    /// Clients that are shown each command.
    pub monitors: Vec<u64>,
    /// Slots that were sent messages in this turn.
    pub delivered: Vec<Slot>,
    own: OwnMessages,
}

impl Default for Clients {
    fn default() -> Self {
        let machine_bytes = quire_sys::proc::meminfo_bytes("MemTotal").unwrap_or(0);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            last_id: 0,
            memory_bytes: 0,
            doomed: Vec::new(),
            leaving: Vec::new(),
            pause: None,
            automatic_limit_bytes: (machine_bytes / CLIENTS_MEMORY_PART).max(CLIENTS_LEAST_BYTES),
            pubsub: PubSub::default(),
            monitors: Vec::new(),
            delivered: Vec::new(),
            own: OwnMessages::default(),
        }
    }
}

impl Clients {
    /// What they may take together if no setting says it.
    #[inline]
    pub fn automatic_limit_bytes(&self) -> u64 {
        self.automatic_limit_bytes
    }

    /// A number for a new client.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Memory of all connections' buffers, as it was when each of them was put into its slot.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds a connection; `make` is told its slot.
    pub fn insert(&mut self, id: u64, make: impl FnOnce(Slot) -> io::Result<Connection>) -> io::Result<Slot> {
        let slot = self.free.last().copied().unwrap_or(self.slots.len());
        let connection = Box::new(make(slot)?);
        if slot == self.slots.len() {
            self.slots.push(None);
        } else {
            self.free.pop();
        }
        self.slots[slot] = Some(connection);
        self.by_id.insert(id, slot);
        Ok(slot)
    }

    /// Takes a connection out while its commands run.
    #[inline]
    pub fn take(&mut self, slot: Slot) -> Option<Box<Connection>> {
        self.slots.get_mut(slot)?.take()
    }

    /// Puts it back.
    #[inline]
    pub fn put_back(&mut self, slot: Slot, mut connection: Box<Connection>) {
        let bytes = connection.memory_bytes();
        let counted = std::mem::replace(&mut connection.counted_bytes, bytes);
        self.memory_bytes = self.memory_bytes - counted + bytes;
        self.slots[slot] = Some(connection);
    }

    /// Gives up the slot of a connection that was taken out for good.
    pub fn forget(&mut self, slot: Slot, connection: &Connection) {
        self.memory_bytes -= connection.counted_bytes;
        self.by_id.remove(&connection.client.id);
        self.leaving.push(slot);
    }

    /// Clients that may be closed to get memory back, the one that takes most first.
    pub fn largest(&self) -> Vec<Slot> {
        let evictable = self.iter().filter(|(_, one)| !one.client.options.no_evict && one.counted_bytes > 0);
        let mut by_size: Vec<_> = evictable.map(|(slot, one)| (one.counted_bytes, slot)).collect();
        by_size.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        by_size.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Makes slots usable again.
    pub fn end_turn(&mut self) {
        self.free.append(&mut self.leaving);
    }

    /// The connections in their slots: all but the one whose command is running.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Connection)> {
        self.slots.iter().enumerate().filter_map(|(slot, connection)| Some((slot, connection.as_deref()?)))
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Connection)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, connection)| Some((slot, connection.as_deref_mut()?)))
    }

    /// The client of this number, unless it is the one whose command is running.
    pub fn by_id_mut(&mut self, id: u64) -> Option<&mut Client> {
        let slot = *self.by_id.get(&id)?;
        Some(&mut self.slots.get_mut(slot)?.as_deref_mut()?.client)
    }

    /// The client of this number, unless it is the one whose command is running.
    pub fn by_id(&self, id: u64) -> Option<&Client> {
        let slot = *self.by_id.get(&id)?;
        Some(&self.slots.get(slot)?.as_deref()?.client)
    }

    /// Where the client of this number is.
    pub fn slot_of(&self, id: u64) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    /// Puts a message into the output of client `id`; the loop sends it at the end of the turn. What the client whose command is running
    /// is sent follows its reply ([`Clients::take_own_messages`]).
    pub fn deliver(&mut self, id: u64, message: &PushMessage, bounds: OutputBounds) -> Delivery {
        let Some(slot) = self.slot_of(id) else { return Delivery::Gone };
        let bytes = message.len() as u64;
        let too_much = |waiting: u64| bounds.of_one_bytes > 0 && waiting + bytes > bounds.of_one_bytes;
        let crowded = self.memory_bytes as u64 + bytes > bounds.together_bytes;
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_deref_mut) else {
            self.own.bytes += bytes;
            if too_much(self.own.bytes - bytes) || self.own.bytes + self.memory_bytes as u64 > bounds.together_bytes {
                self.own.messages = Vec::new();
                return Delivery::TooMuch;
            }
            self.own.messages.push(message.clone());
            return Delivery::Delivered;
        };
        if connection.client.closing != CloseState::No {
            return Delivery::Gone;
        }
        if crowded || too_much(connection.output.len() as u64) {
            tracing::warn!(
                client = id,
                address = %connection.client.peer.address,
                waiting_bytes = connection.output.len(),
                "closing a client that does not read the messages that it listens to"
            );
            self.doom(slot);
            return Delivery::TooMuch;
        }
        if !std::mem::replace(&mut connection.has_messages, true) {
            self.delivered.push(slot);
        }
        let (first, rest) = message.encoded(connection.client.protocol);
        connection.output.push(&[first]);
        connection.output.push(rest);
        connection.client.stats.output_bytes = connection.output.len();
        let bytes = connection.memory_bytes();
        let counted = std::mem::replace(&mut connection.counted_bytes, bytes);
        self.memory_bytes = self.memory_bytes - counted + bytes;
        Delivery::Delivered
    }

    /// Whether the client whose command is running was sent messages.
    #[inline]
    pub fn has_own_messages(&self) -> bool {
        self.own.bytes > 0
    }

    /// What the client whose command is running was sent; `None` if it was too much.
    pub fn take_own_messages(&mut self) -> Option<Vec<PushMessage>> {
        let own = std::mem::take(&mut self.own);
        (!own.messages.is_empty()).then_some(own.messages)
    }

    /// Client `id` is shown each command, or none any more.
    pub fn set_monitoring(&mut self, id: u64, monitors: bool) {
        self.monitors.retain(|other| *other != id);
        if monitors {
            self.monitors.push(id);
        }
    }

    /// Has a connection closed at the end of the turn.
    pub fn doom(&mut self, slot: Slot) {
        if let Some(Some(connection)) = self.slots.get_mut(slot) {
            connection.client.closing = CloseState::Now;
            self.doomed.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_keeps_order_and_gives_its_memory_back() {
        let mut output = OutputBuffer::default();
        output.push(b"abcdef");
        output.advance(4);
        output.push(b"gh");
        assert_eq!((output.waiting(), output.len()), (&b"efgh"[..], 4));
        output.advance(4);
        assert!(output.is_empty());
        assert_eq!(output.bytes.capacity(), 0);
        output.adopt(b"0123".to_vec(), 1);
        output.push(b"4");
        assert_eq!(output.waiting(), b"1234");
    }

    #[test]
    fn output_is_held_until_the_log_is_durable() {
        let mut output = OutputBuffer::default();
        output.push(b"free");
        output.hold(5);
        output.push(b"five");
        output.hold(5);
        output.push(b"more");
        output.hold(7);
        output.push(b"seven");
        assert_eq!((output.waiting(), output.len(), output.held_for()), (&b"free"[..], 17, Some(7)));
        output.advance(4);
        assert!(output.waiting().is_empty() && !output.is_empty());
        output.settle(4);
        assert!(output.waiting().is_empty());
        output.settle(6);
        assert_eq!(output.waiting(), b"fivemore");
        output.advance(8);
        output.push(b"!");
        assert!(output.waiting().is_empty());
        output.settle(7);
        assert_eq!((output.waiting(), output.held_for()), (&b"seven!"[..], None));
    }
}
