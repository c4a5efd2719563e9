//! Publish/subscribe: which clients listen to which channels, patterns and shard channels, and the messages that they are sent.
//!
//! A subscription is kept twice: by its name here, which is what PUBLISH looks for, and in the client ([`Subscriptions`]), which is
//! what the client's end takes away. A message is written once and put into every subscriber's output; the loop sends it at the end of
//! its turn. Relies on `glob` for patterns, and on the clients' limits of output for those that do not read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::glob::Glob;
use crate::resp::Protocol;

/// Bytes of a subscription's entries in the tables here and in the client besides the name itself, about.
const SUBSCRIPTION_BYTES: usize = 320;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicKind {
    /// A channel (SUBSCRIBE).
    Channel,
    /// A pattern of channels' names (PSUBSCRIBE).
    Pattern,
    /// A channel of a cluster's shard (SSUBSCRIBE); here all of them are one server's.
    Shard,
}

impl TopicKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// The word that a reply to a subscription begins with.
    pub const fn subscribed(self) -> &'static str {
        match self {
            Self::Channel => "subscribe",
            Self::Pattern => "psubscribe",
            Self::Shard => "ssubscribe",
        }
    }

    /// The word that a reply to its end begins with.
    pub const fn unsubscribed(self) -> &'static str {
        match self {
            Self::Channel => "unsubscribe",
            Self::Pattern => "punsubscribe",
            Self::Shard => "sunsubscribe",
        }
    }
}

/// The subscriptions of one client.
#[derive(Default, Debug)]
pub struct Subscriptions {
    names: [BTreeSet<Box<[u8]>>; 3],
    /// Memory that they take, about.
    bytes: usize,
    /// Replies that are not in its output yet tell the client what it is sent from here on, and how: messages follow them.
    pub announced: bool,
}

impl Subscriptions {
    /// How many there are of a kind.
    pub fn count(&self, kind: TopicKind) -> usize {
        self.names[kind as usize].len()
    }

    /// How many a reply tells: those to channels and patterns together, or those to shard channels.
    pub fn told(&self, kind: TopicKind) -> usize {
        match kind {
            TopicKind::Channel | TopicKind::Pattern => self.count(TopicKind::Channel) + self.count(TopicKind::Pattern),
            TopicKind::Shard => self.count(TopicKind::Shard),
        }
    }

    /// The names of a kind.
    pub fn names(&self, kind: TopicKind) -> impl Iterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }

    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.bytes > 0
    }

    /// Memory that they take, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Who listens to the names of one kind: clients by their numbers.
type Topics = HashMap<Box<[u8]>, BTreeSet<u64>>;

/// The pattern by which clients receive a message, if it is not by the channel's name, and these clients.
pub type Receivers = (Option<Box<[u8]>>, Vec<u64>);

/// A pattern of channels' names, and who listens to them.
#[derive(Debug)]
struct PatternTopic {
    glob: Glob,
    clients: BTreeSet<u64>,
}

/// All subscriptions.
#[derive(Default, Debug)]
pub struct PubSub {
    channels: Topics,
    /// In an order of their own, so that a client whose patterns match a message gets it in the same order each time.
    patterns: BTreeMap<Box<[u8]>, PatternTopic>,
    shards: Topics,
}

impl PubSub {
    /// Client `id` listens to a name from now on; whether it did not before.
    pub fn subscribe(&mut self, id: u64, of: &mut Subscriptions, kind: TopicKind, name: &[u8]) -> bool {
        if !of.names[kind as usize].insert(name.into()) {
            return false;
        }
        of.announced = true;
        let is_new = match kind {
            TopicKind::Channel => self.channels.entry(name.into()).or_default().insert(id),
            TopicKind::Pattern => {
                let make = || PatternTopic { glob: Glob::new(name, false), clients: BTreeSet::new() };
                self.patterns.entry(name.into()).or_insert_with(make).clients.insert(id)
            }
            TopicKind::Shard => self.shards.entry(name.into()).or_default().insert(id),
        };
        of.bytes += self.bytes_of(kind, name);
        is_new
    }

