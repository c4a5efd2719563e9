//! Changing a sorted set: giving members scores, and taking members away.
//!
//! Relies on `ValueMut` for writing back what is changed here, and for telling it.

use std::ops::Range;

use crate::db::DbId;
use crate::encoding::{Encoding, ValueType, ZsetEncoding};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entries::check_len;
use crate::keyspace::value::ValueMut;
use crate::limits::PACKED_MAX_BYTES;
use crate::table::TableHead;

use super::limits::{MAX_PACKED_LEN, MAX_PACKED_MEMBERS};
use super::members;
use super::order::{Cut, Direction};
use super::packed::{self, COUNT_BYTES, Item};
use super::tree::{self, Tree};
use super::view::ZsetValue;

/// A sorted set to be changed, or made by the first member that is added. The key goes with the last member.
#[derive(Debug)]
pub struct ZsetMut<'a> {
    pub(super) value: ValueMut<'a>,
    /// It doesn't exist yet, and what is going to be added is too much for a packed one.
    large: bool,
    /// Members that the last range of ranks lost.
    removed: u64,
}

/// What became of the score of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreChange {
    /// What it was; `None` if there was no such member.
    pub before: Option<f64>,
    /// What it is now; `None` if there is no such member.
    pub after: Option<f64>,
}

impl ScoreChange {
    /// Whether the member is new.
    pub fn is_added(&self) -> bool {
        self.before.is_none() && self.after.is_some()
    }

    /// Whether the member has another score.
    pub fn is_updated(&self) -> bool {
        self.before.is_some() && self.before != self.after
    }
}

/// Looks a sorted set up to change it.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that write
/// also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
#[inline]
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8]) -> Result<ZsetMut<'a>> {
    Ok(ZsetMut { value: keyspace.open_mut(db, key, ValueType::Zset)?, large: false, removed: 0 })
}

