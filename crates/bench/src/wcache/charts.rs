//! The paper's figures as charts: 4 and 7 as lines over the capacity, 5 and 9 as columns for each policy.
//!
//! Relies on [`Found`] for medians and ratios.

use super::cells::Work;
use super::found::{Found, Row};
use super::lab::stage::Fast;
use super::lines::wait_causes;
use super::policy::Policy;
use super::tally::Tally;
use super::ycsb::records::Workload;
use crate::chart::{Axis, Body, Chart, Scale, Series};

/// All charts.
pub fn of(found: &Found) -> Vec<Chart> {
    let per_minute = |tally: &Tally| Some(tally.per_s() * 60.0);
    let per_block = |tally: &Tally| Some(tally.ops as f64 / (tally.cache.cached_bytes()? / 4096.0));
    let (minute, block) = ("new orders a minute", "new orders for each cached block");
    let mut charts = vec![
        over_capacity(found, Fast::Ram, "wcache-figure-4a", minute, &per_minute),
        over_capacity(found, Fast::Ssd, "wcache-figure-4b", minute, &per_minute),
        over_capacity(found, Fast::Ram, "wcache-figure-7", block, &per_block),
    ];
    charts.extend(waits(found));
    charts.push(ycsb(found));
    charts
}

fn columns(file: &str, title: String, y: &str, names: Vec<String>, is_stacked: bool, series: Vec<Series>) -> Chart {
    Chart {
        file: file.into(),
        title,
        x: Axis::new("", "column", Scale::Linear),
        y: Axis::new(y, "value", Scale::Linear),
        body: Body::Columns { names, is_stacked },
        series,
    }
}

fn over_capacity(found: &Found, fast: Fast, file: &str, y: &str, pick: &dyn Fn(&Tally) -> Option<f64>) -> Chart {
    let rows: Vec<Row> = found.rows().into_iter().filter(|row| row.work == Work::Tpcc && row.fast == fast).collect();
    let points = |policy: Policy| {
        let point = |row: &Row| Some((row.capacity_mib as f64, found.median(row.cell(policy), pick)?));
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let title = match fast {
        Fast::Ram => "TPC-C, cache in memory",
        Fast::Ssd => "TPC-C, cache on the congested SSD",
    };
    let series = Policy::EVERY.map(|policy| Series { name: policy.name().to_owned(), points: points(policy) });
    Chart {
        file: file.into(),
        title: title.into(),
        x: Axis::new("capacity in MiB", "capacity_mib", Scale::PowersOfTwo),
        y: Axis::new(y, "value", Scale::Linear),
        body: Body::Lines { marks: true, shaded: Vec::new() },
        series: series.to_vec(),
    }
}

/// Figure 5: critical waits by cause, columns of policies, at the scarcest capacity.
fn waits(found: &Found) -> Option<Chart> {
    let rows = found.rows().into_iter().filter(|row| row.work == Work::Tpcc && row.fast == Fast::Ram);
    let row = rows.min_by_key(|row| row.capacity_mib)?;
    let mut series: Vec<Series> = Vec::new();
    for (column, policy) in Policy::EVERY.into_iter().enumerate() {
        for (cause, ns) in wait_causes(found, row.cell(policy)) {
            let point = (column as f64, ns / 1e6);
            match series.iter_mut().find(|series| series.name == cause) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name: cause, points: vec![point] }),
            }
        }
    }
    let title = format!("TPC-C, cache in memory, {} MiB: waits of critical tasks", row.capacity_mib);
    let names = Policy::EVERY.map(|policy| policy.name().to_owned()).to_vec();
    Some(columns("wcache-figure-5", title, "milliseconds of all clients in each second", names, true, series))
}

/// Figure 9: YCSB's throughput over ALL's.
fn ycsb(found: &Found) -> Chart {
    let mut rows: Vec<Row> = found.rows();
    rows.retain(|row| matches!(row.work, Work::Ycsb(Workload::A | Workload::B)));
    let series = Policy::EVERY.map(|policy| {
        let point = |(column, row): (usize, &Row)| {
            let ratio = found.ratio(*row, policy, Policy::All, |tally| Some(tally.per_s()))?;
            Some((column as f64, ratio.median))
        };
        Series { name: policy.name().to_owned(), points: rows.iter().enumerate().filter_map(point).collect() }
    });
    let names = rows.iter().map(|row| format!("{} {}", row.work.name(), row.fast.name())).collect();
    let title = "YCSB on redis-server".to_owned();
    columns("wcache-figure-9", title, "requests a second over ALL's", names, false, series.to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::found::tests::{SMALL, trial};
    use super::*;

    #[test]
    fn charts_and_their_numbers_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let large = Row { capacity_mib: 4096, ..SMALL };
        let ycsb = Row { work: Work::Ycsb(Workload::A), fast: Fast::Ssd, ..large };
        let mut found = Found::default();
        for row in [SMALL, large, ycsb] {
            found.trials.push(trial(row, Policy::All, 0, 100, 8192));
            found.trials.push(trial(row, Policy::CpPiIoi, 0, 200, 4096));
        }
        of(&found).iter().for_each(|chart| chart.draw(dir.path()).unwrap());
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text("wcache-figure-4a.svg").contains("<polyline"));
        assert!(text("wcache-figure-4a.csv").contains("CP+PI+IOI,4096,12000\n"));
        assert!(text("wcache-figure-7.csv").contains("ALL,32,50\n"));
        assert!(text("wcache-figure-5.csv").contains("log_room,ALL,7\n"));
        assert!(text("wcache-figure-9.csv").contains("CP+PI+IOI,ycsb_a ssd,2\n"));
        assert!(!dir.path().join("wcache-figure-4b.svg").exists());
    }
}
