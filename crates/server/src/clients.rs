//! All connections: their sockets, their buffers, and how to find them. Relies on `socket`.
//!
//! While a client's commands run its connection is taken out of its slot, so that a command can reach every other
//! client through [`Clients`] and its own through the context.

use std::collections::HashMap;
use std::io;

use crate::acl::Acl;
use crate::blocked::WaitEntry;
use crate::client::{Client, CloseState};
use crate::invalid_keys::InvalidKeys;
use crate::output_buffer::OutputBuffer;
use crate::pubsub::{PubSub, PushMessage};
use crate::resp::PartialRequest;
use crate::socket::Socket;
use crate::tracking::Tracking;

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
    /// It has messages, or replies that were put off, that the loop is still to hand to the socket.
    pub awaits_sending: bool,
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
            awaits_sending: false,
            counted_bytes: 0,
        }
    }

    /// Memory of its buffers, and of what else its requests can make larger.
    pub fn memory_bytes(&self) -> usize {
        let partial = self.partial.as_ref().map_or(0, |partial| partial.memory_bytes());
        let buffers = self.input.capacity() + self.output.memory_bytes() + self.socket.memory_bytes();
        buffers + partial + self.client.held_bytes()
    }

    /// Takes in what the client has sent.
    #[inline]
    pub fn take_in(&mut self, bytes: &[u8]) {
        if self.input.capacity() - self.input.len() < bytes.len() {
            let needed = self.partial.as_ref().map_or(0, |partial| partial.needs_bytes());
            grow(&mut self.input, bytes.len(), needed);
        }
        self.input.extend_from_slice(bytes);
    }

    /// True when its requests wait.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.client.blocked.is_some()
    }
}

