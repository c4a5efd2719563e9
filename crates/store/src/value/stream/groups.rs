//! Groups of a stream, their consumers and what is pending, to be changed.
//!
//! What is pending lies twice in the index: in its group's space with the consumer, the time and the count, and in that of the consumer. Relies on
//! `items` for groups and consumers themselves. What adds something changes nothing if it fails, but for numbers that are not used again.

use quire_arena::{Arena, Handle};
use zerocopy::IntoBytes;

use crate::error::{Result, StoreError};
use crate::table::TableHead;

use super::id::StreamId;
use super::index::{self, StreamOrder};
use super::items::{self, ConsumerFields, GroupFields, ItemHeader, ItemKind};
use super::nodes::{CONSUMERS, GROUPS, Key, Slot};
use super::parts::Parts;

/// A group of a stream, as it was when it was looked up.
#[derive(Clone, Debug)]
pub struct StreamGroup {
    pub(super) item: Handle,
    pub(super) space: u32,
    /// Its name.
    pub name: Box<[u8]>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// Entries that were delivered up to that; `None` if it is not known.
    pub entries_read: Option<i64>,
    /// Entries that were delivered and not acknowledged.
    pub pending: u64,
    /// Its consumers.
    pub consumers: u64,
}

/// A consumer of a group, as it was when it was looked up.
#[derive(Clone, Debug)]
pub struct StreamConsumer {
    pub(super) item: Handle,
    pub(super) space: u32,
    /// Its name.
    pub name: Box<[u8]>,
    /// When it has asked for something last.
    pub seen_ms: i64,
    /// When it was last given an entry; `None` if it never was.
    pub active_ms: Option<i64>,
    /// Entries that were delivered to it and not acknowledged.
    pub pending: u64,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its ID; there may be no such entry any more.
    pub id: StreamId,
    /// The consumer, see [`StreamConsumer::has`].
    pub(super) consumer: u32,
    /// When it was delivered last.
    pub time_ms: i64,
    /// How often it was delivered.
    pub count: u64,
}

impl StreamConsumer {
    /// Whether an entry is pending for this consumer of its group.
    pub fn has(&self, entry: &PendingEntry) -> bool {
        entry.consumer == self.space
    }
}

impl PendingEntry {
    pub(super) fn of(slot: &Slot) -> PendingEntry {
        PendingEntry { id: slot.key().id, consumer: slot.value, time_ms: slot.time_ms, count: slot.count }
    }
}

/// Both ends of a space.
pub(super) fn whole(space: u32) -> (Key, Key) {
    (Key::new(space, StreamId::MIN), Key::new(space, StreamId::MAX))
}

/// Where a group is listed.
pub(super) fn group_key(group: u32) -> Key {
    Key::new(GROUPS, StreamId { ms: group.into(), seq: 0 })
}

/// Where a consumer is listed.
pub(super) fn consumer_key(group: u32, consumer: u32) -> Key {
    Key::new(CONSUMERS, StreamId { ms: group.into(), seq: consumer.into() })
}

/// All consumers of a group.
pub(super) fn consumer_keys(group: u32) -> (Key, Key) {
    (consumer_key(group, 0), consumer_key(group, u32::MAX))
}

pub(super) fn read_group(arena: &Arena, item: Handle) -> Result<StreamGroup> {
    let fields: GroupFields = items::fields(arena, item)?;
    Ok(StreamGroup {
        item,
        space: arena.get::<ItemHeader>(item)?.word,
        name: items::name(arena, item)?.into(),
        last_id: fields.last_id(),
        entries_read: Some(fields.entries_read).filter(|&read| read >= 0),
        pending: fields.pending,
        consumers: fields.consumers,
    })
}

pub(super) fn read_consumer(arena: &Arena, item: Handle) -> Result<StreamConsumer> {
    let fields: ConsumerFields = items::fields(arena, item)?;
    let space = arena.get::<ItemHeader>(item)?.word;
    let name = items::name(arena, item)?.into();
    let active_ms = items::active_ms(arena, item)?;
    Ok(StreamConsumer { item, space, name, seen_ms: fields.seen_ms, active_ms, pending: fields.pending })
}

