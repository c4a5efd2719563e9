//! What every part of the experiment shares: the programs, the scale, the directory and the progress line.
//!
//! Relies on Quire being the first program, so that parts can tell Quire from the peers.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Map, Value, json};

use crate::experiment::{BinaryArgs, CommonArgs};
use crate::load::closed_loop;
use crate::process::{Program, Server, ServerKind, find_on_path};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure};
use crate::resp::Connection;
use crate::stats::Spread;

/// A started server with a connection for control.
#[derive(Debug)]
pub struct Candidate {
    /// The process.
    pub server: Server,
    /// The connection that asks and orders.
    pub control: Connection,
}

/// The experiment's fixed conditions.
#[derive(Debug)]
pub struct ExperimentSetup {
    /// Keys in the data set.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Rounds of what is repeated.
    pub rounds: usize,
    /// Requests a second of the steady load.
    pub rate: u64,
    /// Whether this is the small run.
    pub quick: bool,
    programs: Vec<Program>,
    first_port: u16,
    dir: tempfile::TempDir,
    progress: Progress,
}

/// What an experiment that sets servers beside each other is told.
#[derive(Debug)]
pub struct SetupOptions<'a> {
    /// What all experiments are told.
    pub common: &'a CommonArgs,
    /// Our binary.
    pub binary: &'a BinaryArgs,
    /// A Valkey binary to set beside the others.
    pub valkey: Option<&'a Path>,
    /// Keys in the data set.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Requests a second of the steady load.
    pub rate: u64,
    /// First of the ports to use.
    pub port: u16,
}

/// The peer that ratios are taken against.
pub const PEER: &str = "redis-server";

impl ExperimentSetup {
    /// Finds the programs and makes the directory.
    pub fn new(args: &SetupOptions<'_>) -> anyhow::Result<Self> {
        let mut programs = vec![Program { name: "quire".into(), kind: ServerKind::Quire, binary: args.binary.path()? }];
        match find_on_path(PEER) {
            Some(binary) => programs.push(Program { name: PEER.into(), kind: ServerKind::Redis, binary }),
            None => bail!("redis-server is not on the PATH (Debian package redis-server): ratios need the peer"),
        }
        if let Some(binary) = args.valkey {
            let binary = binary.to_owned();
            programs.push(Program { name: "valkey-server".into(), kind: ServerKind::Redis, binary });
        }
        if args.value_bytes == 0 || args.value_bytes > 512 << 10 {
            bail!("--value-bytes must be between 1 and 524288");
        }
        Ok(Self {
            keys: args.keys.max(1000),
            value_bytes: args.value_bytes,
            rounds: args.common.rounds(5, 2),
            rate: args.rate.max(100),
            quick: args.common.quick,
            programs,
            first_port: args.port,
            dir: args.common.make_dir()?,
            progress: Progress::begin(),
        })
    }

    /// The scale, for the report.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("keys".into(), json!(self.keys));
        facts.insert("value_bytes".into(), json!(self.value_bytes));
        facts.insert("rounds".into(), json!(self.rounds));
        facts.insert("steady_rate_per_s".into(), json!(self.rate));
        facts
    }

    /// The directory under which every server has its own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The programs, Quire first.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Bytes of keys and values in the data set.
    pub fn data_bytes(&self) -> u64 {
        self.keys * (self.value_bytes as u64 + 16)
    }

    /// What all servers together may need at their peak.
    pub fn memory_bytes(&self) -> u64 {
        self.data_bytes() * (self.programs.len() as u64 * 3 + 1) / 2
    }

    /// Starts one program on an empty directory called `label`.
    pub fn start(&self, index: usize, label: &str) -> anyhow::Result<Candidate> {
        self.start_with(index, label, &[])
    }

    /// The same with further words on its command line.
    pub fn start_with(&self, index: usize, label: &str, words: &[&str]) -> anyhow::Result<Candidate> {
        let program = &self.programs[index];
        let dir = self.dir.path().join(format!("{}-{label}", program.name));
        let mut server = Server::start_told(program, self.first_port + index as u16, &dir, &[], words)?;
        let control = server.ready()?;
        Ok(Candidate { server, control })
    }

    /// Starts every program and fills it with the data set.
    pub fn start_filled(&self) -> anyhow::Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for (index, program) in self.programs.iter().enumerate() {
            self.say(&format!("filling {} with {} keys", program.name, self.keys));
            let candidate = self.start(index, "data")?;
            closed_loop::fill(candidate.server.port(), 0..self.keys, self.value_bytes, 2)?;
            candidates.push(candidate);
        }
        Ok(candidates)
    }

    /// Lets what a previous part left behind (background work, disk caches) come to rest.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_millis(if self.quick { 150 } else { 1500 }));
    }

    /// Says on standard error what is being done.
    pub fn say(&self, what: &str) {
        self.progress.say(what);
    }

    /// Takes the progress line away.
    pub fn clear_line(&self) {
        self.progress.clear();
    }
}

/// Rounds that alternate between the servers, so that drift of the machine meets both of a round alike: the median of the ratios of rates,
/// ours to the peer's. Calls `rate` for each of the `candidates` in every round; `what` is for the progress line.
pub fn rate_ratio(
    setup: &ExperimentSetup,
    candidates: &[Candidate],
    name: &str,
    what: &str,
    mut rate: impl FnMut(&Candidate) -> anyhow::Result<f64>,
) -> anyhow::Result<Figure> {
    let mut rates = vec![Vec::new(); candidates.len()];
    for round in 0..setup.rounds {
        setup.say(&format!("{what}, round {} of {}", round + 1, setup.rounds));
        for turn in 0..candidates.len() {
            // Every other round goes backwards, so that no server is always first.
            let index = if round % 2 == 0 { turn } else { candidates.len() - 1 - turn };
            rates[index].push(rate(&candidates[index])?);
        }
    }
    let peer = candidates.iter().position(|candidate| candidate.server.name() == PEER).unwrap_or(0);
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[peer]).map(|(ours, theirs)| ours / theirs).collect();
    let spread = Spread::of(&ratios).expect("there is at least one round");
    let mut figure = Figure::new(name, spread.median, "x", BetterDirection::Higher).spread(spread);
    for (candidate, rates) in candidates.iter().zip(&rates) {
        figure = figure.peer(candidate.server.name(), Spread::of(rates).map_or(0.0, |spread| spread.median.round()));
    }
    Ok(figure)
}
