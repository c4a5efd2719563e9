//! One trial of one server: updates as fast as it answers, saves in between, and what clients saw meanwhile.
//!
//! Relies on two loads at once: closed loops that keep the server busy, whose updates are counted; and a steady trickle
//! in an open loop, whose latencies count from when requests were due, so that a stall weighs as it does on users who
//! don't wait for each other. The closed loops go on between the saves, where the library mends huge pages: what that
//! costs shows in the rate of the whole cycle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

use super::candidates::{Candidate, ForkersScale};
use crate::load::closed_loop::micros;
use crate::load::open_loop::{self, LatencySample, OpenLoop};
use crate::memory;
use crate::process::{background_save, cpu_s};
use crate::requests::{self, Values};
use crate::resp::Connection;
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Threads that keep the server busy.
const THREADS: u64 = 2;
/// Connections of each: all are sent a batch before the first is waited for, so that the server always has more to do and
/// sets the pace itself.
const CONNECTIONS: usize = 2;
/// Requests in a batch.
const PIPELINE: usize = 16;
/// Requests a second of the trickle, over four connections.
const TRICKLE_PER_S: u64 = 2000;
/// A stall's last victims answer that long after the save.
const TAIL: Duration = Duration::from_millis(100);
/// Updates before the first save, and at least between and after saves.
const LEAD: Duration = Duration::from_millis(300);
const LEAST_REST: Duration = Duration::from_millis(600);

/// The load of a round.
#[derive(Debug, Clone, Copy)]
pub struct UpdateLoad {
    /// From the beginning of a save to that of the next; zero: as soon as may be.
    pub period: Duration,
    /// Exponent of the Zipf distribution of keys.
    pub skew: f64,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

/// The result of a trial.
#[derive(Debug, Default)]
pub struct TrialResult {
    /// Updates a second while a save ran, of each save.
    pub during_per_s: Vec<f64>,
    /// Updates a second from the beginning of a save to that of the next.
    pub cycle_per_s: Vec<f64>,
    /// Updates a second after each save.
    pub rest_per_s: Vec<f64>,
    /// Latencies of the trickle while a save ran.
    pub latencies_us: Vec<u32>,
    /// How long the saves took, in seconds.
    pub took_s: Vec<f64>,
    /// How long the server says that its forks took, in microseconds.
    pub forks_us: Vec<f64>,
    /// Processor time of the server's process per update while a save ran, in microseconds.
    pub processor_us: Vec<f64>,
    /// Memory above that before the save, with the child's, if it was watched.
    pub extra_mib: Option<f64>,
}

/// Runs `candidate` for `saves` saves under `load`, after `unmeasured` ones from which the library learns the load; `watch_memory` slows the server down, so such a trial is for memory only.
///
/// # Errors
/// When a connection fails, an update is refused or a save fails.
pub fn run(
    scale: &ForkersScale,
    candidate: &mut Candidate,
    load: UpdateLoad,
    (unmeasured, saves): (usize, usize),
    watch_memory: bool,
) -> anyhow::Result<TrialResult> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let port = candidate.server.port();
    let origin = Instant::now();
    let trickle = OpenLoop {
        port,
        keys: scale.keys,
        value_bytes: scale.value_bytes,
        rate: TRICKLE_PER_S,
        connections: 4,
        only_sets: false,
    };
    std::thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        let updates: Vec<_> =
            (0..THREADS).map(|worker| scope.spawn(move || update(port, scale, load, worker, stop, done))).collect();
        let trickle = scope.spawn(move || open_loop::run(trickle, origin, stop));
        let saved = save_several(candidate, (unmeasured, saves), load.period, watch_memory, done, origin);
        stop.store(true, Ordering::Relaxed);
        for worker in updates {
            worker.join().expect("an updating thread does not panic")?;
        }
        let samples = trickle.join().expect("the trickle does not panic")?;
        let (mut trial, spans) = saved?;
        trial.latencies_us = within(&samples, &spans);
        Ok(trial)
    })
}

