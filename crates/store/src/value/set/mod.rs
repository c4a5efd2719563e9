//! Sets of different members. Integers only: sorted in their entry; few short members: packed into their entry; otherwise a
//! table of members.
//!
//! Relies on `ints`, `packed` and `members` for the three layouts; a set changes to a later one when it outgrows the limits,
//! and never back, as in Redis. A set without members doesn't exist.

mod algebra;
mod index;
mod ints;
pub(super) mod limits;
mod members;
mod packed;
mod store;
mod view;
mod walks;

use std::collections::HashSet;

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{Encoding, SetEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entries::check_len;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, copy_table_step, no_copy_step, no_memory, no_table, table_memory, table_of};
use crate::keyspace::value::ValueMut;
use crate::limits::PACKED_MAX_BYTES;
use crate::numbers::parse_i64;
use crate::table::TableHead;
use crate::table::check::check_items;

use ints::Ints;
use view::{SetValue, view_to_change};

pub(in crate::value) use index::Lookup as SetLookup;

pub use algebra::{SetOperation, combine};
pub use limits::{MAX_INTS, MAX_PACKED_LEN, MAX_PACKED_MEMBERS};
pub use store::{MemberBuffer, store_combination};
pub use view::{SetMember, SetView, view, views};
pub use walks::{Popped, pop, random_members};

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 2;

/// What the keyspace asks of sets of integers.
pub(crate) static INT_OPS: Ops = Ops {
    name: |_, _| Ok("intset"),
    check: check_ints,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of packed sets.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("listpack"),
    check: check_packed,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of sets that are tables.
pub(crate) static TABLE_OPS: Ops = Ops {
    name: |_, _| Ok("hashtable"),
    check: check_table,
    table: table_of,
    copy_step: copy_table_step,
    has_movable_items: true,
    digest,
    memory: table_memory,
};

fn check_ints(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let set = Ints::read(entry.value(keyspace.arena())?)?;
    match set.len() > 0 && (1..set.len()).all(|index| set.get(index - 1) < set.get(index)) {
        true => Ok(()),
        false => Err(StoreError::damaged("a set of integers that are not in order")),
    }
}

fn check_packed(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let bytes = entry.value(keyspace.arena())?;
    let (mut end, mut seen) = (packed::COUNT_BYTES, HashSet::new());
    for span in packed::spans(bytes)? {
        let member = span?.member;
        end = member.end;
        if !seen.insert(&bytes[member]) {
            return Err(StoreError::damaged("a packed set has a member twice"));
        }
    }
    match end == bytes.len() && !seen.is_empty() {
        true => Ok(()),
        false => Err(StoreError::damaged("a packed set that is longer than its members")),
    }
}

fn check_table(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = keyspace.arena();
    check_items(arena, &entry.table(arena)?, |item| Ok(keyspace.hash(members::read(arena, item)?)))
}

/// Toggles one digest per member, so that their order does not matter.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    SetValue::read(arena, entry)?.for_each(arena, |member| {
        digest.toggle(member.text(&mut itoa::Buffer::new()));
        true
    })
}

/// A set to be changed, or made by the first member that is added. The key goes with the last member.
#[derive(Debug)]
pub struct SetMut<'a> {
    value: ValueMut<'a>,
}

/// Looks a set up to change it.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that write
/// also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8]) -> Result<SetMut<'a>> {
    Ok(SetMut { value: keyspace.open_mut(db, key, ValueType::Set)? })
}

/// Moves a member from one set to another; false if the first one hasn't got it.
///
/// # Errors
/// As [`open_mut`].
pub fn move_member(keyspace: &mut Keyspace, db: DbId, from: &[u8], to: &[u8], member: &[u8]) -> Result<bool> {
    let source = view_to_change(keyspace, db, from)?;
    if !source.exists() {
        return Ok(false);
    }
    let found = source.contains(&SetMember::Bytes(member))?;
    // A target of another type is refused even if there is nothing to move.
    view_to_change(keyspace, db, to)?;
    if !found || from == to {
        return Ok(found);
    }
    // Added first: if there is no memory for that, nothing has changed.
    open_mut(keyspace, db, to)?.add(member)?;
    open_mut(keyspace, db, from)?.remove(member)?;
    Ok(true)
}

