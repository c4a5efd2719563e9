//! The experiment `forkers`: redis-server that saves periodically under an update-heavy Zipf load, with and without the
//! preload library.
//!
//! Relies on both servers living for the whole run and taking turns, so that drift of the machine meets both
//! alike. The library learns from earlier children what will be written, so each server makes a few saves under load
//! before the first that counts, and one in every round: skew and seed change from round to round, the same for both.

mod candidates;
mod epochs;
mod figures;
pub mod library;
mod trial;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::experiment::{CommonArgs, Experiment};
use crate::memory;
use crate::progress::Progress;
use crate::report::Report;
use candidates::{Candidate, CandidateKind, ForkersScale};
use trial::{TrialResult, UpdateLoad};

/// Skews of the rounds, in turn: the paper's.
const SKEWS: [f64; 3] = [1.0, 0.9, 1.1];
const FIRST_SEED: u64 = 41;
/// Saves under the load of a round before those that count: skew and hot keys are new to both servers.
const UNMEASURED: usize = 1;
/// The time from save to save over the longest save of the warm-up.
const REST_FACTOR: f64 = 1.3;

/// The results of all trials.
#[derive(Debug, Default)]
pub struct TrialResults {
    /// Of each round: the trial without, and the trial with the library.
    rounds: Vec<(TrialResult, TrialResult)>,
    /// Extra memory without and with, in MiB.
    extra_mib: (f64, f64),
    /// The library's own account of the saves that count.
    epochs: Vec<epochs::EpochLine>,
}

/// The arguments of `quire bench forkers`.
#[derive(Debug, Clone, clap::Args)]
pub struct ForkersArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Keys in each server [default: 1000000, quick: 110000]
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes in each value
    #[arg(long, default_value_t = 1000)]
    value_bytes: usize,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_500)]
    port: u16,
}

impl Experiment for ForkersArgs {
    type Results = TrialResults;

    const NAME: &'static str = "forkers";
    const ABOUT: &'static str = "redis-server that saves under updates, with and without the preload library";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<TrialResults> {
        // What is missing is said before anything is started.
        candidates::find()?;
        let scale = ForkersScale::new(self);
        let dir = self.common.make_dir()?;
        let progress = Progress::begin();
        progress.say("warming memory");
        memory::warm(scale.data_bytes() * 4);
        let mut servers = candidates::start(self, &scale, dir.path(), |what| progress.say(what))?;
        measure(&scale, &mut servers, |what| progress.say(what))
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "its saves are too short, and too few, for a gain of some percent to show";
        ["redis_throughput_gain", "redis_cycle_throughput_gain", "redis_p999_gain"]
            .map(|name| (name, reason.into()))
            .to_vec()
    }

    fn figures(&self, results: &TrialResults, report: &mut Report) {
        report.scale.extend(facts(&ForkersScale::new(self)));
        figures::add(results, report);
    }
}

fn load(round: usize, period: Duration) -> UpdateLoad {
    UpdateLoad { period, skew: SKEWS[round % SKEWS.len()], seed: FIRST_SEED + round as u64 }
}

fn measure(scale: &ForkersScale, servers: &mut [Candidate; 2], say: impl Fn(&str)) -> anyhow::Result<TrialResults> {
    let mut period = Duration::ZERO;
    for candidate in servers.iter_mut() {
        say(&format!("{} saves of {} to learn from, not counted", scale.warm_ups, candidate.server.name()));
        let first = trial::run(scale, candidate, load(0, Duration::ZERO), (0, scale.warm_ups), false)?;
        // Saves are periodic: both servers begin one after the same time, which leaves the slower one a rest.
        let took_s = first.took_s.iter().copied().fold(0.0, f64::max);
        period = period.max(Duration::from_secs_f64(took_s * REST_FACTOR));
    }
    let mut results = TrialResults::default();
    for round in 0..scale.rounds {
        // Who goes first changes, so that neither always finds the other's leftovers.
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let mut trials = [TrialResult::default(), TrialResult::default()];
        for index in order {
            let candidate = &mut servers[index];
            let load = load(round, period);
            let UpdateLoad { skew, seed, .. } = load;
            say(&format!(
                "round {} of {}: {}, skew {skew}, seed {seed}",
                round + 1,
                scale.rounds,
                candidate.server.name()
            ));
            trials[index] = trial::run(scale, candidate, load, (UNMEASURED, scale.saves), false)?;
        }
        let [plain, preloaded] = trials;
        results.rounds.push((plain, preloaded));
    }
    results.epochs = epochs::last(&servers[1].server.dir().join("server.log"), scale.rounds, UNMEASURED, scale.saves)?;
    for candidate in servers.iter_mut() {
        say(&format!("memory during a save of {}", candidate.server.name()));
        let extra_mib = trial::run(scale, candidate, load(0, period), (UNMEASURED, 1), true)?.extra_mib.unwrap_or(0.0);
        match candidate.kind {
            CandidateKind::Plain => results.extra_mib.0 = extra_mib,
            CandidateKind::Preloaded => results.extra_mib.1 = extra_mib,
        }
    }
    Ok(results)
}

fn facts(scale: &ForkersScale) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("keys".into(), json!(scale.keys));
    facts.insert("value_bytes".into(), json!(scale.value_bytes));
    facts.insert("rdbcompression".into(), json!(false));
    facts.insert("rounds".into(), json!(scale.rounds));
    facts.insert("saves_per_round".into(), json!(scale.saves));
    facts.insert("warm_up_saves".into(), json!(scale.warm_ups));
    facts.insert("unmeasured_saves_per_round".into(), json!(UNMEASURED));
    facts
}
