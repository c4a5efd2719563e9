//! How long fork's writer takes to get back to 99 % of its normal throughput: the paper's interval between cuts, measured
//! with fork over pages of 4 KiB and used for every configuration alike.
//!
//! Relies on windows that are long enough for thousands of writes. On a busy machine throughput wavers by more than a
//! percent, so the median of several windows is compared, and there is an end to waiting.

use std::time::{Duration, Instant};

use anyhow::Context;
use quire_snapshot::PAGE_SIZE;

use super::configuration::{FORK, FORK_THP};
use super::workload::WriteWorkload;
use crate::measure::candidate::Candidate;
use crate::stats::Spread;

/// Windows that are compared with the normal ones.
const COMPARED: usize = 7;
/// Windows before the cut.
const NORMAL: usize = 15;
/// The share of the normal throughput that counts as recovered.
const RECOVERED: f64 = 0.99;
/// Writes for each page after which it is enough: an average page was written so often that hardly any is left to copy.
const MOST_WRITES_PER_PAGE: f64 = 60.0;
/// Writes between looks at the clock.
const PIECE: usize = 256;

/// The interval, and what it follows from.
#[derive(Debug, Clone, Copy)]
pub struct ForkRecovery {
    /// Time between cuts.
    pub interval: Duration,
    /// Writes a second with no view open.
    pub normal_per_s: f64,
    /// The same over huge pages.
    pub huge_pages_per_s: f64,
    /// Throughput had not recovered when waiting was given up.
    pub gave_up: bool,
}

/// Measures the recovery of fork over `bytes`.
///
/// # Errors
/// When the system will not fork.
pub fn measure(bytes: usize, workload: &mut WriteWorkload) -> anyhow::Result<ForkRecovery> {
    let candidate = Candidate::new(FORK.mechanism, bytes, FORK.kind, true, &FORK.options(bytes))?;
    // A window has about as many writes as there are pages, divided by four.
    let probe = rate(&candidate, workload, Duration::from_millis(100));
    let pages = (bytes / PAGE_SIZE) as f64;
    let window = Duration::from_secs_f64((pages / 4.0 / probe).max(0.002));
    let normal: Vec<f64> = (0..NORMAL).map(|_| rate(&candidate, workload, window)).collect();
    let normal_per_s = Spread::of(&normal).map_or(probe, |spread| spread.median);
    let most = Duration::from_secs_f64(MOST_WRITES_PER_PAGE * pages / normal_per_s);
    let start = Instant::now();
    let view = candidate.origin().cut().context("cutting")?;
    let mut windows = Vec::new();
    let gave_up = loop {
        windows.push(rate(&candidate, workload, window));
        if has_recovered(&windows, normal_per_s) {
            break false;
        }
        if start.elapsed() > most {
            break true;
        }
    };
    let interval = start.elapsed();
    drop((view, candidate));
    let candidate = Candidate::new(FORK_THP.mechanism, bytes, FORK_THP.kind, true, &FORK_THP.options(bytes))?;
    let huge: Vec<f64> = (0..NORMAL).map(|_| rate(&candidate, workload, window)).collect();
    let huge_pages_per_s = Spread::of(&huge).map_or(f64::NAN, |spread| spread.median);
    Ok(ForkRecovery { interval, normal_per_s, huge_pages_per_s, gave_up })
}

fn has_recovered(windows: &[f64], normal_per_s: f64) -> bool {
    let Some(from) = windows.len().checked_sub(COMPARED) else { return false };
    Spread::of(&windows[from..]).is_some_and(|spread| spread.median >= RECOVERED * normal_per_s)
}

/// Writes a second over `time`.
fn rate(candidate: &Candidate, workload: &mut WriteWorkload, time: Duration) -> f64 {
    let (start, mut writes) = (Instant::now(), 0);
    while start.elapsed() < time {
        workload.write(candidate.access(), PIECE);
        writes += PIECE;
    }
    writes as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lucky_window_is_no_recovery() {
        let mut windows = vec![50.0; 10];
        windows.push(120.0);
        assert!(!has_recovered(&windows, 100.0));
        windows.extend([99.5; 4]);
        assert!(has_recovered(&windows, 100.0));
        assert!(!has_recovered(&[100.0; COMPARED - 1], 100.0));
    }
}
