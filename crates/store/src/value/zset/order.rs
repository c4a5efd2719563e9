//! The order of members: by score, those of equal scores by their bytes.
//!
//! Scores are no NaN, but those of a damaged image may be: they are neither before nor behind another one, and nothing relies on
//! more.

use std::cmp::Ordering;

use crate::error::Result;

/// Scores of which the last one is looked at first: those of a cache line.
const ROW: usize = 8;

/// A place between the members of a sorted set, by what lies before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut<'a> {
    /// Before the first one.
    Start,
    /// Behind the last one.
    End,
    /// Behind all scores below this.
    BelowScore(f64),
    /// Behind all scores up to this.
    UpToScore(f64),
    /// Behind all members below this, whose scores are the same.
    BelowMember(&'a [u8]),
    /// Behind all members up to this, whose scores are the same.
    UpToMember(&'a [u8]),
    /// Behind a member of this score, or where that would be.
    Behind(f64, &'a [u8]),
}

/// From which end members are walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest score on.
    Up,
    /// From the highest score on.
    Down,
}

impl Cut<'_> {
    /// Whether a member lies before it; its bytes are asked for where scores don't tell.
    #[inline]
    pub(super) fn is_behind<'m>(&self, score: f64, member: impl FnOnce() -> Result<&'m [u8]>) -> Result<bool> {
        Ok(match *self {
            Cut::Start => false,
            Cut::End => true,
            Cut::BelowScore(bound) => score < bound,
            Cut::UpToScore(bound) => score <= bound,
            Cut::BelowMember(bound) => member()? < bound,
            Cut::UpToMember(bound) => member()? <= bound,
            Cut::Behind(bound, text) => match score.partial_cmp(&bound) {
                Some(Ordering::Less) => true,
                Some(Ordering::Equal) => member()? <= text,
                Some(Ordering::Greater) | None => false,
            },
        })
    }
}

/// Whether one member comes before another.
#[inline]
pub(super) fn precedes(first: (f64, &[u8]), second: (f64, &[u8])) -> bool {
    match first.0.partial_cmp(&second.0) {
        Some(Ordering::Less) => true,
        Some(Ordering::Equal) => first.1 < second.1,
        Some(Ordering::Greater) | None => false,
    }
}

/// How many scores, which ascend, lie below a bound. Of scores that don't ascend, in a damaged image, it is some number of them.
#[inline]
pub(super) fn count_below(scores: &[f64], bound: f64) -> usize {
    // Counted rather than searched for: the processor can't foresee the turns of a search. First the rows that lie below as a whole, by the
    // last score of each; then the scores in the row that doesn't.
    let (rows, rest) = scores.as_chunks::<ROW>();
    let whole = rows.iter().filter(|row| row[ROW - 1] < bound).count();
    let partial = match rows.get(whole) {
        Some(row) => row.iter().filter(|&&score| score < bound).count(),
        None => rest.iter().filter(|&&score| score < bound).count(),
    };
    whole * ROW + partial
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn scores_below_a_bound_are_counted_as_one_by_one(
            scores in prop::collection::vec(-20i8..20, 0..100),
            bound in -21i8..22,
        ) {
            let mut scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            scores.sort_by(f64::total_cmp);
            for bound in [f64::from(bound), f64::from(bound) + 0.5, f64::INFINITY, f64::NEG_INFINITY] {
                prop_assert_eq!(count_below(&scores, bound), scores.iter().filter(|&&score| score < bound).count());
            }
        }

        #[test]
        fn of_scores_without_order_no_more_are_counted_than_there_are(
            scores in prop::collection::vec(any::<f64>(), 0..100),
            bound in any::<f64>(),
        ) {
            prop_assert!(count_below(&scores, bound) <= scores.len());
        }
    }
}
