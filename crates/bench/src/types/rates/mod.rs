//! Part `rates`: requests a second of a command for each type, alone and in pipelines of 16.
//!
//! There are two loads of pipelines. Users know redis-benchmark, but it takes longer for many a request than a server does: the rates of all
//! servers are then the tool's, and a server that does nothing is no faster. So the rates with goals are those of a client of our own that
//! costs less for a request than the servers ([`crate::load::pipelined`]), and redis-benchmark's are told besides. Each load has its own bound:
//! what the same client reaches with a server that does nothing. The part of the time that our own client was busy is a figure, too.
//! Without a pipeline our own client alone is used: redis-benchmark needs two threads for that, and with threads it looks at the
//! time four times a second only, which is a tenth of such a run.
//!
//! Relies on every server answering the load alike, which is looked at before it is measured.

mod client;
mod figures;
mod loads;

use client::Client;
pub use figures::figures;
use loads::{LOADS, Load};

use super::of_peer;
use crate::null_server::NullServer;
use crate::process::cpu_s;
use crate::report::{BetterDirection, Figure};
use crate::resp::Connection;
use crate::server::setup::{Candidate, ExperimentSetup, rate_ratio};
use crate::stats::Spread;

/// The least that the system tells of CPU time.
const TICK_S: f64 = 0.01;

/// What the client, the sockets and one thread reach by themselves with the same requests and replies.
const BOUND: &str = "a server that does nothing";

/// The ratios with each client.
#[derive(Debug, Default)]
pub struct RateResults {
    alone: Vec<Figure>,
    pipelined: Vec<Figure>,
    redis_benchmark: Vec<Figure>,
    /// CPU time for a request in a pipeline of our own client, the peer's over ours.
    cpu: Vec<Figure>,
    /// The part of the time that our own client was busy: the most of any server and round, by load.
    client_busy: Vec<(String, f64)>,
}

/// One load by one client on all servers.
struct Compared {
    rate: Figure,
    cpu: Figure,
    client_busy: f64,
}

/// Measures on servers of this part's own.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<RateResults> {
    let mut found = RateResults::default();
    let mut candidates =
        (0..setup.programs().len()).map(|index| setup.start(index, "rates")).collect::<Result<Vec<_>, _>>()?;
    for load in &LOADS {
        found.alone.push(compare(setup, &mut candidates, load, Client::Alone)?.rate);
        let tool = compare(setup, &mut candidates, load, Client::PipelinedRedisBenchmark)?;
        found.redis_benchmark.push(tool.rate);
        let own = compare(setup, &mut candidates, load, Client::Pipelined)?;
        found.client_busy.push((load.name.to_owned(), own.client_busy));
        found.pipelined.push(own.rate);
        found.cpu.push(own.cpu);
    }
    Ok(found)
}

/// The ratio of rates, that of the CPU time for a request, and how busy the client was.
fn compare(
    setup: &ExperimentSetup,
    candidates: &mut [Candidate],
    load: &Load,
    client: Client,
) -> anyhow::Result<Compared> {
    let requests = client.requests(setup.quick);
    let reply = load.checked_reply(candidates)?;
    let what = format!("{} with {}", load.name, client.label());
    let name = format!("{}_{}", load.name, client.label());
    let mut cpu_us = vec![Vec::new(); candidates.len()];
    let mut client_busy = f64::NAN;
    let figure = rate_ratio(setup, candidates, &format!("{name}_ratio"), &what, |candidate| {
        let (port, pid) = (candidate.server.port(), candidate.server.pid());
        load.prepare(&mut Connection::open(port)?, requests)?;
        setup.settle();
        let before_s = cpu_s(pid)?;
        let run = client.run(port, load, requests)?;
        let took_s = (cpu_s(pid)? - before_s).max(TICK_S);
        let index = candidates.iter().position(|other| other.server.pid() == pid).unwrap_or(0);
        cpu_us[index].push(took_s * 1e6 / requests as f64);
        client_busy = client_busy.max(run.client_busy);
        Ok(run.requests_per_s)
    })?;
    let cpu = cpu_ratio(candidates, &format!("{name}_cpu_ratio"), &cpu_us);
    let null_server = NullServer::answering(load.words, &reply.to_bytes())?;
    let null_rate = |_| Ok(client.run(null_server.port(), load, requests)?.requests_per_s);
    let null_rates = (0..setup.rounds).map(null_rate).collect::<anyhow::Result<Vec<f64>>>()?;
    let peer = of_peer(
        &figure.peer.iter().filter_map(|(name, rate)| Some((name.clone(), rate.as_f64()?))).collect::<Vec<_>>(),
    );
    let rate = figure.bound(BOUND, Spread::or_nan(&null_rates).median / peer);
    Ok(Compared { rate, cpu, client_busy })
}

/// The peer's CPU time for a request over ours, of the medians.
fn cpu_ratio(candidates: &[Candidate], name: &str, cpu_us: &[Vec<f64>]) -> Figure {
    let names = candidates.iter().map(|candidate| candidate.server.name().to_owned());
    let medians: Vec<(String, f64)> = names.zip(cpu_us.iter().map(|us| Spread::or_nan(us).median)).collect();
    let ratio = of_peer(&medians) / medians[0].1;
    let figure = Figure::new(name, ratio, "x", BetterDirection::Higher).note("µs of CPU time for a request");
    medians.iter().fold(figure, |figure, (name, us)| figure.peer(name, (us * 1000.0).round() / 1000.0))
}
