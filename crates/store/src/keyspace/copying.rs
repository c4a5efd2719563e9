//! COPY: at once, or of a large value in steps.
//!
//! A copy that is made in steps changes nothing that a command could see until it is whole. Then it gets its key, at that one
//! instant, if its source is still what it was when the copy began; otherwise it is given up and begun anew. What can have
//! changed the source is told by `events`, where the copy watches it as a client does with WATCH; a split of its table is seen
//! in the table's head, a move of a string's bytes in the entry's reference to them. So the copy has the one value that the
//! source has when the command runs, never parts of two. There is one such copy at a time, so that the memory of half copies is
//! that of one.
//!
//! Tables of objects are copied in steps, which take memory as they go, and long strings, whose copy has all its memory before
//! the first step.
//!
//! What else a command would have to do to a large value in one long step is done in the same way, before the command runs: a
//! longer place for a string that outgrows its own, the two tables of a list that gets much shorter ([`Purpose`]). These change
//! their source itself, at the instant at which their command runs.
//!
//! An image that is cut meanwhile has the half copy in its list of what is to be freed (`heap::reclaim`), so that a restart
//! neither has it as a key nor loses its memory.

use std::ops::Range;

use quire_arena::Handle;

use crate::db::DbId;
use crate::error::{Result, StoreError};
use crate::events::Watcher;
use crate::heap::Heap;
use crate::heap::reclaim::ReclaimRoot;
use crate::keyspace::entries::{self, EntryLayout};
use crate::keyspace::entry::{Entry, RAW, TEXT};
use crate::keyspace::ops::copy_bytes;
use crate::keyspace::value_copy::{AT_ONCE, CopiedValue, CopySource, MadeValue, ValueCopy};
use crate::keyspace::{Keyspace, free_entry};
use crate::table::Hash;
use crate::table::copy::TableCopy;
use crate::table::reclaim;

/// What became of a request to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// It is done: whether a key was copied.
    Done(bool),
    /// [`Keyspace::copy_step`] goes on with it; to be asked again when that says [`CopyStep::Ended`].
    UnderWay,
    /// Another owner's copy is under way; to be asked again when that has ended.
    Busy,
}

/// What a step of a copy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// There is nothing to be done.
    Idle,
    /// Another step is wanted.
    More,
    /// The copy is whole, or has failed, or its source has changed: its owner is to ask again.
    Ended,
}

/// What is made of a value in steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Purpose {
    /// A copy, for another key.
    Copy,
    /// A place for a string of so many bytes.
    Growth(usize),
    /// A table of the elements of this range, and one of all others.
    Split(Range<u64>),
}

/// What has become of what a request asks for.
#[derive(Debug)]
pub(crate) enum Making {
    /// It is whole: the request runs with it now.
    Made(Box<MadeValue>),
    /// [`Keyspace::copy_step`] goes on with it.
    UnderWay,
    /// Another owner's is under way.
    Busy,
}

/// The copy that is under way, and figures.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    now: Option<Box<CopyInProgress>>,
    /// How often a copy became whole, failed, or went.
    events: u64,
    /// The longest step, in units of its budget.
    longest_step: usize,
}

impl Copies {
    /// Whether something is being made of a value in steps, or waits to be handed over.
    pub(crate) fn is_under_way(&self) -> bool {
        self.now.is_some()
    }
}

/// A copy that is under way.
#[derive(Debug)]
struct CopyInProgress {
    owner: u64,
    db: DbId,
    key: Box<[u8]>,
    /// The source's entry; null if there is no such key yet.
    entry: Handle,
    purpose: Purpose,
    value: ValueCopy,
    /// Nodes of the list of what is to be freed, in reserve, one for each of [`ValueCopy::remains`]: an image has the half copy in it.
    nodes: Vec<Handle>,
    failed: Option<StoreError>,
}

impl CopyInProgress {
    /// Whether it waits for its owner: it is whole, or has failed.
    fn waits(&self) -> bool {
        self.failed.is_some() || self.value.is_complete()
    }
}

/// Where a copy goes.
struct CopyTarget<'a> {
    db: DbId,
    index: usize,
    key: &'a [u8],
    hash: Hash,
    /// What the key holds now.
    old: Option<Entry>,
}

