//! What loads the servers, and at which pipeline.
//!
//! Relies on both clients replacing the same word by numbers of the same range.

use super::loads::Load;
use crate::load::pipelined::{self, PipelinedLoad};
use crate::redis_benchmark::{self, BenchmarkRun, BenchmarkTest, CONNECTIONS};

/// Requests that are sent together.
const PIPELINE: u32 = 16;
/// Requests of a run without pipelining, and of a small one; a pipelined run has so many times more.
const REQUESTS: u64 = 200_000;
const FEW_REQUESTS: u64 = 15_000;
const PIPELINED: u64 = 6;
/// Random numbers are below this.
const KEYS: u64 = 100_000;

/// A client and its pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Our own, one request at a time on a connection.
    Alone,
    /// Our own with a pipeline.
    Pipelined,
    /// redis-benchmark with the same pipeline.
    PipelinedRedisBenchmark,
}

/// What one run found.
#[derive(Debug, Clone, Copy)]
pub struct ClientRun {
    /// Requests that were answered a second.
    pub requests_per_s: f64,
    /// The part of the time that the client had something to do; not a number for redis-benchmark.
    pub client_busy: f64,
}

impl Client {
    /// What the figures are called by, behind the load's name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alone => "p1",
            Self::Pipelined => "p16",
            Self::PipelinedRedisBenchmark => "p16_redis_benchmark",
        }
    }

    /// Requests of a run.
    pub fn requests(self, is_quick: bool) -> u64 {
        (if is_quick { FEW_REQUESTS } else { REQUESTS }) * if self == Self::Alone { 1 } else { PIPELINED }
    }

    /// Sends so many requests to the server that listens there.
    pub fn run(self, port: u16, load: &Load, requests: u64) -> anyhow::Result<ClientRun> {
        let pipeline = if self == Self::Alone { 1 } else { PIPELINE };
        let words = load.words;
        match self {
            Self::PipelinedRedisBenchmark => {
                let test = BenchmarkTest::Command(words);
                let (keys, value_bytes, connections) = (KEYS, 3, CONNECTIONS);
                let run = BenchmarkRun { port, test, pipeline, requests, keys, value_bytes, threads: 1, connections };
                let requests_per_s = redis_benchmark::requests_per_s(run)?;
                Ok(ClientRun { requests_per_s, client_busy: f64::NAN })
            }
            Self::Alone | Self::Pipelined => {
                let (pipeline, connections) = (pipeline as usize, CONNECTIONS as usize);
                let stats = pipelined::run(PipelinedLoad { port, words, pipeline, requests, keys: KEYS, connections })?;
                Ok(ClientRun { requests_per_s: stats.requests_per_s(), client_busy: stats.client_busy() })
            }
        }
    }
}
