//! Work, such as a save, beside clients that update keys as fast as the server answers: how many updates a second were answered
//! before the work and during it.
//!
//! Relies on [`closed_loop::update`], whose count of updates is read as the work begins and as it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::closed_loop::{self, UpdateLoop};

/// The updates that were answered before the work and during it.
#[derive(Debug, Clone, Copy)]
pub struct UpdateRates {
    /// A second, before the work.
    pub before_per_s: f64,
    /// A second, during the work.
    pub during_per_s: f64,
    /// All during the work.
    pub updates: u64,
}

impl UpdateRates {
    /// From the counts as the first window began, as the work began and as it ended, each with its time.
    fn of([first, began, ended]: [(Instant, u64); 3]) -> Self {
        let per_s = |from: (Instant, u64), to: (Instant, u64)| (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64();
        Self { before_per_s: per_s(first, began), during_per_s: per_s(began, ended), updates: ended.1 - began.1 }
    }
}

/// Updates keys as `plan` says, and calls `work` once that has lasted for `lead`. The first quarter of the lead does not count.
///
/// # Errors
/// When the work or a connection fails, or the server refuses an update.
pub fn beside_updates<T>(
    plan: UpdateLoop,
    lead: Duration,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, UpdateRates)> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = || (Instant::now(), done.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        let updates = scope.spawn(|| closed_loop::update(plan, Instant::now(), &stop, &done));
        // A load that can't begin ends by itself.
        while count().1 == 0 && !updates.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(lead / 4);
        let first = count();
        std::thread::sleep(lead - lead / 4);
        let began = count();
        let worked = work();
        let ended = count();
        stop.store(true, Ordering::Relaxed);
        let stats = updates.join().expect("the updates do not panic")?;
        ensure!(stats.errors == 0, "the server refused {} of {} updates", stats.errors, stats.requests);
        Ok((worked?, UpdateRates::of([first, began, ended])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_server::NullServer;

    fn plan(port: u16) -> UpdateLoop {
        UpdateLoop { port, keys: 100, value_bytes: 10, connections: 2, pipeline: 4 }
    }

    #[test]
    fn rates_are_those_of_the_time_before_the_work_and_of_its_own() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let rates = UpdateRates::of([(after(1), 100), (after(3), 500), (after(7), 700)]);
        assert_eq!((rates.before_per_s, rates.during_per_s, rates.updates), (200.0, 50.0, 200));
    }

    #[test]
    fn the_result_of_the_work_comes_back_and_its_failure_too() {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        let (found, rates) = beside_updates(plan(server.port()), Duration::from_millis(4), || Ok(7)).unwrap();
        assert_eq!(found, 7);
        assert!(rates.before_per_s >= 0.0 && rates.during_per_s >= 0.0);
        let failed = beside_updates(plan(server.port()), Duration::ZERO, || anyhow::bail!("no save"));
        assert_eq!(failed.map(|((), _)| ()).unwrap_err().to_string(), "no save");
    }

    #[test]
    fn updates_that_are_refused_or_have_no_server_are_an_error() {
        let server = NullServer::start(b"-ERR no\r\n").unwrap();
        let refused = beside_updates(plan(server.port()), Duration::ZERO, || Ok(())).unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
        assert!(beside_updates(plan(0), Duration::ZERO, || Ok(())).is_err(), "no server has port 0");
    }
}