impl Keyspace {
    /// Copies a key with its time to live, at once. False if there is no such key, or the other name exists and `replace` is
    /// not set.
    ///
    /// # Errors
    /// As [`Keyspace::rename`].
    pub fn copy(&mut self, db: DbId, from: &[u8], to_db: DbId, to: &[u8], replace: bool) -> Result<bool> {
        let Some((source, place)) = self.copyable(db, from, to_db, to, replace)? else { return Ok(false) };
        let ops = self.ops(&source)?;
        let mut copied = None;
        if let Some(head) = (ops.table)(&self.heap.arena, &source)? {
            let mut table = TableCopy::new(head);
            if let Err(error) = (ops.copy_step)(&mut self.heap, &mut table, usize::MAX) {
                reclaim::destroy(&mut self.heap, table.target())?;
                return Err(error);
            }
            copied = Some(CopiedValue::Table(table.target()));
        }
        self.place_copy(&source, place, copied).map(|()| true)
    }

    /// As [`Keyspace::copy`], a large value in steps, which [`Keyspace::copy_step`] makes: the key is copied by the request
    /// that gets [`CopyProgress::Done`], as it is then. `owner` names the client; it must ask for the same copy again, or
    /// call [`Keyspace::cancel_copy`].
    ///
    /// # Errors
    /// As [`Keyspace::rename`]; nothing has changed then, and nothing is under way for this owner.
    pub fn copy_in_steps(
        &mut self,
        owner: u64,
        db: DbId,
        from: &[u8],
        to_db: DbId,
        to: &[u8],
        replace: bool,
    ) -> Result<CopyProgress> {
        let found = self.copyable(db, from, to_db, to, replace);
        let Ok(Some((source, place))) = found else {
            self.cancel_copy(owner)?;
            return found.map(|_| CopyProgress::Done(false));
        };
        let ops = self.ops(&source)?;
        let Some(large) = CopySource::of(&self.heap.arena, &source, ops)?.filter(|large| large.cost() > AT_ONCE) else {
            self.cancel_copy(owner)?;
            return self.copy(db, from, to_db, to, replace).map(CopyProgress::Done);
        };
        let begin = |heap: &mut Heap| ValueCopy::begin(heap, large, ops.copy_step);
        match self.make_in_steps(owner, (db, from), Some(&source), Purpose::Copy, begin)? {
            Making::UnderWay => Ok(CopyProgress::UnderWay),
            Making::Busy => Ok(CopyProgress::Busy),
            Making::Made(made) => {
                let copied = made.into_copy(&mut self.heap)?;
                self.place_copy(&source, place, Some(copied)).map(|()| CopyProgress::Done(true))
            }
        }
    }

    /// Has something made of a key's value in steps, for the request of `owner`, which asks for it again until it is made or this fails,
    /// or calls [`Keyspace::cancel_copy`]. `begin` begins it. It is for the value as it is when it is handed over: if that has
    /// changed, it is begun anew.
    pub(crate) fn make_in_steps(
        &mut self,
        owner: u64,
        (db, key): (DbId, &[u8]),
        entry: Option<&Entry>,
        purpose: Purpose,
        begin: impl FnOnce(&mut Heap) -> Result<ValueCopy>,
    ) -> Result<Making> {
        if self.copy_owner() == Some(owner) {
            if self.is_wanted(db, key, &purpose) && self.is_source_unchanged()? {
                return self.go_on();
            }
            self.cancel_copy(owner)?;
        }
        if self.copies.now.is_some() {
            return Ok(Making::Busy);
        }
        let value = begin(&mut self.heap)?;
        let nodes = match self.reserve_nodes(value.remains().len()) {
            Ok(nodes) => nodes,
            Err(error) => {
                value
                    .remains()
                    .into_iter()
                    .try_for_each(|(items, table)| reclaim::retire(&mut self.heap, table, items))?;
                return Err(error);
            }
        };
        self.events.watchers.add(Watcher::Copy, db, key, false);
        let (key, entry) = (key.into(), entry.map_or(Handle::NULL, |entry| entry.handle));
        let copying = CopyInProgress { owner, db, key, entry, purpose, value, nodes, failed: None };
        self.copies.now = Some(Box::new(copying));
        Ok(Making::UnderWay)
    }

