//! From trials to figures: those with goals, and a line for everything that was tried.
//!
//! Relies on [`TrialResults`] for ratios. Goals are of the most clients. A bound of a ratio is what would be if all of our operations
//! took no time but that of their reads of the disk, as fast as the disk is by itself.

use super::candidate::Candidate;
use super::comparison::Comparison;
use super::counters;
use super::results::{ResultCell, TrialResults};
use super::scale::DbioScale;
use super::trial::{LOADS, phase_name};
use super::values::ValueKind;
use crate::fastmap::kv::ycsb::YcsbWorkload;
use crate::fastmap::phase_stats::PhaseStats;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

const OURS: Candidate = Candidate::TwoTiers;
const PEERS: [Candidate; 2] = [Candidate::Buffered, Candidate::Direct];
const MIB: f64 = (1 << 20) as f64;

/// Adds all figures.
pub fn add(results: &TrialResults, scale: &DbioScale, report: &mut Report) {
    for load in LOADS {
        for peer in PEERS {
            report.results.push(same_pool(results, scale, load, peer));
            report.results.push(best_vs_best(results, scale, load, peer));
        }
    }
    report.results.push(double_cached(results, scale));
    report.results.push(small_data(results, scale));
    report.results.push(auto_split(results, scale));
    report.results.push(vs_rocksdb(results, scale, YcsbWorkload::B).goal(1.5));
    report.info.push(vs_rocksdb(results, scale, YcsbWorkload::A));
    report.info.extend(LOADS.map(|load| vs_lmdb(results, scale, load)));
    report.info.extend(LOADS.map(|load| vs_page_cache_tier(results, scale, load)));
    for &clients in scale.clients.iter().filter(|clients| **clients != scale.goal_clients()) {
        report.info.extend(with_clients(results, scale, clients));
    }
    for &data in &scale.data {
        report.info.extend(scale.clients.iter().map(|&clients| disk(results, data, clients)));
    }
    for cell in results.cells() {
        for (load, &clients) in
            LOADS.into_iter().flat_map(|load| scale.clients.iter().map(move |clients| (load, clients)))
        {
            let all = Candidate::EVERY.into_iter().filter(|&candidate| results.has(cell, candidate));
            report.info.extend(all.map(|candidate| line(results, scale, cell, candidate, (load, clients))));
        }
    }
}

/// Reads of the disk for each operation, below which the disk bounds nothing.
pub(super) const LEAST_READS: f64 = 1e-4;

fn missing(name: String, unit: &'static str, better: BetterDirection, reason: &str) -> Figure {
    Figure::new(name, f64::NAN, unit, better).note(format!("not measured: {reason}"))
}

/// Goals: those of the pool as large as the peer's, and of the best against the best. The latter are lower where no compression helps the
/// values.
pub(super) fn goals(load: YcsbWorkload, peer: Candidate, values: ValueKind) -> (Option<f64>, f64) {
    match (load, peer, values) {
        (YcsbWorkload::B, Candidate::Buffered, ValueKind::Random) => (Some(4.35), 1.33),
        (YcsbWorkload::B, Candidate::Buffered, ValueKind::Printable | ValueKind::Half) => (Some(4.35), 1.5),
        (YcsbWorkload::B, _, ValueKind::Random) => (Some(11.65), 1.44),
        (YcsbWorkload::B, _, ValueKind::Printable | ValueKind::Half) => (Some(11.65), 1.5),
        (_, _, _) => (None, 1.2),
    }
}

fn same_pool(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload, peer: Candidate) -> Figure {
    let name = format!("ycsb_{}_same_pool_vs_{}", load.name(), peer.name());
    let (data, clients) = (scale.goal_data(), scale.goal_clients());
    let found = results.same_pool([OURS, peer], data, &phase_name(load, clients));
    let note = "the size of the pool at which it is most";
    let figure = ratio(results, name, found, (OURS, (data, load, clients, peer)), note);
    Figure { goal: goals(load, peer, scale.values).0, ..figure }
}

