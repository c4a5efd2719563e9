//! Part `rates`: requests a second of a command for each type, by redis-benchmark, alone and in pipelines of 16.
//!
//! Where the client takes longer for a request than the servers do, their rates are the client's. So the servers' CPU time for
//! a request is told besides.
//!
//! Relies on every server answering the load alike, which is looked at before it is measured.

use anyhow::ensure;

use super::{of_peer, summary};
use crate::null_server::NullServer;
use crate::process::cpu_s;
use crate::redis_benchmark::{self, BenchmarkRun, BenchmarkTest, CONNECTIONS, RANDOM};
use crate::report::{BetterDirection, Figure, Report};
use crate::resp::{Connection, Value};
use crate::server::setup::{Candidate, ExperimentSetup, rate_ratio};
use crate::stats::Spread;

/// Requests of a run without pipelining, and of a small one; a pipelined run has so many times more.
const REQUESTS: u64 = 200_000;
const FEW_REQUESTS: u64 = 15_000;
const PIPELINED: u64 = 6;
const KEYS: u64 = 100_000;
/// The least that the system tells of CPU time.
const TICK_S: f64 = 0.01;
const SCRIPT: &str = "return redis.call('INCR',KEYS[1])";

/// What the tool, the sockets and one thread reach by themselves with the same requests and replies.
const BOUND: &str = "a server that does nothing";

/// A load: the words of its requests, and what the keyspace has before.
struct Load {
    name: &'static str,
    words: &'static [&'static str],
    before: Before,
}

/// What a load needs to be there.
#[derive(Clone, Copy)]
enum Before {
    /// Nothing.
    Empty,
    /// A list as long as there are requests.
    LongList,
    /// A list of a hundred elements.
    Hundred,
    /// A sorted set of ten thousand members.
    Ranked,
}

const fn load(name: &'static str, words: &'static [&'static str], before: Before) -> Load {
    Load { name, words, before }
}

#[rustfmt::skip] // a line each
const LOADS: [Load; 10] = [
    load("lpush", &["LPUSH", "list", "element"], Before::Empty),
    load("lpop", &["LPOP", "list"], Before::LongList),
    load("sadd", &["SADD", "set:__rand_int__", "member:__rand_int__"], Before::Empty),
    load("zadd", &["ZADD", "ranked", "__rand_int__", "member:__rand_int__"], Before::Empty),
    load("zrange", &["ZRANGE", "ranked", "0", "9"], Before::Ranked),
    load("xadd", &["XADD", "stream", "MAXLEN", "~", "100000", "*", "field", "value"], Before::Empty),
    load("hset", &["HSET", "hash:__rand_int__", "field:__rand_int__", "value"], Before::Empty),
    load("incr", &["INCR", "counter:__rand_int__"], Before::Empty),
    load("lrange_100", &["LRANGE", "list", "0", "99"], Before::Hundred),
    load("mset_10", &[
        "MSET", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value",
        "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value",
        "key:__rand_int__", "value", "key:__rand_int__", "value",
    ], Before::Empty),
];
const SCRIPTED: Load = load("eval", &["EVAL", SCRIPT, "1", "counter:__rand_int__"], Before::Empty);

/// The ratios at both pipelines.
#[derive(Debug, Default)]
pub struct RateResults {
    alone: Vec<Figure>,
    pipelined: Vec<Figure>,
    /// CPU time for a request in a pipeline, the peer's over ours.
    cpu: Vec<Figure>,
}

/// Measures on servers of this part's own.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<RateResults> {
    let mut found = RateResults::default();
    let mut candidates =
        (0..setup.programs().len()).map(|index| setup.start(index, "rates")).collect::<Result<Vec<_>, _>>()?;
    for load in LOADS.iter().chain([&SCRIPTED]) {
        found.alone.push(compare(setup, &mut candidates, load, 1)?.0);
        let (rate, cpu) = compare(setup, &mut candidates, load, 16)?;
        found.pipelined.push(rate);
        found.cpu.push(cpu);
    }
    Ok(found)
}

/// Adds the ratios.
pub fn figures(found: &RateResults, report: &mut Report) {
    let ratios =
        |figures: &[Figure]| figures.iter().map(|figure| (figure.name.clone(), figure.value)).collect::<Vec<_>>();
    let bound = |name: &str| {
        let bounds =
            found.pipelined.iter().filter_map(|figure| Some((figure.name.clone(), figure.bound.as_ref()?.value)));
        let bounds: Vec<(String, f64)> = bounds.collect();
        let [mean, worst] = summary("bound", BetterDirection::Higher, &bounds);
        if name == "mean" { mean.value } else { worst.value }
    };
    let [mean, worst] = summary("types_p16", BetterDirection::Higher, &ratios(&found.pipelined));
    report.results.push(mean.goal(1.5).bound(BOUND, bound("mean")));
    report.results.push(worst.goal(1.0).bound(BOUND, bound("worst")));
    report.info.extend(summary("types_p1", BetterDirection::Higher, &ratios(&found.alone)));
    report.info.extend(summary("types_p16_cpu", BetterDirection::Higher, &ratios(&found.cpu)));
    report.info.extend(found.pipelined.iter().chain(&found.cpu).chain(&found.alone).cloned());
}

