//! Keeping a combination or a range of sorted sets: ZUNIONSTORE, ZRANGESTORE and their relatives.
//!
//! The result is built in the arena, under a key that no command knows, and gets its key when it is complete: if there is not
//! enough memory, nothing has changed. Ordinary memory holds some of its members at a time.

use std::ops::Range;

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::value::set::SetOperation;

use super::aggregate::Aggregate;
use super::algebra::{CombinationPosition, Operand, by_len, combine_on, walk_all_on};
use super::change::{ZsetMut, open_mut};
use super::order::Direction;
use super::scored::{MemberIndex, ScoredMembers};
use super::view::ZsetView;

/// What the key of a sorted set that is being built begins with; clients never meet it, because no command runs meanwhile.
const ASIDE: &[u8] = b"\0quire: a sorted set that is being built\0";

/// Gives a key the combination of what was looked up, whatever it held before; without members it is deleted. Returns how many
/// members it has.
///
/// # Errors
/// As [`open_mut`]; the key holds what it held then.
pub fn store_combination(
    keyspace: &mut Keyspace,
    db: DbId,
    to: &[u8],
    how: SetOperation,
    aggregate: Aggregate,
    operands: &[Operand],
) -> Result<u64> {
    if how == SetOperation::Union {
        return store_union(keyspace, db, to, aggregate, operands);
    }
    let mut place = CombinationPosition::default();
    store(keyspace, db, to, aggregate, &mut |keyspace, some| {
        combine_on(keyspace, how, aggregate, operands, &mut place, &mut |score, member| {
            some.push(score, member);
            !some.is_full()
        })
    })
}

fn store_union(
    keyspace: &mut Keyspace,
    db: DbId,
    to: &[u8],
    aggregate: Aggregate,
    operands: &[Operand],
) -> Result<u64> {
    let (ordered, mut place) = (by_len(keyspace, operands)?, CombinationPosition::default());
    // The first members are added up in ordinary memory, so that it is known whether they all fit a packed sorted set. Later ones go to
    // what is stored one by one: their own sum first would be another sum of floating-point numbers.
    let mut index = Some(MemberIndex::new());
    store(keyspace, db, to, aggregate, &mut |keyspace, some| {
        let mut first = index.take();
        walk_all_on(keyspace, &ordered, &mut place, &mut |score, member| {
            match &mut first {
                Some(index) => some.unite(index, aggregate, score, member),
                None => some.push(score, member),
            }
            !some.is_full()
        })
    })
}

/// Gives a key the members of some ranks of a sorted set, as [`store_combination`] does.
///
/// # Errors
/// As [`store_combination`].
pub fn store_range(keyspace: &mut Keyspace, db: DbId, to: &[u8], from: &[u8], ranks: Range<u64>) -> Result<u64> {
    let mut next = ranks.start;
    // Members come once, so nothing is added up.
    store(keyspace, db, to, Aggregate::Sum, &mut |keyspace, some| {
        let entry = keyspace.peek(db, from, ValueType::Zset)?.map(|value| *value.entry());
        let zset = ZsetView::of(keyspace, entry)?;
        let (mut more, end) = (true, ranks.end.min(zset.len()?));
        zset.range(next..end, Direction::Up, |score, member| {
            some.push(score, member);
            next += 1;
            more = !some.is_full();
            more
        })?;
        Ok(more)
    })
}

/// Gives a key some members that were collected, as [`store_combination`] does. Of members that come twice the last score counts.
///
/// # Errors
/// As [`store_combination`].
pub fn store_members(keyspace: &mut Keyspace, db: DbId, to: &[u8], members: &ScoredMembers) -> Result<u64> {
    let aside = aside_key(keyspace);
    let built = if members.is_empty() { Ok(0) } else { add(keyspace, db, &aside, members, &|_, score| score) };
    name(keyspace, db, &aside, to, built)
}

/// Takes some members from sorted sets; returns whether these were the last ones.
type Take<'t> = &'t mut dyn FnMut(&Keyspace, &mut ScoredMembers) -> Result<bool>;

fn store(keyspace: &mut Keyspace, db: DbId, to: &[u8], aggregate: Aggregate, take: Take<'_>) -> Result<u64> {
    let aside = aside_key(keyspace);
    let built = build(keyspace, db, &aside, aggregate, take);
    name(keyspace, db, &aside, to, built)
}

fn aside_key(keyspace: &mut Keyspace) -> Vec<u8> {
    [ASIDE, &keyspace.rng.next_u64().to_ne_bytes()].concat()
}

/// Gives what was built its key.
fn name(keyspace: &mut Keyspace, db: DbId, aside: &[u8], to: &[u8], built: Result<u64>) -> Result<u64> {
    if matches!(built, Ok(0)) {
        return keyspace.remove(db, to).map(|_| 0);
    }
    let ZsetMut { mut value, .. } = open_mut(keyspace, db, aside)?;
    value.set_aside();
    match built {
        Ok(stored) => value.rename(to).map(|()| stored),
        Err(error) => value.delete().and(Err(error)),
    }
}

fn build(keyspace: &mut Keyspace, db: DbId, aside: &[u8], aggregate: Aggregate, take: Take<'_>) -> Result<u64> {
    let (mut some, mut stored, mut ended) = (ScoredMembers::default(), 0, false);
    while !ended {
        some.clear();
        ended = take(keyspace, &mut some)?;
        stored += add(keyspace, db, aside, &some, &|before, score| aggregate.of(before, score))?;
    }
    Ok(stored)
}

/// Adds members to what is being built; `unite` says which score a member gets that has one. Returns how many are new.
fn add(
    keyspace: &mut Keyspace,
    db: DbId,
    aside: &[u8],
    some: &ScoredMembers,
    unite: &dyn Fn(f64, f64) -> f64,
) -> Result<u64> {
    let mut zset = open_mut(keyspace, db, aside)?;
    zset.value.set_aside();
    zset.expect(some.len(), some.iter().map(|(_, member)| member.len()).max().unwrap_or(0));
    let mut stored = 0;
    for (score, member) in some.iter() {
        let change = zset.update(member, |before| Some(before.map_or(score, |before| unite(before, score))))?;
        stored += u64::from(change.is_added());
    }
    Ok(stored)
}