fn within(samples: &[LatencySample], spans: &[(u32, u32)]) -> Vec<u32> {
    let during = |due: u32| spans.iter().any(|&(from, to)| (from..=to).contains(&due));
    samples.iter().filter(|&&(due, _)| during(due)).map(|&(_, latency)| latency).collect()
}

type Spans = Vec<(u32, u32)>;

fn save_several(
    candidate: &mut Candidate,
    (unmeasured, saves): (usize, usize),
    period: Duration,
    watch_memory: bool,
    done: &AtomicU64,
    origin: Instant,
) -> anyhow::Result<(TrialResult, Spans)> {
    let (mut trial, mut spans) = (TrialResult::default(), Vec::new());
    std::thread::sleep(LEAD);
    for _ in 0..unmeasured {
        let began = Instant::now();
        background_save(&mut candidate.control, Duration::from_millis(5))?;
        std::thread::sleep(period.saturating_sub(began.elapsed()).max(LEAST_REST));
    }
    let pid = candidate.server.pid();
    let before = if watch_memory { memory::proportional_bytes(pid)? } else { 0 };
    for _ in 0..saves {
        let (began, updates) = (Instant::now(), done.load(Ordering::Relaxed));
        let used_s = cpu_s(pid)?;
        let watching = AtomicBool::new(!watch_memory);
        let (save, peak) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| memory::watch_peak(pid, Duration::from_millis(100), &watching));
            let save = background_save(&mut candidate.control, Duration::from_millis(5));
            watching.store(true, Ordering::Relaxed);
            (save, watch.join().expect("the watcher does not panic").0)
        });
        let save = save?;
        let rate = |since: Duration| (done.load(Ordering::Relaxed) - updates) as f64 / since.as_secs_f64();
        trial.during_per_s.push(rate(began.elapsed()));
        let count = (done.load(Ordering::Relaxed) - updates).max(1);
        trial.processor_us.push((cpu_s(pid)? - used_s) * 1e6 / count as f64);
        trial.took_s.push(save.took.as_secs_f64());
        trial.forks_us.push(candidate.server.save_stall_us(&mut candidate.control)?);
        spans.push((micros(began - origin), micros(began.elapsed() + (began - origin) + TAIL)));
        if watch_memory {
            trial.extra_mib = Some(peak.saturating_sub(before) as f64 / f64::from(1 << 20));
        }
        let (rests, before_rest) = (Instant::now(), done.load(Ordering::Relaxed));
        std::thread::sleep(period.saturating_sub(began.elapsed()).max(LEAST_REST));
        let rested = done.load(Ordering::Relaxed) - before_rest;
        trial.rest_per_s.push(rested as f64 / rests.elapsed().as_secs_f64());
        trial.cycle_per_s.push(rate(began.elapsed()));
    }
    Ok((trial, spans))
}

/// Overwrites keys that are drawn by `load` until `stop`.
fn update(
    port: u16,
    scale: &ForkersScale,
    load: UpdateLoad,
    worker: u64,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> anyhow::Result<()> {
    let mut connections = (0..CONNECTIONS).map(|_| Connection::open(port)).collect::<Result<Vec<_>, _>>()?;
    let (zipf, scatter) = (Zipf::new(scale.keys, load.skew), RankPermutation::new(scale.keys, load.seed));
    let values = Values::new(scale.value_bytes, load.seed ^ worker);
    let mut rng = SplitMix64::new(load.seed.wrapping_mul(31) + worker);
    let mut batch = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for connection in &mut connections {
            batch.clear();
            for _ in 0..PIPELINE {
                requests::push_set(&mut batch, scatter.key(zipf.sample(&mut rng)), values.pick(&mut rng));
            }
            connection.send(&batch)?;
        }
        for connection in &mut connections {
            if connection.skip(PIPELINE)? > 0 {
                bail!("the server refused an update");
            }
            done.fetch_add(PIPELINE as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_count_where_a_save_ran() {
        let samples = [(10, 1), (20, 2), (30, 3), (40, 4)];
        assert_eq!(within(&samples, &[(15, 30), (40, 50)]), [2, 3, 4]);
        assert!(within(&samples, &[]).is_empty());
    }
}
