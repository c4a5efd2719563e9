//! A line for everything that was tried: the paper's figures 4, 5, 6, 7 and 9 and tables 3 and 4 as numbers.
//!
//! Relies on lines with the same columns being put into one table by `quire bench tables`.

use super::cache_policy::CachePolicy;
use super::scenarios::{Scenario, Workload};
use super::testbed::storage_stack::FastDevice;
use super::tpcc::transaction::TransactionType;
use super::trial_results::TrialResults;
use super::trial_stats::{EVERYTHING, TrialStats};
use crate::report::{BetterDirection, Figure};

/// All lines.
pub fn of(results: &TrialResults) -> Vec<Figure> {
    let mut lines: Vec<Figure> =
        results.scenarios().into_iter().map(|scenario| throughput(results, scenario)).collect();
    let tables: [fn(&TrialResults, Scenario) -> Vec<Figure>; 4] = [transactions, tails, waits, critical_writes];
    for table in tables {
        lines.extend(results.scenarios().into_iter().flat_map(|scenario| table(results, scenario)));
    }
    lines.extend(
        results
            .scenarios()
            .into_iter()
            .filter(|scenario| scenario.fast == FastDevice::Ssd)
            .map(|scenario| devices(results, scenario)),
    );
    lines
}

/// Figures 4, 7 and 9: how much was done, how much was cached for it, and how much for each cached block.
fn throughput(results: &TrialResults, scenario: Scenario) -> Figure {
    let rate = |stats: &TrialStats| Some(stats.per_s());
    let Some(spread) = results.spread(scenario, rate) else {
        let group = results.groups().into_iter().find(|group| group.scenario(scenario.policy) == scenario);
        let reason = group.map_or_else(String::new, |group| results.reason(group));
        return Figure::new(scenario.name(), f64::NAN, "1/s", BetterDirection::Higher)
            .note(format!("not measured: {reason}"));
    };
    let of = |pick: &dyn Fn(&TrialStats) -> Option<f64>| results.median(scenario, pick).unwrap_or(f64::NAN);
    let per_minute = if scenario.work == Workload::Tpcc { spread.median * 60.0 } else { f64::NAN };
    let group = results.groups().into_iter().find(|group| group.scenario(scenario.policy) == scenario);
    let vs_all = group
        .and_then(|group| results.ratio(group, scenario.policy, CachePolicy::All, rate))
        .map_or(f64::NAN, |ratio| ratio.median);
    let saved = group
        .and_then(|group| results.ratio(group, scenario.policy, CachePolicy::All, TrialStats::cached_bytes_per_op));
    let share = |part: &'static str| of(&move |stats| Some(stats.cache.get(part)? / 1024.0 / 1024.0));
    let figure = Figure::new(scenario.name(), spread.median, "1/s", BetterDirection::Higher)
        .peer("tpmC", per_minute)
        .peer("over_ALL", vs_all)
        .peer("cached_MiB", share("logged_bytes"))
        .peer("direct_MiB", share("direct_bytes"))
        .peer("saved_of_ALL", saved.map_or(f64::NAN, |ratio| 1.0 - ratio.median))
        .peer("ops_per_cached_block", of(&|stats| Some(stats.ops as f64 / (stats.cache.cached_bytes()? / 4096.0))))
        .peer("stalls", of(&|stats| stats.cache.get("stalls")))
        .peer("daemon_cpu_s", of(&|stats| stats.cache.get("bench.daemon_cpu_s")));
    if results.stats_of(scenario).count() > 1 { figure.spread(spread) } else { figure }
}

/// Latencies by kind of transaction.
fn transactions(results: &TrialResults, scenario: Scenario) -> Vec<Figure> {
    if scenario.work != Workload::Tpcc {
        return Vec::new();
    }
    let line = |kind: TransactionType| {
        let of = |percent: f64| results.median(scenario, |stats| stats.latency_ns(kind.name(), percent));
        let name = format!("{} {}", scenario.name(), kind.name());
        let figure = Figure::new(name, of(50.0)?, "ns", BetterDirection::Lower);
        let of = |percent: f64| of(percent).unwrap_or(f64::NAN);
        Some(figure.peer("p90_ns", of(90.0)).peer("p95_ns", of(95.0)).peer("p99_ns", of(99.0)))
    };
    TransactionType::EVERY.into_iter().filter_map(line).collect()
}

/// Table 4: the tail of all requests.
fn tails(results: &TrialResults, scenario: Scenario) -> Vec<Figure> {
    if scenario.work == Workload::Tpcc {
        return Vec::new();
    }
    let of = |percent: f64| results.median(scenario, |stats| stats.latency_ns(EVERYTHING, percent)).unwrap_or(f64::NAN);
    let Some(median) = results.median(scenario, |stats| stats.latency_ns(EVERYTHING, 50.0)) else { return Vec::new() };
    let most = results.median(scenario, |stats| Some(stats.latency.get(EVERYTHING)?.max() as f64 * 1e3));
    let figure = Figure::new(format!("tail {}", scenario.name()), median, "ns", BetterDirection::Lower)
        .peer("p95_ns", of(95.0))
        .peer("p99_ns", of(99.0))
        .peer("p99.9_ns", of(99.9))
        .peer("p99.99_ns", of(99.99))
        .peer("most_ns", most.unwrap_or(f64::NAN));
    vec![figure]
}

