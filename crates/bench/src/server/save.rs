//! Part `save`: how long a save stalls commands, how fast it writes, and how much memory it takes.
//!
//! Relies on the servers' own account of their stalls, checked from outside by a connection that never stops asking; on
//! the set sizes in `/proc` for memory; and on a raw write of the same amount between the saves for the disk's rate.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::disk;
use crate::format::mebibytes;
use crate::info::ServerInfo;
use crate::load::beside_updates::beside_updates;
use crate::load::closed_loop::UpdateLoop;
use crate::memory;
use crate::process::{ServerKind, background_save, watched_save};
use crate::report::{BetterDirection, Figure, Report};
use crate::resp::Connection;
use crate::stats::Spread;
use crate::write_limit::WriteLimit;

/// What the saves of one server showed.
#[derive(Debug, Default)]
pub struct SaveStats {
    stalls_us: Vec<f64>,
    probes_us: Vec<f64>,
    took_s: Vec<f64>,
    rates: Vec<f64>,
    raw_rates: Vec<f64>,
    extra_mib: f64,
    updated_share: f64,
    /// The same on a disk so slow that every key is updated while the save runs.
    slow: Option<SlowSave>,
}

/// A save on a slow disk under updates.
#[derive(Debug)]
struct SlowSave {
    extra_mib: f64,
    updated_share: f64,
    took_s: f64,
    /// What the disk lets through in a second.
    limit_bytes_per_s: u64,
    file_bytes: u64,
    longest_wait_us: f64,
}

/// The saves of every server, ours first.
pub type SaveResults = Vec<(String, SaveStats)>;

/// Measures saves at rest and under updates.
pub fn measure(setup: &ExperimentSetup, candidates: &mut [Candidate]) -> anyhow::Result<SaveResults> {
    let mut all = Vec::new();
    for candidate in candidates.iter_mut() {
        let mut saves = SaveStats::default();
        idle_saves(setup, candidate, &mut saves)?;
        let (extra_mib, updated_share, _) = save_under_updates(setup, candidate, &mut saves)?;
        (saves.extra_mib, saves.updated_share) = (extra_mib, updated_share);
        if candidate.server.kind() == ServerKind::Quire {
            slow_save(setup, candidate, &mut saves)?;
        }
        all.push((candidate.server.name().to_owned(), saves));
    }
    Ok(all)
}

fn idle_saves(setup: &ExperimentSetup, candidate: &mut Candidate, saves: &mut SaveStats) -> anyhow::Result<()> {
    let ours = candidate.server.kind() == ServerKind::Quire;
    // A peer's save takes seconds even in the quick run, and its rate is not in question.
    let rounds = if ours { setup.rounds.max(3) } else { 1 };
    for round in 0..rounds {
        setup.say(&format!("saves of {} at rest, {} of {rounds}", candidate.server.name(), round + 1));
        setup.settle();
        let mut asking = Connection::open(candidate.server.port())?;
        let stop = AtomicBool::new(false);
        let (save, worst_us) = std::thread::scope(|scope| {
            let probe = scope.spawn(|| worst_round_trip_us(&mut asking, &stop));
            std::thread::sleep(Duration::from_millis(20));
            let save = background_save(&mut candidate.control, Duration::from_millis(2));
            stop.store(true, Ordering::Relaxed);
            (save, probe.join().expect("the probe does not panic"))
        });
        let save = save?;
        saves.probes_us.push(worst_us?.min(save.reply.as_micros() as f64));
        saves.stalls_us.push(candidate.server.save_stall_us(&mut candidate.control)?);
        saves.took_s.push(save.took.as_secs_f64());
        let bytes = candidate.server.saved_file()?.metadata()?.blocks() * 512;
        saves.rates.push(bytes as f64 / save.took.as_secs_f64());
        if ours {
            saves.raw_rates.push(disk::raw_write_bytes_per_s(setup.dir(), bytes)?);
        }
    }
    Ok(())
}

