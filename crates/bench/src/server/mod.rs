//! The experiment `server`: Quire beside redis-server (and Valkey, if given) under the same loads.
//!
//! Relies on one server being loaded at a time while the others idle, and on rounds that alternate between them, so that
//! drift of the machine meets all alike. Each part measures by itself and makes its own figures.

mod footprint;
mod incremental;
mod latency;
pub(crate) mod restart;
mod restore;
mod save;
mod sets;
pub(crate) mod setup;
mod sizes;
mod throughput;

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::memory;
use crate::report::Report;
use setup::{ExperimentSetup, SetupOptions};

/// Keys of a full run, and of a small one.
const KEYS: u64 = 3_000_000;
const FEW_KEYS: u64 = 300_000;
const PARTS: [&str; 9] =
    ["throughput", "save", "incremental", "latency", "restart", "restore", "footprint", "sets", "sizes"];

/// The arguments of `quire bench server`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    /// Keys in the data set [default: 3000000, quick: 300000]
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes in each value
    #[arg(long, default_value_t = 1000)]
    value_bytes: usize,
    /// Requests per second of the steady load during which saves are timed
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    #[command(flatten)]
    binary: BinaryArgs,
    /// A Valkey binary to set beside Quire and Redis
    #[arg(long, value_name = "FILE", env = "VALKEY_SERVER")]
    valkey: Option<PathBuf>,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_500)]
    port: u16,
}

/// What the parts measured; nothing of those that were not asked for.
#[derive(Debug)]
pub struct ServerResults {
    facts: Map<String, Value>,
    throughput: Option<throughput::ThroughputResults>,
    save: Option<save::SaveResults>,
    latency: Option<latency::LatencyResults>,
    restart: Option<restart::RestartResults>,
    restore: Option<restore::RestoreResults>,
    incremental: Option<incremental::IncrementalResults>,
    footprint: Option<footprint::FootprintResults>,
    sets: Option<sets::SetResults>,
    sizes: Option<sizes::SizeResults>,
}

impl Experiment for ServerArgs {
    type Results = ServerResults;

    const NAME: &'static str = "server";
    const ABOUT: &'static str =
        "Quire beside redis-server: throughput, sets, saves, latency, restarts, restores, memory";
    const DRAWS: Option<&'static str> = Some("latency over time");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<ServerResults> {
        let setup = ExperimentSetup::new(&SetupOptions {
            common: &self.common,
            binary: &self.binary,
            valkey: self.valkey.as_deref(),
            keys: self.keys.unwrap_or(self.common.pick(KEYS, FEW_KEYS)),
            value_bytes: self.value_bytes,
            rate: self.rate,
            port: self.port,
        })?;
        let wants = |part: &str| wants(&self.parts, part);
        let mut results = ServerResults {
            facts: setup.facts(),
            throughput: None,
            save: None,
            latency: None,
            restart: None,
            restore: None,
            incremental: None,
            footprint: None,
            sets: None,
            sizes: None,
        };
        setup.say("warming memory");
        memory::warm(setup.memory_bytes());
        if wants("footprint") {
            results.footprint = Some(footprint::measure(&setup)?);
        }
        if wants("sets") {
            results.sets = Some(sets::measure(&setup)?);
        }
        if wants("incremental") {
            results.incremental = Some(incremental::measure(&setup)?);
        }
        if ["throughput", "save", "latency", "restart", "restore"].into_iter().any(wants) {
            let mut candidates = setup.start_filled()?;
            if wants("throughput") {
                results.throughput = Some(throughput::measure(&setup, &mut candidates)?);
            }
            if wants("save") {
                results.save = Some(save::measure(&setup, &mut candidates)?);
            }
            if wants("latency") {
                results.latency = Some(latency::measure(&setup, &mut candidates)?);
            }
            if wants("restart") {
                let restarts;
                (restarts, candidates) = restart::measure(&setup, candidates)?;
                results.restart = Some(restarts);
            }
            if wants("restore") {
                results.restore = Some(restore::measure(&setup, candidates)?);
            }
        }
        if wants("sizes") && !self.common.quick {
            results.sizes = Some(sizes::measure(&setup)?);
        }
        setup.clear_line();
        Ok(results)
    }

    fn figures(&self, results: &ServerResults, report: &mut Report) {
        report.scale.extend(results.facts.clone());
        if let Some(found) = &results.footprint {
            footprint::figures(found, report);
        }
        if let Some(found) = &results.throughput {
            throughput::figures(found, report);
        }
        if let Some(found) = &results.save {
            save::figures(found, report);
        }
        if let Some(found) = &results.latency {
            latency::figures(found, self.rate, report);
        }
        if let Some(found) = &results.restart {
            restart::figures(found, report);
        }
        if let Some(found) = &results.restore {
            restore::figures(found, report);
        }
        if let Some(found) = &results.incremental {
            incremental::figures(found, report);
        }
        if let Some(found) = &results.sets {
            sets::figures(found, report);
        }
        if let Some(found) = &results.sizes {
            sizes::figures(found, report);
        }
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "the stall of a fork, the length of a save and the time of a restart grow with the data, of which a quick run \
                      has a tenth";
        let names = [
            "cut_stall_ratio",
            "p999_during_save_ratio",
            "restart_ratio",
            "restore_time_ratio",
            "restore_vs_disk_ratio",
            "incremental_1pct_time_ratio",
        ];
        if self.keys.is_some_and(|keys| keys >= KEYS) {
            return Vec::new();
        }
        let mut beyond = names.map(|name| (name, reason.to_owned())).to_vec();
        beyond
            .push(("save_vs_disk_ratio", "starting a save is a large part of writing a tenth of the data".to_owned()));
        beyond
    }

    fn plots(&self, results: &ServerResults) -> Vec<Chart> {
        results.latency.as_ref().map(latency::charts).unwrap_or_default()
    }
}
