//! The order of members: by score, those of equal scores by their bytes.
//!
//! Scores are no NaN, but those of a damaged image may be: they are neither before nor behind another one, and nothing relies on
//! more.

use std::cmp::Ordering;

use crate::error::Result;

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
