//! An open loop: requests are due at fixed instants, and latency counts from the instant a request was due.
//!
//! Relies on enough connections that one late reply does not hold up the others for long. A request that could not be
//! sent in time because the server was stalled still counts from when it was due, so a stall weighs as it would on users
//! who do not coordinate with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::closed_loop::micros;
use crate::requests::{self, Values};
use crate::resp::Connection;
use quire_rng::SplitMix64;

/// A steady load of random keys: half GET, half SET, or SET only.
#[derive(Debug, Clone, Copy)]
pub struct OpenLoop {
    /// The server's port.
    pub port: u16,
    /// Keys, from 0.
    pub keys: u64,
    /// Bytes in each value.
    pub value_bytes: usize,
    /// Requests a second, over all connections.
    pub rate: u64,
    /// Connections, one thread each.
    pub connections: u32,
    /// Every request is a SET.
    pub only_sets: bool,
}

/// One request: when it was due since the origin, and how long after that its reply was there, in microseconds.
pub type LatencySample = (u32, u32);

/// Runs the load until `stop` is set; returns all samples in order of their due time.
///
/// # Errors
/// When a connection fails.
pub fn run(plan: OpenLoop, origin: Instant, stop: &AtomicBool) -> anyhow::Result<Vec<LatencySample>> {
    let mut samples: Vec<LatencySample> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..plan.connections).map(|worker| scope.spawn(move || run_one(plan, worker, origin, stop))).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().expect("a load thread does not panic").context("the steady load")?);
        }
        anyhow::Ok(all)
    })?;
    samples.sort_unstable();
    Ok(samples)
}

fn run_one(plan: OpenLoop, worker: u32, origin: Instant, stop: &AtomicBool) -> anyhow::Result<Vec<LatencySample>> {
    sharpen_timer();
    let mut connection = Connection::open(plan.port)?;
    let values = Values::new(plan.value_bytes, u64::from(worker) + 900);
    let mut rng = SplitMix64::new(u64::from(worker) + 31);
    let interval = Duration::from_secs_f64(f64::from(plan.connections) / plan.rate as f64);
    let mut due = Instant::now() + interval.mul_f64(f64::from(worker) / f64::from(plan.connections));
    let mut samples = Vec::new();
    let mut request = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let key = rng.below(plan.keys);
        request.clear();
        if rng.next_u64() & 1 == 0 && !plan.only_sets {
            requests::push_get(&mut request, key);
        } else {
            requests::push_set(&mut request, key, values.pick(&mut rng));
        }
        let now = Instant::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        connection.send(&request)?;
        connection.skip(1)?;
        samples.push((micros(due - origin), micros(due.elapsed())));
        due += interval;
    }
    Ok(samples)
}

/// Asks for wake-ups without the usual 50 µs of slack; where that is refused, both sides carry the slack alike.
fn sharpen_timer() {
    if let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        let _ = std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1000");
    }
}
