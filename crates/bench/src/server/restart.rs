//! Part `restart`: how soon a server that was killed answers its first read, and how soon it is at full speed.
//!
//! Relies on the last save lying on the disk; the page cache is dropped first when we may (root), for all servers alike.
//! Full speed is when the server says that nothing of the restore is left to do.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use quire_sys::page_cache;

use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::info::ServerInfo;
use crate::process::{Server, ServerKind, background_save, empty_start_ms};
use crate::report::{BetterDirection, Figure, Report};
use crate::resp::{Connection, Value};
use crate::stats::Spread;
use crate::{disk, memory};

/// Restarts of one server.
#[derive(Debug, Default)]
pub struct RestartTimes {
    first_read_ms: Vec<f64>,
    full_s: Vec<f64>,
    /// A start without data, up to the first answer.
    empty_start_ms: Vec<f64>,
    /// A direct read of the same file by itself, where the page cache could be dropped before the restart.
    raw_read_s: Vec<f64>,
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
    restarts.empty_start_ms.push(empty_start_ms(&program, port, &setup.dir().join("empty"))?);
    let cold = drop_page_cache(setup, &file);
    if cold {
        // A direct read leaves nothing of the file in the page cache.
        restarts.raw_read_s.push(disk::raw_read_s(&file)?);
    }
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

/// Drops the page cache so that the restart reads from the disk; false when we may not. A quick run, whose figures tell little and
/// beside which other programs may run, drops the pages of `file` only.
pub fn drop_page_cache(setup: &ExperimentSetup, file: &std::path::Path) -> bool {
    let synced = std::fs::File::open(file).and_then(|file| file.sync_all().map(|()| file));
    match synced {
        Ok(file) if setup.quick => {
            quire_sys::file::drop_cache(&file);
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            page_cache::resident_pages(&file, 0, len).is_ok_and(|pages| pages == 0)
        }
        Ok(_) => std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok(),
        Err(_) => false,
    }
}

/// Adds the figures of restarts.
pub fn figures(RestartResults { all, cold }: &RestartResults, report: &mut Report) {
    let cache = if *cold { "page cache dropped" } else { "page cache warm: it could not be dropped, which needs root" };
    let of = |values: &[f64]| Spread::of(values).context("no restart").expect("every server was restarted");
    let ours = &all[0].1;
    let theirs = all.iter().find(|(name, _)| name == PEER).map_or(ours, |(_, restarts)| restarts);
    let (first, full) = (of(&ours.first_read_ms), of(&ours.full_s));
    let (peer_first, peer_full) = (of(&theirs.first_read_ms).median, of(&theirs.full_s).median);
    report.results.push(
        Figure::new("restart_first_read_ms", first.median, "ms", BetterDirection::Lower)
            .goal(100.0)
            .spread(first)
            .peer(PEER, peer_first)
            .bound("a start without data", of(&ours.empty_start_ms).median)
            .note(format!("from starting the process; {cache}, free memory warm")),
    );
    let raw_read_s = Spread::of(&ours.raw_read_s).map_or(f64::NAN, |raw| raw.median);
    let bound = "a direct read of the same file";
    report.results.push(
        Figure::new("restart_full_s", full.median, "s", BetterDirection::Lower)
            .spread(full)
            .peer(PEER, peer_full)
            .bound(bound, raw_read_s)
            .note("until the server says that the restore is complete"),
    );
    report.results.push(
        Figure::new("restart_ratio", peer_full / full.median, "x", BetterDirection::Higher)
            .goal(8.0)
            .peer(PEER, peer_full)
            .bound(bound, peer_full / raw_read_s),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bound;

    #[test]
    fn a_restart_is_bounded_by_a_start_without_data_and_by_a_read_of_its_file_where_that_comes_from_the_disk() {
        let bounds = |raw_read_s: Vec<f64>| {
            let times = |first_read_ms, full_s, raw_read_s| RestartTimes {
                first_read_ms: vec![first_read_ms],
                full_s: vec![full_s],
                empty_start_ms: vec![20.0],
                raw_read_s,
            };
            let (ours, theirs) = (times(50.0, 2.0, raw_read_s), times(900.0, 12.0, vec![]));
            let all = vec![("quire".into(), ours), (PEER.into(), theirs)];
            let mut report = Report::new("server", serde_json::Map::new());
            figures(&RestartResults { all, cold: true }, &mut report);
            report.results.iter().map(|figure| figure.bound.clone().map(|Bound { value, .. }| value)).collect()
        };
        let cold: Vec<Option<f64>> = bounds(vec![1.0, 1.5, 3.0]);
        assert_eq!(cold, [Some(20.0), Some(1.5), Some(8.0)]);
        assert_eq!(bounds(vec![]), [Some(20.0), None, None]);
    }
}
