//! From trials to figures: those with goals, and a line for everything that was tried.
//!
//! Relies on [`Found`] for ratios. Figures with goals are those of the real disk; what the fast device says stands beside
//! them, for information.

use super::bounds::{REQUESTS, STEPS};
use super::candidate::Candidate;
use super::found::{Found, Task};
use super::hit::COLD;
use super::kv::ycsb::Load;
use super::scale::{Scale, THREADS};
use super::tally::Tally;
use super::testbed::Kind;
use crate::report::{Better, Figure, Report};
use crate::stats::Spread;

/// The pool's way in the key-value loads.
const KV_OURS: Candidate = Candidate::GuardsAhead;

/// Adds all figures of the parts that were wanted.
pub fn add(found: &Found, scale: &Scale, report: &mut Report) {
    if scale.wants("micro") {
        // In memory is the budget's part of the data.
        let missing = 1.0 - 1.0 / scale.factor as f64;
        report.results.extend(micro(found, Kind::Disk, "", missing));
        if found.tasks().iter().any(|task| task.device == Kind::Zram) {
            report
                .info
                .extend(micro(found, Kind::Zram, "_zram", missing).map(|figure| Figure { goal: None, ..figure }));
        }
    }
    if scale.wants("kv") {
        report.results.extend(key_values(found, "ycsb", ""));
        let in_memory = key_values(found, "ycsb_in_memory", "_in_memory");
        report.info.extend(in_memory.into_iter().map(|figure| Figure { goal: None, ..figure }));
    }
    if scale.wants("bfs") {
        report.results.extend(search(found));
    }
    if scale.wants("micro") {
        report.results.push(queue_depth(found));
    }
    if scale.wants("hit") {
        report.results.push(hit(found));
    }
    lines(found, scale, report);
}

fn micro_task(work: &'static str, device: Kind, threads: usize) -> Task {
    Task { work, device, threads }
}

fn micro(found: &Found, device: Kind, suffix: &str, missing: f64) -> [Figure; 3] {
    let figure = |name: &str, work, threads, ours| {
        let note = format!("{}, {} of a page that is mostly not in memory, uniform", device.name(), work);
        against_mmap(found, format!("{name}{suffix}"), micro_task(work, device, threads), ours, work, &note)
    };
    // A store also has the page written back that makes room for its own.
    let reads = |request, figure| bounded(found, device, request, missing, figure);
    let stores = |request, figure| bounded(found, device, request, 2.0 * missing, figure);
    [
        reads("read_depth_64", figure("rand_read_vs_mmap_t1", "read", 1, Candidate::GuardsAhead)).goal(3.0),
        reads("read_depth_16", figure("rand_read_vs_mmap_t16", "read", 16, Candidate::Guards)),
        stores("mixed_depth_64", figure("rand_write_vs_mmap_t16", "write", 16, Candidate::Guards)).goal(3.0),
    ]
}

/// `ours` over the better of Linux's two, with every candidate's operations a second.
fn against_mmap(found: &Found, name: String, task: Task, ours: Candidate, phase: &str, note: &str) -> Figure {
    let Some(ratio) = found.ratio(task, ours, phase) else {
        let peers = Candidate::PEERS.map(|peer| found.median(task, peer, phase, Tally::per_s));
        let missing = if peers.iter().all(Option::is_none) { Candidate::PEERS[0] } else { ours };
        return missing_figure(name, "x", Better::Higher, &found.reason(task, missing));
    };
    let mut figure = Figure::new(name, ratio.spread.median, "x", Better::Higher).spread(ratio.spread);
    for candidate in found.candidates(task) {
        if let Some(per_s) = found.median(task, candidate, phase, Tally::per_s) {
            figure = figure.peer(&format!("{}/s", candidate.name()), per_s);
        }
    }
    figure.note(format!("{} over {}; {note}", ours.name(), ratio.peer.name()))
}

/// The figure with its bound: what the device by itself does of the requests called `request`, when an operation takes
/// `each` of them on average, over the operations of the better mmap.
fn bounded(found: &Found, device: Kind, request: &str, each: f64, figure: Figure) -> Figure {
    let peers = Candidate::PEERS.iter().filter_map(|peer| figure.peer.get(&format!("{}/s", peer.name()))?.as_f64());
    let best = peers.fold(f64::NAN, f64::max);
    match bound(found, device, request, Tally::per_s) {
        Some(per_s) => {
            let name = format!("{} {request} by itself, {each:.2} requests an operation", device.name());
            figure.peer(&format!("device_{request}/s"), per_s).bound(name, per_s / each / best)
        }
        None => figure,
    }
}

