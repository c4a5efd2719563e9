//! Sorted sets that were looked up once and are then read. A look-up counts as one access.

use std::ops::Range;

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{ValueType, ZsetEncoding};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::table::{Hash, TableHead};

use super::order::{Cut, Direction};
use super::{members, packed, tree};

/// Buckets per wanted member that a scan looks at before it returns.
const BUCKETS_PER_COUNT: usize = 10;

/// A sorted set's value, by its encoding.
#[derive(Clone, Copy, Debug)]
pub(super) enum ZsetValue<'a> {
    Packed(&'a [u8]),
    Tree(TableHead),
}

impl<'a> ZsetValue<'a> {
    #[inline]
    pub(super) fn read(arena: &'a Arena, entry: &Entry) -> Result<ZsetValue<'a>> {
        match entry.encoding()?.of_zset()? {
            ZsetEncoding::Packed => Ok(ZsetValue::Packed(entry.value(arena)?)),
            ZsetEncoding::Tree => Ok(ZsetValue::Tree(entry.table(arena)?)),
        }
    }

    #[inline]
    pub(super) fn len(&self, arena: &Arena) -> Result<u64> {
        match self {
            ZsetValue::Packed(bytes) => Ok(packed::count(bytes)? as u64),
            ZsetValue::Tree(head) => tree::len(arena, head),
        }
    }

    /// The score of a member; `hash` is asked for where it is needed.
    #[inline]
    pub(super) fn score(&self, arena: &Arena, member: &[u8], hash: impl FnOnce() -> Hash) -> Result<Option<f64>> {
        match self {
            ZsetValue::Packed(bytes) => Ok(packed::find(bytes, member)?.map(|(_, item)| item.score)),
            ZsetValue::Tree(head) => {
                let found = members::find(arena, head, hash(), member)?;
                found.map(|item| members::score(arena, item)).transpose()
            }
        }
    }

    /// How many members lie before a place.
    pub(super) fn rank_of(&self, arena: &Arena, cut: &Cut<'_>) -> Result<u64> {
        match self {
            ZsetValue::Packed(bytes) => Ok(packed::place(bytes, cut)?.0 as u64),
            ZsetValue::Tree(head) => match cut {
                Cut::Start => Ok(0),
                Cut::End => tree::len(arena, head),
                _ => tree::rank(arena, head, cut),
            },
        }
    }

    /// Calls `f` with the members of a range of ranks that lies in the sorted set, until it returns false. `u64::MAX` is its end.
    pub(super) fn range(
        &self,
        arena: &'a Arena,
        ranks: Range<u64>,
        direction: Direction,
        f: &mut dyn FnMut(f64, &'a [u8]) -> bool,
    ) -> Result<()> {
        let len = self.len(arena)?;
        let end = if ranks.end == u64::MAX { len } else { ranks.end };
        let ranks = ranks.start..end;
        if ranks.start >= ranks.end {
            return Ok(());
        }
        if ranks.end > len {
            // A reply has said how many members follow, so fewer must not pass for all.
            return Err(StoreError::damaged("a range of ranks that a sorted set doesn't have"));
        }
        match self {
            ZsetValue::Packed(bytes) => walk_packed(bytes, ranks.start as usize..ranks.end as usize, direction, f),
            ZsetValue::Tree(head) => tree::walk(arena, head, ranks, direction, f),
        }
    }
}

fn walk_packed<'a>(
    bytes: &'a [u8],
    ranks: Range<usize>,
    direction: Direction,
    f: &mut dyn FnMut(f64, &'a [u8]) -> bool,
) -> Result<()> {
    let items = packed::items(bytes)?.take(ranks.end).skip(ranks.start);
    if direction == Direction::Up {
        for item in items {
            let item = item?;
            if !f(item.score, item.member) {
                break;
            }
        }
        return Ok(());
    }
    let items = items.collect::<Result<Vec<_>>>()?;
    let _ = items.iter().rev().all(|item| f(item.score, item.member));
    Ok(())
}

/// A sorted set to be read. One that doesn't exist has no members.
#[derive(Clone, Copy, Debug)]
pub struct ZsetView<'a> {
    keyspace: &'a Keyspace,
    body: Option<ZsetValue<'a>>,
}

/// Looks a sorted set up.
///
/// # Errors
/// As [`super::open_mut`].
#[inline]
pub fn view<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<ZsetView<'a>> {
    let entry = keyspace.open(db, key, ValueType::Zset)?.map(|value| *value.entry());
    ZsetView::of(keyspace, entry)
}