fn best_vs_best(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload, peer: Candidate) -> Figure {
    let name = format!("ycsb_{}_best_vs_best_{}", load.name(), peer.name());
    let (data, clients) = (scale.goal_data(), scale.goal_clients());
    let found = results.best_vs_best(OURS, &[peer], data, &phase_name(load, clients));
    let note = "each with the size of the pool that suits it";
    ratio(results, name, found, (OURS, (data, load, clients, peer)), note).goal(goals(load, peer, scale.values).1)
}

/// The ratio with what is behind it, and with its bound.
fn ratio(
    results: &TrialResults,
    name: String,
    found: Option<Comparison>,
    (ours, (data, load, clients, peer)): (Candidate, (f64, YcsbWorkload, usize, Candidate)),
    note: &str,
) -> Figure {
    let Some(Comparison { spread, pool_twelfths }) = found else {
        let is_ours =
            results.cells().iter().all(|&cell| results.phases(cell, ours, &phase_name(load, clients)).is_empty());
        let reason = results.reason(if is_ours { ours } else { peer }, data);
        return missing(name, "x", BetterDirection::Higher, &reason);
    };
    let phase = phase_name(load, clients);
    let of = |candidate, pool_twelfths, pick: fn(&PhaseStats) -> f64| {
        results.median(ResultCell { data, pool_twelfths }, candidate, &phase, pick).unwrap_or(f64::NAN)
    };
    let peer_per_s = of(peer, pool_twelfths[1], PhaseStats::per_s);
    let mut figure = Figure::new(name, spread.median, "x", BetterDirection::Higher)
        .spread(spread)
        .peer(&format!("{}/s", ours.name()), of(ours, pool_twelfths[0], PhaseStats::per_s))
        .peer(&format!("{}/s", peer.name()), peer_per_s)
        .peer("pool_twelfths", pool_twelfths[0] as f64)
        .peer(&format!("pool_twelfths_{}", peer.name()), pool_twelfths[1] as f64)
        .note(format!("data {data} of the memory, {clients} clients; {note}"));
    if let Some(Spread { median: disk_per_s, .. }) = results.disk_reads_per_s(data, clients) {
        figure = figure.peer("disk_reads/s", disk_per_s);
        let each = of(ours, pool_twelfths[0], |stats| stats.per_op(counters::disk_reads(stats)));
        // Without reads the disk bounds nothing.
        if each > LEAST_READS {
            let name = format!("random 4 KiB direct reads by themselves, {each:.3} for each of our operations");
            figure = figure.bound(name, disk_per_s / each / peer_per_s);
        }
    }
    figure
}

/// Bytes held twice over the memory: the size of the pool at which it is most.
fn double_cached(results: &TrialResults, scale: &DbioScale) -> Figure {
    let name = "double_cached_share".to_owned();
    let (data, phase) = (scale.goal_data(), phase_name(YcsbWorkload::B, scale.goal_clients()));
    let memory = scale.limit_bytes() as f64;
    let most = |candidate, pick: fn([f64; 2]) -> f64| {
        let of_cell =
            |cell| results.median(cell, candidate, &phase, |stats| pick(counters::held_twice(stats)) / memory);
        let all = results.cells().into_iter().filter(|cell| cell.data == data).filter_map(of_cell);
        all.filter(|share| !share.is_nan()).reduce(f64::max)
    };
    let Some(share) = most(OURS, |[cached, tier]| cached + tier) else {
        let reason = "this kernel doesn't say what its page cache holds, or two_tiers failed";
        return missing(name, "of 1", BetterDirection::Lower, reason).goal(0.02);
    };
    let mut figure = Figure::new(name, share, "of 1", BetterDirection::Lower).goal(0.02);
    for (name, candidate, pick) in [
        ("two_tiers_in_page_cache", OURS, (|[cached, _]| cached) as fn([f64; 2]) -> f64),
        ("two_tiers_in_second_tier", OURS, |[_, tier]| tier),
        ("buffered_in_page_cache", Candidate::Buffered, |[cached, _]| cached),
        ("direct_in_page_cache", Candidate::Direct, |[cached, _]| cached),
    ] {
        figure = figure.peer(name, most(candidate, pick).unwrap_or(f64::NAN));
    }
    let clients = scale.goal_clients();
    figure.note(format!(
        "bytes in the pool and in another layer over all memory, data {data} of the memory, YCSB B, {clients} clients; the size of the \
         pool at which it is most"
    ))
}

