//! Part `latency`: the 99.9th percentile while a save runs against the same without, under a steady load.
//!
//! Relies on an open loop (see [`crate::load::paced`]) at a fixed moderate rate; saves and rests alternate within one
//! run, so that both percentiles come from the same minutes. What happens up to 100 ms after a save counts as during it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};
use crate::load::closed_loop::{self, UpdateLoop, micros};
use crate::load::open_loop::{self, LatencySample, OpenLoop};
use crate::process::{ServerKind, background_save};
use crate::report::{BetterDirection, Figure, Report};
use crate::stats;

/// Connections of the steady load.
const CONNECTIONS: u32 = 8;
const TAIL_US: u32 = 100_000;
const WARM_UP_US: u32 = 300_000;

/// Samples of one run and when its saves ran.
#[derive(Debug)]
struct Timeline {
    samples: Vec<LatencySample>,
    saves: Vec<(u32, u32)>,
}

/// The 99.9th percentiles of a timeline.
#[derive(Debug, Clone, Copy)]
struct TailLatencies {
    without_us: f64,
    during_us: f64,
    worst_during_us: f64,
}

/// What the loads of every server met, ours first.
#[derive(Debug)]
pub struct LatencyResults {
    tails: Vec<(String, TailLatencies)>,
    timelines: Vec<(String, Timeline)>,
    /// At saturation; measured in the long run only.
    saturated: Option<Vec<(String, TailLatencies)>>,
}

/// Measures the tails with and without saves, and in the long run the same at saturation.
pub fn measure(setup: &ExperimentSetup, candidates: &mut [Candidate]) -> anyhow::Result<LatencyResults> {
    let mut tails = Vec::new();
    let mut timelines = Vec::new();
    for candidate in candidates.iter_mut() {
        setup.say(&format!("{} under {} requests/s, with and without saves", candidate.server.name(), setup.rate));
        let plan = OpenLoop {
            port: candidate.server.port(),
            keys: setup.keys,
            value_bytes: setup.value_bytes,
            rate: setup.rate,
            connections: CONNECTIONS,
            only_sets: false,
        };
        let timeline = around_saves(setup, candidate, |origin, stop| open_loop::run(plan, origin, stop))?;
        tails.push((candidate.server.name().to_owned(), timeline.tails()?));
        timelines.push((candidate.server.name().to_owned(), timeline));
    }
    let saturated = if setup.quick { None } else { Some(at_saturation(setup, candidates)?) };
    Ok(LatencyResults { tails, timelines, saturated })
}

fn at_saturation(
    setup: &ExperimentSetup,
    candidates: &mut [Candidate],
) -> anyhow::Result<Vec<(String, TailLatencies)>> {
    let mut tails = Vec::new();
    for candidate in candidates.iter_mut() {
        setup.say(&format!("{} at saturation, with and without saves", candidate.server.name()));
        let plan = UpdateLoop {
            port: candidate.server.port(),
            keys: setup.keys,
            value_bytes: setup.value_bytes,
            connections: 4,
            pipeline: 1,
        };
        let done = AtomicU64::new(0);
        let load = |origin, stop: &AtomicBool| Ok(closed_loop::update(plan, origin, stop, &done)?.samples);
        tails.push((candidate.server.name().to_owned(), around_saves(setup, candidate, load)?.tails()?));
    }
    Ok(tails)
}

/// Adds `p999_during_save_ratio`, and the same at saturation where it was measured.
pub fn figures(found: &LatencyResults, rate: u64, report: &mut Report) {
    let note = format!(
        "open loop, {rate} requests/s over {CONNECTIONS} connections, half SET; latencies count from when requests were due"
    );
    report.results.push(ratio_figure("p999_during_save_ratio", &found.tails).goal(1.5).note(note));
    let ours = found.tails[0].1;
    let theirs = found.tails.iter().find(|(name, _)| name == PEER).map_or(ours, |(_, tails)| *tails);
    for (name, pick) in [
        ("p999_without_save_us", (|tails: &TailLatencies| tails.without_us) as fn(&TailLatencies) -> f64),
        ("p999_during_save_us", |tails| tails.during_us),
        ("worst_during_save_us", |tails| tails.worst_during_us),
    ] {
        report.info.push(Figure::new(name, pick(&ours), "us", BetterDirection::Lower).peer(PEER, pick(&theirs)));
    }
    if let Some(tails) = &found.saturated {
        let figure = ratio_figure("p999_during_save_saturated_ratio", tails);
        report.info.push(figure.note("closed loop, 4 connections that only SET, as fast as the server answers"));
    }
}

