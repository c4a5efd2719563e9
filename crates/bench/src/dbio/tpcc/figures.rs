//! Figures of TPC-C on SQLite: two with Quire over SQLite's own VFS, a line for each trial, and a chart.
//!
//! Relies on [`TpccResults`] for ratios.

use super::load::phase_name;
use super::results::TpccResults;
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Mark, Series};
use crate::dbio::comparison::Comparison;
use crate::dbio::counters;
use crate::dbio::scale::DbioScale;
use crate::dbio::sqlite_spec::SqliteCandidate;
use crate::fastmap::phase_stats::PhaseStats;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

const MIB: f64 = (1 << 20) as f64;
/// Of new orders a second.
const PER_MINUTE: f64 = 60.0;
/// Times the throughput of SQLite as it is that ours should have.
const STOCK_GOAL: f64 = 1.15;

/// Adds all figures.
pub fn add(results: &TpccResults, scale: &DbioScale, report: &mut Report) {
    if let Some((bytes, warehouses)) = results.database {
        report.scale.insert("tpcc_database_mib".into(), (bytes as f64 / MIB).round().into());
        report.scale.insert("tpcc_warehouses".into(), warehouses.into());
    }
    report.results.push(ratio(results, scale, "tpcc_best_vs_best", &|_| true, "each with the cache that suits it"));
    let note = "SQLite's own caches as they are by default in both";
    report
        .results
        .push(ratio(results, scale, "sqlite_tpcc_vs_stock", &|twelfths| twelfths == 0, note).goal(STOCK_GOAL));
    for (candidate, twelfths) in results.cells() {
        report.info.extend(scale.tpcc_clients.iter().map(|&clients| line(results, (candidate, twelfths), clients)));
    }
}

fn ratio(results: &TpccResults, scale: &DbioScale, name: &str, peer: &dyn Fn(u64) -> bool, note: &str) -> Figure {
    let clients = scale.goal_tpcc_clients();
    let Some(Comparison { spread, pool_twelfths: [own, other] }) = results.quire_vs_stock(peer, clients) else {
        let reason = format!("not measured: {}", results.reason());
        return Figure::new(name, f64::NAN, "x", BetterDirection::Higher).note(reason);
    };
    let per_minute = |candidate, twelfths| median(results, (candidate, twelfths), clients, &PhaseStats::per_s);
    let ours = [SqliteCandidate::Quire, SqliteCandidate::QuireTiers].map(|candidate| per_minute(candidate, own));
    Figure::new(name, spread.median, "x", BetterDirection::Higher)
        .spread(spread)
        .peer("quire_tpm_c", ours.into_iter().fold(f64::NAN, f64::max) * PER_MINUTE)
        .peer("stock_tpm_c", per_minute(SqliteCandidate::Stock, other) * PER_MINUTE)
        .peer("pool_twelfths", own as f64)
        .peer("cache_twelfths_stock", other as f64)
        .note(format!("data {} of the memory, {clients} terminals; {note}", scale.goal_data()))
}

fn median(
    results: &TpccResults,
    (candidate, twelfths): (SqliteCandidate, u64),
    clients: usize,
    pick: &dyn Fn(&PhaseStats) -> f64,
) -> f64 {
    let values: Vec<f64> = results.phases(candidate, twelfths, clients).into_iter().map(pick).collect();
    Spread::of(&values).map_or(f64::NAN, |spread| spread.median)
}

/// A name, and what it says of a phase.
type Fact<'a> = (&'static str, &'a dyn Fn(&PhaseStats) -> f64);

fn line(results: &TpccResults, cell: (SqliteCandidate, u64), clients: usize) -> Figure {
    let (candidate, twelfths) = cell;
    let name = format!("{} cache {twelfths}/12 {}", phase_name(clients), candidate.name());
    if results.phases(candidate, twelfths, clients).is_empty() {
        let reason = format!("not measured: {}", results.reason());
        return Figure::new(name, f64::NAN, "tpmC", BetterDirection::Higher).note(reason);
    }
    let of = |pick: &dyn Fn(&PhaseStats) -> f64| median(results, cell, clients, pick);
    let mib =
        |name: &'static str| move |stats: &PhaseStats| stats.counters.get(name).copied().unwrap_or(f64::NAN) / MIB;
    let (pool, tier, cached) = (mib("pool_bytes"), mib("tier_resident_bytes"), mib("page_cache_bytes"));
    let facts: [Fact<'_>; 8] = [
        ("transactions/s", &|stats| stats.counters.get("transactions").copied().unwrap_or(f64::NAN) / stats.elapsed_s),
        ("pool_hit_ratio", &counters::pool_hit_ratio),
        ("disk_reads_per_op", &|stats| stats.per_op(counters::disk_reads(stats))),
        ("pool_mib", &pool),
        ("tier_mib", &tier),
        ("page_cache_mib", &cached),
        ("p99_us", &|stats| stats.latency_ns[1] as f64 / 1e3),
        ("cpu_us_per_op", &|stats| stats.cpu_ns_per_op() / 1e3),
    ];
    let figure = Figure::new(name, of(&PhaseStats::per_s) * PER_MINUTE, "tpmC", BetterDirection::Higher);
    facts.into_iter().fold(figure, |figure, (name, pick)| figure.peer(name, of(pick)))
}

