//! The metrics of a mount for Prometheus (`quire mount --metrics-port`), and the table of them in `docs/metrics.md`.
//!
//! Relies on the names in a mount's figures (`quire_fuse::report`), and on `quire-metrics` for the endpoint. The endpoint's thread holds nothing of the
//! mount, which ends as if it were not there.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use clap::ArgMatches;
use quire_fuse::MountFigures;
use quire_metrics::{Endpoint, Metric, MetricKind};
use serde_json::Value;

const GAUGE: MetricKind = MetricKind::Gauge;
const COUNTER: MetricKind = MetricKind::Counter;
/// Causes of waits, by the names of the figures.
const CAUSE: &str = "cause";

/// A metric that shows one number of the figures.
struct MountMetric {
    name: &'static str,
    kind: MetricKind,
    /// Where it stands, from the outside in.
    path: &'static [&'static str],
    /// What the number is multiplied by.
    factor: f64,
    help: &'static str,
}

const fn row(
    name: &'static str,
    kind: MetricKind,
    path: &'static [&'static str],
    factor: f64,
    help: &'static str,
) -> MountMetric {
    MountMetric { name, kind, path, factor, help }
}

#[rustfmt::skip] // a line each
const METRICS: &[MountMetric] = &[
    row("quire_mount_reads", COUNTER, &["requests", "reads"], 1.0, "Reads of programs."),
    row("quire_mount_read_bytes", COUNTER, &["requests", "read_bytes"], 1.0, "Bytes of these."),
    row("quire_mount_writes", COUNTER, &["requests", "writes"], 1.0, "Writes of programs."),
    row("quire_mount_written_bytes", COUNTER, &["requests", "written_bytes"], 1.0, "Bytes of these."),
    row("quire_mount_flushes", COUNTER, &["requests", "flushes"], 1.0, "Flushes that programs asked for."),
    row("quire_mount_files_in_use", GAUGE, &["files_in_use"], 1.0, "Files that the mount has open."),
    row("quire_mount_log_bytes", GAUGE, &["cache", "log_bytes"], 1.0, "Bytes that the log may hold."),
    row("quire_mount_log_used_bytes", GAUGE, &["cache", "log_used_bytes"], 1.0, "Bytes of the log that are in use."),
    row("quire_mount_cached_bytes", GAUGE, &["cache", "cached_blocks"], 4096.0, "Bytes that are in the log and not in the directory yet."),
    row("quire_mount_pending_bytes", GAUGE, &["cache", "pending_bytes"], 1.0, "Bytes in memory on their way to the directory."),
    row("quire_mount_logged_bytes", COUNTER, &["cache", "logged_bytes"], 1.0, "Bytes of programs' blocks that were sent to the log."),
    row("quire_mount_fast_bytes", COUNTER, &["cache", "fast_bytes"], 1.0, "Bytes written to the fast device, with the log's own."),
    row("quire_mount_direct_bytes", COUNTER, &["cache", "direct_bytes"], 1.0, "Bytes sent to the directory without the log."),
    row("quire_mount_written_back_bytes", COUNTER, &["cache", "written_back_bytes"], 1.0, "Bytes brought from the log to the directory."),
    row("quire_mount_write_back_bytes_per_second", GAUGE, &["write_back", "bytes_per_s"], 1.0, "How fast that goes now."),
    row("quire_mount_write_back_stuck", GAUGE, &["write_back", "stuck"], 1.0, "1 while a device refuses what is brought back."),
    row("quire_mount_slow_flushes", COUNTER, &["cache", "slow_flushes"], 1.0, "Flushes of the slow device."),
    row("quire_mount_stalls", COUNTER, &["cache", "stalls"], 1.0, "Times that a write waited for room in the log."),
    row("quire_mount_refused_blocks", GAUGE, &["cache", "refused_blocks"], 1.0, "Blocks of the log that their files refuse."),
    row("quire_mount_lost_blocks", GAUGE, &["lost_count"], 1.0, "Losses that were found: damaged records, failed flushes."),
];

