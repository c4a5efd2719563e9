//! The experiment `checkpoint`: a program that saves by forking, with stdio and with `mdc_*`, whose child gives its memory back.
//!
//! Relies on one C program for both (`saver.c`), which is compiled here, so that they differ in the calls that save and restore
//! only. Both live for the whole run and take turns. Memory is measured from outside, as the proportional set size of the program
//! and its child. The part `sweep` does it for several sizes of data, shares of updates and numbers of programs, the part `redis` with
//! redis-server, and the part `server` sets Quire's own saves beside redis-server's.

mod calibration;
mod charts;
mod figures;
mod program;
mod redis;
mod server;
mod sweep;
mod trial;

use serde_json::{Map, Value, json};

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::progress::Progress;
use crate::report::Report;
use crate::{disk, memory};
use program::{SaveMethod, SaverProcess};
use trial::{RestoreResult, SaveResult};

/// Saves of each program before those that count.
const WARM_UPS: usize = 2;
const FIRST_SEED: u64 = 77;
/// What can be measured by itself. A small run has no [`BUILDING`] and no [`SWEEP`], unless it is told.
const PARTS: [&str; 4] = ["program", SWEEP, BUILDING, "server"];
/// The part that builds redis-server.
const BUILDING: &str = "redis";
/// The part that goes through sizes of data, shares of updates and numbers of programs.
const SWEEP: &str = "sweep";
/// Close enough to the share that a load is named for: those of two saves at the same rate differ by as much.
const TOLERANCE: f64 = 0.03;
/// Bytes that the allocator keeps beside each value.
const ALLOCATOR_BYTES: u64 = 16;

/// How the entries are updated during a save.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateLoad {
    /// The load's name in figures.
    pub name: &'static str,
    /// How often it updates.
    pub pace: UpdateRate,
    /// Exponent of the Zipf distribution of entries; 0 is uniform.
    pub skew: f64,
    /// Updates among the operations; the others are reads.
    pub share: f64,
}

/// How often a load updates entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UpdateRate {
    /// As often as makes a fork duplicate this share of the data: the rate is found by saves of stdio that do not count.
    ForkGrowth(f64),
    /// Updates in the time of a save by stdio without updates, over the number of pages that the entries take.
    UpdatesPerPage(f64),
}

/// The loads; 0.77 is what the paper states for redis-server.
pub const LOADS: [UpdateLoad; 4] = [
    UpdateLoad { name: "uniform_77", pace: UpdateRate::ForkGrowth(0.77), skew: 0.0, share: 1.0 },
    UpdateLoad { name: "uniform_50", pace: UpdateRate::ForkGrowth(0.5), skew: 0.0, share: 1.0 },
    UpdateLoad { name: "uniform_25", pace: UpdateRate::ForkGrowth(0.25), skew: 0.0, share: 1.0 },
    UpdateLoad { name: "zipf", pace: UpdateRate::UpdatesPerPage(4.0), skew: 0.99, share: 1.0 },
];

/// The results of all trials.
#[derive(Debug, Default)]
pub struct TrialResults {
    /// The saves.
    pub trials: Vec<SaveResult>,
    /// The restores.
    pub restores: Vec<RestoreResult>,
    /// Bytes a second of a raw write of the same amount, of each round.
    pub raw_write_bytes_per_s: Vec<f64>,
    /// Updates a second, of each load.
    pub updates_per_s: Vec<f64>,
    /// The part `sweep`, if it was run.
    sweep: Option<sweep::SweepResults>,
    /// The part `redis`, or why it could not be run.
    redis: Option<Result<redis::RedisResults, String>>,
    /// The part `server`, or why it can't be run here.
    server: Option<Result<server::ServerSaves, String>>,
}

/// The arguments of `quire bench checkpoint`.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Data in each program, in MiB [default: 2048, quick: 192]
    #[arg(long)]
    mib: Option<u64>,
    /// Bytes in each value
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(8..=1_048_576))]
    value_bytes: u64,
    /// Parts to run, comma separated: program, sweep, redis, server [default: all, quick: program,server]
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    #[command(flatten)]
    sweep: sweep::SweepArgs,
    #[command(flatten)]
    binary: BinaryArgs,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_700)]
    port: u16,
}

impl CheckpointArgs {
    fn wants(&self, part: &str) -> bool {
        if self.parts.is_empty() && self.common.quick {
            ![BUILDING, SWEEP].contains(&part)
        } else {
            wants(&self.parts, part)
        }
    }

    fn data_bytes(&self) -> u64 {
        self.mib.unwrap_or(self.common.pick(2048, 192)).max(1) << 20
    }

    fn entries(&self) -> u64 {
        (self.data_bytes() / (self.value_bytes + ALLOCATOR_BYTES)).max(2)
    }

    fn loads(&self) -> &'static [UpdateLoad] {
        self.common.pick(&LOADS, &LOADS[..1])
    }
}

impl Experiment for CheckpointArgs {
    type Results = TrialResults;

