//! The metrics of one moment: INFO's numbers under their names here, and what commands, errors and databases count.

use std::collections::HashMap;

use quire_metrics::{Histogram, Metric, MetricKind, Sample, SampleValue};
use quire_store::{DbId, Store};

use super::table::{COMMANDS, DATABASES, DENIALS, ERRORS, FIELDS, LATENCY, LabelledMetric, VERSION};
use crate::acl::DenialReason;
use crate::client::{Client, CommandId};
use crate::info::{self, InfoSource};
use crate::registry::registry;
use crate::state::ServerState;
use crate::stats::CommandStats;

/// The sections of INFO that the numbers of [`FIELDS`] stand in.
const SECTIONS: &[&[u8]] = &[b"server", b"clients", b"memory", b"persistence", b"stats", b"cpu"];

const DENIAL_REASONS: [DenialReason; 4] =
    [DenialReason::Auth, DenialReason::Command, DenialReason::Key, DenialReason::Channel];

/// Everything.
pub fn all(store: &Store, server: &ServerState) -> Vec<Metric> {
    let client = Client::new(0, String::new(), String::new(), server.clock_ms());
    let text = info::text(&InfoSource { store, server, client: &client }, SECTIONS);
    let values: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let mut metrics: Vec<Metric> = FIELDS.iter().filter_map(|field| field.read(&values)).collect();
    metrics.push(labelled(&VERSION, [(crate::VERSION.to_owned(), 1.0)]));
    metrics.extend(databases(store));
    metrics.extend(commands(server));
    let denied =
        DENIAL_REASONS.map(|reason| (reason.name().to_owned(), server.monitoring.denials.count(reason) as f64));
    metrics.push(labelled(&DENIALS, denied));
    let errors = server.stats.errors.iter().map(|(code, count)| (code.clone(), *count as f64));
    metrics.push(labelled(&ERRORS, errors));
    metrics
}

fn labelled(metric: &LabelledMetric, numbers: impl IntoIterator<Item = (String, f64)>) -> Metric {
    Metric::labelled(metric.name, metric.kind, metric.help, metric.label, numbers)
}

fn databases(store: &Store) -> Vec<Metric> {
    let ids = || (0..store.databases()).map(DbId).filter(|id| store.len(*id) > 0);
    let [keys, expiring] = &DATABASES;
    vec![
        labelled(keys, ids().map(|id| (id.0.to_string(), store.len(id) as f64))),
        labelled(expiring, ids().map(|id| (id.0.to_string(), store.expires_len(id) as f64))),
    ]
}

fn commands(server: &ServerState) -> Vec<Metric> {
    let used = || {
        let all = server.stats.commands.iter().enumerate();
        all.filter(|(_, stats)| stats.calls + stats.rejected > 0)
            .map(|(index, stats)| (registry().command(CommandId(index as u16)).name.to_owned(), stats))
    };
    let [calls, seconds, rejected, failed] = &COMMANDS;
    let durations = used().map(|(name, stats)| Sample {
        labels: vec![(LATENCY.label, name)],
        value: SampleValue::Histogram(histogram(stats)),
    });
    vec![
        labelled(calls, used().map(|(name, stats)| (name, stats.calls as f64))),
        labelled(seconds, used().map(|(name, stats)| (name, stats.total_ns as f64 / 1e9))),
        labelled(rejected, used().map(|(name, stats)| (name, stats.rejected as f64))),
        labelled(failed, used().map(|(name, stats)| (name, stats.failed as f64))),
        Metric { name: LATENCY.name, help: LATENCY.help, kind: MetricKind::Histogram, samples: durations.collect() },
    ]
}

fn histogram(stats: &CommandStats) -> Histogram {
    let mut buckets: Vec<(f64, u64)> =
        stats.durations.doublings().map(|(bound_ns, count)| (bound_ns as f64 / 1e9, count)).collect();
    if let Some(last) = buckets.last_mut() {
        // What takes longer than the last bound is counted there, too.
        last.0 = f64::INFINITY;
    }
    Histogram { sum: stats.durations.sum_ns() as f64 / 1e9, buckets }
}