/// What a second tier costs where none is needed.
fn small_data(results: &TrialResults, scale: &DbioScale) -> Figure {
    let name = "small_data_penalty".to_owned();
    let Some(data) = scale.small_data() else {
        return missing(name, "of 1", BetterDirection::Lower, "no data of half of the memory or less was asked for")
            .goal(0.02);
    };
    let clients = scale.goal_clients();
    let phase = phase_name(YcsbWorkload::B, clients);
    let found = results.best_vs_best(OURS, &PEERS, data, &phase);
    let Some(Comparison { spread, pool_twelfths }) = found else {
        return missing(name, "of 1", BetterDirection::Lower, &results.reason(OURS, data)).goal(0.02);
    };
    let phase = phase.as_str();
    let tried = results.cells().into_iter().filter(|cell| cell.data == data).flat_map(|cell| {
        PEERS.into_iter().chain([OURS]).filter_map(move |candidate| {
            results.median(cell, candidate, phase, counters::read_before).filter(|share| !share.is_nan())
        })
    });
    let read_before = tried.reduce(f64::min);
    let penalty = Spread { median: 1.0 - spread.median, least: 1.0 - spread.most, most: 1.0 - spread.least };
    Figure::new(name, penalty.median, "of 1", BetterDirection::Lower)
        .goal(0.02)
        .spread(penalty)
        .peer("pool_twelfths", pool_twelfths[0] as f64)
        .peer("pool_twelfths_others", pool_twelfths[1] as f64)
        .peer("read_before_of_1", read_before.unwrap_or(f64::NAN))
        .note(format!(
            "what two tiers lose against the better of the others, data {data} of the memory, YCSB B, {clients} clients, each with the \
             size of the pool that suits it; in every way the records were read once before, for a minute at most (`read_before_of_1`)"
        ))
}

/// A pool that divides the memory by itself over the best of all divisions that were tried.
fn auto_split(results: &TrialResults, scale: &DbioScale) -> Figure {
    let (data, clients) = (scale.goal_data(), scale.goal_clients());
    let phase = phase_name(YcsbWorkload::B, clients);
    let found = results.best_vs_best(Candidate::AutoSplit, &[OURS], data, &phase);
    let note = "the pool divides seven eighths of the memory by itself, YCSB B";
    let of = (data, YcsbWorkload::B, clients, OURS);
    ratio(results, "auto_split_vs_best_swept".into(), found, (Candidate::AutoSplit, of), note).goal(0.95)
}

/// Our best over RocksDB's, each with the size of its cache and the way of I/O that suit it.
fn vs_rocksdb(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload) -> Figure {
    let (data, clients) = (scale.goal_data(), scale.goal_clients());
    let phase = phase_name(load, clients);
    // The peer that the figure names is the one that did more.
    let best = |peer: Candidate| results.best_vs_best(OURS, &[peer], data, &phase).map(|found| found.spread.median);
    let [direct, buffered] = Candidate::ROCKSDB.map(best);
    let peer = if direct.unwrap_or(f64::INFINITY) <= buffered.unwrap_or(f64::INFINITY) {
        Candidate::RocksdbDirect
    } else {
        Candidate::RocksdbBuffered
    };
    let found = results.best_vs_best(OURS, &[peer], data, &phase);
    let name = format!("ycsb_{}_vs_rocksdb", load.name());
    ratio(results, name, found, (OURS, (data, load, clients, peer)), "RocksDB in the way that suits it")
}

