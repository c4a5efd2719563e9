//! Work, such as a copy of a large value, beside a client that sends one small command after the other: how long each of these waited.
//!
//! Relies on a closed loop of one connection: the longest wait is that of a client that asked at the worst moment, while the
//! percentiles leave out the clients that would have asked meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;

use crate::requests;
use crate::resp::Connection;
use crate::stats;

/// The key of the small commands.
const KEY: u64 = 0;
const VALUE: &[u8] = b"value";
/// Commands before the first that counts.
const WARM_UP: usize = 100;

/// How long small commands waited for their replies.
#[derive(Debug, Clone)]
pub struct Waits {
    histogram: Histogram<u64>,
    longest: Duration,
}

impl Waits {
    fn new() -> Self {
        Self { histogram: stats::latency_histogram(), longest: Duration::ZERO }
    }

    fn record(&mut self, wait: Duration) {
        self.histogram.saturating_record(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX).max(1));
        self.longest = self.longest.max(wait);
    }

    /// Takes in what another client waited.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.longest = self.longest.max(other.longest);
    }

    /// The longest wait, in milliseconds.
    pub fn longest_ms(&self) -> f64 {
        self.longest.as_secs_f64() * 1000.0
    }

    /// The 99.9th percentile; no number when too few commands were sent.
    pub fn p999_us(&self) -> f64 {
        stats::p999_us(&self.histogram).unwrap_or(f64::NAN)
    }

    /// How many commands there were.
    pub fn commands(&self) -> u64 {
        self.histogram.len()
    }
}

/// Does `work` beside a client that sets and gets a small key of its own, from before the work begins until it has ended.
///
/// # Errors
/// When the work or a connection fails, or the server refuses a small command.
pub fn beside_small_commands<T>(
    port: u16,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Duration, Waits)> {
    let stop = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| send_small_commands(port, begun, &stop));
        // A client that can't begin drops its end, and says why below.
        let worked = has_begun.recv().ok().map(|()| {
            let began = Instant::now();
            work().map(|done| (done, began.elapsed()))
        });
        stop.store(true, Ordering::Relaxed);
        let waits = client.join().expect("the client of small commands does not panic")?;
        let (done, took) = worked.expect("a client that has not begun has failed")?;
        Ok((done, took, waits))
    })
}

fn send_small_commands(port: u16, begun: Sender<()>, stop: &AtomicBool) -> anyhow::Result<Waits> {
    let mut connection = Connection::open(port)?;
    let (mut set, mut get) = (Vec::new(), Vec::new());
    requests::push_set(&mut set, KEY, VALUE);
    requests::push_get(&mut get, KEY);
    let mut ask = |request: &[u8]| -> anyhow::Result<Duration> {
        let sent = Instant::now();
        connection.send(request)?;
        ensure!(connection.skip(1)? == 0, "the server refused a small command");
        Ok(sent.elapsed())
    };
    for _ in 0..WARM_UP {
        ask(&set)?;
    }
    let mut waits = Waits::new();
    // The work is told of only now, so that its first moment is within a command that counts.
    let _ = begun.send(());
    while !stop.load(Ordering::Relaxed) {
        waits.record(ask(&set)?);
        waits.record(ask(&get)?);
    }
    Ok(waits)
}

/// The longest time between two looks at the clock, in milliseconds: what the system takes a thread's processor away for.
pub fn longest_pause_ms(of: Duration) -> f64 {
    let began = Instant::now();
    let (mut last, mut longest) = (began, Duration::ZERO);
    while last - began < of {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_server::NullServer;

    #[test]
    fn the_longest_of_all_waits_is_kept_when_clients_are_taken_together() {
        let (mut one, mut other) = (Waits::new(), Waits::new());
        (0..999).for_each(|_| one.record(Duration::from_micros(20)));
        assert!(one.p999_us().is_nan());
        other.record(Duration::from_micros(4500));
        one.merge(&other);
        assert_eq!((one.commands(), one.longest_ms()), (1000, 4.5));
        assert_eq!(one.p999_us(), 20.0);
    }

    #[test]
    fn commands_are_sent_until_the_work_has_ended() {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        let work = || {
            std::thread::sleep(Duration::from_millis(3));
            Ok(7)
        };
        let (done, took, waits) = beside_small_commands(server.port(), work).unwrap();
        assert_eq!(done, 7);
        assert!(waits.commands() > 0 && waits.longest_ms() > 0.0 && took >= Duration::from_millis(3));
        let failed = beside_small_commands(server.port(), || -> anyhow::Result<()> { anyhow::bail!("no copy") });
        assert_eq!(failed.unwrap_err().to_string(), "no copy");
    }

    #[test]
    fn a_client_that_is_refused_or_has_no_server_is_an_error() {
        let server = NullServer::start(b"-ERR no\r\n").unwrap();
        let refused = beside_small_commands(server.port(), || Ok(())).unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
        assert!(beside_small_commands(0, || Ok(())).is_err(), "no server has port 0");
    }

    #[test]
    fn a_pause_is_never_longer_than_the_loop_around_it() {
        let began = Instant::now();
        let pause_ms = longest_pause_ms(Duration::from_millis(2));
        assert!(pause_ms > 0.0 && pause_ms <= began.elapsed().as_secs_f64() * 1000.0);
    }
}