impl<'a> ZsetView<'a> {
    /// One that was looked up, and has not been changed since.
    #[inline]
    pub(super) fn of(keyspace: &'a Keyspace, entry: Option<Entry>) -> Result<ZsetView<'a>> {
        let body = entry.map(|entry| ZsetValue::read(keyspace.arena(), &entry)).transpose()?;
        Ok(ZsetView { keyspace, body })
    }

    pub(super) fn body(&self) -> Option<&ZsetValue<'a>> {
        self.body.as_ref()
    }

    pub(super) fn arena(&self) -> &'a Arena {
        self.keyspace.arena()
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.body.is_some()
    }

    /// Whether it is small, so that all lies in one run of bytes.
    pub fn is_packed(&self) -> bool {
        matches!(self.body, Some(ZsetValue::Packed(_)))
    }

    /// Members of the sorted set.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], as all operations here.
    pub fn len(&self) -> Result<u64> {
        self.body.map_or(Ok(0), |body| body.len(self.arena()))
    }

    /// Whether the sorted set has no members, so that the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    /// The score of a member.
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    #[inline]
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        let Some(body) = &self.body else { return Ok(None) };
        body.score(self.arena(), member, || self.keyspace.hash(member))
    }

    /// How many members lie before this one, and its score.
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    pub fn rank(&self, member: &[u8]) -> Result<Option<(u64, f64)>> {
        if let Some(ZsetValue::Packed(bytes)) = &self.body {
            return Ok(packed::find(bytes, member)?.map(|(rank, item)| (rank as u64, item.score)));
        }
        let Some(score) = self.score(member)? else { return Ok(None) };
        Ok(Some((self.rank_of(&Cut::Behind(score, member))?.saturating_sub(1), score)))
    }

    /// How many members lie before a place.
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    pub fn rank_of(&self, cut: &Cut<'_>) -> Result<u64> {
        self.body.map_or(Ok(0), |body| body.rank_of(self.arena(), cut))
    }

    /// The ranks of the members between two places; none if the second one lies before the first.
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    pub fn ranks_between(&self, from: &Cut<'_>, to: &Cut<'_>) -> Result<Range<u64>> {
        let start = self.rank_of(from)?;
        Ok(start..self.rank_of(to)?.max(start))
    }

    /// Calls `f` with the score and the bytes of the members of a range of ranks, until it returns false. The range lies in the sorted
    /// set, whose end is also `u64::MAX`: another one comes from a damaged sorted set.
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    pub fn range(
        &self,
        ranks: Range<u64>,
        direction: Direction,
        mut f: impl FnMut(f64, &'a [u8]) -> bool,
    ) -> Result<()> {
        let Some(body) = &self.body else { return Ok(()) };
        body.range(self.arena(), ranks, direction, &mut f)
    }

    /// Calls `f` with about `count` members and returns the cursor to go on with, 0 at the end; with all of a small sorted set.
    /// The promise is that of [`Keyspace::scan`].
    ///
    /// # Errors
    /// As [`ZsetView::len`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(f64, &[u8])) -> Result<u64> {
        let head = match &self.body {
            Some(ZsetValue::Tree(head)) => head,
            None | Some(ZsetValue::Packed(_)) => {
                self.range(0..u64::MAX, Direction::Up, |score, member| {
                    f(score, member);
                    true
                })?;
                return Ok(0);
            }
        };
        let arena = self.arena();
        let (mut cursor, mut seen) = (cursor, 0);
        for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
            cursor = head.scan(arena, cursor, |item| {
                if members::is_member(arena, item)? {
                    seen += 1;
                    f(members::score(arena, item)?, members::text(arena, item)?);
                }
                Ok(())
            })?;
            if cursor == 0 || seen >= count {
                break;
            }
        }
        Ok(cursor)
    }
}
