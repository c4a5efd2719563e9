//! YCSB's clients: a thread and a connection each, the next request when the last is answered.
//!
//! Relies on servers on loopback ports. As in YCSB, a latency is that of one request of a closed loop.

use std::time::Instant;

use anyhow::{Context, bail};

use super::records::{FIELD_BYTES, RequestGenerator, RequestKind, YcsbWorkload, push_insert};
use crate::requests::Values;
use crate::resp::{Connection, Value};
use crate::wcache::load_phase::{self, LoadPhase};
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::storage_stack::TrialDuration;
use crate::wcache::trial_observer::TrialObserver;
use crate::wcache::trial_stats::TrialStats;
use quire_rng::SplitMix64;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct YcsbRun<'a> {
    /// What is asked.
    pub workload: YcsbWorkload,
    /// The servers.
    pub ports: &'a [u16],
    /// Records in each.
    pub records: u64,
    /// Clients in all.
    pub clients: usize,
    /// For how long.
    pub duration: TrialDuration,
}

/// Inserts `records` records.
///
/// # Errors
/// When the server refuses, or there was an interrupt.
pub fn fill(port: u16, records: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut connection = Connection::open(port).context("a connection to fill with")?;
    let (values, mut rng) = (Values::new(FIELD_BYTES, 5), SplitMix64::new(6));
    let mut batch = Vec::new();
    for first in (0..records).step_by(64) {
        interrupt.check()?;
        batch.clear();
        let end = (first + 64).min(records);
        (first..end).for_each(|record| push_insert(&mut batch, record, &values, &mut rng));
        connection.send(&batch)?;
        if connection.skip((end - first) as usize * 2)? > 0 {
            bail!("the server refused a record");
        }
    }
    Ok(())
}

/// Runs the clients.
///
/// # Errors
/// When a server fails, `observer` complains, or there was an interrupt.
pub fn run(run: YcsbRun<'_>, interrupt: &Interrupt, observer: &mut dyn TrialObserver) -> anyhow::Result<TrialStats> {
    load_phase::load(run.clients, run.duration, interrupt, observer, |number, phase| client(run, number, phase))
}

fn client(run: YcsbRun<'_>, number: usize, phase: &LoadPhase) -> anyhow::Result<TrialStats> {
    let mut connection = Connection::open(run.ports[number % run.ports.len()]).context("a client's connection")?;
    let mut requests = RequestGenerator::new(run.workload, run.records, number as u64);
    let (mut stats, mut request) = (TrialStats::default(), Vec::new());
    while phase.goes_on() {
        let does = requests.next(&mut request);
        let began = Instant::now();
        connection.send(&request)?;
        match (does, connection.reply()?) {
            (RequestKind::Read, Value::Array(words)) if !words.is_empty() => {}
            (RequestKind::Update, Value::Int(_)) => {}
            (_, reply) => bail!("a request was answered by {reply:?}"),
        }
        if phase.counts() {
            stats.ops += 1;
            stats.note(if does == RequestKind::Read { "read" } else { "update" }, began.elapsed().as_micros() as u64);
        }
    }
    Ok(stats)
}
