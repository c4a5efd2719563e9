//! Sets that were looked up once and are then read as often as need be. A look-up counts as one access.

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{SetEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::numbers::parse_i64;
use crate::table::TableHead;

use super::ints::Ints;
use super::{members, packed};

/// Buckets per wanted member that a scan looks at before it returns.
const BUCKETS_PER_COUNT: usize = 10;

/// A member, as its set keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMember<'a> {
    /// An integer.
    Int(i64),
    /// Any bytes, which may spell an integer.
    Bytes(&'a [u8]),
}

impl SetMember<'_> {
    /// The member's bytes; the buffer is for those of integers.
    #[inline]
    pub fn text<'b>(&'b self, buffer: &'b mut itoa::Buffer) -> &'b [u8] {
        match self {
            SetMember::Int(number) => buffer.format(*number).as_bytes(),
            SetMember::Bytes(bytes) => bytes,
        }
    }
}

/// A set's value, by its encoding.
#[derive(Clone, Copy, Debug)]
pub(super) enum SetValue<'a> {
    Ints(Ints<'a>),
    Packed(&'a [u8]),
    Table(TableHead),
}

impl<'a> SetValue<'a> {
    pub(super) fn read(arena: &'a Arena, entry: &Entry) -> Result<SetValue<'a>> {
        match entry.encoding()?.of_set()? {
            SetEncoding::Ints => Ok(SetValue::Ints(Ints::read(entry.value(arena)?)?)),
            SetEncoding::Packed => Ok(SetValue::Packed(entry.value(arena)?)),
            SetEncoding::Table => Ok(SetValue::Table(entry.table(arena)?)),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> Result<usize> {
        match self {
            SetValue::Ints(ints) => Ok(ints.len()),
            SetValue::Packed(bytes) => packed::count(bytes),
            SetValue::Table(head) => Ok(head.count as usize),
        }
    }

    /// Calls `f` with every member from a place on, until it returns false; the place moves behind that one. Returns whether the
    /// walk has come to the end. The set must be what it was when the place was reached.
    pub(super) fn walk_on(
        &self,
        arena: &'a Arena,
        place: &mut SetPosition,
        mut f: impl FnMut(SetMember<'a>) -> Result<bool>,
    ) -> Result<bool> {
        match *self {
            SetValue::Ints(ints) => {
                while place.at < ints.len() {
                    place.at += 1;
                    if !f(SetMember::Int(ints.get(place.at - 1)))? {
                        return Ok(false);
                    }
                }
            }
            SetValue::Packed(bytes) => {
                let mut spans = match place.at {
                    0 => packed::spans(bytes)?,
                    at => packed::spans_from(bytes, (at, place.rest)),
                };
                while let Some(span) = spans.next() {
                    let member = SetMember::Bytes(&bytes[span?.member]);
                    (place.at, place.rest) = spans.place();
                    if !f(member)? {
                        return Ok(false);
                    }
                }
            }
            SetValue::Table(head) => {
                while place.at < head.buckets() as usize {
                    if !walk_bucket(arena, &head, place, &mut f)? {
                        return Ok(false);
                    }
                    (place.at, place.rest) = (place.at + 1, 0);
                }
            }
        }
        Ok(true)
    }

    /// Calls `f` with every member, until it returns false.
    pub(super) fn for_each(&self, arena: &'a Arena, mut f: impl FnMut(SetMember<'a>) -> bool) -> Result<()> {
        match *self {
            SetValue::Ints(ints) => {
                let _ = ints.iter().all(|number| f(SetMember::Int(number)));
            }
            SetValue::Packed(bytes) => {
                for span in packed::spans(bytes)? {
                    if !f(SetMember::Bytes(&bytes[span?.member])) {
                        break;
                    }
                }
            }
            SetValue::Table(head) => {
                let mut left = head.count;
                for index in 0..head.buckets() {
                    let mut more = true;
                    head.visit(arena, index, |item| {
                        // Also bounds the walk through an image whose segments are all the same one.
                        left = left
                            .checked_sub(1)
                            .ok_or_else(|| StoreError::damaged("a table holds more items than it says"))?;
                        more = more && f(SetMember::Bytes(members::read(arena, item)?));
                        Ok(())
                    })?;
                    if !more {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A place in a walk through a set that is interrupted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetPosition {
    /// Integers, bytes or buckets that are behind it.
    at: usize,
    /// Members in front of it, of a packed set; those of its bucket behind it, of a table.
    rest: usize,
    /// Members of a table behind it.
    seen: u64,
}

/// Walks on through a bucket; false if `f` says so.
fn walk_bucket<'a>(
    arena: &'a Arena,
    head: &TableHead,
    place: &mut SetPosition,
    f: &mut impl FnMut(SetMember<'a>) -> Result<bool>,
) -> Result<bool> {
    let (mut skip, mut more) = (place.rest, true);
    head.visit(arena, place.at as u32, |item| {
        if skip > 0 || !more {
            skip = skip.saturating_sub(1);
            return Ok(());
        }
        // Also bounds the walk through an image whose segments are all the same one.
        if place.seen >= head.count {
            return Err(StoreError::damaged("a table holds more items than it says"));
        }
        (place.rest, place.seen) = (place.rest + 1, place.seen + 1);
        more = f(SetMember::Bytes(members::read(arena, item)?))?;
        Ok(())
    })?;
    Ok(more)
}

/// A set to be read. One that doesn't exist has no members.
#[derive(Clone, Copy, Debug)]
pub struct SetView<'a> {
    keyspace: &'a Keyspace,
    body: Option<SetValue<'a>>,
}

/// Looks a set up.
///
/// # Errors
/// As [`super::open_mut`].
pub fn view<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<SetView<'a>> {
    let entry = keyspace.open(db, key, ValueType::Set)?.map(|value| *value.entry());
    SetView::of(keyspace, entry)
}

/// As [`view`], for a command that looks at the set to change it: no read that counts.
pub(super) fn view_to_change<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<SetView<'a>> {
    let entry = keyspace.open_to_change(db, key, ValueType::Set)?.map(|value| *value.entry());
    SetView::of(keyspace, entry)
}

/// Looks several sets up.
///
/// # Errors
/// As [`super::open_mut`].
pub fn views<'a, 'k>(
    keyspace: &'a mut Keyspace,
    db: DbId,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<SetView<'a>>> {
    let entries = look_up(keyspace, db, keys)?;
    views_of(keyspace, &entries)
}

/// The entries of several sets.
pub(super) fn look_up<'k>(
    keyspace: &mut Keyspace,
    db: DbId,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Option<Entry>>> {
    // A look-up may delete a key whose time has come, but moves no other entry.
    keys.map(|key| Ok(keyspace.open(db, key, ValueType::Set)?.map(|value| *value.entry()))).collect()
}

/// Sets that were looked up, and have not been changed since.
pub(super) fn views_of<'a>(keyspace: &'a Keyspace, entries: &[Option<Entry>]) -> Result<Vec<SetView<'a>>> {
    entries.iter().map(|entry| SetView::of(keyspace, *entry)).collect()
}

impl<'a> SetView<'a> {
    pub(in crate::value) fn of(keyspace: &'a Keyspace, entry: Option<Entry>) -> Result<SetView<'a>> {
        let body = entry.map(|entry| SetValue::read(keyspace.arena(), &entry)).transpose()?;
        Ok(SetView { keyspace, body })
    }

    pub(super) fn body(&self) -> Option<&SetValue<'a>> {
        self.body.as_ref()
    }

    pub(super) fn arena(&self) -> &'a Arena {
        self.keyspace.arena()
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.body.is_some()
    }

    /// Members of the set.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], as all operations here.
    pub fn len(&self) -> Result<usize> {
        self.body.map_or(Ok(0), |body| body.len())
    }

    /// Whether the set has no members, so that the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    /// Whether the set has this member. Integers are compared as such where both sets keep them so.
    ///
    /// # Errors
    /// As [`SetView::len`].
    #[inline]
    pub fn contains(&self, member: &SetMember<'_>) -> Result<bool> {
        let mut buffer = itoa::Buffer::new();
        Ok(match (&self.body, member) {
            (None, _) => false,
            (Some(SetValue::Ints(ints)), SetMember::Int(number)) => ints.find(*number).is_ok(),
            (Some(SetValue::Ints(ints)), SetMember::Bytes(bytes)) => {
                parse_i64(bytes).is_some_and(|number| ints.find(number).is_ok())
            }
            (Some(SetValue::Packed(packed)), member) => packed::find(packed, member.text(&mut buffer))?.is_some(),
            (Some(SetValue::Table(head)), member) => {
                let bytes = member.text(&mut buffer);
                members::find(self.keyspace.arena(), head, self.keyspace.hash(bytes), bytes)?.is_some()
            }
        })
    }

    /// Calls `f` with every member, until it returns false.
    ///
    /// # Errors
    /// As [`SetView::len`].
    pub fn for_each(&self, f: impl FnMut(SetMember<'a>) -> bool) -> Result<()> {
        self.body.map_or(Ok(()), |body| body.for_each(self.keyspace.arena(), f))
    }

    /// As [`SetValue::walk_on`].
    pub(super) fn walk_on(
        &self,
        place: &mut SetPosition,
        f: impl FnMut(SetMember<'a>) -> Result<bool>,
    ) -> Result<bool> {
        self.body.map_or(Ok(true), |body| body.walk_on(self.keyspace.arena(), place, f))
    }

    /// Calls `f` with about `count` members and returns the cursor to go on with, 0 at the end; with all of a small set.
    /// The promise is that of [`Keyspace::scan`].
    ///
    /// # Errors
    /// As [`SetView::len`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(SetMember<'_>)) -> Result<u64> {
        let head = match &self.body {
            Some(SetValue::Table(head)) => head,
            None | Some(SetValue::Ints(_) | SetValue::Packed(_)) => {
                self.for_each(|member| {
                    f(member);
                    true
                })?;
                return Ok(0);
            }
        };
        let arena = self.keyspace.arena();
        let (mut cursor, mut seen) = (cursor, 0);
        for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
            cursor = head.scan(arena, cursor, |item| {
                seen += 1;
                f(SetMember::Bytes(members::read(arena, item)?));
                Ok(())
            })?;
            if cursor == 0 || seen >= count {
                break;
            }
        }
        Ok(cursor)
    }
}