/// The longest of the round trips of PING until `stop`, in the quarter of a second around the cut.
fn worst_round_trip_us(connection: &mut Connection, stop: &AtomicBool) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut worst = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) && began.elapsed() < Duration::from_millis(250) {
        let sent = Instant::now();
        connection.send(b"*1\r\n$4\r\nPING\r\n")?;
        connection.skip(1)?;
        worst = worst.max(sent.elapsed());
    }
    Ok(worst.as_micros() as f64)
}

/// Our saves end before all keys can have been updated, so one is made on a disk that is slow enough.
fn slow_save(setup: &ExperimentSetup, candidate: &mut Candidate, saves: &mut SaveStats) -> anyhow::Result<()> {
    let seconds = if setup.quick { 2 } else { 120 };
    let limit_bytes_per_s = setup.data_bytes() / seconds;
    let limit = WriteLimit::set(candidate.server.pid(), candidate.server.dir(), limit_bytes_per_s);
    if limit.is_none() {
        setup.say("the disk can't be slowed down here (needs root and cgroup v1 blkio)");
        return Ok(());
    }
    let (extra_mib, updated_share, took_s) = save_under_updates(setup, candidate, saves)?;
    let longest_wait_us = ServerInfo::ask(&mut candidate.control, "persistence")?.number("writer_wait_longest_us")?;
    let file_bytes = candidate.server.saved_file()?.metadata()?.blocks() * 512;
    saves.slow = Some(SlowSave { extra_mib, updated_share, took_s, limit_bytes_per_s, file_bytes, longest_wait_us });
    Ok(())
}

/// Returns the extra memory in MiB, updates during the save as a share of all keys, and how long it took in seconds.
fn save_under_updates(
    setup: &ExperimentSetup,
    candidate: &mut Candidate,
    saves: &mut SaveStats,
) -> anyhow::Result<(f64, f64, f64)> {
    setup.say(&format!("save of {} while 4 clients update every key", candidate.server.name()));
    let plan = UpdateLoop {
        port: candidate.server.port(),
        keys: setup.keys,
        value_bytes: setup.value_bytes,
        connections: 4,
        pipeline: 16,
    };
    // One round of updates first, so that buffers and fragments that the load itself causes count as data.
    let lead = if setup.quick { Duration::from_millis(500) } else { Duration::from_secs(5) };
    let (pid, interval) = (candidate.server.pid(), candidate.server.kind().memory_interval());
    let ((before, save, peak), rates) = beside_updates(plan, lead, || {
        let before = memory::proportional_bytes(pid)?;
        let (save, peak) = watched_save(&mut candidate.control, pid, Duration::from_millis(10), interval)?;
        Ok((before, save, peak))
    })?;
    saves.stalls_us.push(candidate.server.save_stall_us(&mut candidate.control)?);
    let extra_mib = mebibytes(peak.saturating_sub(before));
    Ok((extra_mib, rates.updates as f64 / setup.keys as f64, save.took.as_secs_f64()))
}

/// Adds the figures of cut stalls, dump rate and memory during a save.
pub fn figures(all: &SaveResults, report: &mut Report) {
    add_stalls(all, report);
    add_memory(all, report);
    add_rates(all, report);
}

/// Our saves, and those of the peer that ratios are taken against.
fn both(all: &SaveResults) -> (&SaveStats, &SaveStats) {
    let ours = &all[0].1;
    (ours, all.iter().find(|(name, _)| name == PEER).map_or(ours, |(_, saves)| saves))
}

