//! From the rounds to figures.
//!
//! Relies on each round having a turn of either server, so that ratios are taken within a round.

use super::modelled_disk::ModelledSave;
use super::trial::{CLIENTS, LIMITED_BYTES_PER_S, ServerTrial, SlowedSave};
use super::{PEER, Round, ServerSaves};
use crate::format::mebibytes;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

const GROWTH: &str = "mdc_memory_growth";
const TIME_RATIO: &str = "checkpoint_time_ratio";
const THROUGHPUT_RATIO: &str = "throughput_during_ratio";
const LONGEST_WAIT: &str = "longest_writer_wait_ms";
const LONGEST_WAIT_LIMITED: &str = "longest_writer_wait_blkio_ms";
/// What a dump writes at once while writers wait: a buffer is free again after one such write at the earliest.
const SHORT_WRITE_BYTES: u64 = 256 << 10;
/// The figures that a small run can't tell.
pub const NAMES: [&str; 6] =
    [GROWTH, TIME_RATIO, THROUGHPUT_RATIO, LONGEST_WAIT, LONGEST_WAIT_LIMITED, "fork_memory_growth"];
/// Why two of them are not told everywhere.
const NOT_LIMITED: &str = "the disk can't be slowed down here (needs root and cgroup v1 blkio)";

/// The figures that the part is for, where it could not be run.
pub fn not_measured(reason: &str, report: &mut Report) {
    for (name, unit, better) in [
        (GROWTH, "of the data", BetterDirection::Lower),
        (TIME_RATIO, "x", BetterDirection::Lower),
        (THROUGHPUT_RATIO, "x", BetterDirection::Higher),
        (LONGEST_WAIT, "ms", BetterDirection::Lower),
    ] {
        report.results.push(Figure::new(name, f64::NAN, unit, better).note(format!("not measured: {reason}")));
    }
}

/// Adds all figures.
pub fn add(results: &ServerSaves, report: &mut Report) {
    let rounds = &results.rounds;
    report.results.push(growth(rounds));
    report.results.push(time_ratio(rounds).goal(0.3));
    report.results.push(throughput_ratio(rounds));
    report.results.push(longest_wait(&results.modelled, rounds));
    report.info.push(longest_wait_limited(rounds));
    let fork_growth = of_slowed(rounds, theirs, |save| save.growth);
    report.info.push(
        Figure::new("fork_memory_growth", fork_growth.median, "of the data", BetterDirection::Lower)
            .spread(fork_growth)
            .note(format!("of {PEER}, with the same data and clients")),
    );
}

fn ours(round: &Round) -> &ServerTrial {
    &round.ours
}

fn theirs(round: &Round) -> &ServerTrial {
    &round.theirs
}

type TrialOf = fn(&Round) -> &ServerTrial;

fn of_all(rounds: &[Round], side: TrialOf, value: impl Fn(&ServerTrial) -> f64) -> Vec<f64> {
    rounds.iter().map(|round| value(side(round))).collect()
}

fn median(rounds: &[Round], side: TrialOf, value: impl Fn(&ServerTrial) -> f64) -> f64 {
    Spread::or_nan(&of_all(rounds, side, value)).median
}

fn of_slowed(rounds: &[Round], side: TrialOf, value: impl Fn(&SlowedSave) -> f64) -> Spread {
    let values: Vec<f64> = rounds.iter().filter_map(|round| side(round).slowed.as_ref().map(&value)).collect();
    Spread::or_nan(&values)
}

/// The figure with its goal and spread and what else is to be said, if the disk could be limited.
fn where_limited(figure: Figure, goal: f64, spread: Spread, note: &str) -> Figure {
    if figure.value.is_nan() {
        return figure.note(format!("not measured: {NOT_LIMITED}"));
    }
    figure.goal(goal).spread(spread).note(note)
}

