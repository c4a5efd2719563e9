//! Rounds that alternate between the servers: the median of the ratios of rates, ours to the peer's.
//!
//! Relies on one server being loaded at a time; drift of the machine meets both of a round alike.

use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::report::{BetterDirection, Figure};
use crate::stats::Spread;

/// Calls `rate` for each of the `candidates` in every round; `what` is for the progress line.
pub fn ratio(
    setup: &ExperimentSetup,
    candidates: &[Candidate],
    name: &str,
    what: &str,
    mut rate: impl FnMut(&Candidate) -> anyhow::Result<f64>,
) -> anyhow::Result<Figure> {
    let mut rates = vec![Vec::new(); candidates.len()];
    for round in 0..setup.rounds {
        setup.say(&format!("{what}, round {} of {}", round + 1, setup.rounds));
        for turn in 0..candidates.len() {
            // Every other round goes backwards, so that no server is always first.
            let index = if round % 2 == 0 { turn } else { candidates.len() - 1 - turn };
            rates[index].push(rate(&candidates[index])?);
        }
    }
    let peer = candidates.iter().position(|candidate| candidate.server.name() == PEER).unwrap_or(0);
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[peer]).map(|(ours, theirs)| ours / theirs).collect();
    let spread = Spread::of(&ratios).expect("there is at least one round");
    let mut figure = Figure::new(name, spread.median, "x", BetterDirection::Higher).spread(spread);
    for (candidate, rates) in candidates.iter().zip(&rates) {
        figure = figure.peer(candidate.server.name(), Spread::of(rates).map_or(0.0, |spread| spread.median.round()));
    }
    Ok(figure)
}
