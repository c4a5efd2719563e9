//! The experiment `types`: every type of value beside redis-server: requests a second, memory an element, how often a cache that
//! evicts still has what is asked for, how long a client waits beside work on large values, and what memory is lost to holes.
//!
//! Relies on the setup of the experiment `server`: one server is loaded at a time while the others idle, and rounds alternate.

mod eviction;
mod fragmentation;
mod memory_costs;
mod rates;
mod step_figures;
mod steps;

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::memory;
use crate::report::{BetterDirection, Figure, Report};
use crate::server::setup::{ExperimentSetup, PEER, SetupOptions};

const PARTS: [&str; 5] = ["rates", "memory", "eviction", "steps", "fragmentation"];

/// The arguments of `quire bench types`.
#[derive(Debug, Clone, clap::Args)]
pub struct TypesArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    #[command(flatten)]
    binary: BinaryArgs,
    /// A Valkey binary to set beside the others; one that can defragment, which Debian's redis-server can't
    #[arg(long, value_name = "FILE", env = "VALKEY_SERVER")]
    valkey: Option<PathBuf>,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_600)]
    port: u16,
}

/// What the parts measured; nothing of those that were not asked for.
#[derive(Debug)]
pub struct TypesResults {
    facts: Map<String, Value>,
    rates: Option<rates::RateResults>,
    memory: Option<memory_costs::MemoryResults>,
    eviction: Option<eviction::EvictionResults>,
    steps: Option<steps::StepResults>,
    fragmentation: Option<fragmentation::FragmentationResults>,
}

impl Experiment for TypesArgs {
    type Results = TypesResults;

    const NAME: &'static str = "types";
    const ABOUT: &'static str =
        "every type of value beside redis-server: rates, memory, hits, waits beside long work, fragmentation";
    const DRAWS: Option<&'static str> = Some("the longest waits beside work on large values");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<TypesResults> {
        let setup = ExperimentSetup::new(&SetupOptions {
            common: &self.common,
            binary: &self.binary,
            valkey: self.valkey.as_deref(),
            keys: 1000,
            value_bytes: 3,
            rate: 1000,
            port: self.port,
        })?;
        let wants = |part: &str| wants(&self.parts, part);
        setup.say("warming memory");
        memory::warm(self.common.pick(2 << 30, 256 << 20));
        let mut facts = Map::new();
        facts.insert("rounds".into(), setup.rounds.into());
        let results = TypesResults {
            facts,
            rates: wants("rates").then(|| rates::measure(&setup)).transpose()?,
            memory: wants("memory").then(|| memory_costs::measure(&setup)).transpose()?,
            eviction: wants("eviction").then(|| eviction::measure(&setup)).transpose()?,
            steps: wants("steps").then(|| steps::measure(&setup, self.common.rounds(1, 1))).transpose()?,
            fragmentation: wants("fragmentation").then(|| fragmentation::measure(&setup)).transpose()?,
        };
        setup.clear_line();
        Ok(results)
    }

    fn figures(&self, results: &TypesResults, report: &mut Report) {
        report.scale.extend(results.facts.clone());
        if let Some(found) = &results.rates {
            rates::figures(found, report);
        }
        if let Some(found) = &results.memory {
            memory_costs::figures(found, report);
        }
        if let Some(found) = &results.eviction {
            eviction::figures(found, report);
        }
        if let Some(found) = &results.steps {
            step_figures::figures(found, report);
        }
        if let Some(found) = &results.fragmentation {
            fragmentation::figures(found, report);
        }
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason =
            "servers get memory in steps of some MiB, beside which the elements of a quick run are little".to_owned();
        let small =
            "values of a quick run are a hundredth as large: what takes one step there takes many here".to_owned();
        let few = "what a process takes by itself counts beside so little data".to_owned();
        vec![("types_memory_", reason), ("steps_", small), ("fragmentation_", few)]
    }

    fn plots(&self, results: &TypesResults) -> Vec<Chart> {
        results.steps.as_ref().map(step_figures::charts).unwrap_or_default()
    }
}

/// A figure of many: the geometric mean of the ratios, and the worst of them by name.
fn summary(name: &str, better: BetterDirection, ratios: &[(String, f64)]) -> [Figure; 2] {
    let logarithms: f64 = ratios.iter().map(|(_, ratio)| ratio.ln()).sum();
    let mean = (logarithms / ratios.len().max(1) as f64).exp();
    let ordered = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
    let worst = match better {
        BetterDirection::Higher => ratios.iter().min_by(ordered),
        BetterDirection::Lower => ratios.iter().max_by(ordered),
    };
    let (worst_name, worst) = worst.map_or(("nothing", f64::NAN), |(name, ratio)| (name.as_str(), *ratio));
    [
        Figure::new(format!("{name}_geomean_vs_redis"), mean, "x", better)
            .note(format!("over {} ratios", ratios.len())),
        Figure::new(format!("{name}_worst_vs_redis"), worst, "x", better).note(worst_name),
    ]
}

/// The peer's number of those by program.
fn of_peer(numbers: &[(String, f64)]) -> f64 {
    numbers.iter().find(|(name, _)| name == PEER).map_or(f64::NAN, |(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_geometric_mean_and_names_the_worst() {
        let ratios = [("a".to_owned(), 4.0), ("b".to_owned(), 1.0)];
        let [mean, worst] = summary("x", BetterDirection::Higher, &ratios);
        assert_eq!((mean.name.as_str(), mean.value), ("x_geomean_vs_redis", 2.0));
        assert_eq!((worst.value, worst.note.as_str()), (1.0, "b"));
        let [_, worst] = summary("x", BetterDirection::Lower, &ratios);
        assert_eq!((worst.value, worst.note.as_str()), (4.0, "a"));
    }
}
