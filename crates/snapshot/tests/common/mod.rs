//! What the suite and the stress run share: memory to put mechanisms on, content that describes itself, writers.
//!
//! Relies on nothing of a mechanism but the two traits.

pub mod cells;
pub mod memory;

use quire_snapshot::{Mechanism, MechanismError, Options, Origin, Precopy, Span, attach};

/// Puts `mechanism` on `span`; `None`, with a line about it, only where it can't be had here.
pub fn attach_or_skip(mechanism: Mechanism, span: Span, options: &Options) -> Option<Box<dyn Origin>> {
    match attach(mechanism, span, options) {
        Ok(origin) => {
            assert_eq!(origin.mechanism(), mechanism);
            Some(origin)
        }
        Err(MechanismError::Unsupported { reason, .. }) => {
            quire_sys::testing::skipped(format!("{mechanism}: {reason}"));
            None
        }
        Err(error) => panic!("{mechanism}: {error}"),
    }
}

/// Every way to be told how to copy, for mechanisms that listen.
pub fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for precopy in [Precopy::None, Precopy::Threshold(80), Precopy::All, Precopy::Adaptive] {
        for region_bytes in [32 << 10, 2 << 20] {
            for background in [false, true] {
                all.push(Options { region_bytes, precopy, background, ..Options::default() });
            }
        }
    }
    all
}

/// The next of a row of pseudo-random numbers (splitmix64).
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