/// Metrics with a sample for each cause of a wait: whose waits, which number of them, its factor.
#[rustfmt::skip] // a line each
const WAITS: &[(MountMetric, &str)] = &[
    (row("quire_mount_critical_waits", COUNTER, &["cache", "critical_waits"], 1.0, "Times that a task waited for which a request waits."), "count"),
    (row("quire_mount_critical_wait_seconds", COUNTER, &["cache", "critical_waits"], 1e-9, "Seconds of these waits together."), "total_ns"),
    (row("quire_mount_other_waits", COUNTER, &["cache", "other_waits"], 1.0, "Times that another task waited."), "count"),
    (row("quire_mount_other_wait_seconds", COUNTER, &["cache", "other_waits"], 1e-9, "Seconds of these waits together."), "total_ns"),
];

fn at<'a>(figures: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(figures, |value, name| &value[name])
}

/// A number; a flag is 0 or 1.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(f64::from))
}

/// All metrics of a mount with these figures.
fn gathered(figures: &Value) -> Vec<Metric> {
    let single = METRICS.iter().filter_map(|metric| {
        let value = number(at(figures, metric.path))? * metric.factor;
        Some(Metric::number(metric.name, metric.kind, metric.help, value))
    });
    let waits = WAITS.iter().map(|(metric, field)| {
        let causes = at(figures, metric.path).as_object().into_iter().flatten();
        let numbers = causes.filter_map(|(cause, wait)| Some((cause.clone(), number(&wait[field])? * metric.factor)));
        Metric::labelled(metric.name, metric.kind, metric.help, CAUSE, numbers)
    });
    single.chain(waits).collect()
}

/// An endpoint that waits for its mount.
pub struct MountMetrics {
    figures: Arc<OnceLock<MountFigures>>,
    _endpoint: Option<Endpoint>,
}

impl MountMetrics {
    /// Serves on the port that was asked for, if one was: a port that is taken is told before anything is mounted.
    pub fn serve(matches: &ArgMatches) -> anyhow::Result<Self> {
        let figures = Arc::new(OnceLock::<MountFigures>::new());
        let Some(port) = matches.get_one::<u16>("metrics-port") else { return Ok(Self { figures, _endpoint: None }) };
        let ip: &IpAddr = matches.get_one("metrics-bind").context("an address")?;
        let known = Arc::clone(&figures);
        let gather = move || match known.get().and_then(MountFigures::read) {
            Some(figures) => Ok(gathered(&figures)),
            None => Err("nothing is mounted".to_owned()),
        };
        let endpoint = Endpoint::serve(*ip, *port, gather)?;
        tracing::info!("metrics at http://{}/metrics", endpoint.address());
        Ok(Self { figures, _endpoint: Some(endpoint) })
    }

    /// Has it tell the figures of a mount from now on.
    pub fn tell_of(&self, figures: MountFigures) {
        // It is called once: there is one mount.
        let _ = self.figures.set(figures);
    }
}

/// The section of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "\n## Of a mount\n\n`quire mount … --metrics-port PORT` serves these. They are the figures of `quire stats`, counted since the mount.\n\n\
         | metric | kind | label | what it tells |\n|---|---|---|---|\n",
    );
    let rows = METRICS.iter().map(|metric| (metric, "")).chain(WAITS.iter().map(|(metric, _)| (metric, "`cause`")));
    for (metric, label) in rows {
        let _ = writeln!(text, "| `{}` | {} | {label} | {} |", metric.name, metric.kind.name(), metric.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_flags_and_waits_become_metrics() {
        let figures = json!({
            "requests": {"reads": 7}, "cache": {"cached_blocks": 2, "critical_waits": {"lock": {"count": 3, "total_ns": 2e9}}},
            "write_back": {"stuck": true}, "lost_count": "odd"
        });
        let text = quire_metrics::encode(gathered(&figures));
        for line in [
            "quire_mount_reads_total 7",
            "quire_mount_cached_bytes 8192",
            "quire_mount_write_back_stuck 1",
            "quire_mount_critical_waits_total{cause=\"lock\"} 3",
            "quire_mount_critical_wait_seconds_total{cause=\"lock\"} 2",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("quire_mount_lost_blocks"), "{text}");
    }

    #[test]
    fn each_name_is_there_once_and_has_its_row() {
        let all: Vec<&str> =
            METRICS.iter().chain(WAITS.iter().map(|(metric, _)| metric)).map(|metric| metric.name).collect();
        let page = markdown();
        for (index, name) in all.iter().enumerate() {
            assert!(name.starts_with("quire_mount_") && !all[..index].contains(name), "{name}");
            assert!(page.contains(&format!("| `{name}` |")), "{page}");
        }
    }
}
