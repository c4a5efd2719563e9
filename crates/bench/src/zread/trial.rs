//! One trial of a reading program, and the process in which it runs.
//!
//! Relies on the parent to start this program with or without the preload library: nothing here knows which. A process lives for many trials, as a
//! server would, so that the library has its leases and what it has learnt. One line of JSON in, one line out.

use std::time::Duration;

use anyhow::{Context, bail};
use quire_sys::thread::pin_to;

use super::spec::{Counters, LoadKind, TrialCounts, TrialSpec};
use super::{file_sets, neighbour_loads, read_loads};

/// The name under which a process for trials is started; not for people.
pub const CHILD: &str = "zread-trial";

/// Does what is told, in this process.
///
/// # Errors
/// What a thread has met, or that it has done nothing in the time.
pub fn carry_out(spec: &TrialSpec) -> anyhow::Result<TrialCounts> {
    if matches!(spec.kind, LoadKind::Blocks { .. } | LoadKind::Videos | LoadKind::Web) {
        read_loads::read_first(spec)?;
    }
    let counters = Counters::default();
    let (begun, ended) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..spec.threads)
            .map(|number| {
                let counters = &counters;
                scope.spawn(move || {
                    let done = run_thread(spec, number, counters);
                    // What the others would still do counts for nothing.
                    if done.is_err() {
                        counters.end();
                    }
                    done
                })
            })
            .collect();
        while counters.begun() < spec.threads && !counters.is_done() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(spec.warm_ms));
        let begun = counters.now();
        std::thread::sleep(Duration::from_millis(spec.run_ms));
        let ended = counters.now();
        counters.end();
        let done: anyhow::Result<()> =
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of a trial does not panic"));
        done.map(|()| (begun, ended))
    })?;
    let seconds = (ended.2 - begun.2).as_secs_f64();
    let counts = TrialCounts { operations: ended.0 - begun.0, bytes: ended.1 - begun.1, seconds };
    if counts.operations == 0 {
        bail!("nothing was done in {} ms: {spec:?}", spec.run_ms);
    }
    Ok(counts)
}

fn run_thread(spec: &TrialSpec, number: usize, counters: &Counters) -> anyhow::Result<()> {
    if let Some(processor) = spec.processor {
        pin_to(processor);
    }
    match spec.kind {
        LoadKind::Blocks { .. } => read_loads::blocks(spec, number, counters),
        LoadKind::Bound(kind) => read_loads::bound(spec, kind, number, counters),
        LoadKind::Videos => file_sets::videos(spec, number, counters),
        LoadKind::Web => file_sets::web(spec, number, counters),
        LoadKind::Chase => neighbour_loads::chase(spec, counters),
        LoadKind::Stream => neighbour_loads::stream(spec, counters),
    }
}

/// The process for trials: carries out each `TrialSpec` of standard input, until that ends.
///
/// # Errors
/// A line is no spec, or a trial fails.
pub fn serve() -> anyhow::Result<()> {
    for line in std::io::stdin().lines() {
        let line = line.context("waiting for what to do")?;
        let spec: TrialSpec =
            serde_json::from_str(&line).context("this experiment is started by `quire bench zread` only")?;
        quire_sys::outln!("{}", serde_json::to_string(&carry_out(&spec)?)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::spec::tests::small_trial;
    use super::super::spec::{BoundKind, Change};
    use super::*;

    #[test]
    fn every_load_does_what_it_is_for_and_a_spec_survives_its_line() {
        let blocks = |is_random, touched_percent, change| {
            let change_percent = if change == Change::None { 0 } else { 50 };
            LoadKind::Blocks { is_random, touched_percent, change, change_percent }
        };
        let bounds = [BoundKind::Memcpy, BoundKind::EmptyCall, BoundKind::Sum, BoundKind::MapTouch];
        let kinds = [
            blocks(true, 0, Change::None),
            blocks(false, 100, Change::None),
            blocks(true, 25, Change::WriteFile),
            blocks(true, 50, Change::StoreBuffer),
            LoadKind::Videos,
            LoadKind::Web,
            LoadKind::Chase,
            LoadKind::Stream,
        ];
        for kind in kinds.into_iter().chain(bounds.map(LoadKind::Bound)) {
            let dir = tempfile::tempdir().unwrap();
            let spec = small_trial(dir.path(), kind, 64 << 10);
            let line = serde_json::to_string(&spec).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<TrialSpec>(&line).unwrap(), spec);
            // Another trial where the machine gave none of the threads a turn.
            let counts = (0..500).find_map(|_| carry_out(&spec).ok()).unwrap();
            assert!(counts.operations > 0 && counts.seconds > 0.0, "{kind:?}");
            let reads = !matches!(kind, LoadKind::Chase | LoadKind::Stream | LoadKind::Bound(BoundKind::EmptyCall));
            assert_eq!(counts.bytes > 0, reads, "{kind:?}");
        }
    }

    #[test]
    fn what_a_thread_meets_ends_the_trial() {
        let dir = tempfile::tempdir().unwrap();
        let kind = LoadKind::Blocks { is_random: true, touched_percent: 0, change: Change::None, change_percent: 0 };
        let mut spec = small_trial(dir.path(), kind, 4096);
        spec.files = 9;
        spec.threads = 9;
        assert!(carry_out(&spec).unwrap_err().to_string().contains("opening"));
    }
}
