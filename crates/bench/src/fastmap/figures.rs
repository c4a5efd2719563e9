//! From trials to figures: those with goals, and a line for everything that was tried.
//!
//! Relies on [`TrialResults`] for ratios. Figures with goals are those of the real disk; what the fast device says stands beside
//! them, for information.

use super::bounds::{REQUESTS, STEPS};
use super::candidate::Candidate;
use super::hit::COLD;
use super::kv::ycsb::YcsbWorkload;
use super::phase_stats::PhaseStats;
use super::scale::{FastmapScale, THREADS};
use super::testbed::DeviceKind;
use super::trial_results::{Scenario, TrialResults};
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// The pool's way in the key-value loads.
const KV_OURS: Candidate = Candidate::GuardsAhead;

/// Adds all figures of the parts that were wanted.
pub fn add(results: &TrialResults, scale: &FastmapScale, report: &mut Report) {
    if scale.wants("micro") {
        let missing = scale.missing_share();
        report.results.extend(micro(results, DeviceKind::Disk, "", missing));
        if results.scenarios().iter().any(|scenario| scenario.device == DeviceKind::Zram) {
            report.info.extend(
                micro(results, DeviceKind::Zram, "_zram", missing).map(|figure| Figure { goal: None, ..figure }),
            );
        }
    }
    if scale.wants("kv") {
        report.results.extend(key_values(results, "ycsb", ""));
        let in_memory = key_values(results, "ycsb_in_memory", "_in_memory");
        report.info.extend(in_memory.into_iter().map(|figure| Figure { goal: None, ..figure }));
    }
    if scale.wants("bfs") {
        report.results.extend(search(results));
    }
    if scale.wants("micro") {
        report.results.push(queue_depth(results));
    }
    if scale.wants("hit") {
        report.results.push(hit(results));
    }
    lines(results, scale, report);
}

/// Times the better mmap that random reads by one thread and random stores by 16 threads should be.
pub(super) const RANDOM_GOAL: f64 = 3.0;

fn micro_scenario(work: &'static str, device: DeviceKind, threads: usize) -> Scenario {
    Scenario { work, device, threads }
}

fn micro(results: &TrialResults, device: DeviceKind, suffix: &str, missing: f64) -> [Figure; 3] {
    let figure = |name: &str, work, threads, ours| {
        let note = format!("{}, {} of a page that is mostly not in memory, uniform", device.name(), work);
        against_mmap(results, format!("{name}{suffix}"), micro_scenario(work, device, threads), ours, work, &note)
    };
    // A store also has the page written back that makes room for its own.
    let reads = |request, figure| bounded(results, device, request, missing, figure);
    let stores = |request, figure| bounded(results, device, request, 2.0 * missing, figure);
    [
        reads("read_depth_64", figure("rand_read_vs_mmap_t1", "read", 1, Candidate::GuardsAhead)).goal(RANDOM_GOAL),
        reads("read_depth_16", figure("rand_read_vs_mmap_t16", "read", 16, Candidate::Guards)),
        stores("mixed_depth_64", figure("rand_write_vs_mmap_t16", "write", 16, Candidate::Guards)).goal(RANDOM_GOAL),
    ]
}

/// `ours` over the better of Linux's two, with every candidate's operations a second.
fn against_mmap(
    results: &TrialResults,
    name: String,
    scenario: Scenario,
    ours: Candidate,
    phase: &str,
    note: &str,
) -> Figure {
    let Some(ratio) = results.ratio(scenario, ours, phase) else {
        let peers = Candidate::PEERS.map(|peer| results.median(scenario, peer, phase, PhaseStats::per_s));
        let missing = if peers.iter().all(Option::is_none) { Candidate::PEERS[0] } else { ours };
        return missing_figure(name, "x", BetterDirection::Higher, &results.reason(scenario, missing));
    };
    let mut figure = Figure::new(name, ratio.spread.median, "x", BetterDirection::Higher).spread(ratio.spread);
    for candidate in results.candidates(scenario) {
        if let Some(per_s) = results.median(scenario, candidate, phase, PhaseStats::per_s) {
            figure = figure.peer(&format!("{}/s", candidate.name()), per_s);
        }
    }
    figure.note(format!("{} over {}; {note}", ours.name(), ratio.peer.name()))
}

