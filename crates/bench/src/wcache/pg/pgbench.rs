//! pgbench, the TPC-B that comes with PostgreSQL, run for a fixed time.
//!
//! Relies on its log of transactions (`--log`), whose third field is a latency in microseconds.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;

use super::cluster::{PORT, PostgresPrograms, ROLE};
use crate::stats::latency_histogram;
use crate::wcache::testbed::command::{program, run};

/// The database.
pub const DATABASE: &str = "pgbench";

/// The result of a run.
#[derive(Clone, Debug)]
pub struct PgbenchResult {
    /// Transactions a second, connecting left out.
    pub per_s: f64,
    /// Their latencies in microseconds.
    pub latency: Histogram<u64>,
}

fn command(programs: &PostgresPrograms, sockets: &Path) -> anyhow::Result<std::process::Command> {
    let own = programs.path("pgbench");
    let path = if own.is_file() { own } else { program("pgbench", "postgresql-15")? };
    let mut command = programs.user.command(&path);
    command.arg("-h").arg(sockets).args(["-p", &PORT.to_string(), "-U", ROLE]);
    Ok(command)
}

/// Fills [`DATABASE`], which is there and empty, at scale `scale` (100,000 accounts each).
///
/// # Errors
/// When pgbench fails.
pub fn fill(programs: &PostgresPrograms, sockets: &Path, scale: u32) -> anyhow::Result<()> {
    run(command(programs, sockets)?.args(["-i", "-q", "-s", &scale.to_string(), DATABASE])).map(drop)
}

/// Runs TPC-B with `clients` clients. Its log of transactions goes to `sockets`, which is not on a device that is
/// measured.
///
/// # Errors
/// When pgbench fails or says something else than figures.
pub fn measure(
    programs: &PostgresPrograms,
    sockets: &Path,
    clients: usize,
    time: Duration,
) -> anyhow::Result<PgbenchResult> {
    let prefix = sockets.join("tpcb");
    let mut command = command(programs, sockets)?;
    command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", &clients.min(2).to_string()]);
    command.args(["-T", &time.as_secs().max(1).to_string(), "-l"]).arg("--log-prefix").arg(&prefix).arg(DATABASE);
    let told = run(&mut command)?;
    let per_s = rate(&told)?;
    let mut latency = latency_histogram();
    for entry in std::fs::read_dir(sockets).context("looking for pgbench's logs")?.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with("tpcb.") {
            let text = std::fs::read_to_string(entry.path()).context("reading pgbench's log")?;
            for micros in text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()) {
                latency.saturating_record(micros.max(1));
            }
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(PgbenchResult { per_s, latency })
}

fn rate(told: &str) -> anyhow::Result<f64> {
    let line = told.lines().find(|line| line.starts_with("tps = ")).with_context(|| format!("no rate in {told:?}"))?;
    let word = line.split(' ').nth(2).unwrap_or_default();
    word.parse().with_context(|| format!("no number in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_among_what_is_told() {
        let told = "number of clients: 8\nlatency average = 3.1 ms\ntps = 2560.125 (without initial connection time)\n";
        assert_eq!(rate(told).unwrap(), 2560.125);
        assert!(rate("tps is unknown").is_err());
    }
}
