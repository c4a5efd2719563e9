//! Intersection, union and difference of sorted sets, and of sets, whose members have the score 1.
//!
//! Members of intersections and differences go to the caller as they are found, each once, with the score that it comes to. A union
//! goes through its operands one after the other, so that it looks nothing up in them, and adds up what it meets; Redis adds in the
//! same order, on which the sum of floating-point numbers depends.

use std::collections::HashMap;

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::limits::PACKED_MAX_ITEMS;
use crate::value::set::{SetLookup, SetMember, SetOperation, SetView};

use super::aggregate::{Aggregate, zero_if_nan};
use super::order::Direction;
use super::packed;
use super::scored::{MemberIndex, ScoredMembers};
use super::view::{ZsetValue, ZsetView};

/// With fewer members, or fewer look-ups, a walk costs less than an index.
const LEAST: usize = 8;
/// What the entry of a member in an index takes besides the member itself, about.
const INDEXED_BYTES: usize = 64;
/// Members in all indexes of a command; operands for which there is no room are walked through.
const MOST_INDEXED: u64 = 1 << 18;

/// A sorted set or a set that was looked up to be combined.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    entry: Option<Entry>,
    /// By what its scores are multiplied.
    pub weight: f64,
}

/// Looks sorted sets and sets up, to be combined before anything else is done.
///
/// # Errors
/// As [`super::open_mut`].
pub fn operands<'k>(keyspace: &mut Keyspace, db: DbId, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<Operand>> {
    keys.map(|key| {
        let kind = match keyspace.kind(db, key)? {
            Some(ValueType::Set) => ValueType::Set,
            Some(ValueType::Zset) | None => ValueType::Zset,
            Some(ValueType::String | ValueType::Hash | ValueType::List | ValueType::Stream) => {
                return Err(StoreError::WrongType);
            }
        };
        // A look-up may delete a key whose time has come, but moves no other entry.
        let entry = keyspace.open(db, key, kind)?.map(|value| *value.entry());
        Ok(Operand { entry, weight: 1.0 })
    })
    .collect()
}

/// The members of an operand.
#[derive(Debug)]
enum Source<'a> {
    Zset(ZsetView<'a>),
    Set(SetView<'a>),
}

/// An operand that is being read.
#[derive(Debug)]
struct Weighted<'a> {
    source: Source<'a>,
    weight: f64,
}

impl<'a> Weighted<'a> {
    fn open(keyspace: &'a Keyspace, operand: &Operand) -> Result<Weighted<'a>> {
        let is_set =
            operand.entry.map(|entry| entry.encoding()).transpose()?.is_some_and(|own| own.kind() == ValueType::Set);
        let source = match is_set {
            true => Source::Set(SetView::of(keyspace, operand.entry)?),
            false => Source::Zset(ZsetView::of(keyspace, operand.entry)?),
        };
        Ok(Weighted { source, weight: operand.weight })
    }

    fn len(&self) -> Result<u64> {
        match &self.source {
            Source::Zset(zset) => zset.len(),
            Source::Set(set) => Ok(set.len()? as u64),
        }
    }

    /// Calls `f` with the members from a place on, until it returns false, and with some more; the place moves behind those. Returns
    /// whether the walk has come to the end.
    fn walk_on(&self, at: &mut u64, f: &mut dyn FnMut(f64, &[u8]) -> Result<bool>) -> Result<bool> {
        let (mut result, mut more) = (Ok(()), true);
        let mut show = |score, member: &[u8]| match f(score, member) {
            Ok(wants_more) => wants_more,
            Err(error) => {
                result = Err(error);
                false
            }
        };
        match &self.source {
            Source::Zset(zset) => zset.range(*at..u64::MAX, Direction::Up, |score, member| {
                *at += 1;
                more = show(score, member);
                more
            })?,
            Source::Set(set) => loop {
                *at = set.scan(*at, 1, &mut |member| {
                    more &= show(1.0, member.text(&mut itoa::Buffer::new()));
                })?;
                if *at == 0 || !more {
                    break;
                }
            },
        }
        result?;
        Ok(match &self.source {
            Source::Zset(_) => more,
            Source::Set(_) => *at == 0,
        })
    }
}

/// How a member is found.
enum LookupSource<'v, 'a> {
    /// In a packed sorted set, through which each look-up would walk.
    Index(HashMap<&'a [u8], f64>),
    Zset(&'v ZsetView<'a>),
    Set(SetLookup<'v, 'a>),
}

/// An operand that is asked about many members.
struct Lookup<'v, 'a> {
    source: LookupSource<'v, 'a>,
    weight: f64,
}

impl<'v, 'a> Lookup<'v, 'a> {
    /// Prepares for about so many look-ups.
    fn new(operand: &'v Weighted<'a>, lookups: usize) -> Result<Self> {
        let source = match &operand.source {
            Source::Set(set) => LookupSource::Set(SetLookup::new(set, lookups)?),
            Source::Zset(zset) => match zset.body() {
                Some(&ZsetValue::Packed(bytes)) if lookups >= LEAST && packed::count(bytes)? >= LEAST => {
                    LookupSource::Index(index_of(bytes)?)
                }
                Some(_) | None => LookupSource::Zset(zset),
            },
        };
        Ok(Self { source, weight: operand.weight })
    }