/// The figure with its bound: what the device by itself does of the requests called `request`, when an operation takes
/// `each` of them on average, over the operations of the better mmap.
fn bounded(results: &TrialResults, device: DeviceKind, request: &str, each: f64, figure: Figure) -> Figure {
    let peers = Candidate::PEERS.iter().filter_map(|peer| figure.peer.get(&format!("{}/s", peer.name()))?.as_f64());
    let best = peers.fold(f64::NAN, f64::max);
    match bound(results, device, request, PhaseStats::per_s) {
        Some(per_s) => {
            let name = format!("{} {request} by itself, {each:.2} requests an operation", device.name());
            figure.peer(&format!("device_{request}/s"), per_s).bound(name, per_s / each / best)
        }
        None => figure,
    }
}

/// The same for a phase in which `ours` reads so many pages for each operation by its own account.
fn bounded_by_reads(
    results: &TrialResults,
    (scenario, ours, phase): (Scenario, Candidate, &str),
    figure: Figure,
) -> Figure {
    let reads = |stats: &PhaseStats| {
        let of = |name: &str| stats.counters.get(name).copied().unwrap_or(f64::NAN);
        stats.per_op(of("misses") + of("ahead_reads"))
    };
    let each = results.median(scenario, ours, phase, reads).unwrap_or(f64::NAN);
    bounded(results, scenario.device, "read_depth_64", each, figure)
}

pub(super) fn bound(
    results: &TrialResults,
    device: DeviceKind,
    name: &str,
    pick: impl Fn(&PhaseStats) -> f64,
) -> Option<f64> {
    results.median(Scenario { work: "bounds", device, threads: 1 }, Candidate::Direct, name, pick)
}

fn missing_figure(name: impl Into<String>, unit: &'static str, better: BetterDirection, reason: &str) -> Figure {
    Figure::new(name, f64::NAN, unit, better).note(format!("not measured: {reason}"))
}

fn key_values(results: &TrialResults, work: &'static str, suffix: &str) -> Vec<Figure> {
    let scenario = Scenario { work, device: DeviceKind::Disk, threads: THREADS };
    let figure = |load: YcsbWorkload| {
        let name = format!("ycsb_{}_vs_mmap{suffix}", load.name());
        let note = format!("{} operations, {THREADS} threads, the same tree on all but lmdb", load.name());
        let figure = against_mmap(results, name, scenario, KV_OURS, load.name(), &note);
        // Only reads go to the disk by single pages; writes may be joined.
        if load == YcsbWorkload::C {
            bounded_by_reads(results, (scenario, KV_OURS, load.name()), figure)
        } else {
            figure
        }
    };
    vec![figure(YcsbWorkload::Fill).goal(3.0), figure(YcsbWorkload::C), mean(results, scenario, suffix).goal(2.5)]
}

/// The mean of all loads' ratios.
fn mean(results: &TrialResults, scenario: Scenario, suffix: &str) -> Figure {
    let name = format!("ycsb_mean_vs_mmap{suffix}");
    let ratio = |load: YcsbWorkload| Some((load, results.ratio(scenario, KV_OURS, load.name())?));
    let ratios: Vec<_> = YcsbWorkload::ALL.into_iter().filter_map(ratio).collect();
    if ratios.len() < YcsbWorkload::ALL.len() {
        return missing_figure(name, "x", BetterDirection::Higher, &results.reason(scenario, KV_OURS));
    }
    let mean_of =
        |pick: fn(Spread) -> f64| ratios.iter().map(|(_, ratio)| pick(ratio.spread)).sum::<f64>() / ratios.len() as f64;
    let spread = Spread {
        median: mean_of(|spread| spread.median),
        least: mean_of(|spread| spread.least),
        most: mean_of(|spread| spread.most),
    };
    let mut figure = Figure::new(name, spread.median, "x", BetterDirection::Higher).spread(spread);
    for (load, ratio) in &ratios {
        figure = figure.peer(load.name(), ratio.spread.median);
    }
    figure.note(format!("mean over the loads of {} over the better mmap", KV_OURS.name()))
}