/// Latency over time while saves run, a chart for each server with the same height.
pub fn charts(found: &LatencyResults) -> Vec<Chart> {
    let worst = |samples: &[LatencySample]| samples.iter().map(|sample| sample.1).max().unwrap_or(0);
    let most_us = found.timelines.iter().map(|(_, line)| worst(&line.samples)).max().unwrap_or(0);
    let seconds = |micros: u32| f64::from(micros) / 1e6;
    let chart = |(server, line): &(String, Timeline)| Chart {
        file: format!("latency-{server}"),
        title: format!("{server}: worst latency of every 10 ms (shaded: a save runs)"),
        x: Axis::new("seconds", "seconds", AxisScale::Linear),
        y: Axis {
            reach: f64::from(most_us) / 1e3,
            ..Axis::new("milliseconds", "worst_latency_ms", AxisScale::PowersOfTen)
        },
        body: ChartKind::Lines {
            marks: false,
            shaded: line.saves.iter().map(|&(from, to)| (seconds(from), seconds(to))).collect(),
        },
        series: vec![Series { name: server.clone(), points: worst_per_slot(&line.samples) }],
    };
    found.timelines.iter().map(chart).collect()
}

/// Seconds, and the worst latency of every 10 ms in milliseconds: that keeps the file small and loses no stall.
fn worst_per_slot(samples: &[LatencySample]) -> Vec<(f64, f64)> {
    let mut slots: Vec<(u32, u32)> = Vec::new();
    for &(due, latency) in samples {
        let slot = due / 10_000;
        match slots.last_mut() {
            Some(last) if last.0 == slot => last.1 = last.1.max(latency),
            _ => slots.push((slot, latency)),
        }
    }
    slots.into_iter().map(|(slot, latency)| (f64::from(slot) / 100.0, f64::from(latency.max(1)) / 1000.0)).collect()
}

/// Runs `load` on another thread while saves and rests alternate.
fn around_saves(
    setup: &ExperimentSetup,
    candidate: &mut Candidate,
    load: impl FnOnce(Instant, &AtomicBool) -> anyhow::Result<Vec<LatencySample>> + Send,
) -> anyhow::Result<Timeline> {
    let ours = candidate.server.kind() == ServerKind::Quire;
    let count = match (ours, setup.quick) {
        (true, true) => 5,
        (true, false) => 8,
        (false, true) => 1,
        (false, false) => 2,
    };
    let rest = Duration::from_millis(if ours { 500 } else { 1800 } * if setup.quick { 1 } else { 3 });
    setup.settle();
    let (origin, stop) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(origin, &stop));
        let mut saves = Vec::new();
        let mut failed = None;
        std::thread::sleep(Duration::from_micros(u64::from(WARM_UP_US)));
        for _ in 0..count {
            std::thread::sleep(rest);
            match background_save(&mut candidate.control, Duration::from_millis(10)) {
                Ok(save) => {
                    let from = save.began - origin;
                    saves.push((micros(from), micros(from + save.took)));
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        std::thread::sleep(rest.min(Duration::from_secs(1)));
        stop.store(true, Ordering::Relaxed);
        let samples = loading.join().expect("the load does not panic")?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Timeline { samples, saves }),
        }
    })
}

impl Timeline {
    fn tails(&self) -> anyhow::Result<TailLatencies> {
        let (mut without, mut during) = (stats::latency_histogram(), stats::latency_histogram());
        for &(due, latency) in self.samples.iter().filter(|sample| sample.0 >= WARM_UP_US) {
            let in_save = self.saves.iter().any(|&(from, to)| due >= from.saturating_sub(1000) && due <= to + TAIL_US);
            let histogram = if in_save { &mut during } else { &mut without };
            histogram.saturating_record(u64::from(latency).max(1));
        }
        let enough = || anyhow::anyhow!("too few requests for a 99.9th percentile; raise --rate or --keys");
        Ok(TailLatencies {
            without_us: stats::p999_us(&without).ok_or_else(enough)?,
            during_us: stats::p999_us(&during).ok_or_else(enough)?,
            worst_during_us: during.max() as f64,
        })
    }
}

fn ratio_figure(name: &str, tails: &[(String, TailLatencies)]) -> Figure {
    let ratio = |tails: &TailLatencies| tails.during_us / tails.without_us.max(1.0);
    let mut figure = Figure::new(name, ratio(&tails[0].1), "x", BetterDirection::Lower);
    for (name, tails) in &tails[1..] {
        figure = figure.peer(name, ratio(tails));
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_in_and_shortly_after_a_save_count_as_during_it() {
        let mut samples: Vec<LatencySample> = (0..4000).map(|index| (400_000 + index * 100, 50)).collect();
        samples.extend((0..2000).map(|index| (1_000_000 + index * 100, 400)));
        let timeline = Timeline { samples, saves: vec![(1_000_000, 1_100_000)] };
        let tails = timeline.tails().unwrap();
        assert_eq!((tails.without_us, tails.during_us), (50.0, 400.0));
    }

    #[test]
    fn a_stall_is_drawn_and_charts_have_the_same_height() {
        let line =
            |worst| Timeline { samples: vec![(100, 50), (9_000, worst), (20_000, 60)], saves: vec![(5_000, 15_000)] };
        let timelines = vec![("quire".to_owned(), line(900)), ("redis-server".to_owned(), line(80_000))];
        let charts = charts(&LatencyResults { tails: vec![], timelines, saturated: None });
        assert_eq!(charts[1].series[0].points, [(0.0, 80.0), (0.02, 0.06)]);
        assert_eq!((charts[0].y.reach, charts[1].y.reach), (80.0, 80.0));
        assert_eq!(charts[0].file, "latency-quire");
    }
}