fn growth(rounds: &[Round]) -> Figure {
    let of = |side, value: fn(&SlowedSave) -> f64| of_slowed(rounds, side, value);
    let growth = of(ours, |save| save.growth);
    let updated = of(ours, |save| save.updated).median;
    let peer_updated = of(theirs, |save| save.updated).median;
    let figure = Figure::new(GROWTH, growth.median, "of the data", BetterDirection::Lower)
        .peer("fork_memory_growth", of(theirs, |save| save.growth).median)
        .peer("updates_over_keys", updated)
        .peer("fork_updates_over_keys", peer_updated)
        .peer("save_s", of(ours, |save| save.took_s).median)
        .peer("fork_save_s", of(theirs, |save| save.took_s).median);
    let note = format!(
        "peak of the proportional set size during a save, above that before the first save, over the bytes of the values; {CLIENTS} clients update \
         meanwhile, and the disk is slowed down so that the updates are about as many as the keys: {:.0} %, {PEER} {:.0} %",
        updated * 100.0,
        peer_updated * 100.0
    );
    where_limited(figure, 0.04, growth, &note)
}

fn time_ratio(rounds: &[Round]) -> Figure {
    let [ours_s, theirs_s] = [ours, theirs].map(|side: TrialOf| of_all(rounds, side, |trial| trial.rest_s));
    let ratio = Spread::of_ratios(&ours_s, &theirs_s);
    let raw_s = of_all(rounds, ours, |trial| trial.raw_write_s);
    let mib = |side| mebibytes(median(rounds, side, |trial| trial.file_bytes as f64) as u64);
    Figure::new(TIME_RATIO, ratio.median, "x", BetterDirection::Lower)
        .spread(ratio)
        .bound("a direct write of as many bytes with fsync", Spread::of_ratios(&raw_s, &theirs_s).median)
        .peer("quire_s", Spread::or_nan(&ours_s).median)
        .peer("redis_s", Spread::or_nan(&theirs_s).median)
        .peer("quire_mib", mib(ours))
        .peer("redis_mib", mib(theirs))
        .note(format!("from BGSAVE to done, at rest; {PEER} with rdbcompression no"))
}

/// Updates a second during a save, over those without.
fn kept(trial: &ServerTrial) -> f64 {
    trial.updates_per_s[1] / trial.updates_per_s[0]
}

fn throughput_ratio(rounds: &[Round]) -> Figure {
    let [ours_kept, theirs_kept] = [ours, theirs].map(|side: TrialOf| of_all(rounds, side, kept));
    let ratio = Spread::of_ratios(&ours_kept, &theirs_kept);
    let mut figure = Figure::new(THROUGHPUT_RATIO, ratio.median, "x", BetterDirection::Higher).spread(ratio);
    for (name, side) in [("quire", ours as TrialOf), ("redis", theirs)] {
        for (when, index) in [("without_per_s", 0), ("during_per_s", 1)] {
            let per_s = median(rounds, side, |trial| trial.updates_per_s[index]);
            figure = figure.peer(&format!("{name}_{when}"), per_s);
        }
    }
    let without_cost: Vec<f64> = theirs_kept.iter().map(|kept| 1.0 / kept).collect();
    figure.bound("a save that takes no throughput", Spread::or_nan(&without_cost).median).note(format!(
        "updates a second by {CLIENTS} clients during a save at the disk's own speed, over those without a save, over the same of {PEER}"
    ))
}

fn longest_wait(modelled: &[ModelledSave], rounds: &[Round]) -> Figure {
    let of = |value: fn(&ModelledSave) -> f64| Spread::or_nan(&modelled.iter().map(value).collect::<Vec<_>>());
    let wait = of(|save| save.longest_wait_ms);
    Figure::new(LONGEST_WAIT, wait.median, "ms", BetterDirection::Lower)
        .goal(5.0)
        .bound("one write of 256 KiB to that disk", SHORT_WRITE_BYTES as f64 * 1e3 / LIMITED_BYTES_PER_S as f64)
        .spread(wait)
        .peer("redis_fork_ms", median(rounds, theirs, |trial| trial.stall_ms))
        .peer("waits", of(|save| save.waits as f64).median)
        .peer("pages_written_over_pages", of(|save| save.written).median)
        .note(format!(
            "the longest wait of a writer that writes all pages in turn without pause, while the same dump as the server's goes to a disk of \
             {} MB/s by a model; budget by default",
            LIMITED_BYTES_PER_S / 1_000_000
        ))
}

