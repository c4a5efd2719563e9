//! Part `throughput`: SET and GET by redis-benchmark, alone and pipelined, rounds alternating between the servers.
//!
//! Relies on all servers holding the data set already; the one that is not measured idles.

use super::setup::{Candidate, ExperimentSetup, PEER, rate_ratio};
use crate::null_server::NullServer;
use crate::redis_benchmark::{self, BenchmarkRun, BenchmarkTest, CONNECTIONS};
use crate::report::{Figure, Report};
use crate::stats::Spread;

/// Without pipelining the tool spends more on a request than either server, so with one thread all servers look alike.
pub const P1_THREADS: u32 = 2;
/// The same, for readers of the figures.
pub const P1_NOTE: &str = "redis-benchmark with 2 threads; with one it is itself the limit";

/// The figures with goals, and those that inform.
#[derive(Debug, Default)]
pub struct ThroughputResults {
    results: Vec<Figure>,
    info: Vec<Figure>,
}

/// Measures throughput, and in the long run that with small values and with one thread of the tool.
pub fn measure(setup: &ExperimentSetup, candidates: &mut [Candidate]) -> anyhow::Result<ThroughputResults> {
    let mut found = ThroughputResults::default();
    let bytes = setup.value_bytes;
    for (name, test) in [("set_p1_ratio", "set"), ("get_p1_ratio", "get")] {
        let load = Load { test, pipeline: 1, value_bytes: bytes, threads: P1_THREADS };
        found.results.push(compare(setup, candidates, name, load)?.goal(1.0).note(P1_NOTE));
    }
    for (name, test) in [("set_p16_ratio", "set"), ("get_p16_ratio", "get")] {
        let load = Load { test, pipeline: 16, value_bytes: bytes, threads: 1 };
        found.results.push(compare(setup, candidates, name, load)?.goal(1.2));
    }
    if setup.quick {
        return Ok(found);
    }
    for (name, test) in [("set_p1_one_thread_ratio", "set"), ("get_p1_one_thread_ratio", "get")] {
        let load = Load { test, pipeline: 1, value_bytes: bytes, threads: 1 };
        found.info.push(compare(setup, candidates, name, load)?.note("the tool's default; the tool is the limit"));
    }
    // Small values last: they overwrite some of the data set, which is then filled again.
    for (name, test) in [("set_p16_small_ratio", "set"), ("get_p16_small_ratio", "get")] {
        let load = Load { test, pipeline: 16, value_bytes: 3, threads: 1 };
        found.info.push(compare(setup, candidates, name, load)?.note("values of 3 B, the tool's default"));
    }
    for candidate in candidates {
        setup.say(&format!("filling {} again", candidate.server.name()));
        crate::load::closed_loop::fill(candidate.server.port(), 0..setup.keys, setup.value_bytes, 2)?;
    }
    Ok(found)
}

/// Adds the throughput ratios.
pub fn figures(found: &ThroughputResults, report: &mut Report) {
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

fn compare(setup: &ExperimentSetup, candidates: &[Candidate], name: &str, load: Load) -> anyhow::Result<Figure> {
    let Load { test, pipeline, value_bytes, threads } = load;
    let per_batch = if setup.quick { 30_000 } else { 400_000 };
    let requests = per_batch * if pipeline > 1 { 6 } else { 1 };
    let what = format!("{test} at pipeline {pipeline}");
    let rate = |port: u16| {
        redis_benchmark::requests_per_s(BenchmarkRun {
            port,
            test: BenchmarkTest::Named(test),
            pipeline,
            requests,
            keys: setup.keys,
            value_bytes,
            threads,
            connections: CONNECTIONS,
        })
    };
    let figure = rate_ratio(setup, candidates, name, &what, |candidate| rate(candidate.server.port()))?;
    setup.say(&format!("{what}, a server that does nothing"));
    let null_server = NullServer::start(&reply(load))?;
    let null_rates = (0..setup.rounds).map(|_| rate(null_server.port())).collect::<anyhow::Result<Vec<f64>>>()?;
    Ok(bounded(figure, Spread::or_nan(&null_rates).median))
}

/// What a server answers to each request of the load.
fn reply(load: Load) -> Vec<u8> {
    match load.test {
        "get" => format!("${}\r\n{}\r\n", load.value_bytes, "x".repeat(load.value_bytes)).into_bytes(),
        _ => b"+OK\r\n".to_vec(),
    }
}

/// The ratio with its bound: the rate of a server that does nothing, over the peer's.
fn bounded(figure: Figure, null_per_s: f64) -> Figure {
    let peer_per_s = figure.peer.get(PEER).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    figure.bound("a server that does nothing", null_per_s / peer_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BetterDirection;

    #[test]
    fn a_server_that_does_nothing_bounds_the_ratio_over_the_peer_and_replies_as_the_load_wants() {
        let figure = Figure::new("a", 2.0, "x", BetterDirection::Higher).peer(PEER, 100.0);
        assert_eq!(bounded(figure.clone(), 300.0).bound.unwrap().value, 3.0);
        assert_eq!(bounded(figure, f64::NAN).bound, None);
        let load = |test| Load { test, pipeline: 1, value_bytes: 3, threads: 1 };
        assert_eq!((reply(load("get")), reply(load("set"))), (b"$3\r\nxxx\r\n".to_vec(), b"+OK\r\n".to_vec()));
    }
}