    /// Memory of one client's subscription to a name, about.
    fn bytes_of(&self, kind: TopicKind, name: &[u8]) -> usize {
        let pattern = if kind == TopicKind::Pattern { self.patterns.get(name) } else { None };
        SUBSCRIPTION_BYTES + 2 * name.len() + pattern.map_or(0, |topic| topic.glob.memory_bytes())
    }

    /// Client `id` does not listen to a name any more; whether it did.
    pub fn unsubscribe(&mut self, id: u64, of: &mut Subscriptions, kind: TopicKind, name: &[u8]) -> bool {
        if !of.names[kind as usize].remove(name) {
            return false;
        }
        of.bytes -= self.bytes_of(kind, name);
        self.forget(id, kind, name);
        true
    }

    /// Client `id` listens to nothing any more.
    pub fn unsubscribe_all(&mut self, id: u64, of: &mut Subscriptions) {
        for kind in TopicKind::ALL {
            for name in std::mem::take(&mut of.names[kind as usize]) {
                self.forget(id, kind, &name);
            }
        }
        of.bytes = 0;
    }

    fn forget(&mut self, id: u64, kind: TopicKind, name: &[u8]) {
        let clients = match kind {
            TopicKind::Channel => self.channels.get_mut(name),
            TopicKind::Pattern => self.patterns.get_mut(name).map(|topic| &mut topic.clients),
            TopicKind::Shard => self.shards.get_mut(name),
        };
        let Some(clients) = clients else { return };
        clients.remove(&id);
        if clients.is_empty() {
            match kind {
                TopicKind::Channel => drop(self.channels.remove(name)),
                TopicKind::Pattern => drop(self.patterns.remove(name)),
                TopicKind::Shard => drop(self.shards.remove(name)),
            }
        }
    }

    /// Whether any client listens to anything.
    pub fn any(&self) -> bool {
        self.listens_to_channels() || !self.shards.is_empty()
    }

    /// Whether a message to any channel could have a receiver.
    #[inline]
    pub fn listens_to_channels(&self) -> bool {
        !(self.channels.is_empty() && self.patterns.is_empty())
    }

    /// Who receives a message to a channel: by the channel's name, and by each pattern that it matches.
    pub fn receivers(&self, channel: &[u8]) -> Vec<Receivers> {
        let all = |clients: &BTreeSet<u64>| clients.iter().copied().collect();
        let by_name = self.channels.get(channel).map(|clients| (None, all(clients)));
        // As in Redis no star matches the empty name, though KEYS has one that does.
        let matches = |pattern: &[u8], glob: &Glob| {
            if channel.is_empty() { pattern.is_empty() } else { glob.matches(channel) }
        };
        let patterns = self.patterns.iter().filter(|(pattern, topic)| matches(pattern, &topic.glob));
        by_name.into_iter().chain(patterns.map(|(name, topic)| (Some(name.clone()), all(&topic.clients)))).collect()
    }

    /// Who receives a message to a shard channel.
    pub fn shard_receivers(&self, channel: &[u8]) -> Vec<u64> {
        self.shards.get(channel).map(|clients| clients.iter().copied().collect()).unwrap_or_default()
    }

    /// How many clients listen to a channel (patterns aside) or a shard channel.
    pub fn subscribers(&self, kind: TopicKind, channel: &[u8]) -> usize {
        self.topics(kind).get(channel).map_or(0, BTreeSet::len)
    }

    /// The channels or shard channels that clients listen to.
    pub fn channels(&self, kind: TopicKind) -> impl Iterator<Item = &[u8]> {
        self.topics(kind).keys().map(|name| &**name)
    }

    fn topics(&self, kind: TopicKind) -> &Topics {
        if kind == TopicKind::Shard { &self.shards } else { &self.channels }
    }

    /// How many different names of a kind there are.
    pub fn count(&self, kind: TopicKind) -> usize {
        match kind {
            TopicKind::Channel => self.channels.len(),
            TopicKind::Pattern => self.patterns.len(),
            TopicKind::Shard => self.shards.len(),
        }
    }
}

/// Something that clients are sent without having asked for it there and then, in both protocols: an array of bulk strings, which is a
/// push in RESP3, or a line.
#[derive(Clone, Debug)]
pub struct PushMessage {
    /// As RESP2 has it; in RESP3 the first byte is another one.
    bytes: Vec<u8>,
}

