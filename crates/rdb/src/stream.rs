//! Streams: their entries, read one after the other, and what else belongs to them, in a form that knows no implementation.
//!
//! Relies on `packed` for the listpacks of entries. Entries that were deleted are left out.

use std::collections::HashMap;
use std::io::Read;

use crate::error::Result;
use crate::input::Input;
use crate::packed::{Form, Packed};
use crate::word::{Word, Wrong};

/// Of an entry that was deleted.
const DELETED: i64 = 1;
/// Of an entry that has the fields of the first one.
const SAME_FIELDS: i64 = 2;

/// What the type's number says of the form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum StreamVersion {
    First,
    Second,
    Third,
}

/// The name of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// Unix time in milliseconds.
    pub ms: u64,
    /// Its number among those of that millisecond.
    pub seq: u64,
}

impl StreamId {
    /// As eight bytes of time and eight of number, the highest first.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

/// What a stream is beside its entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamState {
    /// Entries that it says to have.
    pub length: u64,
    /// The last entry that was ever added.
    pub last_id: StreamId,
    /// The first entry that is there; `None` where the version doesn't tell.
    pub first_id: Option<StreamId>,
    /// The highest entry that was deleted.
    pub max_deleted_id: StreamId,
    /// Entries that were ever added; the length where the version doesn't tell.
    pub entries_added: u64,
    /// Its consumer groups.
    pub groups: Vec<StreamGroup>,
}

/// A consumer group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamGroup {
    /// Its name.
    pub name: Vec<u8>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// Entries that it has read; `None` if that is not known.
    pub entries_read: Option<u64>,
    /// Its consumers.
    pub consumers: Vec<StreamConsumer>,
    /// Entries that were delivered and not acknowledged, as they are stored.
    pub pending: Vec<PendingEntry>,
}

/// A consumer of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamConsumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it last tried to read, in Unix milliseconds.
    pub seen_ms: i64,
    /// When it last read or claimed; `None` where the version doesn't tell.
    pub active_ms: Option<i64>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingEntry {
    /// The entry, which may have been deleted since.
    pub id: StreamId,
    /// When it was last delivered, in Unix milliseconds.
    pub delivered_ms: i64,
    /// How often.
    pub deliveries: u64,
    /// To which of the group's consumers.
    pub consumer: usize,
}

/// An entry.
#[derive(Debug)]
pub struct StreamEntry<'s> {
    /// Its name.
    pub id: StreamId,
    bytes: &'s [u8],
    pairs: &'s [(Word, Word)],
}

impl StreamEntry<'_> {
    /// How many fields it has.
    pub fn field_count(&self) -> usize {
        self.pairs.len()
    }

    /// Calls `f` with each field and its value, in their order.
    pub fn for_each(&self, mut f: impl FnMut(&[u8], &[u8])) {
        let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
        for (field, value) in self.pairs {
            f(field.text(self.bytes, &mut first), value.text(self.bytes, &mut second));
        }
    }
}

/// A listpack of entries.
#[derive(Debug)]
struct EntryNode {
    packed: Packed,
    id: StreamId,
    fields: Vec<Word>,
    /// Entries, deleted ones included, that are still to be read.
    left: u64,
}

impl EntryNode {
    fn open(id: StreamId, bytes: Vec<u8>) -> Result<Self, Wrong> {
        let mut packed = Packed::open(Form::Listpack, bytes)?;
        let (live, deleted) = (packed.number()?, packed.number()?);
        let fields = count(packed.number()?)?;
        let mut names = Vec::new();
        for _ in 0..fields {
            names.push(packed.next()?.ok_or("a node of a stream ends too early")?);
        }
        if packed.number()? != 0 {
            return Err("a node of a stream whose fields do not end");
        }
        let left = count(live)?.checked_add(count(deleted)?).ok_or("more entries than there can be")?;
        Ok(Self { packed, id, fields: names, left })
    }

    /// Reads the next entry's pairs; its name, `None` if it was deleted.
    fn read(&mut self, pairs: &mut Vec<(Word, Word)>) -> Result<Option<StreamId>, Wrong> {
        pairs.clear();
        let flags = self.packed.number()?;
        let (ms, seq) = (self.packed.number()?, self.packed.number()?);
        let id = StreamId { ms: self.id.ms.wrapping_add(ms as u64), seq: self.id.seq.wrapping_add(seq as u64) };
        let word = |packed: &mut Packed| packed.next()?.ok_or("an entry of a stream ends too early");
        if flags & SAME_FIELDS != 0 {
            for index in 0..self.fields.len() {
                pairs.push((self.fields[index], word(&mut self.packed)?));
            }
        } else {
            for _ in 0..count(self.packed.number()?)? {
                let field = word(&mut self.packed)?;
                pairs.push((field, word(&mut self.packed)?));
            }
        }
        // How many words the entry has, for those that go backwards.
        self.packed.number()?;
        self.left -= 1;
        Ok((flags & DELETED == 0).then_some(id))
    }
}

