//! Looking at a stream: its entries, its groups and what is pending, whatever its encoding.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use quire_arena::{Arena, Handle};

use crate::db::DbId;
use crate::encoding::{StreamEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::entry::Entry;
use crate::keyspace::{Keyspace, MemberHasher};
use crate::table::TableHead;

use super::block::{self, Span, StreamFields};
use super::groups::{self, PendingEntry, StreamConsumer, StreamGroup, consumer_key, consumer_keys, whole};
use super::id::StreamId;
use super::index::{self, StreamOrder};
use super::items::{self, Anchor, ItemKind};
use super::nodes::{BLOCKS, GROUPS, Key};
use super::packed::{self, PackedHeader};
use super::parts::{self, StreamCut, StreamTrim, block_slot};

/// A stream's value that was read.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamValue<'a> {
    /// What it says of itself, and the block of its entries.
    Packed(PackedHeader, &'a [u8]),
    Tree(TableHead, Anchor),
}

impl<'a> StreamValue<'a> {
    /// Reads a value; its anchor is looked up unless it is given.
    pub(super) fn read(arena: &'a Arena, entry: &Entry, anchor: Option<Handle>) -> Result<StreamValue<'a>> {
        Ok(match entry.encoding()?.of_stream()? {
            StreamEncoding::Packed => {
                let (header, block) = PackedHeader::split(entry.value(arena)?)?;
                StreamValue::Packed(header, block)
            }
            StreamEncoding::Tree => {
                let head = entry.table(arena)?;
                let anchor = anchor.map_or_else(|| items::anchor_object(arena, &head), Ok)?;
                StreamValue::Tree(head, *arena.get::<Anchor>(anchor)?)
            }
        })
    }

    /// Calls `f` with the entries between two IDs, both included, until it returns false.
    pub(super) fn range(
        &self,
        arena: &'a Arena,
        (from, to): (StreamId, StreamId),
        order: StreamOrder,
        f: &mut dyn FnMut(StreamId, StreamFields<'a>) -> bool,
    ) -> Result<()> {
        if from > to {
            return Ok(());
        }
        match self {
            StreamValue::Packed(_, []) => Ok(()),
            StreamValue::Packed(_, block) => walk_block(block, (from, to), order, f).map(drop),
            StreamValue::Tree(head, anchor) => {
                let first = match block_slot(arena, head, anchor.root, from)? {
                    Some(slot) => slot.key(),
                    None => Key::new(BLOCKS, from),
                };
                index::walk(arena, head, anchor.root, (first, Key::new(BLOCKS, to)), order, &mut |slot| {
                    let item = items::find(arena, head, slot.value, ItemKind::Block)?;
                    Ok(walk_block(items::block(arena, item)?, (from, to), order, f)?.is_continue())
                })
            }
        }
    }
}

/// Calls `f` with the entries of a block between two IDs; tells whether those of the next one are wanted.
fn walk_block<'a>(
    bytes: &'a [u8],
    (from, to): (StreamId, StreamId),
    order: StreamOrder,
    f: &mut dyn FnMut(StreamId, StreamFields<'a>) -> bool,
) -> Result<ControlFlow<()>> {
    let mut kept: Vec<Span<'a>> = Vec::new();
    for span in block::entries(bytes)? {
        let span = span?;
        if span.id < from {
            continue;
        }
        if span.id > to {
            break;
        }
        if order == StreamOrder::Down {
            kept.push(span);
        } else if !f(span.id, span.fields) {
            return Ok(ControlFlow::Break(()));
        }
    }
    for span in kept.into_iter().rev() {
        if !f(span.id, span.fields) {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A stream. One whose key doesn't exist has no entries.
#[derive(Clone, Copy, Debug)]
pub struct StreamView<'a> {
    arena: &'a Arena,
    hasher: MemberHasher,
    body: Option<StreamValue<'a>>,
}

/// What a stream says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    /// Entries.
    pub entries: u64,
    /// Entries that were added, whatever became of them.
    pub added: u64,
    /// The highest ID that an entry had.
    pub last_id: StreamId,
    /// The highest ID of an entry that was deleted.
    pub max_deleted_id: StreamId,
    /// The first entry's ID; 0-0 if there is none.
    pub first_id: StreamId,
    /// Groups.
    pub groups: u64,
    /// Blocks that hold the entries.
    pub blocks: u64,
}

impl StreamSummary {
    /// How many entries, of those that were ever added, come up to an ID; `None` if that can't be told.
    pub fn entries_up_to(&self, id: StreamId) -> Option<i64> {
        let added = self.added as i64;
        if self.added == 0 {
            return Some(0);
        }
        if self.entries == 0 && id <= self.last_id {
            return Some(added);
        }
        match id.cmp(&self.last_id) {
            Ordering::Equal => return Some(added),
            Ordering::Greater => return None,
            Ordering::Less => {}
        }
        // Nothing is missing between the first entry and the last one.
        if self.max_deleted_id.is_zero() || self.max_deleted_id < self.first_id {
            let before = added.wrapping_sub(self.entries as i64);
            match id.cmp(&self.first_id) {
                Ordering::Less => return Some(before),
                Ordering::Equal => return Some(before.wrapping_add(1)),
                Ordering::Greater => {}
            }
        }
        None
    }
}

/// Looks a stream up.
///
/// # Errors
/// As [`super::open_mut`].
#[inline]
pub fn view<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<StreamView<'a>> {
    let entry = keyspace.open(db, key, ValueType::Stream)?.map(|value| *value.entry());
    StreamView::of(keyspace.arena(), keyspace.hasher(), entry, None)
}

impl<'a> StreamView<'a> {
    /// One that was looked up, and has not been changed since.
    pub(super) fn of(
        arena: &'a Arena,
        hasher: MemberHasher,
        entry: Option<Entry>,
        anchor: Option<Handle>,
    ) -> Result<StreamView<'a>> {
        let body = entry.map(|entry| StreamValue::read(arena, &entry, anchor)).transpose()?;
        Ok(StreamView { arena, hasher, body })
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.body.is_some()
    }

    /// Entries of the stream.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], as all operations here.
    pub fn len(&self) -> Result<u64> {
        match &self.body {
            None => Ok(0),
            Some(StreamValue::Packed(_, block)) => packed::count(block),
            Some(StreamValue::Tree(_, anchor)) => Ok(anchor.entries),
        }
    }

    /// Whether it has no entries.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether there are entries that a cut takes out, unless they are to go with their block only.
    pub(super) fn has_more_than(&self, cut: StreamCut) -> Result<bool> {
        Ok(match cut {
            StreamCut::MaxLen(most) => self.len()? > most,
            StreamCut::MinId(least) => !self.is_empty()? && self.summary()?.first_id < least,
        })
    }

    /// Whether a trim may take entries out. That it does not is certain, and costs less to find out than to look the stream up for the trim.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn may_trim(&self, trim: &StreamTrim) -> Result<bool> {
        if !self.has_more_than(trim.cut)? {
            return Ok(false);
        }
        match &self.body {
            Some(StreamValue::Tree(head, anchor)) if trim.whole_blocks => {
                parts::drops_first(self.arena, head, anchor, trim)
            }
            Some(StreamValue::Tree(..) | StreamValue::Packed(..)) | None => Ok(true),
        }
    }

    /// The highest ID that an entry had.
    pub fn last_id(&self) -> StreamId {
        match &self.body {
            None => StreamId::MIN,
            Some(StreamValue::Packed(header, _)) => header.last_id,
            Some(StreamValue::Tree(_, anchor)) => anchor.last_id(),
        }
    }

    /// What the stream says of itself.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn summary(&self) -> Result<StreamSummary> {
        let mut summary = match &self.body {
            None => StreamSummary::default(),
            Some(StreamValue::Packed(header, block)) => StreamSummary {
                entries: packed::count(block)?,
                added: header.added,
                last_id: header.last_id,
                max_deleted_id: header.max_deleted_id,
                blocks: u64::from(!block.is_empty()),
                ..StreamSummary::default()
            },
            Some(StreamValue::Tree(_, anchor)) => StreamSummary {
                entries: anchor.entries,
                added: anchor.added,
                last_id: anchor.last_id(),
                max_deleted_id: anchor.max_deleted_id(),
                groups: anchor.groups.into(),
                blocks: anchor.blocks.into(),
                ..StreamSummary::default()
            },
        };
        self.range((StreamId::MIN, StreamId::MAX), StreamOrder::Up, |id, _| {
            summary.first_id = id;
            false
        })?;
        Ok(summary)
    }

    /// Calls `f` with the entries between two IDs, both included, until it returns false.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn range(
        &self,
        ids: (StreamId, StreamId),
        order: StreamOrder,
        mut f: impl FnMut(StreamId, StreamFields<'a>) -> bool,
    ) -> Result<()> {
        self.body.map_or(Ok(()), |body| body.range(self.arena, ids, order, &mut f))
    }

    /// The fields of an entry.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn entry(&self, id: StreamId) -> Result<Option<StreamFields<'a>>> {
        let mut found = None;
        self.range((id, id), StreamOrder::Up, |_, fields| {
            found = Some(fields);
            false
        })?;
        Ok(found)
    }

    /// What groups are in; a packed stream has none.
    fn tree(&self) -> Option<(&TableHead, &Anchor)> {
        match &self.body {
            Some(StreamValue::Tree(head, anchor)) => Some((head, anchor)),
            Some(StreamValue::Packed(..)) | None => None,
        }
    }

    /// The group of this name.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn group(&self, name: &[u8]) -> Result<Option<StreamGroup>> {
        let Some((head, _)) = self.tree() else { return Ok(None) };
        let number = items::number_of(&self.hasher, 0, name);
        let found = items::look_up(self.arena, head, number, ItemKind::Group, |item| {
            Ok(items::name(self.arena, item)? == name)
        })?;
        found.map(|item| groups::read_group(self.arena, item)).transpose()
    }

    /// All groups, in the order of their names.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn groups(&self) -> Result<Vec<StreamGroup>> {
        let mut all = Vec::new();
        let Some((head, anchor)) = self.tree() else { return Ok(all) };
        index::walk(self.arena, head, anchor.root, whole(GROUPS), StreamOrder::Up, &mut |slot| {
            let space = slot.key().id.ms as u32;
            let item = groups::listed(self.arena, head, slot, ItemKind::Group, space)?;
            all.push(groups::read_group(self.arena, item)?);
            Ok(true)
        })?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The consumer of this name.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn consumer(&self, group: &StreamGroup, name: &[u8]) -> Result<Option<StreamConsumer>> {
        let Some((head, _)) = self.tree() else { return Ok(None) };
        let number = items::number_of(&self.hasher, group.space, name);
        let found = items::look_up(self.arena, head, number, ItemKind::Consumer, |item| {
            let fields: items::ConsumerFields = items::fields(self.arena, item)?;
            Ok(fields.group == u64::from(group.space) && items::name(self.arena, item)? == name)
        })?;
        found.map(|item| groups::read_consumer(self.arena, item)).transpose()
    }

    /// All consumers of a group, in the order of their names.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn consumers(&self, group: &StreamGroup) -> Result<Vec<StreamConsumer>> {
        let mut all = Vec::new();
        let Some((head, anchor)) = self.tree() else { return Ok(all) };
        index::walk(self.arena, head, anchor.root, consumer_keys(group.space), StreamOrder::Up, &mut |slot| {
            let space = slot.key().id.seq as u32;
            let item = groups::listed(self.arena, head, slot, ItemKind::Consumer, space)?;
            all.push(groups::read_consumer(self.arena, item)?);
            Ok(true)
        })?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The consumer for which an entry is pending.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn consumer_of(&self, group: &StreamGroup, entry: &PendingEntry) -> Result<StreamConsumer> {
        let damaged = || StoreError::damaged("a pending entry of a consumer that there is not");
        let (head, anchor) = self.tree().ok_or_else(damaged)?;
        let slot = index::get(self.arena, head, anchor.root, &consumer_key(group.space, entry.consumer))?;
        let slot = slot.ok_or_else(damaged)?;
        groups::read_consumer(self.arena, groups::listed(self.arena, head, &slot, ItemKind::Consumer, entry.consumer)?)
    }

    /// Calls `f` with what is pending of a group between two IDs, both included, until it returns false.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn pending(
        &self,
        group: &StreamGroup,
        (from, to): (StreamId, StreamId),
        order: StreamOrder,
        mut f: impl FnMut(PendingEntry) -> bool,
    ) -> Result<()> {
        let Some((head, anchor)) = self.tree() else { return Ok(()) };
        let keys = (Key::new(group.space, from), Key::new(group.space, to));
        index::walk(self.arena, head, anchor.root, keys, order, &mut |slot| Ok(f(PendingEntry::of(slot))))
    }

    /// The same of one consumer, from the lowest ID on.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn pending_of(
        &self,
        group: &StreamGroup,
        consumer: &StreamConsumer,
        (from, to): (StreamId, StreamId),
        mut f: impl FnMut(PendingEntry) -> bool,
    ) -> Result<()> {
        let Some((head, anchor)) = self.tree() else { return Ok(()) };
        let keys = (Key::new(consumer.space, from), Key::new(consumer.space, to));
        index::walk(self.arena, head, anchor.root, keys, StreamOrder::Up, &mut |slot| {
            let entry = self.pending_entry(group, slot.key().id)?;
            Ok(f(entry.ok_or_else(|| StoreError::damaged("a pending entry that its group has not"))?))
        })
    }

    /// What is pending of a group with this ID.
    ///
    /// # Errors
    /// As [`StreamView::len`].
    pub fn pending_entry(&self, group: &StreamGroup, id: StreamId) -> Result<Option<PendingEntry>> {
        let Some((head, anchor)) = self.tree() else { return Ok(None) };
        let slot = index::get(self.arena, head, anchor.root, &Key::new(group.space, id))?;
        Ok(slot.map(|slot| PendingEntry::of(&slot)))
    }
}