impl SetMut<'_> {
    /// Says that it is made aside, under a [`Keyspace::aside_key`]: what becomes of it is no change.
    pub fn made_aside(mut self) -> Self {
        self.value.set_aside();
        self
    }

    /// Adds a member; returns whether it is new.
    ///
    /// # Errors
    /// As [`open_mut`]; the set holds what it held then.
    pub fn add(&mut self, member: &[u8]) -> Result<bool> {
        check_len(member.len())?;
        let added = self.insert(member)?;
        if added {
            self.value.count_member();
        }
        Ok(added)
    }

    fn encoding(&self) -> Result<Option<SetEncoding>> {
        self.value.encoding()?.map(Encoding::of_set).transpose()
    }

    fn insert(&mut self, member: &[u8]) -> Result<bool> {
        match self.encoding()? {
            None => self.create(member).map(|()| true),
            Some(SetEncoding::Ints) => self.add_to_ints(member),
            Some(SetEncoding::Packed) => self.add_to_packed(member),
            Some(SetEncoding::Table) => self.add_to_table(member),
        }
    }

    /// Removes a member; returns whether it was there.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn remove(&mut self, member: &[u8]) -> Result<bool> {
        match self.encoding()? {
            None => Ok(false),
            Some(SetEncoding::Ints) => {
                let Some(number) = parse_i64(member) else { return Ok(false) };
                let found = Ints::read(self.value.bytes()?)?.find(number);
                found.map_or(Ok(false), |index| self.remove_from_ints(index).map(|()| true))
            }
            Some(SetEncoding::Packed) => match packed::find(self.value.bytes()?, member)? {
                Some(span) => self.remove_from_packed(&span).map(|()| true),
                None => Ok(false),
            },
            Some(SetEncoding::Table) => {
                let head = self.value.table()?;
                let hash = self.value.hash_of(member);
                match members::find(self.value.arena(), &head, hash, member)? {
                    Some(item) => self.remove_from_table(head, item).map(|()| true),
                    None => Ok(false),
                }
            }
        }
    }

    /// Whether a set of so many members, one of which is so long, may be packed into so many bytes.
    fn packs(&self, count: usize, longest: usize, bytes: usize) -> bool {
        count <= self.value.limit(&MAX_PACKED_MEMBERS)
            && longest <= self.value.limit(&MAX_PACKED_LEN)
            && bytes <= PACKED_MAX_BYTES
    }

    fn create(&mut self, member: &[u8]) -> Result<()> {
        let int_fits = self.value.limit(&MAX_INTS) > 0;
        if let Some(number) = parse_i64(member).filter(|_| int_fits) {
            let width = ints::width_of(number);
            self.value.set_len(Encoding::IntSet, ints::size(width, 1), 0)?;
            let bytes = self.value.bytes_mut()?;
            ints::begin(bytes, width);
            ints::put(bytes, width, 0, number);
            return Ok(());
        }
        if self.packs(1, member.len(), packed::size(member)) {
            self.value.set_len(Encoding::PackedSet, packed::COUNT_BYTES + packed::size(member), 0)?;
            let bytes = self.value.bytes_mut()?;
            packed::set_count(bytes, 1);
            packed::put(&mut bytes[packed::COUNT_BYTES..], member);
            return Ok(());
        }
        self.make_table(&[member])
    }

    fn add_to_ints(&mut self, member: &[u8]) -> Result<bool> {
        let set = Ints::read(self.value.bytes()?)?;
        let (width, count) = (set.width(), set.len());
        let Some(number) = parse_i64(member) else {
            let digits = |index| itoa::Buffer::new().format(set.get(index)).len();
            let longest = if count == 0 { 0 } else { digits(0).max(digits(count - 1)) };
            let packs = self.packs(count + 1, longest.max(member.len()), count * (1 + longest) + packed::size(member));
            return self.leave_ints(packs, member).map(|()| true);
        };
        let Err(index) = set.find(number) else { return Ok(false) };
        if count >= self.value.limit(&MAX_INTS) {
            return self.leave_ints(false, member).map(|()| true);
        }
        if ints::width_of(number) > width {
            return self.widen_ints(index, number).map(|()| true);
        }
        let old_len = ints::size(width, count);
        self.value.set_len(Encoding::IntSet, old_len + width, old_len)?;
        let bytes = self.value.bytes_mut()?;
        ints::open_gap(bytes, width, index);
        ints::put(bytes, width, index, number);
        Ok(true)
    }

    /// Adds a number that is wider than all others, so that it comes first or last.
    fn widen_ints(&mut self, index: usize, number: i64) -> Result<()> {
        let mut all: Vec<i64> = Ints::read(self.value.bytes()?)?.iter().collect();
        all.insert(index, number);
        let width = ints::width_of(number);
        self.value.set_len(Encoding::IntSet, ints::size(width, all.len()), 0)?;
        let bytes = self.value.bytes_mut()?;
        ints::begin(bytes, width);
        all.iter().enumerate().for_each(|(index, &number)| ints::put(bytes, width, index, number));
        Ok(())
    }

    /// Makes a set of integers a packed one or a table, with a member that it has not, as one change.
    fn leave_ints(&mut self, pack: bool, member: &[u8]) -> Result<()> {
        let mut texts = Vec::new();
        let mut ends = Vec::new();
        for number in Ints::read(self.value.bytes()?)?.iter() {
            texts.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            ends.push(texts.len());
        }
        let mut start = 0;
        let numbers = ends.into_iter().map(|end| &texts[std::mem::replace(&mut start, end)..end]);
        let members: Vec<&[u8]> = numbers.chain([member]).collect();
        if !pack {
            return self.make_table(&members);
        }
        let len = packed::COUNT_BYTES + members.iter().map(|member| packed::size(member)).sum::<usize>();
        self.value.set_len(Encoding::PackedSet, len, 0)?;
        let bytes = self.value.bytes_mut()?;
        packed::set_count(bytes, members.len());
        let mut at = packed::COUNT_BYTES;
        for member in members {
            packed::put(&mut bytes[at..], member);
            at += packed::size(member);
        }
        Ok(())
    }

    fn remove_from_ints(&mut self, index: usize) -> Result<()> {
        self.value.count_member();
        let set = Ints::read(self.value.bytes()?)?;
        let (width, left) = (set.width(), set.len() - 1);
        if left == 0 {
            return self.value.delete();
        }
        ints::close_gap(self.value.bytes_mut()?, width, index);
        let len = ints::size(width, left);
        self.value.set_len(Encoding::IntSet, len, len)
    }

    fn add_to_packed(&mut self, member: &[u8]) -> Result<bool> {
        let bytes = self.value.bytes()?;
        if packed::find(bytes, member)?.is_some() {
            return Ok(false);
        }
        let (count, old_len) = (packed::count(bytes)? + 1, bytes.len());
        if !self.packs(count, member.len(), old_len + packed::size(member)) {
            let copy = bytes.to_vec();
            let mut members = packed::spans(&copy)?.map(|span| Ok(&copy[span?.member])).collect::<Result<Vec<_>>>()?;
            members.push(member);
            return self.make_table(&members).map(|()| true);
        }
        self.value.set_len(Encoding::PackedSet, old_len + packed::size(member), old_len)?;
        let bytes = self.value.bytes_mut()?;
        packed::set_count(bytes, count);
        packed::put(&mut bytes[old_len..], member);
        Ok(true)
    }

    fn remove_from_packed(&mut self, span: &packed::MemberSpan) -> Result<()> {
        self.value.count_member();
        let left = packed::count(self.value.bytes()?)?.saturating_sub(1);
        if left == 0 {
            return self.value.delete();
        }
        let bytes = self.value.bytes_mut()?;
        bytes.copy_within(span.member.end.., span.start);
        packed::set_count(bytes, left);
        let len = bytes.len() - (span.member.end - span.start);
        self.value.set_len(Encoding::PackedSet, len, len)
    }

    /// Makes the value a table of these members.
    fn make_table(&mut self, members: &[&[u8]]) -> Result<()> {
        self.value.make_table(Encoding::TableSet, |heap, hasher, head| {
            members.iter().try_for_each(|member| members::insert(heap, head, hasher.hash(member), member))
        })
    }

    fn add_to_table(&mut self, member: &[u8]) -> Result<bool> {
        let head = self.value.table()?;
        let hash = self.value.hash_of(member);
        if members::find(self.value.arena(), &head, hash, member)?.is_some() {
            return Ok(false);
        }
        self.value.change_table(head, |heap, head| members::insert(heap, head, hash, member)).map(|()| true)
    }

    fn remove_from_table(&mut self, head: TableHead, item: quire_arena::Handle) -> Result<()> {
        self.value.count_member();
        let left = self.value.change_table(head, |heap, head| {
            members::remove(heap, head, item)?;
            Ok(head.count)
        })?;
        if left == 0 { self.value.delete() } else { Ok(()) }
    }
}
