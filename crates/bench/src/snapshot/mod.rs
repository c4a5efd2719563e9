//! The experiment `snapshot`: all mechanisms side by side, from the stall of a cut to the memory that a view holds.
//!
//! Relies on `quire-snapshot` in this very process: a fork copies the page tables of the bench too, which holds little
//! beside the range. Memory is warmed before each trial.

mod figures;
mod first_write;
mod scenarios;

use clap::builder::PossibleValuesParser;
use quire_snapshot::Mechanism;
use serde_json::{Map, Value, json};

use crate::experiment::{CommonArgs, Experiment};
use crate::progress::Progress;
use crate::report::Report;
use scenarios::{SnapshotResults, SnapshotScale};

/// The arguments of `quire bench snapshot`.
#[derive(Debug, Clone, clap::Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Mechanisms to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Mechanism::ALL.map(Mechanism::name)))]
    parts: Vec<String>,
    /// Sizes of memory in MiB, comma separated [default: 256,1024,2048,4096, quick: 256,768]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    sizes: Vec<u64>,
}

impl SnapshotArgs {
    fn scale(&self) -> SnapshotScale {
        let sizes = self.common.pick(&[256, 1024, 2048, 4096][..], &[256, 768]);
        SnapshotScale {
            quick: self.common.quick,
            sizes: if self.sizes.is_empty() { sizes.to_vec() } else { self.sizes.clone() },
            parts: self.parts.clone(),
            rounds: self.common.rounds(2, 1),
        }
    }
}

impl Experiment for SnapshotArgs {
    type Results = SnapshotResults;

    const NAME: &'static str = "snapshot";
    const ABOUT: &'static str = "Six ways to a snapshot of memory: stall, first writes, release, memory";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<SnapshotResults> {
        let scale = self.scale();
        let progress = Progress::begin();
        let mut results = scenarios::measure_all(&scale, progress)?;
        results.page_copy_ns = first_write::page_copy_ns();
        if !scale.quick {
            scenarios::measure_fixed(figures::reference_mib(&scale.sizes), &mut results, progress)?;
        }
        Ok(results)
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let (mib, full) = (figures::reference_mib(&self.scale().sizes), figures::REFERENCE_MIB);
        if mib >= full {
            return Vec::new();
        }
        let reason = format!("the stall of a fork grows with memory; {mib} MiB say nothing of {full} MiB");
        let writes = format!("what a first write costs differs by half between {mib} MiB and {full} MiB");
        vec![
            ("scoot_vs_fork_stall_ratio", reason.clone()),
            ("uffd_vs_fork_stall_ratio", reason),
            ("first_write_vs_fork_ratio", writes),
        ]
    }

    fn figures(&self, results: &SnapshotResults, report: &mut Report) {
        let scale = self.scale();
        report.scale.extend(facts(&scale));
        figures::add(results, &scale.sizes, report);
    }
}

fn facts(scale: &SnapshotScale) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("sizes_mib".into(), json!(scale.sizes));
    facts.insert("rounds".into(), json!(scale.rounds));
    facts
}
