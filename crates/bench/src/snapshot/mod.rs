//! The experiment `snapshot`: all mechanisms side by side, from the stall of a cut to the memory that a view holds.
//!
//! Relies on `quire-snapshot` in this very process: a fork copies the page tables of the bench too, which holds little
//! beside the range. Memory is warmed before each visit.

mod cells;
mod figures;
mod first_write;

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cli::Args;
use crate::machine;
use crate::progress::Progress;
use crate::report::Report;
use cells::Scale;

/// Runs the experiment.
///
/// # Errors
/// When a snapshot is none, or a system call fails that has no business failing.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    let sizes: &[u64] = if args.quick { &[256, 768] } else { &[256, 1024, 2048, 4096] };
    let scale = Scale {
        quick: args.quick,
        sizes: if args.sizes.is_empty() { sizes.to_vec() } else { args.sizes.clone() },
        parts: args.parts.clone(),
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 2 }),
    };
    let progress = Progress::begin();
    let mut results = cells::visit_all(&scale, progress)?;
    if !scale.quick {
        cells::visit_fixed(figures::reference_mib(&scale.sizes), &mut results, progress)?;
    }
    let mut report = Report {
        experiment: "snapshot",
        machine: machine::facts(Path::new(".")),
        scale: facts(&scale),
        results: Vec::new(),
        info: Vec::new(),
    };
    figures::add(&results, &scale.sizes, &mut report);
    Ok(report)
}

fn facts(scale: &Scale) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("quick".into(), json!(scale.quick));
    facts.insert("sizes_mib".into(), json!(scale.sizes));
    facts.insert("rounds".into(), json!(scale.rounds));
    facts
}