    fn reserve_nodes(&mut self, count: usize) -> Result<Vec<Handle>> {
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            match self.heap.reserve_node() {
                Ok(node) => nodes.push(node),
                Err(error) => {
                    nodes.into_iter().try_for_each(|node| self.heap.arena.free(node))?;
                    return Err(error);
                }
            }
        }
        Ok(nodes)
    }

    /// The owner asks again for what is under way, whose source hasn't changed.
    fn go_on(&mut self) -> Result<Making> {
        let Some(copying) = &mut self.copies.now else { return Ok(Making::Busy) };
        if let Some(error) = copying.failed.take() {
            self.give_up_copy()?;
            return Err(error);
        }
        if !copying.value.is_complete() {
            return Ok(Making::UnderWay);
        }
        let Some(copying) = self.end_copy() else { return Ok(Making::Busy) };
        let CopyInProgress { value, nodes, .. } = *copying;
        Ok(Making::Made(Box::new(MadeValue { value, nodes })))
    }

    /// Copies on for about so many items and buckets, or a string for twice as many KiB.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; nothing is under way then. What the copy itself fails with is told to its owner.
    pub fn copy_step(&mut self, budget: usize) -> Result<CopyStep> {
        if !self.has_copy_step() {
            return Ok(CopyStep::Idle);
        }
        if !self.is_source_unchanged()? {
            self.give_up_copy()?;
            return Ok(CopyStep::Ended);
        }
        let Some(copying) = &mut self.copies.now else { return Ok(CopyStep::Idle) };
        match copying.value.step(&mut self.heap, budget) {
            Ok(spent) => self.copies.longest_step = self.copies.longest_step.max(spent),
            Err(error) => copying.failed = Some(error),
        }
        if !copying.waits() {
            return Ok(CopyStep::More);
        }
        self.copies.events += 1;
        Ok(CopyStep::Ended)
    }

    /// Gives up the copy that is under way for this owner, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn cancel_copy(&mut self, owner: u64) -> Result<()> {
        if self.copy_owner() == Some(owner) { self.give_up_copy() } else { Ok(()) }
    }

    /// Whose copy is under way.
    #[inline]
    pub fn copy_owner(&self) -> Option<u64> {
        self.copies.now.as_ref().map(|copying| copying.owner)
    }

    /// The key of which a copy is under way: it should not be changed meanwhile.
    pub fn copy_source(&self) -> Option<&[u8]> {
        self.copies.now.as_ref().map(|copying| &*copying.key)
    }

    /// Bytes that the copy takes which is under way for this owner.
    pub fn copied_bytes(&self, owner: u64) -> u64 {
        self.copies.now.as_ref().filter(|copying| copying.owner == owner).map_or(0, |copying| copying.value.bytes())
    }

    /// Whether [`Keyspace::copy_step`] has something to do.
    #[inline]
    pub fn has_copy_step(&self) -> bool {
        self.copies.now.as_ref().is_some_and(|copying| !copying.waits())
    }

    /// Changes whenever a request that waits for a copy, its own or another one, may get on.
    #[inline]
    pub fn copy_events(&self) -> u64 {
        self.copies.events
    }

    /// The longest step of a copy since the store was opened, in units of its budget.
    pub fn longest_copy_step(&self) -> usize {
        self.copies.longest_step
    }

    /// The source of a copy and its place; `None` if nothing is to be copied.
    fn copyable<'a>(
        &mut self,
        db: DbId,
        from: &[u8],
        to_db: DbId,
        to: &'a [u8],
        replace: bool,
    ) -> Result<Option<(Entry, CopyTarget<'a>)>> {
        let index = self.db_index(to_db)?;
        let Some(source) = self.find(db, from, self.hash(from))? else { return Ok(None) };
        let hash = self.hash(to);
        let old = self.find(to_db, to, hash)?;
        if (old.is_some() && !replace) || old.is_some_and(|old| old.handle == source.handle) {
            return Ok(None);
        }
        Ok(Some((source, CopyTarget { db: to_db, index, key: to, hash, old })))
    }

    /// Gives the copy its key. `copied` is what was copied of the source's value beside its entry.
    fn place_copy(&mut self, source: &Entry, place: CopyTarget<'_>, copied: Option<CopiedValue>) -> Result<()> {
        let new = self.entry_of_copy(source, &place, copied)?;
        if let Err(error) = entries::link(self, place.index, &new, place.hash) {
            free_entry(&mut self.heap, new, self.values.ops)?;
            return Err(error);
        }
        match place.old {
            Some(old) => self.delete_entry(place.db, old)?,
            None => self.events.note_made(place.db, place.key),
        }
        self.changed(place.db, place.key, true, 1);
        Ok(())
    }

    /// The entry of a copy, which is in no table yet. What was copied is freed if this fails.
    fn entry_of_copy(&mut self, source: &Entry, place: &CopyTarget<'_>, copied: Option<CopiedValue>) -> Result<Entry> {
        let new = match self.allocate_copy(source, place, copied) {
            Ok(new) => new,
            Err(error) => {
                copied.map_or(Ok(()), |copied| copied.retire(&mut self.heap))?;
                return Err(error);
            }
        };
        let filled = match copied {
            // The value may have more behind the table's head.
            Some(CopiedValue::Table(table)) => copy_bytes(&mut self.heap.arena, source, &new)
                .and_then(|()| new.set_table(&mut self.heap.arena, &table)),
            Some(CopiedValue::Object(_)) => Ok(()),
            None => copy_bytes(&mut self.heap.arena, source, &new),
        };
        if let Err(error) = filled.and_then(|()| entries::mark(self, &new, source.header.flags & (RAW | TEXT))) {
            // The object in which the value's bytes lie goes with its entry.
            entries::discard(self, &new)?;
            if let Some(CopiedValue::Table(table)) = copied {
                reclaim::retire_objects(&mut self.heap, table)?;
            }
            return Err(error);
        }
        Ok(new)
    }

    fn allocate_copy(&mut self, source: &Entry, place: &CopyTarget<'_>, copied: Option<CopiedValue>) -> Result<Entry> {
        let value_len = source.header.value_len as usize;
        let layout = EntryLayout::new(source.encoding()?, value_len, source.expiry(&self.heap.arena)?);
        match copied {
            Some(CopiedValue::Object(object)) => entries::allocate_around(self, place.key, place.hash, layout, object),
            Some(CopiedValue::Table(_)) | None => entries::allocate(self, place.key, place.hash, layout),
        }
    }

    fn is_wanted(&self, db: DbId, key: &[u8], purpose: &Purpose) -> bool {
        let now = self.copies.now.as_ref();
        now.is_some_and(|copying| copying.db == db && *copying.key == *key && copying.purpose == *purpose)
    }

    /// Whether the source of the copy that is under way is what it was. One whose time has come is deleted by this, unless
    /// such keys are held.
    fn is_source_unchanged(&mut self) -> Result<bool> {
        let Some(copying) = self.copies.now.take() else { return Ok(false) };
        let found = self.look_up(copying.db, &copying.key);
        let unchanged = !self.events.watchers.is_copy_touched()
            && match found {
                Ok(Some(entry)) if entry.handle == copying.entry => {
                    // A failed insert splits buckets, which is no change of the value.
                    let now = self.ops(&entry).and_then(|ops| CopySource::of(&self.heap.arena, &entry, ops));
                    now.is_ok_and(|now| now == copying.value.source())
                }
                Ok(None) => copying.entry.is_null(),
                Ok(Some(_)) | Err(_) => false,
            };
        self.copies.now = Some(copying);
        Ok(unchanged)
    }

    /// Nothing is under way any more.
    fn end_copy(&mut self) -> Option<Box<CopyInProgress>> {
        self.events.watchers.remove_all(Watcher::Copy);
        self.copies.events += 1;
        self.copies.now.take()
    }

    fn give_up_copy(&mut self) -> Result<()> {
        let Some(copying) = self.end_copy() else { return Ok(()) };
        let CopyInProgress { value, nodes, .. } = *copying;
        MadeValue { value, nodes }.retire(&mut self.heap)
    }

    /// Has an image that is cut now find the half copy among what is to be freed. Returns the list as it was, for
    /// [`Keyspace::unlist_copy`] to be called right after the cut.
    pub(crate) fn list_copy(&mut self) -> Result<Option<ReclaimRoot>> {
        let Some(copying) = &self.copies.now else { return Ok(None) };
        let mut before = None;
        for (node, (items, table)) in copying.nodes.iter().zip(copying.value.remains()) {
            let list = self.heap.list_for_image(*node, items as u32, zerocopy::transmute!(table))?;
            before.get_or_insert(list);
        }
        Ok(before)
    }

    /// Ends what [`Keyspace::list_copy`] began.
    pub(crate) fn unlist_copy(&mut self, listed: Option<ReclaimRoot>) -> Result<()> {
        listed.map_or(Ok(()), |before| self.heap.set_list(before))
    }
}