impl PushMessage {
    /// A message of these parts.
    pub fn new(parts: &[&[u8]]) -> Self {
        Self::of_parts(parts, None)
    }

    /// A message of these parts and one more, which is no bulk string, as it is sent.
    pub fn with_tail(parts: &[&[u8]], tail: &[u8]) -> Self {
        Self::of_parts(parts, Some(tail))
    }

    fn of_parts(parts: &[&[u8]], tail: Option<&[u8]>) -> Self {
        let room: usize = parts.iter().map(|part| part.len() + 16).sum();
        let mut bytes = Vec::with_capacity(room + 8 + tail.map_or(0, <[u8]>::len));
        let mut digits = itoa::Buffer::new();
        let mut line = |marker: u8, number: usize, bytes: &mut Vec<u8>| {
            bytes.push(marker);
            bytes.extend_from_slice(digits.format(number).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        };
        line(b'*', parts.len() + usize::from(tail.is_some()), &mut bytes);
        for part in parts {
            line(b'$', part.len(), &mut bytes);
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(tail.unwrap_or_default());
        Self { bytes }
    }

    /// A line that is the same in both protocols, with its first byte and its end.
    pub fn line(text: String) -> Self {
        Self { bytes: text.into_bytes() }
    }

    /// Bytes of it, in either protocol.
    #[allow(clippy::len_without_is_empty)] // none is
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What a client of this protocol is sent: the first byte, and the others.
    pub fn encoded(&self, protocol: Protocol) -> (u8, &[u8]) {
        match self.bytes.split_first() {
            Some((b'*', rest)) if protocol == Protocol::Resp3 => (b'>', rest),
            Some((first, rest)) => (*first, rest),
            None => (b'+', b"\r\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_known_by_its_name_and_goes_with_its_client() {
        let mut all = PubSub::default();
        let (mut first, mut second) = (Subscriptions::default(), Subscriptions::default());
        assert!(all.subscribe(1, &mut first, TopicKind::Channel, b"news"));
        assert!(!all.subscribe(1, &mut first, TopicKind::Channel, b"news"));
        all.subscribe(1, &mut first, TopicKind::Pattern, b"n*");
        all.subscribe(2, &mut second, TopicKind::Channel, b"news");
        all.subscribe(2, &mut second, TopicKind::Shard, b"news");
        assert_eq!((first.told(TopicKind::Pattern), second.told(TopicKind::Shard)), (2, 1));
        assert_eq!(all.receivers(b"news"), [(None, vec![1, 2]), (Some(Box::from(b"n*".as_slice())), vec![1])]);
        all.subscribe(1, &mut first, TopicKind::Pattern, b"*");
        assert_eq!(all.receivers(b""), []);
        all.unsubscribe(1, &mut first, TopicKind::Pattern, b"*");
        assert_eq!((all.receivers(b"old").len(), all.shard_receivers(b"news")), (0, vec![2]));
        assert_eq!(all.subscribers(TopicKind::Channel, b"news"), 2);
        assert!(all.unsubscribe(2, &mut second, TopicKind::Channel, b"news"));
        assert!(!all.unsubscribe(2, &mut second, TopicKind::Channel, b"news"));
        all.unsubscribe_all(1, &mut first);
        all.unsubscribe_all(2, &mut second);
        assert!(TopicKind::ALL.iter().all(|kind| all.count(*kind) == 0));
        assert_eq!((first.bytes(), second.bytes(), first.any()), (0, 0, false));
    }

    #[test]
    fn a_message_is_a_push_to_clients_that_know_pushes() {
        let message = PushMessage::new(&[b"message", b"c", b""]);
        assert_eq!(message.encoded(Protocol::Resp3), (b'>', b"3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n".as_slice()));
        assert_eq!(message.encoded(Protocol::Resp2), (b'*', b"3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n".as_slice()));
        let message = PushMessage::with_tail(&[b"invalidate"], b"_\r\n");
        assert_eq!(message.encoded(Protocol::Resp3), (b'>', b"2\r\n$10\r\ninvalidate\r\n_\r\n".as_slice()));
    }
}