fn longest_wait_limited(rounds: &[Round]) -> Figure {
    let waits: Vec<f64> = rounds.iter().filter_map(|round| round.ours.longest_wait_ms).collect();
    let wait = Spread::or_nan(&waits);
    let figure = Figure::new(LONGEST_WAIT_LIMITED, wait.median, "ms", BetterDirection::Lower);
    if wait.median.is_nan() {
        return figure.note(format!("not measured: {NOT_LIMITED}"));
    }
    figure.spread(wait).note(format!(
        "the longest that a command of the server waited, by INFO; {CLIENTS} clients update meanwhile; the kernel limits the disk to {} MB/s, \
         by letting the bytes of up to 100 ms through at once and then none",
        LIMITED_BYTES_PER_S / 1_000_000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::CheckpointArgs;

    fn trial(rest_s: f64, during_per_s: f64, growth: Option<f64>) -> ServerTrial {
        ServerTrial {
            rest_s,
            file_bytes: 3 << 20,
            raw_write_s: 1.0,
            updates_per_s: [100.0, during_per_s],
            stall_ms: 30.0,
            longest_wait_ms: growth.map(|growth| growth * 100.0),
            slowed: growth.map(|growth| SlowedSave { growth, updated: 1.1, took_s: 9.0 }),
        }
    }

    fn figures(growths: [Option<f64>; 3]) -> Report {
        let mut results = ServerSaves::default();
        for (factor, growth) in [1.0, 3.0, 2.0].into_iter().zip(growths) {
            let ours = trial(2.0 * factor, 80.0, growth);
            let theirs = trial(10.0, 40.0, growth.map(|growth| growth * 20.0));
            results.rounds.push(Round { ours, theirs });
            results.modelled.push(ModelledSave { longest_wait_ms: factor, waits: 10, written: 0.5 });
        }
        let mut report = crate::experiment::tests::report::<CheckpointArgs>();
        add(&results, &mut report);
        report
    }

    fn figure<'a>(report: &'a Report, name: &str) -> &'a Figure {
        report.results.iter().chain(&report.info).find(|figure| figure.name == name).unwrap()
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_others_are_medians_with_their_spread() {
        let report = figures([Some(0.03), Some(0.05), Some(0.04)]);
        let growth = figure(&report, GROWTH);
        assert_eq!((growth.value, growth.spread, growth.reached()), (0.04, Some([0.03, 0.05]), Some(true)));
        assert_eq!(growth.peer["fork_memory_growth"], figure(&report, "fork_memory_growth").value);
        assert!(growth.note.contains("110 %"), "{}", growth.note);
        let time = figure(&report, TIME_RATIO);
        assert_eq!((time.value, time.spread, time.reached()), (0.4, Some([0.2, 0.6]), Some(false)));
        assert_eq!(time.bound.as_ref().unwrap().value, 0.1);
        let throughput = figure(&report, THROUGHPUT_RATIO);
        assert_eq!((throughput.value, throughput.bound.as_ref().unwrap().value), (2.0, 2.5));
        let wait = figure(&report, LONGEST_WAIT);
        assert_eq!((wait.value, wait.reached()), (2.0, Some(true)));
        assert_eq!((&wait.peer["redis_fork_ms"], &wait.peer["waits"]), (&30.0.into(), &10.0.into()));
        assert_eq!(figure(&report, LONGEST_WAIT_LIMITED).value, 4.0);
    }

    #[test]
    fn a_disk_that_can_t_be_slowed_down_leaves_two_figures_unmeasured_with_the_reason() {
        let report = figures([None; 3]);
        for name in [GROWTH, LONGEST_WAIT_LIMITED] {
            let figure = figure(&report, name);
            assert!(figure.value.is_nan() && figure.reached().is_none(), "{figure:?}");
            assert!(figure.note.contains("can't be slowed down"), "{}", figure.note);
        }
        assert_eq!(figure(&report, TIME_RATIO).value, 0.4);
    }

    #[test]
    fn without_the_peer_all_figures_have_the_reason() {
        let mut report = crate::experiment::tests::report::<CheckpointArgs>();
        not_measured("no peer", &mut report);
        assert!(report.results.iter().all(|figure| NAMES.contains(&figure.name.as_str())));
        assert!(report.results.iter().all(|figure| figure.note.contains("no peer") && figure.reached().is_none()));
    }
}