fn search(results: &TrialResults) -> [Figure; 2] {
    let scenario = Scenario { work: "bfs", device: DeviceKind::Disk, threads: THREADS };
    let note = "edges looked at in a second, R-MAT, four times the memory";
    let figure = |name: &str, ours| {
        let figure = against_mmap(results, name.into(), scenario, ours, "bfs", note);
        bounded_by_reads(results, (scenario, ours, "bfs"), figure)
    };
    [
        figure("bfs_guard_vs_mmap", Candidate::GuardsAhead).goal(3.0),
        figure("bfs_transparent_vs_mmap", Candidate::Transparent).goal(1.2),
    ]
}

fn queue_depth(results: &TrialResults) -> Figure {
    let name = "single_thread_queue_depth";
    let scenario = micro_scenario("read", DeviceKind::Disk, 1);
    let depth = |candidate| results.median(scenario, candidate, "read", |stats| stats.queue_depth.unwrap_or(f64::NAN));
    let Some(value) = depth(Candidate::GuardsAhead) else {
        return missing_figure(name, "", BetterDirection::Higher, &results.reason(scenario, Candidate::GuardsAhead));
    };
    let mut figure =
        Figure::new(name, value, "", BetterDirection::Higher).bound("the pages that are known ahead", 64.0);
    for candidate in results.candidates(scenario) {
        figure = figure.peer(candidate.name(), depth(candidate).unwrap_or(f64::NAN));
    }
    figure.note("requests in the disk on average, by its own account, one thread with 64 known future pages; peers without such knowledge but mmap_ahead")
}

fn hit(results: &TrialResults) -> Figure {
    let scenario = Scenario { work: "hit", device: DeviceKind::Disk, threads: 1 };
    let each_ns = |stats: &PhaseStats| stats.elapsed_s * 1e9 / stats.ops.max(1) as f64;
    let of = |way: &str| results.median(scenario, Candidate::Guards, way, each_ns);
    let figure = |value| Figure::new("hit_cost_ns", value, "ns", BetterDirection::Lower).goal(15.0);
    let (Some(plain), Some(guard)) = (of("plain"), of("guard")) else {
        let reason = results.reason(scenario, Candidate::Guards);
        return figure(f64::NAN).note(format!("not measured: {reason}"));
    };
    let mut figure = figure(guard - plain).bound("a plain load of the same word, which is taken off", 0.0);
    for suffix in ["", COLD] {
        for way in ["guard", "plain", "optimistic", "mmap", "vmcache"].map(|way| format!("{way}{suffix}")) {
            figure = figure.peer(&format!("{way}_ns"), of(&way).unwrap_or(f64::NAN));
        }
    }
    figure.note(
        "a guard on a page in memory, less a plain load of the same word, one thread, random order; 256 pages whose words are \
         in the caches, and (cold) 64 MiB whose words are not",
    )
}

/// What the machine can do: the device's requests, and the steps that ways to pages are made of.
fn bounds(results: &TrialResults, device: DeviceKind) -> Vec<Figure> {
    let scenario = Scenario { work: "bounds", device, threads: 1 };
    let request = |(name, ..): (&'static str, usize, u64)| {
        let figure = Figure::new(
            format!("bound {} {name}", device.name()),
            results.median(scenario, Candidate::Direct, name, PhaseStats::per_s)?,
            "1/s",
            BetterDirection::Higher,
        );
        let depth = results.median(scenario, Candidate::Direct, name, |stats| stats.queue_depth.unwrap_or(f64::NAN))?;
        let cpu_ns = results.median(scenario, Candidate::Direct, name, PhaseStats::cpu_ns_per_op)?;
        Some(figure.peer("queue_depth", depth).peer("cpu_ns", cpu_ns))
    };
    let step = |name: &str| {
        let each_ns = |stats: &PhaseStats| stats.per_op(stats.elapsed_s * 1e9);
        let value = results.median(scenario, Candidate::Direct, name, each_ns)?;
        Some(Figure::new(format!("bound {name}"), value, "ns", BetterDirection::Lower))
    };
    let mut figures: Vec<Figure> = REQUESTS.into_iter().filter_map(request).collect();
    // Steps have nothing to do with the device.
    if device == DeviceKind::Disk {
        figures.extend(STEPS.into_iter().filter_map(step));
    }
    figures
}

