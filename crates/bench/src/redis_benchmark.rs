//! `redis-benchmark`, the throughput test that comes with Redis, run against one server.
//!
//! Relies on the binary from Debian's redis-tools on the PATH and on its CSV output.

use std::process::Command;

use anyhow::{Context, bail};

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The server's port.
    pub port: u16,
    /// `set` or `get`.
    pub test: &'static str,
    /// Requests sent together on a connection.
    pub pipeline: u32,
    /// Requests in all.
    pub requests: u64,
    /// Keys to choose from.
    pub keys: u64,
    /// Bytes in a value.
    pub value_bytes: usize,
    /// Threads of the tool. With one it is itself the limit when nothing is pipelined.
    pub threads: u32,
    /// Connections; [`CONNECTIONS`] is the tool's default.
    pub connections: u32,
}

/// Connections of a run: the tool's default.
pub const CONNECTIONS: u32 = 50;

/// Requests a second that the server answered.
///
/// # Errors
/// When the tool is missing, fails or prints something else than figures.
pub fn requests_per_s(run: Run) -> anyhow::Result<f64> {
    let mut command = Command::new("redis-benchmark");
    if run.threads > 1 {
        command.args(["--threads", &run.threads.to_string()]);
    }
    let output = command
        .args(["-p", &run.port.to_string(), "-t", run.test, "-c", &run.connections.to_string()])
        .args(["-P", &run.pipeline.to_string(), "-n", &run.requests.to_string()])
        .args(["-r", &run.keys.to_string(), "-d", &run.value_bytes.to_string(), "--csv"])
        .output()
        .context("starting redis-benchmark (Debian package redis-tools)")?;
    if !output.status.success() {
        bail!("redis-benchmark failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    parse(&String::from_utf8_lossy(&output.stdout), run.test)
}

fn parse(csv: &str, test: &str) -> anyhow::Result<f64> {
    let wanted = format!("\"{}\"", test.to_uppercase());
    let line = csv.lines().find(|line| line.starts_with(&wanted)).with_context(|| format!("no {test} in {csv:?}"))?;
    let rate = line.split(',').nth(1).with_context(|| format!("no rate in {line:?}"))?;
    rate.trim_matches('"').parse().with_context(|| format!("no number in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_csv() {
        let csv = "\"test\",\"rps\"\n\"SET\",\"76628.35\",\"0.387\"\n";
        assert_eq!(parse(csv, "set").unwrap(), 76628.35);
        assert!(parse(csv, "get").is_err());
    }
}
