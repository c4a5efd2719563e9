//! The part `redis`: Debian's redis-server as it is, and the same with checkpoints by `mdc_*`, under the same updates.
//!
//! Relies on `peers/redis-mdc`, whose script fetches redis's source package, edits and builds it. Both servers live for a round and take
//! turns. What each has saved is compared, by DEBUG DIGEST, with what it restores.

mod build;
mod figures;
mod server;
mod trial;

use std::path::Path;

use super::{CheckpointArgs, TOLERANCE, calibration};
use crate::{disk, memory};
use server::{SavingServer, StoreFormat};
use trial::{RestoreResult, SaveResult};

pub use figures::{add, facts, not_measured};

/// What redis-server should duplicate of its memory, as the paper has it.
const FORK_GROWTH: f64 = 0.77;
/// Saves of redis-server at most to find the rate of updates.
const ATTEMPTS: usize = 4;

/// The results of all rounds.
#[derive(Debug, Default)]
pub struct RedisResults {
    saves: Vec<SaveResult>,
    restores: Vec<RestoreResult>,
    raw_write_bytes_per_s: Vec<f64>,
    updates_per_s: f64,
    keys: u64,
    version: String,
}

/// Measures. `Err` is why it can't be done here.
pub fn run(args: &CheckpointArgs, dir: &Path, say: &dyn Fn(&str)) -> anyhow::Result<RedisResults> {
    say("building redis-server with mdc_* (fetches Debian's source package where it is not in the cache)");
    let programs = build::both(dir)?;
    let keys = (args.data_bytes() / (args.value_bytes + ALLOCATED_BYTES)).max(1000);
    let start = |format: StoreFormat, port| {
        say(&format!("filling {} with {keys} keys", format.name()));
        SavingServer::start(format, &programs, dir, port, keys, args.value_bytes as usize)
    };
    memory::warm(args.data_bytes() * 4);
    let mut servers = [start(StoreFormat::Rdb, args.port)?, start(StoreFormat::Mdc, args.port + 1)?];
    let mut results = RedisResults { keys, version: servers[1].version()?, ..RedisResults::default() };
    results.updates_per_s = find_rate(&mut servers, keys, args.value_bytes, say)?;
    let rounds = args.common.rounds(5, 1);
    for round in 0..rounds {
        results.raw_write_bytes_per_s.push(disk::raw_write_bytes_per_s(dir, args.data_bytes())?);
        // Who goes first changes, so that neither always finds the other's leftovers.
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for index in order {
            let server = &mut servers[index];
            say(&format!("round {} of {rounds}: {}", round + 1, server.format().name()));
            results.saves.push(trial::save(server, results.updates_per_s)?);
            results.restores.push(trial::restore(server)?);
        }
    }
    Ok(results)
}

/// What redis-server keeps for a key beside its value: the key, an entry of the table, an object, and what the allocator rounds up.
const ALLOCATED_BYTES: u64 = 120;

/// The rate at which a save of redis-server duplicates [`FORK_GROWTH`] of its memory. Both servers make a save that does not count.
fn find_rate(servers: &mut [SavingServer; 2], keys: u64, value_bytes: u64, say: &dyn Fn(&str)) -> anyhow::Result<f64> {
    trial::save(&mut servers[1], 0.0)?;
    let still = trial::save(&mut servers[0], 0.0)?;
    let mut rate = calibration::first_rate(FORK_GROWTH, keys * (value_bytes + ALLOCATED_BYTES), still.save_s);
    for attempt in 1..=ATTEMPTS {
        say(&format!("finding the rate of updates, save {attempt} of at most {ATTEMPTS}"));
        let growth = trial::save(&mut servers[0], rate)?.growth;
        if (growth - FORK_GROWTH).abs() <= TOLERANCE {
            break;
        }
        rate = calibration::nearer(rate, growth, FORK_GROWTH);
    }
    Ok(rate)
}
