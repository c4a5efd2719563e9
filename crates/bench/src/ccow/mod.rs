//! The experiment `ccow`: the microbenchmark of CCoW (Ha & Kim, *Electronics* 2022, 11, 461), section 4.1, with coverage in
//! user space beside fork.
//!
//! Relies on what the paper says of it: memory in blocks of 1 KiB, written one by one as a Zipf distribution says; a cut each
//! time fork's throughput has recovered to 99 %, at the same interval for all configurations; snapshots that idle for two
//! intervals (one where memory would not do for two). What the paper leaves open is settled in `workload.rs`.

mod configuration;
mod figures;
mod recovery;
mod schedule;
mod trial;
mod workload;

use anyhow::ensure;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value, json};

use crate::chart::{self, Axis, Chart, ChartKind, Series};
use crate::experiment::{CommonArgs, Experiment};
use crate::progress::Progress;
use crate::report::Report;
use configuration::{Configuration, FORK, FORK_THP};
use schedule::{CcowScale, ScenarioResult};

/// The arguments of `quire bench ccow`.
#[derive(Debug, Clone, clap::Args)]
pub struct CcowArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Configurations to run, comma separated, such as fork,barrier_80,uffd_adaptive [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Configuration::names()))]
    parts: Vec<String>,
    /// Sizes of memory in MiB, comma separated [default: 2048,8192, quick: 256]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Zipf exponents, comma separated [default: 0.9,1.1,1.0, quick: 1.0]
    #[arg(long, value_name = "SKEW", value_delimiter = ',')]
    skews: Vec<f64>,
}

impl CcowArgs {
    fn scale(&self) -> CcowScale {
        let sizes = self.common.pick(&[2048, 8192][..], &[256]);
        CcowScale {
            quick: self.common.quick,
            sizes: if self.sizes.is_empty() { sizes.to_vec() } else { self.sizes.clone() },
            skews: self.skews.clone(),
            parts: self.parts.clone(),
            epochs: self.common.rounds(3, 2),
        }
    }
}

impl Experiment for CcowArgs {
    type Results = Vec<ScenarioResult>;

    const NAME: &'static str = "ccow";
    const ABOUT: &'static str = "Writes under repeated snapshots: copying by coverage beside fork";
    const DRAWS: Option<&'static str> = Some("throughput over time around cuts");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<Vec<ScenarioResult>> {
        let scale = self.scale();
        ensure!(!scale.sizes.contains(&0), "there is nothing to measure in 0 MiB; give --sizes others");
        let progress = Progress::begin();
        scale.scenarios().into_iter().map(|scenario| schedule::run(&scale, scenario, progress)).collect()
    }

    fn figures(&self, scenarios: &Vec<ScenarioResult>, report: &mut Report) {
        report.scale.extend(facts(&self.scale(), scenarios));
        figures::add(scenarios, report);
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "cuts come sooner than fork has recovered from the last, over an eighth of the memory";
        ["ccow_throughput_gain", "ccow_memory_overhead", "ccow_unneeded_ratio"]
            .map(|name| (name, reason.into()))
            .to_vec()
    }

    fn plots(&self, scenarios: &Vec<ScenarioResult>) -> Vec<Chart> {
        scenarios.last().map(chart).into_iter().collect()
    }
}

fn facts(scale: &CcowScale, scenarios: &[ScenarioResult]) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("epochs".into(), json!(scale.epochs));
    facts.insert("warm_epochs".into(), json!(scale.warm()));
    let scenarios = scenarios.iter().map(|found| {
        json!({
            "mib": found.scenario.mib,
            "skew": found.scenario.skew,
            "layout": found.scenario.layout,
            "interval_s": found.interval.as_secs_f64(),
            "recovery_s": found.recovery.interval.as_secs_f64(),
            "normal_writes_per_s": found.recovery.normal_per_s,
            "gave_up_waiting": found.recovery.gave_up,
            "views_alive": found.alive,
        })
    });
    facts.insert("settings".into(), scenarios.collect());
    facts
}

/// Both forks, and adaptive copying by each mechanism.
fn chart(found: &ScenarioResult) -> Chart {
    let is_drawn = |name: &str| name.ends_with("_adaptive") || [FORK.name(), FORK_THP.name()].contains(&name.into());
    let series = found
        .trials
        .iter()
        .map(|(configuration, trial)| Series { name: configuration.name(), points: trial.slots.clone() });
    let schedule::Scenario { mib, skew, .. } = found.scenario;
    let goal =
        figures::better_fork(found).map(|(_, per_s)| ("goal: 1.25 × fork".to_owned(), (1.0 + figures::GAIN) * per_s));
    let bound = ("bound: no view".to_owned(), found.recovery.huge_pages_per_s);
    Chart {
        file: "ccow-throughput".into(),
        title: format!("{mib} MiB, zipf {skew}: a cut every {:.2} s", found.interval.as_secs_f64()),
        x: Axis::new("seconds since a cut", "seconds", chart::AxisScale::Linear),
        y: Axis {
            unit: 1e6,
            levels: goal.into_iter().chain([bound]).collect(),
            ..Axis::new("million writes a second", "writes_per_second", chart::AxisScale::Linear)
        },
        body: ChartKind::Lines { marks: false, shaded: Vec::new() },
        series: series.filter(|series| is_drawn(&series.name)).collect(),
    }
}