fn bound(found: &Found, device: Kind, name: &str, pick: impl Fn(&Tally) -> f64) -> Option<f64> {
    found.median(Task { work: "bounds", device, threads: 1 }, Candidate::Direct, name, pick)
}

fn missing_figure(name: impl Into<String>, unit: &'static str, better: Better, reason: &str) -> Figure {
    Figure::new(name, f64::NAN, unit, better).note(format!("not measured: {reason}"))
}

fn key_values(found: &Found, work: &'static str, suffix: &str) -> Vec<Figure> {
    let task = Task { work, device: Kind::Disk, threads: THREADS };
    let figure = |load: Load| {
        let name = format!("ycsb_{}_vs_mmap{suffix}", load.name());
        let note = format!("{} operations, {THREADS} threads, the same tree on all but lmdb", load.name());
        against_mmap(found, name, task, KV_OURS, load.name(), &note)
    };
    vec![figure(Load::Fill).goal(3.0), figure(Load::C), mean(found, task, suffix).goal(2.5)]
}

/// The mean of all loads' ratios.
fn mean(found: &Found, task: Task, suffix: &str) -> Figure {
    let name = format!("ycsb_mean_vs_mmap{suffix}");
    let ratio = |load: Load| Some((load, found.ratio(task, KV_OURS, load.name())?));
    let ratios: Vec<_> = Load::ALL.into_iter().filter_map(ratio).collect();
    if ratios.len() < Load::ALL.len() {
        return missing_figure(name, "x", Better::Higher, &found.reason(task, KV_OURS));
    }
    let mean_of =
        |pick: fn(Spread) -> f64| ratios.iter().map(|(_, ratio)| pick(ratio.spread)).sum::<f64>() / ratios.len() as f64;
    let spread = Spread {
        median: mean_of(|spread| spread.median),
        least: mean_of(|spread| spread.least),
        most: mean_of(|spread| spread.most),
    };
    let mut figure = Figure::new(name, spread.median, "x", Better::Higher).spread(spread);
    for (load, ratio) in &ratios {
        figure = figure.peer(load.name(), ratio.spread.median);
    }
    figure.note(format!("mean over the loads of {} over the better mmap", KV_OURS.name()))
}

fn search(found: &Found) -> [Figure; 2] {
    let task = Task { work: "bfs", device: Kind::Disk, threads: THREADS };
    let note = "edges looked at in a second, R-MAT, four times the memory";
    let figure = |name: &str, ours| {
        let figure = against_mmap(found, name.into(), task, ours, "bfs", note);
        match bound(found, Kind::Disk, "read_depth_64", Tally::per_s) {
            Some(per_s) => figure.peer("device_read_depth_64/s", per_s),
            None => figure,
        }
    };
    [
        figure("bfs_guard_vs_mmap", Candidate::GuardsAhead).goal(3.0),
        figure("bfs_transparent_vs_mmap", Candidate::Transparent).goal(1.2),
    ]
}

fn queue_depth(found: &Found) -> Figure {
    let name = "single_thread_queue_depth";
    let task = micro_task("read", Kind::Disk, 1);
    let depth = |candidate| found.median(task, candidate, "read", |tally| tally.queue_depth.unwrap_or(f64::NAN));
    let Some(value) = depth(Candidate::GuardsAhead) else {
        return missing_figure(name, "", Better::Higher, &found.reason(task, Candidate::GuardsAhead));
    };
    let mut figure = Figure::new(name, value, "", Better::Higher);
    for candidate in found.candidates(task) {
        figure = figure.peer(candidate.name(), depth(candidate).unwrap_or(f64::NAN));
    }
    figure.note("requests in the disk on average, by its own account, one thread with 64 known future pages; peers without such knowledge but mmap_ahead")
}

