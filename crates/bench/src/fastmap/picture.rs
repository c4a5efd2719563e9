//! Operations a second over the number of threads, a picture for each workload and device, as SVG and as CSV.
//!
//! Relies on plotters' SVG back end only. Threads are drawn on a scale of powers of two.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;

use super::found::{Found, Task};
use super::tally::Tally;

const COLOURS: [RGBColor; 8] = [
    RGBColor(200, 60, 40),
    RGBColor(230, 150, 40),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
    RGBColor(140, 180, 60),
    RGBColor(30, 80, 160),
    RGBColor(40, 140, 150),
    RGBColor(40, 140, 80),
];

struct Line {
    name: &'static str,
    /// Threads and operations a second.
    points: Vec<(usize, f64)>,
}

/// Draws the microbenchmark into `dir`.
///
/// # Errors
/// When the directory can't be written.
pub fn draw(dir: &Path, found: &Found) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut kinds: Vec<(&str, super::place::Kind)> = Vec::new();
    for task in found.tasks().into_iter().filter(|task| matches!(task.work, "read" | "write")) {
        if !kinds.contains(&(task.work, task.device)) {
            kinds.push((task.work, task.device));
        }
    }
    for (work, device) in kinds {
        let tasks: Vec<Task> =
            found.tasks().into_iter().filter(|task| task.work == work && task.device == device).collect();
        let lines = lines(found, &tasks);
        let name = format!("fastmap-{work}-{}", device.name());
        let path = dir.join(format!("{name}.svg"));
        let title = format!("random {work}s, data out of memory, {}", device.name());
        render(&path, &title, &lines).map_err(|error| anyhow::anyhow!("drawing {}: {error}", path.display()))?;
        let path = dir.join(format!("{name}.csv"));
        std::fs::write(&path, csv(&lines)).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn lines(found: &Found, tasks: &[Task]) -> Vec<Line> {
    let mut subjects: Vec<_> = tasks.iter().flat_map(|&task| found.subjects(task)).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let points = |subject| {
        let point = |task: &Task| Some((task.threads, found.median(*task, subject, task.work, Tally::per_s)?));
        let mut points: Vec<_> = tasks.iter().filter_map(point).collect();
        points.sort_unstable_by_key(|point| point.0);
        points
    };
    subjects.into_iter().map(|subject| Line { name: subject.name(), points: points(subject) }).collect()
}

fn render(path: &Path, title: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most_threads = points().map(|point| point.0).max().unwrap_or(1).max(2);
    let top = points().map(|point| point.1 / 1e3).fold(0.01, f64::max) * 1.05;
    let area = SVGBackend::new(path, (800, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..(most_threads as f64).log2(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("threads")
        .y_desc("thousand operations a second")
        .x_labels(most_threads.ilog2() as usize + 1)
        .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.into_iter().cycle()) {
        let series: Vec<(f64, f64)> =
            line.points.iter().map(|&(threads, per_s)| ((threads as f64).log2(), per_s / 1e3)).collect();
        chart
            .draw_series(LineSeries::new(series.iter().copied(), colour))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        chart.draw_series(series.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

fn csv(lines: &[Line]) -> String {
    let mut text = String::from("subject,threads,operations_per_second\n");
    for line in lines {
        for (threads, per_s) in &line.points {
            let _ = writeln!(text, "{},{threads},{per_s:.0}", line.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::found::tests::{READ, visit};
    use super::super::subject::Subject;
    use super::*;

    #[test]
    fn a_picture_and_its_points_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let task = |threads| Task { threads, ..READ };
        let visits = [(1, 1000), (2, 2000), (16, 4000)].map(|(threads, per_s)| {
            [
                visit(task(threads), Subject::Mmap, 0, "read", per_s),
                visit(task(threads), Subject::Guards, 0, "read", 2 * per_s),
            ]
        });
        draw(dir.path(), &Found { visits: visits.concat() }).unwrap();
        let svg = std::fs::read_to_string(dir.path().join("fastmap-read-disk.svg")).unwrap();
        assert!(svg.contains("guards") && svg.contains("<polyline"));
        let csv = std::fs::read_to_string(dir.path().join("fastmap-read-disk.csv")).unwrap();
        assert!(csv.contains("mmap,16,4000\n") && csv.contains("guards,2,4000\n"), "{csv}");
    }
}
