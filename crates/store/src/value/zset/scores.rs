//! The scores of a node, which lie in a row and ascend. Relies on nothing: those of a damaged image may be in any order.

/// Scores of which the last one is looked at first: those of a cache line.
const ROW: usize = 8;

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
