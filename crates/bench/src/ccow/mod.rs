//! The experiment `ccow`: the microbenchmark of CCoW (Ha & Kim, *Electronics* 2022, 11, 461), section 4.1, with coverage in
//! user space beside fork.
//!
//! Relies on what the paper says of it: memory in blocks of 1 KiB, written one by one as a Zipf distribution says; a cut each
//! time fork's throughput has recovered to 99 %, at the same interval for all configurations; snapshots that idle for two
//! intervals (one where memory would not do for two). What the paper leaves open is settled in `workload.rs`.

mod configuration;
mod figures;
mod picture;
mod recovery;
mod tour;
mod visit;
mod workload;

use std::path::Path;

use anyhow::ensure;
use serde_json::{Map, Value, json};

use crate::cli::Args;
use crate::machine;
use crate::progress::Progress;
use crate::report::Report;
use configuration::{FORK, FORK_THP};
use picture::Line;
use tour::{Found, Scale};

/// Runs the experiment.
///
/// # Errors
/// When a cut fails, or a picture can't be written.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    let sizes: &[u64] = if args.quick { &[256] } else { &[2048, 8192] };
    let scale = Scale {
        quick: args.quick,
        sizes: if args.sizes.is_empty() { sizes.to_vec() } else { args.sizes.clone() },
        skews: args.skews.clone(),
        parts: args.parts.clone(),
        epochs: args.rounds.unwrap_or(if args.quick { 2 } else { 3 }),
    };
    ensure!(scale.epochs > 0 && !scale.sizes.contains(&0), "there must be memory, and rounds to measure");
    let progress = Progress::begin();
    let mut settings = Vec::new();
    for setting in scale.settings() {
        settings.push(tour::run(&scale, setting, progress)?);
    }
    let mut report = Report {
        experiment: "ccow",
        machine: machine::facts(Path::new(".")),
        scale: facts(&scale, &settings),
        results: Vec::new(),
        info: Vec::new(),
    };
    figures::add(&settings, &mut report);
    if let (Some(dir), Some(found)) = (&args.plot, settings.last()) {
        draw(dir, found)?;
    }
    Ok(report)
}

fn facts(scale: &Scale, settings: &[Found]) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("quick".into(), json!(scale.quick));
    facts.insert("epochs".into(), json!(scale.epochs));
    facts.insert("warm_epochs".into(), json!(scale.warm()));
    let settings = settings.iter().map(|found| {
        json!({
            "mib": found.setting.mib,
            "skew": found.setting.skew,
            "layout": found.setting.layout,
            "interval_s": found.interval.as_secs_f64(),
            "recovery_s": found.recovery.interval.as_secs_f64(),
            "normal_writes_per_s": found.recovery.normal_per_s,
            "gave_up_waiting": found.recovery.gave_up,
            "views_alive": found.alive,
        })
    });
    facts.insert("settings".into(), settings.collect());
    facts
}

/// Both forks, and adaptive copying by each mechanism.
fn draw(dir: &Path, found: &Found) -> anyhow::Result<()> {
    let is_drawn = |name: &str| name.ends_with("_adaptive") || [FORK.name(), FORK_THP.name()].contains(&name.into());
    let lines: Vec<Line> = found
        .visits
        .iter()
        .map(|(configuration, visit)| Line { name: configuration.name(), slots: visit.slots.clone() })
        .filter(|line| is_drawn(&line.name))
        .collect();
    let tour::Setting { mib, skew, .. } = found.setting;
    let interval_s = found.interval.as_secs_f64();
    picture::draw(dir, &format!("{mib} MiB, zipf {skew}: a cut every {interval_s:.2} s"), &lines)
}