fn lines(results: &TrialResults, scale: &FastmapScale, report: &mut Report) {
    report.info.extend([DeviceKind::Disk, DeviceKind::Zram].into_iter().flat_map(|device| bounds(results, device)));
    for scenario in results.scenarios().into_iter().filter(|scenario| !matches!(scenario.work, "hit" | "bounds")) {
        for candidate in results.candidates(scenario) {
            let phases = phases(results, scenario, candidate);
            if phases.is_empty() {
                let reason = results.reason(scenario, candidate);
                report.info.push(missing_figure(
                    line_name(scenario, candidate, scenario.work),
                    "1/s",
                    BetterDirection::Higher,
                    &reason,
                ));
            }
            report.info.extend(phases.iter().map(|phase| line(results, scenario, candidate, phase)));
        }
    }
    if scale.wants("contention") {
        let is_uniform = |scenario: &Scenario| matches!(scenario.work, "read" | "write");
        for scenario in results.scenarios().into_iter().filter(is_uniform) {
            for candidate in results.candidates(scenario) {
                report.info.extend(contention(results, scenario, candidate));
            }
        }
    }
}

/// Phases that `candidate` went through, in order.
fn phases(results: &TrialResults, scenario: Scenario, candidate: Candidate) -> Vec<String> {
    let trials = results.trials.iter().filter(|trial| trial.scenario == scenario && trial.candidate == candidate);
    let outcome = trials.filter_map(|trial| trial.outcome.as_ref().ok()).next();
    outcome.into_iter().flatten().map(|stats| stats.name.clone()).collect()
}

fn line_name(scenario: Scenario, candidate: Candidate, phase: &str) -> String {
    match scenario.work {
        "bfs" => format!("bfs {}", candidate.name()),
        "ycsb" | "ycsb_in_memory" => format!("{} {phase} {}", scenario.work, candidate.name()),
        work => format!("{work} {} t{} {}", scenario.device.name(), scenario.threads, candidate.name()),
    }
}

fn line(results: &TrialResults, scenario: Scenario, candidate: Candidate, phase: &str) -> Figure {
    let of = |pick: &dyn Fn(&PhaseStats) -> f64| results.median(scenario, candidate, phase, pick).unwrap_or(f64::NAN);
    let values: Vec<f64> = results.phases(scenario, candidate, phase).into_iter().map(PhaseStats::per_s).collect();
    let latency = |index: usize| {
        let value = of(&|stats| stats.latency_ns[index] as f64);
        // A search has no operations whose latency a user waits for.
        if value > 0.0 { value } else { f64::NAN }
    };
    let figure =
        Figure::new(line_name(scenario, candidate, phase), of(&PhaseStats::per_s), "1/s", BetterDirection::Higher)
            .peer("p50_ns", latency(0))
            .peer("p99_ns", latency(1))
            .peer("p999_ns", latency(2))
            .peer("cpu_ns", of(&PhaseStats::cpu_ns_per_op))
            .peer("queue_depth", of(&|stats| stats.queue_depth.unwrap_or(f64::NAN)))
            .peer("peak_mib", of(&|stats| stats.counters.get("peak_mib").copied().unwrap_or(f64::NAN)));
    match Spread::of(&values) {
        Some(spread) if values.len() > 1 => figure.spread(spread),
        _ => figure,
    }
}

