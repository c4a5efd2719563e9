//! Closed loops: each connection sends a batch, waits for all its replies, and sends the next.
//!
//! Relies on the server to set the pace, so its latencies leave out what would have queued up: fit for filling, for
//! throughput and for putting a server under full load, not for latency under a given load (that is `super::paced`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::requests::{self, Values};
use crate::resp::Connection;
use quire_rng::SplitMix64;

/// Sets every key of `keys` once, over `connections` connections in batches of 64; returns the time it took.
///
/// # Errors
/// When a connection fails or the server refuses a write.
pub fn fill(port: u16, keys: Range<u64>, value_bytes: usize, connections: u64) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let share = (keys.end - keys.start).div_ceil(connections).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|worker| {
                let first = (keys.start + worker * share).min(keys.end);
                let part = first..(first + share).min(keys.end);
                scope.spawn(move || fill_part(port, part, value_bytes))
            })
            .collect();
        for worker in workers {
            worker.join().expect("a filling thread does not panic").context("filling the server")?;
        }
        Ok(started.elapsed())
    })
}

fn fill_part(port: u16, keys: Range<u64>, value_bytes: usize) -> anyhow::Result<()> {
    let mut connection = Connection::open(port)?;
    let values = Values::new(value_bytes, keys.start);
    let mut rng = SplitMix64::new(keys.start ^ 0xf111);
    let mut batch = Vec::new();
    let mut next = keys.start;
    while next < keys.end {
        batch.clear();
        let count = (keys.end - next).min(64);
        for key in next..next + count {
            requests::push_set(&mut batch, key, values.pick(&mut rng));
        }
        connection.send(&batch)?;
        if connection.skip(count as usize)? > 0 {
            bail!("the server refused a SET");
        }
        next += count;
    }
    Ok(())
}

/// How [`update`] loads the server.
#[derive(Debug, Clone, Copy)]
pub struct UpdateLoop {
    /// The server's port.
    pub port: u16,
    /// Keys to update, from 0.
    pub keys: u64,
    /// Bytes in each value.
    pub value_bytes: usize,
    /// Connections, one thread each.
    pub connections: u64,
    /// Requests in a batch.
    pub pipeline: usize,
}

/// What an [`update`] did.
#[derive(Debug, Default)]
pub struct UpdateStats {
    /// When each batch was sent (since `origin`) and how long its replies took, in microseconds.
    pub samples: Vec<(u32, u32)>,
    /// Requests answered.
    pub requests: u64,
    /// Requests refused.
    pub errors: u64,
}

/// Overwrites keys with new values until `stop` is set. All connections together walk a fixed permutation of the keys,
/// so that every key is reached as early as it can be and neighbours in the walk lie on different pages: the hardest
/// order for copy-on-write. `done` counts the updates as they are answered.
///
/// # Errors
/// When a connection fails.
pub fn update(plan: UpdateLoop, origin: Instant, stop: &AtomicBool, done: &AtomicU64) -> anyhow::Result<UpdateStats> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.connections)
            .map(|worker| scope.spawn(move || update_part(plan, worker, origin, stop, done)))
            .collect();
        let mut total = UpdateStats::default();
        for worker in workers {
            let part = worker.join().expect("an updating thread does not panic").context("updating keys")?;
            total.samples.extend(part.samples);
            total.requests += part.requests;
            total.errors += part.errors;
        }
        Ok(total)
    })
}

fn update_part(
    plan: UpdateLoop,
    worker: u64,
    origin: Instant,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> anyhow::Result<UpdateStats> {
    let mut connection = Connection::open(plan.port)?;
    let values = Values::new(plan.value_bytes, worker + 77);
    let mut rng = SplitMix64::new(worker + 1);
    let mut batch = Vec::new();
    let mut result = UpdateStats::default();
    let stride = stride(plan.keys);
    let mut key = worker * (plan.keys / plan.connections) % plan.keys * stride % plan.keys;
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        for _ in 0..plan.pipeline {
            requests::push_set(&mut batch, key, values.pick(&mut rng));
            key = (key + stride) % plan.keys;
        }
        let sent = Instant::now();
        connection.send(&batch)?;
        result.errors += connection.skip(plan.pipeline)? as u64;
        result.requests += plan.pipeline as u64;
        done.fetch_add(plan.pipeline as u64, Ordering::Relaxed);
        result.samples.push((micros(sent - origin), micros(sent.elapsed())));
    }
    Ok(result)
}

/// A step that visits all of `keys` keys before it comes back to the first: a prime that does not divide their number.
fn stride(keys: u64) -> u64 {
    [7919, 7907, 7901].into_iter().find(|prime| !keys.is_multiple_of(*prime)).unwrap_or(1)
}

/// Whole microseconds, as the samples keep them.
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_reaches_every_key_once_a_round() {
        for keys in [10, 7919, 30_000] {
            let step = stride(keys);
            let mut seen = vec![false; keys as usize];
            (0..keys).for_each(|turn| seen[(turn * step % keys) as usize] = true);
            assert!(seen.iter().all(|&reached| reached));
        }
    }
}
