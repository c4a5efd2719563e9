//! Part `restart`: how soon a server that was killed answers its first read, and how soon it is at full speed.
//!
//! Relies on the last save lying on the disk; the page cache is dropped first when we may (root), for all servers alike.
//! Full speed is when the server says that nothing of the restore is left to do.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::info::ServerInfo;
use crate::memory;
use crate::process::{Server, ServerKind, background_save};
use crate::report::{Better, Figure, Report};
use crate::resp::{Connection, Value};
use crate::stats::Spread;

/// Restarts of one server.
#[derive(Debug, Default)]
pub struct RestartTimes {
    first_read_ms: Vec<f64>,
    full_s: Vec<f64>,
}

/// The restarts of every server, ours first.
#[derive(Debug)]
pub struct RestartResults {
    all: Vec<(String, RestartTimes)>,
    /// The page cache was dropped before each of them.
    cold: bool,
}

/// Measures restarts; returns the servers as they are afterwards, too.
pub fn measure(
    setup: &ExperimentSetup,
    candidates: Vec<Candidate>,
) -> anyhow::Result<(RestartResults, Vec<Candidate>)> {
    let (mut all, mut restarted) = (Vec::new(), Vec::new());
    let mut cold = true;
    for candidate in candidates {
        let name = candidate.server.name().to_owned();
        let ours = candidate.server.kind() == ServerKind::Quire;
        let rounds = if ours { setup.rounds.max(3) } else { 1 };
        let mut restarts = RestartTimes::default();
        let mut next = candidate;
        if ours || !setup.quick || next.server.saved_file().is_err() {
            setup.say(&format!("saving {name} for its restarts"));
            background_save(&mut next.control, Duration::from_millis(10))?;
        }
        for round in 0..rounds {
            setup.say(&format!("restart of {name}, {} of {rounds}", round + 1));
            let (server, was_cold) = restart(setup, next, &mut restarts)?;
            cold &= was_cold;
            next = server;
        }
        restarted.push(next);
        all.push((name, restarts));
    }
    Ok((RestartResults { all, cold }, restarted))
}

fn restart(
    setup: &ExperimentSetup,
    candidate: Candidate,
    restarts: &mut RestartTimes,
) -> anyhow::Result<(Candidate, bool)> {
    let (program, port, dir) =
        (candidate.server.program().clone(), candidate.server.port(), candidate.server.dir().to_owned());
    drop(candidate.control);
    let file = candidate.server.saved_file()?;
    candidate.server.kill();
    let cold = drop_page_cache(&file);
    setup.settle();
    // Right before the start: a virtual machine gives free memory back to its host within seconds, and getting it again
    // costs 10 µs a page, which would be charged to the restart.
    memory::warm_huge(setup.data_bytes() * 2);
    let mut server = Server::start(&program, port, &dir)?;
    let mut control = server.connect()?;
    first_read(&mut control, setup.keys / 2, setup.value_bytes)?;
    restarts.first_read_ms.push(server.started().elapsed().as_secs_f64() * 1000.0);
    wait_restored(&mut control, server.kind())?;
    restarts.full_s.push(server.started().elapsed().as_secs_f64());
    Ok((Candidate { server, control }, cold))
}

/// Asks for a key in the middle of the data set until it is there.
pub fn first_read(control: &mut Connection, key: u64, value_bytes: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut name = [0; crate::requests::KEY_BYTES];
    crate::requests::write_key(key, &mut name);
    loop {
        match control.call(&[b"GET", &name])? {
            Value::Bulk(Some(value)) if value.len() == value_bytes => return Ok(()),
            Value::Error(text) if text.starts_with("LOADING") => std::thread::sleep(Duration::from_micros(500)),
            other => bail!("after the restart a key of the data set read as {other:?}"),
        }
        if began.elapsed() > Duration::from_secs(300) {
            bail!("no read succeeded within five minutes of the restart");
        }
    }
}

/// Waits until the server says that nothing of the restore is left to do.
pub fn wait_restored(control: &mut Connection, kind: ServerKind) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let info = ServerInfo::ask(control, "persistence")?;
        let done = match kind {
            ServerKind::Redis => !info.flag("loading"),
            // Asked for as a number: were the field missing, "no" would flatter us.
            ServerKind::Quire => !info.flag("loading") && info.number("restore_in_progress")? == 0.0,
        };
        if done {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(300) {
            bail!("the restore is not done after five minutes");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Drops the page cache so that the restart reads from the disk; false when we may not.
pub fn drop_page_cache(file: &std::path::Path) -> bool {
    let synced = std::fs::File::open(file).and_then(|file| file.sync_all());
    synced.is_ok() && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Adds the figures of restarts.
pub fn figures(RestartResults { all, cold }: &RestartResults, report: &mut Report) {
    let cache = if *cold { "page cache dropped" } else { "page cache warm: dropping it needs root" };
    let of = |values: &[f64]| Spread::of(values).context("no restart").expect("every server was restarted");
    let ours = &all[0].1;
    let theirs = all.iter().find(|(name, _)| name == PEER).map_or(ours, |(_, restarts)| restarts);
    let (first, full) = (of(&ours.first_read_ms), of(&ours.full_s));
    let (peer_first, peer_full) = (of(&theirs.first_read_ms).median, of(&theirs.full_s).median);
    report.results.push(
        Figure::new("restart_first_read_ms", first.median, "ms", Better::Lower)
            .goal(100.0)
            .spread(first)
            .peer(PEER, peer_first)
            .note(format!("from starting the process; {cache}, free memory warm")),
    );
    report.results.push(
        Figure::new("restart_full_s", full.median, "s", Better::Lower)
            .spread(full)
            .peer(PEER, peer_full)
            .note("until the server says that the restore is complete"),
    );
    report.results.push(
        Figure::new("restart_ratio", peer_full / full.median, "x", Better::Higher).goal(8.0).peer(PEER, peer_full),
    );
}