fn count(number: i64) -> Result<u64, Wrong> {
    u64::try_from(number).map_err(|_| "a negative count")
}

/// A stream that is being read.
#[derive(Debug)]
pub struct StreamReader<'r, R> {
    input: &'r mut Input<R>,
    version: StreamVersion,
    /// Nodes that are still to be read.
    nodes: u64,
    node: Option<EntryNode>,
    pairs: Vec<(Word, Word)>,
}

impl<'r, R: Read> StreamReader<'r, R> {
    pub(crate) fn begin(input: &'r mut Input<R>, version: StreamVersion) -> Result<Self> {
        let nodes = input.length()?;
        input.in_value = true;
        Ok(Self { input, version, nodes, node: None, pairs: Vec::new() })
    }

    /// The next entry; `None` behind the last one.
    ///
    /// # Errors
    /// The bytes end or are malformed.
    pub fn next_entry(&mut self) -> Result<Option<StreamEntry<'_>>> {
        let id = loop {
            match &mut self.node {
                Some(node) if node.left > 0 => match node.read(&mut self.pairs) {
                    Ok(Some(id)) => break id,
                    Ok(None) => {}
                    Err(what) => return self.input.malformed(what),
                },
                Some(node) => {
                    match node.packed.next() {
                        Ok(None) => self.node = None,
                        Ok(Some(_)) => return self.input.malformed("a node of a stream has more than its entries"),
                        Err(what) => return self.input.malformed(what),
                    };
                }
                None if self.nodes == 0 => return Ok(None),
                None => {
                    self.nodes -= 1;
                    self.node = Some(self.next_node()?);
                }
            }
        };
        let bytes = self.node.as_ref().map_or(&[][..], |node| node.packed.bytes());
        Ok(Some(StreamEntry { id, bytes, pairs: &self.pairs }))
    }

    fn next_node(&mut self) -> Result<EntryNode> {
        let name = self.input.string()?;
        let Ok(name) = <[u8; 16]>::try_from(&name[..]) else {
            return self.input.malformed("a node of a stream whose name has not 16 bytes");
        };
        let bytes = self.input.string()?;
        EntryNode::open(StreamId::from_bytes(name), bytes).or_else(|what| self.input.malformed(what))
    }

    /// Reads what is behind the entries; those that were not read are read over.
    ///
    /// # Errors
    /// The bytes end or are malformed.
    pub fn finish(mut self) -> Result<StreamState> {
        while self.next_entry()?.is_some() {}
        let length = self.input.length()?;
        let last_id = self.id()?;
        let mut state = StreamState { length, last_id, entries_added: length, ..StreamState::default() };
        if self.version >= StreamVersion::Second {
            state.first_id = Some(self.id()?);
            state.max_deleted_id = self.id()?;
            state.entries_added = self.input.length()?;
        }
        for _ in 0..self.input.length()? {
            state.groups.push(self.group()?);
        }
        self.input.in_value = false;
        Ok(state)
    }

    fn id(&mut self) -> Result<StreamId> {
        Ok(StreamId { ms: self.input.length()?, seq: self.input.length()? })
    }

    fn raw_id(&mut self) -> Result<StreamId> {
        Ok(StreamId::from_bytes(self.input.array()?))
    }

    fn time_ms(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.input.array()?))
    }

    fn group(&mut self) -> Result<StreamGroup> {
        let (name, last_id) = (self.input.string()?, self.id()?);
        let mut entries_read = None;
        if self.version >= StreamVersion::Second {
            // Minus one stands for what is not known.
            entries_read = Some(self.input.length()?).filter(|&read| read <= i64::MAX as u64);
        }
        let (mut pending, mut places) = (Vec::new(), HashMap::new());
        for index in 0..self.input.length()? {
            let (id, delivered_ms, deliveries) = (self.raw_id()?, self.time_ms()?, self.input.length()?);
            pending.push(PendingEntry { id, delivered_ms, deliveries, consumer: usize::MAX });
            if places.insert(id, index as usize).is_some() {
                return self.input.malformed("an entry is pending twice");
            }
        }
        let mut consumers = Vec::new();
        for number in 0..self.input.length()? {
            let (name, seen_ms) = (self.input.string()?, self.time_ms()?);
            let active_ms = if self.version >= StreamVersion::Third { Some(self.time_ms()?) } else { None };
            consumers.push(StreamConsumer { name, seen_ms, active_ms });
            for _ in 0..self.input.length()? {
                let id = self.raw_id()?;
                match places.remove(&id).and_then(|index| pending.get_mut(index)) {
                    Some(entry) => entry.consumer = number as usize,
                    None => return self.input.malformed("a consumer's entry is not one of the group's"),
                }
            }
        }
        if !places.is_empty() {
            return self.input.malformed("a pending entry without a consumer");
        }
        Ok(StreamGroup { name, last_id, entries_read, consumers, pending })
    }
}