/// What a miss costs beside its request: processor time, waits, interruptions, calls to the kernel.
fn contention(results: &TrialResults, scenario: Scenario, candidate: Candidate) -> Option<Figure> {
    let of = |pick: &dyn Fn(&PhaseStats) -> f64| results.median(scenario, candidate, scenario.work, pick);
    let counter = |stats: &PhaseStats, name: &str| stats.counters.get(name).copied().unwrap_or(f64::NAN);
    let per_miss = |name: &str| {
        let ratio = |stats: &PhaseStats| {
            // Without a cache of one's own every touch that the kernel counts as a fault is a miss.
            let misses = counter(stats, "misses") + stats.counters.get("ahead").copied().unwrap_or(0.0);
            counter(stats, name) / misses.max(1.0)
        };
        of(&ratio).unwrap_or(f64::NAN)
    };
    let name = format!("contention {}", line_name(scenario, candidate, scenario.work));
    let figure = Figure::new(name, of(&PhaseStats::cpu_ns_per_op)?, "ns", BetterDirection::Lower)
        .peer("waits", of(&|stats| stats.per_op(stats.voluntary_switches as f64))?)
        .peer("interruptions", of(&|stats| stats.per_op(stats.involuntary_switches as f64))?)
        .peer("major_faults", of(&|stats| stats.per_op(stats.major_faults as f64))?)
        .peer("minor_faults", of(&|stats| stats.per_op(stats.minor_faults as f64))?)
        .peer("own_waits_per_miss", per_miss("waits"))
        .peer("own_wait_per_miss_ns", per_miss("wait_ns"))
        .peer("evict_calls_per_miss", per_miss("evict_calls"));
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::super::trial_results::TrialResult;
    use super::super::trial_results::tests::trial;
    use super::*;
    use crate::experiment::tests;
    use crate::fastmap::FastmapArgs;

    fn report(results: &TrialResults) -> Report {
        let mut report = tests::report::<FastmapArgs>();
        add(results, &FastmapScale::new(&tests::parse::<FastmapArgs>("")), &mut report);
        report
    }

    fn named<'a>(report: &'a Report, name: &str) -> &'a Figure {
        let all = report.results.iter().chain(&report.info);
        all.into_iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure {name}"))
    }

    fn made_up() -> TrialResults {
        let mut results = TrialResults::default();
        for (work, threads, ours) in [("read", 1, 400), ("read", 16, 200), ("write", 16, 250)] {
            let scenario = micro_scenario(work, DeviceKind::Disk, threads);
            for (candidate, per_s) in [
                (Candidate::Mmap, 50),
                (Candidate::MmapRandom, 100),
                (Candidate::Guards, ours),
                (Candidate::GuardsAhead, 2 * ours),
            ] {
                results.trials.push(trial(scenario, candidate, 0, work, per_s));
            }
        }
        let scenario = Scenario { work: "ycsb", device: DeviceKind::Disk, threads: THREADS };
        for (candidate, per_s) in [(Candidate::Mmap, 100), (Candidate::MmapRandom, 90), (KV_OURS, 300)] {
            let phases = YcsbWorkload::ALL.map(|load| {
                let mut trials = trial(scenario, candidate, 0, load.name(), per_s).outcome.unwrap();
                trials.remove(0)
            });
            results.trials.push(TrialResult { scenario, candidate, round: 0, outcome: Ok(phases.into()) });
        }
        results
    }

    #[test]
    fn figures_are_ours_over_the_better_mmap_on_the_disk() {
        let report = report(&made_up());
        for (name, value, reached) in [
            ("rand_read_vs_mmap_t1", 8.0, Some(true)),
            ("rand_read_vs_mmap_t16", 2.0, None),
            ("rand_write_vs_mmap_t16", 2.5, Some(false)),
            ("ycsb_load_vs_mmap", 3.0, Some(true)),
            ("ycsb_c_vs_mmap", 3.0, None),
            ("ycsb_mean_vs_mmap", 3.0, Some(true)),
        ] {
            let figure = named(&report, name);
            assert_eq!((figure.value, figure.reached()), (value, reached), "{name}");
        }
        assert_eq!(named(&report, "read disk t16 guards").value, 200.0);
        assert_eq!(named(&report, "ycsb c mmap").value, 100.0);
        assert_eq!(
            named(&report, "contention write disk t16 guards").peer["own_waits_per_miss"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn a_bound_is_what_the_device_does_alone_over_the_better_mmap() {
        let mut results = made_up();
        let scenario = Scenario { work: "bounds", device: DeviceKind::Disk, threads: 1 };
        results.trials.push(trial(scenario, Candidate::Direct, 0, "read_depth_64", 1400));
        // An eighth of the data is in memory, so of 8 touches 7 take a request: 1600 a second, and the better mmap has 100.
        let report = report(&results);
        let figure = named(&report, "rand_read_vs_mmap_t1");
        assert_eq!(figure.bound.as_ref().map(|bound| bound.value), Some(16.0), "{figure:?}");
        assert_eq!(named(&report, "rand_read_vs_mmap_t16").bound, None);
    }

    #[test]
    fn a_load_that_only_reads_is_bounded_by_the_reads_that_ours_makes_for_an_operation() {
        let mut results = made_up();
        let phases =
            results.trials.iter_mut().filter(|trial| trial.scenario.work == "ycsb" && trial.candidate == KV_OURS);
        for stats in phases.flat_map(|trial| trial.outcome.as_mut().unwrap()) {
            stats.counters = [("misses".to_owned(), 100.0), ("ahead_reads".to_owned(), 50.0)].into();
        }
        let scenario = Scenario { work: "bounds", device: DeviceKind::Disk, threads: 1 };
        results.trials.push(trial(scenario, Candidate::Direct, 0, "read_depth_64", 1400));
        // 150 reads for 300 operations, so the disk has 2800 operations a second, and the better mmap 100.
        let report = report(&results);
        let bound = |name| named(&report, name).bound.as_ref().map(|bound| bound.value);
        assert_eq!((bound("ycsb_c_vs_mmap"), bound("ycsb_load_vs_mmap")), (Some(28.0), None));
    }

    #[test]
    fn what_was_not_run_is_said_and_has_no_value() {
        let report = report(&made_up());
        for name in ["bfs_guard_vs_mmap", "bfs_transparent_vs_mmap", "hit_cost_ns", "ycsb_c_vs_mmap_in_memory"] {
            let figure = named(&report, name);
            assert!(figure.value.is_nan() && figure.note.starts_with("not measured"), "{figure:?}");
        }
    }

    #[test]
    fn the_cost_of_a_hit_is_the_difference() {
        let scenario = Scenario { work: "hit", device: DeviceKind::Disk, threads: 1 };
        let stats = |name: &str, elapsed_s| PhaseStats {
            name: name.into(),
            ops: 1_000_000,
            elapsed_s,
            ..PhaseStats::default()
        };
        let phases = vec![stats("plain", 0.004), stats("guard", 0.016), stats("optimistic", 0.01)];
        let trials = vec![TrialResult { scenario, candidate: Candidate::Guards, round: 0, outcome: Ok(phases) }];
        let report = report(&TrialResults { trials });
        let figure = named(&report, "hit_cost_ns");
        assert_eq!((figure.value, figure.reached()), (12.0, Some(true)));
        assert_eq!(figure.peer["optimistic_ns"], 10.0);
    }

    #[test]
    fn a_failure_of_ours_is_the_reason() {
        let mut results = made_up();
        let scenario = micro_scenario("write", DeviceKind::Disk, 16);
        for trial in
            results.trials.iter_mut().filter(|trial| trial.scenario == scenario && trial.candidate == Candidate::Guards)
        {
            trial.outcome = Err("killed".into());
        }
        let report = report(&results);
        assert!(named(&report, "rand_write_vs_mmap_t16").note.contains("guards failed: killed"));
    }
}
