//! Threads that load a server: they run in, then they count, then they stop, together.
//!
//! Relies on each thread looking at the [`LoadPhase`] after each of its operations. An operation counts when it *ends*
//! while counting is on, so one that is stuck over the whole time shows as the others' absence, and in no percentile.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use anyhow::Context;

use super::testbed::interrupt::Interrupt;
use super::testbed::storage_stack::TrialDuration;
use super::trial_observer::TrialObserver;
use super::trial_stats::TrialStats;

const RUN_IN: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// What all threads of a load are at.
#[derive(Debug, Default)]
pub struct LoadPhase(AtomicU8);

impl LoadPhase {
    /// Whether what has just ended counts.
    pub fn counts(&self) -> bool {
        self.0.load(Ordering::Relaxed) == COUNT
    }

    /// Whether to go on.
    pub fn goes_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) != STOP
    }

    /// Ends it for all.
    pub fn stop(&self) {
        self.0.store(STOP, Ordering::Relaxed);
    }
}

/// Runs `work` in `threads` threads, each told its number, for `duration`; all their statistics in one. A thread that fails
/// ends the load.
///
/// # Errors
/// Those of the threads and of `observer`, and an interrupt.
pub fn load(
    threads: usize,
    duration: TrialDuration,
    interrupt: &Interrupt,
    observer: &mut dyn TrialObserver,
    work: impl Fn(usize, &LoadPhase) -> anyhow::Result<TrialStats> + Sync,
) -> anyhow::Result<TrialStats> {
    let phase = LoadPhase::default();
    std::thread::scope(|scope| {
        let (phase, work) = (&phase, &work);
        let stop_when_failed = move |number| work(number, phase).inspect_err(|_| phase.stop());
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || stop_when_failed(number))).collect();
        let watched = conduct(phase, duration, interrupt, observer);
        phase.stop();
        let mut total = TrialStats::default();
        let mut failed = None;
        for worker in workers {
            match worker.join().expect("a loading thread does not panic") {
                Ok(stats) => total.join(stats),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error).context("a client");
        }
        total.elapsed_s = watched?;
        Ok(total)
    })
}

/// Leads through the phases; how long counting was on, in seconds.
fn conduct(
    phase: &LoadPhase,
    duration: TrialDuration,
    interrupt: &Interrupt,
    observer: &mut dyn TrialObserver,
) -> anyhow::Result<f64> {
    let ran_in = rest(phase, duration.warm_up, interrupt).and_then(|()| observer.begins());
    let began = Instant::now();
    // A thread that failed meanwhile has stopped all; that stays so.
    let _ = phase.0.compare_exchange(RUN_IN, COUNT, Ordering::Relaxed, Ordering::Relaxed);
    let counted = ran_in.and_then(|()| rest(phase, duration.count, interrupt));
    phase.stop();
    let elapsed_s = began.elapsed().as_secs_f64();
    // Also after an interrupt: threads may be waiting for a slow disk.
    let ended = observer.ends();
    counted.and(ended).map(|()| elapsed_s)
}

/// Waits, unless a thread has failed.
fn rest(phase: &LoadPhase, time: std::time::Duration, interrupt: &Interrupt) -> anyhow::Result<()> {
    let began = Instant::now();
    while phase.goes_on() && began.elapsed() < time {
        interrupt.sleep(std::time::Duration::from_millis(20).min(time))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wcache::trial_observer::NoObserver;

    const SPAN: TrialDuration = TrialDuration { warm_up: Duration::from_millis(20), count: Duration::from_millis(60) };

    #[test]
    fn only_what_ends_while_it_counts_is_counted() {
        let once = || {
            load(3, SPAN, &Interrupt::default(), &mut NoObserver, |_, phase| {
                let mut stats = TrialStats::default();
                while phase.goes_on() {
                    std::thread::sleep(Duration::from_millis(1));
                    if phase.counts() {
                        stats.ops += 1;
                    } else {
                        stats.count("uncounted", 1.0);
                    }
                }
                Ok(stats)
            })
            .unwrap()
        };
        // On a busy machine a phase may be over before a thread has run.
        let is_enough = |total: &TrialStats| total.ops > 0 && total.counts.contains_key("uncounted");
        let total = (0..50).map(|_| once()).find(is_enough).unwrap();
        assert!(total.ops > 0 && total.counts["uncounted"] > 0.0 && total.elapsed_s >= 0.06);
    }

    #[test]
    fn a_thread_that_fails_ends_the_load_with_its_reason() {
        let long = TrialDuration { warm_up: Duration::from_secs(3600), count: Duration::from_secs(3600) };
        let failed = load(2, long, &Interrupt::default(), &mut NoObserver, |number, phase| {
            if number == 1 {
                anyhow::bail!("no connection");
            }
            while phase.goes_on() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(TrialStats::default())
        });
        assert!(format!("{:#}", failed.unwrap_err()).contains("no connection"));
    }
}
