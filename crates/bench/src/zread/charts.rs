//! Figures 4.2 to 4.6 of the dissertation, of this machine.
//!
//! Relies on [`super::reads`] and [`super::servers`] for the medians.

use super::reads::{GOAL_OF_MIXED, GOALS_OF_SIZES, ReadPart, ReadResults, SizeGoal, size_name};
use super::servers::{self, NeighbourResults, ServerResults};
use super::spec::{BoundKind, Change, LoadKind};
use super::workers::{ReadMode, TrialPair};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Mark, Series};
use crate::stats::Spread;

const NAMES: [&str; 2] = ["read", "z-READ"];

fn throughput_axis(scale: AxisScale) -> Axis {
    Axis { unit: 1024.0, ..Axis::new("GiB a second", "mib_per_s", scale) }
}

/// Two series, of `read` and of z-READ, of points with their pairs.
fn both<'a>(points: impl Iterator<Item = (f64, &'a TrialPair)>) -> Vec<Series> {
    let mut series = NAMES.map(|name| Series { name: name.to_owned(), points: Vec::new() });
    for (x, pair) in points {
        let (read, zread) = pair.mib_per_s();
        series[0].points.push((x, read));
        series[1].points.push((x, zread));
    }
    series.into()
}

/// All charts of the parts that read blocks.
pub fn of_reads(results: &ReadResults) -> Vec<Chart> {
    let mut charts = Vec::new();
    for size in sizes(results, ReadPart::Threads) {
        let cells = results.cells.iter().filter(|(cell, _)| cell.part == ReadPart::Threads && cell.block_bytes == size);
        let is_eager = cells.clone().any(|(cell, _)| cell.mode == ReadMode::Eager);
        charts.push(Chart {
            file: format!("zread-threads-{}", size_name(size)),
            title: format!(
                "Random reads of {}{}",
                size_name(size),
                if is_eager { ", remapped from 4 KiB on" } else { "" }
            ),
            x: Axis::new("threads", "threads", AxisScale::Linear),
            y: throughput_axis(AxisScale::Linear),
            body: ChartKind::Lines { marks: true, shaded: Vec::new() },
            series: both(cells.map(|(cell, pair)| (cell.threads as f64, pair))),
        });
    }
    for change in [Change::WriteFile, Change::StoreBuffer] {
        charts.extend(mixed(results, change));
    }
    charts.push(touched(results));
    charts
}

fn sizes(results: &ReadResults, part: ReadPart) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        results.cells.iter().filter(|(cell, _)| cell.part == part).map(|(cell, _)| cell.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Gains over the share of writes, a line for each size.
fn mixed(results: &ReadResults, wanted: Change) -> Option<Chart> {
    let series = sizes(results, ReadPart::Mixed).into_iter().map(|size| {
        let point = |(cell, pair): &(super::reads::ReadCell, TrialPair)| match cell.kind {
            LoadKind::Blocks { change, change_percent, .. }
                if cell.part == ReadPart::Mixed && cell.block_bytes == size && change == wanted =>
            {
                Some((f64::from(change_percent), pair.gain().median))
            }
            _ => None,
        };
        Series { name: size_name(size), points: results.cells.iter().filter_map(point).collect() }
    });
    let series: Vec<Series> = series.collect();
    let (file, what) = match wanted {
        Change::WriteFile => ("written", "writes to the file"),
        Change::StoreBuffer => ("stored", "buffers stored to"),
        Change::None => return None,
    };
    Some(Chart {
        file: format!("zread-mixed-{file}"),
        title: format!("z-READ over read, with {what}"),
        x: Axis::new(format!("{what}, in percent"), "percent", AxisScale::Linear),
        y: Axis {
            reach: 1.0,
            levels: vec![("goal".into(), GOAL_OF_MIXED)],
            ..Axis::new("times the throughput", "gain", AxisScale::Linear)
        },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series,
    })
}

/// Throughput over the size of reads, a line for each share that is touched.
fn touched(results: &ReadResults) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for percent in [0, 25, 50, 100] {
        let kind =
            LoadKind::Blocks { is_random: true, touched_percent: percent, change: Change::None, change_percent: 0 };
        let all = sizes(results, ReadPart::Sizes);
        let points = all.iter().filter_map(|&size| Some((size as f64, results.pair(ReadPart::Sizes, size, 1, kind)?)));
        for mut one in both(points).into_iter().filter(|one| !one.points.is_empty()) {
            one.name = format!("{}, {percent} % touched", one.name);
            series.push(one);
        }
    }
    Chart {
        file: "zread-touched".into(),
        title: "Random reads of which a part is touched, one thread".into(),
        x: Axis { unit: 1024.0, ..Axis::new("KiB a read", "block_bytes", AxisScale::PowersOfTwo) },
        y: Axis { marks: marks_of_sizes(results), ..throughput_axis(AxisScale::PowersOfTen) },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series,
    }
}

