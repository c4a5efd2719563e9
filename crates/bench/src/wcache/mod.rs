//! The experiment `wcache`: six admission policies of the write cache under real programs, beside each other on this
//! machine (Kim, Jeong, et al., *Request-Oriented Durable Write Caching for Application Performance*, USENIX ATC 2015),
//! and Quire's own log beside redis-server's.
//!
//! Relies on loop devices slowed down by cgroup v1 for disks with seeks, on memory or a throttled loop device for the
//! fast device, on `quire mount` between them, and on PostgreSQL and redis-server in front. A part whose needs aren't
//! met here is not run, and its figures say why.

mod cache_policy;
mod charts;
mod detail_figures;
mod experiment_context;
mod figures;
mod load_phase;
mod parts;
mod pg;
mod scale;
mod scenarios;
pub(crate) mod testbed;
pub(crate) mod tpcc;
mod trial_observer;
mod trial_results;
mod trial_stats;
mod trials;
mod ycsb;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::progress::Progress;
use crate::report::{Figure, Report};
use experiment_context::ExperimentContext;
use parts::{log_commits, mount_overhead};
use scale::WcacheScale;
use scenarios::{Scenario, Workload};
use testbed::command::{program, run as run_program};
use testbed::interrupt::Interrupt;
use testbed::run_dir::RunDir;
use trial_results::{TrialResult, TrialResults};
use trials::{database, key_values};

const PARTS: [&str; 4] = ["pg", "redis", "log", "mount"];

/// The arguments of `quire bench wcache`.
#[derive(Debug, Clone, clap::Args)]
pub struct WcacheArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    /// Capacities of the cache in MiB, comma separated [default: 32,128,512,4096, quick: 32,512]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Policies, comma separated: ALL,SYNC,WAL,CP,CP+PI,CP+PI+IOI [default: all of them]
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Seconds of each trial that count [default: 60, quick: 3]
    #[arg(long)]
    seconds: Option<u64>,
    /// Warehouses of TPC-C [default: 10, quick: a small one]
    #[arg(long)]
    warehouses: Option<u32>,
    /// Clients of the database [default: 24, quick: 8]
    #[arg(long)]
    terminals: Option<usize>,
    /// Records in each redis-server [default: 500000, quick: 20000]
    #[arg(long)]
    keys: Option<u64>,
    /// Requests a second of a slow disk
    #[arg(long, default_value_t = 150)]
    slow_iops: u64,
    /// Requests a second of the SSD before the stores; the database's has a quarter of them
    #[arg(long, default_value_t = 2000)]
    fast_iops: u64,
    #[command(flatten)]
    binary: BinaryArgs,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_500)]
    port: u16,
}

/// The results of a run.
#[derive(Debug)]
pub struct WcacheResults {
    results: TrialResults,
    facts: Map<String, Value>,
    /// The figures of each part that was asked for, or why it could not be run.
    parts: Vec<(&'static str, Result<PartFigures, String>)>,
}

/// The figures of a part.
#[derive(Debug, Default)]
struct PartFigures {
    results: Vec<Figure>,
    info: Vec<Figure>,
}

impl Experiment for WcacheArgs {
    type Results = WcacheResults;

    const NAME: &'static str = "wcache";
    const ABOUT: &'static str =
        "PostgreSQL and Redis over a write cache, six admission policies; Quire's log beside Redis's";
    const DRAWS: Option<&'static str> = Some("throughput over capacities, and waits");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<WcacheResults> {
        let scale = WcacheScale::new(self)?;
        let quire = self.binary.path()?;
        let quire = quire.canonicalize().with_context(|| format!("finding {}", quire.display()))?;
        let interrupt = Interrupt::noted()?;
        let run_dir = RunDir::new(self.common.dir())?;
        let context =
            ExperimentContext { scale, run_dir, interrupt, progress: Progress::begin(), quire, port: self.port };
        let mut outcome =
            WcacheResults { results: TrialResults::default(), facts: context.scale.facts(), parts: Vec::new() };
        let is_wanted = |part: &str| wants(&self.parts, part);
        let mut template = Err(anyhow::anyhow!("not asked for"));
        if is_wanted("pg") || is_wanted("mount") && !context.scale.quick {
            template = mount_is_possible(&context).and_then(|()| database::DatabaseTemplate::make(&context));
            context.interrupt.check()?;
        }
        for part in PARTS.into_iter().filter(|part| is_wanted(part)) {
            let measured = match part {
                "pg" => outcome.database(&context, template.as_ref()),
                "redis" => outcome.key_values(&context),
                "log" => log_commits::measure(&context)
                    .map(|commits| PartFigures { results: commits.figures, info: commits.info }),
                _ => mount(&context, template.as_ref().ok()),
            };
            context.interrupt.check()?;
            outcome.parts.push((part, measured.map_err(|error| format!("{error:#}"))));
        }
        Ok(outcome)
    }