    const NAME: &'static str = "checkpoint";
    const ABOUT: &'static str =
        "Quire, and a program and redis-server that save by forking, plainly and with mdc_*: memory, time, restore";
    const DRAWS: Option<&'static str> = Some(
        "memory over time during a save; memory, throughput, times and file by size, by share of updates, by programs",
    );

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<TrialResults> {
        let progress = Progress::begin();
        let dir = self.common.make_dir()?;
        let say = |what: &str| progress.say(what);
        let mut results =
            if self.wants("program") { of_program(self, dir.path(), say)? } else { TrialResults::default() };
        if self.wants(SWEEP) {
            results.sweep = Some(sweep::run(self, dir.path(), &say)?);
        }
        if self.wants("redis") {
            let measured = redis::run(self, dir.path(), &say);
            results.redis = Some(measured.map_err(|error| format!("{error:#}")));
        }
        if self.wants("server") {
            results.server = Some(match server::hindrance() {
                Some(reason) => Err(reason),
                None => Ok(server::run(self, dir.path(), &say)?),
            });
        }
        Ok(results)
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "its saves are too short for the memory between them to be seen";
        let forked =
            ["mdc_fork_memory_growth", "mdc_fork_checkpoint_time_ratio", "mdc_fork_restore_time_ratio", "mdc_redis"];
        let of_server =
            "its saves take less time than a server to tell of their end, and the budget is a large part of its data";
        let forked = forked.into_iter().map(|name| (name, reason.into()));
        forked.chain(server::NAMES.into_iter().map(|name| (name, of_server.into()))).collect()
    }

    fn figures(&self, results: &TrialResults, report: &mut Report) {
        if self.wants("program") {
            report.scale.extend(facts(self, results));
            figures::add(results, report);
        }
        if let Some(sweep) = &results.sweep {
            report.scale.extend(sweep::facts(sweep));
            sweep::add(sweep, report);
        }
        match &results.redis {
            Some(Ok(redis)) => {
                report.scale.extend(redis::facts(redis));
                redis::add(redis, report);
            }
            Some(Err(reason)) => redis::not_measured(reason, report),
            None => {}
        }
        match &results.server {
            Some(Ok(saves)) => {
                report.scale.extend(server::facts(saves));
                server::add(saves, report);
            }
            Some(Err(reason)) => server::not_measured(reason, report),
            None => {}
        }
    }

    fn plots(&self, results: &TrialResults) -> Vec<Chart> {
        let mut drawn = if self.wants("program") { charts::of(results, self.data_bytes()) } else { Vec::new() };
        drawn.extend(results.sweep.iter().flat_map(sweep::charts));
        drawn
    }
}

fn of_program(args: &CheckpointArgs, dir: &std::path::Path, say: impl Fn(&str)) -> anyhow::Result<TrialResults> {
    let binaries = program::compile(dir)?;
    say("warming memory");
    memory::warm(args.data_bytes() * 4);
    let [stdio, mdc] =
        binaries.map(|binary| SaverProcess::start(binary, dir, args.entries(), args.value_bytes, FIRST_SEED));
    measure(args, dir, [stdio?, mdc?], say)
}

fn measure(
    args: &CheckpointArgs,
    dir: &std::path::Path,
    mut savers: [SaverProcess; 2],
    say: impl Fn(&str),
) -> anyhow::Result<TrialResults> {
    let mut results = TrialResults::default();
    let still = UpdateLoad { name: "still", pace: UpdateRate::UpdatesPerPage(0.0), skew: 0.0, share: 1.0 };
    let mut save_s = 0.0;
    for saver in &mut savers {
        for number in 0..WARM_UPS {
            say(&format!("save {} of {WARM_UPS} by {}, not counted", number + 1, saver.method().name()));
            let trial = trial::save(saver, still, 0, 0.0, args.data_bytes())?;
            if saver.method() == SaveMethod::Stdio {
                save_s = trial.save_s;
            }
        }
    }
    results.updates_per_s = calibration::rates(args, &mut savers, save_s, &say)?;
    let rounds = args.common.rounds(5, 1);
    for round in 0..rounds {
        results.raw_write_bytes_per_s.push(disk::raw_write_bytes_per_s(dir, args.data_bytes())?);
        for (&load, &per_s) in args.loads().iter().zip(&results.updates_per_s) {
            // Who goes first changes, so that neither always finds the other's leftovers.
            let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for index in order {
                let saver = &mut savers[index];
                let name = saver.method().name();
                say(&format!("round {} of {rounds}: {name} under {}", round + 1, load.name));
                let trial = trial::save(saver, load, round, per_s, args.data_bytes())?;
                if load == LOADS[0] {
                    say(&format!("round {} of {rounds}: restore by {name}", round + 1));
                    results.restores.push(trial::restore(saver, round, trial.sum)?);
                }
                results.trials.push(trial);
            }
        }
    }
    Ok(results)
}

fn facts(args: &CheckpointArgs, results: &TrialResults) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("data_mib".into(), json!(args.data_bytes() >> 20));
    facts.insert("entries".into(), json!(args.entries()));
    facts.insert("value_bytes".into(), json!(args.value_bytes));
    facts.insert("rounds".into(), json!(results.raw_write_bytes_per_s.len()));
    for (load, per_s) in args.loads().iter().zip(&results.updates_per_s) {
        facts.insert(format!("{}_updates_per_s", load.name), json!(per_s.round()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::parse;

    #[test]
    fn the_entries_take_as_much_memory_as_was_asked_for() {
        let args = parse::<CheckpointArgs>("--mib 100 --value-bytes 48");
        assert_eq!(args.entries() * 64, 100 << 20);
        assert!(parse::<CheckpointArgs>("--quick").data_bytes() < parse::<CheckpointArgs>("").data_bytes());
    }

    #[test]
    fn a_small_run_builds_no_redis_server_unless_it_is_told_to() {
        let parts = |words: &str| PARTS.map(|part| parse::<CheckpointArgs>(words).wants(part));
        assert_eq!(parts(""), [true; 4]);
        assert_eq!(parts("--quick"), [true, false, false, true]);
        assert_eq!(parts("--quick --parts redis,sweep"), [false, true, true, false]);
        assert_eq!(parts("--parts server"), [false, false, false, true]);
    }

    #[test]
    fn a_small_run_has_the_load_that_figures_are_stated_for() {
        assert_eq!(parse::<CheckpointArgs>("--quick").loads(), &LOADS[..1]);
        assert_eq!(parse::<CheckpointArgs>("").loads(), LOADS);
    }
}