/// Figure 5: for how long critical tasks waited in the cache, by cause, over all of them.
fn waits(results: &TrialResults, scenario: Scenario) -> Vec<Figure> {
    let causes = wait_causes(results, scenario);
    if causes.is_empty() {
        return Vec::new();
    }
    let total: f64 = causes.iter().map(|(_, ns)| ns).sum();
    let mut figure = Figure::new(format!("waits {}", scenario.name()), total, "ns", BetterDirection::Lower);
    for (cause, ns) in causes {
        figure = figure.peer(&format!("{cause}_ns"), ns);
    }
    vec![figure]
}

/// Causes of critical waits with their nanoseconds for each second of the trial.
pub fn wait_causes(results: &TrialResults, scenario: Scenario) -> Vec<(String, f64)> {
    let Some((_, first)) = results.stats_of(scenario).next() else { return Vec::new() };
    let causes = first.cache.below("critical_waits").filter_map(|(name, _)| name.strip_suffix(".total_ns"));
    let of = |cause: &str| {
        let field = format!("critical_waits.{cause}.total_ns");
        results.median(scenario, |stats| Some(stats.cache.get(&field)? / stats.elapsed_s))
    };
    causes.filter_map(|cause| Some((cause.to_owned(), of(cause)?))).collect()
}

/// Table 3: of what the critical writes consisted, in blocks by what they held and how they came.
fn critical_writes(results: &TrialResults, scenario: Scenario) -> Vec<Figure> {
    let Some((_, first)) = results.stats_of(scenario).next() else { return Vec::new() };
    let fields: Vec<(&str, f64)> = first.cache.below("critical_blocks").collect();
    let total: f64 = fields.iter().map(|(_, blocks)| blocks).sum();
    if total == 0.0 {
        return Vec::new();
    }
    let mut figure =
        Figure::new(format!("critical writes {}", scenario.name()), total, "blocks", BetterDirection::Lower);
    for (field, blocks) in fields {
        figure = figure.peer(&field.replace('.', "_"), blocks);
    }
    vec![figure]
}

/// Figure 6: requests a second that the devices finished.
fn devices(results: &TrialResults, scenario: Scenario) -> Figure {
    let of = |field: &'static str| {
        results.median(scenario, move |stats| Some(stats.cache.get(field)? / stats.elapsed_s)).unwrap_or(f64::NAN)
    };
    Figure::new(
        format!("devices {}", scenario.name()),
        of("bench.fast_writes"),
        "writes/s to the SSD",
        BetterDirection::Lower,
    )
    .peer("ssd_reads/s", of("bench.fast_reads"))
    .peer("disk_writes/s", of("bench.slow_writes"))
    .peer("disk_reads/s", of("bench.slow_reads"))
}

#[cfg(test)]
mod tests {
    use super::super::trial_results::TrialResult;
    use super::super::trial_results::tests::{SMALL, trial};
    use super::*;

    #[test]
    fn lines_tell_throughput_waits_and_what_critical_writes_were() {
        let mut results = TrialResults::default();
        results.trials.push(trial(SMALL, CachePolicy::All, 0, 100, 100 << 20));
        results.trials.push(trial(SMALL, CachePolicy::CpPiIoi, 0, 200, 50 << 20));
        results.trials.push(TrialResult { outcome: Err("gone".into()), ..trial(SMALL, CachePolicy::Cp, 0, 1, 1) });
        let lines = of(&results);
        let line = |name: &str| lines.iter().find(|line| line.name == name).unwrap_or_else(|| panic!("no {name}"));
        let ours = line("tpcc ram 32 MiB CP+PI+IOI");
        assert_eq!(
            (ours.value, ours.peer["tpmC"].as_f64(), ours.peer["over_ALL"].as_f64()),
            (200.0, Some(12_000.0), Some(2.0))
        );
        assert_eq!((ours.peer["cached_MiB"].as_f64(), ours.peer["saved_of_ALL"].as_f64()), (Some(50.0), Some(0.75)));
        assert!(line("tpcc ram 32 MiB CP").note.contains("gone"));
        assert_eq!(line("waits tpcc ram 32 MiB ALL").value, 12e6);
        assert_eq!(line("critical writes tpcc ram 32 MiB ALL").peer["direct_meta"].as_f64(), Some(3.0));
        assert!(lines.iter().any(|line| line.name == "tpcc ram 32 MiB ALL new_order"));
    }
}
