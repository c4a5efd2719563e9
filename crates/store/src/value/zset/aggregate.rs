//! What several scores of a member come to.

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
    /// What two scores come to.
    pub(super) fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_if_nan(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// As in Redis, what infinities cancel out is 0.
pub(super) fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
