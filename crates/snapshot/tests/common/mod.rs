//! What the suite and the stress run share: memory to put mechanisms on, content that describes itself, writers.
//!
//! Relies on nothing of a mechanism but the two traits.

pub mod cells;
pub mod memory;

use quire_snapshot::{Mechanism, MechanismError, Origin, OriginOptions, PageRange, Precopy, attach};

/// Puts `mechanism` on `span`; `None`, with a line about it, only where it can't be had here.
pub fn attach_or_skip(mechanism: Mechanism, span: PageRange, options: &OriginOptions) -> Option<Box<dyn Origin>> {
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
pub fn all_options() -> Vec<OriginOptions> {
    let mut all = Vec::new();
    for precopy in [Precopy::None, Precopy::Threshold(80), Precopy::All, Precopy::Adaptive] {
        for region_bytes in [32 << 10, 2 << 20] {
            for background in [false, true] {
                all.push(OriginOptions { region_bytes, precopy, background, ..OriginOptions::default() });
            }
        }
    }
    all
}
