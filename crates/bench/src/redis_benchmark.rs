//! `redis-benchmark`, the throughput test that comes with Redis, run against one server.
//!
//! Relies on the binary from Debian's redis-tools on the PATH and on its CSV output.

use std::process::Command;

use anyhow::{Context, bail};

/// What the tool sends.
#[derive(Debug, Clone, Copy)]
pub enum BenchmarkTest<'a> {
    /// One of the tool's own tests, by its name: `set`, `get`.
    Named(&'a str),
    /// A command. The tool writes a random number below [`BenchmarkRun::keys`], of twelve digits, wherever [`RANDOM`] stands.
    Command(&'a [&'a str]),
}

/// Where a command has a random number.
pub const RANDOM: &str = "__rand_int__";

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct BenchmarkRun<'a> {
    /// The server's port.
    pub port: u16,
    /// What is sent.
    pub test: BenchmarkTest<'a>,
    /// Requests sent together on a connection.
    pub pipeline: u32,
    /// Requests in all.
    pub requests: u64,
    /// Keys to choose from, or random numbers in a command.
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
pub fn requests_per_s(run: BenchmarkRun<'_>) -> anyhow::Result<f64> {
    let mut command = Command::new("redis-benchmark");
    if run.threads > 1 {
        command.args(["--threads", &run.threads.to_string()]);
    }
    let output = command
        .args(["-p", &run.port.to_string(), "-c", &run.connections.to_string()])
        .args(["-P", &run.pipeline.to_string(), "-n", &run.requests.to_string()])
        .args(["-r", &run.keys.to_string(), "-d", &run.value_bytes.to_string(), "--csv"])
        .args(run.test.words())
        .output()
        .context("starting redis-benchmark (Debian package redis-tools)")?;
    if !output.status.success() {
        bail!("redis-benchmark failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    parse(&String::from_utf8_lossy(&output.stdout), &run.test.title())
}

impl BenchmarkTest<'_> {
    /// The last arguments of the tool.
    fn words(&self) -> Vec<&str> {
        match self {
            BenchmarkTest::Named(name) => vec!["-t", name],
            BenchmarkTest::Command(words) => words.to_vec(),
        }
    }

    /// What the tool calls it in its figures.
    fn title(&self) -> String {
        match self {
            BenchmarkTest::Named(name) => name.to_uppercase(),
            BenchmarkTest::Command(words) => words.join(" "),
        }
    }
}

fn parse(csv: &str, title: &str) -> anyhow::Result<f64> {
    let wanted = format!("\"{title}\"");
    let line = csv.lines().find(|line| line.starts_with(&wanted)).with_context(|| format!("no {title} in {csv:?}"))?;
    // The tool doesn't mark commas in what it was told.
    let rate = line[wanted.len()..].split(',').nth(1).with_context(|| format!("no rate in {line:?}"))?;
    rate.trim_matches('"').parse().with_context(|| format!("no number in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_csv() {
        let csv = "\"test\",\"rps\"\n\"SET\",\"76628.35\",\"0.387\"\n";
        assert_eq!(parse(csv, &BenchmarkTest::Named("set").title()).unwrap(), 76628.35);
        assert!(parse(csv, &BenchmarkTest::Named("get").title()).is_err());
    }

    #[test]
    fn a_command_comes_last_and_its_figures_are_under_all_its_words() {
        let test = BenchmarkTest::Command(&["SADD", "s", RANDOM]);
        assert_eq!(test.words(), ["SADD", "s", "__rand_int__"]);
        let csv = "\"test\",\"rps\"\n\"SADD s __rand_int__\",\"714285.69\",\"0.7\"\n";
        assert_eq!(parse(csv, &test.title()).unwrap(), 714_285.69);
        let script = BenchmarkTest::Command(&["EVAL", "return redis.call('INCR',KEYS[1])", "0"]);
        let csv = "\"EVAL return redis.call('INCR',KEYS[1]) 0\",\"29880.48\",\"1.139\"\n";
        assert_eq!(parse(csv, &script.title()).unwrap(), 29_880.48);
    }
}