fn vs_lmdb(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload) -> Figure {
    let (data, clients, peer) = (scale.goal_data(), scale.goal_clients(), Candidate::Lmdb);
    let found = results.best_vs_best(OURS, &[peer], data, &phase_name(load, clients));
    let name = format!("ycsb_{}_vs_lmdb", load.name());
    ratio(results, name, found, (OURS, (data, load, clients, peer)), "LMDB has no cache but the page cache")
}

/// The pool's own second tier over the page cache as one, which takes only dirty victims: the better of the two is the default.
fn vs_page_cache_tier(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload) -> Figure {
    let (data, clients, peer) = (scale.goal_data(), scale.goal_clients(), Candidate::PageCacheTier);
    let found = results.best_vs_best(OURS, &[peer], data, &phase_name(load, clients));
    let name = format!("ycsb_{}_best_vs_best_page_cache_tier", load.name());
    let note = "the page cache as the second tier takes only dirty victims";
    ratio(results, name, found, (OURS, (data, load, clients, peer)), note)
}

/// The ratios of fewer clients, without goals.
fn with_clients(results: &TrialResults, scale: &DbioScale, clients: usize) -> Vec<Figure> {
    let fewer = DbioScale { clients: vec![clients], ..scale.clone() };
    let pairs = LOADS.into_iter().flat_map(|load| PEERS.map(|peer| (load, peer)));
    let figures = pairs
        .flat_map(|(load, peer)| [same_pool(results, &fewer, load, peer), best_vs_best(results, &fewer, load, peer)]);
    figures.map(|figure| Figure { name: format!("{}_c{clients}", figure.name), goal: None, ..figure }).collect()
}

fn disk(results: &TrialResults, data: f64, clients: usize) -> Figure {
    let name = format!("bound disk random reads data {data} c{clients}");
    match results.disk_reads_per_s(data, clients) {
        Some(spread) => Figure::new(name, spread.median, "1/s", BetterDirection::Higher).spread(spread),
        None => missing(name, "1/s", BetterDirection::Higher, "reading the disk by itself failed"),
    }
}

/// A name, and what it says of a phase.
type Fact<'a> = (&'static str, &'a dyn Fn(&PhaseStats) -> f64);

/// What a candidate did under a load.
fn line(
    results: &TrialResults,
    scale: &DbioScale,
    cell: ResultCell,
    candidate: Candidate,
    (load, clients): (YcsbWorkload, usize),
) -> Figure {
    let ResultCell { data, pool_twelfths } = cell;
    let name = format!("{} data {data} pool {pool_twelfths}/12 c{clients} {}", load.name(), candidate.name());
    let phase = phase_name(load, clients);
    let of = |pick: &dyn Fn(&PhaseStats) -> f64| results.median(cell, candidate, &phase, pick);
    let Some(per_s) = of(&PhaseStats::per_s) else {
        return missing(name, "1/s", BetterDirection::Higher, &results.reason(candidate, data));
    };
    let mib =
        |name: &'static str| move |stats: &PhaseStats| stats.counters.get(name).copied().unwrap_or(f64::NAN) / MIB;
    let (pool_mib, tier_mib) = (mib("pool_bytes"), mib("tier_resident_bytes"));
    let facts: [Fact<'_>; 9] = [
        ("pool_hit_ratio", &counters::pool_hit_ratio),
        ("second_hit_ratio", &counters::second_hit_ratio),
        ("disk_reads_per_op", &|stats| stats.per_op(counters::disk_reads(stats))),
        ("disk_reads/s", &|stats| counters::disk_reads(stats) / stats.elapsed_s),
        ("held_twice_mib", &|stats| counters::held_twice(stats).iter().sum::<f64>() / MIB),
        ("pool_mib", &pool_mib),
        ("tier_mib", &tier_mib),
        ("p99_us", &|stats| stats.latency_ns[1] as f64 / 1e3),
        ("cpu_us_per_op", &|stats| stats.cpu_ns_per_op() / 1e3),
    ];
    let mut figure = Figure::new(name, per_s, "1/s", BetterDirection::Higher);
    for (name, pick) in facts {
        figure = figure.peer(name, of(pick).unwrap_or(f64::NAN));
    }
    match of(&|stats| stats.counters.get("peak_mib").copied().unwrap_or(f64::NAN)).filter(|mib| !mib.is_nan()) {
        Some(peak_mib) => figure.peer("peak_mib", peak_mib).peer("memory_mib", scale.memory_mib as f64),
        None => figure,
    }
}