fn hit(found: &Found) -> Figure {
    let task = Task { work: "hit", device: Kind::Disk, threads: 1 };
    let each_ns = |tally: &Tally| tally.elapsed_s * 1e9 / tally.ops.max(1) as f64;
    let of = |way: &str| found.median(task, Candidate::Guards, way, each_ns);
    let figure = |value| Figure::new("hit_cost_ns", value, "ns", Better::Lower).goal(15.0);
    let (Some(plain), Some(guard)) = (of("plain"), of("guard")) else {
        let reason = found.reason(task, Candidate::Guards);
        return figure(f64::NAN).note(format!("not measured: {reason}"));
    };
    let mut figure = figure(guard - plain);
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
fn bounds(found: &Found, device: Kind) -> Vec<Figure> {
    let task = Task { work: "bounds", device, threads: 1 };
    let request = |(name, ..): (&'static str, usize, u64)| {
        let figure = Figure::new(
            format!("bound {} {name}", device.name()),
            found.median(task, Candidate::Direct, name, Tally::per_s)?,
            "1/s",
            Better::Higher,
        );
        let depth = found.median(task, Candidate::Direct, name, |tally| tally.queue_depth.unwrap_or(f64::NAN))?;
        let cpu_ns = found.median(task, Candidate::Direct, name, Tally::cpu_ns_per_op)?;
        Some(figure.peer("queue_depth", depth).peer("cpu_ns", cpu_ns))
    };
    let step = |name: &str| {
        let each_ns = |tally: &Tally| tally.per_op(tally.elapsed_s * 1e9);
        let value = found.median(task, Candidate::Direct, name, each_ns)?;
        Some(Figure::new(format!("bound {name}"), value, "ns", Better::Lower))
    };
    let mut figures: Vec<Figure> = REQUESTS.into_iter().filter_map(request).collect();
    // Steps have nothing to do with the device.
    if device == Kind::Disk {
        figures.extend(STEPS.into_iter().filter_map(step));
    }
    figures
}

fn lines(found: &Found, scale: &Scale, report: &mut Report) {
    report.info.extend([Kind::Disk, Kind::Zram].into_iter().flat_map(|device| bounds(found, device)));
    for task in found.tasks().into_iter().filter(|task| !matches!(task.work, "hit" | "bounds")) {
        for candidate in found.candidates(task) {
            let phases = phases(found, task, candidate);
            if phases.is_empty() {
                let reason = found.reason(task, candidate);
                report.info.push(missing_figure(line_name(task, candidate, task.work), "1/s", Better::Higher, &reason));
            }
            report.info.extend(phases.iter().map(|phase| line(found, task, candidate, phase)));
        }
    }
    if scale.wants("contention") {
        let is_uniform = |task: &Task| matches!(task.work, "read" | "write");
        for task in found.tasks().into_iter().filter(is_uniform) {
            for candidate in found.candidates(task) {
                report.info.extend(contention(found, task, candidate));
            }
        }
    }
}

/// Phases that `candidate` went through, in order.
fn phases(found: &Found, task: Task, candidate: Candidate) -> Vec<String> {
    let trials = found.trials.iter().filter(|trial| trial.task == task && trial.candidate == candidate);
    let outcome = trials.filter_map(|trial| trial.outcome.as_ref().ok()).next();
    outcome.into_iter().flatten().map(|tally| tally.name.clone()).collect()
}

fn line_name(task: Task, candidate: Candidate, phase: &str) -> String {
    match task.work {
        "bfs" => format!("bfs {}", candidate.name()),
        "ycsb" | "ycsb_in_memory" => format!("{} {phase} {}", task.work, candidate.name()),
        work => format!("{work} {} t{} {}", task.device.name(), task.threads, candidate.name()),
    }
}

fn line(found: &Found, task: Task, candidate: Candidate, phase: &str) -> Figure {
    let of = |pick: &dyn Fn(&Tally) -> f64| found.median(task, candidate, phase, pick).unwrap_or(f64::NAN);
    let values: Vec<f64> = found.tallies(task, candidate, phase).into_iter().map(Tally::per_s).collect();
    let latency = |index: usize| {
        let value = of(&|tally| tally.latency_ns[index] as f64);
        // A search has no operations whose latency a user waits for.
        if value > 0.0 { value } else { f64::NAN }
    };
    let figure = Figure::new(line_name(task, candidate, phase), of(&Tally::per_s), "1/s", Better::Higher)
        .peer("p50_ns", latency(0))
        .peer("p99_ns", latency(1))
        .peer("p999_ns", latency(2))
        .peer("cpu_ns", of(&Tally::cpu_ns_per_op))
        .peer("queue_depth", of(&|tally| tally.queue_depth.unwrap_or(f64::NAN)))
        .peer("peak_mib", of(&|tally| tally.counters.get("peak_mib").copied().unwrap_or(f64::NAN)));
    match Spread::of(&values) {
        Some(spread) if values.len() > 1 => figure.spread(spread),
        _ => figure,
    }
}

/// What a miss costs beside its request: processor time, waits, interruptions, calls to the kernel.
fn contention(found: &Found, task: Task, candidate: Candidate) -> Option<Figure> {
    let of = |pick: &dyn Fn(&Tally) -> f64| found.median(task, candidate, task.work, pick);
    let counter = |tally: &Tally, name: &str| tally.counters.get(name).copied().unwrap_or(f64::NAN);
    let per_miss = |name: &str| {
        let ratio = |tally: &Tally| {
            // Without a cache of one's own every touch that the kernel counts as a fault is a miss.
            let misses = counter(tally, "misses") + tally.counters.get("ahead").copied().unwrap_or(0.0);
            counter(tally, name) / misses.max(1.0)
        };
        of(&ratio).unwrap_or(f64::NAN)
    };
    let name = format!("contention {}", line_name(task, candidate, task.work));
    let figure = Figure::new(name, of(&Tally::cpu_ns_per_op)?, "ns", Better::Lower)
        .peer("waits", of(&|tally| tally.per_op(tally.voluntary_switches as f64))?)
        .peer("interruptions", of(&|tally| tally.per_op(tally.involuntary_switches as f64))?)
        .peer("major_faults", of(&|tally| tally.per_op(tally.major_faults as f64))?)
        .peer("minor_faults", of(&|tally| tally.per_op(tally.minor_faults as f64))?)
        .peer("own_waits_per_miss", per_miss("waits"))
        .peer("own_wait_per_miss_ns", per_miss("wait_ns"))
        .peer("evict_calls_per_miss", per_miss("evict_calls"));
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::super::found::Trial;
    use super::super::found::tests::trial;
    use super::*;
    use crate::experiment::tests;
    use crate::fastmap::Args;

    fn report(found: &Found) -> Report {
        let mut report = tests::report::<Args>();
        add(found, &Scale::new(&tests::parse::<Args>("")), &mut report);
        report
    }

    fn named<'a>(report: &'a Report, name: &str) -> &'a Figure {
        let all = report.results.iter().chain(&report.info);
        all.into_iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure {name}"))
    }

    fn made_up() -> Found {
        let mut found = Found::default();
        for (work, threads, ours) in [("read", 1, 400), ("read", 16, 200), ("write", 16, 250)] {
            let task = micro_task(work, Kind::Disk, threads);
            for (candidate, per_s) in [
                (Candidate::Mmap, 50),
                (Candidate::MmapRandom, 100),
                (Candidate::Guards, ours),
                (Candidate::GuardsAhead, 2 * ours),
            ] {
                found.trials.push(trial(task, candidate, 0, work, per_s));
            }
        }
        let task = Task { work: "ycsb", device: Kind::Disk, threads: THREADS };
        for (candidate, per_s) in [(Candidate::Mmap, 100), (Candidate::MmapRandom, 90), (KV_OURS, 300)] {
            let tallies = Load::ALL.map(|load| {
                let mut trials = trial(task, candidate, 0, load.name(), per_s).outcome.unwrap();
                trials.remove(0)
            });
            found.trials.push(Trial { task, candidate, round: 0, outcome: Ok(tallies.into()) });
        }
        found
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
        let mut found = made_up();
        let task = Task { work: "bounds", device: Kind::Disk, threads: 1 };
        found.trials.push(trial(task, Candidate::Direct, 0, "read_depth_64", 1400));
        // An eighth of the data is in memory, so of 8 touches 7 take a request: 1600 a second, and the better mmap has 100.
        let report = report(&found);
        let figure = named(&report, "rand_read_vs_mmap_t1");
        assert_eq!(figure.bound.as_ref().map(|bound| bound.value), Some(16.0), "{figure:?}");
        assert_eq!(named(&report, "rand_read_vs_mmap_t16").bound, None);
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
        let task = Task { work: "hit", device: Kind::Disk, threads: 1 };
        let tally = |name: &str, elapsed_s| Tally { name: name.into(), ops: 1_000_000, elapsed_s, ..Tally::default() };
        let tallies = vec![tally("plain", 0.004), tally("guard", 0.016), tally("optimistic", 0.01)];
        let trials = vec![Trial { task, candidate: Candidate::Guards, round: 0, outcome: Ok(tallies) }];
        let report = report(&Found { trials });
        let figure = named(&report, "hit_cost_ns");
        assert_eq!((figure.value, figure.reached()), (12.0, Some(true)));
        assert_eq!(figure.peer["optimistic_ns"], 10.0);
    }

    #[test]
    fn a_failure_of_ours_is_the_reason() {
        let mut found = made_up();
        let task = micro_task("write", Kind::Disk, 16);
        for trial in found.trials.iter_mut().filter(|trial| trial.task == task && trial.candidate == Candidate::Guards)
        {
            trial.outcome = Err("killed".into());
        }
        let report = report(&found);
        assert!(named(&report, "rand_write_vs_mmap_t16").note.contains("guards failed: killed"));
    }
}
