//! Intersection, union and difference of sets. Members go to the caller as they are found; nothing is collected.

use crate::error::Result;

use super::index::Lookup;
use super::view::{SetMember, SetPosition, SetView};

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Members that all sets have. Walks through the smallest set and asks the others, smaller ones first.
    Intersection,
    /// Members that any set has.
    Union,
    /// Members of the first set that no other has.
    Difference,
}

/// A place in a combination that is interrupted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CombinationPosition {
    /// Sets that are behind it.
    set: usize,
    walked: SetPosition,
}

/// Calls `f` with every member of the combination, once, until it returns false.
///
/// # Errors
/// [`crate::StoreError::Damaged`], as all operations here.
pub fn combine<'a>(how: SetOperation, sets: &[SetView<'a>], f: impl FnMut(SetMember<'a>) -> bool) -> Result<()> {
    combine_on(how, sets, &mut CombinationPosition::default(), f).map(drop)
}

/// As [`combine`], from a place on, which moves behind the member for which `f` returns false. Returns whether that was all. The
/// sets must be what they were when the place was reached.
pub(super) fn combine_on<'a>(
    how: SetOperation,
    sets: &[SetView<'a>],
    place: &mut CombinationPosition,
    mut f: impl FnMut(SetMember<'a>) -> bool,
) -> Result<bool> {
    match how {
        SetOperation::Intersection => {
            let mut order = sets.iter().map(|set| Ok((set.len()?, set))).collect::<Result<Vec<_>>>()?;
            order.sort_by_key(|&(len, _)| len);
            let Some((&(smallest_len @ 1.., smallest), others)) = order.split_first() else { return Ok(true) };
            let others = others.iter().map(|(_, set)| Lookup::new(set, smallest_len)).collect::<Result<Vec<_>>>()?;
            smallest.walk_on(&mut place.walked, |member| {
                for other in &others {
                    if !other.contains(&member)? {
                        return Ok(true);
                    }
                }
                Ok(f(member))
            })
        }
        SetOperation::Union => {
            let mut left = sets.iter().map(SetView::len).sum::<Result<usize>>()?;
            let mut earlier = Vec::new();
            for (index, set) in sets.iter().enumerate() {
                if index >= place.set {
                    let ended =
                        set.walk_on(&mut place.walked, |member| Ok(any_contains(&earlier, &member)? || f(member)))?;
                    if !ended {
                        return Ok(false);
                    }
                    *place = CombinationPosition { set: index + 1, walked: SetPosition::default() };
                }
                left = left.saturating_sub(set.len()?);
                earlier.push(Lookup::new(set, left)?);
            }
            Ok(true)
        }
        SetOperation::Difference => {
            let Some((first, others)) = sets.split_first() else { return Ok(true) };
            let lookups = first.len()?;
            let others = others.iter().map(|set| Lookup::new(set, lookups)).collect::<Result<Vec<_>>>()?;
            first.walk_on(&mut place.walked, |member| Ok(any_contains(&others, &member)? || f(member)))
        }
    }
}

fn any_contains(sets: &[Lookup<'_, '_>], member: &SetMember<'_>) -> Result<bool> {
    for set in sets {
        if set.contains(member)? {
            return Ok(true);
        }
    }
    Ok(false)
}