/// New orders a minute over the size of the cache (figure 3.3 of the dissertation), if anything was tried.
pub fn chart(results: &TpccResults, scale: &DbioScale) -> Option<Chart> {
    let clients = scale.goal_tpcc_clients();
    let series = |candidate: SqliteCandidate| {
        let own = results.cells().into_iter().filter(|cell| cell.0 == candidate);
        let mut points: Vec<(f64, f64)> = own
            .map(|cell| (cell.1 as f64, median(results, cell, clients, &PhaseStats::per_s) * PER_MINUTE))
            .filter(|point| !point.1.is_nan())
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: candidate.name().to_owned(), points }
    };
    let all = [SqliteCandidate::Stock, SqliteCandidate::Quire, SqliteCandidate::QuireTiers].map(series);
    let series: Vec<Series> = all.into_iter().filter(|series| !series.points.is_empty()).collect();
    // The goal is stated for SQLite's own size of the cache.
    let stock = series.iter().find(|series| series.name == SqliteCandidate::Stock.name());
    let goal = stock.and_then(|stock| stock.points.iter().find(|point| point.0 == 0.0));
    let goal = goal.map(|&(x, per_minute)| Mark { name: "goal: 1.15 × stock".into(), x, y: STOCK_GOAL * per_minute });
    (!series.is_empty()).then(|| Chart {
        file: format!("dbio-tpcc-data-{}", scale.goal_data()),
        title: format!("TPC-C on SQLite, data {} of the memory, {clients} terminals", scale.goal_data()),
        x: Axis::new("cache in twelfths of the memory (0: SQLite's default)", "cache_twelfths", AxisScale::Linear),
        y: Axis {
            unit: 1e3,
            marks: goal.into_iter().collect(),
            ..Axis::new("thousand new orders a minute", "new_orders_per_minute", AxisScale::Linear)
        },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series,
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::TpccTrial;
    use super::*;
    use crate::dbio::DbioArgs;
    use crate::dbio::counters::tests::phase;
    use crate::experiment::tests::{parse, report};

    fn results(trials: &[(SqliteCandidate, u64, f64)]) -> TpccResults {
        let trial = |&(candidate, twelfths, per_s): &(SqliteCandidate, u64, f64)| TpccTrial {
            candidate,
            twelfths,
            round: 0,
            outcome: Ok(vec![phase(&phase_name(4), per_s, &[])]),
        };
        TpccResults { trials: trials.iter().map(trial).collect(), ..TpccResults::default() }
    }

    #[test]
    fn stock_has_its_default_cache_in_one_figure_and_its_best_in_the_other() {
        let scale = DbioScale::new(&parse::<DbioArgs>("--data 0.83 --tpcc-clients 4"));
        let (stock, quire, tiers) = (SqliteCandidate::Stock, SqliteCandidate::Quire, SqliteCandidate::QuireTiers);
        let results = results(&[(stock, 0, 100.0), (stock, 6, 120.0), (quire, 6, 110.0), (tiers, 3, 150.0)]);
        let mut report = report::<DbioArgs>();
        add(&results, &scale, &mut report);
        let values: Vec<_> = report.results.iter().map(|figure| (figure.name.as_str(), figure.value)).collect();
        assert_eq!(values, [("tpcc_best_vs_best", 1.25), ("sqlite_tpcc_vs_stock", 1.5)]);
        assert_eq!(report.results[1].reached(), Some(true));
        assert_eq!(report.results[0].peer["stock_tpm_c"], 7200.0);
        assert_eq!(report.info.len(), 4);
        let chart = chart(&results, &scale).unwrap();
        assert_eq!(chart.series[0].points, [(0.0, 6000.0), (6.0, 7200.0)]);
    }

    #[test]
    fn without_trials_the_reason_is_told_and_nothing_is_drawn() {
        let scale = DbioScale::new(&parse::<DbioArgs>(""));
        let results = TpccResults { not_run: Some("SQLite is not here".into()), ..TpccResults::default() };
        let mut report = report::<DbioArgs>();
        add(&results, &scale, &mut report);
        assert!(report.results.iter().all(|figure| figure.value.is_nan()));
        assert!(report.results[0].note.contains("SQLite is not here"), "{}", report.results[0].note);
        assert!(chart(&results, &scale).is_none());
    }
}