#[cfg(test)]
mod tests {
    use super::super::DbioArgs;
    use super::super::counters::tests::phase;
    use super::super::results::{BoundResult, TrialResult};
    use super::*;
    use crate::experiment::tests::{parse, report};

    /// Two sizes of the pool, two of the data; `fails` is a candidate that does nothing.
    fn reported(fails: Option<Candidate>) -> Report {
        reported_with("", fails)
    }

    /// The same with `more` arguments.
    fn reported_with(more: &str, fails: Option<Candidate>) -> Report {
        let args: DbioArgs = parse(&format!("--memory 100 --data 0.33,0.83 --pools 2,6 --clients 1,8 {more}"));
        let scale = DbioScale::new(&args);
        let mut results = TrialResults::default();
        for (data, pool_twelfths) in [(0.33, 2), (0.33, 6), (0.83, 2), (0.83, 6)] {
            let cell = ResultCell { data, pool_twelfths };
            for (candidate, per_s) in [
                (Candidate::Buffered, 100.0),
                (Candidate::Direct, 50.0),
                (OURS, 600.0),
                (Candidate::PageCacheTier, 80.0),
            ] {
                // With small data and a large pool all do the same.
                let per_s = if data < 0.5 && pool_twelfths == 6 { 1000.0 - per_s / 100.0 } else { per_s };
                let counters = [
                    ("disk_read_bytes", per_s / 2.0 * 4096.0),
                    ("cached_twice_bytes", if candidate == Candidate::Buffered { 20.0 * MIB } else { 0.0 }),
                    ("tier_twice_bytes", if candidate == OURS { MIB } else { 0.0 }),
                ];
                let phases = ["b_c1", "b_c8", "a_c1", "a_c8"].map(|name| phase(name, per_s, &counters));
                let outcome = if fails == Some(candidate) { Err("killed".into()) } else { Ok(phases.into()) };
                results.trials.push(TrialResult { cell, candidate, round: 0, outcome });
            }
            let auto = ["b_c1", "b_c8", "a_c1", "a_c8"].map(|name| phase(name, 570.0, &[]));
            let cell = ResultCell { data, pool_twelfths: 0 };
            let (candidate, outcome) = (Candidate::AutoSplit, Ok(auto.into()));
            results.trials.push(TrialResult { cell, candidate, round: 0, outcome });
            let bound = ["disk_reads_c1", "disk_reads_c8"].map(|name| phase(name, 900.0, &[]));
            results.bounds.push(BoundResult { data, round: 0, outcome: Ok(bound.into()) });
        }
        let mut report = report::<DbioArgs>();
        add(&results, &scale, &mut report);
        report
    }