/// The ratio of rates, and that of the CPU time for a request.
fn compare(
    setup: &ExperimentSetup,
    candidates: &mut [Candidate],
    load: &Load,
    pipeline: u32,
) -> anyhow::Result<(Figure, Figure)> {
    let requests = if setup.quick { FEW_REQUESTS } else { REQUESTS } * if pipeline > 1 { PIPELINED } else { 1 };
    let reply = checked_reply(candidates, load)?;
    let what = format!("{} at pipeline {pipeline}", load.name);
    let rate = |port: u16| {
        redis_benchmark::requests_per_s(BenchmarkRun {
            port,
            test: BenchmarkTest::Command(load.words),
            pipeline,
            requests,
            keys: KEYS,
            value_bytes: 3,
            // The tool spends more on a request that is not pipelined than a server.
            threads: if pipeline == 1 { 2 } else { 1 },
            connections: CONNECTIONS,
        })
    };
    let name = format!("{}_p{pipeline}_ratio", load.name);
    let mut cpu_us = vec![Vec::new(); candidates.len()];
    let figure = rate_ratio(setup, candidates, &name, &what, |candidate| {
        let (port, pid) = (candidate.server.port(), candidate.server.pid());
        prepare(&mut Connection::open(port)?, load.before, requests)?;
        setup.settle();
        let before_s = cpu_s(pid)?;
        let rate = rate(port)?;
        let took_s = (cpu_s(pid)? - before_s).max(TICK_S);
        let index = candidates.iter().position(|other| other.server.pid() == pid).unwrap_or(0);
        cpu_us[index].push(took_s * 1e6 / requests as f64);
        Ok(rate)
    })?;
    let cpu = cpu_ratio(candidates, &format!("{}_p{pipeline}_cpu_ratio", load.name), &cpu_us);
    let null_server = NullServer::answering(load.words, &reply.to_bytes())?;
    let null_rates = (0..setup.rounds).map(|_| rate(null_server.port())).collect::<anyhow::Result<Vec<f64>>>()?;
    let peer = of_peer(
        &figure.peer.iter().filter_map(|(name, rate)| Some((name.clone(), rate.as_f64()?))).collect::<Vec<_>>(),
    );
    Ok((figure.bound(BOUND, Spread::or_nan(&null_rates).median / peer), cpu))
}

/// The peer's CPU time for a request over ours, of the medians.
fn cpu_ratio(candidates: &[Candidate], name: &str, cpu_us: &[Vec<f64>]) -> Figure {
    let names = candidates.iter().map(|candidate| candidate.server.name().to_owned());
    let medians: Vec<(String, f64)> = names.zip(cpu_us.iter().map(|us| Spread::or_nan(us).median)).collect();
    let ratio = of_peer(&medians) / medians[0].1;
    let figure = Figure::new(name, ratio, "x", BetterDirection::Higher).note("µs of CPU time for a request");
    medians.iter().fold(figure, |figure, (name, us)| figure.peer(name, (us * 1000.0).round() / 1000.0))
}

/// Empties the keyspace and makes what the load needs.
fn prepare(control: &mut Connection, before: Before, requests: u64) -> anyhow::Result<()> {
    control.line("FLUSHALL")?;
    let (command, count): (&dyn Fn(u64) -> Vec<String>, u64) = match before {
        Before::Empty => return Ok(()),
        Before::LongList => (&|_| words("LPUSH list element"), requests),
        Before::Hundred => (&|number| words(&format!("RPUSH list element:{number}")), 100),
        Before::Ranked => (&|number| words(&format!("ZADD ranked {number} member:{number}")), 10_000),
    };
    super::memory_costs::send_all(control, (0..count).map(command))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// What the tool does not look at: every server answers the load. The reply of the last one.
fn checked_reply(candidates: &mut [Candidate], load: &Load) -> anyhow::Result<Value> {
    let words: Vec<String> = load.words.iter().map(|word| word.replace(RANDOM, "000000000006")).collect();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut last = Value::Bulk(None);
    for candidate in candidates {
        prepare(&mut candidate.control, load.before, 100)?;
        last = candidate.control.call(&words)?;
        ensure!(!matches!(last, Value::Error(_)), "{} answers {} with {last:?}", candidate.server.name(), load.name);
    }
    Ok(last)
}