fn add_stalls(all: &SaveResults, report: &mut Report) {
    let (ours, theirs) = both(all);
    let stall = Spread::of(&ours.stalls_us).expect("there was a save");
    let peer_stall = Spread::of(&theirs.stalls_us).expect("there was a save");
    let mut figure = Figure::new("cut_stall_us", stall.median, "us", BetterDirection::Lower).goal(200.0).spread(stall);
    for (name, saves) in &all[1..] {
        figure = figure.peer(name, Spread::of(&saves.stalls_us).map_or(0.0, |spread| spread.median));
    }
    report.results.push(figure.note("by INFO, at rest and under updates"));
    report.results.push(
        Figure::new("cut_stall_ratio", peer_stall.median / stall.median.max(1.0), "x", BetterDirection::Higher)
            .peer(PEER, peer_stall.median)
            .note("the peer's fork stall over our cut stall"),
    );
    let probe = Spread::of(&ours.probes_us).expect("there was a save");
    let peer_probe = Spread::of(&theirs.probes_us).map_or(0.0, |spread| spread.median);
    report.info.push(
        Figure::new("cut_stall_outside_us", probe.median, "us", BetterDirection::Lower)
            .spread(probe)
            .peer(PEER, peer_probe)
            .note("the stall as other clients saw it: the lesser of BGSAVE's reply time and the longest PING then"),
    );
}

fn add_memory(all: &SaveResults, report: &mut Report) {
    let (ours, theirs) = both(all);
    let slow_extra_mib = ours.slow.as_ref().map_or(0.0, |slow| slow.extra_mib);
    let extra_mib = ours.extra_mib.max(slow_extra_mib);
    let mut figure = Figure::new("save_extra_memory_mib", extra_mib, "MiB", BetterDirection::Lower).goal(80.0);
    for (name, saves) in &all[1..] {
        figure = figure.peer(name, saves.extra_mib);
    }
    report.results.push(figure.note(format!(
        "peak of the proportional set size (with children) above just before; updates during the save: {:.0} % of keys{}, \
         {PEER} {:.0} %",
        ours.updated_share * 100.0,
        ours.slow.as_ref().map_or_else(String::new, |slow| format!(
            " ({:.1} MiB) and, on a slowed disk, {:.0} % ({:.1} MiB)",
            ours.extra_mib,
            slow.updated_share * 100.0,
            slow.extra_mib
        )),
        theirs.updated_share * 100.0
    )));
    if let Some(slow) = &ours.slow {
        let at_limit_s = slow.file_bytes as f64 / slow.limit_bytes_per_s as f64;
        report.info.push(
            Figure::new("slow_disk_save_s", slow.took_s, "s", BetterDirection::Lower)
                .bound("the file's bytes at the rate that the disk is limited to", at_limit_s),
        );
        report.info.push(
            Figure::new("slow_disk_longest_wait_us", slow.longest_wait_us, "us", BetterDirection::Lower)
                .note("the longest that a command waited for the save, with a disk far too slow for the updates"),
        );
    }
}

fn add_rates(all: &SaveResults, report: &mut Report) {
    let (ours, theirs) = both(all);
    let ratios: Vec<f64> = ours.rates.iter().zip(&ours.raw_rates).map(|(dump, raw)| dump / raw).collect();
    let ratio = Spread::of(&ratios).expect("there was a save");
    let mib = |rates: &[f64]| Spread::of(rates).map_or(0.0, |spread| mebibytes(spread.median as u64).round());
    report.results.push(
        Figure::new("save_vs_disk_ratio", ratio.median, "x", BetterDirection::Higher)
            .goal(0.7)
            .spread(ratio)
            .bound("a direct write of as many bytes with fsync", 1.0)
            .peer("raw direct write MiB/s", mib(&ours.raw_rates))
            .peer("quire MiB/s", mib(&ours.rates))
            .peer("redis-server MiB/s", mib(&theirs.rates))
            .note("bytes on disk over the time from BGSAVE to done, at rest"),
    );
    let seconds = |saves: &SaveStats| Spread::of(&saves.took_s).map_or(0.0, |spread| spread.median);
    let raw_s: Vec<f64> = ours.took_s.iter().zip(&ratios).map(|(took_s, ratio)| took_s * ratio).collect();
    report.info.push(
        Figure::new("save_s", seconds(ours), "s", BetterDirection::Lower)
            .peer(PEER, seconds(theirs))
            .bound("a direct write of as many bytes with fsync", Spread::of(&raw_s).map_or(f64::NAN, |raw| raw.median)),
    );
}