    fn named<'a>(report: &'a Report, name: &str) -> &'a Figure {
        let mut all = report.results.iter().chain(&report.info);
        all.find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name} is missing"))
    }

    #[test]
    fn ratios_stand_beside_goal_and_bound() {
        let report = reported(None);
        for (name, value, reached) in [
            ("ycsb_b_same_pool_vs_buffered", 6.0, Some(true)),
            ("ycsb_b_same_pool_vs_direct", 12.0, Some(true)),
            ("ycsb_b_best_vs_best_buffered", 6.0, Some(true)),
            ("ycsb_b_best_vs_best_direct", 12.0, Some(true)),
            ("ycsb_a_same_pool_vs_buffered", 6.0, None),
            ("ycsb_a_best_vs_best_direct", 12.0, Some(true)),
            ("double_cached_share", 0.01, Some(true)),
            ("auto_split_vs_best_swept", 0.95, Some(true)),
            ("ycsb_a_best_vs_best_page_cache_tier", 7.5, None),
            ("b data 0.83 pool 0/12 c8 auto_split", 570.0, None),
            ("ycsb_b_same_pool_vs_buffered_c1", 6.0, None),
            ("bound disk random reads data 0.83 c8", 900.0, None),
            ("b data 0.83 pool 6/12 c8 two_tiers", 600.0, None),
        ] {
            let figure = named(&report, name);
            assert_eq!((figure.value, figure.reached()), (value, reached), "{name}");
        }
        // Half a read for each operation, 900 reads a second, and the peer does 100.
        let same = named(&report, "ycsb_b_same_pool_vs_buffered");
        assert_eq!(same.bound.as_ref().map(|bound| bound.value), Some(18.0));
        assert_eq!(named(&report, "double_cached_share").peer["buffered_in_page_cache"], 0.2);
    }

    #[test]
    fn where_no_compression_helps_the_values_less_is_asked_for() {
        let goals = |more: &str| {
            let report = reported_with(more, None);
            ["b_best_vs_best_buffered", "b_best_vs_best_direct", "a_best_vs_best_buffered", "b_same_pool_vs_direct"]
                .map(|name| named(&report, &format!("ycsb_{name}")).goal.unwrap())
        };
        assert_eq!(goals(""), [1.5, 1.5, 1.2, 11.65]);
        assert_eq!(goals("--values half"), [1.5, 1.5, 1.2, 11.65]);
        assert_eq!(goals("--values random"), [1.33, 1.44, 1.2, 11.65]);
    }

    #[test]
    fn what_misses_its_goal_is_told() {
        let mut report = reported(None);
        for (name, value) in [
            ("ycsb_b_best_vs_best_buffered", 1.49),
            ("ycsb_a_best_vs_best_direct", 1.19),
            ("auto_split_vs_best_swept", 0.94),
            ("double_cached_share", 0.03),
            ("small_data_penalty", 0.03),
        ] {
            let figure = report.results.iter_mut().find(|figure| figure.name == name).unwrap();
            figure.value = value;
            assert_eq!(figure.reached(), Some(false), "{name}");
        }
    }

    #[test]
    fn no_figure_is_told_twice() {
        let report = reported(None);
        let mut names: Vec<&str> =
            report.results.iter().chain(&report.info).map(|figure| figure.name.as_str()).collect();
        let told = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), told);
    }

    #[test]
    fn the_penalty_is_against_the_better_of_the_others_where_all_is_in_memory() {
        let figure = reported(None).results.into_iter().find(|figure| figure.name == "small_data_penalty").unwrap();
        assert!((figure.value - (1.0 - 994.0 / 999.0)).abs() < 1e-5, "{figure:?}");
        assert_eq!(figure.reached(), Some(true));
    }

    #[test]
    fn a_candidate_that_failed_is_the_reason_and_every_name_is_there() {
        let report = reported(Some(OURS));
        for figure in &report.results {
            assert!(figure.value.is_nan() && figure.note.contains("not measured"), "{figure:?}");
        }
        assert!(named(&report, "ycsb_b_same_pool_vs_direct").note.contains("two_tiers failed: killed"));
        let report = reported(Some(Candidate::Direct));
        assert!(named(&report, "ycsb_b_same_pool_vs_direct").note.contains("direct failed: killed"));
        assert_eq!(named(&report, "ycsb_b_same_pool_vs_buffered").value, 6.0);
    }
}