/// Goals of z-READ, and what memory allows where all is touched; what is not touched may take no time at all.
fn marks_of_sizes(results: &ReadResults) -> Vec<Mark> {
    let mut marks = Vec::new();
    for SizeGoal { block_bytes: bytes, touched_percent, goal, bound: kind, .. } in GOALS_OF_SIZES {
        let load = LoadKind::Blocks { is_random: true, touched_percent, change: Change::None, change_percent: 0 };
        let Some(pair) = results.pair(ReadPart::Sizes, bytes, 1, load) else { continue };
        let mark =
            |what: &str, y: f64| Mark { name: format!("{what}: {touched_percent} % touched"), x: bytes as f64, y };
        marks.push(mark("goal", goal * pair.mib_per_s().0));
        if kind == BoundKind::Sum {
            marks.push(mark("bound", results.bound(bytes, kind) * bytes as f64 / f64::from(1 << 20)));
        }
    }
    marks
}

/// Charts of both servers.
pub fn of_servers(results: &ServerResults) -> Vec<Chart> {
    let all = [("video", "Video server", &results.video), ("web", "Web server", &results.web)];
    let goal = |file: &str, pairs: &[(usize, TrialPair)]| {
        let (size, factor) = match file {
            "video" => (servers::VIDEO_GOAL_READ, servers::VIDEO_GOAL),
            _ => (servers::WEB_GOAL_FILE, servers::WEB_GOAL),
        };
        let place = pairs.iter().position(|pair| pair.0 == size)?;
        Some(Mark { name: "goal of z-READ".into(), x: place as f64, y: factor * pairs[place].1.mib_per_s().0 })
    };
    let chart = |(file, title, pairs): (&str, &str, &Vec<(usize, TrialPair)>)| Chart {
        file: format!("zread-{file}"),
        title: format!("{title}, filebench's made anew"),
        x: Axis::new(if file == "video" { "bytes of a read" } else { "bytes of a file" }, "place", AxisScale::Linear),
        y: Axis { marks: goal(file, pairs).into_iter().collect(), ..throughput_axis(AxisScale::Linear) },
        body: ChartKind::Columns { names: pairs.iter().map(|(size, _)| size_name(*size)).collect(), is_stacked: false },
        series: both(pairs.iter().enumerate().map(|(place, (_, pair))| (place as f64, pair))),
    };
    all.into_iter().filter(|(_, _, pairs)| !pairs.is_empty()).map(chart).collect()
}

/// The chart of the neighbours; none without two processors.
pub fn of_neighbours(results: &NeighbourResults) -> Option<Chart> {
    let series = |name: &str, beside: fn(&super::servers::NeighbourRates) -> &Vec<f64>| {
        let point = |(place, (_, rates)): (usize, &(&str, super::servers::NeighbourRates))| {
            (place as f64, Spread::of_ratios(&rates.alone, beside(rates)).median)
        };
        Series { name: name.to_owned(), points: results.neighbours.iter().enumerate().map(point).collect() }
    };
    let (read, zread) = (series(NAMES[0], |rates| &rates.read), series(NAMES[1], |rates| &rates.zread));
    // Of geometric means, as the figure is.
    let mean = read.points.iter().map(|point| point.1.ln()).sum::<f64>() / read.points.len() as f64;
    let goal = servers::neighbours_goal(mean.exp());
    (!results.neighbours.is_empty()).then(|| Chart {
        file: "zread-neighbours".into(),
        title: "A neighbour's time beside reads of 1 MiB on the other processor, over its time alone".into(),
        x: Axis::new("neighbour", "place", AxisScale::Linear),
        y: Axis {
            levels: vec![("bound: alone".into(), 1.0), ("goal of z-READ's mean".into(), goal)],
            ..Axis::new("times as long", "slowdown", AxisScale::Linear)
        },
        body: ChartKind::Columns {
            names: results.neighbours.iter().map(|(name, _)| (*name).to_owned()).collect(),
            is_stacked: false,
        },
        series: vec![read, zread],
    })
}

#[cfg(test)]
mod tests {
    use super::super::servers::NeighbourRates;
    use super::super::{reads, servers};
    use super::*;

    #[test]
    fn every_figure_of_the_dissertation_is_drawn_with_a_point_for_each_cell() {
        let reads = of_reads(&reads::tests::results_of(3));
        let files: Vec<&str> = reads.iter().map(|chart| chart.file.as_str()).collect();
        let expected = ["zread-threads-4k", "zread-threads-16k", "zread-threads-1m", "zread-mixed-written"];
        assert_eq!(files[..4], expected);
        assert_eq!(files[4..], ["zread-mixed-stored", "zread-touched"]);
        assert_eq!(reads[0].series[1].points.len(), 6);
        assert_eq!((reads[3].series.len(), reads[3].series[0].points.len()), (6, 5));
        assert_eq!((reads[5].series.len(), reads[5].series[0].points.len()), (8, 7));
        let mut charts = of_servers(&servers::tests::results());
        assert_eq!((charts.len(), charts[0].series[0].points.len()), (2, 4));
        let rates = NeighbourRates { alone: vec![2.0], read: vec![1.0], zread: vec![2.0] };
        charts.extend(of_neighbours(&NeighbourResults { neighbours: vec![("chase", rates)] }));
        assert_eq!(charts[2].series[0].points, [(0.0, 2.0)]);
        assert!(
            of_neighbours(&NeighbourResults::default()).is_none() && of_servers(&ServerResults::default()).is_empty()
        );
        let dir = tempfile::tempdir().unwrap();
        for chart in reads.iter().chain(&charts) {
            chart.draw(dir.path()).unwrap();
            assert!(dir.path().join(format!("{}.svg", chart.file)).is_file());
        }
    }
}