/// Makes room for `more` bytes. The buffer doubles, but not beyond the `needed` bytes of the request that it has a part of: a large one would
/// take twice its size, and count so for `maxmemory-clients`.
#[cold]
fn grow(input: &mut Vec<u8>, more: usize, needed: usize) {
    let least = input.len() + more;
    let doubled = least.max(2 * input.capacity());
    let wanted = if least <= needed { doubled.min(needed) } else { doubled };
    input.reserve_exact(wanted - input.len());
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
pub struct OwnMessages {
    messages: Vec<PushMessage>,
    /// Clients that are to be told of keys, which concerns the running one, too.
    told_later: Vec<(u64, InvalidKeys)>,
    bytes: u64,
    /// There were more than it may leave unread.
    overflowed: bool,
}

/// Slots with messages of this turn, or replies that were put off.
#[derive(Default, Debug)]
struct DeliveredSlots {
    slots: Vec<Slot>,
    /// The sockets of so many of them were asked to take theirs.
    offered: usize,
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
    /// Who keeps which keys in a cache of its own.
    pub tracking: Tracking,
    /// Clients that are shown each command.
    pub monitors: Vec<u64>,
    delivered: DeliveredSlots,
    own: OwnMessages,
    /// The users that they are.
    pub acl: Acl,
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
            tracking: Tracking::default(),
            monitors: Vec::new(),
            delivered: DeliveredSlots::default(),
            own: OwnMessages::default(),
            acl: Acl::default(),
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

    /// The client that takes most memory of those that may be closed to get it back.
    pub fn largest(&self) -> Option<Slot> {
        let evictable = self.iter().filter(|(_, one)| {
            one.counted_bytes > 0 && !one.client.options.no_evict && one.client.closing != CloseState::Now
        });
        evictable.max_by_key(|(_, one)| one.counted_bytes).map(|(slot, _)| slot)
    }

    /// Has a connection closed at the end of the turn; the memory of its buffers goes at once, and none of it counts any more.
    pub fn evict(&mut self, slot: Slot) {
        self.doom(slot);
        if let Some(Some(connection)) = self.slots.get_mut(slot) {
            (connection.input, connection.partial) = (Vec::new(), None);
            connection.output = OutputBuffer::default();
            self.memory_bytes -= std::mem::take(&mut connection.counted_bytes);
        }
    }

    /// Whether any were sent messages that the loop is still to hand to their sockets.
    #[inline]
    pub fn has_delivered(&self) -> bool {
        !self.delivered.slots.is_empty()
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

    /// The client in this slot, unless it is the one whose command is running.
    pub fn at(&self, slot: Slot) -> Option<&Client> {
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
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_deref_mut) else {
            self.own.bytes += bytes;
            if too_much(self.own.bytes - bytes) || self.own.bytes > bounds.together_bytes {
                self.own.messages = Vec::new();
                self.own.overflowed = true;
                return Delivery::TooMuch;
            }
            self.own.messages.push(message.clone());
            return Delivery::Delivered;
        };
        if connection.client.closing != CloseState::No || connection.client.is_sent_file() {
            // Amid a file a message would be taken for a part of it.
            return Delivery::Gone;
        }
        // Replies that wait for the log, and what follows them, do not wait for the client.
        if too_much(connection.output.waiting().len() as u64) {
            return Delivery::TooMuch;
        }
        if !std::mem::replace(&mut connection.awaits_sending, true) {
            self.delivered.slots.push(slot);
        }
        let (first, rest) = message.encoded(connection.client.protocol);
        connection.output.push_message(first, rest);
        connection.client.stats.output_bytes = connection.output.len();
        let bytes = connection.memory_bytes();
        let counted = std::mem::replace(&mut connection.counted_bytes, bytes);
        self.memory_bytes = self.memory_bytes - counted + bytes;
        Delivery::Delivered
    }

    /// Slots that were sent messages and whose sockets were not asked to take them yet. They stay among the delivered ones.
    pub fn not_offered(&mut self) -> Vec<Slot> {
        let slots = self.delivered.slots[self.delivered.offered..].to_vec();
        self.delivered.offered = self.delivered.slots.len();
        slots
    }

    /// The connection in this slot has replies that its socket was not asked to take, or did not take while a script ran: the loop asks the
    /// socket.
    pub fn note_unsent(&mut self, slot: Slot) {
        self.delivered.slots.push(slot);
    }

    /// Slots that were sent messages in this turn; one may be there several times.
    pub fn take_delivered(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.delivered).slots
    }

    /// Whether the client whose command is running was sent messages, or may have to be.
    #[inline]
    pub fn has_own_messages(&self) -> bool {
        self.own.bytes > 0
    }

    /// What the client whose command is running was sent; `None` if it was too much.
    pub fn take_own_messages(&mut self) -> Option<Vec<PushMessage>> {
        let own = std::mem::take(&mut self.own);
        for (id, keys) in own.told_later {
            self.tell_later(id, keys, u64::MAX);
        }
        (!own.overflowed).then_some(own.messages)
    }

    /// Sets aside what the client was sent whose script is running, while commands of others run.
    pub fn set_own_aside(&mut self) -> OwnMessages {
        std::mem::take(&mut self.own)
    }

    /// The script goes on.
    pub fn put_own_back(&mut self, own: OwnMessages) {
        self.own = own;
    }

    /// Client `id` is to be told of keys when the command that is running has ended. If that would be more than so many bytes, the client
    /// whose command it is could not be sent them: it is closed instead, and nothing of that is kept until then.
    pub fn tell_later(&mut self, id: u64, keys: InvalidKeys, most_bytes: u64) {
        self.own.bytes += keys.memory_bytes() as u64;
        if self.own.bytes > most_bytes {
            (self.own.told_later, self.own.messages) = (Vec::new(), Vec::new());
            self.own.overflowed = true;
        } else {
            self.own.told_later.push((id, keys));
        }
    }

    /// Clients that are to be told of keys now that the command has ended.
    pub fn take_told_later(&mut self) -> Vec<(u64, InvalidKeys)> {
        let told = std::mem::take(&mut self.own.told_later);
        self.own.bytes -= told.iter().map(|(_, keys)| keys.memory_bytes() as u64).sum::<u64>();
        told
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
    fn a_buffer_grows_by_doubling_but_not_beyond_the_request_that_it_holds() {
        let mut input = Vec::new();
        let mut moves = 0;
        while input.len() < 1_000_000 {
            let room = input.capacity();
            if room - input.len() < 1000 {
                grow(&mut input, 1000, 1_000_000);
                moves += 1;
            }
            input.extend_from_slice(&[0; 1000]);
            assert!(input.capacity() <= 1_000_000);
        }
        assert!(moves <= 11, "{moves}");
        // What comes behind the request.
        grow(&mut input, 1000, 1_000_000);
        assert_eq!(input.capacity(), 2_000_000);
        let mut unknown = vec![0; 1000];
        grow(&mut unknown, 5000, 0);
        assert_eq!(unknown.capacity(), 6000);
    }

    #[test]
    fn what_a_command_is_to_be_told_at_its_end_has_a_bound() {
        let mut clients = Clients::default();
        let keys = |len: usize| InvalidKeys::several(std::iter::once(&vec![b'k'; len][..]), 1);
        clients.tell_later(1, keys(400), 1000);
        clients.tell_later(1, keys(400), 1000);
        assert_eq!(clients.own.told_later.len(), 2);
        for _ in 0..100 {
            clients.tell_later(1, keys(400), 1000);
        }
        assert!(clients.own.told_later.is_empty() && clients.has_own_messages());
        assert!(clients.take_told_later().is_empty());
        assert!(clients.take_own_messages().is_none(), "the client is closed");
        assert!(!clients.has_own_messages());
    }
}