    fn figures(&self, outcome: &WcacheResults, report: &mut Report) {
        report.scale.extend(outcome.facts.clone());
        for (part, measured) in &outcome.parts {
            match measured {
                Ok(PartFigures { results, info }) => {
                    report.results.extend(results.iter().cloned());
                    report.info.extend(info.iter().cloned());
                }
                Err(reason) => {
                    report.results.extend(figures::not_run(part, reason));
                    let reasons = report.scale.entry("not_run").or_insert_with(|| json!({}));
                    reasons[*part] = json!(reason);
                }
            }
        }
        report.info.extend(detail_figures::of(&outcome.results));
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "its database fits into the cache, and its seconds are too few for the log to fill";
        let gains = ["pg_", "pi_gain", "ioi_gain", "redis_vs_all", "redis_cached_writes_saved"];
        let mut beyond = gains.map(|name| (name, reason.to_owned())).to_vec();
        beyond.push(("redis_p999_ms", "it has too few requests, and saves of too little data".to_owned()));
        beyond
    }

    fn plots(&self, outcome: &WcacheResults) -> Vec<Chart> {
        charts::of(&outcome.results)
    }
}

impl WcacheResults {
    fn database(
        &mut self,
        context: &ExperimentContext,
        template: Result<&database::DatabaseTemplate, &anyhow::Error>,
    ) -> anyhow::Result<PartFigures> {
        let template = template.map_err(|error| anyhow::anyhow!("{error:#}"))?;
        self.facts.insert("postgresql".into(), json!(template.programs().version()));
        for round in 0..context.scale.rounds {
            for scenario in scenarios::of_database(&context.scale, round) {
                let make = || database::trial(template, scenario, round as u64 + 1, context);
                trial(context, &mut self.results, scenario, round, make)?;
            }
        }
        Ok(PartFigures { results: figures::of_database(&self.results, &context.scale), info: Vec::new() })
    }

    fn key_values(&mut self, context: &ExperimentContext) -> anyhow::Result<PartFigures> {
        mount_is_possible(context)?;
        let template = key_values::KeyValueTemplate::make(context)?;
        for round in 0..context.scale.rounds {
            for scenario in scenarios::of_key_values(&context.scale, round) {
                let Workload::Ycsb(workload) = scenario.work else {
                    bail!("{} is not for redis-server", scenario.work.name())
                };
                let make = || key_values::trial(&template, scenario, workload, context);
                trial(context, &mut self.results, scenario, round, make)?;
            }
        }
        Ok(PartFigures { results: figures::of_key_values(&self.results, &context.scale), info: Vec::new() })
    }
}

/// What a mount costs; with the database only in a full run.
fn mount(context: &ExperimentContext, template: Option<&database::DatabaseTemplate>) -> anyhow::Result<PartFigures> {
    mount_is_possible(context)?;
    let template = template.filter(|_| !context.scale.quick);
    let mut results = mount_overhead::measure(context, template)?;
    let info = results.split_off(1);
    Ok(PartFigures { results, info })
}

/// Whether slow disks and mounts can be had here.
fn mount_is_possible(context: &ExperimentContext) -> anyhow::Result<()> {
    ensure!(quire_sys::ask::is_root(), "slow disks and mounts for other users take root");
    ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse; load the module (modprobe fuse)");
    ensure!(Path::new("/dev/loop-control").exists(), "there are no loop devices; load the module (modprobe loop)");
    let controller = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    ensure!(controller.is_file(), "the blkio controller of cgroup v1 is not at /sys/fs/cgroup/blkio");
    for (name, package) in [("losetup", "mount"), ("mount", "mount"), ("mkfs.ext4", "e2fsprogs")] {
        program(name, package)?;
    }
    let help = run_program(Command::new(&context.quire).args(["mount", "--help"]));
    ensure!(help.is_ok(), "{} has no command `mount`", context.quire.display());
    Ok(())
}

/// Runs a trial and notes what came of it. A failure is a result, too; an interrupt ends everything.
fn trial(
    context: &ExperimentContext,
    results: &mut TrialResults,
    scenario: Scenario,
    round: usize,
    make: impl FnOnce() -> anyhow::Result<trial_stats::TrialStats>,
) -> anyhow::Result<()> {
    context.interrupt.check()?;
    context.progress.say(&format!("round {}: {}", round + 1, scenario.name()));
    let outcome = make();
    context.interrupt.check()?;
    let outcome = outcome.map_err(|error| format!("{error:#}"));
    if let Err(reason) = &outcome {
        context.progress.say(&format!("{}: {reason}", scenario.name()));
    }
    results.trials.push(TrialResult { scenario, round, outcome });
    Ok(())
}
