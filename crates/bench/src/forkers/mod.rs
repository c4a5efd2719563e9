//! The experiment `forkers`: redis-server that saves periodically under an update-heavy Zipf load, with and without the
//! preload library.
//!
//! Relies on both servers living for the whole run and being visited in turns, so that drift of the machine meets both
//! alike. The library learns from earlier children what will be written, so each server makes a few saves under load
//! before the first that counts, and one in every round: skew and seed change from round to round, the same for both.

mod epochs;
mod figures;
pub mod library;
mod sides;
mod visit;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::cli::Args;
use crate::report::Report;
use crate::{machine, memory};
use sides::{Kind, Scale, Side};
use visit::{Load, Visit};

/// Skews of the rounds, in turn: the paper's.
const SKEWS: [f64; 3] = [1.0, 0.9, 1.1];
const FIRST_SEED: u64 = 41;
/// Saves under the load of a round before those that count: skew and hot keys are new to both servers.
const UNMEASURED: usize = 1;
/// The time from save to save over the longest save of the warm-up.
const REST_FACTOR: f64 = 1.3;

/// Everything that the visits found.
#[derive(Debug, Default)]
struct Found {
    /// Of each round: the visit without, and the visit with the library.
    rounds: Vec<(Visit, Visit)>,
    /// Extra memory without and with, in MiB.
    extra_mib: (f64, f64),
    /// The library's own account of the saves that count.
    epochs: Vec<epochs::EpochLine>,
}

/// Runs the experiment.
///
/// # Errors
/// When redis-server or the library is missing, or a server misbehaves.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    // What is missing is said before anything is started.
    sides::find()?;
    let scale = Scale::new(args);
    let parent = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let dir = tempfile::Builder::new()
        .prefix("quire-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("making a directory in {}", parent.display()))?;
    let began = Instant::now();
    let say = |what: &str| say(began, what);
    let mut report = Report {
        experiment: "forkers",
        machine: machine::facts(dir.path()),
        scale: facts(&scale),
        results: Vec::new(),
        info: Vec::new(),
    };
    say("warming memory");
    memory::warm(scale.data_bytes() * 4);
    let mut servers = sides::start(args, &scale, dir.path(), say)?;
    let found = measure(&scale, &mut servers, say)?;
    figures::add(&found, &mut report);
    Ok(report)
}

fn load(round: usize, period: Duration) -> Load {
    Load { period, skew: SKEWS[round % SKEWS.len()], seed: FIRST_SEED + round as u64 }
}

fn measure(scale: &Scale, servers: &mut [Side; 2], say: impl Fn(&str)) -> anyhow::Result<Found> {
    let mut period = Duration::ZERO;
    for side in servers.iter_mut() {
        say(&format!("{} saves of {} to learn from, not counted", scale.warm_ups, side.server.name()));
        let first = visit::visit(scale, side, load(0, Duration::ZERO), (0, scale.warm_ups), false)?;
        // Saves are periodic: both servers begin one after the same time, which leaves the slower one a rest.
        let took_s = first.took_s.iter().copied().fold(0.0, f64::max);
        period = period.max(Duration::from_secs_f64(took_s * REST_FACTOR));
    }
    let mut found = Found::default();
    for round in 0..scale.rounds {
        // Who goes first changes, so that neither always finds the other's leftovers.
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let mut visits = [Visit::default(), Visit::default()];
        for index in order {
            let side = &mut servers[index];
            let load = load(round, period);
            let Load { skew, seed, .. } = load;
            say(&format!("round {} of {}: {}, skew {skew}, seed {seed}", round + 1, scale.rounds, side.server.name()));
            visits[index] = visit::visit(scale, side, load, (UNMEASURED, scale.saves), false)?;
        }
        let [plain, preloaded] = visits;
        found.rounds.push((plain, preloaded));
    }
    found.epochs = epochs::last(&servers[1].server.dir().join("server.log"), scale.rounds, UNMEASURED, scale.saves)?;
    for side in servers.iter_mut() {
        say(&format!("memory during a save of {}", side.server.name()));
        let extra_mib = visit::visit(scale, side, load(0, period), (UNMEASURED, 1), true)?.extra_mib.unwrap_or(0.0);
        match side.kind {
            Kind::Plain => found.extra_mib.0 = extra_mib,
            Kind::Preloaded => found.extra_mib.1 = extra_mib,
        }
    }
    Ok(found)
}

fn facts(scale: &Scale) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("quick".into(), json!(scale.quick));
    facts.insert("keys".into(), json!(scale.keys));
    facts.insert("value_bytes".into(), json!(scale.value_bytes));
    facts.insert("rdbcompression".into(), json!(false));
    facts.insert("rounds".into(), json!(scale.rounds));
    facts.insert("saves_per_round".into(), json!(scale.saves));
    facts.insert("warm_up_saves".into(), json!(scale.warm_ups));
    facts.insert("unmeasured_saves_per_round".into(), json!(UNMEASURED));
    facts
}

fn say(began: Instant, what: &str) {
    let mut err = std::io::stderr().lock();
    let at_s = began.elapsed().as_secs_f64();
    // Progress that cannot be shown is no reason to stop.
    let _ = if err.is_terminal() {
        write!(err, "\r\x1b[K{at_s:6.1} s  {what}").and_then(|()| err.flush())
    } else {
        writeln!(err, "{at_s:6.1} s  {what}")
    };
}
