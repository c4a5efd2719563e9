//! Part `log`: commits a second of `quire serve` and redis-server, both with every write synced before its answer.
//!
//! The same without a log stands beside it, for information: what is left of a request's time when commits cost nothing.
//!
//! Relies on redis-benchmark, as both servers' clients, on one disk, one server loaded at a time. Each round begins
//! with a short run that tells how many requests a counted one may take.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::disk;
use crate::process::{Program, Server, ServerKind, find_on_path};
use crate::redis_benchmark::{self, BenchmarkRun, BenchmarkTest};
use crate::report::{BetterDirection, Figure};
use crate::stats::Spread;
use crate::wcache::experiment_context::ExperimentContext;

/// A number of clients.
struct ClientCount {
    clients: u32,
    name: &'static str,
    without: &'static str,
    /// The shortest run in requests.
    least: u64,
}

const CASES: [ClientCount; 2] = [
    ClientCount { clients: 1, name: "log_commit_vs_redis_aof_c1", without: "without_log_vs_redis_c1", least: 300 },
    ClientCount { clients: 50, name: "log_commit_vs_redis_aof_c50", without: "without_log_vs_redis_c50", least: 3000 },
];
/// The goal of both.
pub const GOAL: f64 = 1.5;
/// The figure that stands for both: the smaller.
pub const NAME: &str = "log_commit_vs_redis_aof";
const VALUE_BYTES: usize = 100;
const KEYS: u64 = 100_000;
/// The least that a commit writes.
const COMMIT_BYTES: usize = 4096;
/// Every write is synced before its answer; and there is no log.
const LOGGED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const UNLOGGED: [&str; 2] = ["--appendonly", "no"];

/// The figures of the part.
pub struct LogCommits {
    /// With goals.
    pub figures: Vec<Figure>,
    /// For information.
    pub info: Vec<Figure>,
}

/// The figures.
///
/// # Errors
/// When a server or redis-benchmark is missing or fails, or there was an interrupt.
pub fn measure(context: &ExperimentContext) -> anyhow::Result<LogCommits> {
    let redis = find_on_path("redis-server").context("redis-server is missing (Debian package redis-server)")?;
    let programs = [
        Program { name: "quire".into(), kind: ServerKind::Quire, binary: context.quire.clone() },
        Program { name: "redis-server".into(), kind: ServerKind::Redis, binary: redis },
    ];
    let start = |name: &str, words: &[&str], port: u16| -> anyhow::Result<Vec<Server>> {
        let mut servers = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let dir = context.run_dir.dir().join(format!("{name}-{}", program.name));
            let mut server = Server::start_told(program, port + index as u16, &dir, &[], words)?;
            server.ready()?;
            servers.push(server);
        }
        Ok(servers)
    };
    let logged = start("log", &LOGGED, context.port + 10)?;
    let unlogged = start("no-log", &UNLOGGED, context.port + 12)?;
    let (mut figures, mut info) = (Vec::new(), Vec::new());
    let writes_per_s = disk::durable_writes_per_s(context.run_dir.dir(), COMMIT_BYTES, Duration::from_millis(500))?;
    for case in &CASES {
        let with_log = compare(context, &logged, case, case.name)?.goal(GOAL);
        let without = compare(context, &unlogged, case, case.without)?;
        let with_log = bounded(with_log, &without, case, writes_per_s);
        figures.push(with_log.note(format!("SET of {VALUE_BYTES} B, appendfsync always, the disk under --dir")));
        info.push(without.note(format!("SET of {VALUE_BYTES} B, no log: what is left when commits cost nothing")));
    }
    let worst = figures.iter().min_by(|one, other| one.value.total_cmp(&other.value)).context("two cases")?;
    let mut both = Figure { name: NAME.into(), ..worst.clone() };
    both.note = format!("the smaller of the two: {}", worst.name);
    figures.insert(0, both);
    Ok(LogCommits { figures, info })
}

/// The figure with its bound over redis-server's commits: a client by itself waits for a durable write each time, many clients share
/// one and get no more than without a log.
fn bounded(figure: Figure, without: &Figure, case: &ClientCount, writes_per_s: f64) -> Figure {
    let of = |figure: &Figure, name: &str| figure.peer.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let theirs = of(&figure, "redis-server/s");
    if case.clients == 1 {
        figure.bound("a durable write of a block for each commit", writes_per_s / theirs)
    } else {
        figure.bound("our server without a log", of(without, "quire/s") / theirs)
    }
}

fn compare(context: &ExperimentContext, servers: &[Server], case: &ClientCount, name: &str) -> anyhow::Result<Figure> {
    let (quick, rounds, clients) = (context.scale.quick, context.scale.rounds.max(3), case.clients);
    let seconds = if quick { 0.6 } else { 5.0 };
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        context.progress.say(&format!("{name}, round {} of {rounds}", round + 1));
        for turn in 0..servers.len() {
            context.interrupt.check()?;
            let index = if round % 2 == 0 { turn } else { servers.len() - 1 - turn };
            let run = |requests| {
                redis_benchmark::requests_per_s(BenchmarkRun {
                    port: servers[index].port(),
                    test: BenchmarkTest::Named("set"),
                    pipeline: 1,
                    requests,
                    keys: KEYS,
                    value_bytes: VALUE_BYTES,
                    threads: 1,
                    connections: clients,
                })
            };
            let expected = run(case.least)?;
            rates[index].push(run(((expected * seconds) as u64).max(case.least))?);
        }
    }
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
    let spread = Spread::of(&ratios).context("at least one round")?;
    let mut figure = Figure::new(name, spread.median, "x", BetterDirection::Higher).spread(spread);
    for (server, rates) in servers.iter().zip(&rates) {
        figure =
            figure.peer(&format!("{}/s", server.name()), Spread::of(rates).map_or(f64::NAN, |spread| spread.median));
    }
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_by_itself_is_bounded_by_the_disk_and_many_by_what_the_server_does_without_a_log() {
        let figure = |ours, theirs| {
            Figure::new("a", 1.0, "x", BetterDirection::Higher).peer("quire/s", ours).peer("redis-server/s", theirs)
        };
        let bound = |case| bounded(figure(900.0, 500.0), &figure(3000.0, 2000.0), case, 1000.0).bound.unwrap().value;
        assert_eq!((bound(&CASES[0]), bound(&CASES[1])), (2.0, 6.0));
    }
}
