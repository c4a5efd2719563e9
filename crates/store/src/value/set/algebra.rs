//! Intersection, union and difference of sets. Members go to the caller as they are found; nothing is collected.

use crate::error::Result;

use super::index::Lookup;
use super::view::{Member, SetView};

/// Calls `f` with every member that all sets have, until it returns false. Walks through the smallest set and asks the
/// others, smaller ones first.
///
/// # Errors
/// [`crate::StoreError::Damaged`], as all operations here.
pub fn intersection<'a>(sets: &[SetView<'a>], mut f: impl FnMut(Member<'a>) -> bool) -> Result<()> {
    let mut order = sets.iter().map(|set| Ok((set.len()?, set))).collect::<Result<Vec<_>>>()?;
    order.sort_by_key(|&(len, _)| len);
    let Some(((smallest_len, smallest), others)) = order.split_first() else { return Ok(()) };
    if *smallest_len == 0 {
        return Ok(());
    }
    let others = others.iter().map(|(_, set)| Lookup::new(set, *smallest_len)).collect::<Result<Vec<_>>>()?;
    walk(smallest, |member| {
        for other in &others {
            if !other.contains(&member)? {
                return Ok(true);
            }
        }
        Ok(f(member))
    })
}

/// Calls `f` with every member that any set has, once.
///
/// # Errors
/// As [`intersection`].
pub fn union<'a>(sets: &[SetView<'a>], mut f: impl FnMut(Member<'a>)) -> Result<()> {
    let mut left = sets.iter().map(SetView::len).sum::<Result<usize>>()?;
    let mut earlier = Vec::new();
    for set in sets {
        walk(set, |member| {
            if !any_contains(&earlier, &member)? {
                f(member);
            }
            Ok(true)
        })?;
        left = left.saturating_sub(set.len()?);
        earlier.push(Lookup::new(set, left)?);
    }
    Ok(())
}

/// Calls `f` with every member of the first set that no other has.
///
/// # Errors
/// As [`intersection`].
pub fn difference<'a>(sets: &[SetView<'a>], mut f: impl FnMut(Member<'a>)) -> Result<()> {
    let Some((first, others)) = sets.split_first() else { return Ok(()) };
    let lookups = first.len()?;
    let others = others.iter().map(|set| Lookup::new(set, lookups)).collect::<Result<Vec<_>>>()?;
    walk(first, |member| {
        if !any_contains(&others, &member)? {
            f(member);
        }
        Ok(true)
    })
}

fn any_contains(sets: &[Lookup<'_, '_>], member: &Member<'_>) -> Result<bool> {
    for set in sets {
        if set.contains(member)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Calls `f` with the members of a set, until it returns false or fails.
fn walk<'a>(set: &SetView<'a>, mut f: impl FnMut(Member<'a>) -> Result<bool>) -> Result<()> {
    let mut done = Ok(true);
    set.for_each(|member| {
        done = f(member);
        matches!(done, Ok(true))
    })?;
    done.map(drop)
}
