//! Whether a large stream is what it says: every part where it is listed, as many as it counts, entries in order, and what is pending for a
//! consumer pending for its group.

use std::collections::HashMap;

use quire_arena::Arena;

use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::table::TableHead;
use crate::table::check::check_items;

use super::block::{self, BlockHeader};
use super::groups;
use super::id::StreamId;
use super::index;
use super::items::{self, Anchor, ItemKind};
use super::nodes::{BLOCKS, CONSUMERS, FIRST_PENDING, GROUPS, Key, Slot};

fn damaged() -> StoreError {
    StoreError::damaged("a stream that is not what it says")
}

/// What was found so far.
struct Passed<'a> {
    arena: &'a Arena,
    head: &'a TableHead,
    anchor: Anchor,
    blocks: u64,
    last_block: u32,
    entries: u64,
    last_id: Option<StreamId>,
    /// Consumers and pending entries that each group has and has yet to show.
    groups: HashMap<u32, (u64, u64)>,
    /// The group of each consumer, and pending entries that it has yet to show.
    consumers: HashMap<u32, (u32, u64)>,
}

/// Checks a large stream; takes as long as it is large.
pub(super) fn check(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = keyspace.arena();
    let head = entry.table(arena)?;
    check_items(arena, &head, |item| Ok(items::hash_of(*arena.get::<u32>(item)?)))?;
    let anchor = items::anchor(arena, &head)?;
    let (groups, consumers) = (HashMap::new(), HashMap::new());
    let mut passed =
        Passed { arena, head: &head, anchor, blocks: 0, last_block: 0, entries: 0, last_id: None, groups, consumers };
    let nodes = index::check(arena, &head, anchor.root, &mut |slot| passed.pass(slot))?;
    passed.settle(nodes)
}

impl Passed<'_> {
    fn pass(&mut self, slot: &Slot) -> Result<()> {
        let Key { space, id } = slot.key();
        match space {
            BLOCKS => self.pass_block(slot, id),
            GROUPS => self.pass_group(slot, id),
            CONSUMERS => self.pass_consumer(slot, id),
            FIRST_PENDING.. => self.pass_pending(slot, space, id),
            _ => Err(damaged()),
        }
    }

    fn pass_block(&mut self, slot: &Slot, first: StreamId) -> Result<()> {
        let item = items::find(self.arena, self.head, slot.value, ItemKind::Block)?;
        let bytes = items::block(self.arena, item)?;
        let fits = items::HEADER_BYTES + bytes.len() <= self.arena.usable_size(item)?;
        let (count, last) = block::check(bytes, self.last_id)?;
        if !fits || count == 0 || BlockHeader::read(bytes)?.first != first || self.last_id >= Some(first) {
            return Err(damaged());
        }
        (self.blocks, self.last_block, self.last_id) = (self.blocks + 1, slot.value, last);
        self.entries += count;
        Ok(())
    }

    fn pass_group(&mut self, slot: &Slot, id: StreamId) -> Result<()> {
        let space =
            u32::try_from(id.ms).ok().filter(|&space| space >= FIRST_PENDING && id.seq == 0).ok_or_else(damaged)?;
        let item = groups::listed(self.arena, self.head, slot, ItemKind::Group, space)?;
        let group = groups::read_group(self.arena, item)?;
        self.groups.insert(space, (group.consumers, group.pending));
        Ok(())
    }

    fn pass_consumer(&mut self, slot: &Slot, id: StreamId) -> Result<()> {
        let spaces = u32::try_from(id.ms).ok().zip(u32::try_from(id.seq).ok());
        let (group, space) = spaces.filter(|&(_, space)| space >= FIRST_PENDING).ok_or_else(damaged)?;
        let item = groups::listed(self.arena, self.head, slot, ItemKind::Consumer, space)?;
        let fields: items::ConsumerFields = items::fields(self.arena, item)?;
        let consumers = &mut self.groups.get_mut(&group).ok_or_else(damaged)?.0;
        *consumers = consumers.checked_sub(1).ok_or_else(damaged)?;
        let is_new = self.consumers.insert(space, (group, fields.pending)).is_none();
        if is_new && !self.groups.contains_key(&space) && fields.group == u64::from(group) {
            // Its name and its time are read, too, which have to lie within its object.
            return groups::read_consumer(self.arena, item).map(drop);
        }
        Err(damaged())
    }

    fn pass_pending(&mut self, slot: &Slot, space: u32, id: StreamId) -> Result<()> {
        let (arena, head, root) = (self.arena, self.head, self.anchor.root);
        if let Some((_, pending)) = self.groups.get_mut(&space) {
            *pending = pending.checked_sub(1).ok_or_else(damaged)?;
            let own = self.consumers.get(&slot.value).is_some_and(|&(group, _)| group == space);
            let listed = index::get(arena, head, root, &Key::new(slot.value, id))?.is_some();
            return if own && listed { Ok(()) } else { Err(damaged()) };
        }
        let (group, pending) = self.consumers.get_mut(&space).ok_or_else(damaged)?;
        *pending = pending.checked_sub(1).ok_or_else(damaged)?;
        let listed = index::get(arena, head, root, &Key::new(*group, id))?;
        if listed.is_some_and(|slot| slot.value == space) { Ok(()) } else { Err(damaged()) }
    }

    fn settle(&self, nodes: u64) -> Result<()> {
        let Anchor { entries, last_block, groups, blocks, .. } = self.anchor;
        let parts = 1 + nodes + self.blocks + self.groups.len() as u64 + self.consumers.len() as u64;
        let shown =
            self.groups.values().all(|&left| left == (0, 0)) && self.consumers.values().all(|&(_, left)| left == 0);
        let counted = parts == self.head.count && self.entries == entries && self.groups.len() == groups as usize;
        let blocks_fit = self.blocks == u64::from(blocks) && self.last_block == last_block;
        let last_fits = self.last_id <= Some(self.anchor.last_id());
        if shown && counted && blocks_fit && last_fits { Ok(()) } else { Err(damaged()) }
    }
}