/// The item of a group or a consumer that the index lists.
pub(super) fn listed(arena: &Arena, head: &TableHead, slot: &Slot, kind: ItemKind, space: u32) -> Result<Handle> {
    let found = items::look_up(arena, head, slot.value, kind, |item| Ok(arena.get::<ItemHeader>(item)?.word == space))?;
    found.ok_or_else(|| StoreError::damaged("a stream without a group or a consumer that it lists"))
}

impl Parts<'_> {
    fn group_fields(&mut self, group: &StreamGroup) -> Result<&mut GroupFields> {
        items::fields_mut(&mut self.heap.arena, group.item)
    }

    fn consumer_fields(&mut self, consumer: Handle) -> Result<&mut ConsumerFields> {
        items::fields_mut(&mut self.heap.arena, consumer)
    }

    /// Adds a group that the stream has not.
    pub(super) fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<i64>) -> Result<()> {
        let space = items::new_space(self.heap, self.head)?;
        let mut fields = GroupFields { entries_read: entries_read.unwrap_or(-1), ..GroupFields::default() };
        fields.set_last_id(last_id);
        let number = items::number_of(self.hasher, 0, name);
        let header = ItemHeader { number, word: space, ..ItemHeader::default() };
        let item = items::add_named(self.heap, self.head, header, ItemKind::Group, fields.as_bytes(), name)?;
        self.list(Slot::new(group_key(space), number), item)?;
        items::change_anchor(self.heap, self.head, |anchor| anchor.groups = anchor.groups.saturating_add(1))
    }

    /// Lists an item that was made; it is freed if this fails.
    fn list(&mut self, slot: Slot, item: Handle) -> Result<()> {
        let listed = self.index().set(slot);
        if listed.is_err() {
            items::remove(self.heap, self.head, item)?;
        }
        listed
    }

    /// Frees a group with all that it has.
    pub(super) fn destroy_group(&mut self, group: &StreamGroup) -> Result<()> {
        self.drop_space(whole(group.space), |_, _| Ok(()))?;
        self.drop_space(consumer_keys(group.space), |parts, slot| {
            let space = slot.key().id.seq as u32;
            let item = listed(&parts.heap.arena, parts.head, slot, ItemKind::Consumer, space)?;
            parts.drop_space(whole(space), |_, _| Ok(()))?;
            items::remove(parts.heap, parts.head, item)
        })?;
        self.index().remove(&group_key(group.space))?;
        items::remove(self.heap, self.head, group.item)?;
        items::change_anchor(self.heap, self.head, |anchor| anchor.groups = anchor.groups.saturating_sub(1))
    }

    /// Takes every key between two out of the index, after `f` was called with it.
    fn drop_space(&mut self, keys: (Key, Key), f: fn(&mut Self, &Slot) -> Result<()>) -> Result<()> {
        loop {
            let root = items::anchor(&self.heap.arena, self.head)?.root;
            let mut first = None;
            index::walk(&self.heap.arena, self.head, root, keys, StreamOrder::Up, &mut |slot| {
                first = Some(*slot);
                Ok(false)
            })?;
            let Some(slot) = first else { return Ok(()) };
            f(self, &slot)?;
            self.take_out(&slot.key())?;
        }
    }

    /// Takes a key out of the index in which a walk has found it. In a damaged one the way to it may lead elsewhere, and what goes on until no
    /// key is left would have no end.
    fn take_out(&mut self, key: &Key) -> Result<()> {
        let found = self.index().remove(key)?;
        found.map(drop).ok_or_else(|| StoreError::damaged("a stream's index that is not in order"))
    }

    /// Says what a group has delivered.
    pub(super) fn set_group(
        &mut self,
        group: &StreamGroup,
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> Result<()> {
        let fields = self.group_fields(group)?;
        fields.set_last_id(last_id);
        fields.entries_read = entries_read.unwrap_or(-1);
        Ok(())
    }

    /// Adds a consumer that the group has not.
    pub(super) fn create_consumer(&mut self, group: &StreamGroup, name: &[u8], seen_ms: i64) -> Result<()> {
        let space = items::new_space(self.heap, self.head)?;
        let fields = ConsumerFields { seen_ms, group: group.space.into(), ..ConsumerFields::default() };
        let number = items::number_of(self.hasher, group.space, name);
        let header = ItemHeader { number, word: space, ..ItemHeader::default() };
        let item = items::add_named(self.heap, self.head, header, ItemKind::Consumer, fields.as_bytes(), name)?;
        self.list(Slot::new(consumer_key(group.space, space), number), item)?;
        let fields = self.group_fields(group)?;
        fields.consumers = fields.consumers.saturating_add(1);
        Ok(())
    }

    /// Frees a consumer, and forgets what is pending for it.
    pub(super) fn delete_consumer(&mut self, group: &StreamGroup, consumer: &StreamConsumer) -> Result<()> {
        let mut pending = 0;
        loop {
            let root = items::anchor(&self.heap.arena, self.head)?.root;
            let mut first = None;
            index::walk(&self.heap.arena, self.head, root, whole(consumer.space), StreamOrder::Up, &mut |slot| {
                first = Some(*slot);
                Ok(false)
            })?;
            let Some(slot) = first else { break };
            self.index().remove(&Key::new(group.space, slot.key().id))?;
            self.take_out(&slot.key())?;
            pending += 1;
        }
        self.index().remove(&consumer_key(group.space, consumer.space))?;
        items::remove(self.heap, self.head, consumer.item)?;
        let fields = self.group_fields(group)?;
        fields.consumers = fields.consumers.saturating_sub(1);
        fields.pending = fields.pending.saturating_sub(pending);
        Ok(())
    }

    /// Notes when a consumer has asked for something.
    pub(super) fn touch_consumer(&mut self, consumer: &StreamConsumer, seen_ms: i64) -> Result<()> {
        self.consumer_fields(consumer.item)?.seen_ms = seen_ms;
        Ok(())
    }

    /// Notes when a consumer was given an entry.
    pub(super) fn note_activity(&mut self, consumer: &StreamConsumer, active_ms: i64) -> Result<()> {
        items::set_active_ms(self.heap, self.head, consumer.item, active_ms)
    }

    /// Has an entry be pending for a consumer.
    pub(super) fn set_pending(
        &mut self,
        group: &StreamGroup,
        consumer: &StreamConsumer,
        (id, time_ms, count): (StreamId, i64, u64),
    ) -> Result<()> {
        let key = Key::new(group.space, id);
        let root = items::anchor(&self.heap.arena, self.head)?.root;
        let before = index::get(&self.heap.arena, self.head, root, &key)?;
        let stays = before.is_some_and(|slot| slot.value == consumer.space);
        if !stays {
            self.index().set(Slot::new(Key::new(consumer.space, id), 0))?;
        }
        let set = self.index().set(Slot { time_ms, count, ..Slot::new(key, consumer.space) });
        if let Err(error) = set {
            if !stays {
                self.index().remove(&Key::new(consumer.space, id))?;
            }
            return Err(error);
        }
        if stays {
            return Ok(());
        }
        match before {
            Some(slot) => self.leave_consumer(group, slot.value, id)?,
            None => {
                let fields = self.group_fields(group)?;
                fields.pending = fields.pending.saturating_add(1);
            }
        }
        let fields = self.consumer_fields(consumer.item)?;
        fields.pending = fields.pending.saturating_add(1);
        Ok(())
    }

    /// An entry is not pending for a consumer any more.
    fn leave_consumer(&mut self, group: &StreamGroup, space: u32, id: StreamId) -> Result<()> {
        self.index().remove(&Key::new(space, id))?;
        let arena = &self.heap.arena;
        let root = items::anchor(arena, self.head)?.root;
        let slot = index::get(arena, self.head, root, &consumer_key(group.space, space))?;
        let slot = slot.ok_or_else(|| StoreError::damaged("a pending entry of a consumer that there is not"))?;
        let item = listed(arena, self.head, &slot, ItemKind::Consumer, space)?;
        let fields = self.consumer_fields(item)?;
        fields.pending = fields.pending.saturating_sub(1);
        Ok(())
    }

    /// An entry is not pending any more; returns whether it was.
    pub(super) fn remove_pending(&mut self, group: &StreamGroup, id: StreamId) -> Result<bool> {
        let Some(slot) = self.index().remove(&Key::new(group.space, id))? else { return Ok(false) };
        self.leave_consumer(group, slot.value, id)?;
        let fields = self.group_fields(group)?;
        fields.pending = fields.pending.saturating_sub(1);
        Ok(true)
    }
}
