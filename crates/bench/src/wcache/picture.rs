//! The paper's figures as pictures: 4 and 7 as lines over the capacity, 5 and 9 as columns for each policy.
//!
//! Relies on plotters' SVG back end only. Capacities are drawn on a scale of powers of two. The numbers stand beside
//! each picture as CSV.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;

use super::cells::Work;
use super::found::{Found, Row};
use super::lab::stage::Fast;
use super::lines::wait_causes;
use super::policy::Policy;
use super::tally::Tally;
use super::ycsb::records::Workload;

const COLOURS: [RGBColor; 8] = [
    RGBColor(200, 60, 40),
    RGBColor(230, 150, 40),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
    RGBColor(40, 140, 150),
    RGBColor(30, 80, 160),
    RGBColor(140, 180, 60),
    RGBColor(40, 140, 80),
];

/// Names with points or with heights, drawn in one colour each.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// What is drawn.
struct Chart<'a> {
    file: &'a str,
    title: &'a str,
    x: &'a str,
    y: &'a str,
    /// Names under columns; none for lines over capacities.
    columns: Vec<String>,
    is_stacked: bool,
}

/// Draws everything that was found into `dir`.
///
/// # Errors
/// When the directory can't be written.
pub fn draw(dir: &Path, found: &Found) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let per_minute = |tally: &Tally| Some(tally.per_s() * 60.0);
    let per_block = |tally: &Tally| Some(tally.ops as f64 / (tally.cache.cached_bytes()? / 4096.0));
    for (fast, file, title) in [
        (Fast::Ram, "wcache-figure-4a", "TPC-C, cache in memory"),
        (Fast::Ssd, "wcache-figure-4b", "TPC-C, cache on the congested SSD"),
    ] {
        over_capacity(dir, found, fast, file, title, "new orders a minute", &per_minute)?;
    }
    over_capacity(
        dir,
        found,
        Fast::Ram,
        "wcache-figure-7",
        "TPC-C, cache in memory",
        "new orders for each cached block",
        &per_block,
    )?;
    waits(dir, found)?;
    ycsb(dir, found)
}

