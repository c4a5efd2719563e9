//! The experiment `forkers`: redis-server that saves periodically under an update-heavy Zipf load, with and without the
//! preload library.
//!
//! Relies on both servers living for the whole run and taking turns, so that drift of the machine meets both
//! alike. The library learns from earlier children what will be written, so each server makes a few saves under load
//! before the first that counts, and one in every round: skew and seed change from round to round, the same for both.

mod epochs;
mod figures;
pub mod library;
mod sides;
mod trial;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::experiment::{Common, Experiment};
use crate::memory;
use crate::progress::Progress;
use crate::report::Report;
use sides::{Kind, Scale, Side};
use trial::{Load, Trial};

/// Skews of the rounds, in turn: the paper's.
const SKEWS: [f64; 3] = [1.0, 0.9, 1.1];
const FIRST_SEED: u64 = 41;
/// Saves under the load of a round before those that count: skew and hot keys are new to both servers.
const UNMEASURED: usize = 1;
/// The time from save to save over the longest save of the warm-up.
const REST_FACTOR: f64 = 1.3;

/// Everything that the trials found.
#[derive(Debug, Default)]
pub struct Found {
    /// Of each round: the trial without, and the trial with the library.
    rounds: Vec<(Trial, Trial)>,
    /// Extra memory without and with, in MiB.
    extra_mib: (f64, f64),
    /// The library's own account of the saves that count.
    epochs: Vec<epochs::EpochLine>,
}

/// The arguments of `quire bench forkers`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
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

impl Experiment for Args {
    type Outcome = Found;

    const NAME: &'static str = "forkers";
    const ABOUT: &'static str = "redis-server that saves under updates, with and without the preload library";

    fn common(&self) -> &Common {
        &self.common
    }

    fn run(&self) -> anyhow::Result<Found> {
        // What is missing is said before anything is started.
        sides::find()?;
        let scale = Scale::new(self);
        let dir = self.common.make_dir()?;
        let progress = Progress::begin();
        progress.say("warming memory");
        memory::warm(scale.data_bytes() * 4);
        let mut servers = sides::start(self, &scale, dir.path(), |what| progress.say(what))?;
        measure(&scale, &mut servers, |what| progress.say(what))
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "its saves are too short, and too few, for a gain of some percent to show";
        ["redis_throughput_gain", "redis_cycle_throughput_gain", "redis_p999_gain"]
            .map(|name| (name, reason.into()))
            .to_vec()
    }

    fn figures(&self, found: &Found, report: &mut Report) {
        report.scale.extend(facts(&Scale::new(self)));
        figures::add(found, report);
    }
}

fn load(round: usize, period: Duration) -> Load {
    Load { period, skew: SKEWS[round % SKEWS.len()], seed: FIRST_SEED + round as u64 }
}

fn measure(scale: &Scale, servers: &mut [Side; 2], say: impl Fn(&str)) -> anyhow::Result<Found> {
    let mut period = Duration::ZERO;
    for side in servers.iter_mut() {
        say(&format!("{} saves of {} to learn from, not counted", scale.warm_ups, side.server.name()));
        let first = trial::run(scale, side, load(0, Duration::ZERO), (0, scale.warm_ups), false)?;
        // Saves are periodic: both servers begin one after the same time, which leaves the slower one a rest.
        let took_s = first.took_s.iter().copied().fold(0.0, f64::max);
        period = period.max(Duration::from_secs_f64(took_s * REST_FACTOR));
    }
    let mut found = Found::default();
    for round in 0..scale.rounds {
        // Who goes first changes, so that neither always finds the other's leftovers.
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let mut trials = [Trial::default(), Trial::default()];
        for index in order {
            let side = &mut servers[index];
            let load = load(round, period);
            let Load { skew, seed, .. } = load;
            say(&format!("round {} of {}: {}, skew {skew}, seed {seed}", round + 1, scale.rounds, side.server.name()));
            trials[index] = trial::run(scale, side, load, (UNMEASURED, scale.saves), false)?;
        }
        let [plain, preloaded] = trials;
        found.rounds.push((plain, preloaded));
    }
    found.epochs = epochs::last(&servers[1].server.dir().join("server.log"), scale.rounds, UNMEASURED, scale.saves)?;
    for side in servers.iter_mut() {
        say(&format!("memory during a save of {}", side.server.name()));
        let extra_mib = trial::run(scale, side, load(0, period), (UNMEASURED, 1), true)?.extra_mib.unwrap_or(0.0);
        match side.kind {
            Kind::Plain => found.extra_mib.0 = extra_mib,
            Kind::Preloaded => found.extra_mib.1 = extra_mib,
        }
    }
    Ok(found)
}

fn facts(scale: &Scale) -> Map<String, Value> {
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