impl ZsetMut<'_> {
    /// Says that it is made aside, under a [`Keyspace::aside_key`]: what becomes of it is no change.
    pub fn made_aside(mut self) -> Self {
        self.value.set_aside();
        self
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.value.get().is_some()
    }

    /// Members of the sorted set.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn len(&self) -> Result<u64> {
        self.body()?.map_or(Ok(0), |body| body.len(self.value.arena()))
    }

    /// Whether the sorted set has no members, so that the key does not exist.
    pub fn is_empty(&self) -> bool {
        !self.exists()
    }

    fn body(&self) -> Result<Option<ZsetValue<'_>>> {
        self.value.get().map(|zset| ZsetValue::read(self.value.arena(), zset.entry())).transpose()
    }

    fn encoding(&self) -> Result<Option<ZsetEncoding>> {
        self.value.encoding()?.map(Encoding::of_zset).transpose()
    }

    /// The score of a member.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        let Some(body) = self.body()? else { return Ok(None) };
        body.score(self.value.arena(), member, || self.value.hash_of(member))
    }

    /// The ranks of the members between two places; none if the second one lies before the first.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn ranks_between(&self, from: &Cut<'_>, to: &Cut<'_>) -> Result<Range<u64>> {
        let Some(body) = self.body()? else { return Ok(0..0) };
        let start = body.rank_of(self.value.arena(), from)?;
        Ok(start..body.rank_of(self.value.arena(), to)?.max(start))
    }

    /// Gives a member a score, which is no NaN.
    ///
    /// # Errors
    /// As [`ZsetMut::update`].
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<ScoreChange> {
        self.update(member, |_| Some(score))
    }

    /// Gives a member the score that `decide` makes of the one it has; with `None` nothing changes.
    ///
    /// # Errors
    /// As [`open_mut`], and [`StoreError::NotFloat`] if that is NaN; the sorted set holds what it held then.
    #[inline]
    pub fn update(&mut self, member: &[u8], decide: impl FnOnce(Option<f64>) -> Option<f64>) -> Result<ScoreChange> {
        check_len(member.len())?;
        match self.encoding()? {
            None => self.settle(None, decide, |zset, score| zset.create(score, member)),
            Some(ZsetEncoding::Packed) => {
                let found =
                    packed::find(self.value.bytes()?, member)?.map(|(_, item)| (item.start..item.end, item.score));
                let (span, before) = found.unzip();
                self.settle(before, decide, |zset, score| zset.put_packed(span, score, member))
            }
            Some(ZsetEncoding::Tree) => {
                let head = self.value.table()?;
                let hash = self.value.hash_of(member);
                let found = members::find(self.value.arena(), &head, hash, member)?;
                let before = found.map(|item| members::score(self.value.arena(), item)).transpose()?;
                self.settle(before, decide, |zset, score| {
                    zset.change_tree(head, |tree| match found {
                        Some(item) => tree.move_to(item, score),
                        None => tree.add_hashed(hash, score, member),
                    })
                })
            }
        }
    }

    /// Has `put` give the member the score that was decided on, if that is another one than before.
    #[inline]
    fn settle(
        &mut self,
        before: Option<f64>,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
        put: impl FnOnce(&mut Self, f64) -> Result<()>,
    ) -> Result<ScoreChange> {
        let Some(score) = decide(before) else { return Ok(ScoreChange { before, after: before }) };
        // A packed sorted set can't keep the sign of 0, so that a tree must not: which of them it is depends on limits.
        let score = score + 0.0;
        if score.is_nan() {
            return Err(StoreError::NotFloat);
        }
        if before != Some(score) {
            put(self, score)?;
            self.value.count_member();
        }
        Ok(ScoreChange { before, after: Some(score) })
    }

    /// Whether a sorted set of so many members, of which one that comes is so long, may be packed into so many bytes.
    fn packs(&self, count: usize, longest: usize, bytes: usize) -> bool {
        count <= self.value.limit(&MAX_PACKED_MEMBERS)
            && longest <= self.value.limit(&MAX_PACKED_LEN)
            && bytes <= PACKED_MAX_BYTES
    }

    /// Says how many members are going to be added, and how long the longest is: if a packed sorted set can't have them, it is a tree
    /// from the beginning, as in Redis.
    pub(super) fn expect(&mut self, count: usize, longest: usize) {
        self.large = !self.packs(count, longest, longest);
    }

    fn create(&mut self, score: f64, member: &[u8]) -> Result<()> {
        if self.large || !self.packs(1, member.len(), member.len()) {
            return self
                .value
                .make_table(Encoding::TreeZset, |heap, hasher, head| Tree { heap, head, hasher }.add(score, member));
        }
        let mut bytes = self.take_scratch();
        packed::push(&mut bytes, score, member);
        packed::set_count(&mut bytes, 1);
        self.write_packed(bytes)
    }

    /// An empty packed sorted set, to be put together.
    fn take_scratch(&mut self) -> Vec<u8> {
        let mut bytes = self.value.take_scratch();
        bytes.clear();
        bytes.resize(COUNT_BYTES, 0);
        bytes
    }

    /// Makes the value these bytes, which [`ZsetMut::take_scratch`] gave.
    fn write_packed(&mut self, bytes: Vec<u8>) -> Result<()> {
        let written = self.value.set_len(Encoding::PackedZset, bytes.len(), 0).and_then(|()| {
            self.value.bytes_mut()?.copy_from_slice(&bytes);
            Ok(())
        });
        self.value.give_scratch(bytes);
        written
    }

    /// Puts a member with a score into a packed sorted set, in the place of what lies in `old`.
    fn put_packed(&mut self, old: Option<Range<usize>>, score: f64, member: &[u8]) -> Result<()> {
        let bytes = self.value.bytes()?;
        let count = packed::count(bytes)? + usize::from(old.is_none());
        if old.is_none() && !self.packs(count, member.len(), bytes.len() + member.len()) {
            self.unpack()?;
            return self.change(|tree| tree.add(score, member));
        }
        let mut new = self.take_scratch();
        let filled = self.fill(&mut new, old, score, member);
        packed::set_count(&mut new, count);
        match filled {
            Ok(()) => self.write_packed(new),
            Err(error) => {
                self.value.give_scratch(new);
                Err(error)
            }
        }
    }

    /// Adds what the packed sorted set has to `new`, without what lies in `old` and with a member.
    fn fill(&self, new: &mut Vec<u8>, old: Option<Range<usize>>, score: f64, member: &[u8]) -> Result<()> {
        let bytes = self.value.bytes()?;
        let (_, at) = packed::place(bytes, &Cut::Behind(score, member))?;
        let (gap, behind) = old.map_or((at, at), |old| (old.start, old.end));
        let kept = |range: Range<usize>| bytes.get(range).unwrap_or_default();
        if at <= gap {
            new.extend_from_slice(kept(COUNT_BYTES..at));
            packed::push(new, score, member);
            new.extend_from_slice(kept(at..gap));
            new.extend_from_slice(kept(behind..bytes.len()));
        } else {
            new.extend_from_slice(kept(COUNT_BYTES..gap));
            new.extend_from_slice(kept(behind..at));
            packed::push(new, score, member);
            new.extend_from_slice(kept(at..bytes.len()));
        }
        Ok(())
    }

    /// Makes a packed sorted set a tree, which alone is no change of it.
    fn unpack(&mut self) -> Result<()> {
        let bytes = self.value.bytes()?.to_vec();
        self.value.convert_to_table(Encoding::TreeZset, |heap, hasher, head| {
            let mut tree = Tree { heap, head, hasher };
            for item in packed::items(&bytes)? {
                let Item { score, member, .. } = item?;
                tree.add(score, member)?;
            }
            Ok(())
        })
    }

    /// Does something to the tree that the sorted set is.
    fn change<R>(&mut self, change: impl FnOnce(&mut Tree<'_>) -> Result<R>) -> Result<R> {
        let head = self.value.table()?;
        self.change_tree(head, change)
    }

    /// As [`ZsetMut::change`], of the tree whose head was just read.
    #[inline]
    fn change_tree<R>(&mut self, head: TableHead, change: impl FnOnce(&mut Tree<'_>) -> Result<R>) -> Result<R> {
        let hasher = self.value.hasher();
        self.value.change_table(head, |heap, head| change(&mut Tree { heap, head, hasher: &hasher }))
    }

    /// Takes a member away; returns whether it was there.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn remove(&mut self, member: &[u8]) -> Result<bool> {
        match self.encoding()? {
            None => Ok(false),
            Some(ZsetEncoding::Packed) => match packed::find(self.value.bytes()?, member)? {
                Some((rank, _)) => self.remove_packed(rank..rank + 1).map(|()| true),
                None => Ok(false),
            },
            Some(ZsetEncoding::Tree) => {
                let head = self.value.table()?;
                let found = members::find(self.value.arena(), &head, self.value.hash_of(member), member)?;
                let Some(item) = found else { return Ok(false) };
                self.value.count_member();
                if tree::len(self.value.arena(), &head)? <= 1 {
                    return self.value.delete().map(|()| true);
                }
                self.change(|tree| tree.remove(item)).map(|()| true)
            }
        }
    }

    /// Takes the members of a range of ranks away, as far as it lies in the sorted set; returns how many. A damaged sorted set may lose
    /// some, from the first one on, before this fails: [`ZsetMut::removed`] tells how many.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn remove_ranks(&mut self, ranks: Range<u64>) -> Result<u64> {
        self.removed = 0;
        let len = self.len()?;
        let ranks = ranks.start..ranks.end.min(len);
        let Some(gone) = ranks.end.checked_sub(ranks.start).filter(|&gone| gone > 0) else { return Ok(0) };
        match self.encoding()? {
            Some(ZsetEncoding::Tree) if gone < len => {
                let mut removed = 0;
                let done = self.change(|tree| tree.remove_ranks(ranks, &mut removed));
                self.removed = removed;
                self.value.count_members(removed);
                return done.map(|()| removed);
            }
            Some(ZsetEncoding::Packed) if gone < len => {
                self.value.count_members(gone);
                self.cut_packed(ranks.start as usize..ranks.end as usize)?;
            }
            Some(ZsetEncoding::Packed | ZsetEncoding::Tree) | None => {
                self.value.count_members(gone);
                self.value.delete()?;
            }
        }
        self.removed = gone;
        Ok(gone)
    }

    /// Members that the last call of [`ZsetMut::remove_ranks`] or [`ZsetMut::pop`] took away, also if it failed.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    fn remove_packed(&mut self, ranks: Range<usize>) -> Result<()> {
        self.value.count_member();
        if packed::count(self.value.bytes()?)? <= ranks.len() { self.value.delete() } else { self.cut_packed(ranks) }
    }

    /// Takes members, but not all, out of a packed sorted set.
    fn cut_packed(&mut self, ranks: Range<usize>) -> Result<()> {
        let bytes = self.value.bytes()?;
        let left = packed::count(bytes)?.saturating_sub(ranks.len());
        let mut ends = (COUNT_BYTES, COUNT_BYTES);
        for (rank, item) in packed::items(bytes)?.take(ranks.end).enumerate() {
            let end = item?.end;
            ends = (if rank < ranks.start { end } else { ends.0 }, end);
        }
        let bytes = self.value.bytes_mut()?;
        bytes.copy_within(ends.1.., ends.0);
        packed::set_count(bytes, left);
        let len = bytes.len() - (ends.1 - ends.0);
        self.value.set_len(Encoding::PackedZset, len, len)
    }

    /// Calls `f` with up to `count` members from one end on, and takes them away, the one with the lowest score first, unless `f` returns
    /// false. Returns how many were taken.
    ///
    /// # Errors
    /// As [`ZsetMut::remove_ranks`].
    pub fn pop(&mut self, from: Direction, count: u64, f: &mut dyn FnMut(f64, &[u8]) -> bool) -> Result<u64> {
        self.removed = 0;
        let Some(body) = self.body()? else { return Ok(0) };
        let arena = self.value.arena();
        let len = body.len(arena)?;
        if len == 0 {
            // The reply to a pop from a sorted set that exists is a member.
            return Err(StoreError::damaged("a sorted set without members"));
        }
        let ranks = match from {
            Direction::Up => 0..count.min(len),
            Direction::Down => len - count.min(len)..len,
        };
        let mut takes = true;
        body.range(arena, ranks.clone(), from, &mut |score, member| {
            takes = f(score, member);
            takes
        })?;
        if takes { self.remove_ranks(ranks) } else { Ok(0) }
    }
}