fn over_capacity(
    dir: &Path,
    found: &Found,
    fast: Fast,
    file: &str,
    title: &str,
    y: &str,
    pick: &dyn Fn(&Tally) -> Option<f64>,
) -> anyhow::Result<()> {
    let rows: Vec<Row> = found.rows().into_iter().filter(|row| row.work == Work::Tpcc && row.fast == fast).collect();
    let points = |policy: Policy| {
        let point = |row: &Row| Some(((row.capacity_mib as f64).log2(), found.median(row.cell(policy), pick)?));
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let series = Policy::EVERY.map(|policy| Series { name: policy.name().to_owned(), points: points(policy) });
    let chart = Chart { file, title, x: "capacity in MiB", y, columns: Vec::new(), is_stacked: false };
    put(dir, &chart, &series)
}

/// Figure 5: critical waits by cause, columns of policies, at the scarcest capacity.
fn waits(dir: &Path, found: &Found) -> anyhow::Result<()> {
    let rows = found.rows().into_iter().filter(|row| row.work == Work::Tpcc && row.fast == Fast::Ram);
    let Some(row) = rows.min_by_key(|row| row.capacity_mib) else { return Ok(()) };
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
    let columns = Policy::EVERY.map(|policy| policy.name().to_owned()).to_vec();
    let y = "milliseconds of all clients in each second";
    put(dir, &Chart { file: "wcache-figure-5", title: &title, x: "", y, columns, is_stacked: true }, &series)
}

/// Figure 9: YCSB's throughput over ALL's.
fn ycsb(dir: &Path, found: &Found) -> anyhow::Result<()> {
    let mut rows: Vec<Row> = found.rows();
    rows.retain(|row| matches!(row.work, Work::Ycsb(Workload::A | Workload::B)));
    let series = Policy::EVERY.map(|policy| {
        let point = |(column, row): (usize, &Row)| {
            let ratio = found.ratio(*row, policy, Policy::All, |tally| Some(tally.per_s()))?;
            Some((column as f64, ratio.median))
        };
        Series { name: policy.name().to_owned(), points: rows.iter().enumerate().filter_map(point).collect() }
    });
    let columns = rows.iter().map(|row| format!("{} {}", row.work.name(), row.fast.name())).collect();
    let chart = Chart {
        file: "wcache-figure-9",
        title: "YCSB on redis-server",
        x: "",
        y: "requests a second over ALL's",
        columns,
        is_stacked: false,
    };
    put(dir, &chart, &series)
}

fn put(dir: &Path, chart: &Chart<'_>, series: &[Series]) -> anyhow::Result<()> {
    if series.iter().all(|series| series.points.is_empty()) {
        return Ok(());
    }
    let path = dir.join(format!("{}.svg", chart.file));
    let drawn = if chart.columns.is_empty() { lines(&path, chart, series) } else { columns(&path, chart, series) };
    drawn.map_err(|error| anyhow::anyhow!("drawing {}: {error}", path.display()))?;
    let path = dir.join(format!("{}.csv", chart.file));
    std::fs::write(&path, csv(chart, series)).with_context(|| format!("writing {}", path.display()))
}

fn top(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(1e-9, f64::max) * 1.1
}

fn lines(path: &Path, chart: &Chart<'_>, series: &[Series]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|series| &series.points);
    let from = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let to = points().map(|point| point.0).fold(from + 1.0, f64::max);
    let area = SVGBackend::new(path, (800, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut drawing = ChartBuilder::on(&area)
        .caption(chart.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(from..to, 0.0..top(points().map(|point| point.1)))?;
    drawing
        .configure_mesh()
        .x_desc(chart.x)
        .y_desc(chart.y)
        .x_labels((to - from) as usize + 1)
        .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
        .draw()?;
    for (series, colour) in series.iter().zip(COLOURS) {
        drawing
            .draw_series(LineSeries::new(series.points.iter().copied(), colour))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        drawing.draw_series(series.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    drawing.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

fn columns(path: &Path, chart: &Chart<'_>, series: &[Series]) -> Result<(), Box<dyn std::error::Error>> {
    let count = chart.columns.len();
    let mut floors = vec![0.0; count];
    let mut boxes = Vec::new();
    for (index, series) in series.iter().enumerate() {
        // Beside each other, unless they are parts of one column.
        let width = if chart.is_stacked { 0.7 } else { 0.8 / COLOURS.len() as f64 };
        let shift = if chart.is_stacked { 0.15 } else { 0.1 + width * index as f64 };
        for &(column, height) in &series.points {
            let floor: f64 = if chart.is_stacked { floors[column as usize] } else { 0.0 };
            floors[column as usize] = floor + height;
            boxes.push((index, [(column + shift, floor), (column + shift + width, floor + height)]));
        }
    }
    let area = SVGBackend::new(path, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let highest = top(boxes.iter().map(|(_, corners)| corners[1].1));
    let mut drawing = ChartBuilder::on(&area)
        .caption(chart.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..count as f64, 0.0..highest)?;
    let name = |at: &f64| {
        let is_middle = (at.fract() - 0.5).abs() < 0.01;
        chart.columns.get(at.floor() as usize).filter(|_| is_middle).cloned().unwrap_or_default()
    };
    drawing
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(chart.x)
        .y_desc(chart.y)
        .x_labels(2 * count + 1)
        .x_label_formatter(&name)
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let own = boxes.iter().filter(|(owner, _)| *owner == index);
        drawing
            .draw_series(own.map(|(_, corners)| Rectangle::new(*corners, colour.filled())))?
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    drawing.configure_series_labels().position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

fn csv(chart: &Chart<'_>, series: &[Series]) -> String {
    let head = if chart.columns.is_empty() { "capacity_mib" } else { "column" };
    let mut text = format!("series,{head},value\n");
    for series in series {
        for &(x, y) in &series.points {
            let at = chart.columns.get(x as usize).cloned().unwrap_or_else(|| format!("{:.0}", x.exp2()));
            let _ = writeln!(text, "{},{at},{y:.4}", series.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::found::tests::{SMALL, visit};
    use super::*;

    #[test]
    fn pictures_and_their_numbers_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let large = Row { capacity_mib: 4096, ..SMALL };
        let ycsb = Row { work: Work::Ycsb(Workload::A), fast: Fast::Ssd, ..large };
        let mut found = Found::default();
        for row in [SMALL, large, ycsb] {
            found.visits.push(visit(row, Policy::All, 0, 100, 8192));
            found.visits.push(visit(row, Policy::CpPiIoi, 0, 200, 4096));
        }
        draw(dir.path(), &found).unwrap();
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text("wcache-figure-4a.svg").contains("<polyline"));
        assert!(text("wcache-figure-4a.csv").contains("CP+PI+IOI,4096,12000.0000\n"));
        assert!(text("wcache-figure-7.csv").contains("ALL,32,50.0000\n"));
        assert!(text("wcache-figure-5.csv").contains("log_room,ALL,7.0000\n"));
        assert!(text("wcache-figure-9.csv").contains("CP+PI+IOI,ycsb_a ssd,2.0000\n"));
        assert!(!dir.path().join("wcache-figure-4b.svg").exists());
    }
}
