//! Part `log`: commits a second of `quire serve` and redis-server, both with every write synced before its answer.
//!
//! Relies on redis-benchmark, as both servers' clients, on one disk, one server loaded at a time. Each round begins
//! with a short run that tells how many requests a counted one may take.

use anyhow::Context as _;

use crate::process::{Flavor, Program, Server, find_on_path};
use crate::redis_benchmark::{self, Run};
use crate::report::{Better, Figure};
use crate::stats::Spread;
use crate::wcache::context::Context;

/// Clients, with the figure's name and the shortest run in requests.
const CASES: [(u32, &str, u64); 2] =
    [(1, "log_commit_vs_redis_aof_c1", 300), (50, "log_commit_vs_redis_aof_c50", 3000)];
/// The goal of both.
pub const GOAL: f64 = 1.5;
/// The figure that stands for both: the smaller.
pub const NAME: &str = "log_commit_vs_redis_aof";
const VALUE_BYTES: usize = 100;
const KEYS: u64 = 100_000;
const WORDS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The figures.
///
/// # Errors
/// When a server or redis-benchmark is missing or fails, or there was an interrupt.
pub fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let redis = find_on_path("redis-server").context("redis-server is missing (Debian package redis-server)")?;
    let programs = [
        Program { name: "quire".into(), flavor: Flavor::Quire, binary: context.quire.clone() },
        Program { name: "redis-server".into(), flavor: Flavor::Redis, binary: redis },
    ];
    let mut servers = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        let dir = context.place.dir().join(format!("log-{}", program.name));
        let mut server = Server::start_told(program, context.port + 10 + index as u16, &dir, &[], &WORDS)?;
        server.ready()?;
        servers.push(server);
    }
    let mut figures = Vec::new();
    for (clients, name, least) in CASES {
        figures.push(compare(context, &servers, clients, name, least)?);
    }
    let worst = figures.iter().min_by(|one, other| one.value.total_cmp(&other.value)).context("two cases")?;
    let mut both = Figure { name: NAME.into(), ..worst.clone() };
    both.note = format!("the smaller of the two: {}", worst.name);
    figures.insert(0, both);
    Ok(figures)
}

fn compare(context: &Context, servers: &[Server], clients: u32, name: &str, least: u64) -> anyhow::Result<Figure> {
    let (quick, rounds) = (context.scale.quick, context.scale.rounds.max(3));
    let seconds = if quick { 0.6 } else { 5.0 };
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        context.progress.say(&format!("commits, {clients} clients, round {} of {rounds}", round + 1));
        for turn in 0..servers.len() {
            context.interrupt.check()?;
            let index = if round % 2 == 0 { turn } else { servers.len() - 1 - turn };
            let run = |requests| {
                redis_benchmark::requests_per_s(Run {
                    port: servers[index].port(),
                    test: "set",
                    pipeline: 1,
                    requests,
                    keys: KEYS,
                    value_bytes: VALUE_BYTES,
                    threads: 1,
                    connections: clients,
                })
            };
            let expected = run(least)?;
            rates[index].push(run(((expected * seconds) as u64).max(least))?);
        }
    }
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
    let spread = Spread::of(&ratios).context("at least one round")?;
    let mut figure = Figure::new(name, spread.median, "x", Better::Higher).goal(GOAL).spread(spread);
    for (server, rates) in servers.iter().zip(&rates) {
        figure =
            figure.peer(&format!("{}/s", server.name()), Spread::of(rates).map_or(f64::NAN, |spread| spread.median));
    }
    Ok(figure.note(format!("SET of {VALUE_BYTES} B, appendfsync always, {clients} clients, the disk under --dir")))
}
