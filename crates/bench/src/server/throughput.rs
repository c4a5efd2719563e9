//! Part `throughput`: SET and GET by redis-benchmark, alone and pipelined, rounds alternating between the servers.
//!
//! Relies on all servers holding the data set already; the one that is not measured idles.

use super::setup::{PEER, Setup, Side};
use crate::redis_benchmark::{self, CONNECTIONS, Run};
use crate::report::{Better, Figure, Report};
use crate::stats::Spread;

/// Without pipelining the tool spends more on a request than either server, so with one thread all servers look alike.
const P1_THREADS: u32 = 2;
const P1_NOTE: &str = "redis-benchmark with 2 threads; with one it is itself the limit";

/// The figures with goals, and those that inform.
#[derive(Debug, Default)]
pub struct Outcome {
    results: Vec<Figure>,
    info: Vec<Figure>,
}

/// Measures throughput, and in the long run that with small values and with one thread of the tool.
pub fn measure(setup: &Setup, sides: &mut [Side]) -> anyhow::Result<Outcome> {
    let mut found = Outcome::default();
    let bytes = setup.value_bytes;
    for (name, test) in [("set_p1_ratio", "set"), ("get_p1_ratio", "get")] {
        let load = Load { test, pipeline: 1, value_bytes: bytes, threads: P1_THREADS };
        found.results.push(compare(setup, sides, name, load)?.goal(1.0).note(P1_NOTE));
    }
    for (name, test) in [("set_p16_ratio", "set"), ("get_p16_ratio", "get")] {
        let load = Load { test, pipeline: 16, value_bytes: bytes, threads: 1 };
        found.results.push(compare(setup, sides, name, load)?.goal(1.2));
    }
    if setup.quick {
        return Ok(found);
    }
    for (name, test) in [("set_p1_one_thread_ratio", "set"), ("get_p1_one_thread_ratio", "get")] {
        let load = Load { test, pipeline: 1, value_bytes: bytes, threads: 1 };
        found.info.push(compare(setup, sides, name, load)?.note("the tool's default; the tool is the limit"));
    }
    // Small values last: they overwrite some of the data set, which is then filled again.
    for (name, test) in [("set_p16_small_ratio", "set"), ("get_p16_small_ratio", "get")] {
        let load = Load { test, pipeline: 16, value_bytes: 3, threads: 1 };
        found.info.push(compare(setup, sides, name, load)?.note("values of 3 B, the tool's default"));
    }
    for side in sides {
        setup.say(&format!("filling {} again", side.server.name()));
        crate::load::closed::fill(side.server.port(), 0..setup.keys, setup.value_bytes, 2)?;
    }
    Ok(found)
}

/// Adds the throughput ratios.
pub fn figures(found: &Outcome, report: &mut Report) {
    report.results.extend(found.results.iter().cloned());
    report.info.extend(found.info.iter().cloned());
}

/// What redis-benchmark is told to do.
#[derive(Clone, Copy)]
struct Load {
    test: &'static str,
    pipeline: u32,
    value_bytes: usize,
    threads: u32,
}

fn compare(setup: &Setup, sides: &[Side], name: &str, load: Load) -> anyhow::Result<Figure> {
    let Load { test, pipeline, value_bytes, threads } = load;
    let per_batch = if setup.quick { 30_000 } else { 400_000 };
    let requests = per_batch * if pipeline > 1 { 6 } else { 1 };
    let mut rates = vec![Vec::new(); sides.len()];
    for round in 0..setup.rounds {
        setup.say(&format!("{test} at pipeline {pipeline}, round {} of {}", round + 1, setup.rounds));
        for turn in 0..sides.len() {
            // Every other round goes backwards, so that no server is always first.
            let index = if round % 2 == 0 { turn } else { sides.len() - 1 - turn };
            let port = sides[index].server.port();
            let (keys, connections) = (setup.keys, CONNECTIONS);
            let run = Run { port, test, pipeline, requests, keys, value_bytes, threads, connections };
            rates[index].push(redis_benchmark::requests_per_s(run)?);
        }
    }
    let peer = sides.iter().position(|side| side.server.name() == PEER).unwrap_or(0);
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[peer]).map(|(ours, theirs)| ours / theirs).collect();
    let spread = Spread::of(&ratios).expect("there is at least one round");
    let mut figure = Figure::new(name, spread.median, "x", Better::Higher).spread(spread);
    for (side, rates) in sides.iter().zip(&rates) {
        figure = figure.peer(side.server.name(), Spread::of(rates).map_or(0.0, |spread| spread.median.round()));
    }
    Ok(figure)
}
