//! From scenarios to figures.
//!
//! Relies on goals being stated for huge pages kept whole at 2 GiB in steady state; a smaller run takes its largest size.

use quire_snapshot::{Mechanism, Precopy};

use super::first_write::WritePattern;
use super::scenarios::{Scenario, ScenarioResult, SnapshotResults};
use crate::measure::candidate::PageKind;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// The size for which ratios are stated.
pub(super) const REFERENCE_MIB: u64 = 2048;

/// What bounds the cost of a first write.
const PAGE_COPY: &str = "a copy of a page by itself";

/// The size for which ratios are stated in this run.
pub(super) fn reference_mib(sizes: &[u64]) -> u64 {
    let largest = sizes.iter().copied().max().unwrap_or(REFERENCE_MIB);
    if sizes.contains(&REFERENCE_MIB) { REFERENCE_MIB } else { largest }
}

/// Adds all figures.
pub(super) fn add(results: &SnapshotResults, sizes: &[u64], report: &mut Report) {
    let mib = reference_mib(sizes);
    let goals = [(Mechanism::Scoot, 40.0), (Mechanism::Uffd, 100.0)];
    report.results.extend(goals.into_iter().map(|(mechanism, goal)| stall_ratio(results, mechanism, mib, goal)));
    report.results.push(barrier_stall(results));
    let mut ratios =
        [Mechanism::Barrier, Mechanism::Uffd].map(|mechanism| first_write_ratio(results, mechanism, mib)).to_vec();
    let worse = ratios.iter().map(|figure| figure.value).fold(0.0, |worst, ratio| {
        // A ratio that was not measured could have been the worse one.
        if ratio.is_nan() { ratio } else { worst.max(ratio) }
    });
    // Both are over the same fork.
    let bound = ratios[0].bound.as_ref().map_or(f64::NAN, |bound| bound.value);
    report.results.push(
        Figure::new("first_write_vs_fork_ratio", worse, "x", BetterDirection::Lower)
            .goal(0.5)
            .bound(PAGE_COPY, bound)
            .note("the worse of barrier and uffd; each below"),
    );
    report.results.append(&mut ratios);
    report.info.extend(results.found.iter().map(|(scenario, found)| cell_figure(*scenario, found)));
    for (scenario, precopy, cost) in &results.fixed_ns {
        let policy = match precopy {
            Precopy::None => "none".to_owned(),
            Precopy::Threshold(percent) => percent.to_string(),
            Precopy::All => "all".to_owned(),
            Precopy::Adaptive => "adaptive".to_owned(),
        };
        let name = format!("first_write_zipf_{}_{policy}", name(*scenario));
        report.info.push(Figure::new(name, cost.median, "ns", BetterDirection::Lower).spread(*cost));
    }
    for (scenario, reason) in &results.refused {
        report.info.push(
            Figure::new(name(*scenario), f64::NAN, "ns", BetterDirection::Lower)
                .note(format!("not measured: {reason}")),
        );
    }
}

fn name(Scenario { mechanism, mib, kind }: Scenario) -> String {
    format!("{mechanism}_{mib}_{}", kind.name())
}

fn stall_ratio(results: &SnapshotResults, mechanism: Mechanism, mib: u64, goal: f64) -> Figure {
    let stalls =
        |mechanism| results.get(mechanism, mib, PageKind::Huge).map(|found| Spread::or_nan(&found.steady.stall_ns));
    let (ours, forks) = (stalls(mechanism), stalls(Mechanism::Fork));
    let ratio = ours.zip(forks).map_or(f64::NAN, |(ours, forks)| forks.median / ours.median);
    let mut figure = Figure::new(format!("{mechanism}_vs_fork_stall_ratio"), ratio, "x", BetterDirection::Higher)
        .goal(goal)
        .note(format!("median stalls at {mib} MiB of huge pages, fifth and later cuts, upkeep not waited for"));
    for (name, stalls) in [(mechanism.name(), ours), ("fork", forks)] {
        if let Some(stalls) = stalls {
            figure = figure.peer(&format!("{name}_ns"), stalls.median).peer(&format!("{name}_longest_ns"), stalls.most);
        }
    }
    figure
}

fn barrier_stall(results: &SnapshotResults) -> Figure {
    let scenarios = results.found.iter().filter(|(scenario, _)| scenario.mechanism == Mechanism::Barrier);
    let stalls: Vec<_> =
        scenarios.map(|(scenario, found)| (*scenario, Spread::or_nan(&found.steady.stall_ns))).collect();
    let worst = stalls.iter().max_by(|one, two| one.1.median.total_cmp(&two.1.median));
    let longest = stalls.iter().map(|(_, stall)| stall.most).fold(f64::NAN, f64::max);
    let figure =
        Figure::new("barrier_stall_ns", worst.map_or(f64::NAN, |worst| worst.1.median), "ns", BetterDirection::Lower);
    let figure = figure.goal(10_000.0).peer("longest_ns", longest);
    match worst {
        Some((scenario, _)) => {
            let Scenario { mib, kind, .. } = scenario;
            figure.note(format!("the largest median over all sizes: {mib} MiB, {} pages", kind.name()))
        }
        None => figure,
    }
}

