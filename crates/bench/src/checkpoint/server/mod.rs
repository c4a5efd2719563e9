//! The part `server`: saves of Quire and of redis-server with the same data under the same updates: memory, time, throughput, and the
//! longest wait of a writer.
//!
//! Relies on a fresh server for each turn: its memory before the first save is what extra memory is counted from, and its longest
//! wait is of the one save that the figure is for. One server runs at a time.

mod figures;
mod modelled_disk;
mod trial;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::CheckpointArgs;
use crate::memory;
use crate::process::{Program, ServerKind, find_on_path};
use modelled_disk::ModelledSave;
use trial::{ServerTrial, TrialScale};

pub use figures::{NAMES, add, not_measured};

/// What Quire is set beside.
const PEER: &str = "redis-server";
/// Keys at least, so that each client has some.
const LEAST_KEYS: u64 = 64;

/// A round: a turn of each server.
#[derive(Debug)]
struct Round {
    ours: ServerTrial,
    theirs: ServerTrial,
}

/// The results of all rounds.
#[derive(Debug, Default)]
pub struct ServerSaves {
    rounds: Vec<Round>,
    /// One save of each round to a disk that is a model.
    modelled: Vec<ModelledSave>,
    keys: u64,
}

/// Why the part can't be run here, if so.
pub fn hindrance() -> Option<String> {
    find_on_path(PEER).is_none().then(|| format!("{PEER} is not on the PATH (Debian package redis-server)"))
}

/// Measures.
///
/// # Errors
/// When a server can't be started or filled, or a save fails.
pub fn run(args: &CheckpointArgs, dir: &Path, say: &dyn Fn(&str)) -> anyhow::Result<ServerSaves> {
    let theirs = find_on_path(PEER).unwrap_or_else(|| PEER.into());
    let programs = [
        Program { name: "quire".into(), kind: ServerKind::Quire, binary: args.binary.path()? },
        Program { name: PEER.into(), kind: ServerKind::Redis, binary: theirs },
    ];
    let keys = (args.data_bytes() / args.value_bytes).max(LEAST_KEYS);
    // The first two are the part `redis`'s.
    let port = |index: usize| args.port + 2 + index as u16;
    let scale = |index: usize| TrialScale {
        dir,
        port: port(index),
        keys,
        value_bytes: args.value_bytes as usize,
        is_quick: args.common.quick,
    };
    say("warming memory");
    memory::warm(args.data_bytes() * 3);
    let mut results = ServerSaves { keys, ..ServerSaves::default() };
    let rounds = args.common.rounds(3, 1);
    for round in 0..rounds {
        let turn = |index: usize| {
            let what = format!("round {} of {rounds}: {}", round + 1, programs[index].name);
            trial::run(&programs[index], scale(index), &|doing| say(&format!("{what}: {doing}")))
        };
        // Who goes first changes, so that neither always finds the other's leftovers.
        let (ours, theirs) = if round.is_multiple_of(2) {
            let ours = turn(0)?;
            (ours, turn(1)?)
        } else {
            let theirs = turn(1)?;
            (turn(0)?, theirs)
        };
        results.rounds.push(Round { ours, theirs });
        say(&format!("round {} of {rounds}: a save to a modelled disk", round + 1));
        results.modelled.push(modelled_disk::save(dir, args.data_bytes())?);
    }
    Ok(results)
}

/// The facts of its scale.
pub fn facts(results: &ServerSaves) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("server_keys".into(), json!(results.keys));
    facts.insert("server_rounds".into(), json!(results.rounds.len()));
    facts
}
