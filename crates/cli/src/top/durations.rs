//! How long commands take, by LATENCY HISTOGRAM: percentiles of the runs between two samples.
//!
//! Relies on the reply's form in RESP2: a name and, for each command, its runs and pairs of a bound in microseconds and the runs up to it.
//! Servers before Redis 7.0 have no such command, and no percentiles.

use std::collections::BTreeMap;

use crate::peer::{Peer, ReplyPart};

/// What this view itself asks for is no load to be shown.
const OWN: [&str; 2] = ["info", "latency"];

/// Runs of all commands since the server's start: for each command and bound in microseconds, the runs up to it.
#[derive(Debug, Default, PartialEq)]
pub struct Durations(BTreeMap<String, BTreeMap<u64, u64>>);

impl Durations {
    /// Asks the server; nothing if it has no such command.
    pub fn take(peer: &mut Peer) -> anyhow::Result<Self> {
        Ok(peer.call_for_parts(&["LATENCY", "HISTOGRAM"])?.map_or_else(|_| Self::default(), |reply| Self::read(&reply)))
    }

    /// What of `reply` is as it should be.
    fn read(reply: &ReplyPart) -> Self {
        let mut all = BTreeMap::new();
        for pair in reply.list().chunks_exact(2) {
            let (Some(name), [.., buckets]) = (pair[0].text(), pair[1].list()) else { continue };
            let numbers = |part: &ReplyPart| part.text()?.parse::<u64>().ok();
            let bounds =
                buckets.list().chunks_exact(2).filter_map(|pair| Some((numbers(&pair[0])?, numbers(&pair[1])?)));
            all.insert(name.to_owned(), bounds.collect());
        }
        Self(all)
    }

    /// Runs by their bound, of all commands together; the counts of `before` are not in it.
    fn since(&self, before: &Self) -> BTreeMap<u64, u64> {
        let mut runs = BTreeMap::new();
        for (name, bounds) in self.0.iter().filter(|(name, _)| !is_own(name)) {
            let none = BTreeMap::new();
            let old = before.0.get(name).unwrap_or(&none);
            let (mut counted, mut counted_before) = (0_u64, 0_u64);
            for (bound, up_to) in bounds {
                // A bound that no run had reached yet is not told: what is below it counts.
                let old_up_to = old.range(..=bound).next_back().map_or(0, |(_, up_to)| *up_to);
                let own = up_to.saturating_sub(counted).saturating_sub(old_up_to.saturating_sub(counted_before));
                *runs.entry(*bound).or_insert(0_u64) += own;
                (counted, counted_before) = (*up_to, old_up_to);
            }
        }
        runs
    }

    /// The bound in microseconds that `share` of the runs since `before` keep; nothing without runs.
    pub fn percentile_us(&self, before: &Self, share: f64) -> Option<u64> {
        let runs = self.since(before);
        let total: u64 = runs.values().fold(0, |sum, runs| sum.saturating_add(*runs));
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0_u64;
        runs.into_iter().find_map(|(bound, runs)| {
            seen = seen.saturating_add(runs);
            (total > 0 && seen >= wanted).then_some(bound)
        })
    }
}

/// Whether this view asks by this command.
pub fn is_own(command: &str) -> bool {
    OWN.contains(&command.split(['|', ' ']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(of: &[(&str, &[(u64, u64)])]) -> Durations {
        Durations(of.iter().map(|(name, bounds)| ((*name).to_owned(), bounds.iter().copied().collect())).collect())
    }

    #[test]
    fn percentiles_are_of_the_runs_between_two_samples() {
        let before = durations(&[("get", &[(1, 100), (2, 150)]), ("info", &[(512, 5)])]);
        let after =
            durations(&[("get", &[(1, 190), (2, 240), (64, 250)]), ("set", &[(4, 100)]), ("info", &[(512, 900)])]);
        // Since then: 90 of at most 1 µs, none of 2, 10 of 64; 100 of 4.
        assert_eq!(after.since(&before).into_iter().collect::<Vec<_>>(), [(1, 90), (2, 0), (4, 100), (64, 10)]);
        let percentile = |share| after.percentile_us(&before, share).unwrap();
        assert_eq!((percentile(0.4), percentile(0.5), percentile(0.95), percentile(0.99)), (1, 4, 4, 64));
        assert_eq!(after.percentile_us(&after, 0.5), None);
    }

    #[test]
    fn a_reply_of_another_form_tells_nothing() {
        let text = |words: &str| ReplyPart::Text(words.to_owned());
        let buckets = ReplyPart::List(vec![text("1"), text("7"), text("2"), text("x"), text("4")]);
        let figures = ReplyPart::List(vec![text("calls"), text("7"), text("histogram_usec"), buckets]);
        let good = ReplyPart::List(vec![text("get"), figures, text("set")]);
        assert_eq!(Durations::read(&good), durations(&[("get", &[(1, 7)])]));
        for odd in [text("x"), ReplyPart::List(vec![]), ReplyPart::List(vec![text("get"), text("x")])] {
            assert_eq!(Durations::read(&odd), Durations::default());
        }
    }

    #[test]
    fn a_server_that_began_anew_has_no_runs_below_zero() {
        let (many, few) = (durations(&[("get", &[(1, 100)])]), durations(&[("get", &[(1, 3)])]));
        assert_eq!(few.percentile_us(&many, 0.5), None);
    }
}
