//! How many times as fast one candidate is as another.
//!
//! Relies on ratios that were taken inside a round.

use crate::stats::Spread;

/// Two candidates compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many times as fast, over the rounds.
    pub spread: Spread,
    /// The pools' sizes in twelfths: ours, and the peer's; of the last round if each round has its own.
    pub pool_twelfths: [u64; 2],
}
