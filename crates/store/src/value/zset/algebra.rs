//! Intersection, union and difference of sorted sets, and of sets, whose members have the score 1. Members go to the caller as they
//! are found, each once, with the score that it comes to; nothing is collected.

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::value::set::{SetMember, SetOperation, SetView};

use super::order::Direction;
use super::view::ZsetView;

/// What the scores of a member in several sorted sets come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_if_nan(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// As in Redis, what infinities cancel out is 0.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

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
            Some(ValueType::String | ValueType::Hash | ValueType::List) => return Err(StoreError::WrongType),
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

    fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        match &self.source {
            Source::Zset(zset) => zset.score(member),
            Source::Set(set) => Ok(set.contains(&SetMember::Bytes(member))?.then_some(1.0)),
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
    combine_on(keyspace, how, aggregate, operands, &mut CombinationPosition::default(), f).map(drop)
}

/// What is combined, in the order in which Redis adds scores up: smaller sets first, unless the first one is special.
fn open_all<'a>(keyspace: &'a Keyspace, how: SetOperation, operands: &[Operand]) -> Result<Vec<Weighted<'a>>> {
    let opened = operands.iter().map(|operand| Weighted::open(keyspace, operand));
    if how == SetOperation::Difference {
        return opened.collect();
    }
    let mut lens = Vec::with_capacity(operands.len());
    for one in opened {
        let one = one?;
        lens.push((one.len()?, one));
    }
    lens.sort_by_key(|&(len, _)| len);
    Ok(lens.into_iter().map(|(_, one)| one).collect())
}

/// As [`combine`], from a place on, which moves behind the last member with which `f` was called. Returns whether that was all. The
/// operands must be what they were when the place was reached.
pub(super) fn combine_on(
    keyspace: &Keyspace,
    how: SetOperation,
    aggregate: Aggregate,
    operands: &[Operand],
    place: &mut CombinationPosition,
    f: &mut dyn FnMut(f64, &[u8]) -> bool,
) -> Result<bool> {
    let opened = open_all(keyspace, how, operands)?;
    let Some((first, others)) = opened.split_first() else { return Ok(true) };
    match how {
        SetOperation::Intersection => first.walk_on(&mut place.at, &mut |score, member| {
            let mut sum = zero_if_nan(first.weight * score);
            for other in others {
                let Some(score) = other.score(member)? else { return Ok(true) };
                sum = aggregate.of(sum, score * other.weight);
            }
            Ok(f(sum, member))
        }),
        SetOperation::Difference => {
            first.walk_on(&mut place.at, &mut |score, member| Ok(any_has(others, member)? || f(score, member)))
        }
        SetOperation::Union => union_on(&opened, aggregate, place, f),
    }
}

fn any_has(operands: &[Weighted<'_>], member: &[u8]) -> Result<bool> {
    for operand in operands {
        if operand.score(member)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Goes through the operands one after the other, and asks the later ones for the scores of members that no earlier one has.
fn union_on(
    opened: &[Weighted<'_>],
    aggregate: Aggregate,
    place: &mut CombinationPosition,
    f: &mut dyn FnMut(f64, &[u8]) -> bool,
) -> Result<bool> {
    while let Some(walked) = opened.get(place.operand) {
        let (earlier, later) = (&opened[..place.operand], &opened[place.operand + 1..]);
        let ended = walked.walk_on(&mut place.at, &mut |score, member| {
            if any_has(earlier, member)? {
                return Ok(true);
            }
            let mut sum = zero_if_nan(walked.weight * score);
            for other in later {
                if let Some(score) = other.score(member)? {
                    sum = aggregate.of(sum, zero_if_nan(other.weight * score));
                }
            }
            Ok(f(sum, member))
        })?;
        if !ended {
            return Ok(false);
        }
        *place = CombinationPosition { operand: place.operand + 1, at: 0 };
    }
    Ok(true)
}
