//! Part `footprint`: what a small key costs in memory.
//!
//! Relies on fresh servers; counts what each process grew by, as the system sees it.

use super::setup::{ExperimentSetup, PEER};
use crate::load::closed_loop;
use crate::memory;
use crate::report::{BetterDirection, Figure, Report};
use crate::requests::KEY_BYTES;

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 32;

/// Bytes a key of each program, ours first.
pub type FootprintResults = Vec<(String, f64)>;

/// Fills each program by itself.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<FootprintResults> {
    let mut per_key = Vec::new();
    for (index, program) in setup.programs().iter().enumerate() {
        setup.say(&format!("memory per key: {}", program.name));
        let candidate = setup.start(index, "footprint")?;
        let before = memory::proportional_bytes(candidate.server.pid())?;
        closed_loop::fill(candidate.server.port(), 0..KEYS, VALUE_BYTES, 2)?;
        let after = memory::proportional_bytes(candidate.server.pid())?;
        per_key.push((program.name.clone(), after.saturating_sub(before) as f64 / KEYS as f64));
        candidate.server.kill();
    }
    Ok(per_key)
}

/// Adds `memory_per_key_ratio`.
pub fn figures(per_key: &FootprintResults, report: &mut Report) {
    let ours = per_key[0].1;
    let theirs = per_key.iter().find(|(name, _)| name == PEER).map_or(f64::NAN, |(_, bytes)| *bytes);
    let mut figure = Figure::new("memory_per_key_ratio", ours / theirs, "x", BetterDirection::Lower).goal(0.8);
    for (name, bytes) in per_key {
        figure = figure.peer(name, *bytes);
    }
    let figure = figure.bound("the bytes of key and value by themselves", (KEY_BYTES + VALUE_BYTES) as f64 / theirs);
    report.results.push(figure.note("bytes a key by growth of the set size; 1M keys of 16 B, values of 32 B"));
}