    fn all(first: &Weighted<'a>, others: &'v [Weighted<'a>]) -> Result<Vec<Self>> {
        let lookups = usize::try_from(first.len()?).unwrap_or(usize::MAX);
        let (mut room, mut all) = (MOST_INDEXED, Vec::with_capacity(others.len()));
        for other in others {
            let len = other.len()?;
            let has_room = len <= room;
            // Larger ones are not packed, so they get no index.
            if has_room && len <= PACKED_MAX_ITEMS as u64 {
                room -= len;
            }
            all.push(Self::new(other, if has_room { lookups } else { 0 })?);
        }
        Ok(all)
    }

    fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        match &self.source {
            LookupSource::Index(index) => Ok(index.get(member).copied()),
            LookupSource::Zset(zset) => zset.score(member),
            LookupSource::Set(set) => Ok(set.contains(&SetMember::Bytes(member))?.then_some(1.0)),
        }
    }
}

/// The scores of the members of a packed sorted set.
fn index_of(bytes: &[u8]) -> Result<HashMap<&[u8], f64>> {
    let mut index = HashMap::with_capacity(packed::count(bytes)?.min(bytes.len()));
    for item in packed::items(bytes)? {
        let item = item?;
        index.entry(item.member).or_insert(item.score);
    }
    Ok(index)
}

/// A place in a combination that is interrupted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CombinationPosition {
    /// Operands that are behind it.
    operand: usize,
    /// Where in the next one it is.
    at: u64,
}

/// Calls `f` with every member of the combination and its score, in no order, until it returns false, and with a few more then.
///
/// # Errors
/// [`StoreError::Damaged`], as all operations here.
pub fn combine(
    keyspace: &Keyspace,
    how: SetOperation,
    aggregate: Aggregate,
    operands: &[Operand],
    f: &mut dyn FnMut(f64, &[u8]) -> bool,
) -> Result<()> {
    if how == SetOperation::Union {
        let all = collect(keyspace, how, aggregate, operands, usize::MAX)?.unwrap_or_default();
        let _ = all.iter().all(|(score, member)| f(score, member));
        return Ok(());
    }
    combine_on(keyspace, how, aggregate, operands, &mut CombinationPosition::default(), f).map(drop)
}

/// The members of the combination and their scores, in no order; `None` if collecting them takes more than about so many bytes.
///
/// # Errors
/// As [`combine`].
pub fn collect(
    keyspace: &Keyspace,
    how: SetOperation,
    aggregate: Aggregate,
    operands: &[Operand],
    most_bytes: usize,
) -> Result<Option<ScoredMembers>> {
    let (mut members, mut index) = (ScoredMembers::default(), MemberIndex::new());
    let of_index_bytes = if how == SetOperation::Union { INDEXED_BYTES } else { 0 };
    let mut fits = true;
    combine_on(keyspace, how, aggregate, operands, &mut CombinationPosition::default(), &mut |score, member| {
        match how {
            SetOperation::Union => members.unite(&mut index, aggregate, score, member),
            SetOperation::Intersection | SetOperation::Difference => members.push(score, member),
        }
        // An index holds the members once more.
        let parts = if how == SetOperation::Union { 2 } else { 1 };
        fits = parts * members.bytes() + members.len() * of_index_bytes <= most_bytes;
        fits
    })?;
    Ok(fits.then_some(members))
}

/// The operands in the order in which Redis adds scores up: smaller ones first.
pub(super) fn by_len(keyspace: &Keyspace, operands: &[Operand]) -> Result<Vec<Operand>> {
    let mut lens = Vec::with_capacity(operands.len());
    for operand in operands {
        lens.push((Weighted::open(keyspace, operand)?.len()?, *operand));
    }
    lens.sort_by_key(|&(len, _)| len);
    Ok(lens.into_iter().map(|(_, operand)| operand).collect())
}

/// As [`combine`], from a place on, which moves behind the last member with which `f` was called. Returns whether that was all. The
/// operands must be what they were when the place was reached. Of a union, `f` gets a member as often as operands have it, with the
/// score that it has in each.
pub(super) fn combine_on(
    keyspace: &Keyspace,
    how: SetOperation,
    aggregate: Aggregate,
    operands: &[Operand],
    place: &mut CombinationPosition,
    f: &mut dyn FnMut(f64, &[u8]) -> bool,
) -> Result<bool> {
    let ordered = match how {
        SetOperation::Difference => operands.to_vec(),
        SetOperation::Intersection | SetOperation::Union => by_len(keyspace, operands)?,
    };
    if how == SetOperation::Union {
        return walk_all_on(keyspace, &ordered, place, f);
    }
    let opened = ordered.iter().map(|operand| Weighted::open(keyspace, operand)).collect::<Result<Vec<_>>>()?;
    let Some((first, others)) = opened.split_first() else { return Ok(true) };
    let others = Lookup::all(first, others)?;
    first.walk_on(&mut place.at, &mut |score, member| {
        if how == SetOperation::Difference {
            return Ok(any_has(&others, member)? || f(score, member));
        }
        let mut sum = zero_if_nan(first.weight * score);
        for other in &others {
            let Some(score) = other.score(member)? else { return Ok(true) };
            sum = aggregate.of(sum, score * other.weight);
        }
        Ok(f(sum, member))
    })
}

fn any_has(operands: &[Lookup<'_, '_>], member: &[u8]) -> Result<bool> {
    for operand in operands {
        if operand.score(member)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Goes through the operands one after the other; otherwise as [`combine_on`].
pub(super) fn walk_all_on(
    keyspace: &Keyspace,
    operands: &[Operand],
    place: &mut CombinationPosition,
    f: &mut dyn FnMut(f64, &[u8]) -> bool,
) -> Result<bool> {
    while let Some(operand) = operands.get(place.operand) {
        let walked = Weighted::open(keyspace, operand)?;
        let mut show = |score: f64, member: &[u8]| Ok(f(zero_if_nan(walked.weight * score), member));
        let ended = walked.walk_on(&mut place.at, &mut show)?;
        if !ended {
            return Ok(false);
        }
        *place = CombinationPosition { operand: place.operand + 1, at: 0 };
    }
    Ok(true)
}