fn first_write_ratio(results: &SnapshotResults, mechanism: Mechanism, mib: u64) -> Figure {
    let cost = |mechanism| {
        let found = results.get(mechanism, mib, PageKind::Huge)?;
        found.first_write_ns.iter().find(|(pattern, _)| *pattern == WritePattern::Zipf).map(|(_, cost)| cost.median)
    };
    let (ours, forks) = (cost(mechanism), cost(Mechanism::Fork));
    let ratio = ours.zip(forks).map_or(f64::NAN, |(ours, forks)| ours / forks);
    let mut figure = Figure::new(format!("first_write_vs_fork_ratio_{mechanism}"), ratio, "x", BetterDirection::Lower)
        .goal(0.5)
        .bound(PAGE_COPY, results.page_copy_ns / forks.unwrap_or(f64::NAN));
    for (name, cost) in [(mechanism.name(), ours), ("fork", forks)] {
        if let Some(cost) = cost {
            figure = figure.peer(&format!("{name}_ns"), cost);
        }
    }
    figure.note(format!("a page's first write, zipf 1.0 scattered over {mib} MiB of huge pages"))
}

fn cell_figure(scenario: Scenario, found: &ScenarioResult) -> Figure {
    let steady = Spread::or_nan(&found.steady.stall_ns);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut figure = Figure::new(name(scenario), steady.median, "ns", BetterDirection::Lower)
        .spread(steady)
        .peer("cuts", found.steady.stall_ns.len() as f64)
        .peer("readable_ns", Spread::or_nan(&found.steady.ready_ns).median)
        .peer("release_ns", Spread::or_nan(&found.steady.release_ns).median)
        .peer("settled_ns", Spread::or_nan(&found.settled.stall_ns).median)
        .peer("flat_out_ns", Spread::or_nan(&found.flat_out.stall_ns).median)
        .peer("held_mib", mib(found.steady.held_bytes))
        .peer("grown_mib", mib(found.steady.extra_bytes));
    for (pattern, cost) in &found.first_write_ns {
        figure = figure.peer(&format!("first_write_{}_ns", pattern.name()), cost.median);
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stall::StallSamples;

    fn found(stalls: &[f64], first: f64) -> ScenarioResult {
        let spread = Spread { median: first, least: first, most: first };
        ScenarioResult {
            steady: StallSamples { stall_ns: stalls.to_vec(), ..StallSamples::default() },
            first_write_ns: vec![(WritePattern::Zipf, spread)],
            ..ScenarioResult::default()
        }
    }

    fn report(results: &SnapshotResults) -> Report {
        let mut report = crate::experiment::tests::report::<crate::snapshot::SnapshotArgs>();
        add(results, &[256], &mut report);
        report
    }

    #[test]
    fn ratios_are_of_medians_and_the_worse_first_write_counts() {
        let scenario = |mechanism| Scenario { mechanism, mib: 256, kind: PageKind::Huge };
        let results = SnapshotResults {
            found: vec![
                (scenario(Mechanism::Fork), found(&[3e6, 4e6, 90e6], 2000.0)),
                (scenario(Mechanism::Scoot), found(&[1e5], 1500.0)),
                (scenario(Mechanism::Uffd), found(&[2e4], 900.0)),
                (scenario(Mechanism::Barrier), found(&[900.0, 1000.0, 7000.0], 500.0)),
            ],
            refused: vec![(scenario(Mechanism::MmapCopy), "no".into())],
            fixed_ns: vec![],
            page_copy_ns: 400.0,
        };
        let report = report(&results);
        let value = |name: &str| report.results.iter().find(|figure| figure.name == name).unwrap().value;
        assert_eq!((value("scoot_vs_fork_stall_ratio"), value("uffd_vs_fork_stall_ratio")), (40.0, 200.0));
        assert_eq!((value("barrier_stall_ns"), value("first_write_vs_fork_ratio")), (1000.0, 0.45));
        assert_eq!(value("first_write_vs_fork_ratio_barrier"), 0.25);
        let bounds = report.results.iter().filter_map(|figure| Some(figure.bound.as_ref()?.value));
        assert_eq!(bounds.collect::<Vec<f64>>(), [0.2; 3], "of all first writes");
        assert!(report.table().contains("not measured: no"));
    }

    #[test]
    fn what_was_not_measured_is_no_number_and_reaches_no_goal() {
        let report = report(&SnapshotResults::default());
        assert_eq!(report.results.len(), 6);
        assert!(report.results.iter().all(|figure| figure.reached() == Some(false)));
    }
}
